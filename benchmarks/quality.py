"""Measure the quality classifier beside the paper's, which has the embedding alone (Appendix B), corruption by corruption.

    python benchmarks/quality.py --cases cases.jsonl --verdicts strong.jsonl weak.jsonl
    python benchmarks/quality.py --cases cases.jsonl --verdicts V.jsonl --verdict_ratings ratings.jsonl --seeds 1

The verdicts are of high quality; of low quality are those that failed the physicians' checks of knowledge or attribution
("by_physicians") and corrupted copies of high ones, at most 250 of each quality. Of them 200 train and 50 test, on other cases.
The counts of all seeds are added.
"""

from collections import Counter

from rows import Results, arguments

from automedeval.models.embeddings import Encoder
from automedeval.records import Verdict, as_shown, read_records
from automedeval.records.tables.cases import read_cases
from automedeval.study.dataset.builder import FAULTS, LABELLED
from automedeval.study.dataset.curriculum import shuffled
from automedeval.study.dataset.quality import QualityClassifier, labelled
from automedeval.study.dataset.verification import verify


def main() -> None:
    parser = arguments(__doc__)
    add = parser.add_argument
    add("--cases", required=True, help="cases with the responses")
    add("--verdicts", required=True, nargs="+", help="verdicts with rationales")
    add("--verdict_ratings", help="physicians' checks of the verdicts")
    add(
        "--encoder",
        default="models/all-MiniLM-L6-v2",
        help="default: %(default)s; the paper's is SimCSE",
    )
    add(
        "--seeds",
        type=int,
        default=5,
        help="draws of verdicts, faults and folds (default: %(default)s)",
    )
    args = parser.parse_args()
    cases = {case.id: case for case in read_cases(args.cases)}
    judged = [
        verdict
        for file in args.verdicts
        for verdict in read_records(file, Verdict)
        if verdict.valid and verdict.rationale
    ]
    verdicts = {(verdict.case_id, verdict.judge, verdict.digest): verdict for verdict in judged}
    failures = verify(args.verdict_ratings, verdicts)[0] if args.verdict_ratings else {}
    faulty = [key for key in verdicts if FAULTS & set(failures.get(key, ()))]
    shown = {}
    for key, verdict in verdicts.items():
        shown[key] = (as_shown(cases[verdict.case_id], verdict), verdict)
    classifier = QualityClassifier(Encoder(args.encoder))
    counts: dict[str, Counter[str]] = {"alone": Counter(), "whole": Counter(), "of": Counter()}
    for seed in range(args.seeds):
        high = shuffled(seed, "high", set(verdicts) - set(faulty))[:LABELLED]
        low = shuffled(seed, "low", faulty)[:LABELLED]
        examples = labelled([shown[key] for key in high], [shown[key] for key in low], seed)
        report = classifier.fit(examples, seed)
        for name, measured in (("alone", report["alone"]), ("whole", report)):
            counts[name].update({kind: count["right"] for kind, count in measured["kinds"].items()})
        counts["of"].update({kind: count["n"] for kind, count in report["kinds"].items()})
    results = Results("Quality classifier", args.json)
    for kind in [*sorted(counts["of"]), "all"]:
        own = {
            name: count.total() if kind == "all" else count[kind] for name, count in counts.items()
        }
        results.add(f"{kind}: embedding alone", own["alone"], f"right of {own['of']}")
        results.add(f"{kind}: whole classifier", own["whole"], f"right of {own['of']}")
    results.note(
        f"{len(cases):,} cases, {len(verdicts):,} verdicts, {args.seeds} seeds, {args.encoder}."
    )
    results.show()
    results.write()


if __name__ == "__main__":
    main()
