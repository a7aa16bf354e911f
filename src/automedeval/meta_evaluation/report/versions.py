"""Join two versions of a model that were judged apart, in two files of cases: they are compared like any two models."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.table import VerdictTable
from automedeval.records import Case, RecordError, Response, Verdict, digest

TEXTS = ("question", "reference", "criteria")  # of a case, which both runs must share


class Judged(NamedTuple):
    """What was read of files of cases and verdicts."""

    cases: Cases
    judges: list[VerdictTable]
    notes: list[str]


def join_versions(old: Judged, new: Judged, old_name: str, new_name: str) -> Judged:
    """Return the cases of two versions with their answers, and the verdicts of the judges of both.

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
    repeated = _repeated(old.cases) | _repeated(new.cases)
    ours, theirs = (_by_id(version.cases, repeated) for version in (old, new))
    shared = [name for name in ours if name in theirs]
    for name in shared:
        _check_texts(ours[name], theirs[name], where)
    if not shared:
        raise RecordError(f"{where} have no case in common: no id is in both")
    records = []
    for name in ours | theirs:
        earlier = ours.get(name)
        later = theirs.get(name)
        responses = [*_renamed(earlier, old_names), *_renamed(later, new_names)]
        records.append(replace(earlier or theirs[name], responses=tuple(responses)))
    # A printed command is on the new file, and has the options of its run.
    cases = Cases(records, new.cases.source)
    notes = old.notes + new.notes
    counts = f"{len(old.cases):,} and {len(new.cases):,} cases"
    notes.append(f"{where}: {counts}; the {len(shared):,} that are in both are compared")
    if repeated:
        again = f"{len(repeated):,} cases whose question stands twice in a file"
        notes.append(f"{where}: left out are {again}: ids would tell them apart")
    judges = []
    for before, after in product(old.judges, new.judges):
        if before.whole_name != after.whole_name:
            continue
        moved = _moved(before, cases, old_names) + _moved(after, cases, new_names)
        joined = VerdictTable(cases, moved, before.rubric, before.name, before.files + after.files)
        joined.read = [*before.read, *after.read]
        judges.append(joined)
        old_settings, new_settings = (
            {(verdict.settings, verdict.checkpoint) for verdict in judge.verdicts}
            for judge in (before, after)
        )
        # Only a limit of tokens can differ within a run, see --again.
        if old_settings.isdisjoint(new_settings):
            differs = "judged the two versions with different settings or weights"
            joined.changed = f"{differs}, which may be what differs"
            notes.append(f"{before.name} {joined.changed}")
    if not judges:
        raise RecordError(f"no judge has verdicts on both {where} by the same rubric")
    return Judged(cases, judges, notes)


def _by_id(cases: Cases, repeated: set[str]) -> dict[str, Case]:
    """Return id → case, in the order of the file, without those that are asked again."""
    records = (cases.records[number] for number in cases.file_order)
    return {case.id: case for case in records if case.id not in repeated}


def _called(version: str, cases: Cases) -> dict[str, str]:
    """Return model → what it is called: by the name of the version, if it has one."""
    if version and len(cases.models) == 1:
        return dict.fromkeys(cases.models, version)
    return {model: f"{version}: {model}" if version else model for model in cases.models}


def _repeated(cases: Cases) -> set[str]:
    """Return the ids of cases without an own id whose question is asked again: only their order would tell them apart."""
    questions = {case.id: digest(case.question) for case in cases.records}
    asked = Counter(questions.values())
    return {name for name, asks in questions.items() if asked[asks] > 1 and asks[:6] in name}


def _check_texts(case: Case, other: Case, where: str) -> None:
    """Raise RecordError if what both runs must share differs."""
    for name in TEXTS:
        if getattr(case, name) != getattr(other, name):
            raise RecordError(f"{where}: case {case.id!r} differs in its {name}")


def _renamed(case: Case | None, names: Mapping[str, str]) -> list[Response]:
    responses = case.responses if case else ()
    return [replace(response, model=names[response.model]) for response in responses]


def _moved(judge: VerdictTable, cases: Cases, names: Mapping[str, str]) -> list[Verdict]:
    """Return a judge's verdicts of one version on the joined cases; `names` are those of its models."""
    own = set(names.values())
    moved = []
    for verdict in judge.verdicts:
        if verdict.case_id not in cases.index:
            continue
        models = cases.case(verdict.case_id).models
        places = [place for place, model in enumerate(models) if model in own]
        differs = (verdict.differs or {}).items()
        choices = (verdict.choices or {}).items()
        on_joined = replace(
            verdict.placed(places, len(models)),
            pair=verdict.pair and (names[verdict.pair[0]], names[verdict.pair[1]]),
            choices={name: names.get(choice, choice) for name, choice in choices} or None,
            differs={names[model]: marks for model, marks in differs},
        )
        moved.append(on_joined)
    return moved
