"""The folder of the metric as a Space: evaluate loads its one file alone, and the card, its page, says what it must."""

import json
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from doubles.tiny_bart import TEXTS, build_bart, build_roberta
from packaging.requirements import Requirement
from programs import ROOT, module_fixture, succeeded

pytest.importorskip("evaluate", reason="the metric is a module of evaluate, which is not installed")

SPACE = ROOT / "src/automedeval/metrics/rationale_score"
CARD = (SPACE / "README.md").read_text(encoding="utf-8")
PROGRAM = """
import json, sys
import evaluate
metric = evaluate.load(sys.argv[1])
options = {"bert_model": sys.argv[2], "bert_num_layers": 2, "bart_model": sys.argv[3]}
predictions, references = json.loads(sys.argv[4])
whole = metric.compute(predictions=predictions, references=references, **options)
metric.add(prediction=predictions[0], reference=references[0])
metric.add_batch(predictions=predictions[1:], references=references[1:])
pieces = metric.compute(**options)
told = []
for wrong in ({"predictions": ["a", 3], "references": ["a", "b"]}, {"predictions": ["a"], "references": []}):
    try:
        metric.compute(**wrong, **options)
    except ValueError as error:
        told.append(str(error))
again = metric.compute(predictions=predictions, references=references, **options)
print(json.dumps([metric.name, whole, pieces, again, told, "automedeval" in sys.modules, type(metric).__module__]))
"""


@module_fixture
def tiny(tmp_path_factory) -> tuple[str, str]:
    """Return the folders of a tiny RoBERTa and a tiny BART."""
    folder = tmp_path_factory.mktemp("space")
    return str(build_roberta(folder / "roberta")), str(build_bart(folder / "bart"))


def run(program: str, folder: Path, *arguments: str) -> str:
    """Run a program offline in a process of its own, whose caches are in a folder; return the last line that it prints."""
    environment = os.environ | {
        "HF_HOME": str(folder / "home"),
        "HF_HUB_OFFLINE": "1",
        "HF_EVALUATE_OFFLINE": "1",
    }
    command = [sys.executable, "-c", program, *arguments]
    done = succeeded(
        subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    )
    return done.stdout.splitlines()[-1]


def test_evaluate_loads_the_one_file_offline(tiny, tmp_path):
    from automedeval.metrics.rationale_score.rationale_score import rationale_score

    # one file, in a folder of its own: what it imports beside libraries would be missing
    alone = tmp_path / "rationale_score"
    alone.mkdir()
    (alone / "rationale_score.py").write_bytes((SPACE / "rationale_score.py").read_bytes())
    texts = [[*TEXTS[:3], ""], [TEXTS[1], [TEXTS[2], "a"], ["b"], "c"]]
    shown = run(PROGRAM, tmp_path, str(alone), *tiny, json.dumps(texts))
    name, whole, pieces, again, error, imported, module = json.loads(shown)
    assert name == "rationale_score"
    assert whole == pieces == again
    expected = rationale_score(*texts, bert_model=tiny[0], bert_num_layers=2, bart_model=tiny[1])
    assert whole.keys() == expected.keys()
    assert whole["bert_score"]["f1"] == pytest.approx(expected["bert_score"]["f1"], abs=1e-5)
    assert whole["bart_score"] == pytest.approx(expected["bart_score"], abs=1e-4)
    assert whole["bart_score"][3] is None
    assert error[0].startswith("predictions[1] must be a text, not int")
    assert error[1].startswith("1 predictions, 0 references")
    assert not imported
    assert module.startswith("evaluate_modules.")


def test_the_card_names_every_option_and_every_key(tiny):
    from inspect import signature

    from automedeval.metrics.rationale_score.rationale_score import rationale_score

    named = {
        name
        for row in re.findall(r"(?m)^\| (`[^|]+) \|", CARD)
        for name in re.findall(r"`(\w+)`", row)
    }
    scores = rationale_score(
        ["a"], ["b"], bert_model=tiny[0], bert_num_layers=1, bart_model=tiny[1]
    )
    assert named == set(signature(rationale_score).parameters) - {
        "predictions",
        "references",
    } | set(scores)
    defaults = [
        signature(rationale_score).parameters[name].default for name in ("bert_model", "bart_model")
    ]
    assert f"| `{defaults[0]}`, `{defaults[1]}` |" in CARD


@pytest.mark.slow
def test_the_example_of_the_card_runs(tiny, tmp_path):
    (code,) = re.findall(r"(?s)```python\n(.*?)```", CARD)
    code = code.replace("ORGANISATION/rationale_score", str(SPACE))
    options = f"bert_model={tiny[0]!r}, bert_num_layers=1, bart_model={tiny[1]!r},"
    shown = run(code.replace("metric.compute(", f"metric.compute({options}"), tmp_path)
    assert re.fullmatch(r"-?\d\.\d+ -\d+\.\d+", shown)


def test_what_the_card_installs_is_what_is_tested_here():
    (line,) = re.findall(r"(?m)^pip install (.*)$", CARD)
    requirements = [Requirement(word) for word in shlex.split(line)]
    assert {each.name for each in requirements} == {
        "evaluate",
        "bert-score",
        "transformers",
        "torch",
    }
    for each in requirements:
        assert each.specifier.contains(version(each.name).partition("+")[0]), each
