"""Measure what a user waits for: the package's import, help, a run with nothing left to judge, and the first verdict.

    python benchmarks/startup.py

Each command runs in fresh processes, in turn with the others, after one round that nobody counts; medians are printed, for the
first verdict of the small judge beside bare imports with one forward. Then the small judge's encoder encodes 2,000 texts beside
sentence-transformers' own `encode`; and the sample, and two versions of a table of 2,000 rows with references, made of the
sample's sentences, are judged once, beside that `encode` of the same texts, in seconds of the processor. The models of
`automedeval get-models` are needed.
"""

import csv
import os
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from processes import first_verdict, in_turns, peak, spent
from rows import Results, arguments

import automedeval
from automedeval import read_cases
from automedeval.models.arguments import EncoderArguments
from automedeval.models.embeddings import Encoder
from automedeval.records import question_text

SAMPLE = Path(automedeval.__file__).parent / "sample"
CONSOLE = [sys.executable, "-c", "from automedeval.cli.console import main; main()"]
SAMPLE_JUDGED = "automedeval judge sample, all"
VERSIONS_JUDGED = "automedeval judge v1=… v2=…, with the report"
BESIDE = {SAMPLE_JUDGED: 1 / 2, VERSIONS_JUDGED: 1 / 1.5}  # the least ratio
Encode = Callable[[list[str]], Any]
BARE = "bare imports and a forward: torch alone"
ALONE = """
import sys, tokenizers, torch
from safetensors.torch import load_file
load_file(f"{sys.argv[1]}/model.safetensors")
tokenizers.Tokenizer.from_file(f"{sys.argv[1]}/tokenizer.json").encode("one text")
layer = torch.nn.TransformerEncoderLayer(384, 12, 1536, batch_first=True)
torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).eval()(torch.zeros(1, 128, 384))
"""


def texts(count: int) -> list[str]:
    """Return texts of 1 to 10 sentences of the sample's answers, drawn at random."""
    sentences = []
    for case in read_cases(SAMPLE / "train_cases.jsonl"):
        for response in case.responses:
            sentences += response.text.split(". ")
    drawn = random.Random(0)
    return [". ".join(drawn.sample(sentences, drawn.randint(1, 10))) for _ in range(count)]


def library_encode(folder: str) -> Encode:
    """Return the `encode` of sentence-transformers, with threads that wait as the commands' do."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from sentence_transformers import SentenceTransformer

    return partial(SentenceTransformer(folder, device="cpu").encode, show_progress_bar=False)


def encoders(folder: str, encode: Encode, drawn: list[str], results: Results, repeats: int) -> None:
    """Compare the encoder with sentence-transformers on the same texts, in turn."""
    encoder = Encoder(folder, "cpu")
    both = {"theirs": partial(encode, drawn), "ours": partial(encoder.encode, drawn)}
    seconds, vectors = in_turns(both, repeats)
    np.testing.assert_allclose(vectors["ours"], vectors["theirs"], atol=1e-5)
    ratio = seconds["theirs"] / seconds["ours"]
    results.add(
        f"encode {len(drawn):,} texts",
        seconds["ours"],
        "s",
        "sentence-transformers",
        ratio,
        least=1.5,
    )


def beside_encode(
    name: str, command: list[str], drawn: list[str], encode: Encode, results: Results, log: Path
) -> None:
    """Compare the processor time of a command with that of sentence-transformers over the same texts; each runs once."""
    judged = spent(partial(peak, command, log))
    encoded = spent(partial(encode, drawn))
    peer = "sentence-transformers, the same texts"
    results.add(name, judged, "s of the processor", peer, encoded / judged, least=BESIDE[name])


def two_versions(rows: int, folder: Path) -> tuple[list[str], list[str]]:
    """Write two versions of a table as v1.csv and v2.csv; return the words that name them, and all texts."""
    drawn = texts(4 * rows)
    questions, references = drawn[:rows], drawn[rows : 2 * rows]
    words = []
    for version in (1, 2):
        answers = drawn[(version + 1) * rows : (version + 2) * rows]
        file = folder / f"v{version}.csv"
        with open(file, "w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(("question", "reference", "answer"))
            writer.writerows(zip(questions, references, answers))
        words.append(f"v{version}={file}")
    return words, drawn


def sample_texts() -> list[str]:
    """Return the texts of the sample's test cases."""
    drawn = []
    for case in read_cases(SAMPLE / "test_cases.jsonl"):
        drawn += [question_text(case.question), case.reference or ""]
        drawn += [response.text for response in case.responses]
    return drawn


def main() -> None:
    parser = arguments(__doc__)
    add = parser.add_argument
    add("--repeats", type=int, default=7, help="fresh processes per command (default: %(default)s)")
    add("--texts", type=int, default=2000, help="texts to encode (default: %(default)s)")
    add(
        "--rows",
        type=int,
        default=2000,
        help="rows of the two versions (default: %(default)s)",
    )
    add("--limit", help="cases of the sample that are judged (default: all)")
    args = parser.parse_args()
    limit = ["--limit", args.limit] if args.limit else []
    results = Results("Start-up time", args.json)
    encoder = str(Path(EncoderArguments().place).resolve())
    with TemporaryDirectory() as name:
        folder = Path(name)
        again = [*CONSOLE, "judge", "sample", "--judge", "small", *limit, "--output"]
        programs = {
            'python -c "import automedeval"': ([sys.executable, "-c", "import automedeval"], 0.3),
            "automedeval judge --help": ([*CONSOLE, "judge", "--help"], 0.5),
            "automedeval report --help": ([*CONSOLE, "report", "--help"], 0.5),
            "automedeval judge sample, all judged": ([*again, str(folder / "done")], 2.0),
            BARE: ([sys.executable, "-c", ALONE, encoder], None),
        }
        first, log = "automedeval judge sample, first verdict", folder / "log"

        def until_first_verdict() -> None:
            with TemporaryDirectory() as new:
                first_verdict([*again, new], Path(new, "verdicts.jsonl"), log)

        runs = {name: partial(peak, command, log) for name, (command, _) in programs.items()}
        runs[first] = until_first_verdict
        peak([*again, str(folder / "done")], log)  # so that all is judged
        if args.repeats > 1:
            in_turns(runs, 1)
        medians, _ = in_turns(runs, args.repeats)
        for name, (_, target) in programs.items():
            results.add(name, medians[name], "s", most=target)
        ratio = medians[BARE] / medians[first]
        results.add(first, medians[first], "s", BARE, ratio, least=1 / 1.3)
        encode = library_encode(encoder)
        encoders(encoder, encode, texts(args.texts), results, args.repeats)
        beside_encode(
            SAMPLE_JUDGED, [*again, str(folder / "new")], sample_texts(), encode, results, log
        )
        versions, drawn = two_versions(args.rows, folder)
        command = [
            *CONSOLE,
            "judge",
            *versions,
            "--judge",
            "small",
            "--output",
            str(folder / "versions"),
        ]
        beside_encode(VERSIONS_JUDGED, command, drawn, encode, results, log)
        results.note(f"{args.rows:,} rows of two versions, with their report.")
    results.note(
        f"Medians of {args.repeats} new processes, and of as many encodings; vectors differ by at most 1e-5."
    )
    results.show()
    results.write()


if __name__ == "__main__":
    main()
