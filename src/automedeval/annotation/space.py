"""A study's page as a folder that runs by itself: in any Docker host, and as a Docker Space of the Hub."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jinja2
import yaml

import automedeval
from automedeval.annotation.study import Study
from automedeval.records import RecordError, read_text

PORT = 7860  # that a Space is reached by
PACKAGE = Path(automedeval.__file__).parent
DATABASE = "state/annotation.sqlite"  # start.sh puts `state` where it lasts
# What the page loads of the package's dependencies, and nothing of what trains and judges: torch alone is gigabytes.
LIBRARIES = (
    "argon2-cffi", "datasets", "fastapi", "huggingface-hub", "itsdangerous", "jinja2", "matplotlib", "numpy",
    "pyyaml", "rapidfuzz", "scipy", "sqlalchemy", "transformers", "uvicorn",
)  # fmt: skip
# Parts of the package that hold data of others, or serve something else.
LEFT_OUT = ("sample", "metrics/rationale_score")


@dataclass(frozen=True)
class Space:
    """What the folder holds: `files` by their path in it; `told` are those with the study's own texts, checked the hardest."""

    files: dict[str, Path | bytes]
    told: frozenset[str]


def space_of(study: Study, recipe: Path, repo: str | None = None) -> Space:
    """Return the folder of a study.

    Args:
        recipe: recipes/annotate.py, which the folder gets a copy of.
        repo: ORG/NAME on the Hub, where it goes there.

    Raises:
        RecordError: something that the study reads is no file.
    """
    content, told = _carried(study)
    sqlite = study.database.startswith("sqlite")
    content["database"] = DATABASE if sqlite else study.database
    host = f"{repo.replace('/', '-').replace('.', '-').replace('_', '-').lower()}.hf.space" if repo else None
    card = {
        "title": json.dumps(study.title, ensure_ascii=False),
        "heading": " ".join(study.title.split()),
        "version": automedeval.__version__,
        "cases": len({item.case_id for item in study.items}),
        "annotators": len(study.annotators),
        "host": host,
    }
    libraries = LIBRARIES if sqlite else (*LIBRARIES, "psycopg[binary]")
    files: dict[str, Path | bytes] = {
        "README.md": _rendered("space_card.md.jinja", **card),
        "Dockerfile": _rendered("space_dockerfile.jinja"),
        "start.sh": _rendered("space_start.sh.jinja"),
        "requirements.txt": "".join(f"{name}=={version(name.partition('[')[0])}\n" for name in libraries).encode(),
        "study.yaml": yaml.safe_dump(content, allow_unicode=True, sort_keys=False).encode(),
        "annotate.py": recipe,
    }
    for path in sorted(PACKAGE.rglob("*")):
        inside = path.relative_to(PACKAGE).as_posix()
        if path.is_file() and "__pycache__" not in inside and not inside.startswith(LEFT_OUT):
            files[f"automedeval/{inside}"] = path
    return Space(files | told, frozenset(told))


def _rendered(name: str, **context: Any) -> bytes:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    template = environment.from_string(
        (resources.files("automedeval.annotation") / "templates" / name).read_text(encoding="utf-8")
    )
    return template.render(port=PORT, **context).encode()


def _carried(study: Study) -> tuple[dict[str, Any], dict[str, Path | bytes]]:
    """Return the study's YAML as it reads in the folder, and the files that it names there."""
    content = yaml.safe_load(read_text(Path(study.place)))
    files: dict[str, Path | bytes] = {}

    def carry(given: str, key: str, inside: str | None = None) -> str:
        """Take a file along, `inside` a folder of its own; return its path in the folder."""
        file = Path(given)
        if not file.is_file():
            raise RecordError(f"{study.place}: {key}: {given} is no file here; a page takes what it reads along")
        name, number = inside or f"study/{file.name}", 1
        while files.get(name, file) != file:
            number += 1
            name = f"study/{file.stem}-{number}{file.suffix}"
        files[name] = file
        return name

    def each(key: str, found: Callable[[str], str]) -> None:
        if key in content:
            given = content[key]
            names = [carry(found(name), key) for name in ([given] if isinstance(given, str) else given)]
            content[key] = names[0] if isinstance(given, str) else names

    each("cases", str)
    each("verdicts", lambda name: str(Path(name) / "verdicts.jsonl") if Path(name).is_dir() else name)
    for key in ("rubric", "verdict_rubric"):
        given = content.get(key) or ""
        if given.endswith((".yaml", ".yml")):
            content[key] = carry(given, key)
            template = (yaml.safe_load(read_text(Path(given))) or {}).get("template")
            if template and (beside := Path(given).with_name(template)).is_file():
                carry(str(beside), key, f"study/{template}")
    if jury := content.get("jury"):
        jury["queue"] = carry(jury["queue"], "jury.queue")
        revisions = Path(jury["dataset"]) / "revisions.jsonl"
        carry(str(revisions), "jury.dataset", "study/dataset/revisions.jsonl")
        jury["dataset"] = "study/dataset"
    return content, files
