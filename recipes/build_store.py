"""Build the knowledge store: reference books → passages with vectors in Qdrant (Section 3.1, Table 6).

    python recipes/build_store.py --books medical.pdf evaluation.md --encoder models/all-MiniLM-L6-v2 --store stores/mine
    python recipes/build_store.py --books DIR --encoder MODEL --store stores/mine --qdrant_url http://localhost:6333

Passages are stored while it runs; the same command again adds only what is missing. STORE/books.md lists the books.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from automedeval.evidence.arguments import QDRANT_URL
from automedeval.evidence.books import TOKENS, Book, find_books
from automedeval.models.arguments import EncoderArguments
from automedeval.records import option
from automedeval.records.arguments import comma_list
from automedeval.records.command_line import parse, run
from automedeval.records.journal import write_whole
from automedeval.records.run_record import record_run
from automedeval.records.text import cell


@dataclass
class BuildStoreArguments:
    """The books and the store."""

    books: list[str] = option(
        "files or folders (.pdf, .md, .txt, .jsonl); with KIND=PATH the list of books names their kind"
    )
    store: str = option("folder of the store")
    qdrant_url: str | None = option(QDRANT_URL, None)

    def __post_init__(self) -> None:
        self.books = comma_list(self.books)


def main() -> None:
    """Cut every book into passages, store the missing ones, and report what else the store contains."""
    args, encoder_args = parse((BuildStoreArguments, EncoderArguments), __doc__)
    # Every file is opened before a model is loaded, so that faults are reported at once.
    books, skipped = find_books(args.books)

    from automedeval.evidence.store import open_writer

    encoder = encoder_args.load()
    tokens = min(TOKENS, encoder.max_tokens)
    folder = Path(args.store)
    with open_writer(folder, encoder, tokens, args.qdrant_url) as store:
        record_run(folder / "run.json", args, encoder_args)
        counts, ids, rows = Counter(), set(), []
        with tqdm(total=0, unit="passage") as bar:
            for book in books:
                bar.set_description(book.file.name)
                passages = book.passages(encoder.count, tokens)
                bar.total += len(passages)
                bar.refresh()
                counts.update(store.add(passages, bar.update))
                ids |= {passage.id for passage in passages}
                titles = {passage.book for passage in passages}
                title = (
                    titles.pop() if len(titles) == 1 else f"{book.file.name}: {len(titles):,} books"
                )
                pages = "–" if book.pages is None else f"{book.pages:,}"
                rows.append(
                    (title, book.kind or "–", pages, f"{book.words:,}", f"{len(passages):,}")
                )
        write_whole(folder / "books.md", table(rows))
        print(table(rows))
        print(summary(books, skipped, counts))
        if others := Counter(book for name, book in store.books.items() if name not in ids):
            by_book = ", ".join(f"{book}: {count:,}" for book, count in sorted(others.items()))
            print(
                f"{others.total():,} passages in the store are not of these books ({by_book}); a store without them needs "
                "another folder"
            )
        print(f"{store.place} holds {len(store.books):,} passages")


def table(rows: list[tuple[str, ...]]) -> str:
    """Return the list of books as Markdown, by kind: pages, where a file has pages, words and passages (paper, Table 6)."""
    head = "| book | kind | pages | words | passages |\n| --- | --- | --: | --: | --: |\n"
    lines = [f"| {' | '.join(map(cell, row))} |\n" for row in sorted(rows, key=lambda row: row[1])]
    return f"{head}{''.join(lines)}\n–: not named, or a file without pages, whose words tell its length\n"


def summary(books: list[Book], skipped: Counter[str], counts: Counter[str]) -> str:
    """Return a report on the books and their passages, and on the skipped files by suffix."""
    lines = [
        f"{len(books):,} books → "
        f"{counts['passages']:,} passages, {counts['there']:,} there already, {counts['added']:,} added"
        + (f", {counts['repeated']:,} repeated within a book" if counts["repeated"] else "")
    ]
    lines += [
        f"{book.file}: {book.pages_without_text:,} pages without text left out"
        for book in books
        if book.pages_without_text
    ]
    if skipped:
        names = ", ".join(f"{suffix}: {count}" for suffix, count in sorted(skipped.items()))
        lines.append(f"{skipped.total():,} files of other kinds skipped ({names})")
    return "\n".join(lines)


if __name__ == "__main__":
    run(main)
