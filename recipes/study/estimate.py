"""What a study takes: requests and tokens at endpoints with their cost, hours and disk of training.

Counts are those of a run's study.yaml. Hours and disk are those of the table in docs/train.md, which
benchmarks/training_memory.py computes; judging and generation are not in it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from study.steps import Step

TABLE = Path(__file__).parents[2] / "docs" / "train.md"


def estimate(steps: Sequence[Step], sizes: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the estimate; without a machine, hours and disk of training are not known."""
    total = 0.0
    for step in steps:
        model = str(step.arguments.get("judge") or step.arguments.get("suggester") or "")
        if not model.startswith("openai:"):
            continue
        number, each = _requests(Path(step.recipe).stem, sizes)
        number *= step.arguments.get("runs", 1)
        if step.arguments.get("knowledge") == "none":
            each -= 1  # no question is asked
        prompts, answers = (number * each * sizes[f"{kind}_tokens"] for kind in ("prompt", "answer"))
        prices = [step.arguments.get(name) for name in ("price_in", "price_out")]
        cost = None if None in prices else (prompts * prices[0] + answers * prices[1]) / 1e6
        total += cost or 0.0
        told = "price_in and price_out are not given" if cost is None else f"{cost:,.0f} US dollars"
        yield (
            f"{step.name}: {model.partition(':')[2]}, {number * each:,} requests, {prompts / 1e6:,.1f} M tokens of prompts, "
            f"{answers / 1e6:,.1f} M of answers, {told}"
        )
    if total:
        yield f"endpoints together: about {total:,.0f} US dollars"
    trained = [step for step in steps if step.recipe.endswith("sft.py")]
    if not trained or "machine" not in sizes:
        return
    row = _row(sizes["machine"] + (", LoRA" if trained[0].name == "lora" else ""))
    # The hours of the table are those of all stages together, and of one round.
    stages = sum(step.name in ("stage1", "stage2", "stage3", "lora") for step in trained)
    times = len(trained) - stages + stages / 3
    eight = "" if row["hours, 8 GPUs"] == "–" else f" ({times * float(row['hours, 8 GPUs']):,.1f} hours on 8)"
    disk = float(row["disk at most"]) + (len(trained) - 1) * float(row["weights"])
    yield (
        f"training: {len(trained)} trainings, about {times * float(row['hours, 1 GPU']):,.1f} GPU hours{eight}, at most "
        f"{disk:,.0f} GB of disk (the table in docs/train.md; judging and generation come on top)"
    )


def _requests(recipe: str, sizes: dict[str, Any]) -> tuple[int, int]:
    """Return on how many cases a recipe asks a model, and how many requests each takes."""
    if recipe == "introspect":
        return sizes["mistakes"], sizes["messages"]
    if recipe == "judge":
        return sizes["test_cases"], sizes["test_calls"]
    return sizes["cases"], sizes["calls"]


def _row(name: str) -> dict[str, str]:
    """Return the row of a run in the table of disk and hours."""
    lines = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    at = next(at for at, line in enumerate(lines) if "disk at most" in line)
    heads = _cells(lines[at])
    return next(dict(zip(heads, _cells(line))) for line in lines[at:] if _cells(line)[0] == name)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]
