"""Join two versions of a model that were judged apart, in two files of cases: they are compared like any two models."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import chain, product
from typing import NamedTuple

from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.table import VerdictTable
from automedeval.records import (
    Case,
    RecordError,
    Verdict,
    digest,
    key_of,
    question_text,
)

TEXTS = ("reference", "criteria")  # of a case, which both runs must share
# Question, and own id where it stands several times → id of the joined case
Ids = dict[tuple[str, str], str]


class Judged(NamedTuple):
    """What was read of files of cases and verdicts."""

    cases: Cases
    judges: list[VerdictTable]
    notes: list[str]


def join_versions(old: Judged, new: Judged, old_name: str, new_name: str) -> Judged:
    """Return the cases of two versions with their answers, and the verdicts of the judges of both.

    They are joined by the questions; one that stands several times in a file by its ids.
    A model is called by the name of its version, of several "NAME: model"; where that is "", as it
    is. A case that is in one file alone has the answers of that version.

    Raises:
        RecordError: no case in common; a case whose texts differ; a model or no judge in both.
    """
    where = f"{old.cases.source} and {new.cases.source}"
    old_names = _called(old_name, old.cases)
    new_names = _called(new_name, new.cases)
    if twice := sorted(set(old_names.values()) & set(new_names.values())):
        raise RecordError(
            f"{where} both have the model {twice[0]!r}: name the versions, --cases OLD=FILE NEW=FILE"
        )
    several = _several(old.cases) | _several(new.cases)
    ids: Ids = {}
    ours = _renamed(old.cases, old_names, several, ids)
    theirs = _renamed(new.cases, new_names, several, ids)
    asked: dict[str, str] = {}
    for own, case in chain(ours.items(), theirs.items()):
        if asked.setdefault(own, _asked(case)) != _asked(case):
            raise RecordError(f"{where}: case {own!r} differs in its question")
    by_id = defaultdict[str, list[Case]](list)
    for case in chain(ours.values(), theirs.values()):
        by_id[case.id].append(case)
    records = []
    shared = 0
    for both in by_id.values():
        _check_texts(both, where)
        shared += len(both) > 1
        responses = chain.from_iterable(case.responses for case in both)
        records.append(replace(both[0], responses=tuple(responses)))
    if not shared:
        raise RecordError(
            f"{where} have no case in common: no question, if it stands once or has ids, is in both"
        )
    # A printed command is on the new file, and has the options of its run.
    cases = Cases(records, new.cases.source)
    # Ratings may have the ids of their own file.
    cases.index = {own: cases.index[case.id] for own, case in (ours | theirs).items()} | cases.index
    judges = []
    for before, after in product(old.judges, new.judges):
        if before.whole_name == after.whole_name:
            moved = [
                *_moved(before, cases, old_names, ours),
                *_moved(after, cases, new_names, theirs),
            ]
            judges.append(_joined(before, after, moved, cases))
    if not judges:
        raise RecordError(f"no judge has verdicts on both {where} by the same rubric")
    notes = [
        *old.notes,
        *new.notes,
        f"{where}: {len(ours):,} and {len(theirs):,} cases; the {shared:,} that are in both are compared "
        "(equal cases count once; different ones with one question are no pair without ids)",
        *(f"{judge.name} {judge.changed}" for judge in judges if judge.changed),
    ]
    return Judged(cases, judges, notes)


def _asked(case: Case) -> str:
    """Return what is equal in cases of one question."""
    return key_of(question_text(case.question))


def _own_id(case: Case) -> str:
    """Return the id that the user gave a case; "" where it was made of the question."""
    return "" if digest(case.question)[:6] in case.id else case.id


def _several(cases: Cases) -> set[str]:
    """Return the questions that stand several times with ids."""
    counts = Counter(_asked(case) for case in cases.records if _own_id(case))
    return {question for question, count in counts.items() if count > 1}


def _renamed(
    cases: Cases, names: Mapping[str, str], several: Collection[str], ids: Ids
) -> dict[str, Case]:
    """Return id in the file → case with its id in the joined file, in the order of the file.

    Of equal cases of a question that is not one of `several` the first is taken. Different ones have their texts in the id too:
    only their order would pair them with other texts. `names` are those of the models, `ids` get the ids.
    """
    by_id = defaultdict[str, dict[str, Case]](dict)  # → texts → case
    for number in cases.file_order:
        case = cases.records[number]
        question = _asked(case)
        own = _own_id(case)
        place = question, own if question in several else ""
        name = ids.setdefault(place, own or digest(question))
        by_id[name].setdefault(case.checklist_digest, case)
    renamed = {}
    for name, several in by_id.items():
        for texts, case in several.items():
            new_id = f"{name}/{texts}" if len(several) > 1 else name
            responses = [replace(answer, model=names[answer.model]) for answer in case.responses]
            renamed[case.id] = replace(case, id=new_id, responses=tuple(responses))
    return renamed


def _called(version: str, cases: Cases) -> dict[str, str]:
    """Return model → what it is called: by the name of the version, if it has one."""
    if version and len(cases.models) == 1:
        return dict.fromkeys(cases.models, version)
    return {model: f"{version}: {model}" if version else model for model in cases.models}


def _check_texts(both: list[Case], where: str) -> None:
    """Raise RecordError if what both runs must share differs in more than blanks."""
    for name in TEXTS:
        if len({key_of(str(getattr(case, name) or "")) for case in both}) > 1:
            raise RecordError(f"{where}: case {both[0].id!r} differs in its {name}")


def _joined(
    before: VerdictTable, after: VerdictTable, verdicts: list[Verdict], cases: Cases
) -> VerdictTable:
    """Return the judge of these verdicts on the joined cases, with what it did otherwise."""
    joined = VerdictTable(cases, verdicts, before.rubric, before.name, before.files + after.files)
    joined.read = [*before.read, *after.read]
    old_settings, new_settings = (
        {(verdict.settings, verdict.checkpoint) for verdict in judge.verdicts}
        for judge in (before, after)
    )
    # Only a limit of tokens can differ within a run, see --again.
    if old_settings.isdisjoint(new_settings):
        joined.changed = (
            "judged the two versions with different settings or weights, which may be what differs"
        )
    return joined


def _moved(
    judge: VerdictTable, cases: Cases, names: Mapping[str, str], ours: Mapping[str, Case]
) -> Iterator[Verdict]:
    """Yield a judge's verdicts of one version on the joined cases; `names` are those of its models, `ours` its cases."""
    for verdict in judge.verdicts:
        if verdict.case_id not in ours:
            continue
        own = ours[verdict.case_id]
        case = cases.case(own.id)
        places = [case.models.index(model) for model in own.models]
        differs = (verdict.differs or {}).items()
        choices = (verdict.choices or {}).items()
        yield replace(
            verdict.placed(places, len(case.models)),
            case_id=case.id,
            pair=verdict.pair and (names[verdict.pair[0]], names[verdict.pair[1]]),
            choices={name: names.get(choice, choice) for name, choice in choices} or None,
            differs={names[model]: marks for model, marks in differs},
        )
