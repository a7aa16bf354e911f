"""Read the answers in logs of evaluation harnesses.

- lm-evaluation-harness: `samples_*.jsonl` (0.4.13), one line for each filter, with bare NaN in its JSON. The model's own text
  is read, and not what a filter made of it.
- inspect_ai: `.json`, and `.eval` where inspect_ai is installed (0.3.285): a zip file that Python 3.11 alone cannot read.
- HELM: `scenario_state.json` with `run_spec.json` beside it (crfm-helm 0.5.16), or the folder of both.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automedeval.harness.questions import (
    question_of,
    reference_of,
    shows_more,
    text_of,
)
from automedeval.records import (
    Case,
    JsonObject,
    RecordError,
    Response,
    foreign_errors_at,
    parse_json,
    read_text,
)
from automedeval.records.readers import json_of_others
from automedeval.records.tables.columns import is_choice, is_failure

# What is told of a log, with a number
FILTERED = "the same answer, by a further filter"
FURTHER = "further answers to a question of which the first is read"
MORE = "questions with images or other parts that are not read"
MULTIPLE_CHOICE = "a multiple-choice question, which its key scores"
NO_FIT = "the prompt does not fit --question_pattern"
NO_REFERENCE = "answers without a reference, because it cannot be told what their target stands for"
NO_TEXT = "not a generated text"
STATE = "scenario_state.json"  # of a run of HELM


@dataclass(frozen=True)
class Sample:
    """What a log has of one answer. Its target is `written` if `str` made a text of it."""

    name: Any
    prompt: Any
    text: str
    target: Any
    written: bool = False
    epoch: int = 1  # from 1, if a question is asked several times
    further: int = 0  # answers to the same prompt
    has_more: bool = False  # that is no text


@dataclass
class Answers:
    """The answers of one log, or of a table of one version: a case with one response for each, whose model has no name yet."""

    file: str
    model: str = ""  # "" where the log has no name of it
    answers: list[Case] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)  # reason → number of records
    notes: Counter[str] = field(default_factory=Counter)  # what else is to be told → of how many
    prompts: bool = True  # whether the questions are prompts, which may have a template
    remark: str | None = None  # that the run did not end well, and its log may lack samples

    def read(
        self, what: str, records: Iterable[Any], reader: Callable[[Any, str], Sample | str]
    ) -> "Answers":
        """Add what a reader makes of each record, a sample or the reason why there is none; errors call them `what`."""
        for number, record in enumerate(records, 1):
            place = f"{self.file}, {what} {number}"
            sample = reader(record, place)
            answer = self._answer(sample, place) if isinstance(sample, Sample) else sample
            if isinstance(answer, Case):
                self.answers.append(answer)
            else:
                self.left_out[answer] += 1
        return self

    def _answer(self, sample: Sample, place: str) -> Case | str:
        """Return the answer of a sample, or why it is none; count what else is to be told."""
        question = question_of(sample.prompt, place)
        self.notes[FURTHER] += sample.further
        self.notes[MORE] += sample.has_more or shows_more(sample.prompt)
        reference = None
        try:
            reference = reference_of(sample.target, sample.written)
        except RecordError:
            self.notes[NO_REFERENCE] += 1
        if not isinstance(sample.text, str):
            return NO_TEXT
        if is_choice(reference):
            return MULTIPLE_CHOICE
        if is_failure(sample.text):
            return "an error in place of an answer"
        about = {"harness_id": str(sample.name), "harness_epoch": sample.epoch}
        return Case("", question, (Response("", sample.text, about),), reference)


def is_log(path: str) -> bool:
    """Return whether a harness wrote a file, by its name and its keys. Of one that cannot be read a table's reader tells."""
    file = Path(path)
    if file.is_dir():
        return (file / STATE).is_file()
    if file.suffix not in (".json", ".jsonl"):
        return file.suffix == ".eval"
    is_whole = file.suffix == ".json"
    try:
        with open(file, encoding="utf-8") as stream:
            first = stream.read() if is_whole else next(filter(str.strip, stream), "")
        content = parse_json(first, others=True)
    except (OSError, ValueError):
        return False
    keys = set(content) if isinstance(content, dict) else set()
    return bool(keys & {"eval", "request_states"} if is_whole else {"arguments", "doc_id"} <= keys)


def read_log(path: str) -> Answers:
    """Read what `is_log` says is a log; RecordError if it cannot be read."""
    file = Path(path) / STATE if Path(path).is_dir() else Path(path)
    if file.suffix == ".eval":
        place = f"{path}: reading .eval needs inspect_ai, or `inspect log convert --to json` first"
        with foreign_errors_at(path), foreign_errors_at(place, ImportError):
            from inspect_ai.log import read_eval_log

            return _inspect(path, json.loads(read_eval_log(path).model_dump_json()))
    text = read_text(file)
    if file.suffix == ".jsonl":
        numbered = enumerate(text.split("\n"), 1)
        lines = [
            json_of_others(line, f"{path}:{number}") for number, line in numbered if line.strip()
        ]
        filters = [_find(str, line, "filter") for line in lines]
        first = [line for line, name in zip(lines, filters) if name == filters[0]]
        log = Answers(path)
        log.left_out[FILTERED] = len(lines) - len(first)
        return log.read("record", first, _lm_eval)
    content = json_of_others(text, path)
    if "request_states" not in content:
        return _inspect(path, content)
    if not file.with_name("run_spec.json").is_file():  # HELM writes it when a run ends
        raise RecordError(f"{file}: no run_spec.json beside it: not a whole run of HELM")
    log = Answers(str(file), _find(str, content, "adapter_spec", "model"))
    return log.read("request", _find(list, content, "request_states"), _helm)


def _get(record: Any, place: str, *path: str | int) -> Any:
    """Return the value at a path of keys; RecordError if it is not there."""
    for key in path:
        try:
            record = record[key]
        except (KeyError, IndexError, TypeError):
            raise RecordError(f"{place}: {'.'.join(map(str, path))} is missing") from None
    return record


def _find(kind: type, record: Any, *path: str | int) -> Any:
    """Return the value at a path of keys, an empty one of its kind if it is not there or of another kind."""
    try:
        value = _get(record, "", *path)
    except RecordError:
        return kind()
    return value if isinstance(value, kind) else kind()


def _lm_eval(line: Any, place: str) -> Sample | str:
    request = _get(line, place, "arguments", "gen_args_0")
    prompt = _get(request, place, "arg_0")
    texts = _find(list, line, "resps", 0)
    # A likelihood is written as a text too; only a request for a text has a dict of settings.
    if not texts or not isinstance(texts[0], str) or not isinstance(request.get("arg_1"), dict):
        return NO_TEXT
    messages = prompt[0] if isinstance(prompt, list) and len(prompt) == 1 else None
    if isinstance(messages, str):  # of an endpoint, in one text of JSON
        prompt = json_of_others(messages, place)
    return Sample(
        _get(line, place, "doc_id"),
        prompt,
        texts[0],
        line.get("target"),
        written=True,
        further=len(texts) - 1,
        has_more="arg_2" in request,
    )


def _inspect(path: str, content: JsonObject) -> Answers:
    log = Answers(path, _find(str, content, "eval", "model"))
    samples = _find(list, content, "samples")
    status = content.get("status")
    if status != "success":
        log.remark = (
            f"the run ended as {status!r}: samples may be missing, the log has {len(samples)}"
        )
    return log.read("sample", samples, _inspect_sample)


def _inspect_sample(sample: Any, place: str) -> Sample | str:
    prompt = _get(sample, place, "input")
    if _find(list, sample, "choices"):
        return MULTIPLE_CHOICE
    choices = _find(list, sample, "output", "choices")
    text = _find(str, sample, "output", "completion")  # solvers may have changed it
    if sample.get("error") or not (text or choices):
        return "no answer"
    if sample.get("invalidation"):
        return "marked as invalid"
    return Sample(
        _get(sample, place, "id"),
        prompt,
        text or text_of(_get(choices, place, 0, "message", "content")),
        sample.get("target"),
        epoch=_find(int, sample, "epoch") or 1,
        further=max(len(choices) - 1, 0),
    )


def _helm(request: Any, place: str) -> Sample | str:
    instance = _get(request, place, "instance")
    completions = _find(list, request, "result", "completions")
    if request.get("train_trial_index", 0) > 0:
        return "a further trial with other examples: the first is read"
    if "reference_index" in request or "request_mode" in request:
        return NO_TEXT
    if "perturbation" in instance:
        return "the question is perturbed"
    if not completions or not _find(bool, request, "result", "success"):
        return "no answer"
    if _find(dict, request, "output_mapping"):  # letter → the text of a choice
        return MULTIPLE_CHOICE
    references = _find(list, instance, "references")
    correct = [each for each in references if "correct" in _find(list, each, "tags")]
    return Sample(
        _get(instance, place, "id"),
        _find(list, instance, "input", "messages") or _get(instance, place, "input", "text"),
        _get(completions, place, 0, "text"),
        [_find(str, reference, "output", "text") for reference in correct],
        further=len(completions) - 1,
        has_more="multimedia_content" in instance["input"],
    )
