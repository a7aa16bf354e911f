"""Measure how fast a checkpoint on this machine judges, against generating one case at a time, and against a bare forward.

    python benchmarks/judge_throughput.py
    python benchmarks/judge_throughput.py --model MODEL --cases a.jsonl b.jsonl --limit 64 --baseline_limit 8

For each file of cases, all in one run, on the same prompts (those of the packaged rubric, chat template applied):

(a)  the baseline, as PandaLM and JudgeLM run: `AutoModelForCausalLM.generate`, greedy, one case after the other;
(b)  this project with a rationale: `Judge` over `LocalChat`, whole cases, target 8 times the cases/s of (a);
(c)  this project, scores alone: target 20 times the cases/s of (a);
(d)  a limit: one bare forward of the checkpoint over the prompts of (c), one position of logits kept, in the same batches,
     padded on the left; (c) is to read 0.9 times as many prompt tokens/s. (c) computes the beginning that all prompts of a
     window share once only, (d) again for every row, so (c) may come out above 1;
(d') the same with the output layer's input flattened (`network.flatten_head_input`). torch 2.13 on CPU sends the slice of
     hidden states that `logits_to_keep` makes down a slow path; (d) pays for that and (d') does not, as (c) does not.

Every row runs in the faster of float32 and, where the hardware computes it, bfloat16, tried on a few cases first. (a) takes
`baseline_limit` cases, evenly spaced by the length of their prompts. An untrained model mostly writes until `max_new_tokens`;
therefore cases/s compares whole cases, and written tokens, the score line that (b) and (c) lay down included, stand beside it.
(b) is timed once, (c), (d) and (d') take turns and count with their medians. Of (b) and (c) the least time is printed too that
this machine needs for their products and their keys and values (`limits.py`). The exit status is 0 whether targets are met or
not.
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path

import torch
from limits import Machine, Passes
from rows import Results, add_json
from transformers import AutoModelForCausalLM

from automedeval.judges.base import WINDOW
from automedeval.judges.judge import Judge
from automedeval.models.base import Prompt
from automedeval.models.checkpoints import checkpoint_folder
from automedeval.models.decoding import Prefix
from automedeval.models.device import best_device
from automedeval.models.local import LocalChat
from automedeval.models.precision import bfloat16_missing
from automedeval.records import Case, read_cases
from automedeval.reports.text import format_table

ROOT = Path(__file__).parents[1]
# Without instructions for bfloat16 it is several times slower, and trying it takes longer than all the rest.
DTYPES = ("float32",) if bfloat16_missing(best_device()) else ("float32", "bfloat16")
Side = Callable[[Sequence[Case], int, str], int]  # cases, most new tokens, dtype → tokens written


class Bench:
    """The checkpoint in both dtypes, as this project loads it (`chats`) and as transformers does (`networks`)."""

    def __init__(self, model: str):
        self.chats = {dtype: LocalChat(model, dtype=dtype) for dtype in DTYPES}
        self.networks = {
            dtype: AutoModelForCausalLM.from_pretrained(
                checkpoint_folder(model), dtype=getattr(torch, dtype), use_safetensors=True
            ).to(self.chats[dtype].device).eval()
            for dtype in DTYPES
        }  # fmt: skip
        self.sides: dict[str, Side] = {
            "(a) generate, one by one": self.generate,
            "(b) judge, rationale": lambda *given: self.judge(*given, rationale=True),
            "(c) judge, scores alone": lambda *given: self.judge(*given, rationale=False),
            "(d) bare forward": lambda cases, _, dtype: self.forward(self.networks[dtype], cases, dtype),
            "(d') with flat head input": lambda cases, _, dtype: self.forward(self.chats[dtype].network, cases, dtype),
        }

    def prompts(self, cases: Sequence[Case], rationale: bool, dtype: str) -> tuple[list[Prompt], list[list[int]]]:
        """Return the prompts that the cases take, and their token ids."""
        judge = Judge(self.chats[dtype], rationale=rationale)
        prompts = [judge.prompt(request) for case in cases for request in judge.plan(case)]
        return prompts, self.chats[dtype].encoder.encode([prompt.messages for prompt in prompts])

    def fits(self, case: Case, most: int) -> bool:
        """Say whether the case and an answer of `most` tokens stay within the context window."""
        chat = self.chats[DTYPES[0]]
        chat.max_new_tokens = most
        return max(chat.overflow(self.prompts([case], True, DTYPES[0])[0])) <= 0

    @torch.inference_mode()
    def generate(self, cases: Sequence[Case], most: int, dtype: str) -> int:
        network, written = self.networks[dtype], 0
        pad = self.chats[dtype].tokenizer.pad_token_id or 0
        for ids in self.prompts(cases, True, dtype)[1]:
            prompt = torch.tensor([ids], device=network.device)
            output = network.generate(
                prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=most, pad_token_id=pad
            )
            written += output.shape[1] - len(ids)
        return written

    def judge(self, cases: Sequence[Case], most: int, dtype: str, rationale: bool) -> int:
        chat = self.chats[dtype]
        chat.max_new_tokens = most
        chat._prefix = Prefix()  # nothing is ready from the warm-up
        return sum(verdict.usage["completion_tokens"] for verdict in Judge(chat, rationale=rationale)(cases))

    @torch.inference_mode()
    def forward(self, network: torch.nn.Module, cases: Sequence[Case], dtype: str) -> int:
        pad = self.chats[dtype].tokenizer.pad_token_id or 0
        for rows in self.passes(cases, dtype):
            width = max(map(len, rows))
            ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows], device=network.device)
            mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=network.device)
            positions = (mask.cumsum(1) - 1).clamp(min=0)
            output = network(
                input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False, logits_to_keep=1
            )
            output.logits.reshape(len(rows), -1).argmax(1).tolist()  # waits for a GPU
        return 0

    def passes(self, cases: Sequence[Case], dtype: str) -> list[list[list[int]]]:
        """Return the rows of every forward pass that reads the prompts of (c): its batches, cut like `Rows.start` does."""
        chat, found = self.chats[dtype], []
        prompts, encoded = self.prompts(cases, False, dtype)
        for start in range(0, len(encoded), WINDOW):
            window = encoded[start : start + WINDOW]
            columns = takewhile(lambda column: len(set(column)) == 1, zip(*window))  # what (c) computes once
            shared = sum(1 for _ in columns) if len(window) > 1 else 0
            asked = prompts[start : start + WINDOW]
            lengths = [len(ids) + chat._reserve(prompt) for ids, prompt in zip(window, asked)]
            for batch in chat._batches(lengths, [(prompt.run, repr(prompt.parts)) for prompt in asked]):
                rows: list[list[int]] = []
                for index in batch:  # shortest first
                    if rows and (len(window[index]) - shared) * (len(rows) + 1) > chat.forward_tokens:
                        found.append(rows)
                        rows = []
                    rows.append(window[index])
                found.append(rows)
        return found


def timed(side: Side, cases: Sequence[Case], most: int, dtype: str) -> tuple[float, int]:
    start = time.perf_counter()
    written = side(cases, most, dtype)
    return time.perf_counter() - start, written


def spaced(cases: Sequence[Case], lengths: Sequence[int], count: int) -> list[Case]:
    """Return so many cases, evenly spaced by the length of their prompts."""
    order = sorted(range(len(cases)), key=lengths.__getitem__)
    count = min(count, len(order))
    return [cases[order[int((place + 0.5) * len(order) / count)]] for place in range(count)]


def measure(
    bench: Bench, cases: list[Case], args: argparse.Namespace, results: Results, file: str
) -> list[dict[str, str]]:
    """Measure every side over the cases of a file, add the rows to the results and return the table."""
    lengths = [sum(map(len, bench.prompts([case], True, DTYPES[0])[1])) for case in cases]
    rows, tried = {}, {}
    for name, side in bench.sides.items():
        alone = name.startswith("(a)")
        few = spaced(cases, lengths, max(2, args.probe // 8) if alone else args.probe)
        tried[name] = {}
        for dtype in DTYPES:
            side(few[:2], 4, dtype)
            tried[name][dtype] = len(few) / timed(side, few, min(32, args.max_new_tokens), dtype)[0]
        chosen = spaced(cases, lengths, args.baseline_limit) if alone else cases
        rows[name] = {"cases": chosen, "dtype": max(DTYPES, key=tried[name].get), "times": []}
    print("tried, cases/s with up to 32 new tokens:")
    print(format_table([{"row": name, **rates} for name, rates in tried.items()]))

    for turn in range(args.repeats):
        for name, row in rows.items():
            if turn == 0 or name[1] in "cd":
                bench.sides[name](row["cases"][:2], 4, row["dtype"])
                row["passes"] = Passes(bench.chats[row["dtype"]].network)
                with row["passes"].counted():
                    seconds, row["written"] = timed(bench.sides[name], row["cases"], args.max_new_tokens, row["dtype"])
                row["passes"].shared = len(bench.chats[row["dtype"]]._prefix.tokens)
                row["times"].append(seconds)

    for name, row in rows.items():
        seconds, count = statistics.median(row["times"]), len(row["cases"])
        row["read"] = sum(map(len, bench.prompts(row["cases"], name[1] in "ab", row["dtype"])[1]))
        row |= {"rate": count / seconds, "reading": row["read"] / seconds, "writing": row["written"] / seconds}
    baseline, scores = rows["(a) generate, one by one"], rows["(c) judge, scores alone"]
    table = []
    for name, row in rows.items():
        line = {
            "row": name,
            "dtype": row["dtype"],
            "cases": len(row["cases"]),
            "cases/s": f"{row['rate']:.3g}",
            "read/s": f"{row['reading']:.0f}",
            "written": row["written"],
            "written/s": f"{row['writing']:.1f}",
        }
        told = f"{file}: {name.split(' ', 1)[1]}, {row['dtype']}"
        if name[1] == "a":
            results.add(told, row["rate"], "cases/s")
        elif name[1] in "bc":
            ratio, least = row["rate"] / baseline["rate"], {"b": 8, "c": 20}[name[1]]
            line |= said(results.add(told, row["rate"], "cases/s", "generate", ratio, least), "× (a)")
            if row["passes"].network.device.type == "cpu":
                limit(results, told, row, baseline)
        else:
            ratio, told = scores["reading"] / row["reading"], f"{file}: scores alone, {scores['dtype']}"
            found = results.add(told, scores["reading"], "prompt tokens/s", name.split(" ", 1)[1], ratio, 0.9)
            line |= said(found, "(c)/" + name.split()[0])
        table.append(line)
    return table


def limit(results: Results, told: str, row: dict, baseline: dict) -> None:
    """Add the rate that the machine's own products and bandwidth allow, and the numbers that it follows from."""
    passes, machine = row["passes"], Machine(row["passes"].network)
    seconds, count = passes.least_seconds(machine), len(row["cases"])
    results.add(f"{told}, least time", count / seconds, "cases/s", "generate", count / seconds / baseline["rate"])
    widths = [(rows, width) for rows, width, _, _ in passes.found]
    steps = [rows for rows, width in widths if width == 1]
    read = [rows * width for rows, width in widths if width > 1]
    speeds = [
        f"{what} of {statistics.mean(sizes):.0f} rows at {machine.speed(statistics.mean(sizes)) / 1e9:.0f} GFLOP/s"
        for what, sizes in (("reads prompts in products", read), ("decodes in products", steps))
        if sizes
    ]
    results.detail(
        f"{told}: {len(widths)} forward passes with {passes.operations / 1e12:.2f} TFLOP, "
        f"{passes.state_bytes / 1e9:.1f} GB of keys and values. The machine {', '.join(speeds)}; "
        f"a product of 2048 rows reaches {machine.speed(2048) / 1e9:.0f} GFLOP/s, memory {machine.bandwidth / 1e9:.1f} GB/s. "
        f"The least time is {seconds:.1f} s, the run took {count / row['rate']:.1f} s."
    )


def said(row: dict, of: str) -> dict[str, str]:
    """Return the ratio of a row, its target and whether it is met as cells of the table."""
    return {"ratio": f"{row['ratio']:.2f} {of}", "target": row["target"], "met": "yes" if row["met"] else "no"}


def machine() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.processor()
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{processor}, {os.cpu_count()} cores{gpu}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}"


def main() -> None:
    data = os.environ.get("AUTOMEDEVAL_DATA")
    files = [ROOT / "src" / "automedeval" / "sample" / "test_cases.jsonl"]
    files += [Path(data, "feedbackqa_cdc_valid", "cases.jsonl")] if data else []
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", default=str(ROOT / "models" / "SmolLM2-135M-Instruct"), help="checkpoint folder (%(default)s)")
    add("--cases", nargs="+", type=Path, default=files, help="files of cases (the sample's; AUTOMEDEVAL_DATA adds one)")
    add("--limit", type=int, default=48, help="cases per file (%(default)s)")
    add("--baseline_limit", type=int, default=8, help="cases that the baseline runs (%(default)s)")
    add("--max_new_tokens", type=int, default=256, help="most tokens of a rationale (%(default)s)")
    add("--repeats", type=int, default=2, help="times that (c), (d) and (d') run (%(default)s)")
    add("--probe", type=int, default=4, help="cases that the choice of dtype takes (%(default)s)")
    add_json(parser)
    args = parser.parse_args()
    print(machine())
    results = Results("Judging speed", args.json)
    bench = Bench(args.model)
    for file in args.cases:
        given = list(read_cases(file))[: args.limit]
        cases = [case for case in given if bench.fits(case, args.max_new_tokens)]
        if len(cases) < len(given):
            print(f"\n{file}: {len(given) - len(cases)} cases do not fit the context window and are left out")
        print(f"\n{file}: {len(cases)} cases, up to {args.max_new_tokens} new tokens")
        name = file.parent.name if file.name == "cases.jsonl" else file.parent.name + "/" + file.stem
        print(format_table(measure(bench, cases, args, results, name)))
        results.note(f"{name}: {len(cases)} cases, up to {args.max_new_tokens} new tokens.")
    results.write()


if __name__ == "__main__":
    main()
