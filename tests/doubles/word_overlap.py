"""A stand-in for the metric of rationales, which counts words."""

from typing import Any


def overlap(predictions: list[str], references: list[list[str]], **settings: Any) -> dict[str, Any]:
    """Return as F1 the share of words in common, as BARTScore minus the letters of words that are not; None if all are."""
    alike = []
    apart = []
    for text, others in zip(predictions, references):
        words = set(text.split())
        of_others = [set(other.split()) for other in others]
        alike.append(max(len(words & each) / len(words | each) for each in of_others))
        lacking = min(len("".join(words - each)) for each in of_others)
        apart.append(None if alike[-1] == 1 else -float(lacking))
    return {"bert_score": {"f1": alike}, "bart_score": apart, "truncated": [0]}
