"""Turn FeedbackQA's ratings into two teachers' verdicts, one case an answer, and set apart what no training sees.

    python recipes/runs/feedbackqa/verdicts.py DATA OUTPUT [CASES]

DATA is the folder with feedbackqa, feedbackqa_cdc_valid and mediqa_validation; CASES takes so many cases of each source alone.
Weak is the first rater's score, strong the rounded mean of all raters. Training has the cases of the UK and Australia; CDC's
and WHO's are left out, each with the cluster of cases around a passage that it belongs to. Answers are cut to 700 characters.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from automedeval.records import Case, Rating, Verdict, digest, read_records
from automedeval.records.journal import write_lines
from automedeval.records.tables.cases import read_cases

LONGEST = 700  # characters of an answer
TRAINING, LEFT_OUT = ("UK", "Australia"), ("CDC", "WHO")
Ratings = dict[tuple[str, str], list[Rating]]


def source_of(case_id: str) -> str:
    """Return the source of a case, which its id tells: feedbackqa-UK-valid-7."""
    return case_id.split("-")[1]


def cut(case: Case) -> Case:
    """Return a case with its answers cut to so many characters as a row has room for."""
    answers = (replace(answer, text=answer.text[:LONGEST]) for answer in case.responses)
    return replace(case, responses=tuple(answers))


def single_answers(case: Case) -> Iterator[Case]:
    """Yield a case for each answer of a case; its source decides on the licence, and on the split."""
    for answer in case.responses:
        extra = {"source": source_of(case.id)}
        yield replace(case, id=f"{case.id}/{answer.model}", responses=(answer,), extra=extra)


def verdict(case: Case, ratings: Sequence[Rating], teacher: str) -> Verdict:
    """Return the score of the first rater, or the rounded mean of all of them, as a verdict without a reason."""
    score = ratings[0].score
    if teacher == "strong":
        mean = sum(rating.score for rating in ratings) / len(ratings)
        score = int(mean + 0.5)  # halves upwards
    return Verdict(
        case.id,
        teacher,
        "feedbackqa_answer@1",
        (0,),
        valid=True,
        scores=(int(score),),
        teacher=teacher,
        case_digest=case.digest,
    )


def clustered(cases: Sequence[Case]) -> Iterator[Case]:
    """Yield the cases with a cluster each: those around the passage that most of them share, then around the next one."""
    left = list(cases)
    while left:
        shared: Counter[str] = Counter()
        for case in left:
            shared.update({response.text for response in case.responses})
        passage = max(shared, key=lambda text: (shared[text], text))
        around = [case for case in left if passage in {each.text for each in case.responses}]
        for case in around:
            yield replace(case, extra={}, cluster=digest(passage))
        left = [case for case in left if case not in around]


def main(data: Path, output: Path, most: int | None) -> None:
    """Write the cases, both teachers' verdicts, and the cases that are left out with their ratings."""
    of_source: dict[str, list[Case]] = defaultdict(list)
    ratings: Ratings = defaultdict(list)
    for name in ("feedbackqa_cdc_valid", "feedbackqa"):
        for case in read_cases(data / name / "cases.jsonl", blank=None):
            of_source[source_of(case.id)].append(case)
        for rating in read_records(data / name / "ratings.jsonl", Rating):
            ratings[rating.case_id, rating.model].append(rating)
    cases: list[Case] = []
    for source in TRAINING:
        for case in of_source[source][:most]:
            cases += single_answers(cut(case))
    output.mkdir(parents=True, exist_ok=True)
    write_lines(output / "cases.jsonl", [case.to_dict() for case in cases])
    for teacher in ("weak", "strong"):
        given = [verdict(case, ratings[tuple(case.id.split("/"))], teacher) for case in cases]
        write_lines(output / f"{teacher}.jsonl", [each.to_dict() for each in given])
    left_out: list[Case] = []
    for source in LEFT_OUT:
        left_out += map(cut, clustered(of_source[source][:most]))
    write_lines(output / "left_out.jsonl", [case.to_dict() for case in left_out])
    curve = [
        case for case in left_out if source_of(case.id) == LEFT_OUT[0]
    ]  # a stage is measured on
    write_lines(output / "curve.jsonl", [case.to_dict() for case in curve])
    ids = {case.id for case in left_out}
    kept = chain.from_iterable(some for (case, _), some in ratings.items() if case in ids)
    write_lines(output / "left_out_ratings.jsonl", [rating.to_dict() for rating in kept])
    file = data / "mediqa_validation/cases.jsonl"
    others = [cut(case) for case in read_cases(file, blank=None)][:most]
    write_lines(output / "mediqa.jsonl", [case.to_dict() for case in others])
    print(f"{len(cases):,} answers to train on; {len(left_out):,} cases left out")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
