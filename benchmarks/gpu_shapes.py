"""Train and judge on one GPU with random weights of real sizes: memory, tokens per second, cases per second.

    python benchmarks/gpu_shapes.py train SHAPE UPDATES ROWS ARGUMENTS_OF_SFT...
    python benchmarks/gpu_shapes.py make FOLDER SHAPE
    python benchmarks/gpu_shapes.py judge FOLDER CASES

`train` is recipes/sft.py itself, but for the model, which is built on the GPU, and the rows, of which each has 2,048 tokens, a
quarter of them trained on. SHAPE is JSON: values of a LlamaConfig, or for `make` of a Qwen2Config. `judge` adds to
judge_throughput.py what a bare forward pass over the same tokens takes.
"""

import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, TrainerCallback
from transformers.initialization import no_init_weights

ROOT = Path(__file__).parents[1]
TOKENIZER = ROOT / "models/SmolLM2-135M-Instruct"
TOKENS = {"vocab_size": 49152, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
LENGTH = 2048


def drawn(network):
    """Draw the weights."""
    for name, each in network.named_parameters():
        each.data.fill_(1.0) if "norm" in name else each.data.zero_() if "bias" in name else each.data.normal_(0, 0.02)
    return network


class Clock(TrainerCallback):
    """Notes when updates begin and end."""

    def __init__(self):
        self.times = []

    def on_step_end(self, *_, **__):
        torch.cuda.synchronize()
        self.times.append(time.perf_counter())


def train(shape, updates, rows, *given):
    sys.path.insert(0, str(ROOT / "recipes"))
    import sft
    from datasets import Dataset

    updates, rows, rng = int(updates), int(rows), random.Random(0)
    folder = Path(tempfile.mkdtemp())
    AutoTokenizer.from_pretrained(TOKENIZER).save_pretrained(folder)
    config = LlamaConfig(**json.loads(shape), **TOKENS, max_position_embeddings=4096)
    config.save_pretrained(folder)
    (folder / "model.safetensors").write_bytes(b"")
    mask = [0] * (LENGTH - LENGTH // 4) + [1] * (LENGTH // 4)
    made = [
        {"input_ids": [rng.randrange(10, 49000) for _ in mask], "completion_mask": mask}
        for _ in range(2 * rows * (updates + 1))
    ]
    sft.read_rows = lambda parts: ("synthetic", ["stage1"], Dataset.from_list(made), {})
    sft.tokenize, sft.check_start = lambda found, place, **_: found, lambda *_: None

    class Trainer(sft.SFTTrainer):
        def __init__(self, model, args, **more):
            kind, args.model_init_kwargs = args.model_init_kwargs, None
            config._attn_implementation = kind["attn_implementation"]
            dtype = getattr(torch, kind["dtype"])
            torch.set_default_dtype(dtype)
            with torch.device("cuda"), no_init_weights():
                network = LlamaForCausalLM._from_config(config, dtype=dtype)
            torch.set_default_dtype(torch.float32)
            network.model.rotary_emb = type(network.model.rotary_emb)(config).to("cuda")
            network.config.name_or_path = str(folder)
            super().__init__(model=drawn(network), args=args, **more)

        def train(self, **more):
            self.add_callback(clock := Clock())
            super().train(**more)
            seconds = statistics.median(end - start for start, end in zip(clock.times, clock.times[1:]))
            peak = torch.cuda.max_memory_allocated() / 2**30
            print(
                f"{torch.cuda.get_device_name()}: {2 * rows * LENGTH / seconds:,.0f} tokens/s, {peak:.1f} GiB",
                flush=True,
            )
            os._exit(0)

    sft.SFTTrainer = Trainer
    sys.argv = ["sft.py", *given, "--model_name_or_path", str(folder), "--output_dir", str(folder / "run")]
    sys.argv += ["--max_steps", str(updates), "--gradient_accumulation_steps", str(rows), "--save_strategy", "no"]
    sys.argv += ["--chat_template_path", "none", "--report_to", "none"]
    sft.start()


def make(folder, shape):
    shutil.copytree(TOKENIZER, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors"))
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"), no_init_weights():
        network = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen2", **json.loads(shape), **TOKENS))
    torch.manual_seed(0)
    drawn(network).save_pretrained(folder)


def judge(folder, file):
    from judge_throughput import Bench

    from automedeval.records import read_cases

    bench, cases = Bench(folder, 256), list(read_cases(file))[:96]
    flat = [token for ids in bench.prompts(cases, False)[1] for token in ids]
    sides = {**bench.sides, "bare forward": lambda _: forward(bench.network, flat)}
    for name, side in sides.items():
        given = cases[:2] if name[1] == "a" else cases
        side(given[:2])
        torch.cuda.synchronize()
        start = time.perf_counter()
        side(given)
        torch.cuda.synchronize()
        print(f"{name}: {len(given) / (time.perf_counter() - start):.3g} cases/s", flush=True)


@torch.inference_mode()
def forward(network, flat, size=8192):
    for at in range(0, len(flat) - 511, size):
        ids = torch.tensor(flat[at : at + size], device=network.device)
        network(input_ids=ids[: len(ids) // 512 * 512].view(-1, 512), use_cache=False, logits_to_keep=1)


if __name__ == "__main__":
    {"train": train, "make": make, "judge": judge}[sys.argv[1]](*sys.argv[2:])
