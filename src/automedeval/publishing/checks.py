"""What may go out to the Hub, and what may not: the files of a folder, and the checks that each of them has to pass.

Everything here reads; nothing is sent. A finding is an error of one line, and the whole push is off.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import yaml

from automedeval.publishing.cards import CARD, DATASET, METRIC, MODEL, PAGE, check_card
from automedeval.records import RATER, RecordError, read_text

ANNOTATORS = ("annotator", "annotators")  # keys under which ratings name people
_PEOPLE = re.compile(rb"annotator|rater:(?=\S)", re.I)
NAMES = "{}: names annotators; --annotators_are_pseudonyms true says that these are not people's names"


def check_annotators(place: str, content: bytes) -> None:
    """Raise RecordError if a file names the people who rated, by a key or a column, or as judges of their own scores."""
    suffix, named = PurePosixPath(place).suffix.lower(), False
    if not _PEOPLE.search(content):
        return
    if suffix == ".csv":
        header = re.split(r"[,;|\t]", content.decode("utf-8-sig", "replace").partition("\n")[0])
        named = any(name.strip("\"' \r").lower() in ANNOTATORS for name in header)
    elif suffix in (".json", ".jsonl", ".yaml", ".yml"):
        for text in content.split(b"\n") if suffix == ".jsonl" else [content]:
            try:
                read = json.loads if suffix.startswith(".json") else yaml.safe_load
                named = named or (_PEOPLE.search(text) is not None and names_people(read(text)))
            except (ValueError, yaml.YAMLError):
                raise RecordError(f"{place}: cannot be read as {suffix[1:].upper()}") from None
    if named or (suffix in (".md", ".txt", ".csv") and re.search(rb"\b" + RATER.encode() + rb"(?=[^\s`])", content)):
        raise RecordError(NAMES.format(place))


def names_people(value: Any) -> bool:
    """Return whether a value of JSON's kinds holds, at any depth, an annotator's name."""
    if isinstance(value, list):
        return any(map(names_people, value))
    if not isinstance(value, dict):
        return False
    for key, held in value.items():
        each = held if isinstance(held, list) else [held]
        if str(key).lower() in ANNOTATORS and any(isinstance(name, str | dict) and name for name in each):
            return True
        if key == "judge" and str(held).startswith(RATER):
            return True
    return any(map(names_people, value.values()))


NOT_STATED = "not stated"
# Licences under which a text may not be passed on, or not with a prompt put around it.
CLOSED = re.compile(
    r"^none$|^n/?a$|^no\b|unknown|proprietary|all.rights.reserved|no.?redistribution|non.?redistributable|confidential"
    r"|\b(?:not|don.?t) (?:for|to be|distribute|redistribute)|©"
    r"|no.?derivatives|\bnd\b"
)
# The shapes of keys. A message about one names the file and the line, never what stands there.
SECRETS = {
    "a Hub token": rb"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{20,}",
    "an API key": rb"(?<![A-Za-z0-9_-])sk-(?=[\w-]*[0-9])[\w-]{20,}",
    "an access key": rb"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}",
    "a GitHub token": rb"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,})",
    "a chat token": rb"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{10,}",
    "a Google key": rb"(?<![A-Za-z0-9])AIza[\w-]{35}",
    "a bearer token": rb"(?i:authorization[\"']?\s*[:=]\s*[\"']?bearer\s+[\w.~+/=-]{8,})",
    "a private key": rb"-----BEGIN [A-Z ]*PRIVATE KEY-----",
}
_ANY_SECRET = re.compile(b"|".join(SECRETS.values()))
PLAIN = {".json", ".jsonl", ".md", ".txt", ".csv", ".yaml", ".yml", ".cff", ""}
IMAGES = {".png", ".jpg", ".jpeg", ".svg", ".gif", ".webp", ".pdf"}
# What a repository may hold. A kind of file that is not named here does not go out.
SUFFIXES = {
    MODEL: PLAIN | IMAGES | {".safetensors", ".jinja", ".model"},
    DATASET: PLAIN | IMAGES | {".parquet"},
    METRIC: PLAIN | IMAGES | {".py"},
    PAGE: PLAIN | IMAGES | {".parquet", ".py", ".jinja", ".css", ".js", ".sh"},
}
WEIGHTS = {
    ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".h5", ".msgpack", ".onnx", ".gguf", ".npz", ".npy", ".joblib",
}  # fmt: skip


@dataclass(frozen=True)
class Parcel:
    """What goes out together, in one commit.

    `files` maps a path in the repository to the file, or to its content. `source` is where they come from, for messages.
    `left_out` names what stays behind, `warnings` says what the owner of a private repository should know.
    """

    kind: str
    files: dict[str, Path | bytes]
    source: str
    left_out: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """Return the files' sizes in bytes."""
        return {
            path: len(file) if isinstance(file, bytes) else file.stat().st_size for path, file in self.files.items()
        }


def pack(
    folder: str | Path,
    kind: str,
    card: str | None = None,
    public: bool = False,
    pseudonyms: bool = False,
    extra: Mapping[str, Path] | None = None,
) -> Parcel:
    """Put together what a folder sends to the Hub, once every check has passed.

    Args:
        folder: a checkpoint, a data set or a metric.
        kind: "model", "dataset" or "metric".
        card: the text that goes out as README.md in place of the folder's own.
        public: whether everybody will be able to read it.
        pseudonyms: whether annotators' names, where files hold them, are pseudonyms.
        extra: files from elsewhere, by the path that they go out under.

    Raises:
        RecordError: something does not go out; the line names the file.
    """
    folder = Path(folder)
    files, left_out = gather(folder)
    files |= extra or {}
    sent: dict[str, Path | bytes] = dict(files)
    if card is not None:
        sent[CARD] = card.encode()
    elif CARD not in files:
        raise RecordError(f"{folder}: no {CARD}; nothing goes out without its card")
    for path in files:
        check_kind(folder, path, kind)
    check_whole(folder, kind, files)
    text = card if card is not None else read_text(files[CARD])
    check_card(text, kind, files, str(folder / CARD) if card is None else "the card")
    warnings = []
    for path, file in sent.items():
        place = str(folder / path)
        if isinstance(file, Path) and path.endswith(".parquet"):
            _check_rows(place, file, pseudonyms)
        else:
            content = file if isinstance(file, bytes) else _head(place, file)
            if not PurePosixPath(path).suffix and b"\0" in content:
                raise RecordError(f"{place}: a file without a suffix has to be a text, and this is none")
            check_secrets(place, content)
            if not pseudonyms:
                check_annotators(place, content)
    if kind == DATASET:
        warnings += check_licences(folder, files, public)
    check_figures(folder, files)
    return Parcel(kind, dict(sorted(sent.items())), str(folder), tuple(left_out), tuple(warnings))


def pack_page(
    files: Mapping[str, Path | bytes], source: str, told: Collection[str], pseudonyms: bool = False
) -> Parcel:
    """Put together a study's page, once every check has passed.

    Args:
        files: what goes out, its card among it.
        source: the study's file, which names the annotators.
        told: which of the files hold the study's own texts.
        pseudonyms: whether annotators' names, in the study and in its files, are pseudonyms.

    Raises:
        RecordError: something does not go out; the line names the file.
    """
    if not pseudonyms:
        raise RecordError(NAMES.format(source))
    check_secrets(source, read_text(Path(source)).encode())
    check_card(files[CARD].decode(), PAGE, files)
    for path, file in files.items():
        place = str(file) if isinstance(file, Path) else path
        if PurePosixPath(path).suffix.lower() not in SUFFIXES[PAGE]:
            raise RecordError(f"{place}: such a file is no part of a page ({_listed(SUFFIXES[PAGE])})")
        if isinstance(file, Path) and path in told and path.endswith(".parquet"):
            _check_rows(place, file, pseudonyms)
        else:
            check_secrets(place, file if isinstance(file, bytes) else file.read_bytes())
    return Parcel(PAGE, dict(sorted(files.items())), source)


def write_parcel(parcel: Parcel, folder: Path) -> None:
    """Write a parcel's files into a folder.

    Raises:
        RecordError: the folder holds something that is no part of the parcel: it might be another's.
    """
    if folder.exists():
        there = gather(folder)[0] if any(folder.iterdir()) else {}
        if others := sorted(there.keys() - parcel.files.keys()):
            raise RecordError(
                f"{folder}: holds {others[0]}, which is no part of what is made here; take another folder"
            )
    for path, file in parcel.files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file if isinstance(file, bytes) else file.read_bytes())


def gather(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """Return the files of a folder by their path in it, and what is left out: hidden things, checkpoints to go on from.

    Raises:
        RecordError: there is no such folder, nothing is in it, or a link leaves it.
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
                raise RecordError(f"{path}: a link that leads elsewhere; put what it names in its place")
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


def check_kind(folder: Path, path: str, kind: str) -> None:
    """Raise RecordError if such a file does not belong into such a repository, weights that are no safetensors above all."""
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in WEIGHTS:
        raise RecordError(f"{folder / path}: weights go out as .safetensors alone, a {suffix} file can run code")
    if suffix not in SUFFIXES[kind]:
        raise RecordError(f"{folder / path}: a {suffix} file is no part of a {kind} ({_listed(SUFFIXES[kind])})")


def check_whole(folder: Path, kind: str, files: Mapping[str, Path]) -> None:
    """Raise RecordError if what a reader needs is not all there."""
    if kind == MODEL:
        if "config.json" not in files or not any(re.fullmatch(r"[^/]+\.safetensors", path) for path in files):
            raise RecordError(f"{folder}: no config.json with .safetensors beside it: not a checkpoint")
        for path in files:
            if path.endswith(".safetensors.index.json"):
                for shard in sorted(set(_mapping(_mapping(files[path]).get("weight_map"), files[path]).values())):
                    if str(PurePosixPath(path).with_name(shard)) not in files:
                        raise RecordError(f"{files[path]}: names {shard}, which is not there")
    if kind == DATASET and not any(path.endswith(".parquet") for path in files):
        raise RecordError(f"{folder}: no .parquet file: not a data set")


def _head(place: str, file: Path) -> bytes:
    """Return what a file says in words: all of it, of weights their header.

    Raises:
        RecordError: the file is called safetensors and is something else.
    """
    if file.suffix != ".safetensors":
        return file.read_bytes()
    with open(file, "rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = stream.read(length) if length <= file.stat().st_size - 8 else b""
    try:
        json.loads(header)
    except ValueError:
        raise RecordError(f"{place}: not a safetensors file, whatever it is called") from None
    return header


def check_figures(folder: Path, files: Mapping[str, Path]) -> None:
    """Raise RecordError if a figure goes out without the numbers that it was drawn from.

    They stand in a .json, .jsonl or .csv file of the same stem beside it, in the file that figures.json names for it, or in
    statistics.json under the figure's stem.
    """
    named, statistics = (_mapping(files[name]) if name in files else {} for name in ("figures.json", "statistics.json"))
    for path in map(PurePosixPath, files):
        if path.suffix.lower() not in IMAGES:
            continue
        beside = any(str(path.with_suffix(suffix)) in files for suffix in (".json", ".jsonl", ".csv"))
        if not beside and named.get(str(path)) not in files and not statistics.get(path.stem):
            raise RecordError(
                f"{folder / path}: a figure without its source; put {path.stem}.json or .csv beside it, "
                "or name its file in figures.json"
            )


def check_secrets(place: str, content: bytes, unit: str = "line", first: int = 1) -> None:
    """Raise RecordError if a key or a token stands in a text; what it is stays unsaid.

    Args:
        place: the file, for the message.
        content: its bytes, or those of one row.
        unit, first: what its lines are called, and the number of the first.
    """
    if not _ANY_SECRET.search(content):  # one pass over what is nearly always clean
        return
    for number, line in enumerate(content.split(b"\n"), first):
        for name, pattern in SECRETS.items():
            if re.search(pattern, line):
                raise RecordError(f"{place}, {unit} {number}: looks like {name}; take it out, and have it revoked")


def _check_rows(place: str, file: Path, pseudonyms: bool) -> None:
    """Check the rows of a parquet file for keys and for annotators' names."""
    watched = not pseudonyms and any(word in str(_schema(file)).lower() for word in ("annotator", "judge"))
    for number, row in enumerate(_rows(file), 1):
        check_secrets(place, json.dumps(row, default=str).encode(), "row", number)
        if watched and names_people(row):
            raise RecordError(NAMES.format(place))


def _rows(file: Path, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    with _unreadable(file), pa.parquet.ParquetFile(file) as parquet:
        for batch in parquet.iter_batches(256, columns=columns):
            yield from batch.to_pylist()


def _schema(file: Path) -> pa.Schema:
    with _unreadable(file):
        return pa.parquet.read_schema(file)


@contextmanager
def _unreadable(file: Path) -> Iterator[None]:
    """Turn what pyarrow raises for a file that is no parquet file, or a broken one, into one line."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise RecordError(f"{file}: cannot be read: {' '.join(str(error).split())[:200]}") from None


def check_licences(folder: Path, files: Mapping[str, Path], public: bool) -> list[str]:
    """Return what is to be said of rows that may not be passed on.

    Raises:
        RecordError: there are such rows, and the data set is to be public.
    """
    found: Counter[str] = Counter()
    for path, file in files.items():
        if path.endswith(".parquet"):
            column = "license" if "license" in _schema(file).names else None
            for row in _rows(file, [column] if column else None):
                found[str((row[column] if column else None) or "").strip() or NOT_STATED] += 1
        elif path.lower().endswith(".jsonl"):
            # Rows beside the data set's own state a licence or are no rows of texts.
            for line in file.read_bytes().split(b"\n"):
                if b'"license"' in line:
                    try:
                        row = json.loads(line)
                    except ValueError:
                        raise RecordError(f"{file}: cannot be read as JSON") from None
                    found[str(_mapping(row, file).get("license") or "").strip() or NOT_STATED] += 1
    closed = {name: rows for name, rows in found.items() if name == NOT_STATED or CLOSED.search(name.lower())}
    if not closed:
        return []
    told = ", ".join(f"{rows:,} under {name!r}" for name, rows in sorted(closed.items()))
    line = f"{folder}: rows whose licence does not let them be passed on: {told}"
    if public:
        raise RecordError(f"{line}; leave them out, state their licence, or keep the data set private")
    return [f"{line}; keep the data set private, and do not share it"]


def _read_json(file: Path) -> Any:
    try:
        return json.loads(read_text(file))
    except ValueError as error:
        raise RecordError(f"{file}: {error}") from None


def _mapping(held: Any, file: Path | None = None) -> dict:
    """Return a file's content, or what stood in one, as the mapping that it has to be."""
    found = _read_json(held) if isinstance(held, Path) else held
    if not isinstance(found, dict):
        raise RecordError(f"{file or held}: must be a mapping")
    return found


def _listed(suffixes: set[str]) -> str:
    return ", ".join(sorted(suffix for suffix in suffixes if suffix))
