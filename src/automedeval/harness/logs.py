"""Read the answers in logs of evaluation harnesses.

- lm-evaluation-harness: `samples_*.jsonl` (0.4.13), one line for each filter, with bare NaN in its JSON.
- inspect_ai: `.json`, and `.eval` where inspect_ai is installed (0.3.285): a zip file that Python 3.11 alone cannot read.
- lighteval: `details_*.parquet` (0.13.0), one row for each document.
- AlpacaEval: a JSON list of `instruction`, `output`, `generator`.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automedeval.records import RecordError, read_lines, read_text

Question = str | list[dict[str, str]]


@dataclass(frozen=True)
class Answer:
    """One answer of a log: `id` as the harness has it, and `epoch` from 1 if the question was asked several times."""

    id: str
    question: Question
    text: str
    reference: str | None = None
    epoch: int = 1


@dataclass
class Answers:
    """The answers of one log.

    Args:
        model: the model's name in the log; None where it has none.
        left_out: reason → number of records that give no answer.
        partial: what to know if the run did not end well and its log may lack samples; else None.
    """

    file: str
    model: str | None
    answers: list[Answer] = field(default_factory=list)
    left_out: Counter = field(default_factory=Counter)
    partial: str | None = None


def read_log(path: str, filter_name: str | None = None) -> Answers:
    """Read a log; its kind is known by its name and its keys.

    Args:
        filter_name: of lm-evaluation-harness, the filter whose answers are taken; by default the first in the file.

    Raises:
        RecordError: the file cannot be read, or is not one of these logs.
    """
    file = Path(path)
    if file.suffix == ".eval":
        return _inspect(path, _read_eval(path))
    if file.suffix == ".parquet":
        return _lighteval(path)
    text = read_text(file)
    if file.suffix == ".jsonl":
        return _lm_eval(
            path,
            [_parsed(line, f"{path}:{number}") for number, line in enumerate(text.split("\n"), 1) if line.strip()],
            filter_name,
        )
    whole = _parsed(text, path)
    if isinstance(whole, dict) and "eval" in whole:
        return _inspect(path, whole)
    if isinstance(whole, list):
        return _alpaca(path, whole)
    raise RecordError(f"{path}: no log of lm-evaluation-harness, inspect_ai, lighteval or AlpacaEval")


def _parsed(text: str, place: str) -> Any:
    try:
        return json.loads(text)  # takes NaN, which lm-evaluation-harness writes
    except ValueError as error:
        raise RecordError(f"{place}: not JSON ({error})") from None


def _get(record: Any, place: str, *path: str | int) -> Any:
    """Return the value at a path of keys; RecordError if it is not there."""
    for key in path:
        try:
            record = record[key]
        except (KeyError, IndexError, TypeError):
            raise RecordError(f"{place}: {'.'.join(map(str, path))} is missing") from None
    return record


def reference_of(target: Any) -> str | None:
    """Return a target as one text; the index of a choice is none."""
    given = [target] if isinstance(target, str) else target if isinstance(target, list) else []
    texts = [each for each in given if isinstance(each, str) and each.strip()]
    return "\n".join(texts) or None


def question_in(prompt: Question, pattern: str | None) -> Question | None:
    """Return the first group of a regular expression in a prompt, None if it does not fit; without one the whole prompt."""
    if pattern is None:
        return prompt
    found = re.search(pattern, prompt if isinstance(prompt, str) else prompt[-1]["content"])
    return found[1].strip() if found else None


def _lm_eval(path: str, lines: list[Any], filter_name: str | None) -> Answers:
    found = Answers(path, None)
    for number, line in enumerate(lines, 1):
        place = f"{path}, record {number}"
        filter_name = filter_name or _get(line, place, "filter")
        if _get(line, place, "filter") != filter_name:
            found.left_out[f"filter {line['filter']}, not {filter_name}"] += 1
            continue
        text = _get(line, place, "filtered_resps", 0)
        prompt = _get(line, place, "arguments", "gen_args_0", "arg_0")
        if isinstance(text, str) and isinstance(prompt, str):
            found.answers.append(
                Answer(str(_get(line, place, "doc_id")), prompt, text, reference_of(line.get("target")))
            )
        else:
            found.left_out["not a generated text"] += 1
    return found


def _read_eval(path: str) -> dict[str, Any]:
    try:
        from inspect_ai.log import read_eval_log
    except ImportError:
        raise RecordError(f"{path}: reading .eval needs inspect_ai; or `inspect log convert --to json` first") from None
    try:
        return json.loads(read_eval_log(path).model_dump_json())
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: {' '.join(str(error).split())}") from None


def _inspect(path: str, log: dict[str, Any]) -> Answers:
    found = Answers(path, str(_get(log, path, "eval", "model")))
    samples = log.get("samples") or ()
    if (status := log.get("status")) != "success":
        evaluation = log["eval"]
        planned = len((evaluation.get("dataset") or {}).get("sample_ids") or ())
        planned *= (evaluation.get("config") or {}).get("epochs") or 1
        found.partial = f"the run ended as {status!r}: the log has {len(samples)} of {planned or 'unknown'} samples"
    for number, sample in enumerate(samples, 1):
        place = f"{path}, sample {number}"
        given = _get(sample, place, "input")
        choices = (sample.get("output") or {}).get("choices")
        if sample.get("error") or not choices:
            found.left_out["no answer"] += 1
            continue
        if isinstance(given, list):
            given = [{"role": each["role"], "content": _content(each.get("content"))} for each in given]
        text = _content(_get(choices[0], place, "message", "content"))
        found.answers.append(
            Answer(
                str(_get(sample, place, "id")), given, text, reference_of(sample.get("target")), sample.get("epoch", 1)
            )
        )
    return found


def _content(content: Any) -> str:
    """Return a message's content as one text: it is a text, or a list of parts of which some are texts."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if part.get("type") == "text")


def is_details(path: str) -> bool:
    """Return whether a file has the name that lighteval gives the details of a task."""
    return Path(path).name.startswith("details_") and path.endswith(".parquet")


def _lighteval(path: str) -> Answers:
    """Read the details of a task; the model is the folder of the run's folder, as lighteval names it."""
    _, details, model = Path(path).resolve().parent.parent.as_posix().rpartition("/details/")
    found = Answers(path, model if details else None)
    for number, (place, row) in enumerate(read_lines(path)):
        question = _get(row, place, "doc", "query")
        response = _get(row, place, "model_response")
        texts = response.get("text_post_processed") or response.get("text") or ()
        if not texts or not isinstance(texts[0], str):
            found.left_out["not a generated text"] += 1
            continue
        if len(texts) > 1:
            found.left_out["a further sample of the same question"] += len(texts) - 1
        name, doc = row["doc"].get("id") or str(number), row["doc"]
        reference = reference_of_choices(doc.get("choices"), doc.get("gold_index"))
        found.answers.append(Answer(str(name), question, texts[0], reference))
    return found


def reference_of_choices(choices: Sequence[Any] | None, gold: int | Sequence[int] | None) -> str | None:
    """Return the right choices of a document of lighteval as one text; None where it has none."""
    indices, choices = gold if isinstance(gold, list) else [gold], choices or []
    return reference_of([choices[index] for index in indices if isinstance(index, int) and 0 <= index < len(choices)])


def _alpaca(path: str, records: list[Any]) -> Answers:
    found = Answers(path, None)
    for number, record in enumerate(records):
        place = f"{path}, record {number + 1}"
        question, text = (_get(record, place, name) for name in ("instruction", "output"))
        found.model = found.model or record.get("generator")
        if record.get("generator") not in (None, found.model):
            raise RecordError(f"{place}: generators {found.model!r} and {record['generator']!r} in one file")
        found.answers.append(Answer(str(number), question, text))
    return found
