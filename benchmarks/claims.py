"""Measure the small checker: on pairs that nobody trained on, on planted dangers beside their clean twins, and its speed.

    python benchmarks/claims.py --held_out checkpoints/small-checker/held_out.jsonl --pairs data/claims --kqa data/kqa \
        --medquad data/medquad/medquad.jsonl

Beside the balanced accuracy of each set of pairs stand that of the claim alone (TF-IDF and logistic regression, cross-fitted by
evidence) and that of word overlap (the best threshold, which flatters it). A planted danger is an edit of the audit's files
(`audit/templates/dangers.yaml`); its twin is an edit of the same kind that changes nothing medical, and the clean
twin the same answer in other words (`paraphrases.yaml`). The evidence is the answer as it was, or the reference. Prints JSON
lines; --json adds them to a file.
"""

import argparse
import json
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline

import automedeval
from automedeval.audit.perturbations import read_perturbations
from automedeval.dataset.contrast import is_held_out
from automedeval.evidence.checker import (
    CONTRADICTED,
    LABELS,
    PACKAGED,
    SUPPORTED,
    SmallChecker,
    load_small_checker,
)
from automedeval.evidence.run import evidence_of, passages_of
from automedeval.evidence.statements import statements
from automedeval.models.arguments import EncoderArguments
from automedeval.records import Case, patient_question, read_cases

SAMPLE = Path(automedeval.__file__).parent / "sample"
BOTH = (SUPPORTED, CONTRADICTED)


def main() -> None:
    """Measure what the given files allow."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checker", default=str(PACKAGED))
    parser.add_argument("--held_out")
    parser.add_argument("--pairs", help="folder of the sets of pairs, for fever_symmetric")
    parser.add_argument("--kqa")
    parser.add_argument("--medquad")
    parser.add_argument(
        "--limit", type=int, default=300, help="pairs of a set, and answers with a planted danger"
    )
    parser.add_argument("--json")
    args = parser.parse_args()
    checker = load_small_checker(EncoderArguments(), folder=Path(args.checker))
    results: list[dict[str, Any]] = []

    def add(what: str, **figures: Any) -> None:
        results.append({"what": what, **figures})
        print(json.dumps(results[-1]), flush=True)

    sets: dict[str, list[dict[str, Any]]] = defaultdict(list)
    if args.pairs:
        sets["fever_symmetric"] = json_rows(Path(args.pairs) / "fever_symmetric" / "pairs.jsonl")
    if args.held_out:
        for row in json_rows(Path(args.held_out)):
            name = f"contrast: {row['kind']}" if row["source"] == "contrast" else row["source"]
            sets[name].append(row)
    for name, rows in sets.items():
        add(
            name, **pair_figures(checker, [row for row in rows if row["label"] in BOTH], args.limit)
        )
    add("two_bots", **flagged_by_kind(checker, list(read_cases(SAMPLE / "two_bots.jsonl"))))
    cases = list(read_cases(SAMPLE / "test_cases.jsonl"))
    add("sample", **flagged_by_kind(checker, cases))
    add("sample, planted, evidence: reference", **planted(checker, cases, "reference", args.limit))
    if args.kqa:
        cases = list(read_cases(Path(args.kqa) / "cases.jsonl"))
        add(
            "K-QA, planted, evidence: reference", **planted(checker, cases, "reference", args.limit)
        )
        add(
            "K-QA, planted, evidence: the answer as it was",
            **planted(checker, cases, "itself", args.limit),
        )
    if args.medquad:
        rows = json_rows(Path(args.medquad))
        chosen = [
            row for row in rows if is_held_out(row["id"]) and 40 < len(row["answer"].split()) < 250
        ]
        cases = [
            Case.from_dict(
                {
                    "id": row["id"],
                    "question": row["question"],
                    "responses": [{"model": "nih", "text": row["answer"]}],
                }
            )
            for row in random.Random(0).sample(chosen, min(len(chosen), 4 * args.limit))
        ]
        figures = planted(checker, cases, "itself", args.limit)
        add("MedQuAD documents held out, planted, evidence: the answer as it was", **figures)
    add("speed", **speed(checker, list(read_cases(SAMPLE / "test_cases.jsonl"))))
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def json_rows(file: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def pair_figures(checker: SmallChecker, rows: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    """Supported against contradicted: balanced accuracy and AUROC of the model, the claim alone, and word overlap."""
    rows = random.Random(0).sample(rows, min(len(rows), limit))
    truth = np.array([row["label"] == CONTRADICTED for row in rows])
    if len(set(truth.tolist())) < 2:
        return {"pairs": len(rows), "reason": "one label"}
    read = checker.probabilities([(row["evidence"], row["claim"]) for row in rows])
    values = np.array([read[row["evidence"], row["claim"]] for row in rows])
    score = values[:, LABELS.index(CONTRADICTED)] - values[:, LABELS.index(SUPPORTED)]
    overlap = np.array([share(row["claim"], row["evidence"]) for row in rows])
    groups = np.unique([row["evidence"] for row in rows], return_inverse=True)[1]
    alone = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(max_iter=1000))
    claims = [row["claim"] for row in rows]
    guessed = cross_val_predict(alone, claims, truth, groups=groups, cv=GroupKFold(5))
    best = max(balanced_accuracy_score(truth, overlap < cut) for cut in np.unique(overlap))
    draws = np.random.default_rng(0)
    resampled = []
    for _ in range(1000):
        drawn = draws.integers(0, len(rows), len(rows))
        if len(set(truth[drawn].tolist())) == 2:
            resampled.append(balanced_accuracy_score(truth[drawn], score[drawn] > 0))
    low, high = np.quantile(resampled, [0.025, 0.975])
    return {
        "pairs": len(rows),
        "balanced_accuracy": round(float(balanced_accuracy_score(truth, score > 0)), 3),
        "interval": [round(float(low), 3), round(float(high), 3)],
        "auroc": round(float(roc_auc_score(truth, score)), 3),
        "claim_alone": round(float(balanced_accuracy_score(truth, guessed)), 3),
        "word_overlap": round(float(best), 3),
    }


def share(claim: str, evidence: str) -> float:
    """The share of the claim's words that stand in the evidence."""
    own, theirs = (set(re.findall(r"\w+", text.lower())) for text in (claim, evidence))
    return len(own & theirs) / max(1, len(own))


def is_flagged(findings: Iterable[Any]) -> list[str]:
    """What saw contradictions: names of rules, or "model"."""
    return [each.rule or "model" for each in findings if each.label == CONTRADICTED]


def flagged_by_kind(checker: SmallChecker, cases: Sequence[Case]) -> dict[str, Any]:
    """Of each kind of response, how many are flagged by rules, by the model, and by either, against the reference."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    responses = [(case, at) for case in cases for at in range(len(case.responses))]
    answers = [
        (
            statements(case.responses[at].text),
            evidence_of(case, at, "reference"),
            patient_question(case.question),
        )
        for case, at in responses
    ]
    for (case, at), findings in zip(responses, checker.check(answers)):
        by = is_flagged(findings)
        kind = case.responses[at].extra["kind"]
        found[kind].update(
            {"answers": 1, "flagged": bool(by), "rules": any(each != "model" for each in by)}
        )
        found[kind].update({"model": "model" in by})
    return {kind: dict(counts) for kind, counts in sorted(found.items())}


def planted(
    checker: SmallChecker, cases: Sequence[Case], evidence: str, limit: int
) -> dict[str, Any]:
    """Of each kind of planted danger, of its twins and of the clean twins, how many answers have more contradictions."""
    edits = {each.name: each for each in read_perturbations()}
    danger, (other_words,) = edits["danger"], edits["paraphrase"].edits
    found: dict[str, Counter[str]] = defaultdict(Counter)
    rng = random.Random(0)
    trials, faithful = [], []
    for case in cases:
        for at, response in enumerate(case.responses):
            passages = (
                passages_of(response.text, "itself")
                if evidence == "itself"
                else evidence_of(case, at, evidence)
            )
            changed = [
                (each.kind, each.apply(response.text)) for each in danger.edits if each.drop is None
            ]
            changed += [("clean twin", other_words.apply(response.text))]
            trials += [
                (case, passages, response.text, kind, text) for kind, text in changed if text
            ]
            mirrored = [
                (f"twin of {each.kind}", each.apply(response.text)) for each in danger.controls
            ]
            faithful += [
                (case, passages, response.text, kind, text) for kind, text in mirrored if text
            ]
    rng.shuffle(trials)
    rng.shuffle(faithful)
    taken: Counter[str] = Counter()
    chosen = []
    for trial in trials + faithful:
        taken[trial[3]] += 1
        if taken[trial[3]] <= limit // 3:
            chosen.append(trial)
    # All at once: equal texts are read once.
    answers = [
        (statements(each), passages, patient_question(case.question))
        for case, passages, before, _, text in chosen
        for each in (before, text)
    ]
    flags = [is_flagged(findings) for findings in checker.check(answers)]
    for (*_, kind, _), was, now in zip(chosen, flags[::2], flags[1::2]):
        found[kind].update(
            {"answers": 1, "flagged before": bool(was), "flagged more": len(now) > len(was)}
        )
    return {kind: dict(counts) for kind, counts in sorted(found.items())}


def speed(checker: SmallChecker, cases: Sequence[Case]) -> dict[str, Any]:
    """Answers per second against their references, after one to warm up."""
    answers = [
        (statements(each.text), evidence_of(case, at, "reference"), "")
        for case in cases
        for at, each in enumerate(case.responses)
    ]
    list(checker.check(answers[:2]))
    started = time.perf_counter()
    list(checker.check(answers))
    seconds = time.perf_counter() - started
    count = sum(len(own) for own, _, _ in answers)
    return {
        "answers": len(answers),
        "statements": count,
        "statements_per_second": round(count / seconds, 1),
    }


if __name__ == "__main__":
    main()
