"""Reference books (paper, Table 6) to passages: PDF, Markdown, plain text and JSON Lines, cut at the ends of sentences."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from automedeval.evidence.sentences import spans
from automedeval.records import (
    JsonObject,
    RecordError,
    digest,
    foreign_errors_at,
    named_file,
    read_records,
    read_text,
    whole,
)
from automedeval.records.types import Record

TOKENS = 200  # of a passage at most
OVERLAP = 40  # of what a passage repeats at most: whole sentences, at most two
Count = Callable[[Sequence[str]], list[int]]  # texts → their numbers of tokens
SUFFIXES = (".pdf", ".md", ".markdown", ".txt", ".jsonl")
_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*$")
_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+|\s*\|")


@dataclass(frozen=True)
class Passage:
    """A piece of a book. `id` is the digest of all other fields except the score."""

    id: str
    book: str
    section: str
    page: int | None
    text: str
    score: float | None = None

    @classmethod
    def of(cls, book: str, section: str, page: int | None, text: str) -> "Passage":
        return cls(digest([book, section, page, text]), book, section, page, text)

    def to_dict(self) -> JsonObject:
        """Return the passage as verdicts record it."""
        # Beyond four digits a score depends on which other questions were embedded in the same batch.
        record = vars(self) | {"score": None if self.score is None else round(self.score, 4)}
        text = record.pop("text")
        return record | {"text": text}


@dataclass(frozen=True)
class Line(Record):
    """A line of a JSON Lines book; `module`, if present, is the heading above the section."""

    text: str
    book: str | None = None
    section: str | None = None
    module: str | None = None
    page: int | None = None


class Piece(NamedTuple):
    """A paragraph, a list entry or a part of one, with its place in the book; `size` is in tokens, 0 until it is counted."""

    section: str
    page: int | None
    text: str
    book: str | None = None
    size: int = 0


@dataclass
class Book:
    """One file of `SUFFIXES`; faults are found when it is opened, before anything is stored.

    `kind` is what it is about, in the user's words (paper, Table 6: medical or evaluation knowledge). `passages` sets `words`,
    `pages`, None where the file has none, and `pages_without_text`, those of a PDF that are scans or pictures.
    """

    file: Path
    kind: str = ""
    words: int = field(default=0, init=False)
    pages: int | None = field(default=None, init=False)
    pages_without_text: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if not self.file.is_file():
            raise RecordError(f"{self.file}: no such file")
        if self.suffix not in SUFFIXES:
            raise RecordError(f"{self.file}: a book is one of {', '.join(SUFFIXES)}")
        if self.suffix == ".pdf":
            _open_pdf(self.file)

    @property
    def suffix(self) -> str:
        return self.file.suffix.lower()

    def blocks(self) -> list[Piece]:
        """Return the paragraphs in order; raise RecordError if the file cannot be read, or contains no text."""
        if self.suffix == ".jsonl":
            blocks = list(_lines_blocks(self.file))
        elif self.suffix == ".pdf":
            blocks = self._pdf_blocks()
        elif self.suffix == ".txt":
            blocks = [Piece("", None, text) for text in _paragraphs(read_text(self.file))]
        else:
            blocks = list(_markdown_blocks(read_text(self.file)))
        if not blocks:
            scans = f": {self.pages_without_text} pages without text, perhaps scans"
            pages = scans if self.suffix == ".pdf" else ""
            raise RecordError(f"{self.file}: the book holds no text{pages}")
        return blocks

    def _pdf_blocks(self) -> list[Piece]:
        pages = []
        for number, page in enumerate(_open_pdf(self.file).pages, 1):
            with foreign_errors_at(f"{self.file}: page {number}"):
                pages.append(whole(page.extract_text()).strip().splitlines())
        self.pages = len(pages)
        self.pages_without_text = pages.count([])
        _remove_running_heads(pages)
        blocks = []
        for number, lines in enumerate(pages, 1):
            # Words that are divided at the end of a line are joined.
            text = re.sub(r"(?<=[a-z])-\n(?=[a-z])", "", "\n".join(lines))
            blocks += [Piece("", number, paragraph) for paragraph in _paragraphs(text)]
        return blocks

    def passages(
        self,
        count: Count,
        tokens: int = TOKENS,
        overlap: int = OVERLAP,
    ) -> list[Passage]:
        """Cut the book into passages, in order; `count` returns texts' numbers of tokens, as `Encoder.count` does.

        A passage stays within its section, and has the number of its first page. A sentence that is too long is cut.
        """
        blocks = self.blocks()
        self.words = sum(len(block.text.split()) for block in blocks)
        parts = []
        for block in blocks:
            text = block.text
            parts += [block._replace(text=text[start:end]) for start, end, _ in spans(text)]
        pieces: list[Piece] = []
        for sentence in _counted(parts, count):
            pieces += [sentence] if sentence.size <= tokens else _cut(sentence, count, tokens)
        passages = []
        for (book, section), run in groupby(pieces, attrgetter("book", "section")):
            for passage in _pack(run, tokens, overlap):
                place = book or self.file.stem, section, passage[0].page
                passages.append(Passage.of(*place, _text(passage)))
        return passages


def find_books(paths: Sequence[str]) -> tuple[list[Book], Counter[str]]:
    """Open files, and those inside folders (recursively) in the order of their names, each once; a path may be KIND=PATH.

    Returns the books, and the number of skipped files inside folders, by suffix.
    """
    kinds: dict[Path, str] = {}
    skipped: Counter[str] = Counter()
    for kind, place in map(named_file, paths):
        path = Path(place)
        if not path.is_dir():
            kinds.setdefault(path, kind)
        for file in filter(Path.is_file, sorted(path.rglob("[!.]*"))):
            if file.suffix.lower() in SUFFIXES:
                kinds.setdefault(file, kind)
            else:
                skipped[file.suffix.lower() or file.name] += 1
    if not kinds:
        raise RecordError(f"{', '.join(paths)}: no book; a book is one of {', '.join(SUFFIXES)}")
    return [Book(file, kind) for file, kind in kinds.items()], skipped


def _open_pdf(file: Path):
    import pypdf  # a third of a second, and most stores have no PDF

    with foreign_errors_at(f"{file}: not a readable PDF"):
        reader = pypdf.PdfReader(file)
        # Many books are encrypted with an empty password, which only asks readers not to print.
        if reader.is_encrypted and not reader.decrypt(""):
            raise RecordError(
                f"{file}: the PDF is encrypted with a password; store it without encryption first"
            )
        if not len(reader.pages):
            raise RecordError(f"{file}: not a readable PDF: it has no page")
    return reader


def _remove_running_heads(pages: Sequence[list[str]]) -> None:
    """Remove page numbers, and first and last lines that are the same, except for digits, on more than half of the pages.

    No page begins or ends with a line without text.
    """

    def shape(line: str) -> str:
        return re.sub(r"\d+", "0", line.strip())

    edges: Counter[str] = Counter()
    for lines in pages:
        edges.update({shape(line) for line in (*lines[:1], *lines[-1:])})
    written = sum(map(bool, pages))  # pages with text
    common = {line for line, times in edges.items() if times > max(2, written / 2)} | {"0"}
    for lines in pages:
        for end in (0, -1):
            if lines and shape(lines[end]) in common:
                lines.pop(end)


def _paragraphs(text: str) -> Iterator[str]:
    """Yield each paragraph, list entry and table row as one line."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        if lines and (not line.strip() or _ITEM.match(line)):
            yield " ".join(" ".join(lines).split())
            lines = []
        if line.strip():
            lines.append(line)


def _lines_blocks(file: Path) -> Iterator[Piece]:
    """Yield the paragraphs of a JSON Lines book."""
    for line in read_records(file, Line):
        headings = dict.fromkeys(filter(None, (line.module, line.section)))
        for text in _paragraphs(line.text):
            yield Piece(" > ".join(headings), line.page, text, line.book or None)


def _markdown_blocks(text: str) -> Iterator[Piece]:
    """Yield the paragraphs with their headings; if there is only one heading of the first level, it is the book's title."""
    path: dict[int, str] = {}  # level → heading
    parts: list[tuple[dict[int, str], list[str]]] = [({}, [])]  # headings above, lines
    fence = None
    for line in text.splitlines():
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~") and fence in (None, mark):
            fence = None if fence else mark
        elif heading := None if fence else _HEADING.match(line):
            level = len(heading[1])
            path = {above: name for above, name in path.items() if above < level}
            path[level] = heading[2]
            parts.append((path, []))
        else:
            parts[-1][1].append(line)
    titles = [path[1] for path, _ in parts if path.keys() == {1}]
    title = titles[0] if len(titles) == 1 else None
    for path, lines in parts:
        if title is not None:
            path.pop(1, None)
        for paragraph in _paragraphs("\n".join(lines)):
            yield Piece(" > ".join(path.values()), None, paragraph, title)


def _counted(pieces: Sequence[Piece], count: Count) -> list[Piece]:
    sizes = count([piece.text for piece in pieces])
    return [piece._replace(size=size) for piece, size in zip(pieces, sizes)]


def _cut(sentence: Piece, count: Count, tokens: int) -> Iterator[Piece]:
    """Cut a sentence between words, and a word that is too long between characters."""
    words = [sentence._replace(text=word) for word in sentence.text.split()]
    parts = []
    for word in _counted(words, count):
        # One character may be several tokens, so a part of one character can still be too long.
        step = len(word.text) if word.size <= tokens else max(1, tokens // 4)
        places = range(0, len(word.text), step)
        parts += [word._replace(text=word.text[at : at + step]) for at in places]
    for run in _pack(_counted(parts, count), tokens, 0):
        yield sentence._replace(text=_text(run), size=_size(run))


def _pack(run: Iterable[Piece], tokens: int, overlap: int) -> Iterator[list[Piece]]:
    """Put sentences together to passages, which begin with the end of the passage before."""
    passage: list[Piece] = []
    for sentence in run:
        if passage and _size(passage) + sentence.size > tokens:
            yield passage
            room = min(overlap, tokens - sentence.size)
            passage = passage[1:][-2:] if overlap else []
            while passage and _size(passage) > room:
                passage = passage[1:]
        passage.append(sentence)
    if passage:
        yield passage


def _size(pieces: Sequence[Piece]) -> int:
    return sum(piece.size for piece in pieces)


def _text(pieces: Sequence[Piece]) -> str:
    return " ".join(piece.text for piece in pieces)
