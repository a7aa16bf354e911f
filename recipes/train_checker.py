"""Train the small checker: whether a passage supports a statement, contradicts it, or does not speak of it.

    python recipes/train_checker.py --config recipes/runs/small-checker/train.yaml

A cross-encoder with three labels, as an adapter of an encoder (LoRA). It learns from pairs of a statement and a passage
(--pairs, folders or files with evidence, claim and label) and from sentences of books changed by rule (--books). Of the sets
in --held_out a fifth of the documents is never trained on; OUTPUT_DIR/held_out.jsonl has their pairs. sentence-transformers
trains. Writes OUTPUT_DIR/adapter; the same command resumes.
"""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.cross_encoder import CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import CrossEntropyLoss

from automedeval.dataset.contrast import Rules, contrast_pairs, is_held_out
from automedeval.evidence.checker import LABELS, NOT_FOUND, PAIR_TOKENS
from automedeval.evidence.statements import sentences
from automedeval.models.arguments import ENCODER
from automedeval.models.checkpoints import checkpoint_folder
from automedeval.records import RecordError, option, read_cases
from automedeval.records.arguments import comma_list
from automedeval.records.command_line import parse, run
from automedeval.records.journal import arithmetic, write_lines
from automedeval.training.adapter import train_adapter

LORA = {"r": 32, "lora_alpha": 64, "lora_dropout": 0.0}  # rank, scale and dropout of the adapter
POOL = 50  # batches whose pairs are sorted by length together
WRONG_PASSAGES = 0.05  # share of the pairs whose claim is shown beside another pair's evidence
PER_DOCUMENT = 6  # most contrast pairs of one document, so that long ones do not decide


@dataclass
class PairArguments:
    """What is learnt from, and the encoder."""

    pairs: list[str] = option(
        "folders with pairs.jsonl, or files; FOLDER:N draws at most N of its pairs"
    )
    books: list[str] = option("JSONL files of texts (answer or text, and id), changed by rule", [])
    contrast: int = option("number of pairs to draw from --books", 20_000)
    held_out: list[str] = option(
        "names of --pairs of which a fifth of the documents is kept for tests", []
    )
    evaluation_pairs: list[str] = option(
        "pairs for tests only; what repeats their texts is left out", []
    )
    evaluation_cases: list[str] = option(
        "cases for tests only; what repeats their sentences is left out", []
    )
    encoder: str = option("the encoder that is adapted, a folder or Hub id", ENCODER)

    def __post_init__(self) -> None:
        for name in ("pairs", "books", "held_out", "evaluation_pairs", "evaluation_cases"):
            setattr(self, name, comma_list(getattr(self, name)))


class SimilarLength(DefaultBatchSampler):
    """Batches of pairs of similar length, in a drawn order: on a processor half of the time is padding else."""

    def __init__(self, dataset: Dataset, batch_size: int, drop_last: bool, **options: Any):
        super().__init__(dataset, batch_size, drop_last, **options)
        self.lengths = [len(row["evidence"]) + len(row["claim"]) for row in dataset]

    def __iter__(self) -> Iterator[list[int]]:
        rng = random.Random(self.seed + self.epoch)
        order = rng.sample(range(len(self.lengths)), len(self.lengths))
        size = POOL * self.batch_size
        batches = []
        for pool in (order[start : start + size] for start in range(0, len(order), size)):
            pool.sort(key=self.lengths.__getitem__)
            batches += [
                pool[start : start + self.batch_size]
                for start in range(0, len(pool), self.batch_size)
            ]
        rng.shuffle(batches)
        yield from batches

    def __len__(self) -> int:
        size = POOL * self.batch_size
        whole, rest = divmod(len(self.lengths), size)
        return whole * POOL + -(-rest // self.batch_size)


def main() -> None:
    """Read and draw the pairs, train, and save the adapter."""
    args, training = parse((PairArguments, CrossEncoderTrainingArguments), __doc__)
    training.batch_sampler = SimilarLength
    base = checkpoint_folder(args.encoder)
    pairs, held_out = training_pairs(args, training.seed)
    rows = [
        {"evidence": each["evidence"], "claim": each["claim"], "label": LABELS.index(each["label"])}
        for each in pairs
    ]
    counts = Counter(f"{each['source']} {each['label']}" for each in pairs)
    facts = {"pairs": dict(sorted(counts.items()))}
    train_adapter(
        args,
        training,
        base,
        rows,
        CrossEntropyLoss,
        LORA,
        labels=len(LABELS),
        tokens=PAIR_TOKENS,
        facts=facts,
    )
    write_lines(Path(training.output_dir) / "held_out.jsonl", held_out)


def training_pairs(
    args: PairArguments, seed: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the pairs to train on, shuffled, and those held out; print the arithmetic."""
    rng = random.Random(seed)
    forbidden, held_out, kept = test_texts(args), [], []
    for name in args.pairs:
        place, _, most = name.partition(":")
        rows = read_pairs(Path(place))
        source = rows[0]["source"] if rows else place
        fates: Counter[str] = Counter()
        usable = []
        for row in rows:
            if row["label"] not in LABELS:
                fates["another label"] += 1
            elif normal(row["claim"]) in forbidden or normal(row["evidence"]) in forbidden:
                fates["text of a test"] += 1
            elif source in args.held_out and is_held_out(row["document"]):
                held_out.append(row)
                fates["held out"] += 1
            else:
                usable.append(row)
        usable = balanced(usable, int(most), rng) if most else usable
        print(f"{source}: {arithmetic('pairs', len(rows), fates)}, {len(usable):,} drawn")
        kept += usable
    claims = {normal(row["claim"]) for row in held_out}
    before = len(kept)
    kept = [row for row in kept if normal(row["claim"]) not in claims]
    print(arithmetic("pairs", before, {"claim of a pair held out": before - len(kept)}))
    kept += book_pairs(args, forbidden, held_out, rng)
    wrong = rng.sample(kept, 2 * int(WRONG_PASSAGES * len(kept)))
    for row, other in zip(wrong[::2], wrong[1::2]):
        kept.append(
            {**row, "evidence": other["evidence"], "label": NOT_FOUND, "source": "wrong passage"}
        )
    rng.shuffle(kept)
    return kept, held_out


def test_texts(args: PairArguments) -> set[str]:
    """Return every text that a test uses, normalised: whole and by sentence."""
    texts = [
        row[key]
        for place in args.evaluation_pairs
        for row in read_pairs(Path(place))
        for key in ("claim", "evidence")
    ]
    for path in args.evaluation_cases:
        for case in read_cases(path, blank="skip"):
            texts += [case.reference or "", *(response.text for response in case.responses)]
    return {normal(part) for text in texts for part in (text, *sentences(text))} - {""}


def book_pairs(
    args: PairArguments, forbidden: set[str], held_out: list[dict[str, Any]], rng: random.Random
) -> list[dict[str, Any]]:
    """Return contrast pairs of the books, the labels and kinds as they come; one document in five is held out."""
    rules = Rules.read()
    texts = []
    for path in args.books:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                texts.append((str(row["id"]), row.get("answer") or row.get("text") or ""))
    rng.shuffle(texts)
    pairs: list[dict[str, Any]] = []
    used: Counter[str] = Counter()
    wanted = args.contrast
    for pair in contrast_pairs(texts, rules, rng.randrange(2**32)):
        if len(pairs) >= wanted:
            break
        if (
            used[pair["document"]] >= PER_DOCUMENT
            or {normal(pair["evidence"]), normal(pair["claim"])} & forbidden
        ):
            continue
        used[pair["document"]] += 1
        row = {**pair, "source": "contrast"}
        if is_held_out(pair["document"]):
            held_out.append(row)
        elif pair["kind"] not in rules.held_out:
            pairs.append(row)
    labels = Counter(row["label"] for row in pairs)
    print(f"contrast: {len(pairs):,} pairs of {len(used):,} documents: {dict(labels)}")
    return pairs


def read_pairs(place: Path) -> list[dict[str, Any]]:
    """Read pairs with their source and document: the key of a document, else the evidence itself."""
    file = place / "pairs.jsonl" if place.is_dir() else place
    try:
        with open(file, encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        name = place.name if place.is_dir() else place.stem
        return [
            {**row, "source": name, "document": str(row.get("pmc") or normal(row["evidence"]))}
            for row in rows
        ]
    except OSError as error:
        raise RecordError(f"{file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{file}: not pairs of evidence, claim and label ({error})") from None


def balanced(rows: list[dict[str, Any]], most: int, rng: random.Random) -> list[dict[str, Any]]:
    """Return at most so many pairs, drawn from each label in turn."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rng.sample(rows, len(rows)):
        groups[row["label"]].append(row)
    drawn: list[dict[str, Any]] = []
    while len(drawn) < most and any(groups.values()):
        drawn += [group.pop() for group in groups.values() if group][: most - len(drawn)]
    return drawn


def normal(text: str) -> str:
    """Return a text in lower case with single spaces and without the mark at its end."""
    return " ".join(text.lower().split()).rstrip(".!? ")


if __name__ == "__main__":
    run(main)
