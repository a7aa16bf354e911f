"""A step of a study: one YAML of the run's folder with the arguments that replace some of its own.

Everything else about a step follows from its YAML: the command in the first line, and the arguments in the rest.
"""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from automedeval.records import gone

# libyaml's loader is ten times as fast, and a plan reads dozens of files.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
NAMES = ("compare_to", "judges", "rounds", "teacher_verdicts")  # arguments of recipes/report.py that name judges
TEMPLATES = ("chat_template_path", "tokenizer_template")  # "none" takes a template back

# Recipe → the argument of its output, and what it writes there; "" is the folder itself.
WRITES = {
    "prepare": ("output", ("cases.jsonl", "dropped.jsonl")),
    "generate_responses": ("output", ("", "cases.jsonl")),
    "build_store": ("store", ("",)),
    "distill": ("output", ("", "verdicts.jsonl")),
    "build_dataset": ("output", ("",)),
    "judge": ("output", ("", "verdicts.jsonl")),
    "introspect": ("output", ("", "train.parquet", "test.parquet")),
    "sft": ("output_dir", ("",)),
    "report": ("output", ("", "agreement.json", "report.html", "report.md")),
    "calibrate": ("output", ("", "verdicts.jsonl", "calibration.json")),
    "compare": ("output", ("comparison.html", "comparison.md", "comparison.json")),
    "check": ("output", ("claims.jsonl", "check.html", "check.md", "check.json")),
    "audit": ("output", ("audit.html", "audit.md", "audit.json")),
    "publish": (None, ()),
}


class StudyError(Exception):
    """A study cannot be planned; the message is one readable line."""


@dataclass(frozen=True)
class Step:
    """One run of a recipe.

    Attributes:
        file: the YAML.
        about: what the step does, for its heading.
        changes: arguments that replace those of the YAML.
        start: the words before the recipe, in place of those of the YAML's first line.
    """

    file: Path
    about: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    start: tuple[str, ...] | None = None

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the recipe: the YAML's, with the changes in their place."""
        return read_yaml(self.file) | self.changes

    @cached_property
    def _first_line(self) -> tuple[list[str], str]:
        """Return the words before the recipe, and the name of the recipe."""
        first = self.file.read_text(encoding="utf-8").partition("\n")[0]
        words = shlex.split(first.removeprefix("#"))
        at = next((at for at, word in enumerate(words) if word.startswith("recipes/")), None)
        config = words[-1] if at is not None and words[at + 1 : -1] == ["--config"] else ""
        if Path(config).parts[-2:] != (self.file.parent.name, self.file.name):
            raise StudyError(f"{self.file}: the first line must be the command that runs this file, not {first!r}")
        if not Path(words[at]).is_file():
            message = f"{self.file}: the first line names {words[at]}, and there is no such recipe"
            raise StudyError(gone.explain(message, Path(words[at]).stem))
        return words[:at], Path(words[at]).stem

    @property
    def recipe(self) -> str:
        """Return the recipe's name, without folder and suffix."""
        return self._first_line[1]

    @property
    def launch(self) -> Sequence[str]:
        """Return the words before the recipe."""
        return self._first_line[0] if self.start is None else self.start

    @property
    def output(self) -> tuple[str | None, tuple[str, ...]]:
        """Return the argument of the output, and what is written there."""
        if self.recipe not in WRITES:
            raise StudyError(
                f"{self.file}: recipes/{self.recipe}.py is no step of a study: it is not known what it writes"
            )
        return WRITES[self.recipe]

    def command(self, python: str) -> list[str]:
        """Return the words of the command, for this interpreter."""
        program, *rest = self.launch
        start = [python, *rest] if program == "python" else [python, "-m", "accelerate.commands.accelerate_cli", *rest]
        changes = [word for name, value in self.changes.items() for word in (f"--{name}", as_word(value))]
        return [*start, f"recipes/{self.recipe}.py", "--config", str(self.file), *changes]

    def changed(self, changes: Mapping[str, Any]) -> "Step":
        """Return this step with other arguments; an argument that is as it was is no change."""
        new = {name: value for name, value in changes.items() if value != self.arguments.get(name)}
        return replace(self, changes={**self.changes, **new})


def moved(value: Any, move: Callable[[str], str]) -> Any:
    """Return the value of an argument with its paths moved; KIND: or NAME= may stand before a path."""
    if isinstance(value, list):
        return [moved(entry, move) for entry in value]
    if not isinstance(value, str):
        return value
    at = max(value.rfind(":"), value.rfind("=")) + 1
    return value[:at] + move(value[at:])


def as_word(value: Any) -> str:
    """Return a value as the recipes read it on a command line."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def comma_list(value: str | list[str]) -> list[str]:
    """Return the entries of a list, or of a text that separates them by commas, as the recipes read both."""
    return [entry.strip() for entry in (value.split(",") if isinstance(value, str) else value)]


def read_yaml(file: Path) -> dict[str, Any]:
    """Return the mapping that a YAML file holds."""
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=LOADER)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise StudyError(f"{file}: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise StudyError(f"{file}: must be a mapping of arguments to values")
    return content


def has_template(model: str) -> bool:
    """Return whether a model has a chat template of its own; one that is not there yet is taken to have one."""
    place, settings = Path(model), Path(model, "tokenizer_config.json")
    if not place.is_dir() or (place / "chat_template.jinja").is_file():
        return True
    return settings.is_file() and bool(json.loads(settings.read_text(encoding="utf-8")).get("chat_template"))


def judge_name(arguments: Mapping[str, Any]) -> str:
    """Return the name that the verdicts of a run of recipes/judge.py record."""
    kind, colon, model = str(arguments["judge"]).partition(":")
    name = model if kind == "openai" else f"{kind}{colon}{Path(model).name}" if colon else Path(kind).name
    return str(arguments.get("judge_name") or name)
