"""Measure wordings of the question whether a passage contradicts a statement, asked of one language model.

    python benchmarks/wordings.py --model models/Qwen2.5-Coder-1.5B-Instruct --pairs data/claims

Every wording is asked of the same pairs; the probability of an answer is that of its first token, in upper and lower case.
"calibrated" divides it by that of the same question without a passage. The pairs of a set are halved by document: one is to
choose on, one to report. Plain transformers: nothing of the package is used. Prints JSON lines; --json adds them to a file.
"""

import argparse
import hashlib
import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

SETS = ("fever_symmetric", "scifact_rte", "check_covid", "evidence_inference")
ASKED = "Question: based on the text above alone, "
LETTERS = "Does the text above contradict the statement, support it, or say nothing about it? Answer with one letter.\n"
# Name → the words behind the passage, and the answers that say: contradicted, supported, neither.
WORDINGS = {
    "true?": (ASKED + 'is it true that: "{}"? Answer yes, no, or maybe.', "no yes maybe"),
    "true? yes or no": (ASKED + 'is it true that: "{}"? Answer yes or no.', "no yes"),
    "false?": (ASKED + 'is it false that: "{}"? Answer yes, no, or maybe.', "yes no maybe"),
    "supports?": (
        'Question: does the text above support the statement "{}"? Answer yes, no, or maybe.',
        "no yes maybe",
    ),
    "contradicts?": (
        'Question: does the text above contradict the statement "{}"? Answer yes or no.',
        "yes no",
    ),
    "true, false, unknown": (
        'Statement: "{}"\nAccording to the text above alone, is the statement true, false, or unknown? Answer with one word.',
        "false true unknown",
    ),
    "letters": (
        LETTERS + 'A: contradicts\nB: supports\nC: says nothing about it\nStatement: "{}"',
        "A B C",
    ),
    "letters, turned": (
        LETTERS + 'A: says nothing about it\nB: supports\nC: contradicts\nStatement: "{}"',
        "C B A",
    ),
}
EMPTY = "N/A"  # the passage where there is none


def main() -> None:
    """Print the figures of each wording on each set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--pairs", required=True, type=Path, help="folder with SET/pairs.jsonl")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--limit", type=int, default=100, help="pairs of a set")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16).eval()
    for name in args.sets:
        rows = [
            json.loads(line)
            for line in (args.pairs / name / "pairs.jsonl").read_text("utf-8").splitlines()
        ]
        rows = [
            row
            for row in rows
            if row["label"] in ("contradicted", "supported") and len(row["evidence"]) < 2500
        ]
        rows = random.Random(0).sample(rows, min(args.limit, len(rows)))
        wrong = np.array([row["label"] == "contradicted" for row in rows])
        held = np.array(
            [hashlib.sha256(row["evidence"].encode()).digest()[0] % 2 == 1 for row in rows]
        )
        start = time.perf_counter()
        plain = np.array(
            [answers(model, tokenizer, row["evidence"], row["claim"]) for row in tqdm(rows, name)]
        )
        about = {"model": Path(args.model).name, "set": name, "pairs": len(rows)}
        about["seconds"] = round(
            (time.perf_counter() - start) / len(rows), 2
        )  # of a pair, all wordings
        empty = np.array(
            [
                answers(model, tokenizer, EMPTY, row["claim"])
                for row in tqdm(rows, f"{name}, no passage")
            ]
        )
        for number, wording in enumerate(WORDINGS):
            for kind, odds in (("", plain), (", calibrated", plain / np.maximum(empty, 1e-9))):
                line = about | {"wording": wording + kind} | figures(odds[:, number], wrong, held)
                print(json.dumps(line), flush=True)
                if args.json:
                    with args.json.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")


def figures(odds: np.ndarray, wrong: np.ndarray, held: np.ndarray) -> dict[str, Any]:
    """Return AUROC of contradicted against supported, and balanced accuracy where contradicted is the likelier of the two.

    "flagged" are the shares of the contradicted and of the supported pairs of which contradicted is the likeliest answer.
    """
    score = np.log(odds[:, 0] + 1e-9) - np.log(odds[:, 1] + 1e-9)
    found: dict[str, Any] = {}
    for half, chosen in (("choose", ~held), ("report", held)):
        truth, said, flagged = wrong[chosen], score[chosen] > 0, odds[chosen].argmax(1) == 0
        found[f"auroc_{half}"] = round(float(roc_auc_score(truth, score[chosen])), 3)
        found[f"balanced_{half}"] = round(
            float((said[truth].mean() + (~said[~truth]).mean()) / 2), 3
        )
        found[f"flagged_{half}"] = [
            round(float(flagged[truth].mean()), 2),
            round(float(flagged[~truth].mean()), 2),
        ]
    return found


@torch.inference_mode()
def answers(model: Any, tokenizer: Any, passage: str, claim: str) -> np.ndarray:
    """Return wording × (contradicted, supported, neither): probabilities of the first token; the passage is read once."""
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": f"{passage}\n\n{words.format(claim)}"}],
            add_generation_prompt=True,
            return_dict=True,
        )["input_ids"]
        for words, _ in WORDINGS.values()
    ]
    common = next(
        place for place in range(len(prompts[0])) if len({prompt[place] for prompt in prompts}) > 1
    )
    cache = DynamicCache(config=model.config)
    model(torch.tensor([prompts[0][:common]]), past_key_values=cache, logits_to_keep=1)
    cache.batch_repeat_interleave(len(prompts))
    rest = [prompt[common:] for prompt in prompts]
    longest = max(map(len, rest))
    ids = torch.tensor(
        [tokens + [tokenizer.eos_token_id] * (longest - len(tokens)) for tokens in rest]
    )
    mask = torch.tensor(
        [[1] * (common + len(tokens)) + [0] * (longest - len(tokens)) for tokens in rest]
    )
    logits = model(ids, attention_mask=mask, past_key_values=cache).logits
    found = np.zeros((len(rest), 3))
    for row, (tokens, (_, options)) in enumerate(zip(rest, WORDINGS.values())):
        odds = logits[row, len(tokens) - 1].float().softmax(-1)
        for place, option in enumerate(options.split()):
            found[row, place] = odds[first_tokens(tokenizer, option)].sum()
    return found


def first_tokens(tokenizer: Any, option: str) -> list[int]:
    """Return the single tokens that are an answer."""
    forms = {option, option.capitalize(), f" {option}", f" {option.capitalize()}"}
    ids = [tokenizer.encode(form, add_special_tokens=False) for form in forms]
    return sorted({tokens[0] for tokens in ids if len(tokens) == 1})


if __name__ == "__main__":
    main()
