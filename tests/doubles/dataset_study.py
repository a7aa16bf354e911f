"""A small study with two teachers' verdicts; `build` runs recipes/build_dataset.py on it."""

import hashlib
import random
import zlib
from dataclasses import replace
from itertools import product
from pathlib import Path
from subprocess import CompletedProcess

import datasets
import factories
import numpy as np
from factories import read, read_json, write, write_yaml
from programs import ROOT, run_recipe
from tables import rows_of

from automedeval.records import Case, Response, Verdict

SYLLABLES = ("ka", "lo", "mi", "nu", "pe"), ("ra", "so", "ti", "vu"), ("x", "ll", "m")
WORDS = list(map("".join, product(*SYLLABLES)))
OF_CURRICULUM = rows_of(str(ROOT / "tests/dataset/test_curriculum.py"))
PLAN = OF_CURRICULUM["simple"] | {"test": {"take": 4, "teacher": "strong"}}


def text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words)).capitalize() + "."


def case_of(number: int, **more) -> Case:
    rng = random.Random(number)
    responses = tuple(Response(name, text(rng, 25)) for name in ("ash", "birch"))
    case = Case(f"case-{number}", text(rng, 12), responses, text(rng, 20))
    return replace(case, **more)


def verdict_of(case: Case, teacher: str, **more) -> Verdict:
    steps = "Step 1: a question.\nStep 2: Doctor 1 is right.\nStep 3: Doctor 2 is wrong."
    about = {"rationale": f"Analyze:\n{steps}", "order": (1, 0), "teacher": teacher}
    about = about | {"extra": {"transcript": [{"role": "x"}]}} | more
    return factories.verdict_of(case, about.pop("scores", (2, 4)), f"judge-{teacher}", **about)


class WordEncoder:
    """Stands in for an encoder, which takes seconds to load: a text's vector counts its words."""

    name = "words"
    fingerprint = "0" * 12

    def __init__(self, model: str = "words", device: str = "cpu"):
        self.model = model

    def encode(self, texts: list[str]) -> np.ndarray:
        vectors = np.zeros((len(texts), 64), np.float32)
        for row, words in enumerate(texts):
            for word in words.lower().split():
                vectors[row, zlib.crc32(word.encode()) % 64] += 1
        return vectors


class Study:
    """The files of a small study; `build` runs the recipe on them."""

    def __init__(self, folder: Path, number: int = 24):
        self.folder = folder
        self.output = folder / "instructions"
        self.cases = [case_of(at) for at in range(number)]
        self.verdicts = {
            name: [verdict_of(case, name) for case in self.cases] for name in ("strong", "weak")
        }
        self.plan = PLAN

    def write(self, name: str, records: list) -> Path:
        return write(self.folder / name, records)

    def build(self, **options: object) -> CompletedProcess:
        cases = self.write("cases.jsonl", self.cases)
        verdicts = [self.write(f"{name}.jsonl", records) for name, records in self.verdicts.items()]
        plan = self.folder / "plan.yaml"
        write_yaml(plan, self.plan)
        given = {"cases": f"made-up={cases}", "verdicts": verdicts, "plan": plan} | options
        return run_recipe("build_dataset", **given, output=self.output)

    def change(self, number: int, **changes: object) -> None:
        """Put another case in the place of one, and both teachers' verdicts on it."""
        self.cases[number] = case_of(number, **changes)
        for name, verdicts in self.verdicts.items():
            verdicts[number] = verdict_of(self.cases[number], name)

    def splits(self) -> datasets.DatasetDict:
        return datasets.load_dataset(str(self.output), cache_dir=str(self.folder / "cache"))

    def rows(self) -> list[dict]:
        return [row for split in self.splits().values() for row in split]

    def card(self) -> str:
        return (self.output / "README.md").read_text()

    def statistics(self) -> dict:
        return read_json(self.output / "statistics.json")

    def dropped(self) -> dict[str, list[str]]:
        reasons: dict[str, list[str]] = {}
        for record in read(self.output / "dropped.jsonl"):
            reasons.setdefault(record["reason"], []).append(record["case_id"])
        return reasons

    def bytes(self) -> dict[str, str]:
        """Return a digest of every file but run.json, which tells when and where."""
        files = [file for file in sorted(self.output.iterdir()) if file.name != "run.json"]
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
