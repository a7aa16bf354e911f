"""A judge's mistakes: where its verdicts on the training cases differ from those on record (paper, Algorithm 2, lines 5 and 6).

A row of an instruction data set holds the verdict on record of one case. The judge whose round it is has judged every one of
these cases; several orders or runs of it count as their mean. Nothing is asked here, and no model is loaded.
"""

import hashlib
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from automedeval.records import Case, RecordError, Verdict, as_shown, read_placed, verdict_key
from automedeval.rubrics import Rubric
from automedeval.rubrics.grammar import Reading, parse_verdict
from automedeval.rubrics.prompts import judge_messages
from automedeval.rubrics.rationale import permute

KINDS = ("relations", "scores", "choices", "invalid")
SAME = 1e-9  # scores that differ by no more are equal, as in every measure of agreement
LONGEST_RAW = 2000  # characters that are shown of an answer that nobody could read


@dataclass(frozen=True)
class Recorded:
    """One training row with what it was made of.

    Args:
        row: as the data set has it.
        case: the case with the responses that the verdict is on: its own, or these and the reference.
        rubric: what the verdict follows.
        reading: the verdict on record, in the slots of `row["order"]`.
        digests: of the case as its file has it, and as it was shown; a judge may have been given either.
    """

    row: dict[str, Any]
    case: Case
    rubric: Rubric
    reading: Reading
    digests: frozenset[str]

    @property
    def order(self) -> tuple[int, ...]:
        """Return which response stands in which slot of the row."""
        return tuple(self.row["order"])

    @property
    def scores(self) -> dict[int, int]:
        """Return index of the response → score on record; empty under a rubric with choices."""
        return dict(zip(self.order, self.reading.scores or ()))

    def choices(self) -> dict[str, str]:
        """Return criterion → a model's name, "tie" or "neither", as on record; empty under a rubric with scores."""
        words = {letter: self.case.models[index] for index, letter in zip(self.order, "ab")}
        return {name: words.get(choice, choice) for name, choice in (self.reading.choices or {}).items()}

    def seen_from(self, order: Sequence[int]) -> Reading:
        """Return the verdict on record as it reads with the responses in another order."""
        return in_order(self.reading, self.order, order)


@dataclass(frozen=True)
class Mistake:
    """A training case that the judge did not judge as the record has it.

    Args:
        recorded: the row, and the verdict on record.
        kind: "invalid": no verdict of the judge can be read; "relations": one pair of responses or more stands otherwise;
            "scores": the relations agree and a score does not; "choices": a choice about the pair differs.
        judged: the judge's verdict: of several the one that is furthest from the record.
    """

    recorded: Recorded
    kind: str
    judged: Verdict

    @property
    def case_id(self) -> str:
        """Return whose mistake it is."""
        return self.recorded.case.id

    def judged_from(self, order: Sequence[int]) -> dict[str, Any]:
        """Return the judge's verdict with the responses in this order: rationale, scores by slot, or what was unreadable.

        A score is None where the judge was not shown the response.
        """
        verdict = self.judged
        if not verdict.valid:
            return {"rationale": None, "scores": None, "error": verdict.error, "raw": verdict.raw[:LONGEST_RAW]}
        # The judge may have seen fewer responses, or more: what one side lacks stands behind all others.
        whole = [*order, *(index for index in verdict.order if index not in order)]
        own = [*verdict.order, *(index for index in order if index not in verdict.order)]
        rationale = permute(verdict.rationale, [own.index(index) for index in whole]) if verdict.rationale else None
        scores = [_at(verdict.scores, index) for index in order] if verdict.scores else None
        return {"rationale": rationale, "scores": scores, "error": None, "raw": None}

    @property
    def digest(self) -> str:
        """Return twelve hexadecimal digits over the case, the verdict on record and the judge's."""
        row, verdict = self.recorded.row, self.judged
        seen = [self.recorded.case.digest, row["order"], row["completion"], verdict.order, verdict.scores]
        seen += [verdict.valid, verdict.rationale, verdict.choices, verdict.error, verdict.raw]
        return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:12]


@dataclass
class JudgeOfRound:
    """The judge whose mistakes a round is about: its name, the fingerprint of its settings, and its verdicts by case."""

    name: str
    settings: str | None
    verdicts: dict[str, list[Verdict]] = field(repr=False)


def _at(values: Sequence, index: int) -> Any:
    return values[index] if index < len(values) else None


def in_order(reading: Reading, given: Sequence[int], order: Sequence[int]) -> Reading:
    """Return a reading of the responses in the slots `given` as it reads in the slots `order`, which hold the same."""
    if tuple(given) == tuple(order):
        return reading
    slots = [list(given).index(index) for index in order]
    scores = tuple(reading.scores[slot] for slot in slots) if reading.scores else None
    return Reading(True, None, permute(reading.rationale, slots) if reading.rationale else None, scores)


def read_recorded(
    rows: Iterable[dict[str, Any]], cases: Mapping[str, Case], rubrics: Mapping[str, Rubric], place: str
) -> list[Recorded]:
    """Join training rows with their cases, and read the verdict that each holds.

    Args:
        place: the data set, for errors.

    Raises:
        RecordError: no rows; a row whose case is not there, has changed since, or stands twice; an unknown rubric; a
            completion that cannot be read.
    """
    found: dict[str, Recorded] = {}
    for row in rows:
        where = f"{place}: case {row['case_id']!r}"
        if row["case_id"] in found:
            raise RecordError(f"{where} stands in two training rows")
        if row["case_id"] not in cases:
            raise RecordError(f"{where} is in no file of --cases")
        if row["rubric"] not in rubrics:
            raise RecordError(
                f"{where}: no rubric {row['rubric']!r} among {', '.join(sorted(rubrics))}; give yours with --rubrics"
            )
        rubric, given = rubrics[row["rubric"]], cases[row["case_id"]]
        case = _case(given, row)
        texts = [case.responses[index].text for index in row["order"]]
        reading = parse_verdict(row["completion"][0]["content"], rubric, len(texts))
        if not reading.valid:
            raise RecordError(f"{where}: the verdict on record cannot be read: {reading.error}")
        prompt = judge_messages(rubric, case.question, texts, case.reference, reading.rationale is not None)
        if prompt != row["prompt"]:
            raise RecordError(f"{where}: its texts, or the rubric's wording, have changed since the data set was built")
        found[case.id] = Recorded(row, case, rubric, reading, frozenset((given.digest, case.digest)))
    if not found:
        raise RecordError(f"{place}: not a single training row")
    return list(found.values())


def _case(case: Case, row: Mapping[str, Any]) -> Case:
    """Return the case with the responses that the row's verdict is on."""
    verdict = Verdict(case.id, row["judge"], row["rubric"], tuple(row["order"]), extra={"models": row["models"]})
    return as_shown(case, verdict)


def read_judge(path: str, recorded: Sequence[Recorded], name: str | None = None) -> JudgeOfRound:
    """Read one judge's verdicts on the training cases; those on other cases, or by other rubrics, are passed over.

    Args:
        path: verdicts.jsonl.
        name: which judge, where the file holds several.

    Raises:
        RecordError: another judge's verdicts, or several judges and no name; several settings; a verdict that stands twice, is
            on a case that has changed, does not fit its case; a training case without a verdict (Algorithm 2 judges them all).
    """
    known = {each.case.id: each for each in recorded}
    found: dict[str, dict[str, list[Verdict]]] = defaultdict(lambda: defaultdict(list))
    settings: dict[str, set[str | None]] = defaultdict(set)
    seen: dict[tuple, str] = {}
    for place, verdict in read_placed(path, Verdict):
        one = known.get(verdict.case_id)
        if one is None or verdict.rubric != one.rubric.name or (name is not None and verdict.judge != name):
            continue
        if one.rubric.mode == "pairwise" and set(verdict.order) != set(one.order):
            continue  # about another pair than the row
        key = (verdict.judge, *verdict_key(verdict))
        if key in seen:
            raise RecordError(f"{place}: this verdict of {verdict.judge} stands at {seen[key]} already")
        seen[key] = place
        _check(verdict, one, place)
        settings[verdict.judge].add(verdict.extra.get("settings"))
        found[verdict.judge][verdict.case_id].append(verdict)
    rubrics = ", ".join(sorted({each.rubric.name for each in recorded}))
    if not found:
        who = "any judge" if name is None else f"the judge {name!r}"
        raise RecordError(f"{path}: no verdict of {who} by {rubrics} on any of the {len(known):,} training cases")
    if len(found) > 1:
        raise RecordError(f"{path}: verdicts of {', '.join(sorted(found))}: choose one with --judge_name")
    ((judge, verdicts),) = found.items()
    if len(settings[judge]) > 1:
        raise RecordError(f"{path}: verdicts of {judge} with different weights, wording or settings")
    if missing := [case_id for case_id in known if case_id not in verdicts]:
        raise RecordError(
            f"{path}: {judge} has not judged {len(missing):,} of the {len(known):,} training cases, the first "
            f"{missing[0]!r}: judge them all"
        )
    return JudgeOfRound(judge, next(iter(settings[judge])), dict(verdicts))


def _check(verdict: Verdict, recorded: Recorded, place: str) -> None:
    """Refuse a verdict that is on other texts than the row, or that does not fit them."""
    case = recorded.case
    if verdict.extra.get("case_digest", case.digest) not in recorded.digests:
        raise RecordError(f"{place}: the case {case.id!r} has changed since {verdict.judge} judged it")
    if not verdict.order or not set(verdict.order) <= set(range(len(case.responses))):
        raise RecordError(
            f"{place}: the order {list(verdict.order)} does not fit {len(case.responses)} responses of {case.id!r}"
        )
    if not verdict.valid:
        return
    given = verdict.scores if recorded.rubric.scale else verdict.choices
    if not given:
        raise RecordError(f"{place}: a valid verdict without {'scores' if recorded.rubric.scale else 'choices'}")
    if recorded.rubric.scale and all(_at(given, index) is None for index in recorded.order):
        raise RecordError(f"{place}: no score of any response that the verdict on record is on")


def find_mistakes(
    recorded: Sequence[Recorded], judge: JudgeOfRound, tolerance: float = 0.0
) -> tuple[list[Mistake], list[str]]:
    """Return the cases that the judge got wrong, in the order of the rows, and the arithmetic (Algorithm 2, line 6).

    Args:
        tolerance: by how much a score may differ, in points, while the relations agree.
    """
    # Paper: it does not say when an evaluation is incorrect. Here: other relations, or a score off by more than `tolerance`.
    mistakes, partly = [], 0
    for one in recorded:
        verdicts = sorted(judge.verdicts[one.case.id], key=verdict_key)
        partly += any(not set(one.order) <= set(verdict.order) for verdict in verdicts)
        valid = [verdict for verdict in verdicts if verdict.valid]
        if (kind := _kind(one, valid, tolerance)) is not None:
            shown = max(valid, key=lambda verdict: _distance(one, verdict)) if valid else verdicts[0]
            mistakes.append(Mistake(one, kind, shown))
    counts = Counter(mistake.kind for mistake in mistakes)
    told = ", ".join(f"{kind}: {counts[kind]:,}" for kind in KINDS if counts[kind])
    line = f"introspection: {len(recorded):,} cases → {len(mistakes):,} mistakes" + (f" ({told})" if told else "")
    lines = [line]
    if partly:
        lines.append(f"introspection: {partly:,} cases of which the judge saw not every response; those it saw decide")
    return mistakes, lines


def _kind(recorded: Recorded, verdicts: Sequence[Verdict], tolerance: float) -> str | None:
    """Return what is wrong with the valid verdicts on one case, None if nothing is."""
    if not verdicts:
        return "invalid"
    if not recorded.rubric.scale:
        return "choices" if any(_distance(recorded, verdict) for verdict in verdicts) else None
    judged = {}
    for index in recorded.order:
        given = [score for verdict in verdicts if (score := _at(verdict.scores, index)) is not None]
        if given:
            judged[index] = sum(given) / len(given)
    known = {index: recorded.scores[index] for index in judged}
    for one, other in itertools.combinations(judged, 2):
        if _relation(judged[one] - judged[other]) != _relation(known[one] - known[other]):
            return "relations"
    if any(abs(judged[index] - known[index]) > tolerance + SAME for index in judged):
        return "scores"
    return None


def _relation(gap: float) -> int:
    return 0 if abs(gap) <= SAME else (1 if gap > 0 else -1)


def _distance(recorded: Recorded, verdict: Verdict) -> float:
    """Return how far a verdict is from the record: points, or differing choices."""
    if recorded.rubric.scale:
        pairs = [(score, _at(verdict.scores, index)) for index, score in recorded.scores.items()]
        return sum(abs(score - given) for score, given in pairs if given is not None)
    return sum(verdict.choices.get(name) != choice for name, choice in recorded.choices().items())
