"""Expected scores from an endpoint's log-probabilities, beside an enumeration of every text that its table can write."""

import math
import random
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from doubles.endpoint import EndpointDouble, answer

from automedeval.judges.judge import Judge
from automedeval.models.endpoint import OpenAIChat
from automedeval.records import Case
from automedeval.rubrics import read_rubric

LEAD = "Fine.\nScore: Doctor 1:"
BLANK, OTHERWISE, AFTER = " ", " four", (" points", ".")


def tokens_of(kind: str, numbers: tuple[str, ...]) -> list[str]:
    """Return the tokens in which a tokenizer writes a number after "Doctor 1:"."""
    spelled = {
        "digits": "0123456789",
        "numbers": numbers,
        "blanks": [BLANK, *numbers, *(f" {each}" for each in numbers)],
    }
    return [*spelled[kind], OTHERWISE, *AFTER]


class Table:
    """A model by chance of how a score is written: the odds of the next token depend on what is written of it."""

    def __init__(self, kind: str, seed: str, low: int, high: int):
        self.numbers = tuple(map(str, range(low, high + 1)))
        self.tokens, self.seed = tokens_of(kind, self.numbers), seed

    @cache  # noqa: B019  the tables of a test are few
    def odds(self, written: str) -> dict[str, float]:
        rng, digits = random.Random(f"{self.seed}:{written}"), written.strip()

        def fits(token: str) -> bool:
            if token in AFTER:
                return digits in self.numbers
            if token == OTHERWISE:
                return not digits
            goes_on = any(number.startswith((written + token).strip()) for number in self.numbers)
            return goes_on and (token[0] != " " or not written)

        weights = {token: rng.random() ** 6 for token in self.tokens if fits(token)}
        return {token: weight / sum(weights.values()) for token, weight in weights.items()}

    @cache  # noqa: B019
    def enumerated(self, written: str = "", share: float = 1.0) -> Counter:
        """Return the probability of each number, by every text that can be written."""
        totals: Counter = Counter()
        for token, chance in self.odds(written).items():
            if token in AFTER:
                totals[written.strip()] += share * chance
            elif token != OTHERWISE:
                totals += self.enumerated(written + token, share * chance)
        return totals

    def reply(self, most: int, ends: bool) -> dict:
        """Return a completion that gives the likeliest score, with `most` alternatives per token."""
        wanted = self.enumerated()
        score, written = max(wanted, key=wanted.__getitem__), ""

        def token_record(token: str, chances: dict[str, float]) -> dict:
            shown = sorted(chances, key=chances.__getitem__, reverse=True)[:most]
            rivals = [{"token": each, "logprob": math.log(chances[each])} for each in shown]
            return {"token": token, "logprob": math.log(chances[token]), "top_logprobs": rivals}

        content = [token_record(LEAD, {LEAD: 1.0})]
        while written.strip() != score:
            chances = self.odds(written)
            reaching = [token for token in chances if score.startswith((written + token).strip())]
            content.append(token_record(max(reaching, key=chances.__getitem__), chances))
            written += content[-1]["token"]
        if not ends:  # the text goes on after the score
            content.append(token_record(" points", self.odds(written)))
        return answer("".join(each["token"] for each in content), logprobs={"content": content})


@cache
def rubric_of(low: int, high: int):
    return replace(read_rubric("automedeval"), scale=(low, high), anchors={}, examples=())


def case_of(seed: str) -> Case:
    return Case.from_dict({"id": seed, "question": "Why?", "responses": [{"model": "a", "text": seed}]})


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("most", [200, 20, 5])
@pytest.mark.parametrize(("low", "high"), [(1, 5), (0, 9), (1, 10), (5, 12), (90, 110)])
@pytest.mark.parametrize("kind", ["digits", "numbers", "blanks"])
def test_an_expected_score_is_the_enumerated_one_or_says_how_far_it_may_be_off(kind, low, high, most, ends):
    tables = {f"seed{number}.": Table(kind, f"seed{number}.", low, high) for number in range(6)}

    def script(body):
        return next(table for seed, table in tables.items() if seed in body["messages"][-1]["content"]).reply(
            most, ends
        )

    with EndpointDouble(script) as endpoint:
        chat = OpenAIChat("m", base_url=endpoint.url, structured_output=False)
        verdicts = list(Judge(chat, rubric_of(low, high))(map(case_of, tables)))
    exact = 0
    for table, verdict in zip(tables.values(), verdicts, strict=True):
        assert verdict.valid, verdict.error
        unseen = verdict.extra.get("unseen_probability")
        if verdict.expected_scores is None:
            assert unseen is None
            continue
        exact += 1
        assert unseen is None or 0.01 < unseen <= 1
        wanted = table.enumerated()
        mean = sum(int(number) * share for number, share in wanted.items()) / sum(wanted.values())
        all_told = most == 200 and high < 10 and kind != "blanks"
        furthest = 1e-5 if all_told else (unseen or 0.01) * (high - low) + 1e-5
        assert abs(verdict.expected_scores[0] - mean) <= furthest
    # One token decides; where "1" may be the beginning of "10" it seldom is known.
    assert exact == len(tables) if high < 10 else exact < len(tables) or kind != "digits"
