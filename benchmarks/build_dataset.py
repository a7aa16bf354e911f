"""Measure what building a data set of the paper's size costs, in seconds and memory.

    python benchmarks/build_dataset.py
    python benchmarks/build_dataset.py --cases 1000

Synthetic cases of a question of 40 words, a reference of 80 and two responses of 120, each with a strong and a weak verdict of
130 words and with a given quality, go through `recipes/build_dataset.py` in a process of its own: all filters, the paper's
plan in shares, the leakage checks against the test split, the parquet files, topics and card.
"""

import json
import random
import tempfile
from pathlib import Path

from processes import peak, recipe, timed
from rows import Results, arguments

from automedeval.records import Case, Response, Verdict

PLAN = """
test: {take: 1000}
teachers:
  strong: {take: 50%, quality: high}
  weak: {take: rest}
stages:
  stage1: [{teacher: weak, take: 50%}]
  stage2: [{teacher: strong, take: rest}, {teacher: weak, take: rest}]
  stage3: [{teacher: strong, take: 50%}]
"""


def write_study(folder: Path, number: int) -> None:
    """Write cases and both teachers' verdicts; words are drawn as from a vocabulary of 20,000, frequent ones more often."""
    rng = random.Random(0)
    words = [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9)))
        for _ in range(20_000)
    ]

    def text(length: int) -> str:
        return " ".join(words[int(20_000 * rng.random() ** 3)] for _ in range(length))

    (folder / "plan.yaml").write_text(PLAN.replace("1000", str(min(1000, number // 10))))
    with (
        open(folder / "cases.jsonl", "w") as cases,
        open(folder / "verdicts.jsonl", "w") as verdicts,
    ):
        for at in range(number):
            responses = tuple(Response(name, text(120)) for name in ("ash", "birch"))
            case = Case(f"case-{at}", text(40), responses, text(80), f"topic {at % 20}")
            print(json.dumps(case.to_dict()), file=cases)
            for teacher in ("strong", "weak"):
                steps = f"Analyze:\nStep 1: {text(20)}.\nStep 2: {text(55)}.\nStep 3: {text(55)}."
                transcript = [{"role": "assistant", "content": steps}]
                verdict = Verdict(
                    case.id,
                    teacher,
                    "automedeval@1",
                    (0, 1),
                    valid=True,
                    rationale=steps,
                    scores=(2, 4),
                    models=tuple(case.models),
                    case_digest=case.digest,
                    teacher=teacher,
                    quality="high",
                    extra={"transcript": transcript},
                )
                print(json.dumps(verdict.to_dict()), file=verdicts)


def main() -> None:
    """Build a data set and print one table."""
    parser = arguments(__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="cases of the data set")
    args = parser.parse_args()
    results = Results("Building a data set", args.json)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_study(folder, args.cases)
        size = sum(file.stat().st_size for file in folder.glob("*.jsonl")) / 1e6
        files = {
            "cases": "cases.jsonl",
            "verdicts": "verdicts.jsonl",
            "plan": "plan.yaml",
            "output": "instructions",
        }
        command = recipe("build_dataset", **{name: folder / file for name, file in files.items()})
        seconds, most = timed(lambda: peak(command, folder / "log"))
    results.add(f"{args.cases:,} cases, {size:.0f} MB", seconds, "s")
    results.add(f"{args.cases:,} cases, {size:.0f} MB, peak memory", most, "MB")
    results.show()
    results.write()


if __name__ == "__main__":
    main()
