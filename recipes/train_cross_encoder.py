"""Train a cross-encoder to put the responses of a question in order, as a small adapter of an encoder (LoRA).

    python recipes/train_cross_encoder.py --config recipes/runs/small-judge/weak.yaml
    python recipes/train_cross_encoder.py --config recipes/runs/small-judge/people.yaml

A case is a list: its question, and of each response the piece that is nearest to the question, with a score, which is that of
a verdict or the mean of people's ratings. The model learns, from every two responses of a case with different scores, which one
is better (RankNet, Burges et al. 2005). sentence-transformers trains. Writes OUTPUT_DIR/adapter; the same command resumes.
"""

import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import RankNetLoss

from automedeval.cli import TableArguments, check_patterns, comma_list, git_commit, installed_versions, parse, run
from automedeval.dataset.decontamination import Evaluation
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import read_ratings
from automedeval.metrics.embedding import QUESTION, nearest, pieces
from automedeval.models.arguments import ENCODER
from automedeval.models.checkpoints import checkpoint_folder, fingerprint
from automedeval.models.cross_encoder import load_cross_encoder, save_adapter
from automedeval.models.embeddings import Encoder
from automedeval.records import Case, RecordError, Verdict, check_least, digest, question_text, read_cases
from automedeval.records.journal import arithmetic
from automedeval.records.readers import read_placed
from automedeval.training.checkpointing import WholeCheckpoints
from automedeval.training.stages import (
    DECISIVE,
    begin,
    plain,
    refuse_unused,
    remove_checkpoints,
    write_record,
)
from automedeval.training.start import whole_checkpoint

LORA = {"r": 16, "lora_alpha": 32, "lora_dropout": 0.05}  # rank, scale and dropout of the adapter


@dataclass
class ListArguments(TableArguments):
    """What is learnt from, and the adapter."""

    cases: list[str] = field(metadata={"help": "files of cases"})
    verdicts: list[str] = field(default_factory=list, metadata={"help": "files of verdicts with scores on them"})
    ratings: list[str] = field(
        default_factory=list, metadata={"help": "files of people's ratings, one for each of --cases"}
    )
    evaluation_cases: list[str] = field(
        default_factory=list, metadata={"help": "cases that the judge is evaluated on; what repeats them is left out"}
    )
    only: str | None = field(default=None, metadata={"help": "regular expression; only cases whose id has it"})
    lists: int | None = field(default=None, metadata={"help": "number of cases to draw"})
    encoder: str = field(default=ENCODER, metadata={"help": "the encoder that is adapted, a folder or Hub id"})
    start: str | None = field(default=None, metadata={"help": "folder of a run of this program to start from"})

    def __post_init__(self) -> None:
        for name in ("cases", "verdicts", "ratings", "evaluation_cases"):
            setattr(self, name, comma_list(getattr(self, name)))
        check_least(self, 1, "lists")
        check_patterns(self, "only")
        if bool(self.verdicts) == bool(self.ratings):
            raise RecordError("the scores are those of --verdicts or of --ratings: give one of the two")
        if self.ratings and len(self.ratings) != len(self.cases):
            raise RecordError(f"{len(self.cases)} files of --cases and {len(self.ratings)} of --ratings")


def main() -> None:
    """Read the lists, train, and save the adapter."""
    args, training = parse((ListArguments, CrossEncoderTrainingArguments), __doc__)
    refuse_unused(vars(training))
    output, base = Path(training.output_dir), checkpoint_folder(args.encoder)
    scored = [each for each in scored_cases(args) if args.only is None or re.search(args.only, each[0].id)]
    scored = with_an_order(without_leaks(scored, args))
    if args.lists is not None and args.lists < len(scored):
        print(f"{len(scored):,} cases → {args.lists:,} drawn")
        scored = random.Random(training.seed).sample(scored, args.lists)
    if not scored:
        raise RecordError(f"{', '.join(args.cases)}: no case is left")
    rows = lists_of(scored, Encoder(args.encoder, "cpu" if training.use_cpu else "auto", "float32"))
    identity = {name: getattr(training, name) for name in (*DECISIVE, "batch_sampler") if hasattr(training, name)}
    identity |= {"start": args.start and adapter_digest(args.start)}
    identity |= LORA | {"rows": digest(rows), "encoder": fingerprint(base, [])}
    record = {
        "identity": plain(identity),
        "arguments": plain({name: value for group in (args, training) for name, value in vars(group).items()}),
        "versions": installed_versions("sentence-transformers", "peft", "datasets"),
        "commit": git_commit(),
    }
    if begin(output, record):
        remove_checkpoints(output)  # left by a run that was killed after writing its record
        print(f"{output}: this run is finished already")
        return
    torch.manual_seed(training.seed)  # of the weights that the adapter starts with
    model = load_cross_encoder(base, args.start and Path(args.start) / "adapter", trainable=True)
    if args.start is None:
        layers = ["query", "key", "value", "dense"]
        try:
            model.add_adapter(LoraConfig(**LORA, target_modules=layers, modules_to_save=["classifier"]))
        except ValueError as error:
            raise RecordError(f"{args.encoder} takes no adapter: {' '.join(str(error).split())[:200]}") from None
    checkpoint, seconds = whole_checkpoint(output)
    timer = WholeCheckpoints(seconds)
    trainer = CrossEncoderTrainer(
        model=model,
        args=training,
        train_dataset=Dataset.from_list(rows),
        loss=RankNetLoss(model, mini_batch_size=-1),
        callbacks=[timer],
    )
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    save_adapter(model, output / "adapter")
    losses = [line for line in trainer.state.log_history if "loss" in line]
    write_record(output, {"finished": True, **record, "losses": losses, "seconds": round(timer.seconds, 1)})
    remove_checkpoints(output)
    print(f"{output}: {len(rows):,} lists, {timer.seconds / 60:.1f} minutes; adapter {adapter_digest(str(output))}")


def scored_cases(args: ListArguments) -> Iterator[tuple[Case, list[float | None]]]:
    """Yield cases with the scores of their responses, None where one has none."""
    if args.verdicts:
        cases = {case.id: case for path in args.cases for case in read_cases(path, blank=args.blank)}
        for path in args.verdicts:
            for place, verdict in read_placed(path, Verdict):
                if (case := cases.get(verdict.case_id)) is None:
                    raise RecordError(f"{place}: no case {verdict.case_id!r} in {', '.join(args.cases)}")
                verdict.check(place, case.digest)
                if verdict.valid and verdict.scores:
                    yield case, list(verdict.scores)
        return
    for path, ratings in zip(args.cases, args.ratings):
        cases = Cases(list(read_cases(path, blank=args.blank)), path)
        scores = iter(read_ratings(ratings, cases).scores.tolist())
        for case in cases.records:
            own = [next(scores) for _ in case.responses]
            yield case, [None if score != score else score for score in own]  # NaN


def without_leaks(
    scored: list[tuple[Case, list[float | None]]], args: ListArguments
) -> list[tuple[Case, list[float | None]]]:
    """Return the cases that repeat no evaluation case; print the arithmetic."""
    evaluation = Evaluation(case for path in args.evaluation_cases for case in read_cases(path, blank=args.blank))
    leaks = {case_id: kind for case_id, kind, _ in evaluation.leaks(case for case, _ in scored)}
    print(arithmetic("cases", len(scored), Counter(leaks.values())))
    return [each for each in scored if each[0].id not in leaks]


def with_an_order(scored: list[tuple[Case, list[float | None]]]) -> list[tuple[Case, list[float | None]]]:
    """Return the cases with two different scores; print the arithmetic."""
    kept = [each for each in scored if len({score for score in each[1] if score is not None}) > 1]
    print(arithmetic("cases", len(scored), {"no two different scores": len(scored) - len(kept)}))
    return kept


def lists_of(scored: list[tuple[Case, list[float | None]]], encoder: Encoder) -> list[dict[str, Any]]:
    """Return a row for each case: its question, the pieces of its scored responses that are read, and their scores."""
    long = [case for case, _ in scored if any(len(pieces(response.text)) > 1 for response in case.responses)]
    found = iter(nearest(long, encoder, [QUESTION])[QUESTION])
    near = {case.id: [next(found).piece for _ in case.responses] for case in long}
    rows = []
    for case, scores in scored:
        texts = near.get(case.id) or ["".join(pieces(response.text)) for response in case.responses]
        known = [(text, float(score)) for text, score in zip(texts, scores) if text and score is not None]
        rows.append(
            {
                "query": question_text(case.question),
                "docs": [text for text, _ in known],
                "labels": [score for _, score in known],
            }
        )
    return rows


def adapter_digest(folder: str) -> str:
    """Return the fingerprint of the adapter of a run; RecordError if it has none."""
    if not (Path(folder) / "adapter" / "adapter_config.json").is_file():
        raise RecordError(f"no adapter at {folder}")
    return fingerprint(Path(folder) / "adapter", [])


if __name__ == "__main__":
    run(main)
