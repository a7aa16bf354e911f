"""Check what is published on the Hub: collect the files of a folder, and refuse those that must not be sent.

Nothing here sends anything. Every problem raises RecordError with a line that names the file; then nothing is published.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from safetensors import SafetensorError, safe_open

from automedeval.publishing.cards import CARD, DATASET, METRIC, MODEL, PAGE, check_card
from automedeval.publishing.paths import without_paths
from automedeval.records import RATER, RecordError, read_text
from automedeval.records.yaml_file import load_yaml

PLAIN = {".json", ".jsonl", ".md", ".txt", ".csv", ".yaml", ".yml", ".cff", ""}
IMAGES = {".png", ".jpg", ".jpeg", ".svg", ".gif", ".webp", ".pdf"}
# The suffixes that each kind of repository may hold.
SUFFIXES = {
    MODEL: PLAIN | IMAGES | {".safetensors", ".jinja", ".model"},
    DATASET: PLAIN | IMAGES | {".parquet"},
    METRIC: PLAIN | IMAGES | {".py"},
    PAGE: PLAIN | IMAGES | {".parquet", ".py", ".jinja", ".css", ".js", ".sh"},
}
BINARY = IMAGES - {".svg"} | {".safetensors", ".model"}  # beside parquet; all other files are text
# Keys: a part that each of them has, and their pattern. Most texts lack the part, and are searched for it fast. An error names
# the file and the line, but does not repeat the key. Only keys of a known form are here: whatever merely looks random is, in
# these repositories, a digest.
SECRETS = {
    "a Hub token": (b"hf_", rb"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{20,}"),
    "an API key": (b"sk-", rb"(?<![A-Za-z0-9_-])sk-(?=[\w-]*[0-9])[\w-]{20,}"),
    "an access key": (b"IA", rb"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}"),
    "a GitHub token": (b"gh", rb"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{20,}"),
    "a GitHub access token": (b"github_pat_", rb"(?<![A-Za-z0-9])github_pat_\w{20,}"),
    "a GitLab token": (b"glpat-", rb"(?<![A-Za-z0-9])glpat-[\w-]{20,}"),
    "a chat token": (b"xox", rb"(?<![A-Za-z0-9])xox[abeoprs][.-][A-Za-z0-9.-]{10,}"),
    "a chat webhook": (b"hooks.slack.com", rb"hooks\.slack\.com/services/T\w+/B\w+/\w{10,}"),
    "a Google key": (b"AIza", rb"(?<![A-Za-z0-9])AIza[\w-]{35}"),
    "a storage key": (b"AccountKey=", rb"AccountKey=[A-Za-z0-9+/]{60,}"),
    "an npm token": (b"npm_", rb"(?<![A-Za-z0-9])npm_[A-Za-z0-9]{36}"),
    "a PyPI token": (b"pypi-AgE", rb"pypi-AgE[\w-]{50,}"),
    "a payment key": (b"k_live_", rb"(?<![A-Za-z0-9])[rs]k_live_[A-Za-z0-9]{20,}"),
    "a mail key": (b"SG.", rb"(?<![A-Za-z0-9])SG\.[\w-]{22}\.[\w-]{43}"),
    "a signed token": (b"eyJ", rb"(?<![A-Za-z0-9])eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
    "a password in an address": (b"://", rb"://[^\s:/?#@\"'\[\]]{1,99}:[^\s:/?#@\"'\[\]${}<>*]{1,99}@[\w\[]"),
    "a bearer token": (b"", rb"(?i:authorization[\"']?\s*[:=]\s*[\"']?bearer\s+[\w.~+/=-]{8,})"),
    "a private key": (b"PRIVATE KEY", rb"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
}

# What JSON writes in place of a character. A key at the start of a line follows the "n" of "\n" there, like a part of a word.
_ESCAPE = re.compile(rb"\\+(?:(u[0-9a-fA-F]{4}|[bfnrt])|(?=[\"/]))")

ANNOTATORS = ("annotator", "annotators")  # keys and columns that hold names of annotators
_PEOPLE = re.compile(rb"annotator|rater:(?=\S)", re.I)
_RATER = re.compile(rf"{RATER}\S")
NAMES = "{}: names annotators; if these are pseudonyms, set --annotators_are_pseudonyms true"

NOT_STATED = "not stated"
# Licences that forbid to redistribute a text, or to redistribute it inside a prompt.
CLOSED = re.compile(
    r"^\W*$|^none$|^n/?a$|^no\b|unknown|unspecified|proprietary|all.rights.reserved|no.?redistribution|non.?redistributable"
    r"|confidential|\b(?:not|don.?t) (?:for|to be|distribute|redistribute|stated|specified|given)|©"
    r"|no.?deriv|\bnd\b"
)


@dataclass(frozen=True)
class Parcel:
    """Files to publish in one commit: path in the repository → file or content.

    `source` is the folder or study that they come from, for messages; `left_out` lists what is not published.
    """

    kind: str
    files: dict[str, Path | bytes]
    source: str
    left_out: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        return {
            path: len(file) if isinstance(file, bytes) else file.stat().st_size for path, file in self.files.items()
        }


def pack(
    folder: str | Path,
    kind: str,
    card: str | None = None,
    public: bool = False,
    pseudonyms: bool = False,
    extra: Mapping[str, Path | bytes] | None = None,
) -> Parcel:
    """Return the files of a folder that are published, after all checks.

    Args:
        kind: "model", "dataset" or "metric".
        card: text to publish as README.md instead of the folder's own.
        public: whether the repository is public.
        pseudonyms: whether annotators' names in the files are pseudonyms.
        extra: further files, or their content, by their path in the repository.

    Raises:
        RecordError: a check fails; the line names the file.
    """
    folder = Path(folder)
    files, left_out = gather(folder)
    if card is None and CARD not in files:
        raise RecordError(f"{folder}: no {CARD}: a repository needs a card")
    sent: dict[str, Path | bytes] = files | dict(extra or {}) | ({} if card is None else {CARD: card.encode()})
    sent |= without_paths(sent)
    licences = sum((_check_file(str(folder / path), kind, file, pseudonyms) for path, file in sent.items()), Counter())
    _check_complete(folder, kind, files)
    if kind != METRIC:
        place = "the card" if card else str(folder / CARD)
        check_card(card or read_text(files[CARD]), kind, files, place)
    warnings = _check_licences(folder, licences, public) if kind == DATASET else []
    return Parcel(kind, dict(sorted(sent.items())), str(folder), tuple(left_out), tuple(warnings))


def pack_page(files: Mapping[str, Path | bytes], source: str, pseudonyms: bool = False) -> Parcel:
    """Return the files of a study's page, after all checks.

    Args:
        files: all files, with the card.
        source: the study's file, which names the annotators.
        pseudonyms: whether annotators' names, in the study and in its files, are pseudonyms.

    Raises:
        RecordError: a check fails; the line names the file.
    """
    if not pseudonyms:
        raise RecordError(NAMES.format(source))
    _check_secrets(source, read_text(Path(source)).encode())
    for path, file in files.items():
        _check_file(str(file) if isinstance(file, Path) else path, PAGE, file, pseudonyms)
    return Parcel(PAGE, dict(sorted(files.items())), source)


def write_parcel(parcel: Parcel, folder: Path) -> None:
    """Write a parcel's files into a folder; raise RecordError if it holds a file that is not in the parcel."""
    if folder.exists():
        there = gather(folder)[0] if any(folder.iterdir()) else {}
        if others := sorted(there.keys() - parcel.files.keys()):
            raise RecordError(f"{folder}: holds {others[0]}, which is not part of this page; choose another folder")
    for path, file in parcel.files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file if isinstance(file, bytes) else file.read_bytes())


def gather(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """Return the files of a folder by their path in it, and what is left out: hidden files, caches, trainer checkpoints.

    RecordError if the folder does not exist or is empty, or a link leads out of it.
    """
    if not folder.is_dir():
        raise RecordError(f"{folder}: no such folder")
    root, files, left_out = folder.resolve(), {}, []
    for here, folders, names in os.walk(folder):
        kept = []
        for name in sorted([*folders, *names]):
            path = Path(here) / name
            shown = path.relative_to(folder).as_posix()
            if name.startswith(".") or name == "__pycache__" or re.fullmatch(r"checkpoint-\d+", name):
                left_out.append(shown)
            elif path.is_symlink() and (path.is_dir() or not path.resolve().is_relative_to(root)):
                raise RecordError(f"{path}: a link to a folder or out of {folder}; replace it by what it points to")
            elif name in folders:
                kept.append(name)
            elif path.is_file():
                files[shown] = path
            else:
                raise RecordError(f"{path}: neither a file nor a folder")
        folders[:] = kept
    if not files:
        raise RecordError(f"{folder}: there is nothing to publish")
    return dict(sorted(files.items())), left_out


def _check_complete(folder: Path, kind: str, files: Mapping[str, Path]) -> None:
    """Raise RecordError if a checkpoint or data set lacks a file that is needed to load it."""
    if kind == DATASET and not any(path.endswith(".parquet") for path in files):
        raise RecordError(f"{folder}: no .parquet file: not a data set")
    if kind != MODEL:
        return
    if "config.json" not in files or not any(re.fullmatch(r"[^/]+\.safetensors", path) for path in files):
        raise RecordError(f"{folder}: no config.json with .safetensors beside it: not a checkpoint")
    for path, file in files.items():
        if path.endswith(".safetensors.index.json"):
            weights = json_object(read_text(file), file).get("weight_map")
            if not isinstance(weights, dict):
                raise RecordError(f"{file}: must be a mapping with the mapping weight_map")
            for shard in sorted(set(weights.values())):
                if str(PurePosixPath(path).with_name(shard)) not in files:
                    raise RecordError(f"{file}: names {shard}, which is not there")


def _check_file(place: str, kind: str, file: Path | bytes, pseudonyms: bool) -> Counter:
    """Raise RecordError if a repository of this kind may not hold a file: by its suffix, or by keys or names in it.

    Names of annotators are allowed if they are pseudonyms. Of weights, the header is checked. Return how many rows of a data
    set the file has under each licence; None is a row of a table without one.
    """
    suffix = PurePosixPath(place).suffix.lower()
    if suffix not in SUFFIXES[kind]:
        allowed = ", ".join(sorted(SUFFIXES[kind] - {""}))
        raise RecordError(f"{place}: a {kind} may not hold a {suffix} file; allowed are {allowed}")
    if isinstance(file, Path) and suffix == ".parquet":
        return _check_parquet(place, file, pseudonyms)
    content = file if isinstance(file, bytes) else _header(file) if suffix == ".safetensors" else file.read_bytes()
    if suffix not in BINARY and b"\0" in content:
        raise RecordError(f"{place}: must be text in UTF-8, which can be searched for keys and names")
    _check_secrets(place, content)
    if not pseudonyms:
        _check_annotators(place, suffix, content)
    lines = content.split(b"\n") if kind == DATASET and suffix == ".jsonl" else []
    return Counter(json_object(line, place).get("license") for line in lines if b'"license"' in line)


def _check_parquet(place: str, file: Path, pseudonyms: bool) -> Counter:
    """Raise RecordError if a table cannot be read, or for keys or names in it; return its licences and their rows."""
    licences: Counter = Counter()
    try:
        with pa.parquet.ParquetFile(file) as parquet:
            schema = parquet.schema_arrow.to_string(truncate_metadata=False).encode()
            _check_secrets(place, schema, "line of the schema")
            rows = (row for batch in parquet.iter_batches(256) for row in batch.to_pylist())
            for number, row in enumerate(rows, 1):
                _check_secrets(place, json.dumps(row, default=str).encode(), "row", number)
                if not pseudonyms and _names_people(row):
                    raise RecordError(NAMES.format(place))
                licences[row.get("license")] += 1
    except (OSError, pa.ArrowException) as error:
        raise RecordError(f"{file}: cannot be read: {' '.join(str(error).split())[:200]}") from None
    return licences


def _header(file: Path) -> bytes:
    """Return the names and the metadata of a safetensors file as JSON."""
    try:
        with safe_open(file, framework="numpy") as weights:
            return json.dumps([weights.metadata(), list(weights.keys())]).encode()
    except SafetensorError:
        raise RecordError(f"{file}: not a safetensors file") from None


def _check_secrets(place: str, content: bytes, unit: str = "line", first: int = 1) -> None:
    """Raise RecordError if a text holds a key or a token; `unit` and `first` count its lines in the message."""
    for text in dict.fromkeys((content, _ESCAPE.sub(lambda match: b" " if match[1] else b"", content))):
        patterns = {name: each for name, (part, each) in SECRETS.items() if part in text and re.search(each, text)}
        for number, line in enumerate(text.split(b"\n") if patterns else (), first):
            for name, pattern in patterns.items():
                if re.search(pattern, line):
                    raise RecordError(f"{place}, {unit} {number}: looks like {name}; remove it and revoke it")


def _check_annotators(place: str, suffix: str, content: bytes) -> None:
    """Raise RecordError if a text names annotators, by a key, a column, or as the judge of their own scores."""
    if not _PEOPLE.search(content):
        return
    named = False
    if suffix == ".csv":
        header = re.split(r"[,;|\t]", content.decode("utf-8-sig", "replace").partition("\n")[0])
        named = any(name.strip("\"' \r").lower() in ANNOTATORS for name in header)
    elif suffix in (".json", ".jsonl", ".yaml", ".yml"):
        read = json.loads if suffix.startswith(".json") else load_yaml
        texts = content.split(b"\n") if suffix == ".jsonl" else [content]
        try:
            named = any(_PEOPLE.search(text) and _names_people(read(text)) for text in texts)
        except (ValueError, RecursionError):
            raise RecordError(f"{place}: cannot be read as {suffix[1:].upper()}") from None
    if named or (suffix in (".md", ".txt", ".csv") and re.search(rb"\b" + RATER.encode() + rb"(?=[^\s`])", content)):
        raise RecordError(NAMES.format(place))


def _names_people(value: Any, annotators: bool = False) -> bool:
    """Return whether a JSON value, as a key or a text at any depth, names an annotator; `annotators`: every text is one."""
    if isinstance(value, str):
        return bool(value) and (annotators or _RATER.match(value) is not None)
    if isinstance(value, list):
        return any(_names_people(each, annotators) for each in value)
    return isinstance(value, dict) and any(
        _names_people(key, annotators) or _names_people(held, annotators or key.lower() in ANNOTATORS)
        for key, held in ((str(key), held) for key, held in value.items())
    )


def _check_licences(folder: Path, licences: Counter, public: bool) -> list[str]:
    """Return a warning if the licence of rows forbids redistribution.

    RecordError if there are such rows and the data set is public.
    """
    rows_of: Counter[str] = Counter()
    for licence, rows in licences.items():
        rows_of[str(licence or "").strip() or NOT_STATED] += rows
    closed = {name: rows for name, rows in rows_of.items() if name == NOT_STATED or CLOSED.search(name.lower())}
    if not closed:
        return []
    counts = ", ".join(f"{rows:,} under {name!r}" for name, rows in sorted(closed.items()))
    line = f"{folder}: rows whose licence does not allow redistribution: {counts}"
    if public:
        raise RecordError(f"{line}; remove them, state their licence, or keep the data set private")
    return [f"{line}; keep the data set private, and do not share it"]


def json_object(text: str | bytes, file: str | Path) -> dict[str, Any]:
    """Return the JSON object that a file, or a line of it, holds; RecordError if it holds something else."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise RecordError(f"{file}: cannot be read as JSON: {error}") from None
    if not isinstance(value, dict):
        raise RecordError(f"{file}: must be a mapping")
    return value
