"""Compose the rationale of the small judge: the steps of the paper's rationales, filled with what it found.

Nothing is generated. Every sentence of a response, a question or a passage stands in quotation marks; `composed` in the verdict
says so.
"""

from collections.abc import Sequence

import numpy as np

from automedeval.evidence.checker import CONTRADICTED, SUPPORTED, Finding, was_read
from automedeval.judges.features import FEATURES, asked_last
from automedeval.records import Case

QUOTED = 30  # most words of a quotation
STATED = 2  # most contradicted statements of a response that are quoted


def compose(
    case: Case,
    features: np.ndarray,
    findings: Sequence[Sequence[Finding]],
    scores: Sequence[float | None],
    scale: tuple[int, int],
) -> str:
    """Return the rationale in four steps: what is asked, what each response covers, what contradicts evidence, the scores.

    `features` are float [responses, FEATURES], NaN where one was not read; `findings` are empty where there was no evidence.
    """
    steps = [f"What is asked: {quoted(asked_last(case.question))}"]
    near, covered = (features[:, FEATURES.index(name)] for name in ("late_interaction", "covered"))
    parts = [
        f"{model} has a likeness of {shown(asked)} to the question"
        + ("" if np.isnan(likeness) else f", {shown(likeness)} to the reference")
        for model, asked, likeness in zip(case.models, near, covered)
    ]
    steps.append(f"What each response covers: {'; '.join(parts)} (1 is the same).")
    steps.append(" ".join(evidence(model, statements) for model, statements in zip(case.models, findings)))
    low, high = scale
    points = (
        f"{model} {'cannot be read' if score is None else f'{score:.1f}'}" for model, score in zip(case.models, scores)
    )
    steps.append(f"Scores from {low} to {high}: {', '.join(points)}.")
    numbered = (f"Step {number}: {text}" for number, text in enumerate(steps, 1))
    return "\n".join(["Composed by a template from what the small judge found.", *numbered])


def evidence(model: str, findings: Sequence[Finding]) -> str:
    """Return what was found of the statements of a response, the contradicted ones quoted with their passages."""
    if not was_read(findings):
        return f"Nothing could be checked of {model}."
    wrong = [each for each in findings if each.label == CONTRADICTED and each.passage is not None]
    supported = sum(each.label == SUPPORTED for each in findings)
    lines = [f"{model}: of {len(findings)} statements {supported} supported, {len(wrong)} contradicted."]
    for each in wrong[:STATED]:
        assert each.passage is not None
        lines.append(
            f"It says {quoted(each.statement.text)}; {each.passage.source} says {quoted(each.passage.text)}"
            f"{f' ({each.rule})' if each.rule else ''}."
        )
    return " ".join(lines)


def quoted(text: str) -> str:
    """Return at most `QUOTED` words of a text, in quotation marks."""
    words = text.split()
    return f"“{' '.join(words[:QUOTED])}{' …' if len(words) > QUOTED else ''}”"


def shown(likeness: float) -> str:
    return "an unknown value" if np.isnan(likeness) else f"{likeness:.2f}"
