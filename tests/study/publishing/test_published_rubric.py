"""A judge goes out with its rubric and template, and whoever loads it asks in exactly these words, or gets one line."""

import shutil
from pathlib import Path

import pytest
import yaml
from doubles.publishable import ABOUT, trained
from factories import read_yaml
from programs import ROOT, SAMPLE, error_line, run_recipe
from tables import rows_of

from automedeval import Case, RecordError, load_judge, packaged_rubrics, read_cases, read_rubric
from automedeval.models.checkpoints import fingerprint
from automedeval.rubrics import prompts, rubric
from automedeval.rubrics.published import files_to_publish

FAST = {"dtype": "float32", "device": "cpu", "max_new_tokens": 8}
TEMPLATE = (
    "{% block system %}You are a nurse of the night shift.{% endblock %}\n"
    "{% block user %}Who is kind? {{ question }}\n{% for each in responses %}{{ loop.index }}) {{ each }}\n{% endfor %}"
    "{{ answer_form }}{% endblock %}\n"
)


def own_rubric(folder: Path) -> Path:
    content = read_yaml(ROOT / "src/automedeval/rubrics/packaged/automedeval.yaml")
    content |= {"id": "night", "template": "night.jinja"}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "night.jinja").write_text(TEMPLATE, encoding="utf-8")
    (folder / "night.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder / "night.yaml"


def published(model: Path, folder: Path, name: str) -> Path:
    """Return a checkpoint with the files that go out with it."""
    shutil.copytree(model, folder)
    (folder / "rubric").mkdir()
    for path, content in files_to_publish(name, "0.1.0").items():
        (folder / path).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    "name", [*packaged_rubrics(), str(ROOT / "recipes/runs/automedeval-135m/feedbackqa.yaml")]
)
def test_a_published_judge_keeps_its_wording_when_the_package_changes(
    tiny_model, tmp_path, monkeypatch, name
):
    folder = published(tiny_model, tmp_path / "judge", name)
    before = load_judge(str(folder), name, FAST)
    case = next(read_cases(SAMPLE / "test_cases.jsonl"))
    later = shutil.copytree(ROOT / "src/automedeval/rubrics", tmp_path / "later")
    for template in (later / "templates").glob("*.jinja"):
        template.write_text(
            template.read_text().replace("{% block user %}\n", "{% block user %}\nBe strict.\n")
        )
    monkeypatch.setattr(rubric, "TEMPLATES", later / "templates")
    monkeypatch.setattr(rubric, "PACKAGED", later / "packaged")
    if name in packaged_rubrics():
        assert "Be strict." in read_rubric(name).template_text
    for path in (str(folder), folder.as_posix()):
        after = load_judge(path, chat=FAST)
        assert after.fingerprint == before.fingerprint
        criteria = [{"criterion": "Advises rest.", "points": 1}]
        case = Case.from_dict(case.to_dict() | {"reference": "Rest.", "criteria": criteria})
        assert [after.prompt(each) for each in after.plan(case)] == [
            before.prompt(each) for each in before.plan(case)
        ]
    if name in packaged_rubrics():
        said = rf"was published with {name}@1 .* has another wording; name no rubric"
        with pytest.raises(RecordError, match=said) as no:
            load_judge(str(folder), name, FAST)
        assert len(str(no.value).splitlines()) == 1


def changed(folder: Path, file: str, old: str, new: str) -> None:
    text = (folder / "rubric" / file).read_text()
    assert old in text
    (folder / "rubric" / file).write_text(text.replace(old, new))


def refused(folder: Path, message: str) -> None:
    prompts._template.cache_clear()
    with pytest.raises(RecordError, match=message) as error:
        load_judge(str(folder), chat=FAST)
    assert "\n" not in str(error.value)
    prompts._template.cache_clear()


@pytest.mark.parametrize(
    ("file", "old", "new", "message"), rows_of(__file__)["test_other_words_are_one_line"]
)
def test_other_words_are_one_line(tiny_model, tmp_path, file, old, new, message):
    folder = published(tiny_model, tmp_path / "judge", "automedeval")
    changed(folder, file, old, new)
    refused(folder, message)


def test_a_missing_rubric_and_other_prompts_are_one_line(tiny_model, tmp_path, monkeypatch):
    folder = published(tiny_model, tmp_path / "judge", "automedeval")
    with monkeypatch.context() as patch:
        patch.setattr(prompts, "fenced", lambda text: f'"""{text}"""')
        said = r"AutoMedEval 0\.1\.0, and this version makes other prompts .*: install that version"
        refused(folder, said)
    (folder / "rubric/rubric.yaml").unlink()
    refused(folder, r"rubric\.yaml: No such file")


def test_another_version_of_its_rubric_is_refused_and_another_rubric_taken(tiny_model, tmp_path):
    folder = published(tiny_model, tmp_path / "judge", str(own_rubric(tmp_path / "mine")))
    later = own_rubric(tmp_path / "later")
    later.write_text(later.read_text().replace("version: 1", "version: 2"))
    with pytest.raises(
        RecordError, match=r"was published with night@1 .* night@2 .* name no rubric"
    ):
        load_judge(str(folder), str(later), FAST)
    taken = {
        "medical_pairwise": "medical_pairwise@1",
        str(own_rubric(tmp_path / "same")): "night@1",
    }
    for name, loaded in taken.items():
        assert load_judge(str(folder), name, FAST).rubric_name == loaded
    assert load_judge(str(tiny_model), chat=FAST).rubric_name == "automedeval@1"


def test_the_rubric_must_be_one_that_it_was_trained_for(tiny_model, tmp_path):
    def dry_run(folder):
        return run_recipe("publish", "model", folder, "--repo", "org/judge", *ABOUT, "--dry_run")

    for name, rubrics in (("judge", ["automedeval@1"]), ("other", ["night@1"])):
        folder = trained(tiny_model, tmp_path / name, rubrics=rubrics)
        if rubrics == ["night@1"]:
            line = error_line(dry_run(folder))
            assert (
                "night@1, which is not packaged: put it there as rubric/rubric.yaml, with its template"
                in line
            )
        own_rubric(folder / "rubric").rename(folder / "rubric" / "rubric.yaml")
        assert fingerprint(folder, []) == fingerprint(tiny_model, []), (
            "the weights are known by the same digest"
        )
        done = dry_run(folder)
        if rubrics == ["automedeval@1"]:
            assert error_line(done).endswith("is night@1; it was trained for automedeval@1")
    assert done.returncode == 0, done.stderr
    for path in ("rubric/rubric.yaml", "rubric/night.jinja"):
        assert f"{(folder / path).stat().st_size:>15,}  {path}\n" in done.stdout
