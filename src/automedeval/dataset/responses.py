"""Candidates answer: cases and a chat's sampling in, responses out, each written down as it comes (paper section 3.1, App. C).

Every answer draws random numbers of its own, which seed, candidate and case decide. How many processes there are and where a
run was interrupted change nothing: windows and batches are composed alike. Other batches change nothing in float32 on a CPU; in
bfloat16 they round probabilities another way, after which sampled texts part within some tens of tokens.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from automedeval.models.base import Answer, Messages, Prompt
from automedeval.models.checkpoints import checkpoint_folder
from automedeval.models.endpoint import refusal
from automedeval.records import Case, RecordError, Response, read_cases, read_placed
from automedeval.records.journal import Journal, write_whole

ROLES = ("system", "user", "assistant")
PLAIN_TEMPLATE = resources.files("automedeval.dataset") / "templates" / "response.jinja"
_NEXT_QUESTION = "\nQuestion:"  # where PLAIN_TEMPLATE's next turn would begin, which a base model goes on to write
_FILTERED = refusal("content_filter", "").error


@dataclass(frozen=True)
class Generated:
    """One line of responses.jsonl: what a candidate answered.

    `question_digest` and `settings` are digests of what it was asked, and of everything else that changes its answer.
    `error` says why an endpoint refused to answer; the text is empty then.
    """

    case_id: str
    model: str
    text: str
    truncated: bool
    usage: dict[str, int]
    settings: str
    question_digest: str
    error: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> "Generated":
        kinds = {"case_id": str, "model": str, "text": str, "truncated": bool, "usage": dict}
        kinds |= {"settings": str, "question_digest": str}
        for name, kind in kinds.items():
            if not isinstance(record.get(name), kind):
                raise RecordError(f"{name!r} must be {kind.__name__}, not {json.dumps(record.get(name))[:80]}")
        known = {name: record.get(name) for name in (*kinds, "error")}
        return cls(**known, extra={name: value for name, value in record.items() if name not in known})

    def to_dict(self) -> dict[str, Any]:
        record = asdict(self)
        return record | record.pop("extra")


def candidate_names(candidates: Sequence[str], names: Sequence[str] = ()) -> list[str]:
    """Return the name of each candidate: the given ones, or a folder's, a Hub id, an endpoint's model.

    Raises:
        RecordError: not one name per candidate, two alike, or a word that no model can be called; no such checkpoint.
    """
    if names and len(names) != len(candidates):
        raise RecordError(f"--names gives {len(names)} names for {len(candidates)} candidates")
    found = list(names)
    for model in candidates:
        if model.startswith("openai:"):
            found += [] if names else [model.removeprefix("openai:")]
        else:  # before anything is generated: the last candidate may come in a day
            folder = checkpoint_folder(model)
            found += [] if names else [folder.resolve().name if Path(model).exists() else model]
    for name in found:
        if found.count(name) > 1:
            raise RecordError(f"two candidates are called {name!r}: tell them apart by --names")
        Response.from_dict({"model": name, "text": ""})
    return found


def question_messages(case: Case, system: str | None = None) -> Messages:
    """Return a case's question as chat messages: a conversation keeps its turns.

    Raises:
        RecordError: a role that chat templates do not know, two system messages, or no user's message at the end.
    """
    asked = [{"role": "user", "content": case.question}] if isinstance(case.question, str) else case.question
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": message["role"], "content": message["content"]} for message in asked]
    for number, message in enumerate(messages):
        if message["role"] not in ROLES or (number and message["role"] == "system"):
            allowed = "one system message at most, which comes first, then user and assistant"
            raise RecordError(f"case {case.id!r}: message {number + 1} is of the role {message['role']!r}; {allowed}")
    if messages[-1]["role"] != "user":
        raise RecordError(f"case {case.id!r}: the conversation must end with the user's message")
    # A lone surrogate is JSON, but no tokenizer or request takes it.
    return [message | {"content": message["content"].encode("utf-8", "replace").decode()} for message in messages]


def response_prompt(case: Case, name: str, system: str | None = None) -> Prompt:
    """Return what a candidate is asked; `run` and `label` make the answer's random numbers its own."""
    label = json.dumps([name, case.id])
    run = int(hashlib.sha256(label.encode()).hexdigest()[:8], 16) // 2  # endpoints take seeds of 32 bits
    return Prompt(question_messages(case, system), run=run, label=label)


def set_up(chat: Any, local: bool, top_k: int, top_p: float, system: str | None) -> str:
    """Let a chat sample as a candidate; return twelve hexadecimal digits over all that changes its answers.

    A checkpoint without a chat template gets `PLAIN_TEMPLATE`, and its answer ends where it begins another question.
    """
    settings = [chat.fingerprint, system]
    if local:
        chat.top_k, chat.top_p = top_k, top_p
        if chat.tokenizer.chat_template is None:
            chat.tokenizer.chat_template = PLAIN_TEMPLATE.read_text(encoding="utf-8")
            chat.stop = _NEXT_QUESTION
        settings += [top_k, top_p, chat.stop, chat.tokenizer.chat_template]
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]


def question_digest(case: Case) -> str:
    """Return twelve hexadecimal digits over a case's question."""
    return hashlib.sha256(json.dumps(case.question).encode()).hexdigest()[:12]


def windows(cases: Sequence[Case], size: int, rank: int = 0, processes: int = 1) -> Iterator[Sequence[Case]]:
    """Yield the windows of cases that one of several processes answers; their number does not change the windows."""
    for start in range(rank * size, len(cases), processes * size):
        yield cases[start : start + size]


def refuse_overlong(chat: Any, name: str, cases: Sequence[Case], system: str | None) -> None:
    """Raise RecordError for a question that does not fit into a candidate's context window with the longest answer."""
    for case, excess in zip(cases, chat.overflow([response_prompt(case, name, system) for case in cases])):
        if excess > 0:
            raise RecordError(
                f"case {case.id!r}: the question and --max_new_tokens exceed the context window of {name} by {excess} tokens"
            )


def respond(
    chat: Any, name: str, settings: str, cases: Sequence[Case], done: set[str], system: str | None = None
) -> Iterator[Generated]:
    """Answer one window of cases but for those that are done; yield responses as they come.

    Raises:
        RecordError: a case was not answered for a reason of its own, as a prompt beyond an endpoint's window.
    """
    prompts = [response_prompt(case, name, system) for case in cases]
    for index, answer in chat.answer(prompts, [case.id not in done for case in cases]):
        case = cases[index]
        if answer.error and answer.error != _FILTERED:
            raise RecordError(f"case {case.id!r}: {name} gave no answer: {answer.error}")
        text = "" if answer.error else response_text(answer)
        digest = question_digest(case)
        yield Generated(case.id, name, text, answer.truncated, answer.usage, settings, digest, answer.error)


def response_text(answer: Answer) -> str:
    """Return an answer's text as a response: without white space around it, or half a character where it was cut off.

    Control tokens in it stay: they are data, and whoever puts them before a model defuses them (`PromptEncoder`, `defuse`).
    """
    return answer.text.rstrip("\ufffd").strip() if answer.truncated else answer.text.strip()


def summary(name: str, found: Sequence[Generated], responses: int, seconds: float) -> str:
    """Say how many answers a candidate has given, `responses` of them just now, how they ended and what tokens they took."""
    prompts = sum(one.usage.get("prompt_tokens", 0) for one in found)
    answers = sum(one.usage.get("completion_tokens", 0) for one in found)
    empty, cut = sum(not one.text for one in found), sum(one.truncated for one in found)
    text = f"{name}: {len(found):,} responses ({responses:,} new), {empty:,} empty, {cut:,} cut off at --max_new_tokens"
    text += f", {prompts:,} tokens of prompts, {answers:,} of answers"
    text += f", {responses / seconds:.2f} responses/s" if responses and seconds else ""
    refused = Counter(one.error for one in found if one.error)
    return "\n".join([text, *(f"  empty, {count}: {error}" for error, count in refused.items())])


class ResponseLog:
    """The responses of one output folder, seen by one of `processes` processes.

    A single process appends to `responses.jsonl`. Of several each appends to a part of its own, and the first one joins the
    parts, at the end and at the start of a run that follows an interrupted one.
    """

    def __init__(self, folder: Path, rank: int = 0, processes: int = 1):
        self.folder, self.path = folder, folder / "responses.jsonl"
        self.rank, self.processes = rank, processes
        self.part = self.path if processes == 1 else folder / f"responses.part{rank}.jsonl"

    def read(self, path: Path | None = None) -> Iterator[Generated]:
        """Yield the responses of a file, by default of responses.jsonl."""
        path = path or self.path
        return (record for _, record in read_placed(path, Generated)) if path.exists() else iter(())

    def join_parts(self) -> None:
        """Move the responses of all parts into responses.jsonl, none twice, and drop torn last lines."""
        parts = sorted(self.folder.glob("responses.part*.jsonl"))
        if not parts and not self.path.exists():
            return
        with Journal(self.path) as whole:
            there = {(record.model, record.case_id) for record in self.read()}
            for part in parts:
                with Journal(part):  # drops a torn line, and refuses while somebody writes the part
                    for record in self.read(part):
                        if (record.model, record.case_id) not in there:
                            there.add((record.model, record.case_id))
                            whole.append(record.to_dict())
            whole.sync()
        for part in parts:
            part.unlink()
            part.with_name(f".{part.name}.lock").unlink(missing_ok=True)

    def done(self, name: str, settings: str, cases: Sequence[Case]) -> dict[str, Generated]:
        """Return what a candidate has answered of these cases already, by case id.

        Raises:
            RecordError: a response of this candidate with other settings, or to another question of this id.
        """
        digests, found = {case.id: question_digest(case) for case in cases}, {}
        for record in self.read():
            if record.model != name:
                continue
            if record.settings != settings:
                raise RecordError(
                    f"{self.path} holds responses of {name} with other weights, wording or settings "
                    f"({record.settings}, now {settings}): choose another --output, or other --names"
                )
            if record.case_id in digests:
                if record.question_digest != digests[record.case_id]:
                    raise RecordError(
                        f"{self.path} holds a response to case {record.case_id!r} as it was before its question changed: "
                        "choose another --output"
                    )
                found[record.case_id] = record
        return found

    def sort(self, cases: Sequence[Case], names: Sequence[str]) -> None:
        """Put the responses into the order of candidates and cases, which does not tell how often a run was interrupted."""
        place = {case.id: number for number, case in enumerate(cases)}
        rank = {name: number for number, name in enumerate(names)}
        with Journal(self.path):  # nobody else writes meanwhile
            records = list(self.read())
            ordered = sorted(records, key=lambda r: (rank.get(r.model, -1), place.get(r.case_id, -1)))
            if ordered != records:
                lines = (json.dumps(record.to_dict(), ensure_ascii=False) for record in ordered)
                write_whole(self.path, "".join(f"{line}\n" for line in lines))


def read_questions(path: str, names: Sequence[str], keep_existing: bool, limit: int | None = None) -> list[Case]:
    """Read cases that may have no responses yet.

    Raises:
        RecordError: a case has a response of one of these names, unless existing ones are kept; a fault of `read_cases`.
    """
    cases = []
    for case in read_cases(path, least_responses=0):
        taken = [name for name in names if name in case.models]
        if taken and not keep_existing:
            told = "give the candidate another of --names, or keep what is there with --keep_existing true"
            raise RecordError(f"{path}: case {case.id!r} has a response of {taken[0]!r} already; {told}")
        cases.append(case)
        if len(cases) == limit:
            break
    return cases


def write_cases(path: Path, cases: Sequence[Case], answered: Sequence[dict[str, Generated]]) -> None:
    """Write the cases whole, each with the responses it had and, behind them, those of the candidates in their order."""
    lines = []
    for case in cases:
        new = tuple(Response(found[case.id].model, found[case.id].text) for found in answered if case.id in found)
        lines.append(json.dumps(replace(case, responses=case.responses + new).to_dict(), ensure_ascii=False) + "\n")
    write_whole(path, "".join(lines))
