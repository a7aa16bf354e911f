"""Made-up studies on the sample: verdicts that agree with its simulated raters, and the recipe run on them."""

import json
from functools import partial
from pathlib import Path

from programs import SAMPLE, run_recipe

from automedeval.stats.agreement import ACCURACIES, CORRELATIONS

meta_evaluate = partial(run_recipe, "meta_evaluate")
CASES, RATINGS = SAMPLE / "test_cases.jsonl", SAMPLE / "test_ratings.jsonl"
FAST = ("--resamples", 200)
MEASURES = ACCURACIES + CORRELATIONS


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def write(path: Path, records: list[dict]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def people_means() -> dict[tuple[str, str], float]:
    given: dict[tuple[str, str], list[float]] = {}
    for rating in read(RATINGS):
        given.setdefault((rating["case_id"], rating["model"]), []).append(rating["score"])
    return {key: sum(scores) / len(scores) for key, scores in given.items()}


def verdict(case: dict, scores: list | None, judge: str = "echo", **more) -> dict:
    return {
        "case_id": case["id"],
        "judge": judge,
        "rubric": "automedeval@1",
        "order": list(range(len(case["responses"]))),
        "valid": scores is not None,
        "error": None if scores is not None else "no score line",
        "scores": scores,
        "expected_scores": scores
        and [score and 0.98 * score + 0.05 - 0.01 * place for place, score in enumerate(scores)],
        "rationale": "Because.",
        **more,
    }


def agreeing_verdicts(judge: str = "echo", **more) -> list[dict]:
    """Return verdicts that round what people said."""
    means = people_means()
    return [
        verdict(case, [round(means[case["id"], response["model"]]) for response in case["responses"]], judge, **more)
        for case in read(CASES)
    ]


def evaluate(tmp_path: Path, verdicts: list[dict], *arguments: object) -> dict:
    """Run the recipe on these verdicts and return agreement.json."""
    file = write(tmp_path / "verdicts.jsonl", verdicts)
    done = meta_evaluate("--verdicts", file, "--cases", CASES, "--output", tmp_path / "out", *FAST, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads((tmp_path / "out" / "agreement.json").read_text(encoding="utf-8"))


def pairwise_verdicts(swap: bool = False) -> list[dict]:
    means, records = people_means(), []
    for case in read(CASES):
        names = [response["model"] for response in case["responses"]]
        for one, two in ((0, 1), (0, 2), (1, 2)):
            gap = means[case["id"], names[one]] - means[case["id"], names[two]]
            better, worse = (names[one], names[two]) if gap > 0 else (names[two], names[one])
            records.append(
                {
                    "case_id": case["id"], "judge": "pairs", "rubric": "medical_pairwise@1",
                    "order": [two, one] if swap else [one, two], "pair": [names[one], names[two]], "valid": True,
                    "choices": {"correctness": better if gap else "tie", "harmfulness": worse if gap else "neither"},
                }
            )  # fmt: skip
    return records
