"""Join two versions of a model that were judged apart, in two files of cases: they are compared like any two models."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.meta_evaluation.verdict_files import read_verdicts
from automedeval.records import Case, RecordError, Verdict, named_file

TEXTS = ("question", "reference", "criteria")  # of a case, which both runs must share


def join_versions(
    files: Sequence[str],
    verdicts: Sequence[str],
    rubric: str | None = None,
    reserved: Collection[str] = (),
    **table: Any,
) -> tuple[Cases, list[VerdictTable], list[str]]:
    """Read two runs; return the cases of both with the answers of both, the verdicts of the judges of both, and notes.

    Args:
        files: the cases of the old run, and of the new one; in NAME=FILE the model is called NAME, of several "NAME: model".
        verdicts: the file or folder of the verdicts of each.
        rubric, table, reserved: as `read_verdicts` and `read_cases` have them.

    Raises:
        RecordError: a fault of `read_verdicts`; no case in common; a case whose texts differ; a model
            or no judge in both.
    """
    runs, models, notes = [], [], []
    for each, path in zip(files, verdicts, strict=True):
        name, file = named_file(each)
        cases = Cases.read(file, **table)
        judges, more = read_verdicts([path], cases, rubric, reserved=reserved)
        several = len(cases.models) > 1
        models.append(
            {
                model: f"{name}: {model}" if name and several else name or model
                for model in cases.models
            }
        )
        runs.append((cases, {judge.verdicts[0].author: judge for judge in judges}))
        notes += more
    (old, old_judges), (new, new_judges) = runs
    where = f"{old.source} and {new.source}"
    if twice := sorted(set(models[0].values()) & set(models[1].values())):
        raise RecordError(
            f"{where} both have the model {twice[0]!r}: name the versions, --cases OLD=FILE NEW=FILE"
        )
    cases = Cases(_joined(old, new, models), new.source)  # the file that a printed command names
    notes.append(
        f"{where}: {len(old):,} and {len(new):,} cases; the {len(cases):,} that are in both are compared"
    )
    judges = []
    for author in [author for author in old_judges if author in new_judges]:
        sides = old_judges[author], new_judges[author]
        moved = [
            _moved(verdict, cases.records[cases.index[verdict.case_id]], names)
            for judge, names in zip(sides, models, strict=True)
            for verdict in judge.verdicts
            if verdict.case_id in cases.index
        ]
        judges.append(VerdictTable(cases, moved, sides[0].rubric, sides[0].name, sides[0].file))
        if (sides[0].settings, sides[0].checkpoint) != (sides[1].settings, sides[1].checkpoint):
            notes.append(
                f"{sides[0].name} judged the two runs with different settings or weights, which may be what differs"
            )
    if not judges:
        raise RecordError(f"no judge has verdicts on both {where} by the same rubric")
    return cases, judges, notes


def _joined(old: Cases, new: Cases, models: Sequence[Mapping[str, str]]) -> list[Case]:
    """Return the cases that are in both, in the order of the old file, with the answers of both."""
    joined = []
    for number in old.file_order:
        case = old.records[number]
        if case.id not in new.index:
            continue
        other = new.records[new.index[case.id]]
        if differing := [name for name in TEXTS if getattr(case, name) != getattr(other, name)]:
            raise RecordError(
                f"{old.source} and {new.source}: case {case.id!r} differs in its {differing[0]}"
            )
        sides = zip((case, other), models, strict=True)
        responses = (
            replace(each, model=names[each.model])
            for side, names in sides
            for each in side.responses
        )
        joined.append(replace(case, responses=tuple(responses)))
    if not joined:
        raise RecordError(f"{old.source} and {new.source} have no case in common: no id is in both")
    return joined


def _moved(verdict: Verdict, case: Case, names: Mapping[str, str]) -> Verdict:
    """Return a verdict as one on the joined case; `names` are what the models of its run are called there."""
    places = [place for place, model in enumerate(case.models) if model in names.values()]
    differs = verdict.extra.get("differs", {})
    return replace(
        verdict.placed(places, len(case.models)),
        pair=verdict.pair and (names[verdict.pair[0]], names[verdict.pair[1]]),
        choices=verdict.choices
        and {key: names.get(choice, choice) for key, choice in verdict.choices.items()},
        extra=verdict.extra
        | {"differs": {names[model]: marks for model, marks in differs.items()}},
    )
