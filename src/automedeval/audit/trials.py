"""Make the changed cases of a perturbation: which answer of a case is changed, by which edit, and what it is compared with.

Which answer is the best and which the worst, the judge's verdict on the unchanged case says. A changed case is shown like the
unchanged one, with the same responses in the same places.
"""

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from automedeval.audit.perturbations import CLEAN, Edit, Names, Perturbation, names_for
from automedeval.judges.requests import Request
from automedeval.records import Case, question_text
from automedeval.records.messages import as_turns
from automedeval.rubrics import Rubric

COPY = Edit("identical", "identical", texts=[["$text"]])


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
    # The index of the response that is a copy of the target, and is compared with it.
    other: int | None = None
    control: bool = False  # whether the change is harmless, and only shown beside the others


@dataclass
class Planner:
    """Plan the trials of perturbations."""

    rubric: Rubric  # the one at which planted texts aim
    apart: bool = False  # whether the judge looks at each response by itself: only changed ones need to be shown
    # Edits of the worst or a good answer of a case, drawn by `seed`, dealt in turn; None: all.
    most: int | None = None
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
        trials: list[Trial] = []
        if perturbation.should in CLEAN:
            return trials
        for number, answers in enumerate(cases):
            if answers:
                trials += _CasePlan(self, perturbation, number, answers).all()
        return trials


@dataclass(frozen=True)
class _CasePlan:
    """The trials of a perturbation in one case, the answers of which are given, the worst first."""

    planner: Planner
    perturbation: Perturbation
    number: int
    answers: Sequence[ValuedAnswer]

    def all(self) -> Iterator[Trial]:
        """Yield the trials, and then the controls: as many of the kind of an edit as there are in an answer, and one other."""
        made = self._trials()
        yield from made
        controls = self.perturbation.controls
        kinds = {edit.kind for edit in self.perturbation.edits}
        for edit in self._dealt([control for control in controls if control.kind not in kinds], 1):
            yield from self._edited(edit, self.answers[0], control=True)
        by_index = {answer.index: answer for answer in self.answers}
        for (target, kind), count in Counter((trial.target, trial.kind) for trial in made).items():
            answer = self.answers[0] if target is None else by_index[target]
            alike = (
                self._edited(edit, answer, control=True) for edit in controls if edit.kind == kind
            )
            yield from islice(chain.from_iterable(alike), count)

    def _dealt(self, edits: Sequence[Edit], count: int) -> list[Edit]:
        """Return so many edits, those that are the turn of this case."""
        count = min(count, len(edits))
        return [edits[(self.number * count + turn) % len(edits)] for turn in range(count)]

    def _trials(self) -> list[Trial]:
        """Return a trial of each edit whose turn it is, on the first of some answers that it can change."""
        changes = self.perturbation.changes
        most = self.planner.most
        edits = list(self.perturbation.edits)
        worst = self.answers[0]
        best = self.answers[-1]
        answers = [worst]
        place = None
        if changes == "nothing":
            requests = {answer.request.key: answer.request for answer in self.answers}.values()
            return [self._trial("again", "again", request, [request.case]) for request in requests]
        if changes == "worst answer":
            random.Random(self.planner.seed).shuffle(edits)
            edits = self._dealt(edits, most or len(edits))
        elif changes == "good answer":  # the best first, never the worst of several
            answers = [*self.answers[:0:-1]] or answers
        elif changes == "other answer":
            answers = [best] if best is not worst else []
            place = worst.index
            edits = edits or [COPY]
        else:
            in_order = sorted(self.answers, key=lambda answer: answer.index)
            answers = [in_order[self.number % len(in_order)]]
        made: list[Trial] = []
        for edit in edits:
            on_each = (self._edited(edit, answer, place) for answer in answers)
            made += islice(chain.from_iterable(on_each), 1)
        if changes == "good answer" and most and most < len(made):
            made = [made[turn % len(made)] for turn in range(self.number, self.number + most)]
        return made

    def _edited(
        self, edit: Edit, answer: ValuedAnswer, place: int | None = None, control: bool = False
    ) -> Iterator[Trial]:
        """Yield the trials of an edit on an answer or its question, none where it cannot be made.

        Args:
            place: the index of the response that the new text replaces; None: the answer itself.
        """
        if reason := self._reason_against(edit, answer):
            subject = f"{self.perturbation.name}, {edit.kind.partition(':')[0]}"
            self.planner.left_out[subject][answer.request.case.id] = reason
            return
        case = answer.request.case
        target = None
        if self.perturbation.changes == "question":
            asked = as_turns(case.question)[-1]["content"]
            cases = [_asking(case, text) for text in edit.apply(asked, {}, self.number)]
        else:
            target = answer.index
            changed = target if place is None else place
            texts = edit.apply(answer.text, self._names(answer), self.number)
            cases = [_answering(case, changed, text) for text in texts]
        if cases:
            trial = self._trial(edit.kind, edit.name, answer.request, cases, target, place)
            yield replace(trial, control=control)

    def _reason_against(self, edit: Edit, answer: ValuedAnswer) -> str | None:
        """Return why a case is left out of an edit; None if it is not."""
        texts = [answer.text]
        if self.perturbation.changes == "question":
            case = answer.request.case
            texts = [question_text(case.question), case.reference or ""]
            texts += [response.text for response in case.responses]
        for reason, pattern in edit.skip.items():
            if any(map(pattern.search, texts)):
                return reason
        return None

    def _names(self, answer: ValuedAnswer) -> Names:
        request = answer.request
        rubric = self.planner.rubric
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
        name = self.perturbation.name
        note = {"of": clean.case.id, "perturbation": name, "kind": kind, "edit": edit}
        if at is not None:
            note["response"] = clean.case.models[at]
        slots = clean.slots
        if self.planner.apart and len(cases) == 1 and at is not None:
            slots = tuple(sorted({at, at if other is None else other}))
        sides = [replace(clean, case=_named(case, note), slots=slots) for case in cases]
        before, after = [clean, *sides][-2:]
        return Trial(self.perturbation, kind, edit, clean, before, after, at, other)


def _named(case: Case, note: dict[str, str]) -> Case:
    """Return a changed case with a note of its change, and an id of its content, whatever characters the old id has."""
    texts = [response.text for response in case.responses]
    content = [note.get("response"), case.question, texts, case.criteria]
    mark = hashlib.sha256(repr(content).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    name = f"{case.id}#{note['perturbation']}-{mark}"
    return replace(case, id=name, extra={**case.extra, "audit": note})


def _answering(case: Case, index: int, text: str) -> Case:
    responses = list(case.responses)
    responses[index] = replace(responses[index], text=text)
    return replace(case, responses=tuple(responses))


def _asking(case: Case, text: str) -> Case:
    question = case.question
    if isinstance(question, str):
        return replace(case, question=text)
    return replace(case, question=[*question[:-1], question[-1] | {"content": text}])
