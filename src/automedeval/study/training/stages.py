"""Check the rows and the start of a training stage (paper section 3.2, Table 1), before TRL trains on them.

Which case is in which stage is decided by `dataset/curriculum.py`; what a run leaves in its folder, by `run.py`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from automedeval.models.checkpoints import ADAPTER, Stage, base_of
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import JsonObject, RecordError, errors_at, foreign_errors_at, read_json
from automedeval.records.hub_names import hub_rows
from automedeval.records.package_data import packaged
from automedeval.records.types import as_list
from automedeval.study.dataset.folder import (
    STATISTICS,
    TEST,
    dataset_folder,
    read_split,
    read_statistics,
)

# Arguments of a trainer that would have no effect here, or a dangerous one → the value that is accepted, and why no other is.
REFUSED = packaged("study/training", "arguments")["refused"]


def refuse_unused(arguments: Mapping[str, Any]) -> None:
    """Raise RecordError if an argument of a trainer is set that has no effect here, or a dangerous one."""
    for name, (accepted, why) in REFUSED.items():
        if arguments.get(name, accepted) != accepted:
            raise RecordError(f"{name}: {why}")


def read_rows(dataset: str | None, split: str) -> tuple[Any, JsonObject]:
    """Return the rows of a split as a `datasets.Dataset`, and the data set's statistics.json.

    `split` is as `datasets` writes it: several are joined by "+", and a part of one is stage1[:50%]. RecordError without a data
    set, or if the split cannot be read.
    """
    if dataset is None:
        raise RecordError("dataset_name must name a data set")
    from datasets import Dataset  # slow to import, and only training needs it

    folder = dataset_folder(dataset)
    if (folder / STATISTICS).exists():
        # Not by `datasets`: it caches a folder by name, and returns the old rows of a folder that was built again.
        return Dataset(read_split(folder, split)), read_statistics(folder)
    with foreign_errors_at(f"{dataset}, {split}", ValueError, OSError):
        # A data set that was not built here has no statistics.json, and its columns beside prompt and completion are its own.
        rows = hub_rows(dataset, split, streaming=False)
        return rows.remove_columns({"trained"}.intersection(rows.column_names)), {}


def check_base(
    start: Path, encoder: PromptEncoder, max_length: int | None, adapter: Any = None
) -> None:
    """Raise RecordError if a model's context window is below `max_length`, or nothing in its chat template ends an answer.

    `adapter` is peft's configuration of the one to train, which goes on from that of `start`: it must be of the same shape.
    """
    from transformers import AutoConfig, GenerationConfig  # slow to import

    if base_of(start) != start:
        there = read_json(start / ADAPTER)
        rank = there["r"]
        scale = there["lora_alpha"]
        if adapter is None or (adapter.r, adapter.lora_alpha) != (rank, scale):
            raise RecordError(
                f"{start} has an adapter, and training goes on from it: "
                f"--use_peft true --lora_r {rank} --lora_alpha {scale}"
            )

    config = AutoConfig.from_pretrained(start).get_text_config()
    window = getattr(config, "max_position_embeddings", None)
    if window and max_length and window < max_length:
        raise RecordError(
            f"max_length: {max_length:,} tokens exceed the context window of {start}, {window:,}"
        )
    try:
        ends = GenerationConfig.from_pretrained(start).eos_token_id
    except OSError:
        ends = config.eos_token_id
    known = {*as_list(ends), encoder.tokenizer.eos_token_id} - {None}
    question = [{"role": "user", "content": "Is it right?"}]
    ((_, answer),) = encoder.encode_answered([(question, "Yes.")])
    if not known & set(answer):
        raise RecordError(
            f"{start}: its chat template ends an answer with no end-of-sequence token: a judge would not stop"
        )


def tokenize(
    rows: Any,
    place: str,
    encoder: PromptEncoder,
    max_length: int | None = None,
    num_proc: int | None = None,
) -> Any:
    """Add to rows of a prompt and a completion the columns that TRL makes of them: `input_ids` and `completion_mask`.

    TRL would read a control token inside a text as one. Here it stays ordinary characters, as in judging.

    RecordError if there are no rows, or rows without a prompt or a completion; if rows have more than `max_length` tokens, so
    that TRL would cut off the scores; or if the chat template's answered prompt does not begin with its prompt.
    """
    if not {"prompt", "completion"} <= set(rows.column_names):
        there = ", ".join(rows.column_names)
        raise RecordError(f"{place}: rows need a prompt and a completion; there are {there}")
    if not len(rows):
        raise RecordError(f"{place}: not a single row")
    are_empty = [not _answer(completion).strip() for completion in rows["completion"]]
    _refuse(rows, are_empty, f"{place}: no completion of one message")

    def encode(batch: Mapping[str, list]) -> dict[str, list[list[int]]]:
        texts = list(map(_answer, batch["completion"]))
        spans = batch.get("trained") or [None] * len(texts)
        ids = []
        masks = []
        pairs = encoder.encode_answered(list(zip(batch["prompt"], texts)))
        for (prompt, answer), text, places in zip(pairs, texts, spans):
            ids.append(prompt + answer)
            masks.append([0] * len(prompt) + encoder.trained(answer, text, places))
        return {"input_ids": ids, "completion_mask": masks}

    about = f"Tokenizing {place}"
    with errors_at(place):
        # In memory: other hosts may not have the file.
        encoded = rows.map(
            encode, batched=True, batch_size=256, num_proc=num_proc, keep_in_memory=True, desc=about
        )
    if max_length:
        are_long = [len(ids) > max_length for ids in encoded["input_ids"]]
        fault = f"{place}: longer than max_length, {max_length:,} tokens"
        _refuse(rows, are_long, f"{fault}; build the data set with this --max_length, or raise it")
    return encoded


def stage_of(
    rows: Any, dataset: str, splits: Sequence[str], statistics: JsonObject, training: Any
) -> Stage:
    """Return the record of a stage that trains on these tokenized rows."""
    tokens = trained = sum(map(len, rows["input_ids"]))
    if training.completion_only_loss is not False:
        trained = sum(map(sum, rows["completion_mask"]))
    fingerprint = statistics.get("fingerprint", "unknown")
    epochs = training.num_train_epochs
    return Stage(tuple(splits), dataset, fingerprint, len(rows), tokens, trained, epochs)


def _answer(completion: Any) -> str:
    """Return the text of a completion of one message; "" for anything else."""
    if not isinstance(completion, list) or len(completion) != 1:
        return ""
    return completion[0]["content"] or ""


def _refuse(rows: Any, are_faulty: Sequence[bool], fault: str) -> None:
    """Raise RecordError if rows have a fault; it names the first of them."""
    if count := sum(are_faulty):
        first = are_faulty.index(True)
        case_id = rows[first].get("case_id", first)
        raise RecordError(f"{fault}: {count:,} of {len(rows):,} rows, the first {case_id!r}")


def check_start(
    model: str,
    history: Sequence[Stage],
    dataset: str,
    splits: Sequence[str],
    statistics: JsonObject,
) -> None:
    """Check that a stage starts from the right checkpoint; raise RecordError if `model` is that of another stage.

    `splits` are the parts of a split, see `read_rows`.

    The first stage of a curriculum starts from a model that was not trained on the data set; a round of introspection starts
    from a judge whose last stage was on the data set that the round revised (any of its stages, because the round's statistics
    name only the data set). Every later stage starts from the checkpoint of the stage before it. A run on several splits, on a
    part of one, or on a data set without statistics, may start from any checkpoint. No run trains on the test split.
    """
    if TEST in {split.partition("[")[0] for split in splits}:
        raise RecordError(f"{dataset}: the split {TEST!r} is held out; no run trains on it")
    split = splits[0]
    if len(splits) > 1 or "[" in split or not statistics:
        return
    stages = [name for name in statistics["splits"] if name != TEST]
    number = stages.index(split)
    this = statistics["fingerprint"]
    trained = [stage.fingerprint for stage in history]
    if number:
        before = stages[number - 1]
        is_right = trained[-1:] == [this] and history[-1].splits == (before,)
        rule = f"{split} starts where {before} of {dataset} ({this}) ended"
    elif "follows" in statistics:
        revised = statistics["follows"]
        is_right = trained[-1:] == [revised]
        rule = f"{dataset} revises mistakes of a judge trained on {revised}"
    else:
        is_right = this not in trained
        rule = f"{split} is the first stage of {dataset}"
    if not is_right:
        last = history[-1] if history else "no stage here"
        raise RecordError(f"{rule}, and {model} was trained on {last}")
