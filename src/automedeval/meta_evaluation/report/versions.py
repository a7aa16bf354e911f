"""Join two versions of a model that were judged apart, in two files of cases: they are compared like any two models."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.meta_evaluation.verdict_files import read_verdicts
from automedeval.records import Case, JsonObject, RecordError, Response, Verdict, digest, named_file

TEXTS = ("question", "reference", "criteria")  # of a case, which both runs must share


class Version(NamedTuple):
    """What was read of one version."""

    cases: Cases
    judges: dict[tuple[str, ...], VerdictTable]  # by judge and rubric
    names: dict[str, str]  # model in the file → what it is called beside the other version


def join_versions(
    files: Sequence[str],
    verdicts: Sequence[str],
    rubric: str | None = None,
    reserved: Collection[str] = (),
    *tables: JsonObject,
) -> tuple[Cases, list[VerdictTable], list[str]]:
    """Return the cases of two versions with the answers of both, the verdicts of the judges of both, and notes.

    Args:
        files: the cases of the old and of the new version; in NAME=FILE a model is called NAME, of several "NAME: model".
        verdicts: the file or folder of the verdicts of each.
        rubric, reserved: as `read_verdicts` has them.
        tables: the options of `read_cases` for each.

    Raises:
        RecordError: a fault of `read_verdicts`; no case in common; a case whose texts differ; a model
            or no judge in both.
    """
    versions, notes = [], []
    for named, path, table in zip(files, verdicts, tables, strict=True):
        name, file = named_file(named)
        cases = Cases.read(file, **table)
        judges, more = read_verdicts([path], cases, rubric, reserved=reserved)
        by_author = {judge.verdicts[0].author: judge for judge in judges}
        versions.append(Version(cases, by_author, _called(name, cases.models)))
        notes += more
    old, new = versions
    where = f"{old.cases.source} and {new.cases.source}"
    if twice := sorted(set(old.names.values()) & set(new.names.values())):
        raise RecordError(
            f"{where} both have the model {twice[0]!r}: name the versions, --cases OLD=FILE NEW=FILE"
        )
    repeated = _repeated(old.cases) | _repeated(new.cases)
    # The file that a printed command names is the new one.
    cases = Cases(_joined(old, new, where, repeated), new.cases.source)
    counts = f"{len(old.cases):,} and {len(new.cases):,} cases"
    notes.append(f"{where}: {counts}; the {len(cases):,} that are in both are compared")
    if repeated:
        again = f"{len(repeated):,} cases whose question stands twice in a file"
        notes.append(f"{where}: left out are {again}: ids would tell them apart")
    judges = []
    for author, before in old.judges.items():
        if author not in new.judges:
            continue
        after = new.judges[author]
        moved = _moved(before, cases, old.names) + _moved(after, cases, new.names)
        judges.append(VerdictTable(cases, moved, before.rubric, before.name, before.file))
        if (before.settings, before.checkpoint) != (after.settings, after.checkpoint):
            differs = "judged the two versions with different settings or weights"
            notes.append(f"{before.name} {differs}, which may be what differs")
    if not judges:
        raise RecordError(f"no judge has verdicts on both {where} by the same rubric")
    return cases, judges, notes


def _called(version: str, models: Sequence[str]) -> dict[str, str]:
    """Return model → what it is called: by the name of the version, if it has one."""
    if not version:
        return {model: model for model in models}
    return {model: f"{version}: {model}" if len(models) > 1 else version for model in models}


def _repeated(cases: Cases) -> set[str]:
    """Return the ids of cases without an own id whose question is asked again: only their order would tell them apart."""
    asked = Counter(case.question for case in cases.records)
    named = (case for case in cases.records if digest(case.question)[:6] in case.id)
    return {case.id for case in named if asked[case.question] > 1}


def _joined(old: Version, new: Version, where: str, without: Collection[str]) -> list[Case]:
    """Return the cases that are in both, but for some, in the order of the old file, with the answers of both."""
    joined = []
    for number in old.cases.file_order:
        case = old.cases.records[number]
        if case.id not in new.cases.index or case.id in without:
            continue
        other = new.cases.records[new.cases.index[case.id]]
        for name in TEXTS:
            if getattr(case, name) != getattr(other, name):
                raise RecordError(f"{where}: case {case.id!r} differs in its {name}")
        responses = (*_renamed(case, old.names), *_renamed(other, new.names))
        joined.append(replace(case, responses=responses))
    if not joined:
        raise RecordError(f"{where} have no case in common: no id is in both")
    return joined


def _renamed(case: Case, names: Mapping[str, str]) -> list[Response]:
    return [replace(response, model=names[response.model]) for response in case.responses]


def _moved(judge: VerdictTable, cases: Cases, names: Mapping[str, str]) -> list[Verdict]:
    """Return a judge's verdicts of one version on the joined cases; `names` are those of its models."""
    own, moved = set(names.values()), []
    for verdict in judge.verdicts:
        if verdict.case_id not in cases.index:
            continue
        models = cases.records[cases.index[verdict.case_id]].models
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
