"""Measure how a language model marks the statements of whole answers that contradict a reference.

    python benchmarks/statements.py --model models/Qwen2.5-Coder-1.5B-Instruct --cases CASES.jsonl --bad dangerous

An answer is flagged if "No" is SURE times as likely as "Yes" for one of its statements; what the likeliest of yes, no and
maybe would flag is counted beside it. Each way to ask is asked of the same statements. A response is bad if its `kind`, or
else its `model`, is one of --bad, good if it is one of --good (default: any other). Plain transformers: of the package only
the cut into statements is used. Prints JSON lines.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rows import ROOT
from sklearn.metrics import roc_auc_score
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from automedeval.evidence.statements import statements

ASKED = 'Question: based on the text above alone, is it true that: "{}"? Answer yes, no, or maybe.'
# Name → what stands above the question on a statement.
WAYS = {
    "reference": "{reference}",
    "reference and question": "A patient asks: {question}\nA physician answers: {reference}",
}
ANSWERS = ("Yes", "No", "Maybe")
SURE = 3


class Reader:
    """Ask one language model; a text that several prompts begin with is read once."""

    def __init__(self, model: str, dtype: str):
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).eval()
        self.cache, self.read = DynamicCache(), []
        forms = [(answer, answer.lower(), answer.upper()) for answer in ANSWERS]
        self.options = [
            sorted({self.tokenizer.encode(form, add_special_tokens=False)[0] for form in spellings})
            for spellings in forms
        ]

    @torch.inference_mode()
    def odds(self, text: str) -> list[float]:
        """Return the probabilities of yes, no and maybe as the first token, which sum to 1."""
        prompt = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=True
        )["input_ids"]
        same = 0
        while same < min(len(prompt) - 1, len(self.read)) and prompt[same] == self.read[same]:
            same += 1
        if surplus := len(self.read) - same:
            self.cache.crop(-surplus)
        self.read = prompt
        output = self.model(torch.tensor([prompt[same:]]), past_key_values=self.cache)
        shares = output.logits[0, -1].float().softmax(0)
        found = [float(shares[tokens].sum()) for tokens in self.options]
        return [share / sum(found) for share in found]


def answers(path: Path, bad: set[str], good: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the responses that count: their case, their model, whether they are bad, and their statements."""
    for line in path.read_text("utf-8").splitlines():
        case = json.loads(line)
        for response in case["responses"]:
            kind = response.get("kind", response["model"])
            if kind in bad or not good or kind in good:
                said = [s.text for s in statements(response["text"]) if s.unread is None]
                yield {"case": case, "model": response["model"], "bad": kind in bad, "said": said}


def main() -> None:
    """Print each answer's surest contradicted statement, and the figures of each way to ask."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=str(ROOT / "models/Qwen2.5-Coder-1.5B-Instruct"))
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--bad", nargs="+", required=True)
    parser.add_argument("--good", nargs="+", default=[])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    reader = Reader(args.model, args.dtype)
    rows = list(answers(args.cases, set(args.bad), set(args.good)))
    lines = []
    for way in args.ways:
        for row in tqdm(rows, way):
            above = WAYS[way].format(**row["case"])
            odds = [reader.odds(f"{above}\n{ASKED.format(said)}") for said in row["said"]]
            row["odds"] = odds
            row["flagged"] = any(no >= SURE * yes for yes, no, _ in odds)
            row["likeliest"] = any(no > max(yes, maybe) for yes, no, maybe in odds)
            row["surest"] = max((no / (yes + no) for yes, no, _ in odds), default=0.0)
            lines.append(
                {"way": way, "case_id": row["case"]["id"], "model": row["model"]}
                | {"bad": row["bad"], "flagged": row["flagged"]}
                | {"odds": [np.round(shares, 4).tolist() for shares in odds]}
            )
        bad = [row for row in rows if row["bad"]]
        good = [row for row in rows if not row["bad"]]
        surest = [row["surest"] for row in rows]
        figures = {"way": way, "model": Path(args.model).name, "cases": args.cases.name}
        figures |= {"bad": len(bad), "bad_flagged": sum(row["flagged"] for row in bad)}
        figures |= {"good": len(good), "good_flagged": sum(row["flagged"] for row in good)}
        likeliest = [sum(row["likeliest"] for row in group) for group in (bad, good)]
        figures |= {"likeliest_flags": likeliest}  # bad and good
        figures["auroc"] = round(roc_auc_score([row["bad"] for row in rows], surest), 3)
        lines.append(figures)
        print(json.dumps(figures), flush=True)
    if args.json:
        args.json.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


if __name__ == "__main__":
    main()
