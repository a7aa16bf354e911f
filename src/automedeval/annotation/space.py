"""Package a study's page as a folder for Docker: on any host, or as a Space of the Hub."""

import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

import automedeval
from automedeval.annotation.jury_queue import REVISIONS
from automedeval.annotation.study import Study
from automedeval.records import RecordError, read_text, verdicts_file
from automedeval.records.yaml_file import load_yaml
from automedeval.reports.page import environment

PORT = 7860  # of a Space
PACKAGE = Path(automedeval.__file__).parent
DATABASE = "state/annotation.sqlite"  # start.sh puts `state` on persistent storage
# The dependencies that the page loads; those of training and judging are left out, torch alone is gigabytes.
LIBRARIES = (
    "argon2-cffi", "datasets", "fastapi", "huggingface-hub", "itsdangerous", "jinja2", "numpy", "pyyaml", "rapidfuzz",
    "scipy", "sqlalchemy", "transformers", "uvicorn",
)  # fmt: skip
# Parts of the package that the page does not need.
LEFT_OUT = ("sample", "metrics/rationale_score", "judges/packaged", "claims/packaged")


def space_of(study: Study, recipe: Path, repo: str | None = None) -> dict[str, Path | bytes]:
    """Return the files of a study's folder by path, with a copy of `recipe`; `repo` is ORG/NAME if it becomes a Space.

    Raise RecordError if the study names something that is not a file.
    """
    content, carried = _carried(study)
    sqlite = study.database.startswith("sqlite")
    content["database"] = DATABASE if sqlite else study.database
    card = {
        "title": json.dumps(study.title, ensure_ascii=False),
        "heading": " ".join(study.title.split()),
        "version": automedeval.__version__,
        "cases": len({item.case_id for item in study.items}),
        "annotators": len(study.annotators),
        "host": f"{re.sub('[/._]', '-', repo).lower()}.hf.space" if repo else None,
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
    return files | carried


def _rendered(name: str, **context: Any) -> bytes:
    return (environment("automedeval.annotation").get_template(name).render(port=PORT, **context) + "\n").encode()


def _carried(study: Study) -> tuple[dict[str, Any], dict[str, Path | bytes]]:
    """Return the study's YAML with the paths of the folder, and the files by these paths."""
    content = load_yaml(read_text(Path(study.place)))
    files: dict[str, Path | bytes] = {}

    def carry(path: str, key: str, inside: str | None = None) -> str:
        """Add a file to the folder; return its path there."""
        file = Path(path)
        if not file.is_file():
            why = "is not a file; every file of the study is copied into the folder"
            raise RecordError(f"{study.place}: {key}: {path} {why}")
        name, number = inside or f"study/{file.name}", 1
        while files.get(name, file) != file:
            number += 1
            name = f"study/{file.stem}-{number}{file.suffix}"
        files[name] = file
        return name

    for key, path_of in (("cases", str), ("verdicts", verdicts_file)):
        if value := content.get(key):
            names = [value] if isinstance(value, str) else value
            carried = [carry(str(path_of(name)), key) for name in names]
            content[key] = carried[0] if isinstance(value, str) else carried
    for key in ("rubric", "verdict_rubric", "harm_rubric"):
        value = content.get(key) or ""
        if value.endswith((".yaml", ".yml")):
            content[key] = carry(value, key)
            template = (load_yaml(read_text(Path(value))) or {}).get("template")
            if template and (beside := Path(value).with_name(template)).is_file():
                carry(str(beside), key, f"study/{template}")
    if jury := content.get("jury"):
        revisions = Path(jury["queue"]).with_name(REVISIONS)
        jury["queue"] = carry(jury["queue"], "jury.queue", "study/jury/jury.jsonl")
        carry(str(revisions), "jury.queue", f"study/jury/{REVISIONS}")
    return content, files
