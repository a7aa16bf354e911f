"""Build the data set of a round of introspection (paper, Algorithm 2): training rows with revised verdicts.

A decision, by consensus or by the jury, keeps or revises the verdict of a mistake. A revised row keeps its case, its slots and
its teacher; its `judge` becomes "consensus" or "jury". The row of a case that still waits for the jury is left out or keeps its
old verdict, as the round says. All other rows stay as they are.
"""

import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automedeval.dataset.folder import TEST, Dataset, origin, row_faults, write_rows
from automedeval.introspection.discussion import Discussion, Suggestion
from automedeval.introspection.jury import Ruling
from automedeval.introspection.mistakes import KINDS, Mistake, Recorded, RoundJudge
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError, digest
from automedeval.records.journal import Journal, arithmetic, now, write_lines
from automedeval.rubrics.grammar import ParsedAnswer, format_verdict
from automedeval.rubrics.prompts import judge_messages
from automedeval.rubrics.slots import as_recorded, reordered

TRAIN = "train"
REVISIONS = "revisions.jsonl"  # the records of all mistakes
# What is done while a case waits for the jury: the round is not written, or the row is left out, or keeps its old verdict.
STOP, LEAVE_OUT, KEEP_OLD = WAITING = ("stop", "leave_out", "keep_old")
WAITS = "waits for the jury"  # the reason of a row that is left out
SHOWN = 80  # characters of an answer that an error shows


@dataclass(frozen=True)
class Decision:
    """The decision on one mistake.

    Args:
        mistake, discussion: the mistake, and its discussion if there was one.
        by: "consensus" or "jury"; None if the case waits for the jury.
        decision: "keep" or "revise".
        reading: the revised verdict, in the slots of the row.
        annotator: the member of the jury who decided.
        when: time in UTC, ISO 8601.
    """

    mistake: Mistake
    discussion: Discussion | None = None
    by: str | None = None
    decision: str | None = None
    reading: ParsedAnswer | None = None
    annotator: str | None = None
    when: str | None = None

    @property
    def recorded(self) -> Recorded:
        return self.mistake.recorded

    def to_dict(self) -> dict[str, Any]:
        """Return the record of one mistake: both verdicts, all messages, the suggestion and the revised verdict (Eq. 2)."""
        recorded, discussion, judged = self.recorded, self.discussion, self.mistake.judged
        accepted = discussion and discussion.accepted
        # Paper: Eq. 2 conditions the revised verdict on the old one and on the suggestion S: three fields here.
        return {
            "case_id": recorded.case.id,
            "kind": self.mistake.kind,
            "rubric": recorded.rubric.name,
            "teacher": recorded.row["teacher"],
            "models": recorded.case.models,
            "order": list(recorded.order),
            "old_verdict": {"judge": recorded.row["judge"], **_recorded(recorded.reading, recorded)},
            "judge_verdict": {
                name: judged.to_dict()[name]
                for name in ("judge", "order", "valid", "error", "rationale", "scores", "choices", "raw")
            },
            "shown": list(discussion.order) if discussion else None,
            "exchanges": list(discussion.pieces.values()) if discussion else [],
            "suggestion": accepted[1].shown if accepted else None,
            "consensus_at": accepted[0] if accepted and self.by == "consensus" else None,
            "revised_verdict": None
            if self.reading is None
            else {"judge": self.by, **_recorded(self.reading, recorded)},
            "decided_by": self.by,
            "decision": self.decision,
            "annotator": self.annotator,
            "when": self.when,
        }


def _recorded(reading: ParsedAnswer, recorded: Recorded) -> dict[str, Any]:
    return as_recorded(reading, recorded.order, recorded.case.models)


def decide(
    mistakes: Sequence[Mistake], discussions: Mapping[str, Discussion], rulings: Mapping[str, Ruling], journal: Journal
) -> list[Decision]:
    """Return the decision on every mistake: by consensus, else by the jury, else none.

    Args:
        discussions, rulings: by case id.
        journal: keeps the time at which a ruling was first read, so that a repeated run gives the same records.
    """
    times = {piece["case_id"]: piece for piece in journal.records() if piece.get("role") == "jury"}
    decisions = []
    for mistake in mistakes:
        case_id = mistake.case_id
        discussion, ruling = discussions.get(case_id), rulings.get(case_id)
        if discussion is not None and discussion.accepted is not None and discussion.consensus:
            decisions.append(_by_consensus(discussion, *discussion.accepted))
        elif ruling is None:
            decisions.append(Decision(mistake, discussion))
        else:
            decided = ruling.to_dict()
            if case_id not in times or times[case_id]["ruling"] != decided:
                times[case_id] = {"case_id": case_id, "role": "jury", "ruling": decided, "when": now()}
                journal.append(times[case_id])
            details = (ruling.decision, ruling.reading, ruling.annotator, times[case_id]["when"])
            decisions.append(Decision(mistake, discussion, "jury", *details))
    journal.sync()
    return decisions


def _by_consensus(discussion: Discussion, exchange: int, suggestion: Suggestion) -> Decision:
    mistake, pieces = discussion.mistake, discussion.pieces
    if suggestion.keep or discussion.revised is None:  # a consensus to revise has a revision
        return Decision(mistake, discussion, "consensus", "keep", when=pieces["review", exchange]["when"])
    reading = reordered(discussion.revised, discussion.order, mistake.recorded.order, discussion.rubric.slot_word)
    return Decision(mistake, discussion, "consensus", "revise", reading, when=pieces["revision", exchange]["when"])


def refuse_silence(discussions: Sequence[Discussion], partners: Mapping[str, str]) -> None:
    """Raise RecordError if every discussion has a partner that never answered in the format.

    Args:
        partners: "suggester" and "reviewer" → the name of the model.
    """
    silent = Counter(discussion.silent for discussion in discussions if discussion.silent)
    if not discussions or silent.total() < len(discussions):
        return
    who, count = silent.most_common(1)[0]
    role = "suggestion" if who == "suggester" else "review"
    steps = (step for discussion in discussions if discussion.silent == who for step in discussion.pieces.items())
    piece = next(piece for (each, _), piece in steps if each == role)
    begins = " ".join((piece["text"] or piece["error"] or "").split())[:SHOWN]
    raise RecordError(
        f"the {who} {partners[who]} never answered in the form of a {role}, in {count:,} of {len(discussions):,} discussions; "
        f"case {piece['case_id']!r}: {begins!r}"
    )


def revised_row(recorded: Recorded, reading: ParsedAnswer, by: str) -> dict[str, Any]:
    """Return a row with another verdict.

    Args:
        reading: the verdict, in the slots of the row; `by` is "consensus" or "jury".
    """
    prompt, prompt_digest = recorded.row["prompt"], recorded.row["prompt_digest"]
    if (reading.rationale is None) != (recorded.reading.rationale is None):
        # The prompt for scores alone differs from the one for scores with reasons.
        case = recorded.case
        texts = [case.responses[index].text for index in recorded.order]
        prompt = judge_messages(recorded.rubric, case.question, texts, case.reference, reading.rationale is not None)
        prompt_digest = digest(prompt)
    completion = [{"role": "assistant", "content": format_verdict(reading, recorded.rubric)}]
    new = {"prompt": prompt, "completion": completion, "judge": by, "prompt_digest": prompt_digest}
    return {**recorded.row, **new}


@dataclass
class Round:
    """A round's data set under construction: the data set before, the decisions, and the lines reported so far.

    `on_waiting` is one of WAITING.
    """

    dataset: Dataset
    recorded: Sequence[Recorded]
    on_waiting: str = STOP
    decisions: Sequence[Decision] = ()
    arithmetic: list[str] = field(default_factory=list)
    unreadable: dict[str, int] = field(default_factory=dict)
    consensus_at: Counter[int] = field(default_factory=Counter)  # number of an exchange → discussions that it ended

    @property
    def number(self) -> int:
        """Return the number of the round; a data set of recipes/build_dataset.py is round 0."""
        return self.dataset.statistics.get("round", 0) + 1

    @property
    def waiting(self) -> list[Mistake]:
        """Return the mistakes that wait for the jury."""
        return [decision.mistake for decision in self.decisions if decision.by is None]

    def report(self, *lines: str) -> None:
        """Print the lines that report a step, and keep them for the card."""
        for line in lines:
            print(line)
        self.arithmetic += lines

    def report_discussions(self, discussions: Sequence[Discussion], partners: Mapping[str, str]) -> None:
        """Report how the discussions ended, and how many messages of the partners could not be parsed."""
        at = self.consensus_at = Counter(each.accepted[0] for each in discussions if each.accepted and each.consensus)
        silent = Counter(each.silent for each in discussions)
        errors = {
            "suggestion": [said.error for each in discussions for said in each.suggestions.values()],
            "review": [said.error for each in discussions for said in each.reviews.values()],
            "revision": [each.revised.error for each in discussions if each.revised],
        }
        self.unreadable = {role: len(list(filter(None, said))) for role, said in errors.items()}
        self.unreadable |= {f"{who} never in the format": silent[who] for who in ("suggester", "reviewer")}
        exchanges = ", ".join(f"exchange {exchange}: {count:,}" for exchange, count in sorted(at.items()))
        agreed = f"{at.total():,} consensus{f' ({exchanges})' if exchanges else ''}"
        self.report(
            f"discussion: {partners['suggester']} suggests, {partners['reviewer']} reviews",
            f"discussion: {len(discussions):,} mistakes → {agreed}, {len(discussions) - at.total():,} without",
        )
        if any(self.unreadable.values()):
            words = ", ".join(f"{what}: {count:,}" for what, count in self.unreadable.items() if count)
            self.report(f"discussion: could not be read, {words}")

    def report_decisions(self, rulings: Iterable[str], readings: Counter | None = None) -> None:
        """Report the decisions, the unneeded `rulings` (case ids), and how many raters' `readings` were usable."""
        counts = Counter((decision.by, decision.decision) for decision in self.decisions)
        for by in ("consensus", "jury"):
            kept, revised, waiting = counts[by, "keep"], counts[by, "revise"], counts[None, None] * (by == "jury")
            if total := kept + revised + waiting:
                more = f", {waiting:,} waiting" if by == "jury" else ""
                self.report(f"{by}: {total:,} cases → {kept:,} kept, {revised:,} revised{more}")
        needed = {decision.recorded.case.id for decision in self.decisions if decision.by == "jury"}
        if idle := len(set(rulings) - needed):
            self.report(f"jury: {idle:,} decisions on cases that needed none")
        if readings is not None:
            self.report(f"jury: {readings['usable']:,} readings were usable, {readings['unusable']:,} lack a score")

    def counts(self) -> dict[str, Any]:
        """Return how many cases, mistakes and decisions of each kind there are."""
        decided = Counter((decision.by, decision.decision) for decision in self.decisions)
        return {
            "cases": len(self.recorded),
            "mistakes": len(self.decisions),
            "kinds": {kind: sum(each.mistake.kind == kind for each in self.decisions) for kind in KINDS},
            "consensus_at": {str(exchange): count for exchange, count in sorted(self.consensus_at.items())},
            "consensus": {"keep": decided["consensus", "keep"], "revise": decided["consensus", "revise"]},
            "jury": {"keep": decided["jury", "keep"], "revise": decided["jury", "revise"]},
            "unresolved": decided[None, None],
            "unreadable": self.unreadable,
        }

    def write(
        self, folder: Path, encoder: PromptEncoder | None, max_length: int
    ) -> tuple[dict[str, dict[str, Any]], Counter]:
        """Write the training rows, the test split, and the records of all mistakes.

        The report counts the rows of waiting cases that are left out, or that keep their old verdict.

        Args:
            encoder, max_length: see `row_faults`.

        Returns:
            split → statistics, and number of rows by `folder.origin`.

        Raises:
            RecordError: no training row is left.
        """
        # Paper: Table 1 says "All Blocks" for the rounds; section 3.3 updates the data set with the revised instances.
        revised = {
            each.recorded.case.id: revised_row(each.recorded, each.reading, each.by)
            for each in self.decisions
            if each.reading and each.by
        }
        waiting = {mistake.case_id for mistake in self.waiting}
        left_out = waiting if self.on_waiting == LEAVE_OUT else set()
        rows = [revised.get(each.case.id, each.row) for each in self.recorded if each.case.id not in left_out]
        rubrics = {each.rubric.name: each.rubric for each in self.recorded}
        faults = list(row_faults(rows, encoder, max_length, rubrics))
        usable = [row for row, fault in zip(rows, faults) if fault is None]
        statistics, origins = write_rows(folder / f"{TRAIN}.parquet", usable, encoder)
        splits = {TRAIN: statistics}
        rejected = [(each.row, WAITS) for each in self.recorded if each.case.id in left_out]
        rejected += [(row, fault) for row, fault in zip(rows, faults) if fault is not None]
        dropped = [
            {name: row[name] for name in ("case_id", "teacher", "judge")} | {"reason": reason}
            for row, reason in rejected
        ]
        counted = arithmetic("verdicts", len(self.recorded), Counter(reason for _, reason in rejected))
        gone = {row["case_id"] for row, _ in rejected}
        old = sum(each.case.id in waiting - gone for each in self.recorded)
        more = f"; {old:,} wait for the jury and keep their old verdict" if old else ""
        self.report(f"rows: {counted}; {len(revised):,} revised{more}")
        if not splits[TRAIN]["rows"]:
            raise RecordError(f"{self.dataset.place}: no training row is left")
        if TEST in self.dataset.splits:
            shutil.copyfile(self.dataset.place / f"{TEST}.parquet", folder / f"{TEST}.parquet")
            splits[TEST] = self.dataset.statistics["splits"][TEST]
            origins.update(map(origin, self.dataset.splits[TEST]))
        write_lines(folder / "dropped.jsonl", dropped)
        self.write_revisions(folder)
        if (self.dataset.place / "topics.svg").exists():
            shutil.copyfile(self.dataset.place / "topics.svg", folder / "topics.svg")
        return splits, origins

    def write_revisions(self, folder: Path) -> None:
        """Write the records of all mistakes; in the jury's folder the physicians' page reads them while cases wait."""
        write_lines(folder / REVISIONS, (decision.to_dict() for decision in self.decisions))

    def facts(self, judge: RoundJudge, partners: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the statistics record of the round."""
        return {
            "round": self.number,
            "follows": self.dataset.statistics["fingerprint"],
            "judge": {"name": judge.name, "settings": judge.settings},
            "partners": dict(partners),
            "counts": self.counts(),
            "waiting": self.on_waiting,
            "arithmetic": [*self.dataset.statistics["arithmetic"], *self.arithmetic],
        }
