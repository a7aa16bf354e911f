"""The small judge: trained, fitted and judging beside plain transformers; and the packaged one, with its recorded scores."""

import json
import re
import runpy
import shutil
import subprocess
import sys
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas
import pytest
import torch
from doubles.agreement_study import CASES, RATINGS, read, write
from factories import read_json, write_json
from plain_small_judge import Plain, adapter
from programs import (
    ENCODER,
    ROOT,
    SAMPLE,
    SAVE,
    failed,
    flags,
    module_fixture,
    needs_encoder,
    run_recipe,
    stopped,
    succeeded,
    told,
)
from tables import each_row

from automedeval.judges.features import FEATURES, QUESTION
from automedeval.judges.small import PACKAGED, Scale
from automedeval.metrics.embedding import pieces
from automedeval.models.embeddings import Encoder
from automedeval.records import Case, Response
from automedeval.records.tables.cases import read_cases
from automedeval.rubrics.rationale import permute
from automedeval.stats.agreement import Panel

pytestmark = needs_encoder
SCALE = "automedeval"
FAST = {"use_cpu": "true", "report_to": "none", "save_strategy": "steps", "logging_steps": 1}
STEPS = {"lists": 8, "per_device_train_batch_size": 2, "num_train_epochs": 1, "save_steps": 2}
STEPS |= {"learning_rate": 0.001, "seed": 0, "evaluation_cases": CASES}
OF_TRAINING = {name: SAMPLE / f"train_{name}.jsonl" for name in ("cases", "ratings")}


def train(output: Path, *more: object):
    """Train four updates on the sample's ratings, saved after every other one; `more` overrides."""
    options = {**OF_TRAINING, **FAST, **STEPS, "encoder": ENCODER, "output_dir": output}
    return run_recipe("train_cross_encoder", *flags(**options), *more)


@module_fixture
def trained(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("small") / "people"
    done = train(output)
    told(done, "cases → 8 drawn")
    assert "MISSING" not in done.stderr + done.stdout
    return output


@module_fixture
def small(trained, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("judges") / "small"
    cases = read(OF_TRAINING["cases"])[:15]  # texts take long
    taken = write(output.with_name("cases.jsonl"), (each | {"reference": None} for each in cases))
    options = {"relevance": trained, "rubric": SCALE, "encoder": ENCODER, "output": output}
    options |= {"cases": taken, "ratings": OF_TRAINING["ratings"]}
    told(run_recipe("fit_small_judge", **options), "relevance 0.")
    return output


def judged(tmp_path: Path, folder: Path, cases: Path = CASES, limit: int = 4) -> list[dict]:
    options = {"judge": f"small:{folder}", "encoder": ENCODER, "device": "cpu", "limit": limit}
    succeeded(run_recipe("judge", cases=cases, output=tmp_path / "out", **options))
    return read(tmp_path / "out/verdicts.jsonl")


@pytest.mark.parametrize("beside", ["reference", "question"])
@pytest.mark.parametrize("which", ["packaged", "fitted"])
def test_scores_are_those_of_plain_transformers(which, beside, small, tmp_path):
    folder = PACKAGED if which == "packaged" else small
    cases = read(SAMPLE / "test_cases.jsonl")[:2]
    if beside == "question":
        cases = [case | {"reference": None} for case in cases]
    file = write(tmp_path / "cases.jsonl", cases)
    verdicts = judged(tmp_path, folder, file)
    plain = Plain(folder)
    for case, verdict in zip(cases, verdicts, strict=True):
        about = [verdict[name] for name in ("case_id", "judge", "rubric", "scores")]
        assert about == [case["id"], "small", "automedeval@1", None]
        right = []
        for response in case["responses"]:
            right.append(plain.score(case["question"], response["text"], case["reference"]))
        assert verdict["expected_scores"] == pytest.approx(right, abs=2e-4)
    assert judged(tmp_path, folder, file) == verdicts, "it resumes"


@pytest.mark.slow
def test_the_measured_figures_are_those_of_loops(small):
    """Concordance of each feature with people on the fifteen cases that were fitted."""
    plain = Plain(small)
    right = {name: [] for name in QUESTION}
    ratings = pandas.DataFrame(read(OF_TRAINING["ratings"]))
    by_rater = ratings.groupby(["case_id", "model", "annotator"]).score.mean()
    people = by_rater.groupby(["case_id", "model"]).mean()
    for case in list(read_cases(OF_TRAINING["cases"]))[:15]:
        read_of = {
            response.model: plain.features(case.question, response.text)
            for response in case.responses
        }
        for first, second in combinations(read_of, 2):
            gap = people[case.id, first] - people[case.id, second]
            if abs(gap) <= 1e-9:
                continue
            for name in right:
                right[name].append((read_of[first][name] - read_of[second][name]) * gap > 0)
    measured, *_ = read_json(small / "judge.json")["sets"].values()
    for name, hits in right.items():
        assert measured[name]["value"] == pytest.approx(fmean(hits), abs=1e-9)


def test_fitting_has_its_own_faults_in_one_line(trained, small, tmp_path):
    usual = {"cases": CASES, "ratings": RATINGS, "rubric": SCALE, "encoder": ENCODER}
    usual |= {"relevance": trained, "output": tmp_path / "a"}
    (tmp_path / "mine.txt").write_text("mine")
    few = {"cases": small.with_name("cases.jsonl"), "ratings": OF_TRAINING["ratings"]}
    for change, message in (
        ({"relevance": "nowhere"}, "no adapter at nowhere"),
        ({"output": tmp_path}, "holds files that are no small judge"),
        ({"seen": "["}, "--seen: not a regular expression"),
        (few | {"only": "no such case"}, "0 rated cases"),
    ):
        failed(run_recipe("fit_small_judge", **usual | change), message)
    assert not (tmp_path / "a").exists()


def columns(**values: np.ndarray) -> np.ndarray:
    """Return features of which only the named ones are there."""
    (count,) = {len(value) for value in values.values()}
    return np.column_stack([values.get(name, np.full(count, np.nan)) for name in FEATURES])


def test_weights_put_pairs_in_order_and_shares_are_on_peoples_scale():
    """Planted: people follow one feature, another is noise, and a third says the opposite of what they say."""
    rng = np.random.default_rng(0)
    panel = Panel.of_sizes([3] * 300)
    quality = rng.normal(size=900)
    features = columns(
        first=-quality + rng.normal(size=900), relevance=quality, covered=rng.normal(size=900)
    )
    shares = 1 / (1 + np.exp(-(0.5 + 1.5 * quality))) + rng.normal(0, 0.02, 900)
    scale = Scale.fit(["first", "relevance", "covered"], features, shares.clip(0, 1), panel)
    assert scale.weights["first"] == 0
    assert scale.weights["covered"] < 0.05 * scale.weights["relevance"]
    assert scale.intercept == pytest.approx(0.5, abs=0.05)
    assert scale.slope * scale.weights["relevance"] == pytest.approx(1.5, abs=0.1)
    assert Scale(**json.loads(json.dumps(asdict(scale)))) == scale


@pytest.mark.slow
def test_an_interrupted_training_reaches_the_same_adapter(trained, tmp_path):
    output = tmp_path / "killed"
    with stopped(SAVE):
        train(output)
    assert not (output / "adapter").exists()
    assert "resuming from" in succeeded(train(output)).stdout
    torch.testing.assert_close(adapter(trained), adapter(output), rtol=0, atol=0)
    assert not list(output.glob("checkpoint-*"))
    assert "this run is finished already" in train(output).stdout


@pytest.mark.slow
def test_it_goes_on_from_another_adapter_and_says_what_it_leaves_out(trained, tmp_path):
    leaked = write(tmp_path / "leaked.jsonl", read(OF_TRAINING["cases"])[:1])
    more = flags(start=trained, evaluation_cases=leaked, max_steps=2)
    told(train(tmp_path / "more", *more), "question of an evaluation case: 1")
    before = adapter(trained)
    after = adapter(tmp_path / "more")
    moved = [float((after[name] - before[name]).abs().max()) for name in before]
    assert 0 < max(moved) < 0.05, "it started from there"


def test_a_number_that_differs_is_told_and_moves_no_score(tmp_path):
    """The packaged judge on the packaged bots: the report shows both doses, whatever the scores."""
    bots = SAMPLE / "two_bots.jsonl"
    for verdict in judged(tmp_path, PACKAGED, bots, limit=12):
        assert verdict["composed"]
        turned = permute(verdict["rationale"], (1, 0))
        steps = re.findall(r"(?m)^Step \d: .*?: (“|Doctor \d)", turned)
        assert steps == ["“", "Doctor 2", "Doctor 2"]
        assert "bot-" not in verdict["rationale"]  # physicians are shown it
    options = {"verdicts": tmp_path / "out", "cases": bots, "output": tmp_path / "report"}
    said = "Read first: in 3 of 12 answers of bot-v2 a number differs from the reference, "
    told(
        run_recipe("report", **options),
        f"{said}for example every morning instead of once-a-week.",
    )
    page = (tmp_path / "report/report.html").read_text()
    assert "3 cases in which a number differs" in page


def test_what_is_learnt_from_is_the_nearest_piece_of_a_scored_response():
    lists_of = runpy.run_path(str(ROOT / "recipes/train_cross_encoder.py"))["lists_of"]
    about = "Gout is treated with rest and ice. " * 20
    beside = "Roads are built of stones and tar. " * 20
    texts = (beside + about, "Rest.", "…", "Ice.")
    responses = tuple(Response(f"m{number}", text) for number, text in enumerate(texts))
    case = Case("c", "How is gout treated?", responses)
    (row,) = lists_of([(case, [4, 2, 1, None])], Encoder(str(ENCODER), "cpu"))
    nearest, short = row.pop("docs")
    assert nearest in pieces(texts[0])
    assert nearest.count("Gout") > 5
    assert short == "Rest."
    assert row == {"query": "How is gout treated?", "labels": [4, 2]}


@each_row("arguments, message")
def test_what_cannot_be_judged_is_one_line(arguments, message, small, tmp_path):
    other = tmp_path / "all-MiniLM-L6-v2"
    shutil.copytree(ENCODER, other)
    tokenizer = read_json(other / "tokenizer.json")
    write_json(other / "tokenizer.json", tokenizer)  # the same in other bytes
    options = {"encoder": str(ENCODER)} | arguments
    given = {name: value.format(small=small, other=other) for name, value in options.items()}
    done = run_recipe("judge", cases=CASES, output=tmp_path / "out", **given)
    failed(done, message)


@each_row("arguments, message")
def test_what_cannot_be_learnt_from_is_one_line(arguments, message, tmp_path):
    failed(train(tmp_path / "out", *arguments), message)


LOADED = """
import sys
from automedeval.cli.console import main
main()
print("loaded:", *sorted({"torch", "transformers", "sentence_transformers", "peft", "pandas"} & sys.modules.keys()))
"""


def test_it_computes_with_torch_alone_and_without_it_where_all_is_judged(tmp_path):
    options = map(str, flags(limit=2, encoder=ENCODER, output=tmp_path))
    command = [sys.executable, "-c", LOADED, "judge", "sample", *options]
    for expected, new in (("loaded: torch", 2), ("loaded:", 0)):
        done = subprocess.run(command, capture_output=True, text=True)
        printed = told(done, f"verdicts: 2 (new: {new})")
        assert printed.splitlines()[-1] == expected


def test_it_is_small_and_names_no_path_of_a_machine():
    files = [path for path in PACKAGED.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files if path.suffix == ".safetensors") <= 8e6
    needed = {"judge.json", "README.md", "NOTICE.md", "adapter_model.safetensors"}
    assert {path.name for path in files} >= needed
    for path in files:
        if path.suffix in (".json", ".md"):
            assert not re.search("/work|/home", path.read_text(encoding="utf-8"))
