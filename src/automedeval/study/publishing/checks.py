"""Collect what is published of a folder, and refuse what must not be sent.

Nothing here sends anything. Every problem raises RecordError with a line that names the file; then nothing is published.
"""

import fnmatch
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import yaml
from huggingface_hub import RepoCard

from automedeval.records import RecordError, foreign_errors_at, read_lines
from automedeval.records.hub_names import HUB_ID
from automedeval.records.package_data import packaged
from automedeval.records.tables.columns import RATINGS
from automedeval.study.publishing.paths import Content, read_bytes, shorten_paths

MODEL, DATASET = KINDS = ("model", "dataset")  # the Hub's names
CARD = "README.md"
RULES = packaged("study/publishing", "checks")
SECRETS = {
    kind: re.compile(pattern.encode())
    for kind, pattern in packaged("study/publishing", "secrets").items()
}
# What a column of raters is called where ratings are read.
RATER = "|".join(RATINGS["annotator"]).replace("_", r"[\W_]?")
# Where a file of some suffix names annotators: as the value of a key, in a column, or as the judge of a person's own scores.
PEOPLE = {
    f".{suffix}": re.compile(
        pattern.replace("RATER", RATER).replace("NAME", RULES["name"]).encode()
    )
    for suffix, pattern in RULES["annotators"].items()
}
ROWS = (".parquet", ".jsonl")  # files that are read row by row
# Hidden, caches, what training resumes from.
NOT_SENT = re.compile(r"\..*|__pycache__|checkpoint-\d+")
NOT_STATED = "not stated"
Licences = Counter[str]  # how many rows have each


def contents_of(folder: Path, written: Mapping[str, bytes]) -> tuple[dict[str, Content], int]:
    """Return what is published of a folder, by its path in the repository, and how many of its files are left out.

    `written` are files that stand in the place of the folder's own, or beside them; of files that tell absolute paths of this
    machine a shorter text is published. RecordError if a link leads out of the folder.
    """
    contents: dict[str, Content] = {}
    left_out = 0
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if any(map(NOT_SENT.fullmatch, inside.parts)):
            left_out += path.is_file()
            continue
        if path.is_dir() and not path.is_symlink():
            continue
        if not path.is_file() or not path.resolve().is_relative_to(folder.resolve()):
            raise RecordError(f"{path}: no file of {folder}; replace a link by what it points to")
        contents[inside.as_posix()] = path
    contents |= written
    return shorten_paths(dict(sorted(contents.items()))), left_out


def check(
    contents: Mapping[str, Content],
    kind: str,
    source: Path,
    public: bool = False,
    pseudonyms: bool = False,
) -> None:
    """Check the contents of a repository; RecordError, which names the file in `source`, if it may not hold one.

    `pseudonyms` says that annotators' names in the files are such.
    """
    rules = RULES["kinds"][kind]
    # The Hub looks for a checkpoint beside its card, and for the rows of a data set in all folders.
    found = [path for path in contents if kind == DATASET or "/" not in path]
    for pattern in rules["files"]:
        if not fnmatch.filter(found, pattern):
            raise RecordError(f"{source}: a {kind} needs {pattern}")
    allowed = {*RULES["plain"], *rules["suffixes"]}
    people = {} if pseudonyms else PEOPLE
    licences = Licences()
    for path, content in contents.items():
        place = str(source / path)
        suffix = PurePosixPath(path).suffix.lower()
        if suffix not in allowed:
            known = ", ".join(sorted(allowed - {""}))
            raise RecordError(
                f"{place}: a {kind} may not hold a {suffix} file; allowed are {known}"
            )
        if suffix in ROWS:
            licences += _check_rows(place, suffix, people.get(".json"))
        elif suffix != ".safetensors":
            _check_file(place, suffix, read_bytes(content), people.get(suffix))
    check_card(read_bytes(contents[CARD]).decode("utf-8-sig"), kind, str(source / CARD))
    closed = [
        f"{rows:,} under {name!r}"
        for name, rows in sorted(licences.items())
        if re.search(RULES["closed"], name.lower())
    ]
    if kind == DATASET and public and closed:
        raise RecordError(
            f"{source}: rows whose licence does not allow redistribution: {', '.join(closed)}; "
            "remove them, state their licence, or keep the data set private"
        )


def check_card(card: str, kind: str, place: str) -> None:
    """Raise RecordError if the card of a model or a data set lacks a field or holds a placeholder."""
    with foreign_errors_at(f"{place}: its front matter", ValueError, TypeError, yaml.YAMLError):
        about = RepoCard(card).data.to_dict()
    for name in RULES["kinds"][kind]["needed"]:
        if not about.get(name):
            raise RecordError(f"{place}: the field {name!r} is not filled in")
    if match := re.search(RULES["unfilled"], card):
        raise RecordError(f"{place}: {match[0]!r} is not filled in")
    base = about.get("base_model")
    if kind == MODEL and not HUB_ID.fullmatch(str(base)):
        raise RecordError(f"{place}: base_model: {base!r} is no Hub id (--base_model names it)")


def _check_rows(place: str, suffix: str, names: re.Pattern | None) -> Licences:
    """Raise RecordError if a table cannot be read, or for keys or names in it; return the licences of its rows."""
    licences = Licences()
    for where, row in read_lines(place):
        _check_text(where, json.dumps(row).encode(), names)
        if suffix == ".parquet" or "license" in row:
            licences[str(row.get("license") or "").strip() or NOT_STATED] += 1
    return licences


def _check_file(place: str, suffix: str, content: bytes, names: re.Pattern | None) -> None:
    """Raise RecordError for keys or names in a file, or if they cannot be searched for."""
    if suffix not in RULES["binary"]:
        with foreign_errors_at(
            f"{place}: must be text in UTF-8, to be searched for keys and names"
        ):
            if "\0" in content.decode():
                raise ValueError("a zero stands in it")
    _check_text(place, content, names)


def _check_text(place: str, text: bytes, names: re.Pattern | None) -> None:
    """Raise RecordError if a text holds a key or names annotators; `place` is a file, or "file:line" of a row."""
    for kind, pattern in SECRETS.items():
        if match := pattern.search(text):
            line = text.count(b"\n", 0, match.start()) + 1
            raise RecordError(f"{place}: looks like {kind} in line {line}; remove and revoke it")
    if names and (match := names.search(text)):
        raise RecordError(
            f"{place}: names annotators in {match[0].decode(errors='replace')!r}; if these are "
            "pseudonyms, or no people's names, set --annotators_are_pseudonyms true"
        )
