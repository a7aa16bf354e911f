"""Join the answers of several logs into cases: those to the same question become the responses of one case."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from automedeval.harness.logs import Answers, LoggedAnswer, is_log, read_log
from automedeval.harness.questions import Question, is_blank, question_expression, question_in, question_key
from automedeval.records import Case, RecordError, Response, digest, named_file, option, read_cases, table_of
from automedeval.records.cases import named_cases


@dataclass
class LogArguments:
    """How the logs of evaluation harnesses become cases: `--cases model-a=samples_x.jsonl model-b=run.eval`."""

    question_pattern: str | None = option(
        "logs: a regular expression whose first group is the question in a prompt, where it has examples or a "
        "template, such as 'Question: (.*)\\nAnswer:'; the last place that fits is taken",
        None,
    )

    def __post_init__(self) -> None:
        question_expression(self.question_pattern)


@dataclass
class _Joined:
    """The answers of the models to one question in one epoch, and what their files say about it (key → values)."""

    question: Question
    epoch: int
    answers: dict[str, LoggedAnswer] = field(default_factory=dict)
    about: dict[str, list] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)  # of the rows of tables

    def case(self) -> Case:
        """Return the case; by the extra keys of its responses `automedeval export` finds the answers in their logs again."""
        name = self.ids[0] if self.ids else digest(question_key(self.question))
        responses = tuple(
            Response(model, answer.text, {**answer.extra, "harness_id": answer.id, "harness_epoch": answer.epoch})
            for model, answer in self.answers.items()
        )
        case_id = name if self.epoch == 1 else f"{name}/epoch-{self.epoch}"
        extra = {key: values[0] for key, values in self.about.items()}
        reference, topic, criteria = (extra.pop(key, None) for key in ("reference", "topic", "criteria"))
        return Case(case_id, self.question, responses, reference, topic, extra, criteria or ())


def read_version(file: str, blank: str | None, columns: Sequence[str] = ()) -> Answers:
    """Return the answers of one version of a model, which its table has in one column; RecordError if it has several."""
    table = table_of(file, blank=blank, columns=columns)
    answers = Answers(file, None)
    for place, case in named_cases(table) if table else ((file, each) for each in read_cases(file, blank=blank)):
        if len(case.responses) != 1:
            count = f"{len(case.responses)} answers ({', '.join(case.models)})"
            raise RecordError(f"{place}: {count}, and a file for each version has one to a question")
        (response,) = case.responses
        name = case.id if table is None or table.columns.id is not None else ""
        of_case, of_response = ({}, {}) if table else (case.extra, response.extra)  # of a table's row its number
        about = {"topic": case.topic, "criteria": case.criteria, **of_case}
        answers.answers.append(LoggedAnswer(name, case.question, response.text, case.reference, 1, about, of_response))
    return answers


def join_logs(
    values: Sequence[str], args: LogArguments, blank: str | None = None, columns: Sequence[str] = ()
) -> tuple[list[Case], list[str]]:
    """Return the cases of several logs or tables, FILE or NAME=FILE, and lines on what was joined and what was left out.

    A table has the answers of one version, in `columns` as `Columns.named` has them; `without_blanks` says what `blank` is.

    An epoch is a case of its own, because the responses of a case are of different models. RecordError for a fault of
    `read_log`, a log without a model's name, two logs of one model, and if nothing can be joined.
    """
    joined: dict[tuple[str, int, str], _Joined] = {}
    notes: list[str] = []
    models: list[str] = []
    files = [file for _, file in map(named_file, values)]
    tables = [None if is_log(file) else read_version(file, blank, columns) for file in files]
    asked = [Counter(question_key(each.question) for each in log.answers if each.id) for log in tables if log]
    several = {key for counts in asked for key, count in counts.items() if count > 1}
    for value, table in zip(values, tables):
        name, file = named_file(value)
        log = table or read_log(file)
        model = name or log.model
        if not model:
            raise RecordError(f"{file}: the log does not name the model: give NAME={file}")
        if model in models:
            raise RecordError(f"{file}: a second log of {model!r}: give NAME={file}")
        models.append(model)
        answers = _add(joined, log, model, args.question_pattern, several if table else None)
        referred = sum(answer.reference is not None for answer in answers)
        some = f", {referred} with a reference" if referred < len(answers) else ""
        reasons = "".join(f"; left out: {count} ({reason})" for reason, count in sorted(log.left_out.items()))
        notes.append(f"{file}: {len(answers)} answers of {model}{some}{reasons}")
        notes += [f"{file}: {count} {what}" for what, count in log.notes.items() if count]
        if log.remark:
            notes.append(f"{file}: {log.remark}")
    if not joined:
        raise RecordError(f"no answer: {'; '.join(notes)}")
    ids = Counter(name for each in joined.values() for name in set(each.ids))
    if twice := next((name for name, count in ids.items() if count > 1), None):
        what = f"the id {twice!r} has different questions in these tables"
        raise RecordError(f"{what}: make them one, or leave the ids out")
    if len(models) > 1:
        shared = [list(each.answers) for each in joined.values()]
        full = sum(len(each) == len(models) for each in shared)
        notes.append(f"{len(joined)} cases, {full} with an answer of all {len(models)} models")
        alone = Counter(each[0] for each in shared if len(each) == 1)
        notes += [f"only {model} has {count} of them" for model, count in alone.items()]
    about = ((key, values) for each in joined.values() for key, values in each.about.items())
    differ = Counter(key for key, values in about if any(value != values[0] for value in values))
    notes += [f"{count} cases differ in {key!r} between the files: the first is taken" for key, count in differ.items()]
    return [each.case() for each in joined.values()], notes


def _add(
    joined: dict[tuple[str, int, str], _Joined],
    log: Answers,
    model: str,
    question_pattern: str | None,
    twice: set[str] | None,
) -> list[LoggedAnswer]:
    """Add the answers of one model and return them; count in the log what cannot be added.

    `twice` are the questions that a table has several times, which are told apart by their ids; None for a log.
    """
    added = []
    for answer in log.answers:
        question = question_in(answer.question, question_pattern)
        if question is None or is_blank(question):
            fits = question is not None
            log.left_out["the question has no text" if fits else "the prompt does not fit --question_pattern"] += 1
            continue
        key = question_key(question)
        place = (key, answer.epoch, answer.id if twice and key in twice else "")
        case = joined.setdefault(place, _Joined(question, answer.epoch))
        if model in case.answers:
            log.left_out["the question is in the log before"] += 1
            continue
        case.answers[model] = answer
        case.ids += [answer.id] if twice is not None and answer.id else []
        for key, value in {"reference": answer.reference, **answer.about}.items():
            if value not in (None, "", ()):
                case.about.setdefault(key, []).append(value)
        added.append(answer)
    return added
