"""A judge goes out with its rubric and template, and whoever loads it asks in exactly these words, or gets one line."""

import shutil
from functools import partial
from pathlib import Path

import doubles.own_rubric
import pytest
from doubles.publishable import ABOUT, trained, with_rubric
from factories import read
from programs import FAST, ROOT, SAMPLE, failed, run_recipe, told
from tables import each_row, refused

from automedeval import Case, load_judge, packaged_rubrics, read_rubric
from automedeval.judges.judge import judge_rubric
from automedeval.models.checkpoints import fingerprint
from automedeval.rubrics import prompts, rubric

TEMPLATE = (
    "{% block system %}You are a nurse of the night shift.{% endblock %}\n"
    "{% block user %}Who is kind? {{ question }}\n{% for each in responses %}{{ loop.index }}) {{ each }}\n{% endfor %}"
    "{{ answer_form }}{% endblock %}\n"
)


own_rubric = partial(doubles.own_rubric.own_rubric, text=TEMPLATE)


def published(model: Path, folder: Path, name: str) -> Path:
    """Return a checkpoint with the files that go out with it."""
    shutil.copytree(model, folder)
    return with_rubric(folder, name)


@pytest.mark.parametrize(
    "name", [*packaged_rubrics(), str(ROOT / "recipes/runs/automedeval-135m/feedbackqa.yaml")]
)
def test_a_published_judge_keeps_its_wording_when_the_package_changes(
    tiny_model, tmp_path, monkeypatch, name
):
    folder = published(tiny_model, tmp_path / "judge", name)
    before = load_judge(str(folder), name, FAST)
    later = shutil.copytree(ROOT / "src/automedeval/rubrics", tmp_path / "later")
    for template in (later / "templates").glob("*.jinja"):
        text = template.read_text().replace("{% block user %}", "{% block user %}Be strict.")
        template.write_text(text)
    monkeypatch.setattr(rubric, "TEMPLATES", later / "templates")
    monkeypatch.setattr(rubric, "PACKAGED", later / "packaged")
    after = load_judge(str(folder), chat=FAST)
    assert after.fingerprint == before.fingerprint
    case = read(SAMPLE / "test_cases.jsonl")[0]
    criteria = [{"criterion": "Advises rest.", "points": 1}]
    case = Case.from_dict(case | {"reference": "Rest.", "criteria": criteria})
    for asked, same in zip(after.plan(case), before.plan(case), strict=True):
        assert after.prompt(asked) == before.prompt(same)
    if name in packaged_rubrics():
        assert "Be strict." in read_rubric(name).template_text
        said = f"was published with {name}@1", "has another wording; name no rubric"
        with refused("", *said):
            load_judge(str(folder), name, FAST)


def not_loaded(folder: Path, *said: str) -> None:
    prompts._template.cache_clear()
    with refused("", *said):
        load_judge(str(folder), chat=FAST)
    prompts._template.cache_clear()


@each_row("file, old, new, said")
def test_other_words_are_one_line(tiny_model, tmp_path, file, old, new, said):
    folder = published(tiny_model, tmp_path / "judge", "automedeval")
    text = (folder / "rubric" / file).read_text()
    assert old in text
    (folder / "rubric" / file).write_text(text.replace(old, new))
    not_loaded(folder, *said)


def test_a_missing_rubric_and_other_prompts_are_one_line(tiny_model, tmp_path, monkeypatch):
    folder = published(tiny_model, tmp_path / "judge", "automedeval")
    with monkeypatch.context() as patch:
        patch.setattr(prompts, "fenced", lambda text: f'"""{text}"""')
        said = ("AutoMedEval 0.1.0, and this version makes other prompts", "install that version")
        not_loaded(folder, *said)
    (folder / "rubric/rubric.yaml").unlink()
    not_loaded(folder, "rubric.yaml: No such file")


def test_another_version_of_its_rubric_is_refused_and_another_rubric_taken(tiny_model, tmp_path):
    folder = published(tiny_model, tmp_path / "judge", str(own_rubric(tmp_path / "mine")))
    later = str(own_rubric(tmp_path / "later", version=2))
    with refused("", "was published with own@1", "own@2", "name no rubric"):
        load_judge(str(folder), later, FAST)
    same = str(own_rubric(tmp_path / "same"))
    for name, loaded in (("medical_pairwise", "medical_pairwise@1"), (same, "own@1")):
        assert load_judge(str(folder), name, FAST).rubric_name == loaded
    assert load_judge(str(tiny_model), chat=FAST).rubric_name == "automedeval@1"


def test_the_rubric_must_be_one_that_it_was_trained_for(tiny_model, tmp_path):
    dry_run = partial(run_recipe, "publish", "model", *ABOUT, "--dry_run", repo="org/judge")
    other = trained(tiny_model, tmp_path / "other", rubrics=["automedeval@1"])
    referred = [Case("1", "Why?", (), "So.")]
    assert judge_rubric(str(other), cases=referred).name == "automedeval@1"
    own_rubric(other / "rubric").rename(other / "rubric/rubric.yaml")
    failed(dry_run(folder=other), "is own@1; it was trained for automedeval@1")

    folder = trained(tiny_model, tmp_path / "judge", rubrics=["own@1"])
    said = "own@1, which is not packaged: put it there as rubric/rubric.yaml, with its template"
    failed(dry_run(folder=folder), said)
    with refused("", said):
        judge_rubric(str(folder))
    own_rubric(folder / "rubric").rename(folder / "rubric/rubric.yaml")
    assert judge_rubric(str(folder), cases=referred).name == "own@1"
    assert fingerprint(folder, []) == fingerprint(tiny_model, []), "of the weights alone"
    told(dry_run(folder=folder), "  rubric/rubric.yaml\n", "  rubric/own.jinja\n")
