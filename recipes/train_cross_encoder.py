"""Train a cross-encoder to put the responses of a question in order, as a small adapter of an encoder (LoRA).

    python recipes/train_cross_encoder.py --config recipes/runs/small-judge/weak.yaml
    python recipes/train_cross_encoder.py --config recipes/runs/small-judge/people.yaml

A case is a list: its question, and of each response the piece that is nearest to the question, with a score, which is the mean
of people's ratings. Without --ratings the responses are made of the questions' own answers (`lists_of_pairs`). The model
learns, from every two responses of a case with different scores, which one is better (RankNet, Burges et al. 2005).
sentence-transformers trains. Writes OUTPUT_DIR/adapter; the same command resumes.
"""

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from sentence_transformers.cross_encoder import CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import RankNetLoss

from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.ratings import read_ratings
from automedeval.metrics.embedding import QUESTION, nearest, pieces
from automedeval.models.arguments import EncoderArguments
from automedeval.models.checkpoints import checkpoint_folder
from automedeval.records import (
    Case,
    RecordError,
    check_least,
    check_patterns,
    option,
    patient_question,
)
from automedeval.records.arguments import TableArguments, comma_list
from automedeval.records.command_line import parse, run
from automedeval.records.journal import arithmetic
from automedeval.records.tables.cases import read_cases
from automedeval.study.dataset.decontamination import leaks
from automedeval.study.dataset.synthetic_lists import lists_of_pairs
from automedeval.study.training.adapter import train_adapter

Scored = tuple[
    Case, Sequence[float | None]
]  # a case and the scores of its responses, None where one has none
LORA = {"r": 16, "lora_alpha": 32, "lora_dropout": 0.05}  # rank, scale and dropout of the adapter


@dataclass
class ListArguments(TableArguments):
    """What is learnt from, and the adapter."""

    cases: list[str] = option("files of cases")
    ratings: list[str] = option(
        "files of people's ratings, one for each of --cases (default: the cases' own answers, their beginnings, and "
        "answers to other questions are put in order)",
        [],
    )
    evaluation_cases: list[str] = option(
        "cases that the judge is evaluated on; what repeats them is left out", []
    )
    only: str | None = option("regular expression; only cases whose id has it", None)
    lists: int | None = option("number of cases to draw", None)
    start: str | None = option("folder of a run of this program to start from", None)

    def __post_init__(self) -> None:
        for name in ("cases", "ratings", "evaluation_cases"):
            setattr(self, name, comma_list(getattr(self, name)))
        check_least(self, 1, "lists")
        check_patterns(self, "only")
        if self.ratings and len(self.ratings) != len(self.cases):
            raise RecordError(
                f"{len(self.cases)} files of --cases and {len(self.ratings)} of --ratings"
            )


def main() -> None:
    """Read the lists, train, and save the adapter."""
    kinds = (ListArguments, EncoderArguments, CrossEncoderTrainingArguments)
    args, encoder_args, training = parse(kinds, __doc__)
    base = checkpoint_folder(encoder_args.place)
    scored = [
        (case, scores)
        for case, scores in scored_cases(args)
        if args.only is None or re.search(args.only, case.id)
    ]
    scored = with_an_order(without_leaks(scored, args))
    if args.lists is not None and args.lists < len(scored):
        print(f"{len(scored):,} cases → {args.lists:,} drawn")
        scored = random.Random(training.seed).sample(scored, args.lists)
    if not scored:
        raise RecordError(f"{', '.join(args.cases)}: no case is left")
    rows = lists_of(scored, encoder_args.load("cpu" if training.use_cpu else "auto"))
    start = None
    if args.start is not None:
        start = Path(args.start) / "adapter"
        if not (start / "adapter_config.json").is_file():
            raise RecordError(f"no adapter at {args.start}")
    loss = partial(RankNetLoss, mini_batch_size=-1)
    train_adapter(args, training, base, rows, loss, LORA, start=start)


def scored_cases(args: ListArguments) -> Iterator[Scored]:
    """Yield cases with the scores of their responses."""
    if not args.ratings:
        files = (read_cases(path, 0, **args.table) for path in args.cases)
        alone = list(chain.from_iterable(files))
        made = lists_of_pairs(alone)
        lacking = {"no answer of its own, or none to compare it with": len(alone) - len(made)}
        print(arithmetic("cases", len(alone), lacking))
        yield from made
    for path, ratings in zip(args.cases, args.ratings):
        cases = Cases(list(read_cases(path, **args.table)), path)
        scores = iter(read_ratings(ratings, cases).scores.tolist())
        for case in cases.records:
            values = [next(scores) for _ in case.responses]
            yield case, [None if score != score else score for score in values]  # NaN


def without_leaks(scored: list[Scored], args: ListArguments) -> list[Scored]:
    """Return the cases that repeat no evaluation case; print the arithmetic."""
    files = (read_cases(path, **args.table) for path in args.evaluation_cases)
    kinds = leaks([case for case, _ in scored], chain.from_iterable(files))
    print(arithmetic("cases", len(scored), Counter(kinds.values())))
    return [(case, scores) for case, scores in scored if case.id not in kinds]


def with_an_order(scored: list[Scored]) -> list[Scored]:
    """Return the cases with two different scores; print the arithmetic."""
    kept = [(case, scores) for case, scores in scored if len({*scores} - {None}) > 1]
    print(arithmetic("cases", len(scored), {"no two different scores": len(scored) - len(kept)}))
    return kept


def lists_of(scored: list[Scored], encoder: Any) -> list[dict[str, Any]]:
    """Return a row for each case: its question, the pieces of its scored responses that are read, and their scores."""
    long = [
        case
        for case, _ in scored
        if any(len(pieces(response.text)) > 1 for response in case.responses)
    ]
    nearest_pieces = iter(nearest(long, encoder, [QUESTION])[QUESTION])
    near = {case.id: [next(nearest_pieces).piece for _ in case.responses] for case in long}
    rows = []
    for case, scores in scored:
        texts = near.get(case.id) or ["".join(pieces(response.text)) for response in case.responses]
        pairs = [
            (text, float(score)) for text, score in zip(texts, scores) if text and score is not None
        ]
        texts, labels = ([pair[at] for pair in pairs] for at in (0, 1))
        rows.append({"query": patient_question(case.question), "docs": texts, "labels": labels})
    return rows


if __name__ == "__main__":
    run(main)
