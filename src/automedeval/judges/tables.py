"""Judge the rows of a data set, and give verdicts as a table: the idioms of datasets and pandas."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from automedeval.judges.base import BaseJudge
from automedeval.records import Case, Columns, RecordError, Verdict, question_text
from automedeval.records.messages import without_messages
from automedeval.records.rows import NoText

if TYPE_CHECKING:
    import pandas
    from datasets import Dataset

NOT_RESPONSES = ("id", "question", "reference", "topic")


def judge_dataset(
    judge: BaseJudge,
    dataset: "Dataset",
    responses: Sequence[str] | None = None,
    blank: str | None = None,
) -> "Dataset":
    """Judge every row of a data set, and return it with the scores as further columns.

        scored = judge_dataset(load_judge("small"), load_dataset("ORG/ANSWERS", split="test"))

    `MODEL_score` is the mean of what the valid verdicts say of a model's response (`Verdict.value`), null where there is none.
    `valid` says whether every verdict on the row is valid, null where there was nothing to judge. `rationale` and `error` are
    the first ones, null without one. RecordError: a column is missing, the judge gives no scores, or a response is blank.

    Args:
        judge: any judge that gives scores.
        dataset: one row for each `question`, with one column for the responses of each model, and perhaps `reference`.
        responses: the columns with responses, which name the models; by default all but id, question, reference and topic.
        blank: what a null or a blank text in a column with responses is, "lowest" or "skip" (see `without_blanks`).
    """
    if judge.gives_choices:
        raise RecordError(
            f"{judge.rubric_name} gives choices, and a table needs scores: take Verdicts(judge(cases)).to_pandas()"
        )
    columns = dataset.column_names
    models = (
        [name for name in columns if name not in NOT_RESPONSES]
        if responses is None
        else list(responses)
    )
    if missing := [name for name in ("question", *models) if name not in columns]:
        raise RecordError(f"the data set has no column {missing[0]!r}; it has {', '.join(columns)}")
    if not models:
        raise RecordError(f"the data set has no column with responses; it has {', '.join(columns)}")
    of_rows: dict[str, list[Verdict]] = {str(row): [] for row in range(len(dataset))}
    for verdict in judge(_cases_of(dataset, models, blank)):
        of_rows[verdict.case_id].append(verdict)
    names = [*(f"{model}_score" for model in models), "valid", "rationale", "error"]
    added: dict[str, list[Any]] = {name: [] for name in names}
    for verdicts in of_rows.values():
        said = [
            (each.extra["models"][index], value)
            for each in verdicts
            for index, value in each.values.items()
        ]
        for model in models:
            scores = [value for name, value in said if name == model]
            added[f"{model}_score"].append(fmean(scores) if scores else None)
        added["valid"].append(all(verdict.valid for verdict in verdicts) if verdicts else None)
        for name in ("rationale", "error"):
            added[name].append(next(filter(None, (getattr(each, name) for each in verdicts)), None))
    if taken := [name for name in added if name in columns]:
        raise RecordError(
            f"the data set has a column {taken[0]!r} already, which would be replaced: rename it"
        )
    for name, values in added.items():
        dataset = dataset.add_column(name, values)
    return dataset


def _cases_of(dataset: "Dataset", models: Sequence[str], blank: str | None) -> Iterator[Case]:
    columns = Columns("question", tuple(models), reference="reference")
    read = ({name: row.get(name) for name in columns.every} for row in dataset)
    placed = [
        (place := f"row {number}", without_messages(row, place)) for number, row in enumerate(read)
    ]
    for number, (_, case) in enumerate(columns.table("the data set", placed, blank).cases):
        if case.responses:
            yield Case.from_dict(replace(case, id=str(number)).to_dict())


class Verdicts(list[Verdict]):
    """A list of verdicts that can be a table: `Verdicts(judge(cases)).to_pandas()`."""

    def to_pandas(self, cases: Iterable[Case] = ()) -> "pandas.DataFrame":
        """Return one row for every verdict and response that it shows.

        What a verdict does not have is missing. A response that a valid verdict could not read, and one of which it left a
        criterion unread, has no score; an empty one has the lowest.

        Args:
            cases: the cases that were judged, for their questions and rows.

        Returns:
            The columns case_id, row (in the user's table, from 1) and question where they are known, model, judge, rubric, run,
            slot (from 0, as shown), valid and empty; then score, expected_score, one column `score_CRITERION` for every
            criterion that a rubric scores and `choice_CRITERION` for every one of a pairwise rubric, by criteria of the cases
            score, lowest and highest (`Score`) and the numbers criteria_met, criteria_not_met and criteria_unread; rationale
            and error.
        """
        import pandas  # comes with datasets

        by_id, table = {case.id: case for case in cases}, []
        for verdict in self:
            models = verdict.extra.get("models") or [None] * (max(verdict.order, default=-1) + 1)
            case = by_id.get(verdict.case_id)
            row = verdict.extra.get("row", case.extra.get("row") if case else None)
            question = question_text(case.question) if case else verdict.extra.get("question")
            known = {
                name: told
                for name, told in (("row", row), ("question", question))
                if told is not None
            }
            for slot, index in enumerate(verdict.order):
                about = {"case_id": verdict.case_id} | known
                about |= {"model": models[index], "judge": verdict.judge}
                about |= {
                    "rubric": verdict.rubric,
                    "run": verdict.run,
                    "slot": slot,
                    "valid": verdict.valid,
                }
                about["empty"] = models[index] in verdict.empty
                said = _scores(verdict, index) | {
                    "rationale": verdict.rationale,
                    "error": verdict.error,
                }
                table.append(about | said)
        return pandas.DataFrame(table)


def beside_rows(
    rows: Sequence[dict[str, Any]],
    columns: Columns,
    cases: Iterable[Case],
    verdicts: Sequence[Verdict],
) -> "pandas.DataFrame":
    """Return the rows of a user's table, in their order, with what one judge's verdicts say of the answers in them.

    `rows` and `cases` are those of `read_rows` and `read_cases`, `columns` the ones that are read. The table gets case_id,
    where it has no ids; for each candidate `MODEL_score` as in `judge_dataset`, `MODEL_flags` and `MODEL_claims`, contradicted
    statements, one a line; and the first rationale. Where a row is one answer, the judge's name stands for
    MODEL. RecordError if the table has a column of one of these names.
    """
    import pandas  # comes with datasets

    of_cases: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        of_cases.setdefault(verdict.case_id, []).append(verdict)
    added: list[dict[str, Any]] = [{} for _ in rows]
    for case in cases:
        for index, response in enumerate(case.responses):
            row = added[response.extra.get("row", case.extra["row"]) - 1]
            on_it = [verdict for verdict in of_cases.get(case.id, ()) if index in verdict.order]
            scores = [value for verdict in on_it if (value := verdict.value(index)) is not None]
            claims = [
                claim["text"]
                for verdict in on_it
                for claim in verdict.extra.get("checked", {}).get(response.model, ())
            ]
            flags = {
                "contradicted": claims,
                "empty": response.is_empty,
                "invalid": not all(verdict.valid for verdict in on_it),
                "unread": any(index in verdict.unread for verdict in on_it),
                "not judged": not on_it,
            }
            name = verdicts[0].judge if columns.model else response.model
            row |= {} if columns.id else {"case_id": case.id}
            row[f"{name}_score"] = fmean(scores) if scores else None
            row[f"{name}_flags"] = ", ".join(flag for flag, is_set in flags.items() if is_set)
            row[f"{name}_claims"] = "\n".join(dict.fromkeys(claims))
            row["rationale"] = next(
                (verdict.rationale for verdict in on_it if verdict.rationale), None
            )
    if taken := {name for row in added for name in row} & {name for row in rows for name in row}:
        raise RecordError(
            f"the table has a column {min(taken)!r} already, which would be replaced: rename it"
        )
    cells = [
        {name: str(cell) if isinstance(cell, NoText) else cell for name, cell in row.items()}
        for row in rows
    ]
    table = pandas.DataFrame([row | more for row, more in zip(cells, added)])
    return table[
        [name for name in table if name != "rationale"] + ["rationale"] * ("rationale" in table)
    ]


def _scores(verdict: Verdict, index: int) -> dict[str, Any]:
    """Return what a verdict says of a response."""
    if verdict.checklist:
        met = verdict.checklist["met"]
        counts = {
            f"criteria_{name}": met.count(kind)
            for name, kind in (("met", True), ("not_met", False), ("unread", None))
        }
        ends = {name: verdict.checklist[name] for name in ("lowest", "highest")}
        return {"score": verdict.value(index)} | ends | counts
    scores = {
        name.removesuffix("s"): getattr(verdict, name) for name in ("scores", "expected_scores")
    }
    scores |= {f"score_{name}": values for name, values in (verdict.criterion_scores or {}).items()}
    scores = {name: values and values[index] for name, values in scores.items()}
    return scores | {f"choice_{name}": choice for name, choice in (verdict.choices or {}).items()}
