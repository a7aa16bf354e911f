"""Build the instruction data set; each step reports what it kept and dropped.

The steps are: verify, measure lengths, label quality, assign to splits, compare with the evaluation cases, write.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from tqdm import tqdm

from automedeval.judges.base import windows_of
from automedeval.records import Case, JsonObject, Verdict, as_shown
from automedeval.records.journal import arithmetic
from automedeval.records.text import span
from automedeval.study.dataset.corruption import KINDS as CORRUPTIONS
from automedeval.study.dataset.curriculum import Curriculum, Plan, assign, shuffled
from automedeval.study.dataset.decontamination import leaks
from automedeval.study.dataset.folder import (
    TEST,
    UNCOUNTED,
    RowLimit,
    row_faults,
    write_splits,
)
from automedeval.study.dataset.instructions import instruction
from automedeval.study.dataset.quality import QualityClassifier, Shown, labelled
from automedeval.study.dataset.teacher_verdicts import JudgedCases, Key, counted
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
        failed: the criteria that a verdict fails by the physicians' ratings; without those that nobody rated.
        rows: the rows of the verdicts, see `instruction`.
        faulty: the verdicts in which physicians saw a fault of `FAULTS`, also those that are rejected.
        untrainable: verdict → why no row to train on can be made of it; a test case may carry it.
    """

    plan: Plan
    failed: dict[Key, tuple[str, ...]] = field(default_factory=dict)
    rows: dict[Key, JsonObject] = field(default_factory=dict)
    faulty: dict[Key, Verdict] = field(default_factory=dict)
    untrainable: dict[Key, str] = field(default_factory=dict)

    def verify(self, path: str | None) -> None:
        """Reject verdicts that fail the physicians' verification (section 3.1).

        Without a path, or for "none", which takes back the path of a YAML, all pass.
        """
        if path in (None, "none"):
            self.report(UNVERIFIED)
            return
        rated = {}
        for key, verdict in self.verdicts.items():
            rated[key] = (verdict.case_id, verdict.judge, verdict.digest)
        failures, lines = verify(path, set(rated.values()))
        faults = {}
        for key, name in rated.items():
            if name not in failures:
                continue
            failed = self.failed[key] = failures[name]
            if FAULTS & set(failed):
                self.faulty[key] = replace(self.verdicts[key], quality="low")
            if len(failed) >= self.plan.failed_criteria:
                faults[key] = f"fails {' and '.join(failed)}"
        self.verdicts |= self.faulty
        line = f"verification: {self.reject('verdicts', faults)}"
        unrated = self.unrated(self.verdicts)
        self.report(f"{line}; {unrated:,} unrated ones pass", *lines)

    def unrated(self, keys: Iterable[Key]) -> int:
        """Return how many of these verdicts nobody rated."""
        return sum(key not in self.failed for key in keys)

    def find_untrainable(self, limit: RowLimit | None) -> None:
        """Make the row of every verdict, and find those that no training can use (`row_faults`): no plan counts them."""
        for key, verdict in tqdm(self.verdicts.items(), desc="rows", unit="row"):
            case = self.cases[verdict.case_id]
            rubric = self.rubrics[verdict.rubric]
            self.rows[key] = instruction(case, verdict, rubric, self.plan.seed)
        self.untrainable = row_faults(self.rows, limit, self.rubrics)
        if limit is None:
            self.report(UNCOUNTED)

    @property
    def unlabelled(self) -> list[Key]:
        """Return the verdicts without a quality, if the plan asks for one."""
        if not self.plan.asks_quality:
            return []
        return [key for key, verdict in self.verdicts.items() if verdict.quality is None]

    def fit(self, classifier: QualityClassifier) -> JsonObject:
        """Fit a quality classifier; return its report.

        High are verdicts of the plan's first teacher; low are those that people called so, or in which physicians saw a fault,
        with as many corrupted copies of high ones as are missing. RecordError if there are too few.
        """
        low = dict(self.faulty)
        able = dict[Key, Verdict]()
        for key, verdict in self.verdicts.items():
            if verdict.quality == "low":
                low[key] = verdict
            elif verdict.teacher == self.plan.teachers[0].teacher:
                able[key] = verdict
        high = self._draw("labelled", able)
        faulty = self._draw("faulty", low)
        examples = labelled(high, faulty, self.plan.seed)
        made = Counter(example.kind for example in examples if example.kind in CORRUPTIONS)
        line = arithmetic("verdicts", len(high[len(faulty) :]), made, "left out", "corrupted")
        self.report(
            f"quality: {line}; {len(low):,} are low by physicians' checks of knowledge or "
            "attribution, or by their label"
        )
        report = classifier.fit(examples, self.plan.seed)
        accuracy = span(report["accuracy"])
        alone = span(report["alone"]["accuracy"])
        self.report(f"quality: accuracy of the classifier {accuracy} on others (paper: 0.91)")
        self.report(f"quality: accuracy of the embedding alone {alone}")
        return report

    def _draw(self, purpose: str, verdicts: Mapping[Key, Verdict]) -> list[Shown]:
        """Return as many of these verdicts as are learned from, by the seed."""
        keys = shuffled(self.plan.seed, purpose, verdicts)
        return [self._shown(verdicts[key]) for key in keys[:LABELLED]]

    def _shown(self, verdict: Verdict) -> Shown:
        return as_shown(self.cases[verdict.case_id], verdict), verdict

    def classify(self, classifier: QualityClassifier) -> None:
        """Set the quality of every verdict that has none (Appendix B)."""
        keys = self.unlabelled
        windows = list(windows_of(keys, WINDOW))
        for window in tqdm(windows, desc="quality", unit=f"{WINDOW} verdicts"):
            qualities = classifier.decide([self._shown(self.verdicts[key]) for key in window])
            for key, quality in zip(window, qualities):
                self.verdicts[key] = replace(self.verdicts[key], quality=quality)
        self.report(f"quality: {len(keys):,} verdicts called high or low by the classifier")

    def report_quality(self) -> None:
        """Report how many verdicts of each teacher have which quality."""
        counts = Counter(
            f"{verdict.teacher} {verdict.quality or 'unknown'}"
            for verdict in self.verdicts.values()
        )
        self.report(f"quality: {counted(counts)}")

    def assign(self) -> Curriculum:
        """Assign the verdicts to splits by the plan (section 3.2)."""
        qualities = {key: verdict.quality for key, verdict in self.verdicts.items()}
        assignment = assign(self.plan, qualities, self.untrainable.keys())
        apart = set(assignment.splits[TEST])
        faults = {key: fault for key, fault in self.untrainable.items() if key not in apart}
        self.report(f"rows: {self.reject('verdicts', faults)}", *assignment.lines)
        return assignment

    def drop_leaks(self, assignment: Curriculum, others: Iterable[Case]) -> None:
        """Drop the training cases that repeat a case of the test split, or one of the `others`."""
        training = assignment.training
        apart = [self.cases[case_id] for case_id, _ in assignment.splits[TEST]]
        trained = [self.cases[case_id] for case_id, _ in training]
        kinds = leaks(trained, chain(apart, others))
        faults = {key: kinds[key[0]] for key in training if key[0] in kinds}
        self.report(f"leakage: {self.reject('training verdicts', faults, len(training))}")
        for split, keys in assignment.splits.items():
            assignment.splits[split] = [key for key in keys if key not in faults]

    def write(self, assignment: Curriculum, folder: Path, limit: RowLimit | None) -> JsonObject:
        """Write the rows of every split; return the facts of `write_splits`."""
        splits = {}
        for split, keys in assignment.splits.items():
            splits[split] = [
                self.rows[key] | {"quality": self.verdicts[key].quality} for key in keys
            ]
        return write_splits(folder, splits, limit)
