"""Read the answers in logs of evaluation harnesses.

- lm-evaluation-harness: `samples_*.jsonl` (0.4.13), one line for each filter, with bare NaN in its JSON.
- inspect_ai: `.json`, and `.eval` where inspect_ai is installed (0.3.285): a zip file that Python 3.11 alone cannot read.
- lighteval: `details_*.parquet` (0.13.0), one row for each document.
- HELM: `scenario_state.json` with `run_spec.json` beside it (crfm-helm 0.5.16), or the folder of both.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automedeval.harness.questions import Question, lettered, question_of, shows_more, text_of, with_options
from automedeval.harness.references import (
    lm_eval_reference,
    reference_of,
    reference_of_choices,
    reference_of_letters,
    reference_or_note,
)
from automedeval.records import RecordError, parse_json, read_lines, read_text

# What is told of a log, after a number
AGAIN = "samples went on after the first answer: the last answer is read, and the question is the input"
FILTERED = "answers are what the filter {} made of the model's text"
UNFIT = "answers of which the filter {} made nothing: the model's own text is read (--filter names another filter)"
# What a filter writes where its pattern does not fit, beside the word that the task's own settings give.
NOTHING = re.compile(
    r"\W*(?:invalid(?:[ _-]?answer)?|none|null|nan|n/?a|no[ _-]?(?:match|answer)(?:[ _-]found)?|(?:none|not)[ _-]found"
    r"|unparse?able|(?:(?:extract(?:ion)?|pars(?:e|ing))[ _-]?)?(?:fail(?:ed|ure)?|error))?\W*",
    re.I,
)
FURTHER = "further answers to a question of which the first is read"
LIMITED = "samples ended at a limit: what the model had said is the answer"
STATE = "scenario_state.json"  # of a run of HELM
MORE = "questions have images or other parts that are not read"


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
        notes: what else is to be told → of how many.
        partial: what to know if the run did not end well and its log may lack samples; else None.
    """

    file: str
    model: str | None
    answers: list[Answer] = field(default_factory=list)
    left_out: Counter = field(default_factory=Counter)
    notes: Counter = field(default_factory=Counter)
    partial: str | None = None


def read_log(path: str, filter_name: str | None = None) -> Answers:
    """Read a log; its kind is known by its name and its keys; RecordError if it is none, or cannot be read.

    `filter_name` is the filter of lm-evaluation-harness whose answers are taken, by default the first in the file.
    """
    file = Path(path)
    if file.is_dir():
        file = file / STATE
    if file.suffix == ".eval":
        return _inspect(path, _read_eval(path))
    if file.suffix == ".parquet":
        return _lighteval(path)
    text = read_text(file)
    if file.suffix == ".jsonl":
        numbered = enumerate(text.split("\n"), 1)
        lines = [_parsed(line, f"{path}:{number}") for number, line in numbered if line.strip()]
        return _lm_eval(path, lines, filter_name)
    whole = _parsed(text, path)
    if isinstance(whole, dict) and "eval" in whole:
        return _inspect(path, whole)
    if isinstance(whole, dict) and "request_states" in whole:
        return _helm(file, whole)
    raise RecordError(f"{path}: no log of lm-evaluation-harness, inspect_ai, lighteval or HELM")


def _parsed(text: str, place: str) -> Any:
    try:
        return parse_json(text, others=True)  # with NaN, which lm-evaluation-harness writes
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


def _find(kind: type, record: Any, *path: str | int) -> Any:
    """Return the value at a path of keys, an empty one of its kind if it is not there or of another kind."""
    try:
        value = _get(record, "", *path)
    except RecordError:
        return kind()
    return value if isinstance(value, kind) else kind()


def _lm_eval(path: str, lines: list[Any], filter_name: str | None) -> Answers:
    log, config = Answers(path, None), _task_config(Path(path))
    for number, line in enumerate(lines, 1):
        place = f"{path}, record {number}"
        filter_name = filter_name or _get(line, place, "filter")
        if _get(line, place, "filter") != filter_name:
            log.left_out[f"filter {line['filter']}, not {filter_name}"] += 1
            continue
        text, prompt = _get(line, place, "filtered_resps", 0), _get(line, place, "arguments", "gen_args_0", "arg_0")
        settings = line["arguments"]["gen_args_0"].get("arg_1")
        while isinstance(text, list) and text:  # a filter may keep several
            text = text[0]
        own = next((each for each in _find(list, line, "resps", 0) if isinstance(each, str)), None)
        nothing = isinstance(text, str) and (NOTHING.fullmatch(text) or text in _fallbacks(config))
        if (nothing or text in ([], None)) and own is not None and text != own and isinstance(settings, dict):
            text = own
            log.notes[UNFIT.format(filter_name)] += 1
        # A likelihood is written as a text too; only a request for a text has a dict of settings.
        if not isinstance(text, str) or not isinstance(settings, dict):
            log.left_out["not a generated text"] += 1
            continue
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):  # a chat for an endpoint
            prompt = _parsed(prompt[0], place)
        texts = _find(list, line, "resps", 0) or [text]
        log.notes[FILTERED.format(filter_name)] += text not in texts
        log.notes[FURTHER] += len(texts) - 1
        question = question_of(prompt, place)
        log.notes[MORE] += shows_more(prompt) or "arg_2" in line["arguments"]["gen_args_0"]
        reference = reference_or_note(log.notes, lm_eval_reference, line, config)
        log.answers.append(Answer(str(_get(line, place, "doc_id")), question, text, reference))
    return log


def _fallbacks(settings: Any) -> list[Any]:
    """Return the words that the filters of a task write where their pattern does not fit, wherever its settings hold them."""
    inner = settings.values() if isinstance(settings, dict) else settings if isinstance(settings, list) else ()
    own = [settings["fallback"]] if isinstance(settings, dict) and "fallback" in settings else []
    return own + [word for each in inner for word in _fallbacks(each)]


def _task_config(path: Path) -> dict[str, Any]:
    """Return how the task of a file of samples is configured, from the results of the run beside it; else {}."""
    if not (name := re.fullmatch(r"samples_(.+)_(\d{4}-\d\d-\d\dT[\d.-]+)", path.stem)):
        return {}
    beside = (_parsed(read_text(file), str(file)) for file in sorted(path.parent.glob(f"*_{name[2]}.json")))
    return next(filter(None, (_find(dict, results, "configs", name[1]) for results in beside)), {})


def _read_eval(path: str) -> dict[str, Any]:
    try:
        from inspect_ai.log import read_eval_log
    except ImportError:
        raise RecordError(f"{path}: reading .eval needs inspect_ai; or `inspect log convert --to json` first") from None
    try:
        return json.loads(read_eval_log(path).model_dump_json())
    except Exception as error:  # noqa: BLE001 - a broken file makes the reader raise many kinds of errors
        raise RecordError(f"{path}: {' '.join(str(error).split())[:200] or type(error).__name__}") from None


def _inspect(path: str, log: dict[str, Any]) -> Answers:
    parsed, samples = Answers(path, _find(str, log, "eval", "model") or None), _find(list, log, "samples")
    if (status := log.get("status")) != "success":
        planned = len(_find(list, log, "eval", "dataset", "sample_ids"))
        planned *= _find(int, log, "eval", "config", "epochs") or 1
        parsed.partial = f"the run ended as {status!r}: the log has {len(samples)} of {planned or 'unknown'} samples"
    for number, sample in enumerate(samples, 1):
        place = f"{path}, sample {number}"
        prompt, options = _get(sample, place, "input"), lettered(_find(list, sample, "choices"))
        text = None if sample.get("error") else _completion(sample.get("output"), place)
        if text is None or sample.get("invalidation"):
            parsed.left_out["no answer" if text is None else "marked as invalid"] += 1
            continue
        question = with_options(question_of(prompt, place), options)
        parsed.notes[FURTHER] += max(len(_find(list, sample, "output", "choices")) - 1, 0)
        parsed.notes[LIMITED] += bool(sample.get("limit"))
        parsed.notes[MORE] += shows_more(prompt)
        parsed.notes[AGAIN] += _asked_again(_find(list, sample, "messages"))
        reference = reference_or_note(parsed.notes, reference_of_letters, sample.get("target"), options)
        epoch = _find(int, sample, "epoch") or 1
        parsed.answers.append(Answer(str(_get(sample, place, "id")), question, text, reference, epoch))
    return parsed


def _completion(output: Any, place: str) -> str | None:
    """Return the text that inspect_ai's own scorers read, None if a model gave no answer."""
    if completion := _find(str, output, "completion"):  # solvers may have changed it
        return completion
    choices = _find(list, output, "choices")
    return text_of(_get(choices, place, 0, "message", "content")) if choices else None


def _asked_again(messages: list[Any]) -> bool:
    """Return whether a message of a user comes after one that the model wrote; those of examples it did not write."""
    wrote = (number for number, each in enumerate(messages) if _find(str, each, "source") == "generate")
    return any(_find(str, each, "role") == "user" for each in messages[next(wrote, len(messages)) :])


def is_details(path: str) -> bool:
    """Return whether a file has the name that lighteval gives the details of a task."""
    return Path(path).name.startswith("details_") and path.endswith(".parquet")


def _lighteval(path: str) -> Answers:
    """Read the details of a task; the model is the folder of the run's folder, as lighteval names it."""
    _, details, model = Path(path).resolve().parent.parent.as_posix().rpartition("/details/")
    log = Answers(path, model if details else None)
    for number, (place, row) in enumerate(read_lines(path)):
        question, doc = question_of(_get(row, place, "doc", "query"), place), row["doc"]
        texts = _find(list, row, "model_response", "text_post_processed")
        if not any(isinstance(each, str) and each.strip() for each in texts[:1]):
            texts = _find(list, row, "model_response", "text")
        if not texts or not isinstance(texts[0], str):
            log.left_out["not a generated text"] += 1
            continue
        log.notes[FURTHER] += len(texts) - 1
        log.notes[MORE] += bool(_find(list, doc, "images"))
        choices = _find(list, doc, "choices")
        reference = reference_or_note(log.notes, reference_of_choices, choices, doc.get("gold_index"))
        log.answers.append(Answer(str(doc.get("id") or number), question, texts[0], reference))
    return log


def is_helm_run(path: str) -> bool:
    """Return whether a path is the folder of a run of HELM."""
    return (Path(path) / STATE).is_file()


def _helm(file: Path, state: dict[str, Any]) -> Answers:
    """Read a run of HELM. RecordError without `run_spec.json`, which HELM writes when a run ends."""
    if not file.with_name("run_spec.json").is_file():
        raise RecordError(f"{file}: no run_spec.json beside it: not a whole run of HELM")
    log = Answers(str(file), _find(str, state, "adapter_spec", "model") or None)
    for number, request in enumerate(_find(list, state, "request_states"), 1):
        place = f"{file}, request {number}"
        instance, completions = _get(request, place, "instance"), _find(list, request, "result", "completions")
        if reason := _helm_gap(request, completions):
            log.left_out[reason] += 1
            continue
        text = _get(completions, place, 0, "text")
        prompt = _find(list, instance, "input", "messages") or _get(instance, place, "input", "text")
        options = {key: f"{key}) {text}" for key, text in _find(dict, request, "output_mapping").items()}
        right = [_find(str, each, "output", "text") for each in _find(list, instance, "references") if _is_right(each)]
        shown = {option: options[key] for key, option in _find(dict, request, "output_mapping").items()}
        log.notes[FURTHER] += len(completions) - 1
        log.notes[MORE] += "multimedia_content" in instance["input"]
        reference = reference_of([shown.get(each, each) for each in right])
        question = with_options(question_of(prompt, place), options)
        log.answers.append(Answer(str(_get(instance, place, "id")), question, text, reference))
    return log


def _helm_gap(request: Any, completions: list[Any]) -> str | None:
    """Return why a request of HELM is no answer of its own to a question."""
    if request.get("train_trial_index", 0) > 0:
        return "a further trial with other examples: the first is read"
    if "reference_index" in request or "request_mode" in request:
        return "not a generated text"
    if "perturbation" in request["instance"]:
        return "the question is perturbed"
    return None if completions and _find(bool, request, "result", "success") else "no answer"


def _is_right(reference: Any) -> bool:
    return "correct" in _find(list, reference, "tags")
