"""Measure how fast a checkpoint on this machine judges, against generating one case at a time.

    python benchmarks/judge_throughput.py
    python benchmarks/judge_throughput.py --model MODEL --cases a.jsonl b.jsonl --limit 64 --baseline_limit 8

For each file of cases, all in one run, on the same prompts (those of the packaged rubric, chat template applied), in the dtype
that `LocalChat` chooses:

(a)  the baseline, as PandaLM and JudgeLM run: `AutoModelForCausalLM.generate`, greedy, one case after the other;
(b)  this project with a rationale: `Judge` over `LocalChat`, whole cases, target 8 times the cases/s of (a);
(c)  this project, scores alone: target 20 times the cases/s of (a).

(a) takes `baseline_limit` cases, evenly spaced by the length of their prompts. An untrained model mostly writes until
`max_new_tokens`; therefore cases/s compares whole cases, and written tokens, the score line that (b) and (c) lay down included,
stand beside it.
"""

import argparse
import os
import statistics
from collections.abc import Sequence
from pathlib import Path

import torch
from processes import timed
from rows import ROOT, Results, arguments
from transformers import AutoModelForCausalLM

from automedeval.judges.judge import Judge
from automedeval.models.base import Prompt
from automedeval.models.checkpoints import checkpoint_folder
from automedeval.models.decoding import Prefix
from automedeval.models.local import LocalChat
from automedeval.records import Case
from automedeval.records.tables.cases import read_cases

TARGETS = {"b": 8, "c": 20}  # times the cases/s of (a)


class Bench:
    """The checkpoint as this project loads it (`chat`) and as transformers does (`network`)."""

    def __init__(self, model: str, most: int):
        self.chat = LocalChat(model, max_new_tokens=most)
        folder = checkpoint_folder(model)
        network = AutoModelForCausalLM.from_pretrained(
            folder, dtype=self.chat.network.dtype, use_safetensors=True
        )
        self.network = network.to(self.chat.device).eval()
        self.sides = {
            "(a) generate, one by one": self.generate,
            "(b) judge, rationale": lambda cases: self.judge(cases, rationale=True),
            "(c) judge, scores alone": lambda cases: self.judge(cases, rationale=False),
        }

    def prompts(
        self, cases: Sequence[Case], rationale: bool
    ) -> tuple[list[Prompt], list[list[int]]]:
        """Return the prompts that the cases take, and their token ids."""
        judge = Judge(self.chat, rationale=rationale)
        prompts = [judge.prompt(request) for case in cases for request in judge.plan(case)]
        return prompts, self.chat.encoder.encode([prompt.messages for prompt in prompts])

    def length(self, case: Case) -> int:
        """Return the tokens of a case's prompts."""
        return sum(map(len, self.prompts([case], True)[1]))

    @torch.inference_mode()
    def generate(self, cases: Sequence[Case]) -> int:
        """Return how many tokens were written, as `judge` does."""
        written, pad = 0, self.chat.tokenizer.pad_token_id or 0
        options = {
            "do_sample": False,
            "max_new_tokens": self.chat.max_new_tokens,
            "pad_token_id": pad,
        }
        for ids in self.prompts(cases, True)[1]:
            prompt = torch.tensor([ids], device=self.network.device)
            output = self.network.generate(
                prompt, attention_mask=torch.ones_like(prompt), **options
            )
            written += output.shape[1] - len(ids)
        return written

    def judge(self, cases: Sequence[Case], rationale: bool) -> int:
        self.chat._prefix = Prefix()  # nothing is ready from the warm-up
        return sum(
            verdict.usage["completion_tokens"]
            for verdict in Judge(self.chat, rationale=rationale)(cases)
        )


def measure(
    bench: Bench, cases: list[Case], args: argparse.Namespace, results: Results, file: str
) -> None:
    """Measure every side over the cases of a file, and add the rows."""
    by_length, count = sorted(cases, key=bench.length), min(args.baseline_limit, len(cases))
    spaced = [by_length[int((place + 0.5) * len(cases) / count)] for place in range(count)]
    dtype = str(bench.network.dtype).removeprefix("torch.")
    baseline = None
    for name, side in bench.sides.items():
        given = cases if name[1] in TARGETS else spaced
        side(given[:2])  # kernels are chosen, buffers allocated
        runs = [timed(lambda: side(given)) for _ in range(args.repeats)]  # noqa: B023
        seconds, written = statistics.median(seconds for seconds, _ in runs), runs[0][1]
        read, rate = sum(map(len, bench.prompts(given, name[1] in "ab")[1])), len(given) / seconds
        baseline = baseline or rate
        against = ("generate", rate / baseline, TARGETS[name[1]]) if name[1] in TARGETS else ()
        results.add(f"{file}: {name.split(' ', 1)[1]}, {dtype}", rate, "cases/s", *against)
        tokens = f"{read:,} tokens read ({read / seconds:.0f} a second), {written:,} written ({written / seconds:.1f})"
        results.detail(f"{file}, {name}: {len(given)} cases, {tokens}.")


def main() -> None:
    data = os.environ.get("AUTOMEDEVAL_DATA")
    files = [ROOT / "src/automedeval/sample/test_cases.jsonl"]
    files += [Path(data, "feedbackqa_cdc_valid", "cases.jsonl")] if data else []
    parser = arguments(__doc__)
    add = parser.add_argument
    add(
        "--model",
        default=str(ROOT / "models/SmolLM2-135M-Instruct"),
        help="checkpoint folder (%(default)s)",
    )
    add(
        "--cases",
        nargs="+",
        type=Path,
        default=files,
        help="files of cases (the sample's; AUTOMEDEVAL_DATA adds one)",
    )
    add("--limit", type=int, default=48, help="cases per file (%(default)s)")
    add("--baseline_limit", type=int, default=8, help="cases that the baseline runs (%(default)s)")
    add("--max_new_tokens", type=int, default=256, help="most tokens of a rationale (%(default)s)")
    add("--repeats", type=int, default=1, help="times that each runs (%(default)s)")
    args = parser.parse_args()
    results = Results("Judging speed", args.json)
    bench = Bench(args.model, args.max_new_tokens)
    for file in args.cases:
        given = list(read_cases(file))[: args.limit]
        most = bench.chat.window - args.max_new_tokens
        cases = [case for case in given if bench.length(case) <= most]
        name = (
            file.parent.name if file.name == "cases.jsonl" else file.parent.name + "/" + file.stem
        )
        measure(bench, cases, args, results, name)
        left = (
            f", {len(given) - len(cases)} more do not fit the context window"
            if len(cases) < len(given)
            else ""
        )
        results.note(f"{name}: {len(cases)} cases, up to {args.max_new_tokens} new tokens{left}.")
    results.show()
    results.write()


if __name__ == "__main__":
    main()
