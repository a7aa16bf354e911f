"""`automedeval report` --teacher_verdicts: how similar rationales are to a teacher's, shown as that and nothing else."""

import json
import re
from pathlib import Path

import pytest
from doubles.agreement_study import write
from doubles.introspection_study import case_of, verdict_of
from doubles.tiny_bart import build_bart, build_roberta
from programs import error_line, run_recipe, succeeded
from tables import rows_of

from automedeval.records import Verdict

ROWS = rows_of(__file__)

CASES = [case_of(number) for number in range(4)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    folder = tmp_path_factory.mktemp("models")
    bert, bart = build_roberta(folder / "bert", window=256), build_bart(folder / "bart", window=256)
    return ["--bert_model", bert, "--bert_num_layers", 1, "--bart_model", bart]


@pytest.fixture
def args(tmp_path: Path) -> list[object]:
    judged = [verdict_of(case, (3, 4, 5), "judge") for case in CASES]
    judged[3] = Verdict(CASES[3].id, "judge", judged[0].rubric, (0, 1, 2), error="unreadable")
    teacher = [verdict_of(case, (3, 4, 5), "teacher") for case in CASES]
    files = [write(tmp_path / f"{name}.jsonl", each) for name, each in (("verdicts", judged), ("teacher", teacher))]
    arguments = ["--verdicts", *files, "--cases", write(tmp_path / "cases.jsonl", CASES)]
    return [*arguments, "--teacher_verdicts", "teacher", "--resamples", 100, "--output", tmp_path / "out"]


def test_similarity_is_reported_as_similarity(args: list, models: list, tmp_path: Path) -> None:
    succeeded(run_recipe("report", *args, *models))
    similarity = json.loads((tmp_path / "out" / "agreement.json").read_text())["similarity"]
    judge = similarity["judges"]["judge"]
    assert (similarity["teacher"], judge["rationales"], judge["left_out"]) == ("teacher", 3, {"invalid": 1})
    assert judge["bert_score"]["value"] == pytest.approx(1.0, abs=1e-4)  # the same words
    assert judge["bart_score"]["value"] < 0
    text = re.sub(r"\s+", " ", (tmp_path / "out" / "report.html").read_text())
    assert "similarity to the teacher's rationale, not its quality" in text.replace("&#39;", "'")
    assert ">1.000<" in text
    assert "1 invalid" in text
    assert similarity["judges"]["teacher"] == {"reason": "the teacher itself"}
    assert "the teacher itself" in text


@pytest.mark.parametrize(("more", "message"), ROWS["test_what_cannot_be_compared_is_told_in_one_line"])
def test_what_cannot_be_compared_is_told_in_one_line(args, models, tmp_path, more, message) -> None:
    assert message in error_line(run_recipe("report", *args, *models, *more))
    assert not (tmp_path / "out" / "report.html").exists()
