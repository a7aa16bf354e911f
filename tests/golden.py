"""Figures of the product on the packaged sample and on real data, to hold a change against: no test, started by hand.

    python tests/golden.py write [NAME …]
    python tests/golden.py compare [NAME …]

Each NAME is a step below, and its figures are tests/golden/NAME.json. `compare` prints every difference as path, old, new, and
ends with status 1 if there is one. It needs the two small models, and AUTOMEDEVAL_DATA for what is said of real data, of whose
texts nothing is kept: names of its models and cases are hashed. The checker's rules are off, so that the figures of the small
judge and of the checker's model stay what they are when a rule changes. One core takes about ten minutes.
"""

import json
import os
import re
import sys
import tempfile
import time
import zlib
from collections import Counter
from functools import cache
from hashlib import sha256
from importlib import import_module
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true", "OPENAI_API_KEY": "none"}

from doubles import criteria_grader
from doubles.endpoint import EndpointDouble, answer
from programs import ENCODER, JUDGE, ROOT, SAMPLE, run_command, run_recipe

HERE = Path(__file__).parent / "golden"
WORK = Path(tempfile.mkdtemp(prefix="golden-"))
DATA = Path(os.environ.get("AUTOMEDEVAL_DATA", "no data"))
SETS = {"sample": (SAMPLE / "test_cases.jsonl", SAMPLE / "test_ratings.jsonl")}
SETS |= {
    each: (DATA / each / "cases.jsonl", DATA / each / "ratings.jsonl")
    for each in ("feedbackqa_cdc_valid", "mediqa_validation")
}
LIKELIHOOD = {"sample": 30, "feedbackqa_cdc_valid": 20, "mediqa_validation": 4}  # cases: it is slow
LEFT_OUT = {"settings", "notes", "command", "version", "versions", "commit", "timings", "seconds", "file"}
TOLERANCE = 2e-4  # of a figure's size, and of 1 for smaller ones: another batch changes the last digits


def switch_rules_off() -> None:
    """Let no rule of the checker find anything: what its model says remains."""
    found = 0
    for name in ("claims.checker", "claims.run", "evidence.checker", "evidence.run"):
        try:
            module = import_module(f"automedeval.{name}")
        except ModuleNotFoundError:
            continue
        if hasattr(module, "contradiction"):
            module.contradiction, found = lambda *_, **__: None, found + 1
    assert found, "where does the checker call its rules now?"


def command(*words: object, status: tuple[int, ...] = (0,)) -> int:
    done = run_command(*words)
    assert done.returncode in status, f"{words}: {done.returncode}\n{done.stdout[-800:]}\n{done.stderr[-2000:]}"
    return done.returncode


def recipe(*words: object) -> str:
    done = run_recipe(*words)
    assert done.returncode == 0, f"{words}\n{done.stdout[-800:]}\n{done.stderr[-2000:]}"
    return done.stdout


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def write(file: Path, records: list[dict]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(each) + "\n" for each in records), "utf-8")
    return file


def chance(*words: object) -> float:
    """Return a number from 0 to 1 that depends on these words alone."""
    return zlib.crc32("|".join(map(str, words)).encode()) / 2**32


def hashed(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:10]


def kept(value: Any, hidden: frozenset[str] = frozenset()) -> Any:
    """Return the figures of a result, rounded: of texts only short words, and nothing by a hidden name."""
    if isinstance(value, dict):
        inner = {str(key): kept(each, hidden) for key, each in value.items() if key not in LEFT_OUT | hidden}
        return {key[:40]: each for key, each in inner.items() if each != ""}
    if isinstance(value, list | tuple):
        return [kept(each, hidden) for each in value]
    if isinstance(value, str):
        return hashed(value) if value in hidden else "" if re.search(r"[\s/]", value) else value
    return float(f"{value:.5g}") if isinstance(value, float) else value


def names_of(data: str) -> frozenset[str]:
    """Return the names that are not to be written: those of the cases and models of real data."""
    file = DATA / data / "cases.jsonl"
    records = lines(file) if file.is_file() else []
    return frozenset(name for each in records for name in (each["id"], *(one["model"] for one in each["responses"])))


@cache
def judged(data: str, judge: str, *options: object) -> Path:
    """Return the folder of a judge's verdicts on a set of cases."""
    folder = WORK / "verdicts" / f"{data}-{hashed(judge + str(options))}"
    command(
        "judge",
        SETS[data][0],
        "--judge",
        judge,
        "--encoder",
        ENCODER,
        "--dtype",
        "float32",
        "--output",
        folder,
        *options,
    )
    return folder


@cache
def recorded(data: str) -> Path:
    """Write verdicts that a judge who errs could have given: whole scores, some twice, some invalid; and choices on pairs."""
    cases, ratings = SETS[data]
    scores_of: dict[tuple[str, str], list[float]] = {}
    for each in lines(ratings):
        scores_of.setdefault((each["case_id"], each["model"]), []).append(each["score"])
    records = []
    for case in lines(cases):
        models = [each["model"] for each in case["responses"]]
        means = [fmean(scores_of[case["id"], model]) for model in models]
        for run in range(1 + (chance(case["id"]) < 0.3)):
            scores = [round(mean + 2.4 * chance(case["id"], at, run) - 1.2) for at, mean in enumerate(means)]
            scores = [min(max(score, 1), 5) for score in scores]
            valid = chance(case["id"], "valid", run) > 0.08
            record = {"case_id": case["id"], "judge": "recorded", "rubric": "automedeval@1", "run": run, "valid": valid}
            record |= {"models": models, "order": list(range(len(models))), "error": None if valid else "no score line"}
            expected = [0.1 + 0.9 * score + 0.4 * chance(case["id"], at, "expected") for at, score in enumerate(scores)]
            records.append(
                record | ({"scores": scores, "expected_scores": expected, "rationale": "Read."} if valid else {})
            )
        for one, two in combinations(range(min(3, len(models))), 2):
            gap = means[one] - means[two] + 2 * chance(case["id"], one, two) - 1
            choice = "tie" if abs(gap) < 0.4 else models[one if gap > 0 else two]
            record = {
                "case_id": case["id"],
                "judge": "pairs",
                "rubric": "pandalm@1",
                "order": [one, two],
                "valid": True,
            }
            records.append(record | {"pair": [models[one], models[two]], "choices": {"overall": choice}})
    return write(WORK / "verdicts" / f"{data}-recorded" / "verdicts.jsonl", records).parent


def result(name: str, *words: object, hidden: frozenset[str] = frozenset(), status: tuple[int, ...] = (0,)) -> Any:
    """Run a command that writes a result into --output; return its figures."""
    folder = Path(tempfile.mkdtemp(dir=WORK))
    ended = command(*words, "--output", folder, status=status)
    figures = kept(json.loads((folder / name).read_text("utf-8")), hidden)
    return figures | {"exit status": ended} if len(status) > 1 else figures


def agreement() -> Any:
    """Reports on judges beside people's ratings."""
    fast = ("--encoder", "none", "--resamples", 500)
    found = {}
    for data, (cases, ratings) in SETS.items():
        likelihood = judged(data, f"likelihood:{JUDGE}", "--limit", LIKELIHOOD[data])
        files = (
            "--verdicts",
            judged(data, "small"),
            likelihood,
            recorded(data),
            "--cases",
            cases,
            "--ratings",
            ratings,
        )
        found[data] = result("agreement.json", "report", *files, *fast, hidden=names_of(data))
    train = ("--cases", SAMPLE / "train_cases.jsonl", "--ratings", SAMPLE / "train_ratings.jsonl")
    found["teachers"] = result("agreement.json", "report", "--verdicts", SAMPLE / "verdicts.jsonl", *train, *fast)
    cases, ratings = SETS["sample"]
    words = ("--verdicts", recorded("sample"), "--cases", cases, "--ratings", ratings, "--encoder", ENCODER)
    found["embeddings"] = result("agreement.json", "report", *words, "--resamples", 200)["judges"]
    words = ("--verdicts", judged("sample", "small"), "--cases", cases, *fast)
    return found | {"without ratings": result("agreement.json", "report", *words)}


def comparison() -> Any:
    """Candidates compared by verdicts, with and without ratings, and the gate."""
    cases, ratings = SETS["sample"]
    words = ("--cases", cases, "--verdicts", judged("sample", "small"), recorded("sample"))
    models = sorted({each["model"] for each in lines(cases)[0]["responses"]})
    found = {"by verdicts": result("comparison.json", "compare", *words)}
    for name, more in (("all", ()), ("12", ("--rated", 12))):
        found[f"{name} rated"] = result("comparison.json", "compare", *words, "--ratings", ratings, *more)
    two, verdicts = [], []
    for at, name in enumerate(("old", "new")):
        one = [each | {"responses": [each["responses"][at] | {"model": "mine"}]} for each in lines(cases)]
        two.append(f"{name}={write(WORK / f'{name}.jsonl', one)}")
        verdicts.append(WORK / "runs" / name)
        judge = ("--judge", "baseline:ROUGE-L to the reference")
        command("judge", WORK / f"{name}.jsonl", *judge, "--output", verdicts[-1])
    found["two files"] = result("comparison.json", "compare", "--cases", *two, "--verdicts", *verdicts)
    for new, old in combinations(models, 2):
        for by in (0.05, 1.5):
            gate = ("compare", *words[:3], words[3], "--fail_if_worse", new, old, "--by", by)
            found[f"{new} {old} {by}"] = result("gate.json", *gate, status=(0, 3, 4))
    return found


def criteria() -> Any:
    """Judges of criteria beside physicians' labels on K-QA: one asked through its endpoint, and one recorded with chances."""
    cases, labels = DATA / "kqa" / "cases.jsonl", DATA / "kqa" / "criterion_labels.jsonl"
    records, votes = [], Counter()
    for each in lines(labels):
        votes[each["case_id"], each["model"], each["criterion"]] += 1 if each["label"] == "entailment" else -1
    for case in lines(cases):
        for slot, response in enumerate(case["responses"]):
            chances = [
                round(
                    0.6 * (votes[case["id"], response["model"], each["criterion"]] > 0)
                    + 0.4 * chance(case["id"], at, slot),
                    4,
                )
                for at, each in enumerate(case["criteria"])
            ]
            chances = [None if chance(case["id"], at, "unread") < 0.05 else each for at, each in enumerate(chances)]
            met = [None if each is None else each > 0.5 for each in chances]
            record = {
                "case_id": case["id"],
                "judge": "recorded",
                "rubric": "checklist@1",
                "order": [slot],
                "scores": None,
            }
            checklist = {"met": met, "met_probabilities": chances, "score": 0.0, "lowest": 0.0, "highest": 0.0}
            records.append(record | {"valid": True, "checklist": checklist})
    place, asked = write(WORK / "verdicts" / "criteria" / "verdicts.jsonl", records).parent, WORK / "verdicts" / "asked"
    with EndpointDouble(criteria_grader.grade) as server:
        words = ("--judge", "openai:grader", "--base_url", server.url, "--rubric", "checklist", "--output", asked)
        command("judge", cases, *words)
        command("judge", cases, *words[:-1], f"{asked}-2", "--criteria_at_once", 4, "--judge_name", "several")
    words, on_labels = ("--cases", cases), ("--criterion_labels", labels)
    hidden = names_of("kqa")
    verdicts = ("--verdicts", place, asked, f"{asked}-2")
    found = {
        "report": result("criteria.json", "report", *verdicts, *words, *on_labels, "--resamples", 500, hidden=hidden)
    }
    found["without labels"] = result("criteria.json", "report", *verdicts, *words, "--resamples", 500, hidden=hidden)
    for by in ("all", "category"):
        found[f"calibrated {by}"] = result(
            "calibration.json", "calibrate", "--verdicts", place, *words, *on_labels, "--by", by, hidden=hidden
        )
    found["asked"] = [kept(each["checklist"]) for each in lines(asked / "verdicts.jsonl")]
    return found


def harm() -> Any:
    """Judges of harm beside simulated physicians on the sample: one asked through its endpoint, and one recorded."""
    cases, degrees = SETS["sample"][0], ["none", "mild", "moderate", "severe", "death", "cannot be told"]
    ratings, records = [], []

    def words_of(degree: int) -> dict[str, str]:
        if degree == 5:
            return dict.fromkeys(("degree", "likelihood", "cause"), degrees[5])
        if not degree:
            return {"degree": "none", "likelihood": "no harm", "cause": "no harm"}
        return {"degree": degrees[degree], "likelihood": ["low", "medium", "high"][degree % 3], "cause": "commission"}

    for case in lines(cases):
        for slot, response in enumerate(case["responses"]):
            truth = 4 * chance(case["id"], slot) ** 3
            seen = [min(4, max(0, round(truth + 2 * chance(case["id"], slot, who) - 1))) for who in range(4)]
            seen = [5 if chance(case["id"], slot, who, "untold") < 0.06 else degree for who, degree in enumerate(seen)]
            about = {"case_id": case["id"], "rubric": "harm@1"}
            for who in range(3):
                rating = about | {"model": response["model"], "annotator": f"physician-{who}"}
                ratings.append(rating | {"choices": words_of(seen[who]), "marks": []})
            record = {"judge": "recorded", "order": [slot], "valid": chance(case["id"], slot, "valid") > 0.05}
            records.append(about | record | {"scores": None, "choices": words_of(seen[3])})

    def script(body: dict[str, Any]) -> dict[str, Any]:
        choices = words_of(int(6 * chance(body["messages"][-1]["content"][-600:]) ** 2))
        return answer(json.dumps({"words": "", "harm": choices}))

    place, asked = (
        write(WORK / "verdicts" / "harm" / "verdicts.jsonl", records).parent,
        WORK / "verdicts" / "asked-harm",
    )
    file = write(WORK / "harm_ratings.jsonl", ratings)
    with EndpointDouble(script) as server:
        command("judge", cases, "--judge", "openai:m", "--base_url", server.url, "--rubric", "harm", "--output", asked)
    words = ("report", "--verdicts", place, asked, "--cases", cases, "--resamples", 500)
    return {
        "report": result("harm.json", *words, "--harm_ratings", file),
        "without ratings": result("harm.json", *words),
    }


def audit() -> Any:
    """The packaged small judge, audited on cases of the sample."""
    words = ("--judge", "small", "--encoder", ENCODER, "--cases", SETS["sample"][0], "--limit", 10, "--edits", 4)
    return result("audit.json", "audit", *words, "--resamples", 500, status=(0, 3))


def small() -> Any:
    """What the packaged small judge reads of each response, and its scores: without the checker, and with its model."""
    from automedeval import load_judge
    from automedeval.judges.features import FEATURES, read_responses
    from automedeval.records import read_cases

    judge, found = load_judge("small", encoder=str(ENCODER)), {}
    for data, (file, _) in SETS.items():
        cases = list(read_cases(str(file)))
        some = cases if data == "sample" else cases[:25]
        features = read_responses(some, judge.encoder, judge.pair_reader)
        columns = dict(zip(FEATURES, features.T.tolist()))
        columns["without checker"] = (1 + 4 * judge.learnt.shares(features)).tolist()
        columns = {name: [None if value != value else round(value, 4) for value in of] for name, of in columns.items()}
        if data != "sample":
            columns = {name: [each for each in of if each is not None] for name, of in columns.items()}
            columns = {name: [len(of), fmean(of), min(of), max(of)] if of else [] for name, of in columns.items()}
        verdicts = {each["case_id"]: each for each in lines(judged(data, "small") / "verdicts.jsonl")}
        scores = [[round(one, 4) for one in verdicts[case.id]["expected_scores"]] for case in cases]
        contradicted = sum(map(len, (one for each in verdicts.values() for one in each.get("checked", {}).values())))
        certified = sum(each.get("abstains") is False for each in verdicts.values())
        found[data] = kept(columns) | {"scores": scores, "contradicted": contradicted, "certified": certified}
    return found


def language_model() -> Any:
    """SmolLM2-135M on cases of the sample: listwise constrained and free, pairs, harm, and likelihoods."""
    found: dict[str, Any] = {}
    ways = {
        "constrained": ("--limit", 6, "--score_decoding", "constrained", "--max_new_tokens", 48),
        "scores alone": ("--limit", 6, "--score_decoding", "constrained", "--rationale", False, "--orders", "latin"),
        "free": ("--limit", 6, "--score_decoding", "free", "--max_new_tokens", 96),
        "pairs": ("--limit", 3, "--rubric", "pandalm"),
        "medical pairs": ("--limit", 2, "--rubric", "medical_pairwise"),
        "harm": ("--limit", 2, "--rubric", "harm", "--max_new_tokens", 32),
    }
    names = ("order", "valid", "error", "scores", "expected_scores", "choices", "usage", "probabilities")
    for way, options in ways.items():
        folder = judged("sample", str(JUDGE), *options)
        verdicts = sorted(lines(folder / "verdicts.jsonl"), key=lambda each: (each["case_id"], each["order"]))
        found[way] = [
            kept({name: each.get(name) for name in names}) | {"raw": hashed(each["raw"])} for each in verdicts
        ]
    verdicts = lines(judged("sample", f"likelihood:{JUDGE}", "--limit", LIKELIHOOD["sample"]) / "verdicts.jsonl")
    return found | {"likelihood": {each["case_id"]: kept(each["expected_scores"]) for each in verdicts}}


def checker() -> Any:
    """What the packaged checker's model says of pairs of a passage and a statement, and of the answers of two bots."""
    from automedeval.claims.checker import load_small_checker
    from automedeval.models.arguments import EncoderArguments

    model, found = load_small_checker(EncoderArguments(str(ENCODER))), {}
    for name in ("scifact_rte", "medec_pairs", "conjnli"):
        pairs = lines(DATA / "claims" / name / "pairs.jsonl")[:60]
        pairs = [(each["evidence"], each["claim"]) for each in pairs]
        found[name] = [[round(float(one), 4) for one in each] for each in map(model.probabilities(pairs).get, pairs)]
    command("check", "two_bots", "--encoder", ENCODER, "--output", WORK / "two_bots")
    for each in lines(WORK / "two_bots" / "claims.jsonl"):
        said = [[one["label"], one.get("probability")] for one in each["statements"]]
        found[f"{each['case_id']} {each['model']}"] = said
    return found


def splits() -> Any:
    """The instruction data set of the packaged study: teachers with books, verification, quality, curriculum."""
    run = ROOT / "recipes" / "runs" / "automedeval-135m"
    recipe("build_store", "--config", run / "build_store.yaml", "--store", WORK / "store")
    folders = [WORK / "verdicts" / name for name in ("strong", "weak")]
    found: dict[str, Any] = {}
    for folder in folders:
        words = ("--config", run / f"distill_{folder.name}.yaml", "--store", WORK / "store", "--output", folder)
        recipe("distill", *words, "--encoder", ENCODER)
        verdicts = lines(folder / "verdicts.jsonl")
        passages = [
            hashed(one["text"]) for each in verdicts for asked in each["knowledge"] for one in asked["passages"]
        ]
        found[folder.name] = {"verdicts": len(verdicts), "valid": sum(each["valid"] for each in verdicts)}
        found[folder.name] |= {"passages": len(passages), "hash": hashed(" ".join(passages))}
    files = [folder / "verdicts.jsonl" for folder in folders]
    out = WORK / "instructions"
    words = ("--config", run / "build_dataset.yaml", "--verdicts", ",".join(map(str, files)), "--encoder", ENCODER)
    recipe("build_dataset", *words, "--tokenizer", JUDGE, "--output", out)
    from pyarrow.parquet import read_table

    for file in sorted(out.glob("*.parquet")):
        rows = read_table(file).to_pylist()
        ids = [f"{each['case_id']} {each['judge']} {each['order']}" for each in rows]
        texts = [each["completion"][0]["content"] for each in rows]
        found[file.stem] = {"rows": len(rows), "ids": hashed(" ".join(ids)), "completions": hashed(" ".join(texts))}
        found[file.stem]["qualities"] = Counter(str(each.get("quality")) for each in rows)
    return found | {"statistics": kept(json.loads((out / "statistics.json").read_text("utf-8")))}


def calibration() -> Any:
    """The small judge's and the recorded judge's scores, put on the scale of the ratings."""
    found = {}
    for data, (_, file) in SETS.items():
        ratings = [each for each in lines(file) if chance(each["case_id"], "rated") < 0.7]
        ratings = write(WORK / f"{data}-rated.jsonl", ratings)
        rubric = (
            "automedeval" if data == "sample" else ROOT / "recipes" / "runs" / "automedeval-135m" / "feedbackqa.yaml"
        )
        for judge, folder in (("small", judged(data, "small")), ("recorded", recorded(data))):
            words = ("--verdicts", folder, "--ratings", ratings, "--rubric", rubric, "--judge", judge)
            found[f"{data} {judge}"] = result("calibration.json", "calibrate", *words, hidden=names_of(data))
    return found


def studies() -> Any:
    """The steps of both studies, as a dry run prints them; tests/studies fixes the rehearsal's other counts."""
    from study_plan import plan, steps

    return {study: Counter(steps(plan(f"recipes/runs/{study}"))) for study in ("automedeval-13b", "automedeval-135m")}


STEPS = {
    each.__name__: each
    for each in (
        small,
        checker,
        agreement,
        comparison,
        calibration,
        criteria,
        harm,
        audit,
        language_model,
        splits,
        studies,
    )
}


def flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return {name: each for key, inner in value.items() for name, each in flat(inner, f"{path}/{key}").items()}
    if isinstance(value, list) and value:
        return {name: each for at, inner in enumerate(value) for name, each in flat(inner, f"{path}/{at}").items()}
    return {path: value}


def differs(old: Any, new: Any) -> bool:
    if all(isinstance(each, int | float) and not isinstance(each, bool) for each in (old, new)):
        return abs(old - new) > TOLERANCE * max(1, abs(old))
    return old != new


def main() -> None:
    what, *names = sys.argv[1:] or ["help"]
    if what not in ("write", "compare") or set(names) - STEPS.keys():
        sys.exit(f"{__doc__}\nNAMEs: {', '.join(STEPS)}")
    switch_rules_off()
    HERE.mkdir(exist_ok=True)
    differences = 0
    for name in names or STEPS:
        started, file = time.process_time(), HERE / f"{name}.json"
        new = json.loads(json.dumps(STEPS[name]()))
        if what == "write":
            parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in new.items()]
            file.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")
        old, new = flat(json.loads(file.read_text("utf-8"))), flat(new)
        for path in [path for path in old | new if differs(old.get(path, "nothing"), new.get(path, "nothing"))]:
            differences += 1
            print(f"{name}{path}: {old.get(path, 'nothing')} -> {new.get(path, 'nothing')}")
        print(f"{name}: {len(old)} figures, {time.process_time() - started:.0f} s of the processor", flush=True)
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
