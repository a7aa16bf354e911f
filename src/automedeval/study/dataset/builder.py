"""Build the instruction data set; each step reports what it kept and dropped.

The steps are: verify, measure lengths, label quality, assign to splits, compare with the evaluation cases, write.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from automedeval.models.tokenization import PromptEncoder
from automedeval.records import Case, Verdict, as_shown
from automedeval.records.text import span
from automedeval.rubrics import Rubric
from automedeval.study.dataset.corruption import corrupt, share_line
from automedeval.study.dataset.curriculum import Curriculum, Key, Plan, assign, shuffled
from automedeval.study.dataset.decontamination import Evaluation
from automedeval.study.dataset.folder import row_faults, write_splits
from automedeval.study.dataset.instructions import instruction
from automedeval.study.dataset.quality import Labelled, QualityClassifier
from automedeval.study.dataset.teacher_verdicts import JudgedCase, JudgedCases
from automedeval.study.dataset.verification import Verification, verify

FAULTS = {
    "knowledge",
    "attribution",
}  # Paper: "obvious reference or medical knowledge errors" are low (Appendix B)
WINDOW = 64  # verdicts that are classified together
LABELLED = 250  # verdicts of each quality. Paper: 200 high and 200 low to fit, 100 others to test (Appendix B)

UNVERIFIED = "verification: no ratings of verdicts are given, all pass"  # a line of the card


@dataclass
class InstructionSet:
    """The data set under construction.

    Attributes:
        judged, plan, rubrics: the judged cases, what becomes of them, and the rubrics by name.
        arithmetic: the lines reported so far.
        unrated: the verdicts that nobody rated; faulty: those in which physicians saw a fault of `FAULTS`.
        untrainable: verdict → why no row to train on can be made of it; a test case may carry it.
    """

    judged: JudgedCases
    plan: Plan
    rubrics: Mapping[str, Rubric]
    arithmetic: list[str] = field(default_factory=list)
    unrated: set[Key] = field(default_factory=set)
    faulty: dict[Key, JudgedCase] = field(default_factory=dict)
    untrainable: dict[Key, str] = field(default_factory=dict)

    def report(self, *lines: str) -> None:
        """Print the lines that report a step, and keep them for the card."""
        for line in lines:
            print(line)
        self.arithmetic += lines

    def verify(self, path: str | None) -> Verification | None:
        """Reject verdicts that fail the physicians' verification (section 3.1).

        Return what the ratings in the file say, None without a path or for "none", which takes back the path of a YAML.
        """
        self.unrated = set(self.judged.facts)
        if path in (None, "none"):
            self.report(UNVERIFIED)
            return None
        verification = verify(path, self.judged.digests())

        def reason(key: Key, fact: JudgedCase) -> str | None:
            failed = verification.failures.get((key[0], fact.judge, fact.digest))
            if failed is None:
                return None
            self.unrated -= {key}
            self.faulty |= {key: fact} if FAULTS & set(failed) else {}
            return (
                f"fails {' and '.join(failed)}"
                if len(failed) >= self.plan.failed_criteria
                else None
            )

        line = f"verification: {self.judged.filter('verdicts', reason)}"
        self.report(f"{line}; {len(self.unrated):,} unrated ones pass", *verification.lines())
        return verification

    def rows(self, keys: Sequence[Key], step: str) -> list[dict[str, Any]]:
        """Return the rows of these verdicts, see `instruction`; `step` names the progress bar."""
        facts = ((key[1], self.judged.facts[key]) for key in tqdm(keys, desc=step, unit="row"))
        return [
            instruction(
                each.case,
                each.verdict,
                self.rubrics[each.verdict.rubric],
                teacher,
                each.quality,
                self.plan.seed,
            )
            for teacher, each in facts
        ]

    def find_untrainable(self, encoder: PromptEncoder | None, max_length: int | None) -> None:
        """Find the verdicts that no row to train on can be made of (`row_faults`): the plan counts rows that are trained on."""
        keys = list(self.judged.facts)
        faults = row_faults(self.rows(keys, "length"), encoder, max_length, self.rubrics)
        self.untrainable = {key: fault for key, fault in zip(keys, faults) if fault is not None}
        if encoder is None:
            self.report("rows: no --training is given, so no length was checked")

    @property
    def unlabelled(self) -> list[Key]:
        """Return the verdicts without a quality, if the plan asks for one."""
        return (
            [key for key, fact in self.judged.facts.items() if fact.quality is None]
            if self.plan.asks_quality
            else []
        )

    def fit(self, classifier: QualityClassifier) -> dict[str, Any]:
        """Fit a quality classifier; return its report.

        High are verdicts of the plan's first teacher; low are those that people called so, or in which physicians saw a fault,
        with as many corrupted copies of high ones as are missing. RecordError if there are too few.
        """
        facts = self.judged.facts
        low = self.faulty | {key: fact for key, fact in facts.items() if fact.quality == "low"}
        faulty = shuffled(self.plan.seed, "faulty", low)[:LABELLED]
        able = [key for key in facts if key[1] == self.plan.teachers[0].teacher and key not in low]
        pairs = [
            _shown(facts[key]) for key in shuffled(self.plan.seed, "labelled", able)[:LABELLED]
        ]
        cases = {case.id: case for case, _ in pairs}
        good = [verdict for _, verdict in pairs[min(len(faulty), len(pairs)) :]]
        spoilt = corrupt(good, cases, self.plan.seed)
        self.report(
            f"quality: {share_line(len(good), spoilt)}; {len(low):,} are low by physicians' checks"
        )
        labelled = [Labelled(case, verdict, "high") for case, verdict in pairs if verdict.rationale]
        labelled += [Labelled(*_shown(low[key]), "low", "by_physicians") for key in faulty]
        labelled += [
            Labelled(cases[each.case_id], each, "low", each.extra["corruption"]) for each in spoilt
        ]
        report = classifier.fit(labelled, self.plan.seed)
        for name, measured in (
            ("the classifier", report),
            ("the embedding alone", report["alone"]),
        ):
            right = ", ".join(
                f"{kind} {count['right']} of {count['n']}"
                for kind, count in measured["kinds"].items()
            )
            self.report(
                f"quality: accuracy of {name} {span(measured['accuracy'])} on others; right: {right} (paper: 0.91)"
            )
        return report

    def classify(self, classifier: QualityClassifier) -> None:
        """Set the quality of every verdict that has none (Appendix B)."""
        facts = [self.judged.facts[key] for key in self.unlabelled]
        for start in tqdm(range(0, len(facts), WINDOW), desc="quality", unit=f"{WINDOW} verdicts"):
            window = facts[start : start + WINDOW]
            for fact, quality in zip(window, classifier.decide(list(map(_shown, window)))):
                fact.quality = quality
        self.report(f"quality: {len(facts):,} verdicts called high or low by the classifier")

    def report_quality(self) -> None:
        """Report how many verdicts of each teacher have which quality."""
        counts = Counter(
            (teacher, fact.quality or "unknown") for (_, teacher), fact in self.judged.facts.items()
        )
        self.report(
            "quality: "
            + ", ".join(
                f"{teacher} {quality} {count:,}"
                for (teacher, quality), count in sorted(counts.items())
            )
        )

    def assign(self) -> Curriculum:
        """Assign the verdicts to splits by the plan (section 3.2)."""
        qualities = {key: fact.quality for key, fact in self.judged.facts.items()}
        assignment = assign(self.plan, qualities, self.untrainable.keys())
        kept = set(assignment.splits["test"])
        self.report(
            f"rows: {self.judged.filter('verdicts', lambda key, _: None if key in kept else self.untrainable.get(key))}"
        )
        self.report(*assignment.lines)
        return assignment

    def drop_leaks(self, assignment: Curriculum, others: Iterable[Case]) -> None:
        """Drop the training cases that repeat a case of the test split, or one of the `others`."""
        cases = self.judged.cases
        evaluation = Evaluation(
            itertools.chain((cases[case_id] for case_id, _ in assignment.splits["test"]), others)
        )
        training = tqdm(
            [cases[case_id] for case_id, _ in assignment.training], desc="leakage", unit="case"
        )
        leaks = dict(evaluation.leaks(training))
        reasons = self.judged.filter(
            "training verdicts", lambda key, _: leaks.get(key[0]), assignment.training
        )
        self.report(f"leakage: {reasons}")

    def write(
        self, assignment: Curriculum, folder: Path, encoder: PromptEncoder | None
    ) -> dict[str, Any]:
        """Write the rows of every split; return the facts of `write_splits`."""
        rows = {name: self.rows(keys, name) for name, keys in self.written(assignment).items()}
        return write_splits(folder, rows, encoder)

    def written(self, assignment: Curriculum) -> dict[str, list[Key]]:
        """Return split → its verdicts, without those that were dropped."""
        return {
            name: [key for key in keys if key in self.judged.facts]
            for name, keys in assignment.splits.items()
        }

    def unrated_rows(self, assignment: Curriculum) -> int:
        """Return how many rows have a verdict that no physician rated."""
        return sum(
            key in self.unrated for keys in self.written(assignment).values() for key in keys
        )


def _shown(fact: JudgedCase) -> tuple[Case, Verdict]:
    return as_shown(fact.case, fact.verdict), fact.verdict
