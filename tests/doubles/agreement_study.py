"""Verdicts on the sample made from its simulated ratings, and `meta_evaluate` run on them."""

import base64
import gzip
import html
import json
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from factories import read, write
from programs import SAMPLE, flags, run_recipe, succeeded

from automedeval.stats.agreement import ACCURACIES, CORRELATIONS
from automedeval.stats.bootstrap import Statistic

meta_evaluate = partial(run_recipe, "report")
CASES, RATINGS = SAMPLE / "test_cases.jsonl", SAMPLE / "test_ratings.jsonl"
FAST = ("--resamples", 200, "--encoder", "none")
MEASURES = ACCURACIES + CORRELATIONS


def told(folder: Path) -> str:
    """Return the sentences of the reports in a folder: their Markdown, without its escapes, bullets and code."""
    text = "\n".join(file.read_text(encoding="utf-8") for file in sorted(Path(folder).glob("*.md")))
    text = re.sub(r": `(automedeval .*)`$", r": \1", text, flags=re.MULTILINE)
    return html.unescape(
        re.sub(r"\\([|\[\]`*_~\\#])", r"\1", re.sub("^- ", "", text, flags=re.MULTILINE))
    )


def opened(page: str) -> list[dict]:
    """Return what the grid of a page shows of its cases when they are opened."""
    (packed,) = re.findall('<template id="packed-texts">(.*?)</template>', page)
    return [
        json.loads(line) for line in gzip.decompress(base64.b64decode(packed)).decode().split("\n")
    ]


MODELS = sorted({response["model"] for case in read(CASES) for response in case["responses"]})


def people_means() -> dict[tuple[str, str], float]:
    scores_of: dict[tuple[str, str], list[float]] = {}
    for rating in read(RATINGS):
        scores_of.setdefault((rating["case_id"], rating["model"]), []).append(rating["score"])
    return {key: sum(scores) / len(scores) for key, scores in scores_of.items()}


def verdict(case: dict, scores: list | None, judge: str = "echo", **more) -> dict:
    order, valid = list(range(len(case["responses"]))), scores is not None
    record = {
        "case_id": case["id"],
        "judge": judge,
        "rubric": "automedeval@1",
        "order": order,
        "valid": valid,
    }
    expected = scores and [
        score and 0.98 * score + 0.05 - 0.01 * place for place, score in enumerate(scores)
    ]
    record |= {
        "error": None if valid else "no score line",
        "scores": scores,
        "expected_scores": expected,
    }
    return record | {"rationale": "Because."} | more


def agreeing_verdicts(judge: str = "echo", **more) -> list[dict]:
    """Return verdicts whose scores are the rounded mean ratings."""
    means = people_means()
    scores = [
        [round(means[case["id"], each["model"]]) for each in case["responses"]]
        for case in read(CASES)
    ]
    return [verdict(case, each, judge, **more) for case, each in zip(read(CASES), scores)]


def value_of(statistic: Statistic, cases: int) -> float:
    """Return a figure without an interval; NaN if it is undefined."""
    return float(statistic.of(statistic.sums(np.ones((1, cases))))[0])


def case_of(name: str, question: str, answers: dict[str, str], **more: object) -> dict:
    """Return a case with the answers of models as its line of a file."""
    responses = [{"model": model, "text": text} for model, text in answers.items()]
    return {"id": name, "question": question, "responses": responses} | more


def rating(
    case_id: str, model: str, score: float, annotator: str = "x", criterion: str = "overall"
) -> dict:
    return {
        "case_id": case_id,
        "model": model,
        "annotator": annotator,
        "criterion": criterion,
        "score": score,
    }


def pair_verdict(case: dict, first: int, second: int, judge: str, **choices: str) -> dict:
    """Return a verdict on two responses of a case, by their places."""
    pair = [case["responses"][place]["model"] for place in (first, second)]
    record = {"case_id": case["id"], "judge": judge, "rubric": "medical_pairwise@1", "valid": True}
    return record | {"order": [first, second], "pair": pair, "choices": choices}


def made(folder: Path, verdicts: list[dict], *arguments: object, **files: Any) -> SimpleNamespace:
    """Run the recipe; return agreement.json, the page, the sentences of the summary, and what the terminal says.

    Args:
        files: "cases" and "ratings", as records that are written or as a path; by default the sample's cases, and no ratings.
    """
    files = {"verdicts": verdicts, "cases": CASES} | files
    for name, each in files.items():
        files[name] = each if isinstance(each, Path) else write(folder / f"{name}.jsonl", each)
    done = succeeded(meta_evaluate(*flags(**files, output=folder / "out"), *FAST, *arguments))
    page = (folder / "out" / "report.html").read_text(encoding="utf-8")
    result = json.loads((folder / "out" / "agreement.json").read_text(encoding="utf-8"))
    return SimpleNamespace(
        folder=folder / "out", result=result, page=page, told=told(folder / "out"), said=done.stdout
    )


def evaluate(tmp_path: Path, verdicts: list[dict], *arguments: object) -> dict:
    return made(tmp_path, verdicts, *arguments).result


def pairwise_verdicts() -> list[dict]:
    means, records = people_means(), []
    for case in read(CASES):
        names = [response["model"] for response in case["responses"]]
        for first, second in ((0, 1), (0, 2), (1, 2)):
            gap = means[case["id"], names[first]] - means[case["id"], names[second]]
            better, worse = (
                (names[first], names[second]) if gap > 0 else (names[second], names[first])
            )
            choices = {
                "correctness": better if gap else "tie",
                "harmfulness": worse if gap else "neither",
            }
            records.append(pair_verdict(case, first, second, "pairs", **choices))
    return records


def right_verdicts(count: int) -> list[dict]:
    """Return verdicts by which the first `count` cases are in people's order, and the others are invalid."""
    means, records = people_means(), []
    for place, case in enumerate(read(CASES)):
        of_case = [round(means[case["id"], response["model"]], 9) for response in case["responses"]]
        scores = [1 + sorted(set(of_case)).index(mean) for mean in of_case]
        records.append(verdict(case, scores if place < count else None))
    return records


def noisy_verdicts(judge: str, noise: float, seed: int, **more) -> list[dict]:
    """Return verdicts like people's means, less 0.8, with noise: a judge that is too strict."""
    means, rng, records = people_means(), np.random.default_rng(seed), []
    for case in read(CASES):
        noisy = [
            means[case["id"], response["model"]] - 0.8 + noise * rng.normal()
            for response in case["responses"]
        ]
        scores = np.clip(noisy, 1, 5)
        record = verdict(case, np.round(scores).astype(int).tolist(), judge, **more)
        records.append(record | {"expected_scores": scores.tolist()})
    return records
