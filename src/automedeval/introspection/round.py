"""A round of introspection (paper, Algorithm 2): the mistakes' verdicts, revised or kept, become the rows of the next training.

What a discussion or the jury came to is a decision. Rows without a mistake, and those whose verdict is kept, stay as they are;
a revised row keeps its case, its slots and its teacher, and its `judge` says who revised it.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automedeval.dataset.folder import TEST, Dataset, SplitWriter
from automedeval.dataset.instructions import reads_back
from automedeval.introspection.discussion import Discussion
from automedeval.introspection.jury import Ruling
from automedeval.introspection.mistakes import KINDS, JudgeOfRound, Mistake, Recorded, in_order
from automedeval.models.tokenization import PromptEncoder, row_lengths
from automedeval.records import REFERENCE, RecordError
from automedeval.records.journal import Journal, arithmetic, now
from automedeval.rubrics.grammar import Reading, format_verdict
from automedeval.rubrics.prompts import judge_messages

TRAIN = "train"
WINDOW = 64  # rows that are tokenized together
SHOWN = 80  # characters of an answer that an error shows


@dataclass(frozen=True)
class Decision:
    """What becomes of the verdict on record of one mistake.

    Args:
        mistake, discussion: what it is about, and what was said about it, None where nobody discussed.
        by: "consensus" or "jury", None while nobody has decided: then the verdict on record stays.
        decision: "keep" or "revise".
        reading: the revised verdict, in the slots of the row.
        annotator: who of the jury decided.
        when: UTC, ISO 8601.
    """

    mistake: Mistake
    discussion: Discussion | None = None
    by: str | None = None
    decision: str | None = None
    reading: Reading | None = None
    annotator: str | None = None
    when: str | None = None

    @property
    def recorded(self) -> Recorded:
        return self.mistake.recorded

    def to_dict(self) -> dict[str, Any]:
        """Return the record of one mistake: both verdicts, the whole exchange, the suggestion and the revision (Eq. 2)."""
        recorded, said, judged = self.recorded, self.discussion, self.mistake.judged
        accepted = said.accepted if said else None
        # Paper: Eq. 2 conditions the revised verdict on the old one and on the suggestion S: three fields here.
        return {
            "case_id": recorded.case.id,
            "kind": self.mistake.kind,
            "rubric": recorded.rubric.name,
            "teacher": recorded.row["teacher"],
            "models": recorded.case.models,
            "order": list(recorded.order),
            "old_verdict": {"judge": recorded.row["judge"], **_told(recorded.reading, recorded)},
            "judge_verdict": {
                name: judged.to_dict()[name]
                for name in ("judge", "order", "valid", "error", "rationale", "scores", "choices", "raw")
            },
            "shown": list(said.order) if said else None,
            "exchanges": list(said.pieces.values()) if said else [],
            "suggestion": accepted[1].shown if accepted else None,
            "consensus_at": accepted[0] if accepted and self.by == "consensus" else None,
            "revised_verdict": None if self.reading is None else {"judge": self.by, **_told(self.reading, recorded)},
            "decided_by": self.by,
            "decision": self.decision,
            "annotator": self.annotator,
            "when": self.when,
        }


def _told(reading: Reading, recorded: Recorded) -> dict[str, Any]:
    """Return a reading in the row's slots with its scores in the order of the models."""
    scores = choices = None
    if reading.scores:
        by_index = dict(zip(recorded.order, reading.scores))
        scores = [by_index.get(index) for index in range(len(recorded.case.models))]
    if reading.choices:
        words = {letter: recorded.case.models[index] for index, letter in zip(recorded.order, "ab")}
        choices = {name: words.get(choice, choice) for name, choice in reading.choices.items()}
    return {"rationale": reading.rationale, "scores": scores, "choices": choices}


def decide(
    mistakes: Sequence[Mistake], discussions: Mapping[str, Discussion], rulings: Mapping[str, Ruling], journal: Journal
) -> list[Decision]:
    """Return the decision on every mistake: by consensus, else by the jury, else none.

    Args:
        discussions, rulings: what was said, and what the jury decided, by case id.
        journal: keeps when a ruling was first read, so that the same run gives the same records again.
    """
    times = {piece["case_id"]: piece for piece in journal.records() if piece.get("role") == "jury"}
    decisions = []
    for mistake in mistakes:
        case_id = mistake.case_id
        discussion, ruling = discussions.get(case_id), rulings.get(case_id)
        if discussion is not None and discussion.consensus:
            decisions.append(_by_consensus(discussion))
        elif ruling is None:
            decisions.append(Decision(mistake, discussion))
        else:
            told = ruling.to_dict()
            if case_id not in times or times[case_id]["ruling"] != told:
                times[case_id] = {"case_id": case_id, "role": "jury", "ruling": told, "when": now()}
                journal.append(times[case_id])
            found = (ruling.decision, ruling.reading, ruling.annotator, times[case_id]["when"])
            decisions.append(Decision(mistake, discussion, "jury", *found))
    journal.sync()
    return decisions


def _by_consensus(discussion: Discussion) -> Decision:
    exchange, suggestion = discussion.accepted
    about = {"mistake": discussion.mistake, "discussion": discussion, "by": "consensus"}
    if suggestion.keep:
        return Decision(**about, decision="keep", when=discussion.pieces["review", exchange]["when"])
    reading = in_order(discussion.revised, discussion.order, discussion.mistake.recorded.order)
    return Decision(**about, decision="revise", reading=reading, when=discussion.pieces["revision", exchange]["when"])


def refuse_silence(discussions: Sequence[Discussion], partners: Mapping[str, str]) -> None:
    """Raise RecordError if a partner that never answered in the format ended every discussion.

    Args:
        partners: "suggester" and "reviewer" → what it is called.
    """
    silent = Counter(discussion.silent for discussion in discussions)
    if not discussions or silent[None]:
        return
    (who, count), *_ = silent.most_common(1)
    role = "suggestion" if who == "suggester" else "review"
    (piece, *_) = (
        piece
        for discussion in discussions
        if discussion.silent == who
        for (said, _), piece in discussion.pieces.items()
        if said == role
    )
    begins = " ".join((piece["text"] or piece["error"] or "").split())[:SHOWN]
    raise RecordError(
        f"the {who} {partners[who]} never answered in the form of a {role}, in {count:,} of {len(discussions):,} discussions; "
        f"case {piece['case_id']!r}: {begins!r}"
    )


def revised_row(recorded: Recorded, reading: Reading, by: str) -> dict[str, Any]:
    """Return the row of a case with another verdict.

    Args:
        reading: the verdict, in the slots of the row.
        by: who decided, "consensus" or "jury"; the teacher stays.
    """
    prompt, digest = recorded.row["prompt"], recorded.row["prompt_digest"]
    if (reading.rationale is None) != (recorded.reading.rationale is None):
        # Scores alone are asked for otherwise than scores with their reasons.
        case = recorded.case
        texts = [case.responses[index].text for index in recorded.order]
        prompt = judge_messages(recorded.rubric, case.question, texts, case.reference, reading.rationale is not None)
        digest = hashlib.sha256(json.dumps(prompt).encode()).hexdigest()[:12]
    completion = [{"role": "assistant", "content": format_verdict(reading, recorded.rubric)}]
    new = {"prompt": prompt, "completion": completion, "judge": by, "prompt_digest": digest}
    return {**recorded.row, **new}


@dataclass
class Round:
    """A round's data set in the making: what it starts from, what was decided, and what was told so far."""

    dataset: Dataset
    recorded: Sequence[Recorded]
    decisions: Sequence[Decision] = ()
    arithmetic: list[str] = field(default_factory=list)
    unreadable: dict[str, int] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """Return which round this is; what recipes/build_dataset.py wrote is round 0."""
        return self.dataset.statistics.get("round", 0) + 1

    def tell(self, *lines: str) -> None:
        """Print the arithmetic of a step and keep it for the card."""
        for line in lines:
            print(line)
        self.arithmetic += lines

    def tell_discussions(self, discussions: Sequence[Discussion], partners: Mapping[str, str]) -> None:
        """Tell how the discussions ended, and how many messages of the partners could not be read."""
        at = Counter(discussion.accepted[0] for discussion in discussions if discussion.consensus)
        silent = Counter(discussion.silent for discussion in discussions if discussion.silent)
        self.unreadable = {
            "suggestion": sum(bool(each.error) for one in discussions for each in one.suggestions.values()),
            "review": sum(bool(each.error) for one in discussions for each in one.reviews.values()),
            "revision": sum(one.revised is not None and not one.revised.valid for one in discussions),
        } | {f"{who} never in the format": silent[who] for who in ("suggester", "reviewer")}
        told = ", ".join(f"exchange {exchange}: {count:,}" for exchange, count in sorted(at.items()))
        without = len(discussions) - at.total()
        self.tell(
            f"discussion: {partners['suggester']} suggests, {partners['reviewer']} reviews",
            f"discussion: {len(discussions):,} mistakes → {at.total():,} consensus"
            + (f" ({told})" if told else "")
            + f", {without:,} without",
        )
        if any(self.unreadable.values()):
            words = ", ".join(f"{what}: {count:,}" for what, count in self.unreadable.items() if count)
            self.tell(f"discussion: could not be read, {words}")

    def tell_decisions(self, rulings: Iterable[str], readings: Counter | None = None) -> None:
        """Tell what was decided by whom, and of which rulings, by case id, and readings nothing came."""
        counts = Counter((decision.by, decision.decision) for decision in self.decisions)
        for by in ("consensus", "jury"):
            kept, revised, open_cases = counts[by, "keep"], counts[by, "revise"], counts[None, None] * (by == "jury")
            if kept + revised + open_cases:
                more = f", {open_cases:,} unresolved: their verdicts stay" if by == "jury" else ""
                total = kept + revised + open_cases
                self.tell(f"{by}: {total:,} cases → {kept:,} kept, {revised:,} revised{more}")
        needed = {decision.recorded.case.id for decision in self.decisions if decision.by == "jury"}
        if idle := len(set(rulings) - needed):
            self.tell(f"jury: {idle:,} decisions on cases that needed none")
        if readings is not None:
            self.tell(f"jury: {readings['usable']:,} readings were usable, {readings['unusable']:,} lack a score")

    def counts(self) -> dict[str, Any]:
        """Return how many cases, mistakes and decisions of each kind there are."""
        decided = Counter((decision.by, decision.decision) for decision in self.decisions)
        at = Counter(decision.discussion.accepted[0] for decision in self.decisions if decision.by == "consensus")
        return {
            "cases": len(self.recorded),
            "mistakes": len(self.decisions),
            "kinds": {kind: sum(each.mistake.kind == kind for each in self.decisions) for kind in KINDS},
            "consensus_at": {str(exchange): count for exchange, count in sorted(at.items())},
            "consensus": {"keep": decided["consensus", "keep"], "revise": decided["consensus", "revise"]},
            "jury": {"keep": decided["jury", "keep"], "revise": decided["jury", "revise"]},
            "unresolved": decided[None, None],
            "unreadable": self.unreadable,
        }

    def write(
        self, folder: Path, train_on: str, encoder: PromptEncoder | None, max_length: int
    ) -> tuple[dict[str, dict[str, Any]], Counter]:
        """Write the training rows, copy the test split, and leave the records of all mistakes beside them.

        Args:
            train_on: "all" takes every row, the revised ones in place of the old; "revised" takes those alone.
            encoder: counts tokens, up to the answer's end, as training does; rows of more than `max_length` are dropped.

        Returns:
            what each split holds, and (source, licence, teacher, judge, rubric, whether the reference is a response) → rows.

        Raises:
            RecordError: nothing is left to train on.
        """
        # Paper: Table 1 names "All Blocks" for the rounds; section 3.3 updates the data set with the revised instances.
        decisions = {decision.recorded.case.id: decision for decision in self.decisions if decision.reading}
        chosen = [each for each in self.recorded if train_on == "all" or each.case.id in decisions]
        written, reasons, dropped, splits = Counter(), Counter(), [], {}
        with SplitWriter(folder / f"{TRAIN}.parquet") as writer:
            for start in range(0, len(chosen), WINDOW):
                window = chosen[start : start + WINDOW]
                rows = [
                    revised_row(each, decision.reading, decision.by)
                    if (decision := decisions.get(each.case.id))
                    else each.row
                    for each in window
                ]
                for each, row, tokens in zip(window, rows, row_lengths(rows, encoder)):
                    reason = None
                    if tokens is not None and tokens > max_length:
                        reason = f"more than {max_length:,} tokens"
                    elif not reads_back(row, each.rubric):
                        reason = "completion cannot be read back"
                    if reason is None:
                        writer.write(row, tokens)
                        written[_origin(row)] += 1
                    else:
                        reasons[reason] += 1
                        told = {name: row[name] for name in ("case_id", "teacher", "judge")}
                        dropped.append({**told, "reason": reason})
            splits[TRAIN] = writer.statistics()
        self.tell(f"rows: {arithmetic('verdicts', len(chosen), reasons)}; {len(decisions):,} revised")
        if not splits[TRAIN]["rows"]:
            raise RecordError(f"{self.dataset.place}: nothing is left to train on (--train_on {train_on})")
        if TEST in self.dataset.splits:
            shutil.copyfile(self.dataset.place / f"{TEST}.parquet", folder / f"{TEST}.parquet")
            splits[TEST] = self.dataset.statistics["splits"][TEST]
            written.update(map(_origin, self.dataset.splits[TEST]))
        _write_lines(folder / "dropped.jsonl", dropped)
        _write_lines(folder / "revisions.jsonl", (decision.to_dict() for decision in self.decisions))
        if (self.dataset.place / "topics.svg").exists():
            shutil.copyfile(self.dataset.place / "topics.svg", folder / "topics.svg")
        return splits, written

    def facts(self, judge: JudgeOfRound, partners: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the statistics hold of the round, beside what they tell of the rows."""
        return {
            "round": self.number,
            "follows": self.dataset.statistics["fingerprint"],
            "judge": {"name": judge.name, "settings": judge.settings},
            "partners": dict(partners),
            "counts": self.counts(),
            "arithmetic": [*self.dataset.statistics["arithmetic"], *self.arithmetic],
        }


def _origin(row: Mapping[str, Any]) -> tuple:
    told = [row[name] or "not stated" for name in ("source", "license")]
    return (*told, row["teacher"], row["judge"], row["rubric"], row["models"][-1] == REFERENCE)


def _write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    # A lone surrogate, which JSON can carry and UTF-8 cannot, goes back to its escape.
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
