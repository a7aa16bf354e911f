"""Run a judge over a file of cases: judge what is missing, by a file of requests where wanted."""

import json
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from automedeval.judges.base import BaseJudge, windows_of
from automedeval.judges.chat_judge import Judge
from automedeval.judges.requests import Request, Requests
from automedeval.models.base import Answer
from automedeval.models.completions import batch_answers
from automedeval.records import RecordError, Verdict, digest
from automedeval.records.journal import Journal
from automedeval.records.log import Log, replaced_file
from automedeval.records.run_record import run_arguments, run_date


def verdict_log(folder: Path, judge: BaseJudge, settings: str | None = None, **options: Any) -> Log:
    """Return the log of a judge's verdicts in FOLDER/verdicts.jsonl; `options` are the others of `Log`.

    `settings` is the judge's fingerprint by default.
    """
    file = folder / "verdicts.jsonl"
    return Log(file, Verdict, judge.author, settings or judge.fingerprint, **options)


def settings_alike(judge: BaseJudge, folder: Path, again: bool) -> list[str]:
    """Return a judge's settings with other limits of tokens, whose verdicts count beside its own.

    They are the smaller ones of earlier runs to ask `again` what these cut off, and from then on
    all. RecordError, to ask again: no smaller one, or a judge that writes nothing.
    """
    if not isinstance(judge, Judge):
        if again:
            raise RecordError(f"--again cut: {judge.name} writes no text, which could be cut off")
        return []
    chat: Any = judge.chat
    runs = {file.stem: run_arguments(file) for file in folder.glob("run-*.json")}
    limits = {run.get("max_new_tokens", 0) for run in runs.values()}
    if again:
        limits = {limit for limit in limits if limit < chat.max_new_tokens}
        if not limits:
            raise RecordError(f"--again cut: no run in {folder} had a smaller --max_new_tokens")
    alike = [
        replace(judge, chat=replace(chat, max_new_tokens=limit)).fingerprint for limit in limits
    ]
    asked = again or any(runs.get(f"run-{each}", {}).get("again") for each in alike)
    return alike if asked else []


def judge_missing(
    judge: BaseJudge,
    requests: Requests | Sequence[Request],
    log: Log,
    done: Collection[tuple],
    name: str | None = None,
) -> None:
    """Judge the requests whose keys are not `done`, together with the other processes, and append every verdict as it comes.

    A request that an endpoint did not answer is left out: the next run asks it again. The processes take requests in turn, and
    the windows of each stay what they are, so that a resumed run composes the same batches. `name` labels the progress bar.
    What was paid for answers that made no verdict is kept beside the log.
    """
    processes = log.processes
    judge.chat.set_date(run_date(log.run_file))
    judge.chat.resumed = bool(done)
    recorded = Counter(judge.chat.spent)
    own: Iterator[Request] = islice(requests, processes.rank, None, processes.count)
    if not judge.chat.batched:  # the requests of an endpoint are packed anew
        own = (request for request in own if request.key not in done)

    def answered() -> Iterator[Verdict]:
        for window in windows_of(own, judge.window):
            wanted = [request.key not in done for request in window]
            for _, verdict in judge.judge(window, wanted):
                if not verdict.failed:
                    yield verdict
                    recorded.update(verdict.usage)

    missing = max(0, len(requests) - len(done))
    try:
        log.fill(answered(), -(-missing // processes.count), name=name)
    finally:
        if lost := Counter(judge.chat.spent) - recorded:
            paid = Verdict("", *judge.author, (), failed=True, usage=dict(lost))
            with Journal(replaced_file(log.path)) as beside:
                beside.append(paid.to_dict())


def judge_by_file(
    judge: BaseJudge,
    requests: Requests,
    log: Log,
    done: Collection[tuple],
    file: Path,
) -> str | None:
    """Record the verdicts that the answers to a file of requests give, and write those that are not `done` and have no answer.

    FILE.answers.jsonl beside FILE.jsonl has the answers, in the layout of OpenAI's batches and `vllm run-batch`. A request that
    several verdicts need is written once; errors in place of answers are added to the chat's `failures`, and so are
    missing lines if others came.

    Return what is to be done next, None if no request is left.
    RecordError if a line of the answers is none.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    answers = file.with_suffix(".answers.jsonl")
    answered, judge.chat.left_out = batch_answers(answers, resumed=bool(done))
    unanswered: dict[str, str | None] = {}

    def verdicts(stream: TextIO) -> Iterator[Verdict]:
        for request in requests:
            if request.key in done:
                continue
            prompt = judge.prompt(request)
            body = judge.chat.body(prompt)
            name = "-".join([digest([prompt.label, prompt.run, body]), *judge.chat.left_out])
            answer = answered.get(name, Answer(failed=True))
            if not answer.failed:
                yield judge.verdict(request, judge.chat.whole(prompt, answer))
            elif name not in unanswered:
                unanswered[name] = answer.error
                line = {"custom_id": name, "method": "POST", "url": "/v1/chat/completions"}
                stream.write(json.dumps(line | {"body": body}) + "\n")

    with file.open("w", encoding="utf-8", newline="\n") as stream:
        log.fill(verdicts(stream), len(requests) - len(done))
    if log.new or any(unanswered.values()):  # answers came, and perhaps not to all
        judge.chat.failures += [why or f"no line in {answers}" for why in unanswered.values()]
    if not unanswered:
        return None
    source, target, model = map(shlex.quote, (str(file), str(answers), judge.chat.model))
    return (
        f"requests to answer in {file}: {len(unanswered)}; vllm run-batch -i {source} -o {target} --model MODEL "
        f"--served-model-name {model}; then the same command"
    )


def refuse_failures(
    judge: BaseJudge, file: Path, verdicts: Collection[Verdict], awaited: str | None = None
) -> None:
    """Raise RecordError if an endpoint did not answer requests, which are asked again next time, or no verdict is valid.

    `awaited` is what `judge_by_file` returned: a batch asks them again, and not the command.
    """
    failures = judge.chat.failures
    if failures:
        raise RecordError(
            f"requests without an answer: {len(failures)}, the last: {failures[-1]}; "
            f"the {'new batch (see above)' if awaited else 'same command'} tries them again"
        )
    if verdicts and not any(verdict.valid for verdict in verdicts):
        raise RecordError(f"{file}: no verdict is valid, so that there is nothing to report")


def first_unread(verdicts: Iterable[Verdict]) -> list[str]:
    """Return the first answer that cannot be read, in full, below a line that says why; nothing if there is none."""
    for verdict in verdicts:
        if not verdict.valid and verdict.raw.strip():
            why = f"the answer on case {verdict.case_id}, which cannot be read ({verdict.error}):"
            return [why, verdict.raw]
    return []


def dry_run(judge: BaseJudge, requests: Iterable[Request], done: Collection[tuple]) -> str:
    """Count what a run would do: cases, verdicts and tokens."""
    missing = [request for request in requests if request.key not in done]
    cases = len({request.case.id for request in missing})
    tokens = judge.estimate(missing)
    return f"cases: {cases}, verdicts: {len(missing)}, judged already: {len(done)}, prompt tokens: about {tokens:,}"
