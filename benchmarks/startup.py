"""Measure what a user waits for: the package's import, help, a run with nothing left to judge, and the first verdict.

    python benchmarks/startup.py

Each command runs in fresh processes, in turn with the others, after one round that nobody counts; medians are printed, for the
first verdict of the small judge beside bare imports with one forward. Then the small judge's encoder encodes 2,000 texts beside
sentence-transformers' own `encode`, with threads that wait as the commands' do; and a table of 2,000 rows of two answers with
a reference, made of the sample's sentences, is judged once by the command. Prints whether the targets are met; the exit
status is 0 either way. The models of `automedeval get-models` are needed.
"""

import argparse
import csv
import os
import random
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from judge_startup import first_verdict
from rows import Results, add_json

from automedeval import read_cases
from automedeval.commands.judge import SAMPLE
from automedeval.models.arguments import EncoderArguments
from automedeval.models.embeddings import Encoder
from automedeval.reports.text import format_table

CONSOLE = ["-c", "from automedeval.commands.console import main; main()"]
EMPTY, LIBRARY, BARE = "python -c pass", "bare imports and a forward: sentence-transformers", "the same: torch alone"
ALONE = """
import sys, tokenizers, torch
from safetensors.torch import load_file
load_file(f"{sys.argv[1]}/model.safetensors")
tokenizers.Tokenizer.from_file(f"{sys.argv[1]}/tokenizer.json").encode("one text")
layer = torch.nn.TransformerEncoderLayer(384, 12, 1536, batch_first=True)
torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).eval()(torch.zeros(1, 128, 384))
"""
ENCODE = (
    "import sys; from sentence_transformers import SentenceTransformer as S; S(sys.argv[1], device='cpu').encode('a')"
)


def seconds(arguments: list[str]) -> float:
    """Return how long a fresh python takes from its start to its end."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def until_first_verdict() -> float:
    """Return how long the small judge takes on the packaged sample until its first verdict is written."""
    with TemporaryDirectory() as name:
        command = [sys.executable, *CONSOLE, "judge", "sample", "--judge", "small", "--output", name]
        return first_verdict(command, Path(name, "verdicts.jsonl"), Path(name, "log"))[0]


def texts(count: int) -> list[str]:
    """Return texts of 1 to 10 sentences of the sample's answers, drawn at random."""
    sentences = [
        sentence
        for case in read_cases(SAMPLE / "train_cases.jsonl")
        for response in case.responses
        for sentence in response.text.split(". ")
    ]
    drawn = random.Random(0)
    return [". ".join(drawn.sample(sentences, drawn.randint(1, 10))) for _ in range(count)]


def encoders(folder: str, drawn: list[str], results: Results, repeats: int) -> dict[str, Any]:
    """Compare the encoder with sentence-transformers on the same texts, in turn; return the row."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from sentence_transformers import SentenceTransformer

    library, encoder = SentenceTransformer(folder, device="cpu"), Encoder(folder, "cpu", "float32")
    both = {"theirs": partial(library.encode, drawn, show_progress_bar=False), "ours": partial(encoder.encode, drawn)}
    times: dict[str, list[float]] = {name: [] for name in both}
    vectors = {}
    for _ in range(repeats):
        for name, encode in both.items():
            start = time.perf_counter()
            vectors[name] = encode()
            times[name].append(time.perf_counter() - start)
    np.testing.assert_allclose(vectors["ours"], vectors["theirs"], atol=1e-5)
    ours, theirs = (statistics.median(times[name]) for name in ("ours", "theirs"))
    return results.add(f"encode {len(drawn):,} texts", ours, "s", "sentence-transformers", theirs / ours, least=1.5)


def table_judged(rows: int, results: Results) -> dict[str, Any]:
    """Judge a table of two answers a row, once, in a fresh process; return the row: 300 s are allowed for 2,000 rows."""
    drawn = iter(texts(4 * rows))
    with TemporaryDirectory() as name:
        with open(Path(name, "table.csv"), "w", encoding="utf-8", newline="") as stream:
            columns = ("question", "model-a", "model-b", "reference")
            csv.writer(stream).writerows([columns, *([next(drawn) for _ in columns] for _ in range(rows))])
        command = [*CONSOLE, "judge", f"{name}/table.csv", "--judge", "small", "--output", f"{name}/verdicts"]
        return results.add(f"automedeval judge, {rows:,} rows of two answers", seconds(command), "s", most=0.15 * rows)


def line(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the results as a line of the table."""
    ratio = None if row["ratio"] is None else f"{row['ratio']:.2f} x {row['peer']}"
    met = None if row["target"] is None else "yes" if row["met"] else "no"
    return {
        "command": row["name"],
        "seconds": f"{row['value']:.3f}",
        "ratio": ratio,
        "target": row["target"],
        "met": met,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="fresh processes per command (default: %(default)s)")
    parser.add_argument("--texts", type=int, default=2000, help="texts to encode (default: %(default)s)")
    parser.add_argument(
        "--rows", type=int, default=2000, help="rows of the table that is judged (default: %(default)s)"
    )
    add_json(parser)
    args = parser.parse_args()
    results, folder = Results("Start-up time", args.json), str(Path(EncoderArguments().place).resolve())
    with TemporaryDirectory() as done:
        again = [*CONSOLE, "judge", "sample", "--judge", "small", "--output", done]
        seconds(again)
        programs = {
            EMPTY: (["-c", "pass"], None),
            'python -c "import automedeval"': (["-c", "import automedeval"], 0.3),
            "automedeval judge --help": ([*CONSOLE, "judge", "--help"], 0.5),
            "automedeval report --help": ([*CONSOLE, "report", "--help"], 0.5),
            "automedeval judge sample, all judged": (again, 2.0),
            LIBRARY: (["-c", ENCODE, folder], None),
            BARE: (["-c", ALONE, folder], None),
        }
        runs = {name: partial(seconds, arguments) for name, (arguments, _) in programs.items()}
        first = "automedeval judge sample, first verdict"
        runs[first] = until_first_verdict
        rounds = [{name: run() for name, run in runs.items()} for _ in range(args.repeats + 1)]
    medians = {name: statistics.median(times[name] for times in rounds[1:]) for name in runs}
    table = []
    for name, (_, target) in programs.items():
        row = results.add(name, medians[name], "s", most=target)
        table.append(line(row))
    for peer, target in ((LIBRARY, None), (BARE, 1 / 1.3)):
        table.append(line(results.add(first, medians[first], "s", peer, medians[peer] / medians[first], least=target)))
    table.append(line(encoders(folder, texts(args.texts), results, args.repeats)))
    table.append(line(table_judged(args.rows, results)))
    print(format_table(table))
    print(f"medians of {args.repeats} fresh processes; Python {sys.version.split()[0]}, {time.strftime('%Y-%m-%d')}")
    results.note(f"Medians of {args.repeats} new processes, and of as many encodings; vectors differ by at most 1e-5.")
    results.write()


if __name__ == "__main__":
    main()
