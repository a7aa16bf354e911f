"""Train the adapter of a cross-encoder (LoRA) with sentence-transformers, so that the same command resumes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments

from automedeval.models.checkpoints import fingerprint
from automedeval.models.cross_encoder import load_cross_encoder, save_adapter
from automedeval.models.pair_reader import PAIR_TOKENS
from automedeval.records import JsonObject, RecordError, digest, foreign_errors_at
from automedeval.records.run_record import describe_run
from automedeval.study.training.run import Run, decisive
from automedeval.study.training.stages import refuse_unused

# What gets an adapter, as BERT and MPNet call it.
LAYERS = ["query", "key", "value", "dense", "q", "k", "v", "o"]


def train_adapter(
    arguments: Any,
    training: CrossEncoderTrainingArguments,
    base: Path,
    rows: list[JsonObject],
    loss: Callable[[CrossEncoder], torch.nn.Module],
    lora: JsonObject,
    *,
    start: Path | None,
) -> None:
    """Train on rows; write OUTPUT_DIR/adapter and the record of the run. A finished run is left as it is.

    `rows` are as the loss takes them; `start` is an adapter to go on from, `lora` has rank, scale and dropout.
    RecordError if the encoder takes no adapter, or the folder holds another run.
    """
    refuse_unused(vars(training))
    if training.eval_strategy != "no":
        raise RecordError("eval_strategy: an adapter is evaluated when it is fitted")
    assert training.output_dir is not None  # transformers has a default
    output = Path(training.output_dir)
    identity = {
        **decisive(training),
        "batch_sampler": training.batch_sampler,
        **lora,
        "start": start and fingerprint(start),
        "rows": digest(rows),
        "encoder": fingerprint(base),
    }
    about = describe_run(
        arguments, training, libraries=("sentence-transformers", "peft", "datasets")
    )
    run = Run(output, {"identity": identity, **about})
    if run.finished:
        return
    torch.manual_seed(training.seed)  # of the weights that the adapter starts with
    model = load_cross_encoder(base, PAIR_TOKENS, start, trainable=True)
    if start is None:
        with foreign_errors_at(f"{base} takes no adapter", ValueError):
            model.add_adapter(
                LoraConfig(**lora, target_modules=LAYERS, modules_to_save=["classifier"])
            )
    trainer = CrossEncoderTrainer(
        model=model, args=training, train_dataset=Dataset.from_list(rows), loss=loss(model)
    )
    run.train(trainer)
    save_adapter(model, output / "adapter")
    run.finish()
    weights = fingerprint(output / "adapter")
    print(f"{output}: {len(rows):,} rows; adapter {weights}")
