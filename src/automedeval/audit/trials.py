"""Make the changed cases of a perturbation: which answer of a case is changed, by which edit, and what it is compared with.

Which answer is the best and which the worst, the judge's verdict on the unchanged case says. A changed case is shown like the
unchanged one, with the same responses in the same places.
"""

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from automedeval.audit.perturbations import CLEAN, Edit, Perturbation, fill, names_for
from automedeval.judges.requests import Request
from automedeval.records import Case, question_text
from automedeval.rubrics import Rubric

COPY = Edit("identical", "identical", text="$text")


@dataclass(frozen=True)
class ValuedAnswer:
    """An answer that a valid verdict on the unchanged case has a value of, by its index in the case."""

    request: Request
    index: int
    value: float

    @property
    def text(self) -> str:
        return self.request.case.responses[self.index].text


@dataclass(frozen=True)
class Trial:
    """Two requests that differ in one thing."""

    perturbation: Perturbation
    kind: str  # the group in the table
    edit: str  # the name of the change
    clean: Request  # for the unchanged case
    before: Request  # one side: `clean`, unless both sides are changed
    after: Request
    target: int | None = None  # the index of the changed response; None: all responses are compared
    other: int | None = (
        None  # the index of the response that is a copy of the target, and is compared with it
    )
    control: bool = False  # whether the change is harmless, and only shown beside the others


@dataclass
class Planner:
    """Plan the trials of perturbations."""

    rubric: Rubric  # the one at which planted texts aim
    apart: bool = False  # whether the judge looks at each response by itself: only changed ones need to be shown
    most: int | None = (
        None  # edits of the worst or a good answer of a case, drawn by `seed`, dealt in turn; None: all
    )
    seed: int = 0
    # Subject of an edit → case → why it is left out; filled while trials are planned.
    left_out: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))

    def plan(
        self, perturbation: Perturbation, cases: Sequence[Sequence[ValuedAnswer]]
    ) -> list[Trial]:
        """Return the trials of a perturbation, each edit about equally often over the cases.

        Args:
            cases: the answers of each case, the worst first; a case without any has no trials.
        """
        planned = (
            _CasePlan(self, perturbation, number, answers)
            for number, answers in enumerate(cases)
            if answers
        )
        return (
            []
            if perturbation.should in CLEAN
            else [trial for case in planned for trial in case.all()]
        )


@dataclass(frozen=True)
class _CasePlan:
    """The trials of a perturbation in one case, the answers of which are given, the worst first."""

    planner: Planner
    perturbation: Perturbation
    number: int
    answers: Sequence[ValuedAnswer]

    def all(self) -> Iterator[Trial]:
        """Yield the trials, and then the controls: as many of the kind of an edit as there are in an answer, and one other."""
        yield from (made := list(self._trials()))
        controls = self.perturbation.controls
        kinds = {edit.kind for edit in self.perturbation.edits}
        for edit in self._dealt([each for each in controls if each.kind not in kinds], 1):
            yield from self._edited(edit, self.answers[0], control=True)
        by_index = {answer.index: answer for answer in self.answers}
        for (target, kind), count in Counter((trial.target, trial.kind) for trial in made).items():
            answer = self.answers[0] if target is None else by_index[target]
            alike = (each for each in controls if each.kind == kind)
            yield from islice(
                (trial for edit in alike for trial in self._edited(edit, answer, control=True)),
                count,
            )

    def _dealt(self, edits: Sequence[Edit], each: int) -> list[Edit]:
        """Return so many edits, those that are the turn of this case."""
        each = min(each, len(edits))
        return [edits[(self.number * each + turn) % len(edits)] for turn in range(each)]

    def _trials(self) -> Iterator[Trial]:
        changes = self.perturbation.changes
        edits = self.perturbation.edits
        most = self.planner.most
        worst, best = self.answers[0], self.answers[-1]
        if changes == "worst answer":
            shuffled = list(edits)
            random.Random(self.planner.seed).shuffle(shuffled)
            for edit in self._dealt(shuffled, most or len(edits)):
                yield from self._edited(edit, worst)
        elif changes == "good answer":
            good = self.answers[:0:-1] or self.answers
            tried = (
                (trial for answer in good for trial in self._edited(edit, answer)) for edit in edits
            )
            made = [first for trials in tried for first in islice(trials, 1)]
            taken = (
                range(self.number, self.number + most)
                if most and most < len(made)
                else range(len(made))
            )
            yield from (made[place % len(made)] for place in taken)
        elif changes in ("one answer", "question"):
            in_order = sorted(self.answers, key=lambda answer: answer.index)
            for edit in edits:
                yield from self._edited(edit, in_order[self.number % len(in_order)])
        elif changes == "other answer" and len(self.answers) > 1:
            for edit in edits or [COPY]:
                yield from self._edited(edit, best, worst.index)
        elif changes == "nothing":
            for request in {answer.request.key: answer.request for answer in self.answers}.values():
                yield self._trial("again", "again", request, [request.case])

    def _edited(
        self, edit: Edit, answer: ValuedAnswer, place: int | None = None, control: bool = False
    ) -> Iterator[Trial]:
        """Yield the trials of an edit on an answer or its question, none where it cannot be made.

        Args:
            place: the index of the response that the new text replaces; None: the answer itself.
        """
        asks = self.perturbation.changes == "question"
        request = answer.request
        case = answer.request.case
        searched = [answer.text]
        if asks:
            searched = [
                question_text(case.question),
                case.reference or "",
                *(each.text for each in case.responses),
            ]
        if reason := next(
            (why for why, each in edit.skip.items() if any(map(each.search, searched))), None
        ):
            self.planner.left_out[f"{self.perturbation.name}, {edit.kind.partition(':')[0]}"][
                case.id
            ] = reason
            return
        changed = answer.index if place is None else place
        old, names = answer.text, {} if asks else self._names(answer)
        if asks:
            old = case.question if isinstance(case.question, str) else case.question[-1]["content"]
        if edit.pairs:
            texts = [fill(text, old, names) for text in edit.pairs[self.number % len(edit.pairs)]]
        elif (new := edit.apply(old, names)) is not None:
            texts = [new]
        else:
            return
        cases = [_asking(case, text) if asks else _answering(case, changed, text) for text in texts]
        trial = self._trial(
            edit.kind, edit.name, request, cases, None if asks else answer.index, place
        )
        yield replace(trial, control=control)

    def _names(self, answer: ValuedAnswer) -> dict[str, object]:
        request, rubric = answer.request, self.planner.rubric
        rubric = rubric.about(request.case.criteria) if request.checklist else rubric
        place = request.slots.index(answer.index)
        return names_for(rubric, len(request.slots), place, question_text(request.case.question))

    def _trial(
        self,
        kind: str,
        edit: str,
        clean: Request,
        cases: list[Case],
        at: int | None = None,
        other: int | None = None,
    ) -> Trial:
        """Return a trial whose last side is the last of the cases; if there are two, the first one is the other side."""
        note = {
            "of": clean.case.id,
            "perturbation": self.perturbation.name,
            "kind": kind,
            "edit": edit,
        }
        note |= {} if at is None else {"response": clean.case.models[at]}
        slots = clean.slots
        if self.planner.apart and len(cases) == 1 and at is not None:
            slots = tuple(sorted({at, at if other is None else other}))
        sides = [replace(clean, case=_named(case, note), slots=slots) for case in cases]
        before = sides[0] if len(sides) == 2 else clean
        return Trial(self.perturbation, kind, edit, clean, before, sides[-1], at, other)


def _named(case: Case, note: dict[str, str]) -> Case:
    """Return a changed case with a note of its change, and an id of its content, whatever characters the old id has."""
    content = [
        note.get("response"),
        case.question,
        [each.text for each in case.responses],
        case.criteria,
    ]
    mark = hashlib.sha256(repr(content).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return replace(
        case, id=f"{case.id}#{note['perturbation']}-{mark}", extra={**case.extra, "audit": note}
    )


def _answering(case: Case, index: int, text: str) -> Case:
    responses = (
        replace(each, text=text) if at == index else each for at, each in enumerate(case.responses)
    )
    return replace(case, responses=tuple(responses))


def _asking(case: Case, text: str) -> Case:
    question = case.question
    changed = (
        text if isinstance(question, str) else [*question[:-1], question[-1] | {"content": text}]
    )
    return replace(case, question=changed)
