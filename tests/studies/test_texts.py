"""What keeps the texts of a study from fitting together is said in a line before the first step: layouts, formats, ratings."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from programs import ROOT, SAMPLE
from study_plan import PAPER, of, plan, reproduce

sys.path.insert(0, str(ROOT / "recipes"))
from study.files import Lists, UserFile
from study.machine import Machine

SMALL = "recipes/runs/automedeval-135m"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the paper's study."""
    return shutil.copytree(ROOT / PAPER, tmp_path / "automedeval-13b")


def edit(folder: Path, name: str, old: str, new: str) -> None:
    file = folder / f"{name}.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def refused(*arguments: object) -> str:
    """Return the one line that a dry run and a start print before any step; both fail."""
    lines = set()
    for more in (["--dry_run"], []):
        done = reproduce(*arguments, *more)
        assert done.returncode == 1
        assert more or "==" not in done.stdout
        lines |= {line for line in done.stderr.splitlines() if "is missing:" not in line}
    (line,) = lines
    return line


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (
            "generate_test",
            "  - models/ChatDoctor\n  - models/Baize-Healthcare\n",
            "",
            "generate_test.yaml: candidates_per_case: 3, and candidates names only 2",
        ),
        (
            "generate_test",
            "candidates_per_case: 3",
            "candidates_per_case: 4",
            "judge.yaml (the base model judges the test cases): a case shows 4 responses, and a prompt of the rubric "
            "automedeval@1 3 at most",
        ),
        (
            "distill_strong",
            "Baize-Healthcare]",
            "Baize-Healthcare, MedAlpaca]",
            "distill_strong.yaml (the strong teacher judges, with the knowledge completion chain): a case shows 4 responses",
        ),
        ("judge", "rubric: automedeval", "rubric: automedeva", "judge.yaml: rubric: "),
    ],
)
def test_a_layout_that_cases_cannot_be_shown_in(folder: Path, name: str, old: str, new: str, message: str) -> None:
    edit(folder, name, old, new)
    done = reproduce(folder, "--dry_run", "--judges", "none")
    (line, *others) = done.stderr.splitlines()
    assert message in line
    assert all("a case shows 4" in other or "rubric: " in other for other in others)  # every judge of these cases
    started = reproduce(folder, "--judges", "none")
    assert (started.returncode, started.stderr) == (1, done.stderr)
    assert "==" not in started.stdout


def test_without_the_layout_four_answer_and_groups_of_three_are_shown(folder: Path) -> None:
    edit(folder, "generate_test", "candidates_per_case: 3", "# candidates_per_case: 3")
    assert reproduce(folder, "--dry_run").stderr == ""


def test_a_candidate_without_a_format_and_a_format_without_a_candidate(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "MedAlpaca").mkdir()
    (tmp_path / "MedAlpaca" / "tokenizer_config.json").write_text("{}")
    for name in ("generate_test", "study"):
        edit(folder, name, "models/MedAlpaca", str(tmp_path / "MedAlpaca"))
    for name in ("generate_responses", "generate_test"):
        edit(folder, name, f"{PAPER}/formats", str(folder / "formats"))
    brought = f"brings:\n  {folder}/formats: {{what: formats, get: nothing, stand_in: book}}\n"
    edit(folder, "study", "brings:\n", brought)
    assert reproduce(folder, "--dry_run").stderr == ""
    (folder / "formats" / "MedAlpaca.jinja").rename(folder / "formats" / "medalpaca.jinja")
    done = reproduce(folder, "--dry_run")
    model, formats = tmp_path / "MedAlpaca", folder / "formats"
    assert done.stderr.splitlines() == [
        f"error: {folder}/generate_test.yaml: {model} has no prompt format: no MedAlpaca.jinja in {formats}",
        f"error: {formats}/medalpaca.jinja: a format of no candidate; they are Baize-Healthcare, ChatDoctor, MedAlpaca, "
        "MedLlama2",
    ]
    started = reproduce(folder)
    assert (started.returncode, started.stderr) == (1, done.stderr)
    (tmp_path / "MedAlpaca" / "chat_template.jinja").touch()  # a template of its own does as well
    assert "has no prompt format" not in reproduce(folder, "--dry_run").stderr


def test_another_base_leaves_the_candidates_formats_alone() -> None:
    for variant in ([], ["--teacher", "strong=x"]):
        before, after = (
            of(plan(PAPER, *variant, *more), "generate_responses") for more in ([], ["--base", "models/x"])
        )
        assert before == after
        assert {each["chat_template_path"] for each in after} == {f"{PAPER}/formats"}


CASE = {
    "id": "c1",
    "question": "Q?",
    "responses": [{"model": "ChatDoctor", "text": "A."}, {"model": "x", "text": "B."}],
}
VERDICT = {
    "case_id": "c1",
    "judge": "gpt-4",
    "rubric": "automedeval@1",
    "order": [0, 1],
    "valid": True,
    "scores": [1, 2],
}
ABOUT = {"case_id": "c1", "annotator": "a", "criterion": "fluency"}


@pytest.mark.parametrize(
    ("path", "texts", "text", "right", "wrong"),
    [
        (
            "ratings/test/ratings.jsonl",
            "responses/test/cases.jsonl",
            CASE,
            {"model": "ChatDoctor", "score": 1},
            {"model": "MedAlpaca", "score": 1},
        ),
        (
            "ratings/teachers/verdict_ratings.jsonl",
            "verdicts/wikidoc-strong/verdicts.jsonl",
            VERDICT,
            {"judge": "gpt-4", "score": 1},
            {"judge": "gpt-4", "score": 1, "verdict_digest": "0123456789ab"},
        ),
        (
            "ratings/test/preferences.jsonl",
            "verdicts/wikidoc/verdicts.jsonl",
            VERDICT,
            {"judges": ["gpt-4", "y"], "choice": "tie"},
            {"judges": ["y", "z"], "choice": "tie"},
        ),
    ],
)
def test_ratings_of_other_texts(tmp_path: Path, path: str, texts: str, text: dict, right: dict, wrong: dict) -> None:
    """The files lie in a rehearsal's folder, so that none of this checkout's own is touched."""
    place = tmp_path / "automedeval-13b"
    for file in (place / path, place / texts):
        file.parent.mkdir(parents=True, exist_ok=True)
    (place / texts).write_text(json.dumps(text) + "\n")
    (place / path).write_text(json.dumps(ABOUT | right) + "\n" + json.dumps(ABOUT | wrong) + "\n")
    assert reproduce(PAPER, "--rehearse", tmp_path, "--dry_run").stderr == ""
    (place / path).write_text(json.dumps(ABOUT | wrong) + "\n")
    assert refused(PAPER, "--rehearse", tmp_path) == f"error: {path}: ratings of other texts: none of 1 is of {texts}"


def test_ratings_of_other_texts_stop_the_study_where_the_texts_are_made(tmp_path: Path) -> None:
    """When it starts there are no verdicts to compare the ratings with."""
    folder, place = tmp_path / f"texts-{tmp_path.name}", tmp_path / "out"
    folder.mkdir()
    ratings, verdicts = tmp_path / "verdict_ratings.jsonl", place / "verdicts" / "sample" / "verdicts.jsonl"
    ratings.write_text(json.dumps(ABOUT | {"judge": "x", "score": 1, "verdict_digest": "0123456789ab"}) + "\n")
    listed = [
        {"run": "judge_small", "about": "a judge", "with": {"judge": "baseline:longer text", "limit": 4}},
        {
            "run": "report",
            "about": "a report",
            "with": {"encoder": "none", "limit": 4, "verdict_ratings": str(ratings)},
        },
    ]
    brought = {"what": "ratings", "get": "nothing", "stand_in": "checks", "of": [str(verdicts)]}
    study = {"of": SMALL, "place": str(place), "steps": listed, "brings": {str(ratings): brought}}
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    try:
        done = reproduce(folder)
    finally:
        shutil.rmtree(ROOT / "logs" / folder.name, ignore_errors=True)
        (ROOT / f".{folder.name}.lock").unlink(missing_ok=True)
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("==")]
    assert line.startswith("== 1/2 a judge (")
    assert done.stderr == f"error: {ratings}: ratings of other texts: none of 1 is of {verdicts}\n"


def test_a_rehearsal_makes_ratings_when_their_step_is_due(tmp_path: Path) -> None:
    """A study that was killed while a teacher judged has begun verdicts: ratings of these would be of a few cases."""
    from reproduce import run
    from study.rehearsal import Rehearsal

    verdicts, checks = "verdicts/wikidoc-strong/verdicts.jsonl", "ratings/teachers/verdict_ratings.jsonl"
    brings = {
        "medtext": UserFile("medtext", "", "", "medtext"),
        checks: UserFile(checks, "", "", "checks", (verdicts,)),
    }
    lists = Lists(brings, {}, 0, {}, {}, {})
    rehearsal = Rehearsal(ROOT, tmp_path, lists)
    (tmp_path / verdicts).parent.mkdir(parents=True)
    shutil.copy(SAMPLE / "verdicts.jsonl", tmp_path / verdicts)
    assert run([], lists, tmp_path, rehearsal, Machine(), 0, tmp_path / "logs") == 0
    assert (tmp_path / "medtext").is_file()
    assert not (tmp_path / checks).exists()
    rehearsal.bring(brings[checks])
    assert (tmp_path / checks).is_file()
