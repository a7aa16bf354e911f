"""The features and scores of a small judge by plain transformers and loops, for tests to compare with."""

import math
import re
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from factories import read_json
from programs import ENCODER
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from automedeval.metrics.embedding import pieces


def adapter(folder: Path, name: str = "adapter") -> dict[str, torch.Tensor]:
    return load_file(folder / name / "adapter_model.safetensors")


def rouge_l(first: list[str], second: list[str]) -> float:
    """Return the F1 of the longest common subsequence, by the table of all beginnings."""
    above = [0] * (len(second) + 1)
    for word in first:
        row = [0]
        for at, other in enumerate(second):
            longest = max(row[at], above[at + 1])
            row.append(above[at] + 1 if word == other else longest)
        above = row
    return 2 * above[-1] / (len(first) + len(second))


def nearest(vectors: list[np.ndarray], others: list[np.ndarray]) -> list[float]:
    """Return the largest cosine of each vector with any of the others."""
    found = []
    for vector in vectors:
        cosines = [float(vector @ other) for other in others]
        found.append(max(cosines))
    return found


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


class Plain:
    """The features and scores by plain transformers: the adapter's product is added to the weights by hand."""

    def __init__(self, folder: Path):
        self.tokenizer = AutoTokenizer.from_pretrained(ENCODER)
        self.bare = AutoModel.from_pretrained(ENCODER).eval()
        self.cross = self.adapted(folder, "relevance")
        self.learnt = read_json(folder / "judge.json")["scales"]

    @staticmethod
    def adapted(folder: Path, name: str) -> torch.nn.Module:
        network = AutoModelForSequenceClassification.from_pretrained(ENCODER, num_labels=1).eval()
        config = read_json(folder / name / "adapter_config.json")
        scale = config["lora_alpha"] / config["r"]
        weights = adapter(folder, name)
        for key, parameter in network.named_parameters():
            layer, _, kind = f"base_model.model.{key}".rpartition(".")
            first = weights.get(f"{layer}.lora_A.{kind}")
            if first is not None:
                second = weights[f"{layer}.lora_B.{kind}"]
                parameter.data += scale * (second @ first)
            if key.startswith("classifier."):
                parameter.data = weights[f"{layer}.{kind}"]
        return network

    def tokens(self, *texts: str) -> dict[str, torch.Tensor]:
        return self.tokenizer(*texts, truncation=True, max_length=256, return_tensors="pt")

    @torch.no_grad()
    def vectors(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors of a piece and of its tokens."""
        output = self.bare(**self.tokens(text))
        hidden = output.last_hidden_state[0].numpy()
        rows = np.vstack([hidden.mean(axis=0), hidden[1:-1]])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows[0], rows[1:]

    @torch.no_grad()
    def logit(self, question: str, piece: str) -> float:
        output = self.cross(**self.tokens(question, piece))
        return float(output.logits)

    def vectors_of_pieces(self, text: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return the vectors of a text's pieces, and of the tokens of all of them."""
        of_pieces = []
        of_tokens = []
        for piece in pieces(text):
            vector, tokens = self.vectors(piece)
            of_pieces.append(vector)
            of_tokens += list(tokens)
        return of_pieces, of_tokens

    def features(self, question: str, text: str, reference: str | None = None) -> dict[str, float]:
        asked, tokens_asked = self.vectors(question)
        own, tokens = self.vectors_of_pieces(text)
        cosines = [float(asked @ vector) for vector in own]
        most_relevant = pieces(text)[int(np.argmax(cosines))]
        above = [max(0.0, float(token @ asked) - 0.2) for token in tokens]
        found = {
            "first": cosines[0],
            "late_interaction": fmean(nearest(tokens_asked, tokens)),
            "on_topic": math.log(1 + sum(above)),
            "relevance": self.logit(question, most_relevant),
        }
        if reference:
            given, tokens_given = self.vectors_of_pieces(reference)
            found["reference"] = max(nearest(given, own))
            found["covered"] = fmean(nearest(tokens_given, tokens))
            found["backed"] = fmean(nearest(tokens, tokens_given))
            found["overlap"] = rouge_l(words(text), words(reference))
        return found

    def score(self, question: str, text: str, reference: str | None = None) -> float:
        scale = self.learnt["reference" if reference else "question"]
        features = self.features(question, text, reference)
        total = sum(weight * features[name] for name, weight in scale["weights"].items())
        logit = scale["intercept"] + scale["slope"] * total
        return 1 + 4 / (1 + np.exp(-logit))
