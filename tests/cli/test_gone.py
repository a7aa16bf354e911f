"""What names of gone commands, options and keys get: one line with what to use instead, and a non-zero exit."""

from pathlib import Path

import pytest
from programs import error_line, run_command

from automedeval import gone


@pytest.mark.parametrize("name", gone.COMMANDS)
def test_a_gone_command_names_its_replacement(name: str):
    done = run_command(name, "--output", "somewhere")
    assert gone.COMMANDS[name] in error_line(done)


@pytest.mark.parametrize("form", ["--{}=1", "key"])
def test_a_gone_option_names_its_replacement_on_the_command_line_and_in_a_file(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(gone.OPTIONS, "colour", "use --shade")
    config = tmp_path / "run.yaml"
    config.write_text("colour: red\n", encoding="utf-8")
    words = [form.format("colour")] if form != "key" else ["--config", str(config)]
    assert "it is gone; use --shade" in error_line(run_command("judge", "sample", *words))
