"""Judge the rows of a data set, and give verdicts as a table: the idioms of datasets and pandas."""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from automedeval.judges.base import BaseJudge
from automedeval.records import Case, RecordError, Response, Verdict

if TYPE_CHECKING:
    import pandas
    from datasets import Dataset

NOT_RESPONSES = ("id", "question", "reference", "topic")


def judge_dataset(
    judge: BaseJudge, dataset: "Dataset", responses: Sequence[str] | None = None, question: str = "question"
) -> "Dataset":
    """Judge every row of a data set, and return it with the scores as further columns.

        scored = judge_dataset(load_judge("small"), load_dataset("ORG/ANSWERS", split="test"))

    Args:
        judge: any judge that gives scores.
        dataset: one question a row, with one column for the responses of each model; `reference` is read if it is there. An
            empty value is no response of that model.
        responses: the columns with responses, which name the models; by default all but id, question, reference and topic.
        question: the column with the question.

    Returns:
        The data set with `MODEL_score` for each model, the mean of the valid verdicts' expected scores, or scores; null where
        no verdict is valid. `valid` says whether every verdict on the row is valid, null where there was nothing to judge.
        `rationale` is that of the first valid verdict, null if there is none; `error` is that of the first invalid one.

    Raises:
        RecordError: a column is missing, or the judge gives choices and no scores.
    """
    columns = dataset.column_names
    models = (
        [name for name in columns if name not in (*NOT_RESPONSES, question)] if responses is None else list(responses)
    )
    if missing := [name for name in (question, *models) if name not in columns]:
        raise RecordError(f"the data set has no column {missing[0]!r}; it has {', '.join(columns)}")
    if not models:
        raise RecordError(f"the data set has no column with responses; it has {', '.join(columns)}")
    found: dict[str, list[Verdict]] = {str(row): [] for row in range(len(dataset))}
    for verdict in judge(_cases_of(dataset, question, models)):
        if verdict.choices:
            raise RecordError(
                f"{verdict.rubric} gives choices, and a table needs scores: take Verdicts(judge(cases)).to_pandas()"
            )
        found[verdict.case_id].append(verdict)
    names = [*(f"{model}_score" for model in models), "valid", "rationale", "error"]
    added: dict[str, list[Any]] = {name: [] for name in names}
    for verdicts in found.values():
        scores: dict[str, list[float]] = {model: [] for model in models}
        for verdict in verdicts:
            for name, score in zip(verdict.extra["models"], verdict.expected_scores or verdict.scores or ()):
                if score is not None:
                    scores[name].append(score)
        for model in models:
            added[f"{model}_score"].append(fmean(scores[model]) if scores[model] else None)
        added["valid"].append(all(verdict.valid for verdict in verdicts) if verdicts else None)
        for name in ("rationale", "error"):
            added[name].append(next(filter(None, (getattr(each, name) for each in verdicts)), None))
    if taken := [name for name in added if name in columns]:
        raise RecordError(f"the data set has a column {taken[0]!r} already, which would be replaced: rename it")
    for name, values in added.items():
        dataset = dataset.add_column(name, values)
    return dataset


def _cases_of(dataset: "Dataset", question: str, models: Sequence[str]) -> Iterator[Case]:
    for number, row in enumerate(dataset):
        given = tuple(
            Response(model, row[model]) for model in models if isinstance(row[model], str) and row[model].strip()
        )
        if given:
            yield Case(str(number), row[question], given, row.get("reference") or None)


class Verdicts(list[Verdict]):
    """A list of verdicts that can be a table: `Verdicts(judge(cases)).to_pandas()`."""

    def to_pandas(self) -> "pandas.DataFrame":
        """Return one row for every verdict and response that it shows.

        Columns: case_id, model, judge, rubric, run, slot (from 0, as shown), valid, score, expected_score, one column
        `choice_CRITERION` for every criterion of a pairwise rubric, rationale, error. What a verdict does not have is missing.
        """
        import pandas  # comes with datasets

        rows = []
        for verdict in self:
            models = verdict.extra.get("models") or [None] * (max(verdict.order, default=-1) + 1)
            for slot, index in enumerate(verdict.order):
                row = {
                    "case_id": verdict.case_id,
                    "model": models[index],
                    "judge": verdict.judge,
                    "rubric": verdict.rubric,
                }
                row |= {"run": verdict.run, "slot": slot, "valid": verdict.valid}
                row["score"] = verdict.scores[index] if verdict.scores else None
                row["expected_score"] = verdict.expected_scores[index] if verdict.expected_scores else None
                row |= {f"choice_{name}": choice for name, choice in (verdict.choices or {}).items()}
                rows.append(row | {"rationale": verdict.rationale, "error": verdict.error})
        return pandas.DataFrame(rows)
