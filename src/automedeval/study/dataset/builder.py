"""Build the instruction data set; each step reports what it kept and dropped.

The steps are: verify, measure lengths, label quality, assign to splits, compare with the evaluation cases, write.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tqdm import tqdm

from automedeval.records import Case, JsonObject
from automedeval.records.journal import arithmetic
from automedeval.records.text import span
from automedeval.study.dataset.corruption import KINDS as CORRUPTIONS
from automedeval.study.dataset.curriculum import Curriculum, Key, Plan, assign, shuffled
from automedeval.study.dataset.decontamination import Evaluation
from automedeval.study.dataset.folder import (
    TEST,
    UNCOUNTED,
    RowLimit,
    row_faults,
    write_splits,
)
from automedeval.study.dataset.instructions import instruction
from automedeval.study.dataset.quality import QualityClassifier, Shown, labelled
from automedeval.study.dataset.teacher_verdicts import JudgedCase, JudgedCases, counted
from automedeval.study.dataset.verification import verify

# Paper: "obvious reference or medical knowledge errors" are low (Appendix B)
FAULTS = {"knowledge", "attribution"}
WINDOW = 64  # verdicts that are classified together
LABELLED = 250  # verdicts of each quality. Paper: 200 high and 200 low to fit, 100 others to test (Appendix B)

UNVERIFIED = "verification: no ratings of verdicts are given, all pass"  # a line of the card


@dataclass(kw_only=True)
class InstructionSet(JudgedCases):
    """The data set under construction: the judged cases, and what becomes of them.

    Attributes:
        plan: the teachers, the stages and the test cases.
        rows: the rows of the verdicts, see `instruction`.
        faulty: the verdicts in which physicians saw a fault of `FAULTS`, also those that are rejected.
        untrainable: verdict → why no row to train on can be made of it; a test case may carry it.
    """

    plan: Plan
    rows: dict[Key, JsonObject] = field(default_factory=dict)
    faulty: dict[Key, JudgedCase] = field(default_factory=dict)
    untrainable: dict[Key, str] = field(default_factory=dict)

    def verify(self, path: str | None) -> None:
        """Reject verdicts that fail the physicians' verification (section 3.1).

        Without a path, or for "none", which takes back the path of a YAML, all pass.
        """
        if path in (None, "none"):
            self.report(UNVERIFIED)
            return
        verification = verify(path, {fact.rated for fact in self.facts.values()})
        faults = {}
        for key, fact in self.facts.items():
            fact.failed = verification.failures.get(fact.rated)
            failed = fact.failed or ()
            if FAULTS & set(failed):
                self.faulty[key] = fact
            if len(failed) >= self.plan.failed_criteria:
                faults[key] = f"fails {' and '.join(failed)}"
        line = f"verification: {self.reject('verdicts', faults)}"
        self.report(f"{line}; {self.unrated(self.facts):,} unrated ones pass", *verification.lines)

    def unrated(self, keys: Iterable[Key]) -> int:
        """Return how many of these verdicts nobody rated."""
        return sum(self.facts[key].failed is None for key in keys)

    def find_untrainable(self, limit: RowLimit | None) -> None:
        """Make the row of every verdict, and find those that no training can use (`row_faults`): no plan counts them."""
        for key, fact in tqdm(self.facts.items(), desc="rows", unit="row"):
            rubric = self.rubrics[fact.verdict.rubric]
            self.rows[key] = instruction(fact.case, fact.verdict, rubric, self.plan.seed)
        keys = list(self.rows)
        faults = row_faults(list(self.rows.values()), limit, self.rubrics)
        self.untrainable = {keys[at]: fault for at, fault in faults.items()}
        if limit is None:
            self.report(UNCOUNTED)

    @property
    def unlabelled(self) -> list[JudgedCase]:
        """Return the verdicts without a quality, if the plan asks for one."""
        if not self.plan.asks_quality:
            return []
        return [fact for fact in self.facts.values() if fact.quality is None]

    def fit(self, classifier: QualityClassifier) -> JsonObject:
        """Fit a quality classifier; return its report.

        High are verdicts of the plan's first teacher; low are those that people called so, or in which physicians saw a fault,
        with as many corrupted copies of high ones as are missing. RecordError if there are too few.
        """
        facts, teacher = self.facts, self.plan.teachers[0].teacher
        low = self.faulty | {key: fact for key, fact in facts.items() if fact.quality == "low"}
        able = {key: facts[key] for key in facts if key[1] == teacher and key not in low}
        high, faulty = self._draw("labelled", able), self._draw("faulty", low)
        examples = labelled(high, faulty, self.plan.seed)
        made = Counter(example.kind for example in examples if example.kind in CORRUPTIONS)
        line = arithmetic("verdicts", len(high[len(faulty) :]), made, "left out", "corrupted")
        self.report(f"quality: {line}; {len(low):,} are low by physicians' checks")
        report = classifier.fit(examples, self.plan.seed)
        accuracy, alone = span(report["accuracy"]), span(report["alone"]["accuracy"])
        self.report(f"quality: accuracy of the classifier {accuracy} on others (paper: 0.91)")
        self.report(f"quality: accuracy of the embedding alone {alone}")
        return report

    def _draw(self, purpose: str, facts: Mapping[Key, JudgedCase]) -> list[Shown]:
        """Return as many of these verdicts as are learned from, by the seed."""
        keys = shuffled(self.plan.seed, purpose, facts)
        return [facts[key].shown for key in keys[:LABELLED]]

    def classify(self, classifier: QualityClassifier) -> None:
        """Set the quality of every verdict that has none (Appendix B)."""
        facts = self.unlabelled
        for start in tqdm(range(0, len(facts), WINDOW), desc="quality", unit=f"{WINDOW} verdicts"):
            window = facts[start : start + WINDOW]
            qualities = classifier.decide([fact.shown for fact in window])
            for fact, quality in zip(window, qualities):
                fact.verdict = replace(fact.verdict, quality=quality)
        self.report(f"quality: {len(facts):,} verdicts called high or low by the classifier")

    def report_quality(self) -> None:
        """Report how many verdicts of each teacher have which quality."""
        facts = self.facts.values()
        counts = Counter(f"{fact.verdict.teacher} {fact.quality or 'unknown'}" for fact in facts)
        self.report(f"quality: {counted(counts)}")

    def assign(self) -> Curriculum:
        """Assign the verdicts to splits by the plan (section 3.2)."""
        qualities = {key: fact.quality for key, fact in self.facts.items()}
        assignment = assign(self.plan, qualities, self.untrainable.keys())
        apart = set(assignment.splits[TEST])
        faults = {key: fault for key, fault in self.untrainable.items() if key not in apart}
        self.report(f"rows: {self.reject('verdicts', faults)}", *assignment.lines)
        return assignment

    def drop_leaks(self, assignment: Curriculum, others: Iterable[Case]) -> None:
        """Drop the training cases that repeat a case of the test split, or one of the `others`."""
        training = assignment.training
        apart = [self.cases[case_id] for case_id, _ in assignment.splits[TEST]]
        evaluation = Evaluation(itertools.chain(apart, others))
        trained = [self.cases[case_id] for case_id, _ in training]
        leaks = dict(evaluation.leaks(tqdm(trained, desc="leakage", unit="case")))
        faults = {key: leaks[key[0]] for key in training if key[0] in leaks}
        self.report(f"leakage: {self.reject('training verdicts', faults, len(training))}")
        for split, keys in assignment.splits.items():
            assignment.splits[split] = [key for key in keys if key not in faults]

    def write(self, assignment: Curriculum, folder: Path, limit: RowLimit | None) -> JsonObject:
        """Write the rows of every split; return the facts of `write_splits`."""
        splits = {}
        for split, keys in assignment.splits.items():
            splits[split] = [self.rows[key] | {"quality": self.facts[key].quality} for key in keys]
        return write_splits(folder, splits, limit)
