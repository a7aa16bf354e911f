"""The features and scores of a small judge by plain transformers and loops, for tests to compare with."""

import json
import math
import re
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from programs import ENCODER
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from automedeval.metrics.embedding import pieces


def adapter(folder: Path, name: str = "adapter") -> dict[str, torch.Tensor]:
    return load_file(folder / name / "adapter_model.safetensors")


def rouge_l(first: list[str], second: list[str]) -> float:
    """Return the F1 of the longest common subsequence, by the table of all beginnings."""
    lengths = [[0] * (len(second) + 1)]
    for word in first:
        row = [0]
        for at, other in enumerate(second):
            row.append(lengths[-1][at] + 1 if word == other else max(row[-1], lengths[-1][at + 1]))
        lengths.append(row)
    return 2 * lengths[-1][-1] / (len(first) + len(second))


class Plain:
    """The features and scores by plain transformers: the adapter's product is added to the weights by hand."""

    def __init__(self, folder: Path):
        self.tokenizer = AutoTokenizer.from_pretrained(ENCODER)
        self.bare = AutoModel.from_pretrained(ENCODER).eval()
        self.cross = self.adapted(folder, "relevance")
        self.learnt = json.loads((folder / "judge.json").read_text())["scales"]

    @staticmethod
    def adapted(folder: Path, name: str) -> torch.nn.Module:
        network = AutoModelForSequenceClassification.from_pretrained(ENCODER, num_labels=1).eval()
        config = json.loads((folder / name / "adapter_config.json").read_text())
        weights = {
            key.removeprefix("base_model.model."): each
            for key, each in adapter(folder, name).items()
        }
        own = dict(network.named_parameters())
        for key in [key for key in weights if key.endswith("lora_A.weight")]:
            product = weights[key.replace("lora_A", "lora_B")] @ weights[key]
            own[key.replace("lora_A.", "")].data += config["lora_alpha"] / config["r"] * product
        for key in ("classifier.weight", "classifier.bias"):
            own[key].data = weights[key]
        return network

    @torch.no_grad()
    def vectors(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors of a piece and of its tokens."""
        found = self.bare(
            **self.tokenizer(text, truncation=True, max_length=256, return_tensors="pt")
        )
        hidden = found.last_hidden_state[0].numpy()
        rows = np.vstack([hidden.mean(axis=0), hidden[1:-1]])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows[0], rows[1:]

    @torch.no_grad()
    def logit(self, question: str, piece: str) -> float:
        tokens = self.tokenizer(
            question, piece, truncation=True, max_length=256, return_tensors="pt"
        )
        return float(self.cross(**tokens).logits)

    def features(self, question: str, text: str, reference: str | None = None) -> dict[str, float]:
        asked, (parts, own) = (
            self.vectors(question),
            (pieces(text), [self.vectors(part) for part in pieces(text)]),
        )
        cosines = [float(asked[0] @ vector) for vector, _ in own]
        tokens = [token for _, some in own for token in some]
        found = {
            "first": cosines[0],
            "late_interaction": fmean(
                max(float(one @ other) for other in tokens) for one in asked[1]
            ),
            "on_topic": math.log(
                1 + sum(max(0.0, float(token @ asked[0]) - 0.2) for token in tokens)
            ),
            "relevance": self.logit(question, parts[int(np.argmax(cosines))]),
        }
        if reference:
            given = [self.vectors(part) for part in pieces(reference)]
            found["reference"] = max(float(one @ other) for one, _ in given for other, _ in own)
            every = [token for _, some in given for token in some]
            found["covered"] = fmean(max(float(one @ other) for other in tokens) for one in every)
            found["backed"] = fmean(max(float(one @ other) for other in every) for one in tokens)
            found["overlap"] = rouge_l(
                re.findall(r"\w+", text.lower()), re.findall(r"\w+", reference.lower())
            )
        return found

    def score(self, question: str, text: str, reference: str | None = None) -> float:
        scale = self.learnt["reference" if reference else "question"]
        features = self.features(question, text, reference)
        total = sum(weight * features[name] for name, weight in scale["weights"].items())
        return 1 + 4 / (1 + np.exp(-(scale["intercept"] + scale["slope"] * total)))
