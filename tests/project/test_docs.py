"""The documents: their commands name recipes, flags, targets and files that exist, their examples run, their links lead on."""

import json
import re
import shlex
from collections import Counter
from functools import lru_cache
from importlib import import_module
from itertools import takewhile
from pathlib import Path

import pytest
import yaml
from programs import ROOT, figures_of_the_paper, run_command, run_recipe

import automedeval
from automedeval import Case, Verdict, packaged_rubrics, read_rubric
from automedeval.cli.console import COMMANDS, FIRST
from automedeval.records import read_cases

IGNORED = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line.startswith("/")}
DOCUMENTS = sorted(
    path
    for path in (file.relative_to(ROOT) for file in ROOT.rglob("*.md"))
    if path.parts[0] not in IGNORED and not any(part.startswith(".") for part in path.parts)
)
FENCE = re.compile(r"^( *)(`{3,}|~{3,})[ ]*(\w*)[^\n]*\n(.*?)^\1\2[ ]*$", re.M | re.S)
SHELL = ("bash", "console", "sh", "shell")


def blocks(text: str, *languages: str) -> list[str]:
    """Return the fenced blocks of these languages."""
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
            lexer.commenters, lexer.whitespace_split = "#", True
            command: list[str] = []
            for word in [*lexer, ";"]:
                if set(word) <= set("&;|"):
                    found += [command] if command else []
                    command = []
                elif command or not re.match(r"\w+=", word):
                    command.append(word)
    return found


@lru_cache
def usage(program: str) -> str:
    """Return how a recipe, or a command of `automedeval`, says that it is used, with all its options."""
    if program in COMMANDS:
        shown = run_command(program, "--help_all").stdout
    elif program in ("recipes/sft.py", "recipes/grpo.py"):  # they have parsers of their own
        shown = run_recipe(Path(program).stem, "--help").stdout
    else:
        shown = run_recipe(Path(program).stem, "--help_all").stdout
    return " ".join(shown.split("\n\n")[0].split())


def split_flags(words: list[str]) -> dict[str, str | None]:
    """Return flag → value, None for a flag without one."""
    given: dict[str, str | None] = {}
    for number, word in enumerate(words):
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            follows = words[number + 1] if number + 1 < len(words) and not words[number + 1].startswith("--") else None
            given[name] = value if equals else follows
    return given


def recipe_faults(recipe: str, words: list[str]) -> list[str]:
    """Return what is wrong with a call of a recipe."""
    if not (ROOT / recipe).is_file():
        return [f"{recipe}: no such recipe"]
    if recipe == "recipes/publish.py":  # its first words may stand without their flags
        bare = list(takewhile(lambda word: not word.startswith("-"), words))
        words = [*(part for pair in zip(("--kind", "--folder"), bare) for part in pair), *words[len(bare) :]]
    return option_faults(recipe, words)


def command_faults(words: list[str]) -> list[str]:
    """Return what is wrong with a call of the console command, whose words these are."""
    name, *words = words or ["--help"]
    if name in ("--help", "--version"):
        return []
    if name not in COMMANDS:
        return [f"automedeval: no command {name}"]
    bare = list(takewhile(lambda word: not word.startswith("-"), words))
    if bare and name not in FIRST:
        return [f"{name}: unknown word {bare[0]}"]
    return option_faults(name, [FIRST[name], *words] if bare else words)


def option_faults(recipe: str, words: list[str]) -> list[str]:
    """Return what is wrong with the options of a recipe or of a command."""
    said = usage(recipe)
    known = {"--config", *re.findall(r"(?<!\S)\[?(--?\w+)", said)}  # TRL's parser takes it and does not list it
    required = set(re.findall(r"--\w+", re.sub(r"\[[^\[\]]*\]", "", re.sub(r"\[[A-Z_\d]+( \.\.\.)?\]", "", said))))
    allowed = {flag: values.split(",") for flag, values in re.findall(r"(--\w+) \{([^}]*)\}", said)}
    given = split_flags(words)
    faults = [f"{recipe}: unknown flag {flag}" for flag in given if flag not in known]
    faults += [
        f"{recipe}: {flag} {value} is not one of {allowed[flag]}"
        for flag, value in given.items()
        if flag in allowed and value not in allowed[flag] and not str(value).startswith("$")  # a loop's variable
    ]
    in_file: set[str] = set()
    if config := given.get("--config"):
        if not (ROOT / config).is_file():
            return [*faults, f"{recipe}: no file {config}"]
        in_file = {f"--{key}" for key in yaml.safe_load((ROOT / config).read_text())}
        faults += [f"{config}: unknown key {flag}" for flag in sorted(in_file - known)]
    return faults + [f"{recipe}: {flag} is missing" for flag in sorted(required - given.keys() - in_file)]


def launch_faults(launcher: str, words: list[str]) -> list[str]:
    """Return what is wrong with the words between a launcher and the recipe."""
    if launcher == "torchrun":
        from torch.distributed.run import get_args_parser as parser_of
    else:
        from accelerate.commands.launch import launch_command_parser as parser_of

    known = parser_of()._option_string_actions
    given = split_flags(words)
    faults = [f"{launcher}: unknown flag {flag}" for flag in given if flag not in known]
    config = given.get("--config_file")
    return faults + ([f"no file {config}"] if config and not (ROOT / config).is_file() else [])


def faults(command: list[str]) -> list[str]:
    """Return what is wrong with one command; a program that is not ours is taken as it is."""
    program = Path(command[0]).name
    scripts = [number for number, word in enumerate(command) if number and word.endswith((".py", ".sh"))]
    if program == "make":
        targets = re.findall(r"^([a-z_-]+):", (ROOT / "Makefile").read_text(), re.M)
        return [f"no make target {word}" for word in command[1:] if "=" not in word and word not in targets]
    if program == "automedeval":
        return command_faults(command[1:])
    if program in ("bash", "sh", "source", "."):
        path = ROOT / command[1]
        return [] if path.is_file() or path.parts[len(ROOT.parts)] in IGNORED else [f"no file {command[1]}"]
    found = []
    if program == "accelerate":
        if command[1] != "launch" or not scripts:
            return ["accelerate: not a launch of a recipe"]
        found = launch_faults("accelerate launch", command[2 : scripts[0]])
    elif program == "torchrun":
        if not scripts:
            return ["torchrun: not a launch of a recipe"]
        found = launch_faults(program, command[1 : scripts[0]])
    elif program not in ("python", "python3", "python3.11") or not scripts:
        return []
    script, words = command[scripts[0]], command[scripts[0] + 1 :]
    if script.startswith("recipes/"):
        return found + recipe_faults(script, words)
    return found if (ROOT / script).is_file() else [*found, f"no file {script}"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_command_names_what_exists(document: Path) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert [fault for command in commands(text) for fault in faults(command)] == []


def test_each_table_and_figure_of_the_paper_has_a_command() -> None:
    rows = figures_of_the_paper()
    assert [fault for _, command, _ in rows for fault in faults(shlex.split(command))] == []
    named = [
        f"{kind} {number}" for kind, numbers in (("Table", range(1, 9)), ("Figure", range(3, 10))) for number in numbers
    ]
    listed = " ".join(re.sub(r"(Table|Figure)s (\d) and (\d)", r"\1 \2 \1 \3", about) for about, _, _ in rows)
    assert [name for name in named if name not in listed] == []
    for _, command, files in rows:
        written = yaml.safe_load((ROOT / command.split()[3]).read_text())
        place = written.get("output") or written["store"]
        assert all(file.startswith(place) for file in files), command


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("python recipes/judge.py --judge M --cases F --output D --order all", "unknown flag --order"),
        ("python recipes/judge.py --judge M --cases F --output D --orders some", "--orders some is not one of"),
        ("python recipes/judge.py --judge M --output D", "--cases is missing"),
        ("automedeval judge F --order all", "judge: unknown flag --order"),
        ("automedeval judge --judge M", "judge: --cases is missing"),
        ("automedeval compare F", "compare: unknown word F"),
        ("automedeval report V --cases F", "report: --output is missing"),
        ("automedeval judges F", "automedeval: no command judges"),
        ("A=1 python recipes/judge.py \\\n  --config recipes/nowhere/judge.yaml", "no file recipes/nowhere/judge.yaml"),
        ("python recipes/no_such_recipe.py", "no such recipe"),
        ("python benchmarks/no_such_file.py", "no file benchmarks/no_such_file.py"),
        ("accelerate launch --config_file nowhere.yaml recipes/publish.py metric --repo a/b", "no file nowhere.yaml"),
        ("accelerate launch --processes 2 recipes/publish.py metric --repo a/b", "unknown flag --processes"),
        ("torchrun --processes 2 recipes/publish.py metric --repo a/b", "torchrun: unknown flag --processes"),
        ("cd x && make no_such_target", "no make target no_such_target"),
        ("bash recipes/no_such_script.sh", "no file recipes/no_such_script.sh"),
    ],
)
def test_a_wrong_command_is_found(line: str, fault: str) -> None:
    (found,) = [found for command in commands(f"```bash\n{line}\n```\n") for found in faults(command)]
    assert fault in found


def test_the_commands_show_right_examples() -> None:
    for name, (module, _) in COMMANDS.items():
        text = import_module(f"automedeval.cli.{module}").__doc__
        examples = re.findall(r"^    (automedeval (?:.*\\\n)*.*)", text, re.M)
        assert examples, name
        shown = commands("```bash\n" + "\n".join(examples) + "\n```\n")
        assert [fault for command in shown for fault in faults(command)] == []


def test_the_runs_name_their_command_and_known_keys() -> None:
    files = sorted((ROOT / "recipes" / "runs").glob("*/*.yaml"))
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
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.M)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text)):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = (ROOT / document).parent / path if path else ROOT / document
        if not target.exists() or (anchor and anchor not in slugs(target.read_text(encoding="utf-8"))):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_documents_speak_of_the_project_alone(document: Path) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert re.findall(r"(?<![\w./:~$}>)-])/[A-Za-z][\w.-]*/", text) == []  # a path from a machine's root
    assert re.findall(r"(?i)\bissues? #?\d+", text) == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 90


def test_a_document_names_every_key_of_a_verdict_and_every_rubric() -> None:
    text = (ROOT / "docs/judge.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]+) \|", text, re.M)
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert set(Verdict("c", "j", "r", (0,)).to_dict()) <= named
    assert set(packaged_rubrics()) <= named
    for rubric in map(read_rubric, packaged_rubrics()):
        (row,) = re.findall(rf"^\| `{rubric.id}` \|.*$", text, re.M)
        assert rubric.mode in row
        assert ", ".join(criterion.name for criterion in rubric.criteria) in row


def test_json_in_the_readme_is_a_case() -> None:
    (line,) = blocks((ROOT / "README.md").read_text(encoding="utf-8"), "json")
    assert len(Case.from_dict(json.loads(line)).responses) == 2


def test_python_in_the_documents_runs(tiny_model: Path, capsys: pytest.CaptureFixture) -> None:
    (code,) = blocks((ROOT / "docs/judge.md").read_text(encoding="utf-8"), "python")
    checkpoint = "models/SmolLM2-135M-Instruct"
    assert checkpoint in code
    exec(compile(code.replace(checkpoint, str(tiny_model)), "judge.md", "exec"), {})
    assert re.match(r"True \(\d, \d\) \(\d\.\d+, \d\.\d+\) ", capsys.readouterr().out)


def test_the_sample_holds_what_its_document_says() -> None:
    folder = ROOT / "src/automedeval/sample"
    text = (folder / "README.md").read_text(encoding="utf-8")
    kinds: Counter[str] = Counter()
    for split in ("train", "test"):
        cases = list(read_cases(folder / f"{split}_cases.jsonl"))
        ratings = (folder / f"{split}_ratings.jsonl").read_text().splitlines()
        responses = [response for case in cases for response in case.responses]
        assert f"| {len(cases)} cases with {len(responses)} responses, {len(ratings):,} ratings |" in text
        kinds.update(response.extra["kind"] for response in responses)
    assert {kind: int(count) for kind, count in re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.M)} == kinds


def test_two_bots_holds_what_the_document_of_the_sample_says() -> None:
    cases = list(read_cases(ROOT / "src/automedeval/sample/two_bots.jsonl"))
    assert [case.models for case in cases] == [["bot-v1", "bot-v2"]] * 12
    first, second = zip(*(case.responses for case in cases))
    assert {each.extra["kind"] for each in first} == {"safe"}
    dangers = [each.extra["danger"] for each in second if each.extra["kind"] == "dangerous_error"]
    assert sorted(dangers) == ["dose", "dose", "emergency", "frequency", "interaction", "pregnancy"]
    assert all(len(long.text) > len(short.text) for short, long in zip(first, second))
    assert all(case.reference for case in cases)


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["version"] == automedeval.__version__
    for reference in citation["references"]:
        assert {"type", "title", "authors"} <= reference.keys()
    assert f"## {automedeval.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_model_card_opens_with_metadata_of_the_hub() -> None:
    from huggingface_hub import ModelCard

    card = ModelCard.load(ROOT / "model_card.md")
    assert (card.data.license, card.data.language) == (None, ["en"]), "its owner names the license"
    assert "There is no trained model yet" in card.text
