"""Certify the threshold of the small checker on clean cases, and write the folder that `automedeval check` reads.

    python recipes/fit_checker.py --config recipes/runs/small-checker/fit.yaml

A clean case has a text by a physician as its reference, and statements that the same physician took from it as criteria: none
of them is contradicted. Of each case one statement is drawn; the threshold is the lowest at which the share of statements that
are called contradicted, by the rules or the model, is certified to be at most --risk. Writes OUTPUT/checker.json
and the adapter.
"""

import hashlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from automedeval.claims.checker import CONTRADICTED, LABELS, PAIR_TOKENS, SmallChecker
from automedeval.claims.run import passages_of
from automedeval.claims.statements import Statement
from automedeval.cli import comma_list, git_commit, parse, run
from automedeval.models.arguments import ENCODER
from automedeval.models.checkpoints import checkpoint_folder, fingerprint, weights_fingerprint
from automedeval.models.cross_encoder import load_cross_encoder
from automedeval.models.embeddings import Encoder
from automedeval.records import Case, RecordError, read_cases
from automedeval.records.journal import arithmetic, write_json
from automedeval.stats.selective import least_alarm_threshold

THRESHOLDS = (0.999, 0.998, 0.995, 0.99, 0.98, 0.97, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)


@dataclass
class FitArguments:
    """The adapter, the clean cases, and the promise."""

    adapter: str = field(metadata={"help": "folder of the adapter that recipes/train_checker.py wrote"})
    clean: str = field(metadata={"help": "cases with references and criteria that follow from them"})
    output: str = field(metadata={"help": "folder of the checker"})
    without: list[str] = field(
        default_factory=list, metadata={"help": "cases for tests, whose questions are left out of --clean"}
    )
    encoder: str = field(default=ENCODER, metadata={"help": "the encoder that was adapted, a folder or Hub id"})
    risk: float = field(
        default=0.05, metadata={"help": "allowed share of clean statements that are called contradicted"}
    )
    delta: float = field(default=0.1, metadata={"help": "allowed probability that the promise is false"})

    def __post_init__(self) -> None:
        self.without = comma_list(self.without)
        if not 0 < self.risk < 1 or not 0 < self.delta < 1:
            raise RecordError("--risk and --delta must lie between 0 and 1")


def main() -> None:
    """Read the clean statements, certify, and write the checker."""
    (args,) = parse((FitArguments,), __doc__)
    base, adapter, output = checkpoint_folder(args.encoder), Path(args.adapter), Path(args.output)
    encoder = Encoder(args.encoder, "cpu", "float32")
    model = load_cross_encoder(base, adapter, "cpu", labels=len(LABELS), tokens=PAIR_TOKENS)
    clean = list(read_cases(args.clean, least_responses=0, blank="skip"))
    tests = {case.id for path in args.without for case in read_cases(path, blank="skip")}
    kept = [case for case in clean if case.id not in tests and case.reference and case.criteria]
    print(arithmetic("cases", len(clean), {"for tests, or without statements": len(clean) - len(kept)}))
    scores = alarm_scores(SmallChecker(encoder, model, fingerprint(adapter, []), 0.0), kept)
    threshold, tested = least_alarm_threshold(scores, THRESHOLDS, args.risk, args.delta)
    for line in tested:
        print(f"threshold {line['threshold']:g}: {line['alarms']} of {line['units']} alarms, p = {line['p']:.3g}")
    if threshold is None:
        raise RecordError(f"no threshold keeps the false alarms below {args.risk:g} at delta {args.delta:g}")
    if adapter.resolve() != (output / "adapter").resolve():
        output.mkdir(parents=True, exist_ok=True)
        shutil.copytree(adapter, output / "adapter", dirs_exist_ok=True)
    certificate = {"risk": args.risk, "delta": args.delta, "units": len(scores), "tested": tested}
    certificate["clean"] = Path(args.clean).stem
    described = {"name": base.name, "fingerprint": weights_fingerprint(base)}
    write_json(
        output / "checker.json",
        {"encoder": described, "threshold": threshold, "certificate": certificate, "commit": git_commit()},
    )
    print(f"{output}: threshold {threshold:g}")


def alarm_scores(checker: SmallChecker, cases: list[Case]) -> np.ndarray:
    """Return, of one statement of each case, the probability of a contradiction; 0 where no passage was read."""
    answers = []
    for case in cases:
        number = int(hashlib.sha256(case.id.encode()).hexdigest(), 16) % len(case.criteria)
        text = case.criteria[number].criterion
        answers.append(([Statement(text, 0, len(text))], passages_of(case.reference or "", "reference"), ""))
    found = (findings[0] for findings in checker.check(answers))
    return np.array([each.probability or 0.0 if each.label == CONTRADICTED else 0.0 for each in found])


if __name__ == "__main__":
    run(main)
