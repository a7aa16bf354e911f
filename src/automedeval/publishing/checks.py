"""Check what is published on the Hub: collect the files of a folder, and refuse those that must not be sent.

Nothing here sends anything. Every problem raises RecordError with a line that names the file; then nothing is published.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet
import yaml
from huggingface_hub import RepoCard

from automedeval.publishing.paths import without_paths
from automedeval.records import RecordError, read_lines, read_text
from automedeval.records.tables import packaged

MODEL, DATASET = KINDS = ("model", "dataset")  # the Hub's names
CARD = "README.md"
RULES = packaged("publishing", "checks")
UNFILLED, CLOSED = re.compile(RULES["unfilled"]), re.compile(RULES["closed"])
SECRETS = {
    kind: re.compile(pattern.encode())
    for kind, pattern in packaged("publishing", "secrets").items()
}
# Where a file of some suffix names annotators: as the value of a key, in a column, or as the judge of a person's own scores.
PEOPLE = {
    f".{suffix}": re.compile(pattern.encode()) for suffix, pattern in RULES["annotators"].items()
}
HUB_ID = re.compile(r"(?!models/)[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_NOT_SENT = re.compile(
    r"\..*|__pycache__|checkpoint-\d+"
)  # hidden files, caches, and what training could resume from
NAMES = "{}: names annotators; if these are pseudonyms, set --annotators_are_pseudonyms true"
NOT_STATED = "not stated"


@dataclass(frozen=True)
class Parcel:
    """Files to publish in one commit: path in the repository → file or content.

    `source` is the folder that they come from, for messages; `left_out` lists what is not published.
    """

    kind: str
    files: dict[str, Path | bytes]
    source: str
    left_out: tuple[str, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        return {
            path: len(file) if isinstance(file, bytes) else file.stat().st_size
            for path, file in self.files.items()
        }


def pack(
    folder: str | Path,
    kind: str,
    card: str | None = None,
    public: bool = False,
    pseudonyms: bool = False,
    extra: Mapping[str, Path | bytes] | None = None,
) -> Parcel:
    """Return the files of a folder that are published, after all checks; RecordError, which names the file, if one fails.

    `card` is published as README.md instead of the folder's own, `extra` are further files by their path in the repository.
    `pseudonyms` says that annotators' names in the files are such.
    """
    folder = Path(folder)
    files, left_out = gather(folder)
    if card is None and CARD not in files:
        raise RecordError(f"{folder}: no {CARD}: a repository needs a card")
    sent: dict[str, Path | bytes] = (
        files | dict(extra or {}) | ({} if card is None else {CARD: card.encode()})
    )
    sent |= without_paths(sent)
    licences = sum(
        (_check_file(str(folder / path), kind, file, pseudonyms) for path, file in sent.items()),
        Counter(),
    )
    weights = any(re.fullmatch(r"[^/]+\.safetensors", path) for path in files)
    if kind == MODEL and not (weights and "config.json" in files):
        raise RecordError(f"{folder}: no config.json with .safetensors beside it: not a checkpoint")
    if kind == DATASET and not any(path.endswith(".parquet") for path in files):
        raise RecordError(f"{folder}: no .parquet file: not a data set")
    check_card(card or read_text(files[CARD]), kind, "the card" if card else str(folder / CARD))
    if kind == DATASET and public:
        _check_licences(folder, licences)
    return Parcel(kind, dict(sorted(sent.items())), str(folder), left_out)


def gather(folder: Path) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Return the files of a folder by their path in it, and what is left out.

    RecordError if there is nothing in it, or a link leads out of it.
    """
    root, files, left_out = folder.resolve(), {}, set()
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        hidden = next(
            (depth for depth, name in enumerate(inside.parts, 1) if _NOT_SENT.fullmatch(name)), None
        )
        if hidden:
            left_out.add("/".join(inside.parts[:hidden]))
        elif path.is_symlink() and (path.is_dir() or not path.resolve().is_relative_to(root)):
            raise RecordError(
                f"{path}: a link to a folder or out of {folder}; replace it by what it points to"
            )
        elif path.is_file():
            files[inside.as_posix()] = path
        elif not path.is_dir():
            raise RecordError(f"{path}: neither a file nor a folder")
    if not files:
        raise RecordError(f"{folder}: there is nothing to publish")
    return files, tuple(sorted(left_out))


def check_card(card: str, kind: str, place: str = "the card") -> None:
    """Raise RecordError if the card of a model or a data set lacks a field or holds a placeholder."""
    try:
        about = RepoCard(card).data.to_dict()
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise RecordError(f"{place}: its front matter: {' '.join(str(error).split())}") from None
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


def _check_file(place: str, kind: str, file: Path | bytes, pseudonyms: bool) -> Counter:
    """Raise RecordError if a repository of this kind may not hold a file: by its suffix, or by keys or names in it.

    Names of annotators are allowed if they are pseudonyms. Weights are not read. Return how many rows of a data set the file
    has under each licence; None is a row of a table without one.
    """
    suffix = PurePosixPath(place).suffix.lower()
    suffixes = {*RULES["plain"], *RULES["images"], *RULES["kinds"][kind]["suffixes"]}
    if suffix not in suffixes:
        allowed = ", ".join(sorted(suffixes - {""}))
        raise RecordError(f"{place}: a {kind} may not hold a {suffix} file; allowed are {allowed}")
    if isinstance(file, Path) and suffix == ".parquet":
        return _check_parquet(place, file, pseudonyms)
    content = (
        file if isinstance(file, bytes) else b"" if suffix == ".safetensors" else file.read_bytes()
    )
    try:
        text = suffix in RULES["binary"] or "\0" not in content.decode()
    except UnicodeDecodeError:
        text = False
    if not text:
        raise RecordError(
            f"{place}: must be text in UTF-8, which can be searched for keys and names"
        )
    _check_text(place, content, "" if pseudonyms else suffix)
    if (
        kind != DATASET
        or not isinstance(file, Path)
        or suffix != ".jsonl"
        or b'"license"' not in content
    ):
        return Counter()
    return Counter(row["license"] for _, row in read_lines(file) if "license" in row)


def _check_parquet(place: str, file: Path, pseudonyms: bool) -> Counter:
    """Raise RecordError if a table cannot be read, or for keys or names in it; return its licences and their rows."""
    licences: Counter = Counter()
    try:
        with pa.parquet.ParquetFile(file) as parquet:
            rows = (row for batch in parquet.iter_batches(256) for row in batch.to_pylist())
            for number, row in enumerate(rows, 1):
                text = json.dumps(row, default=str).encode()
                _check_text(place, text, "" if pseudonyms else ".json", f"row {number}")
                licences[row.get("license")] += 1
    except (OSError, pa.ArrowException) as error:
        raise RecordError(f"{file}: cannot be read: {' '.join(str(error).split())[:200]}") from None
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
