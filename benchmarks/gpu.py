"""Measure judging and training on one GPU, with random weights: tokens per second and MFU.

    python benchmarks/gpu.py --json benchmarks/results/gpu.json
    python benchmarks/gpu.py --tiny

It takes less than ten minutes on a GPU of 80 GB: a part that would begin after `--seconds` is left out, and named. It needs
torch, transformers and this repository's `src` (on PYTHONPATH, or installed), and no network. `--tiny` takes tiny shapes, on a
CPU within seconds; its figures mean nothing.

Judged are made cases with two responses, by `Judge` over `LocalChat` with a random 8B and 13B of Llama's shapes in bfloat16,
from prompts to verdicts. Random weights write until `--max_new_tokens`. Tokens are those that were computed: what all prompts
of a window share counts once. Model FLOP utilisation (MFU) is 2 x parameters x tokens/s over the peak of the device, in
training 6 x parameters, and 4 x where the weights are frozen (LoRA). Attention and the embeddings of tokens are not counted.
The peak is the maker's figure for dense bfloat16, `--peak_flops`, or what a large product of matrices reached before.

Targets: scores alone reach 50 % MFU, and the 8B judges 4 x the 3.5 pairs/s of JudgeLM (Zhu et al. 2023: 5,000 pairs in three
minutes by a 7B on eight A100, without reasons). The exit status is 0 whether targets are met or not.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from rows import Results, add_json
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from automedeval.judges.base import WINDOW
from automedeval.judges.judge import Judge
from automedeval.models.device import best_device
from automedeval.models.local import LocalChat
from automedeval.models.network import flatten_head_input, outline_network
from automedeval.records import Case, Response, read_cases
from automedeval.reports.text import format_table

SAMPLE = Path(__file__).parents[1] / "src" / "automedeval" / "sample" / "train_cases.jsonl"
JUDGELM = 3.5  # pairs/s of a GPU
PEAKS = {"H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12}
SHAPES = {
    "8B": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
               "num_key_value_heads": 8, "vocab_size": 128_256},
    "13B": {"hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40, "num_attention_heads": 40,
                "num_key_value_heads": 40, "vocab_size": 32_000},
    "1B": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
               "num_key_value_heads": 8, "vocab_size": 128_256},
}  # fmt: skip
TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 2_048,
}
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


class Gpu:
    """The device, what it is able to do, and the time that is left."""

    def __init__(self, args: argparse.Namespace):
        self.args, self.started = args, time.perf_counter()
        self.device = "cpu" if args.tiny else args.device or best_device()
        self.on_gpu = self.device.startswith("cuda")
        self.dtype = torch.float32 if args.tiny else torch.bfloat16
        self.tokenizer = tokenizer_of_sample(2_000 if args.tiny else 16_000)
        self.peak, self.peak_of = self._peak()

    def _peak(self) -> tuple[float, str]:
        """Return the operations per second that count as all, and where the figure is from."""
        if self.args.peak_flops:
            return self.args.peak_flops, "--peak_flops"
        name = torch.cuda.get_device_name(self.device) if self.on_gpu else ""
        for known, flops in PEAKS.items():
            if all(word in name for word in known.split()):
                return flops, f"the maker's figure for {known}"
        size = 256 if self.args.tiny else 8192
        one = torch.randn(size, size, device=self.device, dtype=self.dtype)
        one @ one
        seconds = self.timed(lambda: [one @ one for _ in range(10)])
        return 10 * 2 * size**3 / seconds, "a product of matrices in this run"

    def timed(self, work: Callable[[], Any]) -> float:
        """Return the seconds that some work takes, with that of the device."""
        self.wait()
        start = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - start

    def wait(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def late(self) -> bool:
        return time.perf_counter() - self.started > self.args.seconds

    @contextmanager
    def memory(self) -> Iterator[dict[str, float]]:
        """Free what is left over, and note the peak of the allocated GiB in `found` at the end."""
        found = {"GiB": 0.0}
        if self.on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
        yield found
        if self.on_gpu:
            found["GiB"] = torch.cuda.max_memory_allocated(self.device) / 2**30

    def config(self, shape: str) -> Any:
        given = TINY | {"num_hidden_layers": 2} if self.args.tiny else SHAPES[shape]
        return AutoConfig.for_model(
            "llama", **given, max_position_embeddings=8192, bos_token_id=1, eos_token_id=2, pad_token_id=0,
            tie_word_embeddings=False,
        )  # fmt: skip

    def network(self, shape: str, dtype: torch.dtype) -> torch.nn.Module:
        """Return a random network, made on the device."""
        torch.manual_seed(0)
        with torch.device(self.device):
            return AutoModelForCausalLM.from_config(self.config(shape), dtype=dtype)


def tokenizer_of_sample(size: int) -> PreTrainedTokenizerFast:
    """Train a byte-level tokenizer on the packaged sample."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train([str(SAMPLE)], trainer)
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=8192, **names)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def texts(count: int, words: int, seed: int) -> list[str]:
    """Return texts of the words of the sample, half to one and a half times as long as `words`."""
    rng = random.Random(seed)
    known = [word for case in read_cases(SAMPLE) for one in case.responses for word in one.text.split()]
    return [" ".join(rng.choices(known, k=rng.randint(words // 2, words * 3 // 2))) for _ in range(count)]


def made_cases(count: int, words: int) -> list[Case]:
    """Return cases with two responses of about so many words."""
    asked, one, other = texts(count, words // 4, 0), texts(count, words, 1), texts(count, words, 2)
    return [
        Case(str(number), asked[number], (Response("a", one[number]), Response("b", other[number])))
        for number in range(count)
    ]


# --- judging -----------------------------------------------------------------------------------------------------------


def judging(gpu: Gpu, results: Results) -> Iterator[dict[str, Any]]:
    """Judge with both shapes, alone and with a rationale; yield a line of the table for each."""
    args = gpu.args
    count, words = (4, 12) if args.tiny else (args.cases, 120)
    cases = made_cases(count, words)
    for shape in ("8B", "13B"):
        if gpu.late():
            results.note(f"Left out for lack of time: judging by the {shape}.")
            continue
        with gpu.memory(), tempfile.TemporaryDirectory() as folder:
            chat = random_chat(gpu, shape, Path(folder))
            judged = partial(judge, gpu, results, chat, shape)
            judged(cases[:2], False, counted=False)  # kernels are chosen, buffers allocated
            yield judged(cases, False)
            room, chat.batch_tokens = chat.batch_tokens, min(chat.batch_tokens, 8192)
            yield judged(cases[: max(2, count // 4)], False)
            chat.batch_tokens = room
            yield judged(cases[: count if shape == "8B" else max(2, count // 4)], True)
            del chat, judged


def random_chat(gpu: Gpu, shape: str, folder: Path) -> LocalChat:
    """Return a chat over a random network; its folder holds configuration and tokenizer alone."""
    gpu.tokenizer.save_pretrained(folder)
    gpu.config(shape).save_pretrained(folder)
    limit = 4 if gpu.args.tiny else gpu.args.max_new_tokens
    dtype = str(gpu.dtype).removeprefix("torch.")
    chat = LocalChat(str(folder), dtype=dtype, device=gpu.device, max_new_tokens=limit)
    network = gpu.network(shape, gpu.dtype).eval().requires_grad_(False)
    # as in `load_network`, which reads files
    network.set_attn_implementation(outline_network(folder, gpu.dtype, gpu.device).config._attn_implementation)
    flatten_head_input(network)
    chat.network = network
    return chat


def judge(
    gpu: Gpu, results: Results, chat: LocalChat, shape: str, cases: list[Case], rationale: bool, counted: bool = True
) -> dict[str, Any]:
    """Judge cases; add rows for pairs/s, tokens/s and MFU, and return the line of the table."""
    judging = Judge(chat, "medical_pairwise" if not rationale else "automedeval", rationale=rationale)
    asked = [judging.prompt(request) for case in cases for request in judging.plan(case)]
    encoded = chat.encoder.encode([prompt.messages for prompt in asked])
    found: list[Any] = []
    with gpu.memory() as memory:
        seconds = gpu.timed(lambda: found.extend(judging(cases)))
    tokens = sum(verdict.usage["completion_tokens"] for verdict in found)
    for start in range(0, len(encoded), WINDOW):
        window = encoded[start : start + WINDOW]
        shared = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*window))) if len(window) > 1 else 0
        tokens += sum(map(len, window)) - shared * (len(window) - 1)
    flops = 2 * parameters(chat.network)
    name = f"{shape}, {'rationale' if rationale else 'scores alone'}, batches of {chat.batch_tokens:,} tokens"
    line = {"judging": name, "cases": len(cases), "pairs/s": len(cases) / seconds, "tokens/s": tokens / seconds}
    line |= {"MFU": flops * tokens / seconds / gpu.peak, "GiB": memory["GiB"], "seconds": seconds}
    if counted:
        whole = not rationale and len(cases) == (4 if gpu.args.tiny else gpu.args.cases)
        against = (f"JudgeLM 7B, {JUDGELM} pairs/s", line["pairs/s"] / JUDGELM) if shape == "8B" and whole else ()
        results.add(name, line["pairs/s"], "cases/s", *against, **({"least": 4} if against else {}))
        results.add(name, line["tokens/s"], "tokens/s")
        results.add(name, line["MFU"], "MFU", least=0.5 if whole else None)
    return line


def parameters(network: torch.nn.Module) -> int:
    """Return the number of parameters without the embeddings of tokens, which are looked up."""
    return sum(each.numel() for each in network.parameters()) - network.get_input_embeddings().weight.numel()


# --- training ----------------------------------------------------------------------------------------------------------


class LoRA(torch.nn.Module):
    """A frozen linear layer, and beside it the product of two small matrices (Hu et al. 2021)."""

    def __init__(self, base: torch.nn.Linear, rank: int = 16):
        super().__init__()
        self.base = base.requires_grad_(False)
        options = {"device": base.weight.device, "dtype": torch.float32}
        self.down = torch.nn.Parameter(torch.randn(rank, base.in_features, **options) * 0.01)
        self.up = torch.nn.Parameter(torch.zeros(base.out_features, rank, **options))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.base(given) + 2 * (given @ self.down.to(given.dtype).T) @ self.up.to(given.dtype).T


def training(gpu: Gpu, results: Results) -> Iterator[dict[str, Any]]:
    """Train a 1B, and an 8B by LoRA; yield a line of the table for each."""
    for shape, lora in (("1B", False), ("8B", True)):
        name = f"{shape}, {'LoRA' if lora else 'all weights'}, a bare step"
        if gpu.late():
            results.note(f"Left out for lack of time: training, {name}.")
            continue
        with gpu.memory() as memory:
            rate, flops, seconds = train(gpu, shape, lora)
        results.add(f"training {name}", rate, "tokens/s")
        results.add(f"training {name}", flops * rate / gpu.peak, "MFU")
        line = {"training": name, "tokens/s": rate, "MFU": flops * rate / gpu.peak}
        yield line | {"GiB": memory["GiB"], "seconds": seconds}


def train(gpu: Gpu, shape: str, lora: bool) -> tuple[float, int, float]:
    """Train for a few bare steps; return the tokens/s, the operations of a token, and the seconds."""
    network = gpu.network(shape, gpu.dtype if lora else torch.float32)
    size = parameters(network)
    if lora:
        network.requires_grad_(False)
        for layer in network.model.layers:
            for part in ("q_proj", "k_proj", "v_proj", "o_proj"):
                setattr(layer.self_attn, part, LoRA(getattr(layer.self_attn, part)))
    network.train()
    network.gradient_checkpointing_enable({"use_reentrant": False})
    trained = [each for each in network.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=gpu.on_gpu)
    rows, length = (1, 16) if gpu.args.tiny else (8, 1024)
    ids = torch.randint(3, network.config.vocab_size, (rows, length), device=gpu.device)

    def step() -> None:
        with torch.autocast(torch.device(gpu.device).type, dtype=torch.bfloat16, enabled=gpu.on_gpu):
            loss = network(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    gpu.timed(step)  # the states of the optimizer
    steps = 2 if gpu.args.tiny else 8
    seconds = gpu.timed(lambda: [step() for _ in range(steps)])
    # The gradients of the weights are a third of a step. The second forward pass of checkpointing is not counted.
    return steps * ids.numel() / seconds, (4 if lora else 6) * size, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--tiny", action="store_true", help="tiny shapes in float32 on the CPU, to see that everything runs")
    add("--device", help="a GPU if there is one")
    add("--cases", type=int, default=1000, help="cases that are judged (%(default)s)")
    add("--max_new_tokens", type=int, default=160, help="of a rationale (%(default)s)")
    add("--seconds", type=float, default=480, help="no part begins later than this (%(default)s)")
    add("--peak_flops", type=float, help="operations per second of the device that count as all")
    add_json(parser)
    args = parser.parse_args()
    results, gpu = Results("Judging and training on a GPU", args.json), Gpu(args)
    for part in (judging, training):
        table = []
        for line in part(gpu, results):
            table.append({name: f"{value:.3g}" if isinstance(value, float) else value for name, value in line.items()})
            print(", ".join(f"{name}: {value}" for name, value in table[-1].items()), flush=True)
        if table:
            print(f"\n{format_table(table)}\n")
    results.note(f"MFU counts against {gpu.peak / 1e12:.3g} TFLOPS: {gpu.peak_of}. The weights are random.")
    print("\n".join(results.notes))
    for row in results.rows:
        if row["target"]:
            met, figure = "met" if row["met"] else "missed", row["value"] if row["ratio"] is None else row["ratio"]
            print(f"{row['name']}, {row['unit']}: {figure:.3g}, {row['target']}: {met}")
    results.write()


if __name__ == "__main__":
    main()
