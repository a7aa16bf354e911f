"""Certify the threshold of the small checker on clean cases, and write the folder that `automedeval check` reads.

    python recipes/fit_checker.py --config recipes/runs/small-checker/fit.yaml

A clean case has a text by a physician as its reference, and statements that the same physician took from it as criteria: none
of them is contradicted. The threshold is the lowest at which the share of statements that are called contradicted, by the rules
or the model, is certified to be at most RISK, and at which the answers that these statements make are called contradicted in
at most the share ANSWERS. The same answers, with one statement changed by the rules of training, then tell which share of the
findings is right: by it a contradiction lowers the score of the small judge. Writes OUTPUT/checker.json and the adapter.
"""

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from automedeval.dataset.contrast import Rules
from automedeval.evidence.chat_checker import RISK
from automedeval.evidence.checker import LABELS, PAIR_TOKENS, SmallChecker
from automedeval.meta_evaluation.calibration.checker import ANSWERS, DELTA, alarm_scores, certified
from automedeval.models.arguments import ENCODER
from automedeval.models.checkpoints import checkpoint_folder, fingerprint, weights_fingerprint
from automedeval.models.embeddings import Encoder
from automedeval.models.pair_reader import PairReader
from automedeval.records import Case, RecordError, option, read_cases
from automedeval.records.arguments import comma_list
from automedeval.records.command_line import parse, run
from automedeval.records.journal import arithmetic, write_json
from automedeval.records.run_record import git_commit

THRESHOLDS = (0.999, 0.998, 0.995, 0.99, 0.98, 0.97, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)


@dataclass
class FitArguments:
    """The adapter and the clean cases."""

    adapter: str = option("folder of the adapter that recipes/train_checker.py wrote")
    clean: str = option("cases with references and criteria that follow from them")
    output: str = option("folder of the checker")
    without: list[str] = option("cases for tests, whose questions are left out of --clean", [])
    encoder: str = option("the encoder that was adapted, a folder or Hub id", ENCODER)

    def __post_init__(self) -> None:
        self.without = comma_list(self.without)


def main() -> None:
    """Read the clean statements, certify, and write the checker."""
    (args,) = parse((FitArguments,), __doc__)
    base, adapter, output = checkpoint_folder(args.encoder), Path(args.adapter), Path(args.output)
    encoder = Encoder(args.encoder, "cpu")
    model = PairReader(base, adapter, "cpu", labels=len(LABELS), tokens=PAIR_TOKENS)
    clean = list(read_cases(args.clean, least_responses=0, blank="skip"))
    tests = {case.id for path in args.without for case in read_cases(path, blank="skip")}
    kept = [case for case in clean if case.id not in tests and case.reference and case.criteria]
    print(
        arithmetic(
            "cases", len(clean), {"for tests, or without statements": len(clean) - len(kept)}
        )
    )
    checker = SmallChecker(encoder, model, fingerprint(adapter, []), 0.0)
    texts = [[each.criterion for each in case.criteria] for case in kept]
    scores = alarm_scores(checker, kept, texts)
    threshold, tested = certified(scores, THRESHOLDS)
    for line in tested:
        counts = f"{line['alarms']} of {sum(map(len, texts))} statements, in {line['alarmed']} of {len(kept)} cases"
        print(f"threshold {line['threshold']:g}: {counts}, p = {line['p']:.3g}")
    if threshold is None:
        raise RecordError(f"no threshold keeps the false alarms below {RISK:g} at delta {DELTA:g}")
    if adapter.resolve() != (output / "adapter").resolve():
        output.mkdir(parents=True, exist_ok=True)
        shutil.copytree(adapter, output / "adapter", dirs_exist_ok=True)
    precision = measured_precision(checker, kept, texts, scores, threshold)
    print(
        f"contradicted, of {precision['answers']} answers: {precision['changed']} changed, {precision['clean']} clean"
    )
    certificate = {"risk": RISK, "delta": DELTA, "answers": ANSWERS, "tested": tested}
    certificate |= {"units": len(kept), "statements": sum(map(len, texts))}
    certificate["clean"] = Path(args.clean).stem
    facts = {
        "encoder": {"name": base.name, "fingerprint": weights_fingerprint(base)},
        "threshold": threshold,
    }
    facts |= {"precision": precision, "certificate": certificate, "commit": git_commit()}
    write_json(output / "checker.json", facts)
    print(f"{output}: threshold {threshold:g}")


def measured_precision(
    checker: SmallChecker,
    cases: list[Case],
    texts: list[list[str]],
    scores: list[np.ndarray],
    threshold: float,
) -> dict[str, float]:
    """Return how many answers are called contradicted as they are and with one statement changed, and the share of the latter.

    Args:
        scores: `alarm_scores` of the answers as they are.
    """
    rules, rng = Rules.read(), random.Random(0)
    changed_texts, places = [], []
    for place, statements in enumerate(texts):
        changes = [
            (number, new)
            for number, text in enumerate(statements)
            if (new := rules.contrary(text, rng)) is not None
        ]
        if changes:
            number, new = rng.choice(changes)
            changed_texts.append([*statements[:number], new, *statements[number + 1 :]])
            places.append(place)
    new_scores = alarm_scores(checker, [cases[place] for place in places], changed_texts)
    changed = sum(bool((each >= threshold).any()) for each in new_scores)
    clean = sum(bool((scores[place] >= threshold).any()) for place in places)
    value = (changed + 0.5) / (changed + clean + 1)
    return {"value": value, "answers": len(places), "changed": changed, "clean": clean}


if __name__ == "__main__":
    run(main)
