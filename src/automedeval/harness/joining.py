"""Join the answers of several logs into cases: those to the same question become the responses of one case."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from automedeval.harness.logs import Answer, Answers, is_details, read_log
from automedeval.harness.questions import Question, is_blank, question_expression, question_in, question_key
from automedeval.records import Case, RecordError, Response, digest, named_file, read_text


@dataclass
class LogArguments:
    """How the logs of evaluation harnesses become cases: `--cases model-a=samples_x.jsonl model-b=run.eval`."""

    join: str = field(
        default="question",
        metadata={
            "help": "logs: answers belong to one case if they have the same question, or the same id",
            "choices": ["question", "id"],
        },
    )
    question_pattern: str | None = field(
        default=None,
        metadata={
            "help": "logs: a regular expression whose first group is the question in a prompt, where it has examples or a "
            "template, such as 'Question: (.*)\\nAnswer:'; the last place that fits is taken"
        },
    )
    filter: str | None = field(
        default=None,
        metadata={"help": "logs of lm-evaluation-harness: take this filter's answers (default: the first)"},
    )

    def __post_init__(self) -> None:
        question_expression(self.question_pattern)


def is_log(given: str) -> bool:
    """Return whether a value of --cases is a log: NAME=FILE, .eval, details of lighteval, or .json that is no table."""
    if named_file(given)[0] or given.endswith(".eval") or is_details(given):
        return True
    if not given.endswith(".json") or not Path(given).is_file():
        return False
    try:
        content = json.loads(read_text(Path(given)))
    except (ValueError, RecursionError):  # whoever reads it as a table says what is wrong
        return False
    if isinstance(content, dict):
        return True
    return bool(content) and isinstance(content[0], dict) and {"instruction", "output"} <= content[0].keys()


def join_logs(given: Sequence[str], args: LogArguments) -> tuple[list[Case], list[str]]:
    """Return the cases of several logs, and lines that tell what was joined and what was left out.

    An epoch is a case of its own, because the responses of a case are of different models.

    Args:
        given: FILE or NAME=FILE; without NAME the model's name is that in the log.

    Raises:
        RecordError: a fault of `read_log`; a log without a model's name; two logs of one model; nothing to join.
    """
    cases: dict[tuple, tuple[Answer, Question, dict[str, Answer], list[str]]] = {}
    told, models = [], []
    for value in given:
        name, file = named_file(value)
        log = read_log(file, args.filter)
        model = name or log.model
        if not model:
            raise RecordError(f"{file}: the log does not name the model: give NAME={file}")
        if model in models:
            raise RecordError(f"{file}: a second log of {model!r}: give NAME={file}")
        models.append(model)
        _add(cases, log, model, args)
        having = sum(answer.reference is not None for answer in log.answers)
        referred = f", {having} with a reference" if having < len(log.answers) else ""
        reasons = "".join(f"; left out: {count} ({reason})" for reason, count in sorted(log.left_out.items()))
        told.append(f"{file}: {len(log.answers)} answers of {model}{referred}{reasons}")
        told += [f"{file}: {count} {what}" for what, count in log.notes.items() if count]
        if log.partial:
            told.append(f"{file}: {log.partial}")
    if not cases:
        raise RecordError(f"no answer: {'; '.join(told)}")
    found = []
    for key, (first, question, answers, references) in cases.items():
        name = first.id if args.join == "id" else digest(key[0])
        responses = tuple(
            # by these `automedeval export` finds the answer in its log again
            Response(model, answer.text, {"harness_id": answer.id, "harness_epoch": answer.epoch})
            for model, answer in answers.items()
        )
        case_id = name if first.epoch == 1 else f"{name}/epoch-{first.epoch}"
        found.append(Case(case_id, question, responses, references[0] if references else None))
    if len(models) > 1:
        full = sum(len(answers) == len(models) for _, _, answers, _ in cases.values())
        told.append(f"{len(cases)} cases, {full} with an answer of all {len(models)} models")
        alone = Counter(next(iter(answers)) for _, _, answers, _ in cases.values() if len(answers) == 1)
        told += [f"only {model} has {count} of them" for model, count in alone.items()]
    if differ := sum(len(set(references)) > 1 for *_, references in cases.values()):
        told.append(f"{differ} cases have different references in the logs: the first is taken")
    return found, told


def _add(cases: dict, log: Answers, model: str, args: LogArguments) -> None:
    """Add the answers of one model, and count in the log what cannot be added."""
    kept = []
    for answer in log.answers:
        question = question_in(answer.question, args.question_pattern)
        if question is None:
            log.left_out["the prompt does not fit --question_pattern"] += 1
            continue
        if is_blank(question):
            log.left_out["the question has no text"] += 1
            continue
        key = (answer.id if args.join == "id" else question_key(question), answer.epoch)
        entry = cases.setdefault(key, (answer, question, {}, []))
        if args.join == "id" and question_key(entry[1]) != question_key(question):
            raise RecordError(
                f"{log.file}: id {answer.id!r} has another question than in the log before: --join question"
            )
        if model in entry[2]:
            log.left_out["the question is in the log before"] += 1
            continue
        entry[2][model] = answer
        entry[3].extend([answer.reference] if answer.reference else [])
        kept.append(answer)
    log.answers = kept
