"""Build the knowledge store: reference books → passages → a Qdrant collection (Section 3.1, Table 6).

    python recipes/build_store.py --books medical.pdf evaluation.md --encoder models/all-MiniLM-L6-v2 --store stores/mine
    python recipes/build_store.py --books BOOKS_FOLDER --encoder models/all-MiniLM-L6-v2 --qdrant_url http://localhost:6333

Passages are stored while it runs; the same command again adds only what is missing. A server's key is read from QDRANT_API_KEY.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from automedeval.cli import comma_list, parse, record_run, run
from automedeval.distillation.books import Book, Chunking, find_books
from automedeval.records import RecordError


@dataclass
class BuildStoreArguments:
    """The books and the store."""

    books: list[str] = field(metadata={"help": "files or folders (.pdf, .md, .txt, .jsonl)"})
    encoder: str = field(metadata={"help": "checkpoint that embeds passages: folder or Hub id"})
    encoder_pooling: str | None = field(
        default=None,
        metadata={
            "help": "how a checkpoint without modules.json makes one vector of a text's tokens: cls, mean, or "
            "pooler (supervised SimCSE); not for a checkpoint of sentence-transformers, which says it itself",
            "choices": ["cls", "mean", "pooler"],
        },
    )
    store: str | None = field(default=None, metadata={"help": "folder of the embedded store"})
    qdrant_url: str | None = field(default=None, metadata={"help": "a Qdrant server, in place of --store"})
    collection: str = field(default="knowledge", metadata={"help": "name of the collection"})
    kinds: list[str] = field(
        default_factory=list,
        metadata={
            "help": "FILE_NAME=medical or FILE_NAME=evaluation (default: evaluation if the name contains evaluat or "
            "guideline, else medical)"
        },
    )
    passage_tokens: int = field(default=200, metadata={"help": "longest passage, in tokens of the encoder"})
    overlap_tokens: int = field(default=40, metadata={"help": "most tokens repeated from the passage before"})
    prune: bool = field(default=False, metadata={"help": "remove stored passages that are not in these books"})
    device: str = field(default="auto", metadata={"help": "cpu, cuda, cuda:N, mps, or auto: a GPU if there is one"})
    dtype: str = field(
        default="auto",
        metadata={
            "help": "dtype of the encoder; auto: bfloat16 where the device supports it",
            "choices": ["auto", "bfloat16", "float16", "float32"],
        },
    )

    def __post_init__(self) -> None:
        self.books, self.kinds = comma_list(self.books), comma_list(self.kinds)
        wrong = [pair for pair in self.kinds if "=" not in pair]
        if wrong:
            raise RecordError(f"--kinds takes FILE_NAME=medical or FILE_NAME=evaluation, not {wrong[0]!r}")
        if (self.store is None) == (self.qdrant_url is None):
            raise RecordError("give --store FOLDER or --qdrant_url URL, one of them")


def main() -> None:
    """Cut every book into passages, store the missing ones, and report what else the store contains."""
    (args,) = parse((BuildStoreArguments,), __doc__)
    chunking = Chunking(args.passage_tokens, args.overlap_tokens)
    # Every file is opened before a model is loaded, so that faults are reported at once.
    books, skipped = find_books(args.books, dict(pair.rsplit("=", 1) for pair in args.kinds))

    from automedeval.distillation.store import KnowledgeBase
    from automedeval.models.embeddings import Encoder  # slow to import

    encoder = Encoder(args.encoder, args.device, args.dtype, pooling=args.encoder_pooling)
    if chunking.tokens > encoder.max_tokens:
        raise RecordError(
            f"--passage_tokens {chunking.tokens}: {encoder.name} reads no more than {encoder.max_tokens} tokens"
        )
    with KnowledgeBase(args.store, encoder, args.qdrant_url, args.collection, chunking) as knowledge:
        if args.store:
            record_run(Path(args.store) / f"{args.collection}.run.json", args)
        counts, ids = Counter(), set()
        with tqdm(total=0, unit="passage") as bar:
            for book in books:
                bar.set_description(book.file.name)
                passages = book.passages(encoder.count, chunking)
                bar.total += len(passages)
                bar.refresh()
                counts.update(knowledge.add(passages, bar.update))
                ids |= {passage.id for passage in passages}
        print(summary(books, skipped, counts))
        others = knowledge.others(ids)
        if others and args.prune:
            knowledge.remove(list(others))
        if others:
            by_book = ", ".join(f"{book}: {count:,}" for book, count in sorted(Counter(others.values()).items()))
            done = "removed" if args.prune else "kept; --prune removes them"
            print(f"{len(others):,} passages in the store are not of these books ({by_book}): {done}")
        print(f"{knowledge.place}: {args.collection} holds {len(knowledge):,} passages")
        if knowledge.advice:
            print(knowledge.advice)


def summary(books: list[Book], skipped: Counter[str], counts: Counter[str]) -> str:
    """Return a report on the books and their passages, and on the skipped files by suffix."""
    kinds = Counter(book.kind for book in books)
    lines = [
        f"{len(books):,} books ({', '.join(f'{kind}: {count}' for kind, count in sorted(kinds.items()))}) → "
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
