"""Figures of the product on the packaged sample and on real data, to hold a change against: no test, started by hand.

    python tests/golden.py write [NAME …]
    python tests/golden.py compare [NAME …]

Each NAME is a step below, whose figures are in tests/golden/NAME.json. `compare` prints every difference as path, old, new, and
ends with status 1 if there is one. It needs the two small models, and AUTOMEDEVAL_DATA: of that data's texts and names nothing
is kept. All takes ten minutes of one core.
"""

import json
import os
import re
import sys
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from functools import cache
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest import mock

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true", "OPENAI_API_KEY": "none"}

import numpy as np
from doubles import criteria_grader, criteria_study, harm_raters
from doubles.agreement_study import read as lines
from doubles.agreement_study import write
from doubles.endpoint import EndpointDouble, answer
from programs import ENCODER, JUDGE, ROOT, SAMPLE, run_command, run_recipe

from automedeval.audit.table import table
from automedeval.meta_evaluation.agreement.cases import Cases

HERE, WORK = Path(__file__).parent / "golden", Path(tempfile.mkdtemp(prefix="golden-"))
DATA = Path(os.environ.get("AUTOMEDEVAL_DATA", "no data"))
RUN = ROOT / "recipes" / "runs" / "automedeval-135m"
SETS = {"sample": (SAMPLE / "test_cases.jsonl", SAMPLE / "test_ratings.jsonl")}
for real in ("feedbackqa_cdc_valid", "mediqa_validation"):
    SETS[real] = (DATA / real / "cases.jsonl", DATA / real / "ratings.jsonl")
LIKELIHOOD = {
    "sample": 15,
    "feedbackqa_cdc_valid": 12,
    "mediqa_validation": 3,
}  # cases, for the likelihood is slow
# What is no figure, or tells only how the judge reads.
LEFT_OUT = {
    "seconds",
    "settings",
    "judge_settings",
    "notes",
    "facts",
    "command",
    "version",
    "commit",
    "file",
}
TOLERANCE = 2e-4  # of a figure, and of 1 for smaller ones: another batch changes the last digits


def start(program: str, *statuses: int, **options: Any) -> int:
    """Run a command, or the recipe `recipes/NAME`, with options by their names; return its exit status."""
    words: list[Any] = []
    for name, value in options.items():
        words += [f"--{name}", *(value if isinstance(value, list) else [value])]
    is_recipe = program.startswith("recipes/")
    done = (
        run_recipe(program.partition("/")[2], *words) if is_recipe else run_command(program, *words)
    )
    assert done.returncode in (statuses or (0,)), (
        f"{program} {words}: {done.stdout[-800:]}\n{done.stderr[-2000:]}"
    )
    return done.returncode


def result(
    file: str, program: str, *statuses: int, hidden: frozenset[str] = frozenset(), **options: Any
) -> Any:
    """Run a command that writes a result into its output folder; return its figures (and its exit status)."""
    folder = Path(tempfile.mkdtemp(dir=WORK))
    status = start(program, *statuses, output=folder, **options)
    figures = kept(json.loads((folder / file).read_text("utf-8")), hidden)
    return figures | {"exit status": status} if statuses else figures


def kept(value: Any, hidden: frozenset[str] = frozenset()) -> Any:
    """Return the figures of a result, rounded: of texts only short words, and nothing by a hidden name."""
    if isinstance(value, dict):
        inner = {
            str(key): kept(each, hidden)
            for key, each in value.items()
            if key not in LEFT_OUT | hidden
        }
        return {key[:40]: each for key, each in inner.items() if each != ""}
    if isinstance(value, list | tuple):
        return [kept(each, hidden) for each in value]
    if isinstance(value, str):
        return hashed(value) if value in hidden else "" if re.search(r"[\s/]", value) else value
    return float(f"{value:.5g}") if isinstance(value, float) else value


def chance(*words: object) -> float:
    """Return a number from 0 to 1 that depends on these words alone."""
    return zlib.crc32("|".join(map(str, words)).encode()) / 2**32


def hashed(*texts: object) -> str:
    return sha256("\n".join(map(str, texts)).encode()).hexdigest()[:10]


def names_of(data: str) -> frozenset[str]:
    """Return the names that are not to be written: those of the cases and models of real data."""
    cases = lines(DATA / data / "cases.jsonl") if data != "sample" else []
    return frozenset(
        name
        for case in cases
        for name in (case["id"], *(each["model"] for each in case["responses"]))
    )


@cache
def judged(data: str, judge: str, **options: Any) -> Path:
    """Return the folder of a judge's verdicts on a set of cases."""
    folder = WORK / "verdicts" / hashed(data, judge, options)
    statuses = (0, 1) if options.get("score_decoding") == "free" else (0,)  # 1: no verdict is valid
    start(
        "judge",
        *statuses,
        cases=SETS[data][0],
        judge=judge,
        encoder=ENCODER,
        dtype="float32",
        output=folder,
        **options,
    )
    return folder


def likelihood(data: str) -> Path:
    return judged(data, f"likelihood:{JUDGE}", limit=LIKELIHOOD[data])


@cache
def recorded(data: str) -> Path:
    """Write verdicts of a judge who errs: whole scores, some in two runs and some invalid, and choices on pairs."""
    ratings, records = defaultdict(list), []
    for each in lines(SETS[data][1]):
        ratings[each["case_id"], each["model"]].append(each["score"])
    for case in lines(SETS[data][0]):
        models = [each["model"] for each in case["responses"]]
        means = [fmean(ratings[case["id"], model]) for model in models]
        on_case = {"case_id": case["id"], "models": models, "valid": True}
        for run in range(1 + (chance(case["id"]) < 0.3)):
            draws = [chance(case["id"], slot, run) for slot in range(len(models))]
            scores = [
                min(max(round(mean + 2.4 * draw - 1.2), 1), 5) for mean, draw in zip(means, draws)
            ]
            record = on_case | {
                "judge": "recorded",
                "rubric": "automedeval@1",
                "run": run,
                "rationale": "Read.",
            }
            record |= {"order": list(range(len(models))), "scores": scores}
            record["expected_scores"] = [
                0.1 + 0.9 * score + 0.4 * draw for score, draw in zip(scores, draws)
            ]
            if chance(case["id"], "valid", run) < 0.08:
                record |= {
                    "valid": False,
                    "error": "no score line",
                    "scores": None,
                    "expected_scores": None,
                }
            records.append(record)
        for one, two in combinations(range(min(3, len(models))), 2):
            gap = means[one] - means[two] + 2 * chance(case["id"], one, two) - 1
            choice = "tie" if abs(gap) < 0.4 else models[one if gap > 0 else two]
            record = on_case | {"judge": "pairs", "rubric": "pandalm@1", "order": [one, two]}
            records.append(
                record | {"pair": [models[one], models[two]], "choices": {"overall": choice}}
            )
    return write(WORK / "verdicts" / data / "verdicts.jsonl", records).parent


def small() -> Any:
    """What the packaged small judge reads of each response, and its scores."""
    from automedeval import load_judge
    from automedeval.judges.features import FEATURES, read_responses
    from automedeval.judges.small import shares_by
    from automedeval.records.cases import read_cases

    judge, found = load_judge("small", encoder=str(ENCODER)), {}
    for data, (file, _) in SETS.items():
        cases = list(read_cases(str(file)))[: 30 if data == "sample" else 25]
        features = read_responses(cases, judge.encoder, judge.pair_reader)
        columns = dict(zip(FEATURES, features.T.tolist())) | {
            "apart": (1 + 4 * shares_by(judge.scales, features)).tolist()
        }
        columns = {
            name: [round(value, 4) for value in of if value == value]
            for name, of in columns.items()
        }
        if data != "sample":
            columns = {
                name: [len(of), fmean(of), min(of), max(of)] for name, of in columns.items() if of
            }
        verdicts = lines(judged(data, "small") / "verdicts.jsonl")
        found[data] = kept(columns) | {
            "scores": [each["expected_scores"] for each in in_order(verdicts)]
        }
    return found


def in_order(verdicts: list[dict]) -> list[dict]:
    return sorted(verdicts, key=lambda each: (each["case_id"], each["order"]))


def agreement() -> Any:
    """Reports on judges, with people's ratings and without."""
    found, fast = {}, {"encoder": "none", "resamples": 500}
    for data, (cases, ratings) in SETS.items():
        files = {
            "verdicts": [judged(data, "small"), likelihood(data), recorded(data)],
            "cases": cases,
        }
        found[data] = result(
            "agreement.json", "report", **files, ratings=ratings, **fast, hidden=names_of(data)
        )
    files = {"cases": SAMPLE / "train_cases.jsonl", "ratings": SAMPLE / "train_ratings.jsonl"}
    found["teachers"] = result(
        "agreement.json", "report", verdicts=SAMPLE / "verdicts.jsonl", **files, **fast
    )
    cases, ratings = SETS["sample"]
    files = {"verdicts": recorded("sample"), "cases": cases, "ratings": ratings, "encoder": ENCODER}
    judges = result("agreement.json", "report", **files, resamples=200)["judges"]
    found["embeddings"] = {
        name: each for name, each in judges.items() if name.startswith("embedding")
    }
    unrated = result("agreement.json", "report", verdicts=likelihood("sample"), cases=cases, **fast)
    return found | {"no ratings": unrated}


def comparison() -> Any:
    """Candidates by few ratings; versions that were judged apart; the gate."""
    cases, ratings = SETS["sample"]
    files = {"cases": cases, "verdicts": [judged("sample", "small"), recorded("sample")]}
    fast = {"encoder": "none", "resamples": 200}
    drawn = [
        Cases.read(str(cases)).records[at].id
        for at in np.random.default_rng(0).choice(30, 12, replace=False)
    ]
    few = write(WORK / "few.jsonl", [each for each in lines(ratings) if each["case_id"] in drawn])
    found = result("agreement.json", "report", **files, **fast, ratings=few)["few_ratings"]
    for at, name in enumerate(("old", "new")):
        one = [
            each | {"responses": [each["responses"][at] | {"model": "mine"}]}
            for each in lines(cases)
        ]
        file = write(WORK / f"{name}.jsonl", one)
        start("judge", cases=file, judge="baseline:ROUGE-L to the reference", output=WORK / name)
    two = [f"{name}={WORK / name}.jsonl" for name in ("old", "new")]
    files = {"cases": two, "verdicts": [WORK / "old", WORK / "new"]}
    found["two files"] = result("agreement.json", "report", **files, **fast)["baseline"]
    models = sorted(each["model"] for each in lines(cases)[0]["responses"])
    for pair, by in [(list(pair), by) for pair in combinations(models, 2) for by in (0.05, 1.5)]:
        gate = {
            "cases": cases,
            "verdicts": judged("sample", "small"),
            "fail_if_worse": pair,
            "by": by,
        }
        found[f"{' '.join(pair)} {by}"] = result("gate.json", "report", 0, 3, 4, **gate)
    return found


def calibration() -> Any:
    """Scores of the small and the recorded judge, put on the scale of the ratings of some cases."""
    found = {}
    for data, (_, file) in SETS.items():
        some = [each for each in lines(file) if chance(each["case_id"], "rated") < 0.7]
        options = {"ratings": write(WORK / f"{data}-rated.jsonl", some), "hidden": names_of(data)}
        options["rubric"] = "automedeval" if data == "sample" else RUN / "feedbackqa.yaml"
        for judge, folder in (("small", judged(data, "small")), ("recorded", recorded(data))):
            figures = result(
                "calibration.json", "calibrate", verdicts=folder, judge=judge, **options
            )
            found[f"{data} {judge}"] = figures
    return found


def criteria() -> Any:
    """Judges of criteria beside labels: on K-QA two that are asked through an endpoint, and made-up ones with chances."""

    def guess(body: dict[str, Any]) -> dict[str, Any]:
        response, wanted = criteria_grader.shown(body)
        words = {
            name: "met" if chance(response, text) < 0.5 else "not met"
            for name, text in wanted.items()
        }
        return answer(json.dumps({"rationale": "Read.", "criteria": words}))

    kqa, made_up = {"cases": DATA / "kqa" / "cases.jsonl"}, WORK / "criteria"
    labels, hidden = DATA / "kqa" / "criterion_labels.jsonl", names_of("kqa")
    for name, script in (("grader", criteria_grader.grade), ("guesser", guess)):
        with EndpointDouble(script) as server:
            asked = {
                "judge": f"openai:{name}",
                "base_url": server.url,
                "rubric": "checklist",
                **kqa,
            }
            start("judge", **asked, output=WORK / name)
    kqa["verdicts"] = [WORK / "grader", WORK / "guesser"]
    found = {"kqa": result("agreement.json", "report", **kqa, ratings=labels, hidden=hidden)}
    found["checklists"] = [
        kept(each["checklist"]) for each in in_order(lines(WORK / "grader" / "verdicts.jsonl"))
    ]
    made_up.mkdir()
    criteria_study.write_study(made_up)
    files = {"verdicts": made_up / "verdicts.jsonl", "cases": made_up / "cases.jsonl"}
    labelled = {**files, "ratings": made_up / "labels.jsonl"}
    return found | {"made up": result("agreement.json", "report", **labelled)}


def harm() -> Any:
    """A simulated judge of harm beside three simulated physicians, on the sample."""
    folder = WORK / "harm"
    harm_raters.write_study(folder, raters=3, untold=0.15)
    files = {"verdicts": folder / "judge.jsonl", "cases": folder / "cases.jsonl"}
    found = {"rated": result("harm.json", "report", **files, ratings=folder / "ratings.jsonl")}
    return found | {"not rated": result("harm.json", "report", **files)}


def audit() -> Any:
    """The packaged small judge, audited on ten cases of the sample."""
    few = {"limit": 10, "edits": 4}
    with mock.patch.object(table, "__defaults__", (500,)):  # resamples
        return result(
            "audit.json",
            "audit",
            0,
            3,
            judge="small",
            encoder=ENCODER,
            cases=SETS["sample"][0],
            **few,
        )


def language_model() -> Any:
    """SmolLM2-135M on cases of the sample: constrained and free, in several orders, by pairs, of harm, and likelihoods."""
    ways: dict[str, dict[str, Any]] = {
        "constrained": {"limit": 6, "score_decoding": "constrained", "max_new_tokens": 32},
        "free": {"limit": 6, "score_decoding": "free", "max_new_tokens": 48},
        "orders": {
            "limit": 3,
            "score_decoding": "constrained",
            "rationale": False,
            "orders": "latin",
        },
        "pandalm": {"limit": 2, "rubric": "pandalm"},
        "medical_pairwise": {"limit": 1, "rubric": "medical_pairwise"},
        "harm": {"limit": 1, "rubric": "harm", "max_new_tokens": 32},
    }
    names = ("order", "valid", "scores", "expected_scores", "choices", "usage", "probabilities")
    found: dict[str, Any] = {}
    for way, options in ways.items():
        verdicts = in_order(lines(judged("sample", str(JUDGE), **options) / "verdicts.jsonl"))
        shown = [(each, {name: each.get(name) for name in names}) for each in verdicts]
        found[way] = [kept(own) | {"raw": hashed(each["raw"])} for each, own in shown]
    verdicts = in_order(lines(likelihood("sample") / "verdicts.jsonl"))
    return found | {"likelihood": [kept(each["expected_scores"]) for each in verdicts]}


def splits() -> Any:
    """The instruction data set of the packaged study: teachers with books, verification, quality, curriculum."""
    from pyarrow.parquet import read_table

    def step(name: str, config: str, **options: Any) -> None:
        start(f"recipes/{name}", config=RUN / f"{config}.yaml", encoder=ENCODER, **options)

    found: dict[str, Any] = {}
    step("build_store", "build_store", store=WORK / "store")
    for name in ("strong", "weak"):
        step("distill", "distill", teacher=name, store=WORK / "store", output=WORK / name)
        verdicts = lines(WORK / name / "verdicts.jsonl")
        passages = [
            one["text"]
            for each in verdicts
            for asked in each["knowledge"]
            for one in asked["passages"]
        ]
        found[name] = {"verdicts": len(verdicts), "valid": sum(each["valid"] for each in verdicts)}
        found[name] |= {"passages": len(passages), "hash": hashed(*passages)}
    files = ",".join(str(WORK / name / "verdicts.jsonl") for name in ("strong", "weak"))
    step("build_dataset", "build_dataset", verdicts=files, output=WORK / "instructions")
    for file in sorted((WORK / "instructions").glob("*.parquet")):
        rows = read_table(file).to_pylist()
        ids = hashed(*(f"{each['case_id']} {each['judge']} {each['order']}" for each in rows))
        found[file.stem] = {
            "rows": len(rows),
            "ids": ids,
            "texts": hashed(*(each["completion"] for each in rows)),
        }
        found[file.stem]["qualities"] = Counter(each["quality"] for each in rows)
    return found | {
        "statistics": kept(
            json.loads((WORK / "instructions" / "statistics.json").read_text("utf-8"))
        )
    }


ALL = (
    small,
    agreement,
    comparison,
    calibration,
    criteria,
    harm,
    audit,
    language_model,
    splits,
)
STEPS = {each.__name__: each for each in ALL}


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return path → figure of a tree of dicts and lists."""
    if not value or not isinstance(value, dict | list):
        return {path: value}
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    return {name: each for key, some in inner for name, each in flat(some, f"{path}/{key}").items()}


def differs(old: Any, new: Any) -> bool:
    if type(old) in (int, float) and type(new) in (int, float):
        return abs(old - new) > TOLERANCE * max(1, abs(old))
    return old != new


def main() -> None:
    what, *names = sys.argv[1:] or ["help"]
    if what not in ("write", "compare") or set(names) - STEPS.keys():
        sys.exit(f"{__doc__}\nNAMEs: {', '.join(STEPS)}")
    HERE.mkdir(exist_ok=True)
    differences = 0
    for name in names or STEPS:
        started, file = time.process_time(), HERE / f"{name}.json"
        new = json.loads(json.dumps(STEPS[name]()))
        if what == "write":
            parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in new.items()]
            file.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")
        old, new = flat(json.loads(file.read_text("utf-8"))), flat(new)
        for path in old | new:
            before, after = old.get(path, "nothing"), new.get(path, "nothing")
            if differs(before, after):
                differences += 1
                print(f"{name}{path}: {before} -> {after}")
        print(
            f"{name}: {len(old)} figures, {time.process_time() - started:.0f} s of the processor",
            flush=True,
        )
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
