"""Measure the knowledge store: how fast it is built, how fast it answers, and what it finds.

    AUTOMEDEVAL_DATA=../data python benchmarks/knowledge.py
    AUTOMEDEVAL_DATA=../data python benchmarks/knowledge.py --passages 512 --sizes 10000 --others 500 --parts index retrieval

AUTOMEDEVAL_DATA names the folder with openstax/ and medquad/. Three parts:

index       passages/s of building a store in a folder, cutting and storing included, against one
            `SentenceTransformer.encode` of the same passages at its defaults; target 1.5 times as fast.
latency     milliseconds of one search in the store at several sizes, without the encoding of the query, which stands
            beside it. The vectors are drawn, which changes nothing: every passage is compared.
retrieval   MedQuAD questions against a store of their answers, answers to other questions, and passages of OpenStax. A hit
            is any passage of an answer to the very question. recall@5 and the mean reciprocal rank (of ranks up to 10), with
            95 % intervals over questions. `--tuning` takes other questions, to choose settings on.

The exit status is 0 whether a target is met or not.
"""

import argparse
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from rows import Results, add_json
from sentence_transformers import SentenceTransformer

from automedeval.knowledge.books import Book, Chunking, Passage
from automedeval.knowledge.store import KnowledgeBase, StoreWriter
from automedeval.models.embeddings import Encoder
from automedeval.records import read_lines
from automedeval.reports.text import format_table
from automedeval.stats.bootstrap import bootstrap, ratio

ROOT = Path(__file__).parents[1]
PARTS = ("index", "latency", "retrieval")
DEPTH = 10  # passages that a search of the retrieval part returns
CHUNKING = Chunking()


class Drawn:
    """Stands in for an encoder: unit vectors by chance."""

    name, fingerprint, dimensions = "drawn", "0" * 12, 384

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def encode(self, texts: list[str], on_batch: object = None) -> np.ndarray:
        vectors = self.rng.normal(size=(len(texts), self.dimensions)).astype(np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def seconds_of(work: object) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def slice_of(passages: list[Passage], count: int, seed: int = 0) -> list[Passage]:
    """Return so many passages by chance, in their order."""
    chosen = sorted(random.Random(seed).sample(range(len(passages)), min(count, len(passages))))
    return [passages[index] for index in chosen]


def index(book: Book, encoder: Encoder, peer_model: str, count: int, repeats: int, results: Results) -> str:
    whole = book.passages(encoder.count, CHUNKING)
    cutting = seconds_of(lambda: book.passages(encoder.count, CHUNKING)) / len(whole)
    passages = slice_of(whole, count)
    texts = [f"{passage.section}\n{passage.text}" for passage in passages]
    peer = SentenceTransformer(peer_model, device=encoder.device)
    peer.encode(texts[:32])
    encoder.encode(texts[:32])
    ours, theirs = [], []
    for _ in range(repeats):  # in turns: what else the machine does meets both
        with tempfile.TemporaryDirectory() as folder, StoreWriter(folder, encoder, None, CHUNKING) as store:
            ours.append(seconds_of(lambda: store.add(passages)) + cutting * len(passages))
        theirs.append(seconds_of(lambda: peer.encode(texts)))
    own, other = (len(passages) / statistics.median(times) for times in (ours, theirs))
    found = results.add("indexing", own, "passages/s", "SentenceTransformer.encode alone", own / other, 1.5)
    results.note(f"Indexing: {len(passages):,} passages, medians of {repeats} runs; encoder in {encoder.dtype}.")
    row = {
        "passages": len(passages),
        "store, passages/s": f"{own:.1f}",
        "encode alone, passages/s": f"{other:.1f}",
        "ratio": f"{own / other:.2f}",
        "target": found["target"],
        "met": "yes" if found["met"] else "no",
    }
    return format_table([row]) + f"\nencoder in {encoder.dtype} on {encoder.device}"


def store_of(passages: list[Passage], encoder: Encoder | Drawn) -> KnowledgeBase:
    with tempfile.TemporaryDirectory() as folder:
        with StoreWriter(folder, encoder, None, CHUNKING) as store:
            store.add(passages)
        return KnowledgeBase(folder, lambda _: encoder)


def latency(book: Book, encoder: Encoder, questions: list[str], sizes: list[int], results: Results) -> str:
    real = book.passages(lambda texts: [round(1.35 * len(text.split())) for text in texts], CHUNKING)
    rows = []
    encoding = [seconds_of(lambda: encoder.encode([question])) for question in questions]  # noqa: B023
    results.add("encoding of a question", 1000 * statistics.median(encoding), "ms")
    for size in sizes:
        copies = [
            Passage.of(f"{one.book} {number // len(real)}", one.section, one.page, one.text)
            for number, one in ((number, real[number % len(real)]) for number in range(size))
        ]
        base = store_of(copies, Drawn())
        times = [seconds_of(lambda: base.search([question])) for question in questions]  # noqa: B023
        results.add(f"search, {size:,} passages", 1000 * statistics.median(times), "ms")
        row = {"passages": f"{size:,}", "search, ms": f"{1000 * statistics.median(times):.1f}"}
        rows.append(row | {"encoding, ms": f"{1000 * statistics.median(encoding):.1f}"})
    return format_table(rows) + f"\nmedians of {len(questions)} questions, one after the other"


def read_medquad(file: Path) -> tuple[list[str], dict[str, list[str]]]:
    """Return the questions in a seeded order, and the answers to each."""
    answers = defaultdict(list)
    for _, record in read_lines(file):
        answers[record["question"].strip()].append(record["answer"])
    questions = sorted(answers)
    random.Random(0).shuffle(questions)
    return questions, answers


def answer_passages(
    questions: list[str], answers: dict[str, list[str]], encoder: Encoder, folder: Path
) -> dict[str, list[Passage]]:
    """Cut the answers to questions into passages; return them by question."""
    found = {}
    for question in questions:
        file = folder / "answer.txt"
        file.write_text("\n\n".join(answers[question]), encoding="utf-8")
        found[question] = Book(file).passages(encoder.count, CHUNKING)
    return found


def retrieval(book: Book, encoder: Encoder, medquad: Path, args: argparse.Namespace, results: Results) -> str:
    questions, answers = read_medquad(medquad)
    first = args.questions if args.tuning else 0  # the first so many are for the figure alone
    asked = questions[first : first + args.questions]
    others = questions[2 * args.questions :][: args.others]
    with tempfile.TemporaryDirectory() as folder:
        cut = answer_passages([*asked, *others], answers, encoder, Path(folder))
    passages = [passage for passages in cut.values() for passage in passages]
    base = store_of([*passages, *slice_of(book.passages(encoder.count, CHUNKING), args.openstax)], encoder)
    ranks = []
    for question, found in zip(asked, base.search(asked, DEPTH)):
        right = {passage.id for passage in cut[question]}
        ranks.append(next((rank for rank, one in enumerate(found, 1) if one.id in right), None))
    ones = np.ones(len(asked))
    hits = np.array([rank is not None and rank <= 5 for rank in ranks], dtype=float)
    reciprocal = np.array([1 / rank if rank else 0.0 for rank in ranks])
    estimates = bootstrap([ratio(hits, ones), ratio(reciprocal, ones, len(asked))], len(asked))
    shown = dict(zip(("recall@5", "MRR@10"), estimates))
    for name, one in shown.items():
        results.add(f"{name}, interval {one.low:.3f} to {one.high:.3f}", one.value, "")
    row = {name: f"{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]" for name, one in shown.items()}
    what = "other questions, for tuning" if args.tuning else "questions that nothing was chosen on"
    size = f"{len(asked)} {what}; {base.size:,} passages in the store"
    results.note(f"Retrieval: {size}.")
    return f"{format_table([row])}\n{size}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default=str(ROOT / "models" / "all-MiniLM-L6-v2"), help="(default: %(default)s)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure (default: all)")
    parser.add_argument("--passages", type=int, default=2000, help="index: passages of OpenStax (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="index: how often each is timed (default: %(default)s)")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[10_000, 50_000], help="latency: (default: %(default)s)"
    )
    parser.add_argument("--queries", type=int, default=20, help="latency: searches of each (default: %(default)s)")
    parser.add_argument("--questions", type=int, default=500, help="retrieval: (default: %(default)s)")
    parser.add_argument("--others", type=int, default=1000, help="retrieval: other answers (default: %(default)s)")
    parser.add_argument("--openstax", type=int, default=1000, help="retrieval: its passages (default: %(default)s)")
    parser.add_argument("--tuning", action="store_true", help="retrieval: other questions, to choose settings on")
    add_json(parser)
    args = parser.parse_args()
    results = Results("Knowledge store", args.json)
    data = os.environ.get("AUTOMEDEVAL_DATA")
    if not data:
        sys.exit("AUTOMEDEVAL_DATA does not name the folder that holds openstax/ and medquad/")
    medquad = Path(data, "medquad", "medquad.jsonl")
    (file,) = Path(data, "openstax").glob("*.jsonl")
    book, encoder = Book(file), Encoder(args.encoder)
    work = {
        "index": lambda: index(book, encoder, args.encoder, args.passages, args.repeats, results),
        "latency": lambda: latency(book, encoder, read_medquad(medquad)[0][: args.queries], args.sizes, results),
        "retrieval": lambda: retrieval(book, encoder, medquad, args, results),
    }
    for part in args.parts:
        print(f"{part}\n{work[part]()}\n", flush=True)
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}")
    results.write()


if __name__ == "__main__":
    main()
