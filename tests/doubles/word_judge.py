"""A judge that counts words."""

from collections.abc import Iterable, Iterator

from automedeval import Case, Verdict


class WordJudge:
    """Give an answer a point for each word, and no verdict on a case with an answer that says "fail"; keep the cases."""

    name, fingerprint, reads_reference = "words", "0" * 12, True

    def __init__(self) -> None:
        self.seen: list[Case] = []

    def __call__(self, cases: Iterable[Case]) -> Iterator[Verdict]:
        for case in cases:
            self.seen.append(case)
            texts = [response.text for response in case.responses]
            about = (case.id, self.name, "words@1", tuple(range(len(texts))))
            if any("fail" in text for text in texts):
                yield Verdict(*about, error="not understood")
            else:
                scores = tuple(float(len(text.split())) for text in texts)
                yield Verdict(*about, valid=True, expected_scores=scores, rationale="So.")
