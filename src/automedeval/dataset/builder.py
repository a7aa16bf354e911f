"""The steps that make a data set of judged cases, each telling its arithmetic: check, label, assign, compare, write."""

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from automedeval.dataset.corruption import corrupt, share_line
from automedeval.dataset.curriculum import Assignment, Key, Plan, assign, shuffled
from automedeval.dataset.decontamination import Evaluation
from automedeval.dataset.folder import SplitWriter
from automedeval.dataset.instructions import instruction, reads_back
from automedeval.dataset.quality import Labelled, QualityClassifier
from automedeval.dataset.teacher_verdicts import Fact, JudgedCases
from automedeval.dataset.topics import Topic, topics
from automedeval.dataset.verification import Verification, verify
from automedeval.models.tokenization import PromptEncoder, row_lengths
from automedeval.records import REFERENCE, Case, RecordError, as_shown, read_lines
from automedeval.rubrics import Rubric

WINDOW = 64  # rows that are tokenized, or verdicts that are classified, together
LABELLED = 250  # of each quality. Paper: 200 high and 200 low to fit, 100 others to test (Appendix B)
TOPIC_CASES = 5000  # at most so many are modelled: more change little and take long


@dataclass
class InstructionSet:
    """A data set in the making: the judged cases, the plan for them, and what was told so far."""

    judged: JudgedCases
    plan: Plan
    arithmetic: list[str] = field(default_factory=list)

    def tell(self, *lines: str) -> None:
        """Print the arithmetic of a step and keep it for the card."""
        for line in lines:
            print(line)
        self.arithmetic += lines

    def verify(self, path: str | None) -> tuple[Verification | None, int]:
        """Reject what physicians did not let pass (section 3.1); return what they said, and how many verdicts nobody rated."""
        facts = self.judged.facts
        if path is None:
            self.tell("verification: no ratings of verdicts are given, all pass")
            return None, len(facts)
        found = verify(path, self.judged.judges(), self.plan.verification)
        unrated = sum((case_id, fact.judge) not in found.failures for (case_id, _), fact in facts.items())

        def reason(key: Key, fact: Fact) -> str | None:
            failed = found.failures.get((key[0], fact.judge))
            return f"fails {' and '.join(failed)}" if failed else None

        self.tell(
            f"verification: {self.judged.filter('verdicts', reason)}; {unrated:,} unrated ones pass", *found.lines()
        )
        return found, unrated

    def read_labels(self, path: str) -> int:
        """Take over which verdicts people called high or low; return how many.

        Raises:
            RecordError: a line without case_id, judge and a quality of high or low, or no label of any of these verdicts.
        """
        of_judge = {(case_id, fact.judge): fact for (case_id, _), fact in self.judged.facts.items()}
        taken = 0
        for place, record in read_lines(path):
            if record.get("quality") not in ("high", "low"):
                raise RecordError(f"{place}: 'quality' must be high or low, not {record.get('quality')!r}")
            fact = of_judge.get((record.get("case_id"), record.get("judge")))
            if fact is not None:
                fact.quality = record["quality"]
                taken += 1
        if not taken:
            raise RecordError(f"{path}: labels none of these {len(of_judge):,} verdicts (by case_id and judge)")
        return taken

    def fit(self, classifier: QualityClassifier, spoil: bool) -> dict[str, Any]:
        """Teach a classifier high and low quality; return its report.

        Args:
            spoil: verdicts of the plan's first teacher count as high, and the same verdicts spoilt as low; else the labels
                that people gave teach.

        Raises:
            RecordError: there are too few to learn from.
        """
        facts = self.judged.facts
        if spoil:
            able = [
                key for key, fact in facts.items() if key[1] == self.plan.teachers[0].teacher and fact.quality != "low"
            ]
            pairs = list(self._shown(shuffled(self.plan.seed, "labelled", able)[:LABELLED]))
            cases = {case.id: case for case, _ in pairs}
            spoilt = corrupt([verdict for _, verdict in pairs], cases, self.plan.seed)
            self.tell(f"quality: {share_line(len(pairs), spoilt)}")
            labelled = [Labelled(case, verdict, "high") for case, verdict in pairs if verdict.rationale]
            labelled += [Labelled(cases[each.case_id], each, "low", each.extra["corruption"]) for each in spoilt]
        else:
            labelled = []
            for quality in ("high", "low"):
                keys = [key for key, fact in facts.items() if fact.quality == quality]
                pairs = self._shown(shuffled(self.plan.seed, "labelled", keys)[:LABELLED])
                labelled += [Labelled(case, verdict, quality) for case, verdict in pairs]
        report = classifier.fit(labelled, self.plan.seed)
        right = ", ".join(f"{kind} {found['right']} of {found['n']}" for kind, found in report["kinds"].items())
        found = report["accuracy"]
        interval = "" if found["low"] is None else " [{low:.2f}, {high:.2f}]".format(**found)
        self.tell(
            f"quality: accuracy of the classifier {found['value']:.2f}{interval} on others; right: {right} (paper: 0.91)"
        )
        return report

    def classify(self, classifier: QualityClassifier) -> None:
        """Call every verdict high or low that nobody has called so (Appendix B)."""
        unknown = [key for key, fact in self.judged.facts.items() if fact.quality is None]
        with tqdm(total=len(unknown), desc="quality", unit="verdict") as bar:
            for start in range(0, len(unknown), WINDOW):
                keys = unknown[start : start + WINDOW]
                for key, quality in zip(keys, classifier.decide(list(self._shown(keys)))):
                    self.judged.facts[key].quality = quality.label
                bar.update(len(keys))
        self.tell(f"quality: {len(unknown):,} verdicts called high or low by the classifier")

    def _shown(self, keys: Iterable[Key]) -> Iterable[tuple[Case, Any]]:
        return ((as_shown(case, verdict), verdict) for case, verdict in self.judged.pairs(keys))

    def tell_quality(self) -> None:
        """Tell how many verdicts of each teacher are of which quality."""
        counts = Counter((teacher, fact.quality or "unknown") for (_, teacher), fact in self.judged.facts.items())
        self.tell(
            "quality: "
            + ", ".join(f"{teacher} {quality} {count:,}" for (teacher, quality), count in sorted(counts.items()))
        )

    def assign(self) -> Assignment:
        """Lay the verdicts out as the plan says (section 3.2).

        Raises:
            RecordError: a line of the plan's test file without an id, or on a case whose texts are nowhere.
        """
        test_ids = []
        for place, record in read_lines(self.plan.test_file) if self.plan.test_file else ():
            test_ids.append(record.get("id", record.get("case_id")))
            if not isinstance(test_ids[-1], str):
                raise RecordError(f"{place}: has no 'id'")
            if record.get("question") is None and self.judged.case(test_ids[-1]) is None:
                # Without its texts nobody could say whether a training case repeats it.
                raise RecordError(
                    f"{place}: case {test_ids[-1]!r} is in no file of --cases, and has no 'question' here"
                )
        found = assign(self.plan, {key: fact.quality for key, fact in self.judged.facts.items()}, test_ids)
        self.tell(*found.lines)
        return found

    def _test_cases(self) -> Iterator[Case]:
        """Yield the cases whose texts stand in the plan's test file; under other ids they may stand in no file of cases."""
        for place, record in read_lines(self.plan.test_file) if self.plan.test_file else ():
            if record.get("question") is not None:
                try:
                    yield Case.from_dict({"id": record.get("case_id"), **record}, least_responses=0)
                except RecordError as error:
                    raise RecordError(f"{place}: {error}") from None

    def compare(self, assignment: Assignment, others: Iterable[Case], drop: bool) -> None:
        """Refuse, or leave out, training cases that the evaluation holds too.

        Args:
            others: evaluation cases beside the test split and the texts of the plan's test file.
            drop: leave them out.

        Raises:
            RecordError: there are some, and `drop` is False.
        """
        evaluation = Evaluation(itertools.chain(self.judged.cases(assignment.apart), self._test_cases(), others))
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

        self.tell(f"leakage: {self.judged.filter('training verdicts', reason, training)}")

    def write(
        self,
        assignment: Assignment,
        folder: Path,
        rubrics: Mapping[str, Rubric],
        encoder: PromptEncoder | None,
        max_length: int,
        reference_as_response: bool | None,
    ) -> tuple[dict[str, dict[str, Any]], Counter]:
        """Write the rows of every split, those that are no longer than `max_length` tokens, where an encoder counts them.

        Returns:
            what each split holds, and (source, licence, teacher, judge, rubric, whether the reference is a response) → rows.
        """
        splits, rejected, written = {}, {}, Counter()
        everything = [key for keys in assignment.splits.values() for key in keys if key in self.judged.facts]
        with tqdm(total=len(everything), desc="rows", unit="row") as bar:
            for name, chosen in assignment.splits.items():
                keys = [key for key in chosen if key in self.judged.facts]
                with SplitWriter(folder / f"{name}.parquet") as writer:
                    for start in range(0, len(keys), WINDOW):
                        window = keys[start : start + WINDOW]
                        rows = [self._row(key, rubrics, reference_as_response) for key in window]
                        for key, row, tokens in zip(window, rows, row_lengths(rows, encoder)):
                            if tokens is not None and tokens > max_length:
                                rejected[key] = f"more than {max_length:,} tokens"
                            elif not reads_back(row, rubrics[row["rubric"]]):
                                rejected[key] = "completion cannot be read back"
                            else:
                                writer.write(row, tokens)
                                told = [row[each] or "not stated" for each in ("source", "license")]
                                told += [row[each] for each in ("teacher", "judge", "rubric")]
                                written[*told, row["models"][-1] == REFERENCE] += 1
                        bar.update(len(window))
                splits[name] = writer.statistics()
        self.tell(f"rows: {self.judged.filter('verdicts', lambda key, _: rejected.get(key), everything)}")
        if encoder is None:
            self.tell("rows: no --tokenizer is given, so no length was checked")
        return splits, written

    def _row(self, key: Key, rubrics: Mapping[str, Rubric], reference_as_response: bool | None) -> dict[str, Any]:
        case, verdict = self.judged.pair(key)
        quality = self.judged.facts[key].quality
        return instruction(
            case, verdict, rubrics[verdict.rubric], key[1], quality, self.plan.seed, reference_as_response
        )

    def topics(self, assignment: Assignment, number: int) -> tuple[list[Topic], int]:
        """Return what the cases of the data set are about, and of how many cases that was told."""
        ids = sorted({key[0] for keys in assignment.splits.values() for key in keys if key in self.judged.facts})
        if not number or not ids:
            return [], 0
        part = sorted(random.Random(self.plan.seed).sample(ids, min(len(ids), TOPIC_CASES)))
        return topics(self.judged.cases(part), number, self.plan.seed), len(part)
