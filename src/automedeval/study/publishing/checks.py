"""Lay out what is published of a folder, and refuse what must not be sent.

Nothing here sends anything. Every problem raises RecordError with a line that names the file; then nothing is published.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet
import yaml
from huggingface_hub import RepoCard

from automedeval.records import RecordError, foreign_errors_at, read_lines, read_text
from automedeval.records.tables import packaged
from automedeval.study.publishing.paths import put, shorten_paths

MODEL, DATASET = KINDS = ("model", "dataset")  # the Hub's names
CARD = "README.md"
RULES = packaged("study/publishing", "checks")
UNFILLED, CLOSED = re.compile(RULES["unfilled"]), re.compile(RULES["closed"])
SECRETS = {
    kind: re.compile(pattern.encode())
    for kind, pattern in packaged("study/publishing", "secrets").items()
}
# Where a file of some suffix names annotators: as the value of a key, in a column, or as the judge of a person's own scores.
PEOPLE = {
    f".{suffix}": re.compile(pattern.encode()) for suffix, pattern in RULES["annotators"].items()
}
HUB_ID = re.compile(r"(?!models/)[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
NOT_SENT = re.compile(
    r"\..*|__pycache__|checkpoint-\d+"
)  # hidden, caches, what training resumes from
NAMES = "{}: names annotators; if these are pseudonyms, set --annotators_are_pseudonyms true"
NOT_STATED = "not stated"


def stage(folder: Path, place: Path, written: Mapping[str, bytes]) -> int:
    """Lay out in an empty folder, `place`, what is published of another; return how many of its files are left out.

    The files are links to those of the folder. `written` are files by their path that are put in their place or beside them,
    and those that tell absolute paths of this machine are written anew. RecordError if a link leads out of the folder.
    """
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
        link = place / inside
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path.resolve())
    for name, content in written.items():
        put(place / name, content)
    shorten_paths(place)
    return left_out


def sent_files(place: Path) -> dict[str, Path]:
    """Return the files of a folder that `stage` laid out, by their path in the repository."""
    files = (path for path in sorted(place.rglob("*")) if path.is_file())
    return {path.relative_to(place).as_posix(): path for path in files}


def check(
    place: Path, kind: str, source: Path, public: bool = False, pseudonyms: bool = False
) -> None:
    """Check what `stage` laid out; RecordError, which names the file in `source`, if a repository may not hold it.

    `pseudonyms` says that annotators' names in the files are such.
    """
    files = sent_files(place)
    if CARD not in files:
        raise RecordError(f"{source}: no {CARD}: a repository needs a card")
    licences: Counter[str | None] = Counter()
    for path, file in files.items():
        licences += _check_file(str(source / path), kind, file, pseudonyms)
    weights = any(place.glob("*.safetensors"))
    if kind == MODEL and not (weights and "config.json" in files):
        raise RecordError(f"{source}: no config.json with .safetensors beside it: not a checkpoint")
    if kind == DATASET and not any(place.rglob("*.parquet")):
        raise RecordError(f"{source}: no .parquet file: not a data set")
    check_card(read_text(files[CARD]), kind, "the card" if kind == MODEL else str(source / CARD))
    if kind == DATASET and public:
        _check_licences(source, licences)


def check_card(card: str, kind: str, place: str = "the card") -> None:
    """Raise RecordError if the card of a model or a data set lacks a field or holds a placeholder."""
    with foreign_errors_at(f"{place}: its front matter", ValueError, TypeError, yaml.YAMLError):
        about = RepoCard(card).data.to_dict()
    needed = RULES["kinds"][kind]["needed"]
    for name in needed:
        if about.get(name) in (None, "", [], {}):
            raise RecordError(
                f"{place}: the field {name!r} is not filled in (needed: {', '.join(needed)})"
            )
    for number, line in enumerate(card.splitlines(), 1):
        if match := UNFILLED.search(line):
            raise RecordError(f"{place}, line {number}: {match[0]!r} is not filled in")
    base = about["base_model"] if kind == MODEL else None
    if base is not None and not (isinstance(base, str) and HUB_ID.fullmatch(base)):
        raise RecordError(f"{place}: base_model: {base!r} is no Hub id (--base_model names it)")


def _check_file(place: str, kind: str, file: Path, pseudonyms: bool) -> Counter[str | None]:
    """Raise RecordError if a repository of this kind may not hold a file: by its suffix, or by keys or names in it.

    Names of annotators are allowed if they are pseudonyms. Weights are not read. Return how many rows the file has under each
    licence; None is a row of a table without one.
    """
    suffix = PurePosixPath(place).suffix.lower()
    suffixes = {*RULES["plain"], *RULES["images"], *RULES["kinds"][kind]["suffixes"]}
    if suffix not in suffixes:
        allowed = ", ".join(sorted(suffixes - {""}))
        raise RecordError(f"{place}: a {kind} may not hold a {suffix} file; allowed are {allowed}")
    if suffix == ".safetensors":
        return Counter()
    if suffix == ".parquet":
        return _check_parquet(place, file, pseudonyms)
    content = file.read_bytes()
    if suffix not in RULES["binary"] and not _is_text(content):
        raise RecordError(
            f"{place}: must be text in UTF-8, which can be searched for keys and names"
        )
    _check_text(place, content, "" if pseudonyms else suffix)
    if suffix != ".jsonl" or b'"license"' not in content:
        return Counter()
    return Counter(row["license"] for _, row in read_lines(place) if "license" in row)


def _is_text(content: bytes) -> bool:
    """Return whether a file is text in UTF-8."""
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False


def _check_parquet(place: str, file: Path, pseudonyms: bool) -> Counter[str | None]:
    """Raise RecordError if a table cannot be read, or for keys or names in it; return its licences and their rows."""
    licences: Counter[str | None] = Counter()
    with (
        foreign_errors_at(f"{place}: cannot be read", OSError, pa.ArrowException),
        pa.parquet.ParquetFile(file) as parquet,
    ):
        rows = (row for batch in parquet.iter_batches(256) for row in batch.to_pylist())
        for number, row in enumerate(rows, 1):
            text = json.dumps(row, default=str).encode()
            _check_text(place, text, "" if pseudonyms else ".json", f"row {number}")
            licences[row.get("license")] += 1
    return licences


def _check_text(place: str, text: bytes, suffix: str = "", where: str = "line {}") -> None:
    """Raise RecordError if a text holds a key, or, as a file of this suffix, names of annotators."""
    if found := [
        (match.start(), kind)
        for kind, pattern in SECRETS.items()
        if (match := pattern.search(text))
    ]:
        start, kind = min(found)
        line = where.format(text.count(b"\n", 0, start) + 1)
        raise RecordError(f"{place}, {line}: looks like {kind}; remove it and revoke it")
    if suffix in PEOPLE and PEOPLE[suffix].search(text):
        raise RecordError(NAMES.format(place))


def _check_licences(folder: Path, licences: Counter) -> None:
    """Raise RecordError if the licence of rows forbids redistribution."""
    closed: Counter[str] = Counter()
    for licence, rows in licences.items():
        name = str(licence or "").strip() or NOT_STATED
        closed[name] += rows if name == NOT_STATED or CLOSED.search(name.lower()) else 0
    if counts := ", ".join(
        f"{rows:,} under {name!r}" for name, rows in sorted(closed.items()) if rows
    ):
        how = "remove them, state their licence, or keep the data set private"
        raise RecordError(
            f"{folder}: rows whose licence does not allow redistribution: {counts}; {how}"
        )
