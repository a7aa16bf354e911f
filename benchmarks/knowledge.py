"""Measure the knowledge store: how fast it is built, and what it finds.

    AUTOMEDEVAL_DATA=../data python benchmarks/knowledge.py
    AUTOMEDEVAL_DATA=../data python benchmarks/knowledge.py --passages 512 --others 500

AUTOMEDEVAL_DATA names the folder with openstax/ and medquad/. Two parts:

index       passages/s of building a store in a folder, cutting and storing included, against one
            `SentenceTransformer.encode` of the same passages at its defaults; target 1.5 times as fast.
retrieval   MedQuAD questions against a store of their answers, answers to other questions, and passages of OpenStax. A hit
            is any passage of an answer to the very question. recall@5 and the mean reciprocal rank (of ranks up to 10), with
            95 % intervals over questions.
"""

import argparse
import os
import random
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
from processes import in_turns, timed
from rows import ROOT, Results, arguments
from sentence_transformers import SentenceTransformer

from automedeval.evidence.books import Book, Passage
from automedeval.evidence.store import KnowledgeBase, open_writer
from automedeval.models.embeddings import Encoder
from automedeval.records import read_lines
from automedeval.stats.bootstrap import bootstrap, ratio

DEPTH = 10  # passages that a search of the retrieval part returns


def slice_of(passages: list[Passage], count: int, seed: int = 0) -> list[Passage]:
    """Return so many passages by chance, in their order."""
    chosen = sorted(random.Random(seed).sample(range(len(passages)), min(count, len(passages))))
    return [passages[index] for index in chosen]


def index(
    book: Book, encoder: Encoder, peer_model: str, count: int, repeats: int, results: Results
) -> None:
    cutting, whole = timed(lambda: book.passages(encoder.count))
    passages = slice_of(whole, count)
    texts = [f"{passage.section}\n{passage.text}" for passage in passages]
    peer = SentenceTransformer(peer_model, device=encoder.device)
    peer.encode(texts[:32])
    encoder.encode(texts[:32])

    def build() -> None:
        with (
            tempfile.TemporaryDirectory() as folder,
            open_writer(Path(folder), encoder) as store,
        ):
            store.add(passages)

    seconds, _ = in_turns({"ours": build, "peer": lambda: peer.encode(texts)}, repeats)
    own, name = (
        seconds["ours"] + cutting * len(passages) / len(whole),
        "SentenceTransformer.encode alone",
    )
    results.add("indexing", len(passages) / own, "passages/s", name, seconds["peer"] / own, 1.5)
    results.note(f"Indexing: {len(passages):,} passages, medians of {repeats} runs.")


def store_of(passages: list[Passage], encoder: Encoder) -> KnowledgeBase:
    with tempfile.TemporaryDirectory() as folder:
        with open_writer(Path(folder), encoder) as store:
            store.add(passages)
        return KnowledgeBase(Path(folder), lambda: encoder)


def read_medquad(file: Path) -> tuple[list[str], dict[str, list[str]]]:
    """Return the questions in a seeded order, and the answers to each."""
    answers = defaultdict(list)
    for _, record in read_lines(file):
        answers[record["question"].strip()].append(record["answer"])
    questions = sorted(answers)
    random.Random(0).shuffle(questions)
    return questions, answers


def retrieval(
    book: Book, encoder: Encoder, medquad: Path, args: argparse.Namespace, results: Results
) -> None:
    questions, answers = read_medquad(medquad)
    # the first so many are for the figure alone; settings were chosen on the next so many
    asked, others = questions[: args.questions], questions[2 * args.questions :][: args.others]
    cut: dict[str, list[Passage]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for question in [*asked, *others]:
            answer = Path(folder, "answer.txt")
            answer.write_text("\n\n".join(answers[question]), encoding="utf-8")
            cut[question] = Book(answer).passages(encoder.count)
    passages = [passage for passages in cut.values() for passage in passages]
    stored = [*passages, *slice_of(book.passages(encoder.count), args.openstax)]
    base = store_of(stored, encoder)
    ranks = []
    for question, found in zip(asked, base.search(asked, DEPTH)):
        right = {passage.id for passage in cut[question]}
        ranks.append(
            next((rank for rank, passage in enumerate(found, 1) if passage.id in right), None)
        )
    ones = np.ones(len(asked))
    hits = np.array([rank is not None and rank <= 5 for rank in ranks], dtype=float)
    reciprocal = np.array([1 / rank if rank else 0.0 for rank in ranks])
    estimates = bootstrap([ratio(hits, ones), ratio(reciprocal, ones, len(asked))], len(asked))
    for name, estimate in zip(("recall@5", "MRR@10"), estimates):
        results.add(
            f"{name}, interval {estimate.low:.3f} to {estimate.high:.3f}", estimate.value, ""
        )
    results.note(
        f"Retrieval: {len(asked)} questions that nothing was chosen on; {len(stored):,} passages in the store."
    )


def main() -> None:
    parser = arguments(__doc__)
    add = parser.add_argument
    add(
        "--encoder",
        default=str(ROOT / "models/all-MiniLM-L6-v2"),
        help="(default: %(default)s)",
    )
    add(
        "--passages",
        type=int,
        default=2000,
        help="index: passages of OpenStax (default: %(default)s)",
    )
    add(
        "--repeats",
        type=int,
        default=3,
        help="index: how often each is timed (default: %(default)s)",
    )
    add("--questions", type=int, default=500, help="retrieval: (default: %(default)s)")
    add("--others", type=int, default=1000, help="retrieval: other answers (default: %(default)s)")
    add("--openstax", type=int, default=1000, help="retrieval: its passages (default: %(default)s)")
    args = parser.parse_args()
    results = Results("Knowledge store", args.json)
    data = os.environ.get("AUTOMEDEVAL_DATA")
    if not data:
        sys.exit("AUTOMEDEVAL_DATA does not name the folder that holds openstax/ and medquad/")
    medquad = Path(data, "medquad", "medquad.jsonl")
    (file,) = Path(data, "openstax").glob("*.jsonl")
    book, encoder = Book(file), Encoder(args.encoder)
    index(book, encoder, args.encoder, args.passages, args.repeats, results)
    retrieval(book, encoder, medquad, args, results)
    results.show()
    results.write()


if __name__ == "__main__":
    main()
