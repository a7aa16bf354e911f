"""Read a study: its cases, its verdicts, its annotators, and the items that each of them answers (paper, section 4.2).

A study is one YAML file; recipes/runs/automedeval-135m/annotate.yaml explains its keys. The kinds of items are "rate"
(score each response, then the verdicts on them), "verify" (check a teacher's verdict before it is trained on), "jury" (decide
about a mistake without a consensus), "prefer" (choose the better of two verdicts, blinded to the judges) and "harm" (say how
bad, how likely and by what the worst harm of each response is).
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

from automedeval.annotation.jury_queue import Dispute, read_disputes
from automedeval.records import (
    Case,
    Verdict,
    as_shown,
    digest,
    errors_at,
    placed_verdicts,
)
from automedeval.records.arguments import BLANK
from automedeval.records.tables.cases import read_cases
from automedeval.records.teachers import teacher_arguments
from automedeval.records.yaml_file import YamlFile
from automedeval.rubrics import (
    TAGS,
    Questions,
    Rubric,
    read_questions,
    read_rubric,
    rubrics_with,
)

DOCTORS = ("attending", "chief")
ROLES = (*DOCTORS, "master_candidate")
KINDS = ("rate", "verify", "jury", "prefer", "harm")
# Paper: chief physicians verify the data set and are the jury; all five doctors rate responses and verdicts. Master candidates
# compare verdicts; here everybody of a study does, if it does not say who.
ROLES_OF = {"verify": ("chief",), "jury": ("chief",), "prefer": ROLES} | dict.fromkeys(
    ("rate", "harm"), DOCTORS
)
ORDERS = ("file", "random")
# Parts of an assignment; the part on a judge's verdict is VERDICT and the judge's name.
RESPONSES = "responses"
VERDICT = "verdict:"
DECISION = "decision"
PREFERENCE = "preference"
HARM = "harm"
KEYS = (
    "title", "cases", "blank", "columns", "limit", "verdicts", "rubric", "verdict_rubric", *KINDS, "annotators", "order",
    "seed", "database",
)  # fmt: skip
ANNOTATOR = {"name": (str,), "role": (str, ..., ROLES)}
_ASSIGNED = ("raters", "overlap", "draw", "roles")
PLAN_KEYS = {
    "jury": ("queue", "roles"),
    "harm": _ASSIGNED,
    **dict.fromkeys(("rate", "verify", "prefer"), (*_ASSIGNED, "judges")),
}
Verdicts = dict[tuple[str, str], Verdict]  # (case id, judge) → the one to rate or compare


@dataclass(frozen=True)
class Annotator:
    """A physician who takes part; `role` is one of ROLES."""

    name: str
    role: str


@dataclass(frozen=True)
class KindPlan:
    """How the items of one kind are assigned.

    An item needs `raters` annotators; the first `overlap` items need every annotator of the `roles`, of whom there are `able`.
    Of the cases, `draw` are drawn at random (None: all). The verdicts of `judges` are rated, or two judges are compared.
    """

    kind: str
    raters: int
    overlap: int
    roles: tuple[str, ...]
    able: int
    judges: tuple[str, ...]
    draw: int | None


@dataclass(frozen=True)
class Item:
    """One case under one kind, to be answered by `needed` annotators (0: the item of a stored row, which does not say).

    The verdicts of `judges` are rated (those that have a valid one on the case), or two judges are compared.
    """

    key: str
    kind: str
    case_id: str
    judges: tuple[str, ...]
    needed: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Study:
    """A study, with the content of the files that it names."""

    title: str
    place: str  # its file
    rubric: Rubric  # about responses; about harm it is the rubric `harm`
    verdict_questions: Questions
    cases: Mapping[
        str, Case
    ]  # by id, with the responses that are shown: its own, and the reference if a teacher judged it
    response_counts: Mapping[str, int]  # case id → number of the case's own responses
    verdicts: Verdicts
    disputes: Mapping[str, Dispute]  # case id → the mistake that the jury decides
    annotators: Mapping[str, Annotator]  # by name, in the order of the file
    plans: Mapping[str, KindPlan]  # by kind, in the order of the file
    items: tuple[Item, ...]  # in the order in which they are assigned
    seed: int
    database: str  # path of the SQLite file that keeps the answers

    @cached_property
    def harm_rubric(self) -> Rubric:
        return read_rubric("harm")

    @cached_property
    def fingerprint(self) -> str:
        """Return twelve hexadecimal digits over the questions and everything shown, but not over annotators and assignment."""
        judged = [[*key, *_content_of(verdict)] for key, verdict in self.verdicts.items()]
        disputed = []
        for dispute in self.disputes.values():
            recorded = _content_of(dispute.recorded)
            disputed.append([*recorded, dispute.recorded.order, _content_of(dispute.judged)])
        content: list[Any] = [self.rubric.fingerprint, self.verdict_questions.fingerprint]
        if "harm" in self.plans:
            content.append(self.harm_rubric.fingerprint)
        content += sorted([case.id, case.digest] for case in self.cases.values())
        content += sorted(judged, key=json.dumps)
        content += sorted(disputed, key=json.dumps)
        return digest(content)

    def case_of(self, item: Item) -> Case:
        """Return the case as shown for an item; the order of an assignment holds indices of its responses."""
        return self.disputes[item.case_id].case if item.kind == "jury" else self.cases[item.case_id]

    def is_reference(self, item: Item, response: int) -> bool:
        """Return whether a response is the reference. Its name does not tell: a model may be called "reference"."""
        return response >= self.response_counts[item.case_id]

    def rubric_of(self, item: Item) -> Rubric:
        """Return the rubric of what an item asks of responses."""
        if item.kind == "harm":
            return self.harm_rubric
        return self.disputes[item.case_id].rubric if item.kind == "jury" else self.rubric


def _content_of(verdict: Verdict) -> list:
    return [verdict.case_id, verdict.judge, verdict.order, verdict.rationale, verdict.scores]


def read_study(path: str | Path) -> Study:
    """Read a study's YAML and the files that it names.

    Of several verdicts of a judge on a case the first by run and order is used. Verdicts that are invalid or have no rationale
    are left out. Raise RecordError for a faulty key, or a fault of a file that the study names.
    """
    return _StudyReader(str(path)).study()


class _StudyReader(YamlFile):
    def texts(
        self,
        mapping: Mapping,
        key: str,
        default: Any = ...,
        allowed: Sequence[str] = (),
        inside: str = "",
    ) -> tuple[str, ...]:
        """Return one text or a list of texts as a tuple without repetitions."""
        value = mapping.get(key)
        given = {**mapping, key: [value]} if isinstance(value, str) else mapping
        values = self.take(given, key, list, default, allowed, inside=inside)
        if not all(isinstance(text, str) and text for text in values):
            self.fail(inside + key, f"must be a text or a list of texts, not {value!r}")
        return tuple(dict.fromkeys(values))

    def study(self) -> Study:
        content = self.read()
        self.only(content, KEYS)
        title = self.take(content, "title", str)
        database = self.take(content, "database", str)
        if "://" in database or not database.strip():
            self.fail("database", "must be the path of an SQLite file")
        seed = self.take(content, "seed", int, 0)
        order = self.take(content, "order", str, "file", ORDERS)
        annotators = self.annotators(content)
        rubric, questions = self.rubrics(content)
        given = self.cases(content)
        limit = self.take(content, "limit", int, len(given), least=1)
        cases = dict(list(given.items())[:limit])
        verdicts = {}
        for (case_id, judge), verdict in self.verdicts(content, cases, rubric).items():
            judged = as_shown(given[case_id], verdict)
            if judged is not given[case_id]:
                cases[case_id] = judged
            if (verdict.rationale or "").strip():
                verdicts[case_id, judge] = verdict
        plans = self.plans(content, annotators.values(), verdicts)
        disputes = {}
        if "jury" in plans:
            queue = self.take(content["jury"] or {}, "queue", str, inside="jury.")
            disputes = read_disputes(queue, given, rubrics_with([]) | {rubric.name: rubric})
        items = []
        for plan in plans.values():
            asked = list(disputes) if plan.kind == "jury" else self.askable(plan, cases, verdicts)
            asked = self.drawn(plan, asked, seed)
            if order == "random":
                asked = random.Random(f"{seed}:order").sample(asked, len(asked))
            for place, case_id in enumerate(asked):
                needed = plan.able if place < plan.overlap else plan.raters
                judges = _judges_on(case_id, plan, verdicts)
                compared = judges if plan.kind == "prefer" else ()
                key = "/".join((plan.kind, case_id, *compared))
                items.append(Item(key, plan.kind, case_id, judges, needed))
        counts = {case.id: len(case.responses) for case in given.values()}
        return Study(
            title, self.place, rubric, questions, cases, counts, verdicts, disputes, annotators,
            plans, tuple(items), seed, database,
        )  # fmt: skip

    def plans(
        self, content: Mapping, annotators: Iterable[Annotator], verdicts: Verdicts
    ) -> dict[str, KindPlan]:
        """Return the plans of the kinds that the study has, in the order of the file."""
        kinds = [kind for kind in content if kind in KINDS]
        plans = {kind: self.plan(kind, content[kind], annotators, verdicts) for kind in kinds}
        if not plans:
            self.fail("the file", f"needs at least one of {', '.join(KINDS)}")
        if "verify" in plans and {"rate", "prefer"} & plans.keys():
            self.fail(
                "verify", "asks its own questions about verdicts: it needs a study of its own"
            )
        return plans

    def askable(self, plan: KindPlan, cases: Iterable[str], verdicts: Verdicts) -> list[str]:
        """Return the cases that have the verdicts which a kind needs."""
        least = {"verify": 1, "prefer": 2}.get(plan.kind, 0)
        ids = [case_id for case_id in cases if len(_judges_on(case_id, plan, verdicts)) >= least]
        if not ids:
            self.fail(plan.kind, "no case has the valid verdicts that it needs")
        return ids

    def drawn(self, plan: KindPlan, ids: list[str], seed: int) -> list[str]:
        """Return the cases that a plan draws, in their order; all of them without `draw`."""
        if plan.draw is None:
            return ids
        if not 1 <= plan.draw <= len(ids):
            allowed = f"must be from 1 to the {len(ids):,} cases to draw from"
            self.fail(f"{plan.kind}.draw", f"{allowed}, not {plan.draw}")
        # Paper: Appendix E has "87 randomly selected test samples". The order of the file does not change the draw.
        chosen = set(random.Random(f"{seed}:draw:{plan.kind}").sample(sorted(ids), plan.draw))
        return [case_id for case_id in ids if case_id in chosen]

    def annotators(self, content: Mapping) -> dict[str, Annotator]:
        annotators = {}
        for number, entry in enumerate(self.take(content, "annotators", list)):
            inside = f"annotators[{number}]."
            annotator = Annotator(**self.values(entry, ANNOTATOR, inside))
            name = annotator.name
            if not name.strip() or not name.isprintable():
                self.fail(f"{inside}name", f"must be printable characters, not {name!r}")
            if name in annotators:
                self.fail(f"{inside}name", f"{name!r} came before")
            annotators[name] = annotator
        if not annotators:
            self.fail("annotators", "needs one annotator at least")
        return annotators

    def rubrics(self, content: Mapping) -> tuple[Rubric, Questions]:
        name = self.take(content, "rubric", str, "automedeval")
        with errors_at(f"{self.place}: rubric"):
            rubric = read_rubric(name)
        usual = "verification" if "verify" in content else "verdict"
        name = self.take(content, "verdict_rubric", str, usual)
        with errors_at(f"{self.place}: verdict_rubric"):
            questions = read_questions(name)
        for kind in ("rate", "verify", "prefer"):
            if kind in content and not rubric.scale:
                self.fail("rubric", f"{rubric.name} gives choices; {kind} needs a scale")
        for tag in questions.tags:
            if tag not in TAGS:
                self.fail("verdict_rubric", f"the tag {tag!r} is none of {', '.join(TAGS)}")
        return rubric, questions

    def cases(self, content: Mapping) -> dict[str, Case]:
        cases = {}
        blank = self.take(content, "blank", str, None, BLANK)
        columns = self.texts(content, "columns", ())
        for file in self.texts(content, "cases"):
            for case in read_cases(file, blank=blank, columns=columns):
                if case.id in cases:
                    self.fail("cases", f"the id {case.id!r} of {file} stands in another file")
                cases[case.id] = case
        return cases

    def verdicts(self, content: Mapping, cases: Mapping[str, Case], rubric: Rubric) -> Verdicts:
        """Return the valid verdicts on the cases by the study's rubric; skip verdicts on other cases or by other rubrics."""
        verdicts: Verdicts = {}
        files = self.texts(content, "verdicts", ())
        for _, verdict in placed_verdicts(files, cases, with_reference=True):
            if verdict.case_id in cases and verdict.valid and verdict.rubric == rubric.name:
                key = (verdict.case_id, verdict.judge)
                both = (verdicts.get(key, verdict), verdict)
                verdicts[key] = min(both, key=attrgetter("run", "order"))
        return verdicts

    def plan(
        self,
        kind: str,
        entry: Any,
        annotators: Iterable[Annotator],
        verdicts: Verdicts,
    ) -> KindPlan:
        entry = {} if entry is None else entry
        inside = f"{kind}."
        self.only(entry, PLAN_KEYS[kind], inside)
        entry = {**entry, **teacher_arguments(entry, self.place)}
        raters = self.take(entry, "raters", int, 1, inside=inside)
        overlap = self.take(entry, "overlap", int, 0, inside=inside, least=0)
        draw = self.take(entry, "draw", int, None, inside=inside)
        roles = self.texts(entry, "roles", ROLES_OF[kind], ROLES, inside)
        able = sum(annotator.role in roles for annotator in annotators)
        if not 1 <= raters <= able:
            allowed = f"must be from 1 to the {able} annotators with the roles"
            self.fail(f"{inside}raters", f"{allowed}, not {raters}")
        judging = tuple(dict.fromkeys(judge for _, judge in verdicts))
        usual = {"prefer": ..., "jury": (), "harm": ()}.get(kind, judging)
        judges = self.texts(entry, "judges", usual, inside=inside)
        if kind == "prefer":
            if len(judges) != 2:
                self.fail(f"{inside}judges", f"must name two judges, not {len(judges)}")
            if "tie" in judges:
                self.fail(f"{inside}judges", "a judge cannot be called 'tie', which is a choice")
        for judge in sorted(set(judges) - set(judging)):
            fault = f"no valid verdict with a rationale of {judge!r} on these cases"
            self.fail(f"{inside}judges", fault)
        return KindPlan(kind, raters, overlap, roles, able, judges, draw)


def _judges_on(case_id: str, plan: KindPlan, verdicts: Verdicts) -> tuple[str, ...]:
    """Return the judges of a plan that have a verdict on a case."""
    return tuple(judge for judge in plan.judges if (case_id, judge) in verdicts)
