"""Measure the marks of numbers that differ from a reference: wrong ones that are marked, and marks in real answers.

    python benchmarks/differing_numbers.py --half choose --marks /tmp/marks.jsonl

Recall: in answers of MedQuAD the first number of a sentence that forbids nothing (a dose, or how often) is made 3, 5 or 10
times as large or small, drawn with a seed, and the answer is read beside itself as it was. Marks: answers of models beside
references. Documents are split in halves by a digest of their id: one chooses how numbers are read, the other is reported.
The edit has patterns of its own. Needs AUTOMEDEVAL_DATA. Prints JSON lines; --marks writes every mark with its sentences.
"""

import argparse
import hashlib
import json
import os
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rows import ROOT

from automedeval.evidence.numbers import differences, numbers

SEED, FACTORS = 20261128, (3, 5, 10)
WORDS = {"once": 1, "twice": 2, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
SAID = "|".join([r"\d+(?:\.\d+)?", *WORDS])
FORBIDS = re.compile(
    r"\bnot\b|n't|never|avoid|danger|unsafe|wrong|mistake|forbid|contraindic|overdos", re.I
)
EDITED = {
    "dose": re.compile(
        r"(?<![\w.,/-])(\d+(?:\.\d+)?)"
        r"(?= ?(?:mg|mcg|g|mL|ml|milligrams?|micrograms?|grams?|units|IU|tablets?|capsules?)\b(?!/))"
    ),
    "rhythm": re.compile(
        rf"\b({SAID})(?: times)?(?= (?:a|per|each|every) (?:day|week|month)\b| daily\b| weekly\b)"
        rf"|(?<=every )({SAID})(?= (?:hours|days|weeks|months)\b)",
        re.I,
    ),
}


class Pair(NamedTuple):
    """An answer beside a reference, of a document."""

    id: str
    model: str
    answer: str
    reference: str


def is_chosen(document: str, half: str) -> bool:
    """Return whether a document is of the half that chooses, or of the one that is reported."""
    return int(hashlib.sha256(document.encode()).hexdigest(), 16) % 2 == (half == "report")


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a JSON lines file."""
    yield from map(json.loads, path.read_text("utf-8").splitlines())


def planted(text: str, edited: re.Pattern, draw: random.Random) -> Iterator[tuple[str, int, int]]:
    """Yield a text with the first number of one sentence changed, and its place, for every sentence that has one."""
    start = 0
    for sentence in re.split(r"(?<=[.!?])\s", text):
        match = edited.search(sentence)
        if match and not FORBIDS.search(sentence):
            factor, said = draw.choice(FACTORS), match[1] or match[2]
            number = WORDS.get(said.lower()) or float(said)
            is_rhythm = edited is EDITED["rhythm"]
            is_larger = draw.random() < 0.5 or (is_rhythm and number % factor != 0)
            new = f"{number * factor if is_larger else number / factor:.4g}"
            if is_rhythm and not match[2]:
                new += " times"
            begin = start + match.start()
            yield text[:begin] + new + text[start + match.end() :], begin, begin + len(new)
        start += len(sentence) + 1


def recall(path: Path, kind: str, half: str) -> dict[str, Any]:
    """Return the share of wrong numbers of a kind that are marked, each document with equal weight."""
    draw, hits, missed = random.Random(SEED), dict[str, list[bool]](), []
    for row in read(path):
        document = row["id"].rpartition("-")[0]
        if not is_chosen(document, half):
            continue
        for text, start, end in planted(row["answer"], EDITED[kind], draw):
            marks = differences(text, row["answer"])
            hit = any(mark.number.start < end and start < mark.number.end for mark in marks)
            hits.setdefault(document, []).append(hit)
            if not hit:
                missed.append({"id": row["id"], "changed": text[max(0, start - 80) : end + 60]})
    shares = np.array([np.mean(document) for document in hits.values()])
    drawn = np.random.default_rng(SEED).choice(shares, size=(2000, len(shares))).mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {
        "documents": len(shares), "sentences": sum(map(len, hits.values())), "recall": round(shares.mean(), 3),
        "interval": [round(low, 3), round(high, 3)], "missed": missed,
    }  # fmt: skip


def pairs(data: Path) -> dict[str, list[Pair]]:
    """Return the answers of each set beside their references."""
    sample = ROOT / "src/automedeval/sample"
    files = {
        "alpacare": data / "alpacare/cases.jsonl",
        "sample": sample / "test_cases.jsonl",
        "K-QA, models": data / "kqa/cases.jsonl",
    }
    found = {
        name: [
            Pair(case["id"], response["model"], response["text"], case["reference"])
            for case in read(file)
            for response in case["responses"]
            if case.get("reference")
        ]
        for name, file in files.items()
    }
    found["K-QA, statements"] = [
        Pair(case["id"], str(place), criterion["criterion"], case["reference"])
        for case in read(data / "kqa/questions.jsonl")
        for place, criterion in enumerate(case["criteria"])
    ]
    return found


def main() -> None:
    """Measure recall and marks on one half of the documents."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--half", choices=("choose", "report"), required=True)
    parser.add_argument("--marks", help="file for every mark and every number that was missed")
    args = parser.parse_args()
    data, lines = Path(os.environ["AUTOMEDEVAL_DATA"]), []
    for kind in EDITED:
        figures = recall(data / "medquad/medquad.jsonl", kind, args.half)
        lines += [{"missed": kind, **missed} for missed in figures.pop("missed")]
        print(json.dumps({"recall": kind, **figures}), flush=True)
    for name, pairs_of_set in pairs(data).items():
        own = [pair for pair in pairs_of_set if is_chosen(pair.id, args.half)]
        comparable, marked, start = 0, 0, time.perf_counter()
        for pair in own:
            kinds = {number.kind for number in numbers(pair.reference)}
            comparable += any(number.kind in kinds for number in numbers(pair.answer))
            marks = differences(pair.answer, pair.reference)
            marked += bool(marks)
            lines += [shown(name, pair, mark) for mark in marks]
        seconds = time.perf_counter() - start
        rates = {
            "marked per 100": round(100 * marked / len(own), 2),
            "marked per 100 with a number of a kind of the reference's": round(100 * marked / max(1, comparable), 1),
        }  # fmt: skip
        counts = {"answers": len(own), "comparable": comparable, "marked": marked}
        print(json.dumps({"set": name, **counts, **rates, "seconds": round(seconds, 2)}))
    if args.marks:
        Path(args.marks).write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")


def shown(name: str, pair: Pair, mark: Any) -> dict[str, Any]:
    """Return a mark with both sentences, for a person to read."""
    number, nearest = mark.number, mark.nearest
    return {
        "set": name, "id": pair.id, "model": pair.model, "kind": number.kind, "factor": round(mark.factor, 2),
        "number": pair.answer[number.start : number.end], "beside": pair.reference[nearest.start : nearest.end],
        "sentence": pair.answer[number.sentence.start : number.sentence.end],
        "reference": pair.reference[nearest.sentence.start : nearest.sentence.end],
    }  # fmt: skip


if __name__ == "__main__":
    main()
