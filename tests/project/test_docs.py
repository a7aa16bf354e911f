"""The documents: their commands name what exists, their examples run, their links lead on; the site, and what CI refuses."""

import contextlib
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from unittest import mock

import pytest
from factories import read_json, read_yaml
from programs import ROOT, Stopped, figures_of_the_paper, needs_encoder, run_here, succeeded
from study_scripts import arguments, dry_run
from tables import holds_all

import automedeval
from automedeval import Case, Verdict, packaged_rubrics, read_cases, read_rubric
from automedeval.cli import console
from automedeval.records import command_line

IGNORED = {
    line.strip("/")
    for line in (ROOT / ".gitignore").read_text().splitlines()
    if line.startswith("/")
}
DOCUMENTS = sorted(
    path
    for path in (file.relative_to(ROOT) for file in ROOT.rglob("*.md"))
    if path.parts[0] not in IGNORED and not any(part.startswith(".") for part in path.parts)
)
FENCE = re.compile(r"(?ms)^( *)(`{3,}|~{3,})[ ]*(\w*)[^\n]*\n(.*?)^\1\2[ ]*$")
SHELL = ("bash", "console", "sh", "shell")


def blocks(text: str, *languages: str) -> list[str]:
    return [body for _, _, language, body in FENCE.findall(text) if language in languages]


def commands(text: str) -> list[list[str]]:
    """Return every command of the shell blocks as its words, without prompts, comments and ENV=VALUE prefixes."""
    found = []
    for body in blocks(text, *SHELL):
        lines = re.sub(r"\\\n", " ", body).splitlines()
        if any(line.startswith("$ ") for line in lines):  # a session: what has no prompt is output
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        for line in lines:
            lexer = shlex.shlex(line, posix=True, punctuation_chars="&;|")
            lexer.commenters = "#"
            lexer.whitespace_split = True
            command: list[str] = []
            for word in [*lexer, ";"]:
                if set(word) <= set("&;|"):
                    found += [command] if command else []
                    command = []
                elif command or not re.match(r"\w+=", word):
                    command.append(word)
    return found


@contextlib.contextmanager
def arguments_alone() -> Iterator[None]:
    """Let a program read its arguments, its YAML's among them, with its own checks of names and values; then end it."""
    from trl import TrlParser

    defaults = TrlParser.set_defaults_with_config

    def read(parser, args=None, **_):
        unknown = parser.parse_known_args(args)[1]
        raise Stopped if not unknown else SystemExit(f"error: unknown {' '.join(unknown)}")

    def known(parser, **values):
        unknown = defaults(parser, **values)
        if unknown:
            raise SystemExit(f"error: unknown {' '.join(unknown)}")
        return unknown

    with contextlib.ExitStack() as stack:
        for parser in (command_line._Parser, TrlParser):
            stack.enter_context(mock.patch.object(parser, "parse_args_into_dataclasses", read))
        stack.enter_context(mock.patch.object(TrlParser, "set_defaults_with_config", known))
        stack.enter_context(contextlib.chdir(ROOT))
        yield


def refused(words: list[str], program: Callable[[], object]) -> list[str]:
    """Return the line with which a program refuses its words."""
    with contextlib.suppress(Stopped), arguments_alone():
        done = run_here(words, program)
        return [done.stderr.strip().splitlines()[-1]] if done.returncode else []
    return []


def launched(launcher: str, words: list[str]) -> list[str]:
    """Return what is wrong with the words of a launcher, the first of its script among them."""
    if launcher == "torchrun":
        from torch.distributed.run import get_args_parser as parser
    else:
        from accelerate.commands.launch import launch_command_parser as parser

    found: list[Namespace] = []
    wrong = refused([launcher], lambda: found.append(parser().parse_args(words)))
    file = None if wrong else getattr(found[0], "config_file", None)
    return wrong or ([f"no file {file}"] if file and not (ROOT / file).is_file() else [])


def faults(command: list[str]) -> list[str]:
    """Return what is wrong with one command; a program that is not ours is taken as it is."""
    program = Path(command[0]).name
    words = command[1:]
    if program == "make":
        targets = re.findall(r"(?m)^([a-z0-9_-]+):", (ROOT / "Makefile").read_text())
        return [
            f"no make target {word}" for word in words if "=" not in word and word not in targets
        ]
    if program == "automedeval":
        return refused(command, console.main)
    if program in ("bash", "sh", "source", "."):
        there = (ROOT / words[0]).is_file() or Path(words[0]).parts[0] in IGNORED
        return [] if there else [f"no file {words[0]}"]
    if program == "accelerate" and words[0] == "launch":
        words = words[1:]
    elif program not in ("accelerate", "torchrun", "python", "python3", "python3.11"):
        return []
    starts_a_file = not program.startswith("python")
    scripts = [number for number, word in enumerate(words) if word.endswith((".py", ".sh"))]
    if not scripts:
        return [f"{program}: no script"] if starts_a_file else []
    script = scripts[0]
    found = launched(program, words[: script + 1]) if starts_a_file else []
    if not (file := ROOT / words[script]).is_file():
        return [*found, f"no file {words[script]}"]
    main = partial(runpy.run_path, str(file), run_name="__main__")
    return found + (refused(words[script:], main) if file.parent.name == "recipes" else [])


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_command_names_what_exists(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    assert [fault for command in commands(text) for fault in faults(command)] == []


def test_each_table_and_figure_of_the_paper_is_made_by_a_step():
    rows = figures_of_the_paper()
    named = [f"Table {number}" for number in range(1, 9)]
    named += [f"Figure {number}" for number in range(3, 10)]
    listed = " ".join(
        re.sub(r"(Table|Figure)s (\d) and (\d)", r"\1 \2 \1 \3", about) for about, _ in rows
    )
    holds_all(listed, named)
    steps = map(arguments, dry_run("paper"))
    made = {values.get("output") or values.get("store", "?") for values in steps}
    for about, files in rows:
        assert all(file.startswith(tuple(made)) for file in files), about


def test_the_commands_show_right_examples():
    for name in console.COMMANDS:
        text = import_module(f"automedeval.cli.{name.replace('-', '_')}").__doc__
        examples = re.findall(r"(?m)^    (automedeval (?:.*\\\n)*.*)", text)
        assert examples, name
        shown = commands("```bash\n" + "\n".join(examples) + "\n```\n")
        assert [fault for command in shown for fault in faults(command)] == []


def test_the_runs_name_their_command_and_known_keys():
    files = sorted((ROOT / "recipes/runs").glob("*/*.yaml"))
    runs = [file for file in files if "--config" in file.read_text().splitlines()[0]]
    assert runs
    texts = "\n".join(path.read_text() for path in [*runs, *map(ROOT.joinpath, DOCUMENTS)])
    # what is no run is a plan or a rubric that a run names
    assert [file for file in set(files) - set(runs) if file.name not in texts] == []
    for run in runs:
        command = shlex.split(run.read_text().splitlines()[0].removeprefix("# "))
        assert command[command.index("--config") + 1] == str(run.relative_to(ROOT))
        assert faults(command) == []


def slugs(text: str) -> set[str]:
    """Return the anchors that a document's headings make."""
    headings = re.findall(r"(?m)^#+ (.+)$", FENCE.sub("", text))
    return {
        re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_relative_link_leads_somewhere(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text)):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = (ROOT / document).parent / path if path else ROOT / document
        if not target.exists() or (
            anchor and anchor not in slugs(target.read_text(encoding="utf-8"))
        ):
            broken.append(link)
    assert broken == []


def test_a_document_names_every_key_of_a_verdict_and_every_rubric():
    text = (ROOT / "docs/judge.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| (`[^|]+) \|", text)
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert set(Verdict("c", "j", "r", (0,)).to_dict()) <= named
    assert set(packaged_rubrics()) <= named
    for rubric in map(read_rubric, packaged_rubrics()):
        (row,) = re.findall(rf"(?m)^\| `{rubric.id}` \|.*$", text)
        assert rubric.mode in row
        assert ", ".join(criterion.name for criterion in rubric.criteria) in row


def test_json_in_the_readme_is_a_case():
    (line,) = blocks((ROOT / "README.md").read_text(encoding="utf-8"), "json")
    assert len(Case.from_dict(json.loads(line)).responses) == 2


def test_python_in_the_documents_runs(tiny_model, capsys):
    (code,) = blocks((ROOT / "docs/judge.md").read_text(encoding="utf-8"), "python")
    checkpoint = "models/SmolLM2-135M-Instruct"
    assert checkpoint in code
    exec(compile(code.replace(checkpoint, str(tiny_model)), "judge.md", "exec"), {})
    assert re.match(r"True \(\d, \d\) \(\d\.\d+, \d\.\d+\) ", capsys.readouterr().out)


def test_the_citation_is_of_this_version():
    citation = read_yaml(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["version"] == automedeval.__version__
    assert f"## {automedeval.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_site_builds_without_a_warning_and_loads_nothing_from_outside(tmp_path):
    pytest.importorskip("mkdocs")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site]
    succeeded(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300))
    pages = list(site.rglob("*.html"))
    assert len(pages) > 10
    outside = re.compile('fonts.googleapis|<script src="http|<link rel="stylesheet" href="http')
    assert [page for page in pages if outside.search(page.read_text(encoding="utf-8"))] == []


@needs_encoder
def test_the_notebook_runs_from_top_to_bottom(monkeypatch):
    """On the first cases of the sample: the others take long."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(automedeval, "read_cases", lambda file: islice(read_cases(file), 4))
    notebook = read_json(ROOT / "docs/quickstart.ipynb")
    names: dict = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], "outputs are not committed"
            exec(compile("".join(cell["source"]), "quickstart.ipynb", "exec"), names)
    scored = names["scored"]
    table = names["table"]
    means = scored.groupby("model").expected_score.mean()
    assert means["model_a"] > means["model_b"]
    assert table.valid.all()
    assert table.case_id.nunique() == len(names["cases"])


def test_github_can_read_its_files():
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    workflows = list((ROOT / ".github/workflows").glob("*.yml"))
    form = ROOT / ".github/ISSUE_TEMPLATE/bug.yml"
    assert "automedeval doctor" in form.read_text(encoding="utf-8")
    assert workflows
    for schema, files in (("github-workflows", workflows), ("github-issue-forms", [form])):
        command = [*checker, f"vendor.{schema}", *files]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    for file in workflows:
        text = file.read_text(encoding="utf-8")
        assert re.search("(?m)^permissions:", text), "the least permissions are named"
        used = re.findall(r"uses: *(\S+)", text)
        by_commit = re.compile("@[0-9a-f]{40}$")  # which cannot move
        assert [action for action in used if not by_commit.search(action)] == []


def test_a_skip_fails_there_that_is_not_expected(tmp_path):
    skips = {
        "data": "import pytest\ndef test_one(): pytest.skip('AUTOMEDEVAL_DATA does not name it')\n",
        "browser": "import pytest\ndef test_one(): pytest.skip('no chromium')\n",
        "library": "import pytest\npytest.importorskip('no_such_library')\n",
    }
    for name, text in skips.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider"]
    command += ["--continue-on-collection-errors", "-c", ROOT / "setup.cfg"]
    command += ["--rootdir", tmp_path, tmp_path]
    ours = {"CI": "true", "AUTOMEDEVAL_MISSING": "", "PYTHONPATH": str(ROOT / "tests")}
    environment = os.environ | ours
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    ended = re.findall(r"\d+ (?:failed|skipped|error)", done.stdout.splitlines()[-1])
    assert ended == ["1 failed", "1 skipped", "1 error"]


def test_flash_attention_is_installed_without_build_isolation():
    """Its build needs the torch that is installed."""
    lines = [line for file in DOCUMENTS for line in file.read_text().splitlines()]
    installing = [line for line in lines if "pip install" in line and "[gpu]" in line]
    assert installing
    assert all("--no-build-isolation" in line for line in installing)
