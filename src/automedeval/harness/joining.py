"""Join the answers of several logs into cases: those to the same question become the responses of one case."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from automedeval.harness.logs import NO_FIT, Answers, read_log
from automedeval.harness.questions import question_in, refuse_template
from automedeval.records import (
    Case,
    JsonObject,
    RecordError,
    digest,
    key_of,
    named_file,
    option,
    question_text,
)
from automedeval.records.tables.cases import CaseFile

# The question of a case, its epoch, and its id where a log has the question several times
Place = tuple[str, int, str]
ABOUT = ("reference", "topic", "cluster", "criteria")  # of a case, beside its question


@dataclass
class LogArguments:
    """How the logs of evaluation harnesses become cases: `--cases model-a=samples_x.jsonl model-b=run.eval`."""

    question_pattern: str | None = option(
        "logs, and tables where it fits: a regular expression whose first group is the question in a prompt with examples or a "
        "template, such as 'Question: (.*)\\nAnswer:'; the last place that fits is taken",
        None,
    )


def read_version(content: CaseFile) -> Answers:
    """Return the answers of one version of a model, with its name where each row says it; RecordError if there are several."""
    table = content.table
    answers = Answers(str(content.path), prompts=False)
    models = set[str]()
    placed = table.cases if table else ((answers.file, case) for case in content)
    for place, case in placed:
        if len(case.responses) != 1:
            raise RecordError(
                f"{place}: {len(case.responses)} answers ({', '.join(case.models)}), and a file for "
                "each version has one to a question"
            )
        models.update(case.models)
        if table:
            name = case.id if "id" in table.columns.roles else ""
            # tables may have different orders
            response = replace(case.responses[0], extra={"row": case.row_of(0)})
            case = replace(case, id=name, responses=(response,), extra={})
        answers.answers.append(case)
    # In a wide table it is the column that has the name, which may be "answer".
    if len(models) == 1 and not (table and table.columns.responses):
        (answers.model,) = models
    return answers


def join_logs(
    values: Sequence[str], args: LogArguments, tables: Mapping[str, CaseFile]
) -> tuple[list[Case], list[str]]:
    """Return the cases of several logs or tables, FILE or NAME=FILE, and lines on what was joined and what was left out.

    `tables` has the content of each value that is no log: the answers of one version.

    An epoch is a case of its own, because the responses of a case are of different models. RecordError for a fault of
    `read_log`, a log without a model's name, two logs of one model, and if nothing can be joined,
    or no two of several answer the same question.
    """
    logs = _logs_by_model(values, tables)
    several = set[str]()
    for log in logs.values():  # the questions that one has several times with ids
        asked = Counter(key_of(answer.question) for answer in log.answers if answer.id)
        several.update(key for key, count in asked.items() if count > 1)
    joined: dict[Place, dict[str, Case]] = {}  # model → answer
    places: dict[str, Place] = {}  # of the ids
    notes = []
    for model, log in logs.items():
        answers = _answers_by_place(log, several, args.question_pattern)
        for place, answer in answers.items():
            if answer.id and places.setdefault(answer.id, place) != place:
                raise RecordError(
                    f"the id {answer.id!r} has different questions in these tables: make them one, "
                    "or leave the ids out"
                )
            joined.setdefault(place, {})[model] = answer
        notes += _told_of(log, model, list(answers.values()))
    if not joined:
        raise RecordError(f"no answer: {'; '.join(notes)}")
    if len(logs) > 1:
        counts = [len(of_case) for of_case in joined.values()]
        if max(counts) < 2:
            raise RecordError(f"no question is in two of these files: {'; '.join(notes)}")
        full = counts.count(len(logs))
        notes.append(f"cases: {len(joined)}, with an answer of all {len(logs)} models: {full}")
    differ = Counter[str]()
    cases = [_case(place, answers, differ) for place, answers in joined.items()]
    for name, count in differ.items():
        notes.append(f"cases whose {name!r} differs between the files: {count}, the first is taken")
    return cases, notes


def _logs_by_model(values: Sequence[str], tables: Mapping[str, CaseFile]) -> dict[str, Answers]:
    """Return the logs and tables by their models; RecordError for one without a name, or a second one of a model."""
    logs = {}
    for value in values:
        name, file = named_file(value)
        log = read_version(tables[value]) if value in tables else read_log(file)
        model = name or log.model
        if not model:
            raise RecordError(f"{file}: the file does not name its model: give NAME={file}")
        if model in logs:
            raise RecordError(f"{file}: a second file of {model!r}: give NAME={file}")
        logs[model] = log
    return logs


def _answers_by_place(log: Answers, several: set[str], pattern: str | None) -> dict[Place, Case]:
    """Return the answer of a log to each question that is in its prompts; those that are left out are counted.

    `several` are the questions whose cases are told apart by their ids.
    """
    answers = defaultdict[Place, list[Case]](list)
    for answer in log.answers:
        question = question_in(answer.question, pattern)
        if pattern is None or not log.prompts:  # a table may have plain questions beside a log
            question = question or answer.question
            refuse_template(
                question,
                f"{log.file}: a prompt",
                "--question_pattern, whose group is the question alone",
            )
        key = key_of(question)
        if question is None:
            log.left_out[NO_FIT] += 1
        elif not key:
            log.left_out["the question has no text"] += 1
        else:
            epoch = answer.responses[0].extra.get("harness_epoch", 1)
            place = (key, epoch, answer.id if key in several else "")
            answers[place].append(replace(answer, question=question))
    taken = {}
    for place, (first, *others) in answers.items():
        text = first.responses[0].text
        if all(other.responses[0].text == text for other in others):
            log.left_out["the question stands there before"] += len(others)
            taken[place] = first
        else:  # which of them answers the other logs' is not known
            log.left_out["the question has several answers, and no id"] += 1 + len(others)
    return taken


def _told_of(log: Answers, model: str, answers: Sequence[Case]) -> list[str]:
    """Return lines on the answers of a model that were joined, and on those that were left out."""
    referred = sum(answer.reference is not None for answer in answers)
    line = f"answers of {model}: {len(answers)}"
    if referred < len(answers):
        line += f", with a reference: {referred}"
    for reason, count in sorted((+log.left_out).items()):
        line += f"; left out: {count} ({reason})"
    lines = [line, *(f"{what}: {count}" for what, count in (+log.notes).items()), log.remark]
    return [f"{log.file}: {line}" for line in lines if line]


def _case(place: Place, answers: Mapping[str, Case], differ: Counter[str]) -> Case:
    """Return the case of the answers of some models to a question; count the keys in which they differ."""
    about: JsonObject = {}
    others = set()  # the keys with several values
    for answer in answers.values():
        facts = {
            "id": answer.id,
            "question": " ".join(question_text(answer.question).split()),
            **{name: getattr(answer, name) for name in ABOUT},
            **answer.extra,
        }
        for name, value in facts.items():
            if value not in (None, "", ()) and about.setdefault(name, value) != value:
                others.add(name)
    if "row" in others:  # of tables in different orders
        del about["row"]
    differ.update(sorted(others - {"row", "id"}))
    key, epoch, _ = place
    name = about.pop("id", digest(key))
    about.pop("question", None)
    first, *_ = answers.values()
    return Case(
        name if epoch == 1 else f"{name}/epoch-{epoch}",
        first.question,
        tuple(replace(answer.responses[0], model=model) for model, answer in answers.items()),
        **{name: about.pop(name) for name in ABOUT if name in about},
        extra=about,
    )
