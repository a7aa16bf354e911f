"""What names of gone commands, options and keys get: one line with what to use instead, and a non-zero exit."""

from pathlib import Path

import pytest
from programs import error_line, run_command

from automedeval.records import gone


@pytest.mark.parametrize("name", gone.COMMANDS)
def test_a_gone_command_names_its_replacement(name: str):
    done = run_command(name, "--output", "somewhere")
    assert gone.COMMANDS[name] in error_line(done)


@pytest.mark.parametrize("words", [["--colour=1"], ["--config", "run.yaml"]])
def test_a_gone_option_names_its_replacement_on_the_command_line_and_in_a_file(
    words, tmp_path: Path, monkeypatch
):
    monkeypatch.setitem(gone.OPTIONS, "colour", "use --shade")
    monkeypatch.chdir(tmp_path)
    Path("run.yaml").write_text("colour: red\n", encoding="utf-8")
    assert "it is gone; use --shade" in error_line(run_command("judge", "sample", *words))


def test_a_gone_kind_of_study_names_what_to_use_instead(tmp_path: Path):
    study = tmp_path / "study.yaml"
    study.write_text(
        "title: Ours\ncases: cases.jsonl\napprove: {drafts: drafts.jsonl}\n", encoding="utf-8"
    )
    line = error_line(run_command("annotate", "--study", study, "--export", tmp_path / "out"))
    assert (
        f"{study}: approve: unknown key: it is gone; criteria are written by people, or come with the data"
        in line
    )
    assert [each.name for each in tmp_path.iterdir()] == ["study.yaml"]
