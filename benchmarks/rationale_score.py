"""Measure the rationale metric against the programs that its two methods were published with, on the same weights.

    AUTOMEDEVAL_DATA=../data python benchmarks/rationale_score.py
    AUTOMEDEVAL_DATA=../data python benchmarks/rationale_score.py --tiny --pairs 20 --repeats 1 --parts bart

AUTOMEDEVAL_DATA names the folder with feedbackqa/. The texts are pairs of comments that two raters wrote on the same answer.
The weights are random, in the shapes of roberta-base (layer 10 of 12) and bart-base: what the words are changes no time.

bert    BERTScore by `bert_score.BERTScorer`, batches of 64. `bert_score.score` does the same after loading the model; here
        everybody's model is loaded before the clock starts.
bart    BARTScore as published: batches of 4 in the given order, logits and loss by the model, LogSoftmax over the whole
        vocabulary, NLLLoss. The wording is ours.

Each run is a process of its own, in turns; all of them load the same libraries. Times count with their medians, and a run is
timed after another one on a few pairs. Memory is the most that a process held, libraries and model included. That the numbers
of float32 are equal is checked, and the exit status is 1 where they are not; it is 0 whether a target is met or not. The
metric's own BERTScore is its default as long as it meets its target here, a ratio of 1.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from judge_memory import peak
from rows import Results, add_json

from automedeval.records import read_lines

ROOT = Path(__file__).parents[1]
EQUAL = {"bert": 1e-5, "bart": 1e-4}  # largest difference in float32
NEAR = 1e-2  # largest difference in bfloat16
# (part, who, dtype) → least ratio to the part's peer
TARGETS = {
    ("bert", "peer", "float32"): None,
    ("bert", "ours", "float32"): 1.0,
    ("bert", "ours", "bfloat16"): 1.5,
    ("bart", "peer", "float32"): None,
    ("bart", "ours", "float32"): 2.0,
    ("bart", "ours", "bfloat16"): 4.0,
}
PEERS = {"bert": "bert_score", "bart": "BARTScore as published"}
ROBERTA = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
BART = {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6}
BART |= {f"{side}_attention_heads": 12 for side in ("encoder", "decoder")}
BART |= {f"{side}_ffn_dim": 3072 for side in ("encoder", "decoder")}
VOCABULARY = 50265  # of both
BATCH_TOKENS = 2048  # of the metric


def comments(file: Path, count: int) -> list[tuple[str, str]]:
    """Draw pairs of comments by two raters on the same response, the same ones whenever it is called."""
    written: dict[tuple[str, str], list[str]] = defaultdict(list)
    for _, rating in read_lines(file):
        if (rating.get("comment") or "").strip():
            written[rating["case_id"], rating["model"]].append(rating["comment"])
    pairs = [tuple(texts[:2]) for _, texts in sorted(written.items()) if len(texts) > 1]
    if len(pairs) < count:
        sys.exit(f"{file}: {len(pairs)} pairs of comments, not {count}")
    return random.Random(0).sample(pairs, count)


def build(folder: Path, tiny: bool) -> None:
    """Save a RoBERTa and a BART with random weights, and a tokenizer that has learnt from the pairs of the folder."""
    sys.path.insert(0, str(ROOT / "tests"))
    from doubles.tiny_bart import build_bart, build_roberta, roberta_tokenizer

    texts = [text for pair in json.loads((folder / "pairs.json").read_text(encoding="utf-8")) for text in pair]
    tokenizer = roberta_tokenizer(texts, VOCABULARY, 512)
    if tiny:
        build_roberta(folder / "bert", tokenizer, 512)
        build_bart(folder / "bart", tokenizer, 512)
    else:
        build_roberta(folder / "bert", tokenizer, 512, vocab_size=VOCABULARY, **ROBERTA)
        tokenizer.model_max_length = 1024
        build_bart(folder / "bart", tokenizer, 1024, vocab_size=VOCABULARY, **BART)


def published_bart(folder: str) -> Callable[[list[str], list[str]], list[float]]:
    """Return BARTScore as published, in our words: targets are predictions, sources references."""
    import torch
    from transformers import AutoTokenizer, BartForConditionalGeneration

    tokenizer, network = AutoTokenizer.from_pretrained(folder), BartForConditionalGeneration.from_pretrained(folder)
    network.eval()
    log_softmax = torch.nn.LogSoftmax(dim=1)
    loss = torch.nn.NLLLoss(reduction="none", ignore_index=network.config.pad_token_id)
    options = {"max_length": 1024, "truncation": True, "padding": True, "return_tensors": "pt"}

    def score(predictions: list[str], references: list[str]) -> list[float]:
        found: list[float] = []
        for start in range(0, len(predictions), 4):
            source = tokenizer(references[start : start + 4], **options)
            target = tokenizer(predictions[start : start + 4], **options)
            labels = target["input_ids"]
            with torch.no_grad():
                output = network(input_ids=source["input_ids"], attention_mask=source["attention_mask"], labels=labels)
                losses = loss(log_softmax(output.logits.view(-1, network.config.vocab_size)), labels.view(-1))
            total = losses.view(len(labels), -1).sum(dim=1) / target["attention_mask"].sum(dim=1)
            found += (-total).tolist()
        return found

    return score


def run(part: str, who: str, dtype: str, folder: Path, layers: int) -> None:
    """Score the pairs once, in this process, and write numbers and seconds into the folder."""
    import bert_score

    from automedeval.metrics.rationale_score.rationale_score import rationale_score

    predictions, references = map(list, zip(*json.loads((folder / "pairs.json").read_text(encoding="utf-8"))))
    model = str(folder / part)
    if who == "ours":
        chosen = {"bert_model": model, "bert_num_layers": layers, "bart_model": None}
        if part == "bart":
            chosen = {"bert_model": None, "bart_model": model}

        def score(predictions: list[str], references: list[str]) -> list[float]:
            options = {"dtype": dtype, "device": "cpu", "batch_tokens": BATCH_TOKENS} | chosen
            found = rationale_score(predictions, references, **options)
            return found["bart_score"] if part == "bart" else found["bert_score"]["f1"]

    elif part == "bert":
        scorer = bert_score.BERTScorer(model_type=model, num_layers=layers, device="cpu")

        def score(predictions: list[str], references: list[str]) -> list[float]:
            return scorer.score(predictions, references)[2].tolist()

    else:
        score = published_bart(model)
    score(predictions[:8], references[:8])
    start = time.perf_counter()
    figures = score(predictions, references)
    seconds = time.perf_counter() - start
    (folder / "found.json").write_text(json.dumps({"seconds": seconds, "figures": figures}), encoding="utf-8")


def measure(part: str, folder: Path, args: argparse.Namespace, results: Results) -> None:
    """Run everybody in turns, and add the part's rows."""
    sides = [side for side in TARGETS if side[0] == part]
    times, peaks, figures = defaultdict(list), defaultdict(list), {}
    for _ in range(args.repeats):
        for side in sides:
            command = [sys.executable, __file__, "--run", *side, str(folder)]
            peaks[side].append(peak(command + ["--tiny"] * args.tiny, folder / "log"))
            found = json.loads((folder / "found.json").read_text(encoding="utf-8"))
            times[side].append(found["seconds"])
            figures[side] = found["figures"]
    peer = sides[0]
    for side in sides:
        apart = max(abs(one - two) for one, two in zip(figures[side], figures[peer]))
        if side[2] == "float32" and apart > EQUAL[part]:
            sys.exit(f"{part}: the numbers are {apart:.2g} apart in float32, and may be {EQUAL[part]:g}")
        seconds, memory = statistics.median(times[side]), statistics.median(peaks[side])
        name = f"{PEERS[part] if side == peer else 'ours, ' + part}, {side[2]}"
        if side == peer:
            results.add(name, seconds, "s")
            results.add(f"{name}, peak memory", memory, "MB")
        else:
            ratio, held = statistics.median(times[peer]) / seconds, memory / statistics.median(peaks[peer])
            limit = EQUAL[part] if side[2] == "float32" else NEAR
            results.add(name, seconds, "s", PEERS[part], ratio, TARGETS[side])
            results.add(f"{name}, peak memory", held, f"× that of {PEERS[part]}", most=1)
            results.add(f"{name}, largest difference from {PEERS[part]}", apart, "", most=limit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--pairs", type=int, default=500, help="pairs of comments (default: %(default)s)")
    add("--repeats", type=int, default=3, help="how often each runs (default: %(default)s)")
    add("--parts", nargs="+", choices=list(PEERS), default=list(PEERS), help="what to measure (default: all)")
    add("--tiny", action="store_true", help="models of two or three narrow layers: to try this program")
    add("--run", nargs=4, metavar=("PART", "WHO", "DTYPE", "FOLDER"), help=argparse.SUPPRESS)
    add_json(parser)
    args = parser.parse_args()
    if args.run:
        part, who, dtype, folder = args.run
        if part == "build":
            build(Path(folder), args.tiny)
        else:
            run(part, who, dtype, Path(folder), 2 if args.tiny else 10)
        return
    data = os.environ.get("AUTOMEDEVAL_DATA")
    if not data:
        sys.exit("AUTOMEDEVAL_DATA does not name the folder that holds feedbackqa/")
    results = Results("Similarity of rationales", args.json)
    pairs = comments(Path(data, "feedbackqa", "ratings.jsonl"), args.pairs)
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as other:
        # `bert_score` takes every model with "t5" in its path for a T5; of two random names one is free of it.
        folder = Path(other if "t5" in name else name)
        (folder / "pairs.json").write_text(json.dumps(pairs), encoding="utf-8")
        # in a process of its own: what this one holds would count in the memory of the others
        command = [sys.executable, __file__, "--run", "build", "-", "-", str(folder), *["--tiny"] * args.tiny]
        peak(command, folder / "log")
        words = statistics.mean(len(text.split()) for pair in pairs for text in pair)
        results.note(
            f"{len(pairs)} pairs of comments, {words:.1f} words on average, {len(set(sum(pairs, ())))} distinct texts; "
            f"medians of {args.repeats} runs."
        )
        for part in args.parts:
            measure(part, folder, args, results)
    results.show()
    results.write()


if __name__ == "__main__":
    main()
