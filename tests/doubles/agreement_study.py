"""Verdicts on the sample made from its simulated ratings, and `automedeval report` run on them."""

import base64
import gzip
import html
import json
import re
from itertools import combinations
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
from factories import Json, read, read_json, write
from programs import SAMPLE, flags, run_command, succeeded

from automedeval.records.types import without_none
from automedeval.stats.bootstrap import Statistic, estimate

CASES = SAMPLE / "test_cases.jsonl"
RATINGS = SAMPLE / "test_ratings.jsonl"
FAST = ("--resamples", 200, "--encoder", "none")


def told(folder: Path) -> str:
    """Return the sentences of the reports in a folder: their Markdown, without its escapes, bullets and code."""
    text = "\n".join(file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.md")))
    text = re.sub(r"(?m): `(automedeval .*)`$", r": \1", text)
    text = re.sub("(?m)^- ", "", text)
    return html.unescape(re.sub(r"\\([|\[\]`*_~\\#])", r"\1", text))


def opened(page: str, what: str = "texts") -> list[dict]:
    """Return what the grid of a page shows of opened cases, or its "rows" in one record."""
    (packed,) = re.findall(f'<template id="packed-{what}">(.*?)</template>', page)
    lines = gzip.decompress(base64.b64decode(packed)).decode().split("\n")
    return [json.loads(line) for line in lines]


MODELS = sorted({response["model"] for case in read(CASES) for response in case["responses"]})


def people_means() -> dict[tuple[str, str], float]:
    scores_of: dict[tuple[str, str], list[float]] = {}
    for rating in read(RATINGS):
        scores_of.setdefault((rating["case_id"], rating["model"]), []).append(rating["score"])
    return {key: sum(scores) / len(scores) for key, scores in scores_of.items()}


def rated_cases() -> list[tuple[dict, list[float]]]:
    """Return each case of the sample with people's mean rating of each response."""
    means = people_means()
    rated = []
    for case in read(CASES):
        rated.append((case, [means[case["id"], each["model"]] for each in case["responses"]]))
    return rated


def verdict(case: dict, scores: list | None, judge: str = "echo", **more) -> dict:
    """Return a verdict with these scores in the order of the case, and expected ones near them; None is an invalid one."""
    expected = scores and [
        score and 0.98 * score + 0.05 - 0.01 * place for place, score in enumerate(scores)
    ]
    record = {
        "case_id": case["id"],
        "judge": judge,
        "rubric": "automedeval@1",
        "order": list(range(len(case["responses"]))),
        "run": 0,
        "valid": scores is not None,
        "error": None if scores else "no score line",
        "scores": scores,
        "expected_scores": expected,
        "rationale": "Because.",
    }
    return record | {"pair": None, "choices": None} | more


def agreeing_verdicts(judge: str = "echo", **more) -> list[dict]:
    """Return verdicts whose scores are the rounded mean ratings."""
    rounded = [(case, [round(mean) for mean in means]) for case, means in rated_cases()]
    return [verdict(case, scores, judge, **more) for case, scores in rounded]


def value_of(statistic: Statistic, cases: int) -> float:
    """Return a figure without an interval; NaN if it is undefined."""
    value = estimate(statistic, cases, 1).value
    return np.nan if value is None else value


def case_of(name: str, question: str, answers: dict[str, str], **more: object) -> dict:
    """Return a case with the answers of models as its line of a file."""
    responses = [{"model": model, "text": text} for model, text in answers.items()]
    return {"id": name, "question": question, "responses": responses} | more


def rating(
    case_id: str, model: str, score: float, annotator: str = "x", criterion: str = "overall"
) -> dict:
    about = {"case_id": case_id, "model": model, "annotator": annotator}
    return about | {"criterion": criterion, "score": score}


def pair_verdict(case: dict, first: int, second: int, judge: str, **choices: str) -> dict:
    """Return a verdict on two responses of a case, by their places."""
    order = [first, second]
    pair = [case["responses"][place]["model"] for place in order]
    about = {"rubric": "medical_pairwise@1", "order": order, "pair": pair, "choices": choices}
    return verdict(case, None, judge, valid=True, error=None, rationale=None) | about


def marked(text: str) -> list[dict]:
    """Return the mark of an answer that says "ten tablets", where the reference says two."""
    start = text.index("ten tablets")
    mark = {"factor": 5.0, "kind": "tablets", "start": start, "end": start + 11}
    sides = {"sentence": ["Take ", "ten tablets", "."], "passage": ["Take ", "two tablets", "."]}
    return [mark | sides | {"source": "reference"}]


class Report:
    """What a run of `automedeval report` printed, and what it wrote: its figures, its page and the sentences of its summary."""

    def __init__(self, folder: Path, said: str):
        self.folder = folder
        self.said = said

    def json(self, name: str = "agreement") -> Any:
        return read_json(self.folder / f"{name}.json")

    @property
    def result(self) -> Json:
        return self.json()

    @property
    def page(self) -> str:
        return (self.folder / "report.html").read_text(encoding="utf-8")

    @property
    def text(self) -> str:
        """Return the page with its spaces and its marks of HTML as a reader sees them."""
        return re.sub(r"\s+", " ", html.unescape(self.page))

    @property
    def told(self) -> str:
        return told(self.folder)


def asked(folder: Path, verdicts: Any, *arguments: object, **options: Any) -> CompletedProcess:
    """Run the recipe into a folder's `out`, by default on the sample's cases, without ratings.

    Args:
        verdicts, options: lists of records are written to files, None is left out, the others are taken as they are.
    """
    given = {"cases": CASES, "output": folder / "out", "resamples": 200, "encoder": "none"}
    given |= {"verdicts": verdicts} | options
    for name, value in given.items():
        if isinstance(value, list):
            given[name] = write(folder / f"{name}.jsonl", value)
    return run_command("report", *flags(**without_none(given)), *arguments)


def made(folder: Path, verdicts: Any, *arguments: object, **options: Any) -> Report:
    """Run the recipe, which succeeds; return its report."""
    done = succeeded(asked(folder, verdicts, *arguments, **options))
    return Report(options.get("output", folder / "out"), done.stdout)


def pairwise_verdicts() -> list[dict]:
    """Return verdicts on pairs that choose as the mean ratings say."""
    records = []
    for case, means in rated_cases():
        for first, second in combinations(range(3), 2):
            places = sorted((first, second), key=lambda place: -means[place])
            better, worse = (case["responses"][place]["model"] for place in places)
            choices = {"correctness": better, "harmfulness": worse}
            if means[first] == means[second]:
                choices = {"correctness": "tie", "harmfulness": "neither"}
            records.append(pair_verdict(case, first, second, "pairs", **choices))
    return records


def right_verdicts(count: int) -> list[dict]:
    """Return verdicts by which the first `count` cases are in people's order, and the others are invalid."""
    records = []
    for place, (case, means) in enumerate(rated_cases()):
        levels = sorted({round(mean, 9) for mean in means})
        scores = [1 + levels.index(round(mean, 9)) for mean in means]
        records.append(verdict(case, scores if place < count else None))
    return records


def noisy_verdicts(judge: str, noise: float, seed: int, **more) -> list[dict]:
    """Return verdicts like people's means, less 0.8, with noise: a judge that is too strict."""
    rng = np.random.default_rng(seed)
    records = []
    for case, means in rated_cases():
        scores = np.clip(np.array(means) - 0.8 + noise * rng.normal(size=len(means)), 1, 5)
        expected = {"expected_scores": scores.tolist()}
        records.append(verdict(case, scores.round().astype(int).tolist(), judge, **expected | more))
    return records
