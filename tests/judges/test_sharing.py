"""Several processes share a judge's requests: how evenly, and what a killed run leaves. Time is simulated."""

import math
import random
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from automedeval.judges.base import BaseJudge
from automedeval.judges.requests import Request
from automedeval.judges.run import judge_missing, verdict_log
from automedeval.models.local import LocalChat
from automedeval.records import Case, Response, Verdict, digest
from automedeval.records.journal import Processes
from automedeval.records.readers import read_records

PROCESSES, REQUESTS = 8, 5000
CHAT = SimpleNamespace(batch_tokens=36_000, _longest_in_batch=math.inf, device="cuda:0")  # a 13B on 80 GB
RESERVE = 532  # tokens of an answer


class Killed(Exception):
    pass


class SimulatedJudge(BaseJudge):
    """Takes assumed times of a 13B on a GPU: 20,000 prompt tokens a second, and 30 ms for a token of a batch."""

    name, rubric_name, fingerprint = "simulated", "automedeval@1", "f" * 12

    def __init__(self, prompts: list[int], answers: list[int], end: float = math.inf) -> None:
        self.prompts, self.answers, self.end, self.worked = prompts, answers, end, 0.0

    def plan(self, case):
        return [Request(case, (0,))]

    def verdict(self, request, answer, notes=None):
        return self.record(request, None, {"batch": answer}, scores=(3,))

    def answer(self, requests, wanted):
        places = [int(request.case.id) for request in requests]
        lengths = [self.prompts[place] + RESERVE for place in places]
        for batch in LocalChat._batches(CHAT, lengths, [0] * len(lengths)):
            if any(wanted[index] for index in batch):
                ids = [places[index] for index in batch]
                prefill = sum(self.prompts[place] for place in ids) / 20_000
                self.worked += prefill + 0.03 * max(self.answers[place] for place in ids)
                if self.worked > self.end:
                    raise Killed
                yield from ((index, digest(ids)) for index in batch if wanted[index])


def judge_together(folder: Path, prompts: list[int], answers: list[int], end: float = math.inf) -> list[float]:
    """Judge as each process does, one after the other and the first last; return the seconds that each worked."""
    requests = [Request(Case(str(number), "?", (Response("m", "text"),)), (0,)) for number in range(len(prompts))]
    spent = []
    for rank in reversed(range(PROCESSES)):
        judge = SimulatedJudge(prompts, answers, end)
        log = verdict_log(folder, judge, processes=Processes(rank, PROCESSES))
        with suppress(Killed), log:
            done = log.done({request.case.id: request.case.digest for request in requests})
            judge_missing(judge, requests, len(requests), log, done)
        spent.append(judge.worked)
    return spent


@pytest.fixture(scope="module")
def sizes() -> tuple[list[int], list[int]]:
    """Tokens of 5,000 prompts and answers, as skewed as those of patients' questions with several responses."""
    rng = random.Random(0)
    prompts = [int(350 + rng.lognormvariate(6.0, 0.6)) for _ in range(REQUESTS)]
    return prompts, [min(512, max(20, int(rng.gauss(180, 60)))) for _ in range(REQUESTS)]


@pytest.mark.parametrize("order", ["mixed", "short ones first", "scores alone"])
def test_the_slowest_process_works_hardly_longer_than_the_mean(tmp_path, sizes, order):
    prompts, answers = sizes
    prompts = sorted(prompts) if order == "short ones first" else prompts
    answers = [2] * REQUESTS if order == "scores alone" else answers
    spent = judge_together(tmp_path, prompts, answers)
    assert max(spent) / (sum(spent) / PROCESSES) <= 1.1
    ids = [verdict.case_id for verdict in read_verdicts(tmp_path)]
    assert len(ids) == len(set(ids)) == REQUESTS


def test_a_killed_run_composes_the_same_batches_again(tmp_path, sizes):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    spent = judge_together(whole, *sizes)
    for share in (0.2, 0.3):
        judge_together(killed, *sizes, end=share * max(spent))
        assert 0 < len(read_verdicts(killed)) < REQUESTS
    judge_together(killed, *sizes)
    first, second = ({each.case_id: each.extra["batch"] for each in read_verdicts(at)} for at in (whole, killed))
    assert (first, len(first)) == (second, REQUESTS)


def read_verdicts(folder: Path) -> list[Verdict]:
    return list(read_records(folder / "verdicts.jsonl", Verdict))
