"""Measure whether dense search and BM25 together find more than either alone, with weights that depend on the query.

    AUTOMEDEVAL_DATA=../data python benchmarks/fusion.py

The store is that of the retrieval part of `knowledge.py`, with the answers to 1,000 MedQuAD questions. The candidates of a
question are the best 20 passages of each search; a passage that only one search has found takes the lowest score of the other
one. A logistic regression learns on 500 questions which candidates belong to an answer to the very question, and ranks those of
the 500 others:

scores              from cosine and BM25;
scores by query     from both, and from their products with what is known of the query: its number of words, its best score in
                    each search, and how far that is from the fifth;
reciprocal ranks    what `search(mode="hybrid")` does, without anything learnt from the scores.

recall@5 and the mean reciprocal rank (of ranks up to 10), with 95 % intervals over the 500 others, and the differences to each
search alone. The target: a difference to both whose interval excludes 0. The exit status is 0 whether it is met or not.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from knowledge import CHUNKING, answer_passages, read_medquad, slice_of
from rows import Results, add_json
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from automedeval.distillation.books import Book
from automedeval.distillation.store import MODES, KnowledgeBase
from automedeval.models.embeddings import Encoder
from automedeval.reports.text import format_table
from automedeval.stats.bootstrap import bootstrap, difference, ratio

ROOT = Path(__file__).parents[1]
DEPTH = 20  # candidates from each search
ALONE = ("dense", "bm25")


def searched(data: Path, model: str, count: int, others: int, openstax: int) -> list[dict[str, Any]]:
    """Return what each search finds for 2 × `count` questions, and the passages that are right."""
    questions, answers = read_medquad(data / "medquad" / "medquad.jsonl")
    asked = questions[: 2 * count]
    (file,) = (data / "openstax").glob("*.jsonl")
    book, encoder = Book(file, "medical"), Encoder(model)
    with tempfile.TemporaryDirectory() as folder:
        cut = answer_passages(questions[: 2 * count + others], answers, encoder, Path(folder))
    base = KnowledgeBase(":memory:", encoder, chunking=CHUNKING)
    base.add([passage for passages in cut.values() for passage in passages])
    base.add(slice_of(book.passages(encoder.count, CHUNKING), openstax))
    found = {mode: base.search(asked, DEPTH, mode) for mode in MODES}
    return [
        {
            "words": len(question.split()),
            "right": [passage.id for passage in cut[question]],
            "passages": len(base),
        }
        | {mode: [[one.id, one.score] for one in found[mode][number]] for mode in MODES}
        for number, question in enumerate(asked)
    ]


def candidates(row: dict[str, Any]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return the candidates of a question, their scores [candidates, 2], and what is known of the query [5]."""
    scores = [dict(map(tuple, row[mode])) for mode in ALONE]
    ids = list(scores[0] | scores[1])
    lowest = [min(one.values(), default=0.0) for one in scores]
    both = np.array([[one.get(each, low) for one, low in zip(scores, lowest)] for each in ids])
    known = [np.log(row["words"])]
    for one in scores:
        ranked = sorted(one.values(), reverse=True) or [0.0]
        known += [ranked[0], ranked[0] - ranked[min(4, len(ranked) - 1)]]
    return ids, both, np.array(known)


def features(row: dict[str, Any], by_query: bool) -> np.ndarray:
    _, both, known = candidates(row)
    if not by_query:
        return both
    given = np.broadcast_to(known, (len(both), len(known)))
    return np.hstack([both, given, both[:, :1] * given, both[:, 1:] * given])


def learnt(fitted: list[dict[str, Any]], tested: list[dict[str, Any]], by_query: bool) -> list[list[str]]:
    """Fit on some questions; return the ranking of the candidates of each of the others."""
    labels = [np.isin(candidates(row)[0], row["right"]) for row in fitted]
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=10_000))
    model.fit(np.vstack([features(row, by_query) for row in fitted]), np.concatenate(labels))
    rankings = []
    for row in tested:
        ids = candidates(row)[0]
        order = np.argsort(-model.decision_function(features(row, by_query)), kind="stable")
        rankings.append([ids[place] for place in order])
    return rankings


def first_right(ranking: list[str], right: list[str]) -> int | None:
    return next((rank for rank, one in enumerate(ranking[:10], 1) if one in right), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default=str(ROOT / "models" / "all-MiniLM-L6-v2"), help="(default: %(default)s)")
    parser.add_argument("--questions", type=int, default=500, help="to fit, and to test (default: %(default)s)")
    parser.add_argument("--others", type=int, default=500, help="other answers in the store (default: %(default)s)")
    parser.add_argument("--openstax", type=int, default=1000, help="its passages in the store (default: %(default)s)")
    parser.add_argument("--found", type=Path, help="keep what the searches find in this file, and take it from there")
    add_json(parser)
    args = parser.parse_args()
    data = os.environ.get("AUTOMEDEVAL_DATA")
    if not data:
        sys.exit("AUTOMEDEVAL_DATA does not name the folder that holds openstax/ and medquad/")
    results = Results("Fused search", args.json)
    if args.found and args.found.exists():
        rows = json.loads(args.found.read_text())
    else:
        rows = searched(Path(data), args.encoder, args.questions, args.others, args.openstax)
        if args.found:
            args.found.write_text(json.dumps(rows))
    tested, fitted = rows[: args.questions], rows[args.questions :]  # knowledge.py measures on the first ones too
    rankings = {mode: [[one for one, _ in row[mode]] for row in tested] for mode in ALONE}
    rankings["reciprocal ranks"] = [[one for one, _ in row["hybrid"]] for row in tested]
    rankings["scores"] = learnt(fitted, tested, by_query=False)
    rankings["scores by query"] = learnt(fitted, tested, by_query=True)
    statistics, ones = [], np.ones(len(tested))
    for found in rankings.values():
        ranks = [first_right(ranking, row["right"]) for ranking, row in zip(found, tested)]
        statistics.append(ratio(np.array([rank is not None and rank <= 5 for rank in ranks], dtype=float), ones))
        statistics.append(ratio(np.array([1 / rank if rank else 0.0 for rank in ranks]), ones, len(tested)))
    estimates = bootstrap(statistics, len(tested))
    table = []
    for number, name in enumerate(rankings):
        row = {"search": name}
        for measure, label in enumerate(("recall@5", "MRR@10")):
            own = estimates[2 * number + measure]
            row[label] = f"{own.value:.3f} [{own.low:.3f}, {own.high:.3f}]"
            results.add(f"{label}, {name}, interval {own.low:.3f} to {own.high:.3f}", own.value, "")
            for other, peer in enumerate(ALONE if number >= len(ALONE) else ()):
                gap = difference(own, estimates[2 * other + measure])
                row[f"{label} − {peer}"] = f"{gap.value:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
                target = {"least": 0.001} if name == "scores by query" else {}
                results.add(f"{label}, {name} − {peer}: lower end of the interval", gap.low, "", **target)
        table.append(row)
    print(format_table(table))
    size = (
        f"{len(fitted)} questions to fit, {len(tested)} others to test; {rows[0]['passages']:,} passages in the store"
    )
    print(size)
    results.note(f"{size}.")
    results.write()


if __name__ == "__main__":
    main()
