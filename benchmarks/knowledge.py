"""Measure the knowledge store: how fast it is built, how fast it answers, and what it finds.

    AUTOMEDEVAL_DATA=../data python benchmarks/knowledge.py
    AUTOMEDEVAL_DATA=../data python benchmarks/knowledge.py --passages 512 --sizes 10000 --parts index latency

AUTOMEDEVAL_DATA names the folder with openstax/ and medquad/. Three parts:

index       passages/s of building an embedded store in a folder, cutting and storing included, against one
            `SentenceTransformer.encode` of the same passages at its defaults; target 1.5 times as fast.
latency     milliseconds of one search in the embedded store at several sizes, without the encoding of the query, which
            stands beside it. The vectors are drawn, which changes nothing: every passage is compared.
retrieval   MedQuAD questions against a store of their answers, answers to other questions, and passages of OpenStax. A hit
            is any passage of an answer to the very question. recall@5 and the mean reciprocal rank (of ranks up to 10), with
            95 % intervals over questions, for meaning and words. No setting was chosen on these questions.

The exit status is 0 whether a target is met or not.
"""

import argparse
import os
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

from automedeval.distillation.books import Book, Chunking, Passage
from automedeval.distillation.store import MODES, KnowledgeBase
from automedeval.models.embeddings import Encoder
from automedeval.records import read_lines
from automedeval.stats.bootstrap import bootstrap, difference, ratio

ROOT = Path(__file__).parents[1]
PARTS = ("index", "latency", "retrieval")
REPEATS = 3  # of the index part
QUERIES = 20  # of each size of the latency part
DEPTH = 10  # passages that a search of the retrieval part returns
OTHERS = 1000  # questions whose answers are in the store of the retrieval part, too
OPENSTAX = 1000  # passages of it there
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


def index(book: Book, encoder: Encoder, peer_model: str, count: int, results: Results) -> None:
    whole = book.passages(encoder.count, CHUNKING)
    cutting = seconds_of(lambda: book.passages(encoder.count, CHUNKING)) / len(whole)
    passages = slice_of(whole, count)
    texts = [f"{passage.section}\n{passage.text}" for passage in passages]
    peer = SentenceTransformer(peer_model, device=encoder.device)
    peer.encode(texts[:32])
    encoder.encode(texts[:32])
    ours, theirs = [], []
    for _ in range(REPEATS):  # in turns: what else the machine does meets both
        with tempfile.TemporaryDirectory() as folder, KnowledgeBase(folder, encoder, chunking=CHUNKING) as base:
            ours.append(seconds_of(lambda: base.add(passages)) + cutting * len(passages))
        theirs.append(seconds_of(lambda: peer.encode(texts)))
    own, other = (len(passages) / statistics.median(times) for times in (ours, theirs))
    results.add("indexing", own, "passages/s", "SentenceTransformer.encode alone", own / other, 1.5)
    results.note(
        f"Indexing: {len(passages):,} passages, medians of {REPEATS} runs; encoder in {encoder.dtype} on {encoder.device}, "
        f"{encoder.batch_tokens} tokens a batch."
    )


def latency(book: Book, encoder: Encoder, questions: list[str], sizes: list[int], results: Results) -> None:
    real = book.passages(lambda texts: [round(1.35 * len(text.split())) for text in texts], CHUNKING)
    encoding = [seconds_of(lambda: encoder.encode([question])) for question in questions]  # noqa: B023
    results.add("encoding of a question", 1000 * statistics.median(encoding), "ms")
    for size in sizes:
        base = KnowledgeBase(":memory:", Drawn(), chunking=CHUNKING)
        base.add(
            [
                Passage.of(f"{one.book} {number // len(real)}", one.kind, one.section, one.page, one.text)
                for number, one in ((number, real[number % len(real)]) for number in range(size))
            ]
        )
        for mode in MODES:
            times = [seconds_of(lambda: base.search([question], mode=mode)) for question in questions]  # noqa: B023
            results.add(f"search by {mode}, {size:,} passages", 1000 * statistics.median(times), "ms")
    results.note(f"Search: medians of {len(questions)} questions, one after the other.")


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
        found[question] = Book(file, "medical").passages(encoder.count, CHUNKING)
    return found


def retrieval(book: Book, encoder: Encoder, medquad: Path, count: int, results: Results) -> None:
    questions, answers = read_medquad(medquad)
    asked, others = questions[:count], questions[2 * count :][:OTHERS]
    with tempfile.TemporaryDirectory() as folder:
        cut = answer_passages([*asked, *others], answers, encoder, Path(folder))
    base = KnowledgeBase(":memory:", encoder, chunking=CHUNKING)
    base.add([passage for passages in cut.values() for passage in passages])
    base.add(slice_of(book.passages(encoder.count, CHUNKING), OPENSTAX))
    figures = {}
    for mode in MODES:
        ranks = []
        for question, found in zip(asked, base.search(asked, DEPTH, mode)):
            right = {passage.id for passage in cut[question]}
            ranks.append(next((rank for rank, one in enumerate(found, 1) if one.id in right), None))
        ones = np.ones(len(asked))
        hits = np.array([rank is not None and rank <= 5 for rank in ranks], dtype=float)
        reciprocal = np.array([1 / rank if rank else 0.0 for rank in ranks])
        figures[mode, "recall@5"] = ratio(hits, ones)
        figures[mode, "MRR@10"] = ratio(reciprocal, ones, len(asked))
    estimates = dict(zip(figures, bootstrap(list(figures.values()), len(asked))))
    for (mode, name), one in estimates.items():
        results.add(f"{name}, {mode}, interval {one.low:.3f} to {one.high:.3f}", one.value, "")
        if mode != MODES[0]:
            gap = difference(estimates[MODES[0], name], one)
            results.note(f"{name}, {MODES[0]} − {mode}: {gap.value:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}].")
    results.note(f"Retrieval: {len(asked)} questions that nothing was chosen on; {len(base):,} passages in the store.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default=str(ROOT / "models" / "all-MiniLM-L6-v2"), help="(default: %(default)s)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure (default: all)")
    parser.add_argument("--passages", type=int, default=2000, help="index: passages of OpenStax (default: %(default)s)")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[10_000, 50_000], help="latency: (default: %(default)s)"
    )
    parser.add_argument("--questions", type=int, default=500, help="retrieval: (default: %(default)s)")
    add_json(parser)
    args = parser.parse_args()
    results = Results("Knowledge store", args.json)
    data = os.environ.get("AUTOMEDEVAL_DATA")
    if not data:
        sys.exit("AUTOMEDEVAL_DATA does not name the folder that holds openstax/ and medquad/")
    medquad = Path(data, "medquad", "medquad.jsonl")
    (file,) = Path(data, "openstax").glob("*.jsonl")
    book, encoder = Book(file, "medical"), Encoder(args.encoder)
    if "index" in args.parts:
        index(book, encoder, args.encoder, args.passages, results)
    if "latency" in args.parts:
        latency(book, encoder, read_medquad(medquad)[0][:QUERIES], args.sizes, results)
    if "retrieval" in args.parts:
        retrieval(book, encoder, medquad, args.questions, results)
    results.show()
    results.write()


if __name__ == "__main__":
    main()
