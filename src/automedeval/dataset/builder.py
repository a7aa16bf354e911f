"""Build the instruction data set; each step reports what it kept and dropped.

The steps are: verify, measure lengths, label quality, assign to splits, compare with the evaluation cases, write.
"""

import itertools
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tqdm import tqdm

from automedeval.dataset.corruption import corrupt, share_line
from automedeval.dataset.curriculum import Assignment, Key, Plan, assign, shuffled
from automedeval.dataset.decontamination import Evaluation
from automedeval.dataset.folder import row_faults, write_rows
from automedeval.dataset.instructions import instruction
from automedeval.dataset.quality import Labelled, QualityClassifier
from automedeval.dataset.teacher_verdicts import Fact, JudgedCases
from automedeval.dataset.topics import Topic, topics
from automedeval.dataset.verification import Verification, verify
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import Case, RecordError, as_shown, read_cases, read_lines
from automedeval.records.text import span
from automedeval.rubrics import Rubric

FAULTS = {"knowledge", "attribution"}  # Paper: "obvious reference or medical knowledge errors" are low (Appendix B)
WINDOW = 64  # verdicts that are classified together
LABELLED = 250  # verdicts of each quality. Paper: 200 high and 200 low to fit, 100 others to test (Appendix B)
TOPIC_CASES = 5000  # most cases that topics are fitted to: more change little and take long

UNVERIFIED = "verification: no ratings of verdicts are given, all pass"  # a line of the card


@dataclass
class InstructionSet:
    """The data set under construction.

    Attributes:
        judged, plan: the judged cases, and what becomes of them.
        rubrics, reference_as_response: how a verdict becomes a row, see `instruction`.
        arithmetic: the lines reported so far.
        unrated: the verdicts that nobody rated; faulty: those in which physicians saw a fault of `FAULTS`.
        untrainable: verdict → why no row to train on can be made of it; a test case may carry it.
    """

    judged: JudgedCases
    plan: Plan
    rubrics: Mapping[str, Rubric]
    reference_as_response: bool | None = None
    arithmetic: list[str] = field(default_factory=list)
    unrated: set[Key] = field(default_factory=set)
    faulty: dict[Key, Fact] = field(default_factory=dict)
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
        verification = verify(path, self.judged.digests(), self.plan.verification)

        def reason(key: Key, fact: Fact) -> str | None:
            failed = verification.failures.get((key[0], fact.judge, fact.digest))
            if failed is None:
                return None
            self.unrated -= {key}
            self.faulty |= {key: fact} if FAULTS & set(failed) else {}
            return f"fails {' and '.join(failed)}" if len(failed) >= self.plan.verification.failed_criteria else None

        line = f"verification: {self.judged.filter('verdicts', reason)}"
        self.report(f"{line}; {len(self.unrated):,} unrated ones pass", *verification.lines())
        return verification

    def rows(self, keys: Sequence[Key], step: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of these verdicts, see `instruction`; `step` names the progress bar."""
        pairs = zip(keys, self.judged.pairs(tqdm(keys, desc=step, unit="row")))
        for key, (case, verdict) in pairs:
            quality = self.judged.facts[key].quality
            yield instruction(
                case, verdict, self.rubrics[verdict.rubric], key[1], quality, self.plan.seed, self.reference_as_response
            )

    def find_untrainable(self, encoder: PromptEncoder | None, max_length: int) -> None:
        """Find the verdicts that no row to train on can be made of, so that the plan's counts are of rows that are trained on.

        Args:
            encoder, max_length: see `row_faults`.
        """
        keys = list(self.judged.facts)
        faults = row_faults(self.rows(keys, "length"), encoder, max_length, self.rubrics)
        self.untrainable = {key: fault for key, fault in zip(keys, faults) if fault is not None}
        if encoder is None:
            self.report("rows: no --tokenizer is given, so no length was checked")

    def read_labels(self, path: str) -> str:
        """Set the quality of verdicts that people labelled; return the line that reports it.

        RecordError for a quality that is not high or low, a missing name or digest, two qualities of a verdict, or no label of
        any of these verdicts.
        """
        facts: dict[tuple[str, str], list[Fact]] = defaultdict(list)
        for (case_id, _), fact in self.judged.facts.items():
            facts[case_id, fact.judge].append(fact)
        applied, other_texts, labels = 0, 0, dict[int, str]()
        for place, record in read_lines(path):
            quality = record.get("quality")
            if quality not in ("high", "low"):
                raise RecordError(f"{place}: 'quality' must be high or low, not {quality!r}")
            names = [record.get(name) for name in ("case_id", "judge", "verdict_digest")]
            if not all(isinstance(name, str) for name in names):
                raise RecordError(
                    f"{place}: 'case_id', 'judge' and 'verdict_digest' must be texts, not {json.dumps(names)}"
                )
            case_id, judge, digest = map(str, names)
            verdicts = facts.get((case_id, judge), [])
            labelled = [fact for fact in verdicts if fact.digest == digest]
            for fact in labelled:
                if labels.setdefault(fact.row, quality) != quality:
                    raise RecordError(
                        f"{place}: the verdict of {judge!r} on case {case_id!r} was labelled {labels[fact.row]} before, and is "
                        f"{quality} here"
                    )
                fact.quality = quality
            applied += bool(labelled)
            other_texts += bool(verdicts) and not labelled
        if not applied:
            raise RecordError(
                f"{path}: labels none of these {len(self.judged.facts):,} verdicts (by case_id, judge and verdict_digest)"
            )
        line = f"quality: {applied:,} labels by people"
        other = f"; {other_texts:,} labels are of other texts of these judges on these cases: not applied"
        return line + (other if other_texts else "")

    def fit(self, classifier: QualityClassifier, spoil: bool) -> dict[str, Any]:
        """Fit a quality classifier; return its report.

        Args:
            spoil: True takes verdicts of the plan's first teacher as high, and as low those in which physicians saw a fault,
                with as many corrupted copies of high ones as are missing; False takes people's labels.

        Raises:
            RecordError: there are too few labelled verdicts.
        """
        facts = self.judged.facts
        if spoil:
            first, faulty = self.plan.teachers[0].teacher, shuffled(self.plan.seed, "faulty", self.faulty)[:LABELLED]
            able = [
                key
                for key, fact in facts.items()
                if key[1] == first and fact.quality != "low" and key not in self.faulty
            ]
            pairs = list(self._shown(shuffled(self.plan.seed, "labelled", able)[:LABELLED]))
            cases = {case.id: case for case, _ in pairs}
            good = [verdict for _, verdict in pairs[min(len(faulty), len(pairs)) :]]
            spoilt = corrupt(good, cases, self.plan.seed)
            self.report(f"quality: {share_line(len(good), spoilt)}; {len(faulty):,} are low by physicians' checks")
            labelled = [Labelled(case, verdict, "high") for case, verdict in pairs if verdict.rationale]
            lows = (self.judged.pair(key, self.faulty[key]) for key in faulty)
            labelled += [Labelled(as_shown(case, verdict), verdict, "low", "by_physicians") for case, verdict in lows]
            labelled += [Labelled(cases[each.case_id], each, "low", each.extra["corruption"]) for each in spoilt]
        else:
            labelled = []
            for quality in ("high", "low"):
                keys = [key for key, fact in facts.items() if fact.quality == quality]
                pairs = list(self._shown(shuffled(self.plan.seed, "labelled", keys)[:LABELLED]))
                labelled += [Labelled(case, verdict, quality) for case, verdict in pairs]
        report = classifier.fit(labelled, self.plan.seed)
        for name, measured in (("the classifier", report), ("the embedding alone", report["alone"])):
            right = ", ".join(f"{kind} {count['right']} of {count['n']}" for kind, count in measured["kinds"].items())
            self.report(
                f"quality: accuracy of {name} {span(measured['accuracy'])} on others; right: {right} (paper: 0.91)"
            )
        return report

    def classify(self, classifier: QualityClassifier) -> None:
        """Set the quality of every verdict that has none (Appendix B)."""
        unknown = [key for key, fact in self.judged.facts.items() if fact.quality is None]
        with tqdm(total=len(unknown), desc="quality", unit="verdict") as bar:
            for start in range(0, len(unknown), WINDOW):
                keys = unknown[start : start + WINDOW]
                for key, quality in zip(keys, classifier.decide(list(self._shown(keys)))):
                    self.judged.facts[key].quality = quality
                bar.update(len(keys))
        self.report(f"quality: {len(unknown):,} verdicts called high or low by the classifier")

    def _shown(self, keys: Iterable[Key]) -> Iterable[tuple[Case, Any]]:
        return ((as_shown(case, verdict), verdict) for case, verdict in self.judged.pairs(keys))

    def report_quality(self) -> None:
        """Report how many verdicts of each teacher have which quality."""
        counts = Counter((teacher, fact.quality or "unknown") for (_, teacher), fact in self.judged.facts.items())
        self.report(
            "quality: "
            + ", ".join(f"{teacher} {quality} {count:,}" for (teacher, quality), count in sorted(counts.items()))
        )

    @cached_property
    def test_cases(self) -> list[Case]:
        """Return the cases of the plan's test file, which need not be in a file of --cases; none without a test file."""
        # A blank response is no text that a training case could repeat.
        return list(read_cases(self.plan.test_file, 0, blank="skip")) if self.plan.test_file else []

    def assign(self) -> Assignment:
        """Assign the verdicts to splits by the plan (section 3.2)."""
        qualities = {key: fact.quality for key, fact in self.judged.facts.items()}
        test_ids = [case.id for case in self.test_cases]
        assignment = assign(self.plan, qualities, test_ids, self.untrainable.keys())
        kept = set(assignment.splits["test"])
        self.report(
            f"rows: {self.judged.filter('verdicts', lambda key, _: None if key in kept else self.untrainable.get(key))}"
        )
        self.report(*assignment.lines)
        return assignment

    def compare(self, assignment: Assignment, others: Iterable[Case], drop: bool) -> None:
        """Find training cases that repeat evaluation cases, and drop them.

        Args:
            others: evaluation cases beside the test split and the plan's test file.
            drop: False raises an error instead.

        Raises:
            RecordError: there are such cases, and `drop` is False.
        """
        evaluation = Evaluation(itertools.chain(self.judged.cases(assignment.apart), self.test_cases, others))
        training = assignment.training
        cases = self.judged.cases(case_id for case_id, _ in training)
        cases = tqdm(cases, desc="leakage", total=len(training), unit="case")
        leaks = {case_id: (kind, what) for case_id, kind, what in evaluation.leaks(cases)}
        if leaks and not drop:
            counts = Counter(kind for kind, _ in leaks.values())
            first = min(leaks)
            raise RecordError(
                f"{len(leaks):,} of {len(training):,} training cases leak "
                f"({', '.join(f'{kind}: {count:,}' for kind, count in sorted(counts.items()))}); "
                f"case {first!r}: {leaks[first][1]} (--on_leak drop leaves them out)"
            )

        def reason(key: Key, fact: Fact) -> str | None:
            return leaks[key[0]][0] if key[0] in leaks else None

        self.report(f"leakage: {self.judged.filter('training verdicts', reason, training)}")

    def write(
        self, assignment: Assignment, folder: Path, encoder: PromptEncoder | None
    ) -> tuple[dict[str, dict[str, Any]], Counter]:
        """Write the rows of every split (see `write_rows`); those of the test split may be too long to train on.

        Returns:
            split → statistics, and number of rows by `folder.origin`.
        """
        splits = {}
        origins: Counter[tuple] = Counter()
        for name, chosen in assignment.splits.items():
            keys = [key for key in chosen if key in self.judged.facts]
            splits[name], written = write_rows(folder / f"{name}.parquet", self.rows(keys, name), encoder)
            origins += written
        return splits, origins

    def unrated_rows(self, assignment: Assignment) -> int:
        """Return how many rows have a verdict that no physician rated."""
        rows = {key for keys in assignment.splits.values() for key in keys}
        return len(self.unrated & rows & self.judged.facts.keys())

    def topics(self, assignment: Assignment, number: int) -> tuple[list[Topic], int]:
        """Return `number` topics of the data set's cases, and to how many cases they were fitted."""
        ids = sorted({key[0] for keys in assignment.splits.values() for key in keys if key in self.judged.facts})
        if not number or not ids:
            return [], 0
        part = sorted(random.Random(self.plan.seed).sample(ids, min(len(ids), TOPIC_CASES)))
        return topics(self.judged.cases(part), number, self.plan.seed), len(part)
