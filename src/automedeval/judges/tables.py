"""Judge the rows of a data set, and give verdicts as a table of pandas."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from automedeval.judges.base import BaseJudge
from automedeval.records import Case, JsonObject, Verdict, question_text
from automedeval.records.tables.cases import read_table
from automedeval.records.types import without_none

if TYPE_CHECKING:
    import pandas
    from datasets import Dataset


def judge_dataset(
    judge: BaseJudge,
    dataset: "Dataset",
    responses: Sequence[str] | None = None,
    blank: str | None = None,
) -> "Verdicts":
    """Judge every row of a data set; `case_id` of the table is as of a file (`read_table`), `row` the row's number, from 1.

        table = judge_dataset(load_judge("small"), load_dataset("ORG/ANSWERS", split="test")).to_pandas()

    RecordError: a column is missing or in doubt, or a response is blank.

    Args:
        judge: any judge.
        dataset: one row for each `question`, with one column for the responses of each model, and perhaps `reference`.
        responses: the columns with responses, which name the models; by default as in a file (`Columns.of`).
        blank: what a null or a blank text in a column with responses is, "lowest" or "skip" (see `without_blanks`).
    """
    return Verdicts(judge(_cases_of(dataset, responses or (), blank)))


def _cases_of(
    dataset: Iterable[dict], responses: Sequence[str], blank: str | None
) -> Iterator[Case]:
    placed = [(f"row {number}", row) for number, row in enumerate(dataset)]
    for _, case in read_table("the data set", placed, blank, responses).cases:
        yield Case.from_dict(case.to_dict())


class Verdicts(list[Verdict]):
    """A list of verdicts that can be a table: `Verdicts(judge(cases)).to_pandas()`."""

    def to_pandas(self, cases: Iterable[Case] = ()) -> "pandas.DataFrame":
        """Return one row for every verdict and response that it shows.

        What a verdict does not have is missing. A response that a valid verdict could not read, and one of which it left a
        criterion unread, has no score; an empty one has the lowest.

        Args:
            cases: the cases that were judged, for their questions and rows.

        Returns:
            The columns case_id, row (in the user's table, from 1), question and answer where they are known, model, judge,
            rubric, run, slot (from 0, as shown), valid and empty; then score, expected_score, one column `score_CRITERION`
            for every criterion that a rubric scores and `choice_CRITERION` for every one of a pairwise rubric, by criteria of
            the cases score, lowest and highest (`Score`) and the numbers criteria_met, criteria_not_met and criteria_unread;
            rationale and error.
        """
        import pandas  # comes with datasets

        by_id = {case.id: case for case in cases}
        table = []
        for verdict in self:
            case = by_id.get(verdict.case_id)
            models = verdict.models or (case.models if case else ())
            for slot, index in enumerate(verdict.order):
                model = models[index] if models else None
                row = {
                    "case_id": verdict.case_id,
                    **_shown(verdict, case, index),
                    "model": model,
                    "judge": verdict.judge,
                    "rubric": verdict.rubric,
                    "run": verdict.run,
                    "slot": slot,
                    "valid": verdict.valid,
                    "empty": model in verdict.empty,
                    **_scores(verdict, index),
                    "rationale": verdict.rationale,
                    "error": verdict.error,
                }
                table.append(row)
        shown = pandas.DataFrame(table)
        # Whole numbers also where a row is not known.
        return shown.astype({"row": "Int64"} if "row" in shown else {})


def _shown(verdict: Verdict, case: Case | None, index: int) -> JsonObject:
    """Return the row, the question and the answer that a verdict is on, as far as known."""
    facts: JsonObject = {"row": verdict.row, "question": verdict.question}
    if case is not None:
        facts |= {
            "row": case.row_of(index) or verdict.row,
            "question": question_text(case.question),
            "answer": case.responses[index].text,
        }
    return without_none(facts)


def _scores(verdict: Verdict, index: int) -> JsonObject:
    """Return what a verdict says of a response."""
    if verdict.checklist:
        met = verdict.checklist["met"]
        return {
            "score": verdict.value(index),
            "lowest": verdict.checklist["lowest"],
            "highest": verdict.checklist["highest"],
            "criteria_met": met.count(True),
            "criteria_not_met": met.count(False),
            "criteria_unread": met.count(None),
        }
    lists: JsonObject = {"score": verdict.scores, "expected_score": verdict.expected_scores}
    for name, scores in (verdict.criterion_scores or {}).items():
        lists[f"score_{name}"] = scores
    said = {name: scores and scores[index] for name, scores in lists.items()}
    for name, choice in (verdict.choices or {}).items():
        said[f"choice_{name}"] = choice
    return said
