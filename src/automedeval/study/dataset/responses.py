"""Have candidate models answer the questions of cases (paper section 3.1, Appendix C).

The random numbers of an answer depend on seed, candidate and case alone. The number of processes and the place where a run was
interrupted change no answer: windows and batches are composed alike. Other batches change nothing in float32 on a CPU; in
bfloat16 they round probabilities differently, so that sampled texts differ after some tens of tokens.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from automedeval.judges.base import windows_of
from automedeval.models.arguments import parse_model
from automedeval.models.base import NOT_FINITE, Messages, Prompt
from automedeval.models.checkpoints import checkpoint_folder, find_model
from automedeval.models.tokenization import load_tokenizer, read_template
from automedeval.records import Case, JsonObject, RecordError, Response, digest
from automedeval.records.journal import write_lines
from automedeval.records.log import Log
from automedeval.records.messages import as_turns
from automedeval.records.run_record import run_date
from automedeval.records.types import LogRecord

TOP_K = 50  # Paper: App. C, "top k and top p as 50 and 1"
WINDOW = 128  # cases that are sorted by length and batched together


@dataclass(frozen=True)
class Generated(LogRecord):
    """One line of responses.jsonl: a candidate's answer to a case.

    `error` is the reason where an endpoint refused to answer, or answered with nothing; the text is empty then.
    """

    digest_key = "question_digest"
    by = ("model",)
    about = ("case_id",)

    model: str
    text: str
    truncated: bool
    usage: dict[str, int]
    error: str | None = None
    extra: JsonObject = field(default_factory=dict)
    settings: str | None = None
    question_digest: str | None = None


def candidate_names(candidates: Sequence[str]) -> list[str]:
    """Return the name of each candidate: the checkpoint's folder, its Hub id, or the endpoint's model.

    RecordError for the same name twice, or a reserved one; no such checkpoint, or no tokenizer.
    """
    names = []
    for model in candidates:
        kind, name = parse_model(model)
        if kind != "openai":
            folder = checkpoint_folder(model)
            load_tokenizer(folder)  # now: the last candidate may be loaded a day later
            name = folder.resolve().name if find_model(model) else model
        if name in names:
            raise RecordError(f"two candidates are called {name!r}: rename the folder of one")
        Response.from_dict({"model": name, "text": ""})
        names.append(name)
    return names


def question_messages(case: Case) -> Messages:
    """Return a case's question as chat messages: a conversation keeps its turns.

    RecordError for a role that chat templates do not know, two system messages, or no user's message at the end.
    """
    turns = as_turns(case.question)
    roles = [turn["role"] for turn in turns]
    if not re.fullmatch("(system )?((user|assistant) )*user", " ".join(roles)):
        raise RecordError(
            f"case {case.id!r}: one system message at most, then user and assistant, "
            f"and the user's at the end, not {', '.join(roles)}"
        )
    return [{"role": turn["role"], "content": turn["content"]} for turn in turns]


def response_prompt(case: Case, name: str) -> Prompt:
    """Return the prompt of a case; its `run` and `label` make the random numbers depend on candidate and case."""
    label = json.dumps([name, case.id])
    # Endpoints take seeds of 32 bits.
    run = int(hashlib.sha256(label.encode()).hexdigest()[:8], 16) // 2
    return Prompt(question_messages(case), run=run, label=label)


def set_up(chat: Any) -> str:
    """Set a chat's sampling for a candidate; return twelve hexadecimal digits over everything that changes its answers.

    With a chat template from a file, an answer ends where it begins another question, which a base model goes on to write.
    """
    settings = [chat.fingerprint, None]
    if chat.batched:  # a checkpoint, no endpoint
        chat.top_k = TOP_K
        if read_template(chat.chat_template_path):
            chat.stop = next_turn(chat.tokenizer)
        settings += [TOP_K, chat.stop, chat.tokenizer.chat_template]
    return digest(settings)


def next_turn(tokenizer: Any) -> str:
    """Return the line with which a chat template begins the question after an answer; "" if it ends answers by a token."""
    mark = "\ue000"  # no template trims it
    turns = [{"role": role, "content": mark} for role in ("user", "assistant", "user")]
    pieces = tokenizer.apply_chat_template(turns, tokenize=False).split(mark)
    between = pieces[2] if len(pieces) == 4 else ""  # a template may show the last turn alone
    if not between.strip() or (tokenizer.eos_token and tokenizer.eos_token in between):
        return ""
    return ("\n" if between[0] == "\n" else "") + between.strip().splitlines()[0]


def format_file(path: str | None, model: str, name: str) -> str | None:
    """Return the file with a candidate's chat template: `path`, or NAME.jinja in the folder `path`; None for its own.

    RecordError if the folder has no file of this name, and the checkpoint no chat template.
    """
    if path is None or not Path(path).is_dir():
        return path
    file = Path(path, f"{name}.jinja")
    if file.is_file():
        return str(file)
    is_local = parse_model(model)[0] != "openai"
    if is_local and not load_tokenizer(checkpoint_folder(model)).chat_template:
        raise RecordError(
            f"{name} has no prompt format: there is no {file}, and {model} has no chat template"
        )
    return None


def respond(
    chat: Any, name: str, settings: str, cases: Sequence[Case], done: Collection[str]
) -> Iterator[Generated]:
    """Answer one window of cases but for those that are done; yield responses as they come.

    RecordError if a case was not answered for a reason of its own, as a prompt beyond an endpoint's window.
    """
    prompts = [response_prompt(case, name) for case in cases]
    for index, answer in chat.answer(prompts, [case.id not in done for case in cases]):
        case = cases[index]
        if answer.failed:  # the next run asks it again
            continue
        if answer.overlong or answer.error == NOT_FINITE:
            raise RecordError(f"case {case.id!r}: {name} gave no answer: {answer.error}")
        # No white space around it, and no half of a character where it was cut off. Control tokens in it stay: they are data,
        # and whatever puts them into a prompt defuses them (`PromptEncoder`, `defuse`).
        text = "" if answer.error else answer.text
        if answer.truncated:
            text = text.rstrip("\ufffd")
        yield Generated(
            case.id, name, text.strip(), answer.truncated, answer.usage, answer.error,
            settings=settings, question_digest=digest(case.question),
        )  # fmt: skip


def answer_missing(chat: Any, cases: Sequence[Case], log: Log, done: Collection[str]) -> None:
    """Have a candidate answer the cases that are not done, together with the other processes; append every answer as it comes.

    The processes take windows of WINDOW cases, which are batched together, in turn; which cases are in one does not depend on
    the number of processes. RecordError if a question is too long, or was not answered for a reason of its own.
    """
    (name,) = log.author
    processes = log.processes
    chat.set_date(run_date(log.run_file))
    own = slice(processes.rank, None, processes.count)
    for case in cases[own] if chat.batched else ():  # an endpoint's window is not known
        # A judge's rationale takes what the window leaves; an answer that is cut short would be judged as a worse one.
        room = chat.window - chat.max_new_tokens
        excess = chat.count_tokens(response_prompt(case, name)) - room
        if excess > 0:
            raise RecordError(
                f"case {case.id!r}: the question and --max_new_tokens exceed the context window of {name} by {excess} tokens"
            )
    processes.wait()  # until every process has checked its share
    windows = list(windows_of(cases, WINDOW))
    answers = (respond(chat, name, log.settings, part, done) for part in windows[own])
    share = math.ceil((len(cases) - len(done)) / processes.count)
    log.fill(chain.from_iterable(answers), share, "response", name)


def answered(log: Log, cases: Sequence[Case]) -> dict[str, Generated]:
    """Return the responses of the log's candidate to these cases, by case id.

    RecordError for a response with other settings, or to a question that has changed since.
    """
    done = log.done({case.id: digest(case.question) for case in cases})
    return {record.case_id: record for record in log.records() if record.key in done}


def summary(name: str, records: Collection[Generated], new: int) -> str:
    """Return how many answers a candidate has, how many of this run, and how many are empty, and why, or cut off."""
    empty = sum(not record.text for record in records)
    cut = sum(record.truncated for record in records)
    counts = f"{len(records):,} responses ({new:,} new), {empty:,} empty"
    lines = [f"{name}: {counts}, {cut:,} cut off at --max_new_tokens"]
    refused = Counter(record.error for record in records if record.error)
    lines += [f"  empty, {count}: {error}" for error, count in refused.items()]
    return "\n".join(lines)


def write_cases(
    path: Path, cases: Sequence[Case], answered: Sequence[dict[str, Generated]]
) -> None:
    """Write the cases whole, each with the responses it had and, behind them, those of the candidates in their order."""
    records = []
    for case in cases:
        answers = [by_case[case.id] for by_case in answered if case.id in by_case]
        new = tuple(Response(answer.model, answer.text) for answer in answers)
        records.append(replace(case, responses=case.responses + new).to_dict())
    write_lines(path, records)
