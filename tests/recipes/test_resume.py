"""A run that was killed goes on to the same bytes, whichever judge it has and wherever it was cut.

A log only grows at its end, so that a kill leaves a beginning of the file, perhaps with half a line. Each run is cut at such
places and started again. Other files stop runs after a counted record or checkpoint, test_judge.py and test_sft_distributed.py
by a real SIGKILL.
"""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from doubles.agreement_study import write
from doubles.endpoint import EndpointDouble, good_answer
from programs import ENCODER, needs_encoder, run_command, succeeded

WORDS = re.findall(
    r"\w+",
    """take ibuprofen with food every six hours and call your doctor if pain or fever stays rash swelling breathing dose adult
    child liver kidney blood pressure warfarin alcohol pregnant safe unsafe maybe""",
)
FAST = ("--device", "cpu", "--dtype", "float32", "--max_new_tokens", 8)
JUDGES = {
    "small": ("small", "--encoder", ENCODER),
    "voice": ("small+MODEL", *FAST[:4], "--encoder", ENCODER),
    "checkpoint": ("MODEL", *FAST, "--orders", "latin", "--batch_tokens", 9000),
    "checkpoint, scores alone": ("MODEL", *FAST, "--rationale", "false", "--batch_tokens", 9000),
    "checkpoint, pairs": ("MODEL", *FAST, "--rubric", "medical_pairwise", "--batch_tokens", 9000),
    "checkpoint, criteria": ("MODEL", *FAST, "--rubric", "checklist", "--rationale", "false"),
    "likelihood": ("likelihood:MODEL", *FAST[:4], "--batch_tokens", 3000),
    "baseline": ("baseline:BM25 to the question",),
    "embedding": ("baseline:embedding to the question", "--encoder", ENCODER),
    "endpoint": ("openai:m", "--base_url", "URL", "--concurrency", 1, "--score_decoding", "free"),
    "endpoint, criteria": ("openai:m", "--base_url", "URL", "--concurrency", 1, "--rubric", "checklist"),
}


def cases_of(count: int) -> list[dict]:
    rng = random.Random(3)

    def text(least: int, most: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(rng.randint(least, most))) + "."

    def answer(n: int, at: int) -> str:
        return "" if n % 7 == at else "ใช่ คุณต้องฉีดวัคซีน" if n % 7 == at + 3 else text(3, 90)

    return [
        {"id": f"k{n}", "question": text(4, 30), "reference": text(9, 20) if n % 3 == 0 else None}
        | {"responses": [{"model": model, "text": answer(n, at)} for at, model in enumerate("abc")]}
        | {"criteria": [{"criterion": text(3, 6), "points": points} for points in (5, -3)]}
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def run(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Path], None]:
    folder = tmp_path_factory.mktemp("cases")
    many, few = write(folder / "many.jsonl", cases_of(40)), write(folder / "few.jsonl", cases_of(6))
    with EndpointDouble(good_answer) as endpoint:

        def start(name: str, output: Path) -> None:
            args = [str(each).replace("MODEL", str(tiny_model)) for each in JUDGES[name]]
            args = [endpoint.url if each == "URL" else each for each in args]
            cases = many if name in ("small", "likelihood", "baseline") else few
            succeeded(run_command("judge", "--cases", cases, "--judge", *args, "--output", output))

        yield start


@needs_encoder
@pytest.mark.parametrize("name", JUDGES)
def test_a_cut_run_goes_on_to_the_same_bytes(run: Callable[[str, Path], None], name: str, tmp_path: Path) -> None:
    run(name, tmp_path / "whole")
    whole = (tmp_path / "whole" / "verdicts.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    assert len(lines) >= 6
    half = len(lines) // 2
    for place, left in enumerate((lines[:1], lines[:half], [*lines[:half], lines[half][:40]], lines[:-1])):
        output = tmp_path / f"cut{place}"
        output.mkdir()
        (output / "verdicts.jsonl").write_bytes(b"".join(left))
        run(name, output)
        assert (output / "verdicts.jsonl").read_bytes() == whole


@needs_encoder
@pytest.mark.parametrize("rubric", ["scores", "criteria"])
def test_a_cut_audit_goes_on_to_the_same_figures(rubric: str, tiny_model: Path, tmp_path: Path) -> None:
    cases = write(tmp_path / "cases.jsonl", cases_of(5))
    small = ("--judge", "small", "--encoder", ENCODER)
    judge = small if rubric == "scores" else ("--judge", tiny_model, *JUDGES["checkpoint, criteria"][1:])

    def audit(output: Path) -> dict:
        options = ("--cases", cases, "--edits", 1, "--gate", "false", "--output", output)
        succeeded(run_command("audit", *judge, *options))
        figures = json.loads((output / "audit.json").read_text())
        del figures["settings"]
        return figures

    whole, output = audit(tmp_path / "whole"), tmp_path / "cut"
    assert audit(output) == whole
    logs = sorted(output.rglob("verdicts.jsonl"))
    assert logs
    before = [log.read_bytes() for log in logs]
    for log in logs:
        kept = log.read_bytes()
        log.write_bytes(kept[: 2 * len(kept) // 3])
    assert audit(output) == whole
    assert [log.read_bytes() for log in logs] == before
