"""Training stages: which rows a run takes, where it may start, what it leaves beside the weights (paper section 3.2, Table 1).

A checkpoint that was trained here carries a folder `training/`: `record.json` says what the run was, its `history` names every
stage since the base model, and `finished` says that the weights beside it are whole. Training itself is TRL's; nothing here
imports it.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from automedeval.dataset.folder import TEST, read_statistics, read_table
from automedeval.models.checkpoints import Stage, read_record
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError
from automedeval.records.journal import write_whole

WHOLE = "whole"  # stands in a checkpoint folder once every process has written its part
UNTRAINED = -100  # the label of a token that the loss leaves out, as torch has it
_SHOWN = 5  # ids that an error names
# Arguments of TRL's that training has no use for: each may only be what it is by default, lest it be passed over in silence.
_UNUSED = {
    "trust_remote_code": (False, "code that comes with a checkpoint is not run"),
    "push_to_hub": (False, "weights stay where they are trained; publishing is a step of its own"),
    "eval_strategy": ("no", "a stage is judged by recipes/judge.py when it is done, not by its loss"),
    "resume_from_checkpoint": (None, "the same command goes on from the last whole checkpoint by itself"),
    "save_only_model": (False, "a run that is interrupted goes on to the same weights only with its optimizer's state"),
    "ignore_data_skip": (False, "a run that goes on would train again on rows that it has seen"),
    "dataset_streaming": (False, "rows are read whole, so that their lengths are checked before training starts"),
    "dataset_config": (None, "a data set is a folder, or a Hub id with a single configuration"),
    "model_revision": ("main", "download another revision, and name its folder with model_name_or_path"),
}
# The arguments of TRL's that decide the weights, beside the rows and the start: what is computed, not how fast or on what, and
# not what is written meanwhile. A run goes on only if all of them are as before.
DECISIVE = (
    # the updates
    "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "num_train_epochs", "max_steps", "optim",
    "optim_args", "optim_target_modules", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm",
    # the batches
    "per_device_train_batch_size", "gradient_accumulation_steps", "auto_find_batch_size", "dataloader_drop_last",
    "dataloader_in_order", "train_sampling_strategy", "length_column_name", "seed", "data_seed", "shuffle_dataset",
    "max_length", "truncation_mode", "packing", "packing_strategy", "padding_free", "pad_to_multiple_of", "dataset_kwargs",
    "eos_token", "pad_token", "accelerator_config",
    # the loss
    "loss_type", "label_smoothing_factor", "neftune_noise_alpha", "router_aux_loss_coef", "completion_only_loss",
    "assistant_only_loss", "average_tokens_across_devices",
    # the numbers, and how they are shared among processes: a DeepSpeed file may name an optimizer of its own
    "bf16", "fp16", "tf32", "model_init_kwargs", "deepspeed", "fsdp", "fsdp_config", "parallelism_config",
)  # fmt: skip


def read_rows(parts: Sequence[tuple[str | None, str]]) -> tuple[str, list[str], Any, dict[str, Any]]:
    """Read the splits that a run trains on.

    Args:
        parts: (data set, split) of each.

    Returns:
        the data set's name, the splits, their rows as one `datasets.Dataset`, and what the data set's folder says of itself.

    Raises:
        RecordError: several data sets, the test split, or a data set or split that cannot be read.
    """
    names, splits = {name for name, _ in parts}, [split for _, split in parts]
    if len(names) != 1 or None in names:
        raise RecordError("dataset_name, or the paths under datasets, must name one data set")
    (dataset,) = names
    if TEST in splits:
        raise RecordError(f"{dataset}: the split {TEST!r} is held out; no run trains on it")
    from datasets import Dataset, concatenate_datasets, load_dataset  # heavy, and only training needs it

    if (Path(dataset) / "statistics.json").exists():
        statistics = read_statistics(dataset)
        if missing := [split for split in splits if split not in statistics["splits"]]:
            raise RecordError(f"{dataset}: no split {missing[0]!r}; there are {', '.join(statistics['splits'])}")
        # Not by load_dataset: it caches a folder by its name, and gives the former rows of one that was built anew.
        rows = concatenate_datasets([Dataset(read_table(dataset, split)) for split in splits])
        return dataset, splits, rows, statistics
    statistics = {}  # a data set from elsewhere, the Hub for one, says nothing of stages
    try:
        rows = concatenate_datasets([load_dataset(dataset, split=split) for split in splits])
    except (ValueError, OSError) as error:  # its errors of a wrong name, split or file are of these kinds
        raise RecordError(f"{dataset}, {'+'.join(splits)}: {' '.join(str(error).split())[:300]}") from None
    return dataset, splits, rows, statistics


def check_rows(rows: Any, place: str) -> None:
    """Refuse what cannot be trained on.

    Args:
        rows: a `datasets.Dataset`.
        place: names it, for errors.

    Raises:
        RecordError: no rows, no column `prompt` or `completion`, or a row whose completion is empty.
    """
    for column in ("prompt", "completion"):
        if column not in rows.column_names:
            raise RecordError(
                f"{place}: no column {column!r}; there are {', '.join(rows.column_names)} "
                "(recipes/build_dataset.py writes prompt and completion)"
            )
    if not len(rows):
        raise RecordError(f"{place}: not a single row")
    empty = [
        _row_id(rows, at)
        for at, messages in enumerate(rows["completion"])
        if not isinstance(messages, list) or not any((each["content"] or "").strip() for each in messages)
    ]
    if empty:
        raise RecordError(f"{place}: {_counted(len(empty), 'row')} without a completion: {_some(empty)}")


def tokenize(rows: Any, encoder: PromptEncoder, max_length: int | None, place: str) -> list[dict[str, list[int]]]:
    """Turn prompts and completions into tokens as judging does, the loss on the completion alone.

    A control token that stands in a text is ordinary characters here as it is there; that is why the rows are tokenized
    before TRL sees them.

    Returns:
        `input_ids` and `labels` of each row, equally long.

    Raises:
        RecordError: rows longer than `max_length` tokens, which truncation would rob of their score line; or a chat template
            whose answer does not continue its prompt.
    """
    encoded, over = [], []
    for start in range(0, len(rows), 256):
        window = rows[start : start + 256]
        prompts = encoder.encode(window["prompt"])
        wholes = encoder.encode(
            [[*prompt, *answer] for prompt, answer in zip(window["prompt"], window["completion"])], answered=True
        )
        for at, (prompt, whole) in enumerate(zip(prompts, wholes), start):
            if whole[: len(prompt)] != prompt:
                raise RecordError(
                    f"{place}: row {_row_id(rows, at)}: the chat template renders an answered prompt otherwise than one "
                    "that waits for its answer, so judging would ask what training never saw"
                )
            if max_length is not None and len(whole) > max_length:
                over.append(f"{_row_id(rows, at)} ({len(whole):,})")
            encoded.append({"input_ids": whole, "labels": [UNTRAINED] * len(prompt) + whole[len(prompt) :]})
    if over:
        raise RecordError(
            f"{place}: {_counted(len(over), 'row')} of {len(rows):,} longer than max_length, {max_length:,} tokens: "
            f"{_some(over)}; build the data set with this --max_length, or raise it"
        )
    return encoded


def stage_of(
    rows: Sequence[Mapping[str, Sequence[int]]],
    dataset: str,
    splits: Sequence[str],
    statistics: Mapping[str, Any],
    epochs: float,
) -> Stage:
    """Return the stage that training on these tokenized rows is."""
    tokens = sum(len(row["input_ids"]) for row in rows)
    trained = sum(label != UNTRAINED for row in rows for label in row["labels"])
    return Stage(tuple(splits), dataset, statistics.get("fingerprint", "unknown"), len(rows), tokens, trained, epochs)


def _row_id(rows: Any, at: int) -> str:
    return repr(rows[at]["case_id"]) if "case_id" in rows.column_names else str(at)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def refuse_unused(arguments: Mapping[str, Any]) -> None:
    """Raise RecordError if an argument of TRL's is given that would have no effect here, or a dangerous one."""
    for name, (default, why) in _UNUSED.items():
        if arguments[name] != default:
            raise RecordError(f"{name}: {why}")


def check_start(
    model: str, history: Sequence[Stage], dataset: str, splits: Sequence[str], statistics: Mapping[str, Any]
) -> None:
    """Refuse a start that the curriculum does not allow.

    A data set's first stage starts where its history says: a curriculum at a model that has seen none of it, a round of
    introspection at a judge that was trained last on the data set that the round revised. After which of its stages is not
    checked: a round's statistics name the data set alone, and the judge whose mistakes it revised need not have seen all of
    it. Every later stage starts where the one before it ended. A run on several stages together, or on a folder without
    statistics, may start anywhere.

    Raises:
        RecordError: `model` is another stage's.
    """
    if len(splits) > 1 or not statistics:
        return
    stages = [name for name in statistics["splits"] if name != TEST]
    if splits[0] not in stages:
        raise RecordError(f"{dataset}: no split {splits[0]!r}; there are {', '.join(stages)}")
    place, last = stages.index(splits[0]), history[-1] if history else None
    seen = f"{model} was trained on {last}" if last else f"{model} was trained on no stage here"
    if place:
        before = Stage((stages[place - 1],), dataset, statistics["fingerprint"], 0, 0, 0, 0)
        if last is None or (last.splits, last.fingerprint) != (before.splits, before.fingerprint):
            raise RecordError(f"{splits[0]} starts where {before} ended, and {seen}")
    elif "follows" in statistics:
        if last is None or last.fingerprint != statistics["follows"]:
            raise RecordError(
                f"{dataset} revises mistakes of a judge that was trained on {statistics['follows']}, and {seen}"
            )
    elif any(stage.fingerprint == statistics["fingerprint"] for stage in history):
        raise RecordError(f"{splits[0]} is the first stage of {dataset}, and {seen}")


def last_whole_checkpoint(output: Path) -> tuple[Path | None, list[Path]]:
    """Return the latest checkpoint of an interrupted run that is whole, and those that are not.

    One whose mark cannot be read, as a full disk leaves it, is not.
    """
    found = [
        (int(folder.name.rpartition("-")[2]), folder)
        for folder in output.glob("checkpoint-*")
        if folder.name.rpartition("-")[2].isdigit()
    ]
    whole = [folder for _, folder in sorted(found) if _marked_seconds(folder) is not None]
    return (whole[-1] if whole else None), [folder for _, folder in sorted(found) if folder not in whole]


def seconds_so_far(checkpoint: Path | None) -> float:
    """Return how many seconds were trained until a whole checkpoint was saved."""
    return 0.0 if checkpoint is None else _marked_seconds(checkpoint) or 0.0


def mark_whole(checkpoint: Path, seconds: float) -> None:
    """Mark a checkpoint that every process has written its part of, with the seconds trained by then."""
    write_whole(checkpoint / WHOLE, f"{seconds:.1f}\n")


def _marked_seconds(checkpoint: Path) -> float | None:
    try:
        return float((checkpoint / WHOLE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def begin(output: Path, record: Mapping[str, Any]) -> bool:
    """Claim a folder for a run; return whether the same run has finished there already.

    Args:
        record: what is known of the run. Under `identity` stands what decides the weights, by name, in JSON's kinds; a run
            goes on only where all of it is the same. Under `arguments` stands all that it was given; there a name is
            looked up that an older record lacks under `identity`.

    Raises:
        RecordError: another run's weights, or something else, are there.
    """
    there = read_record(output)
    if there is None:
        if output.exists() and any(output.iterdir()):
            raise RecordError(f"{output}: holds something that was not trained here; choose another --output_dir")
    else:
        was, now = there["identity"], record["identity"]
        was = {name: there.get("arguments", {}).get(name) for name in now} | was
        for name in sorted({*was, *now}):
            if was.get(name) != now.get(name):
                raise RecordError(
                    f"{output}: holds another run: {name} was {_short(was.get(name))}, now {_short(now.get(name))}; "
                    "choose another --output_dir"
                )
        if there["finished"]:
            return True
    write_record(output, {"finished": False, **record})
    return False


def write_record(output: Path, record: Mapping[str, Any]) -> None:
    """Write what is known of a run."""
    folder = output / "training"
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "record.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def finish(output: Path, record: Mapping[str, Any], history: Sequence[Stage], losses: Sequence[Mapping]) -> None:
    """Write the losses, the card and the record; from then on the weights count. What was there to go on from is removed."""
    lines = "".join(json.dumps(line) + "\n" for line in losses)
    write_whole(output / "training" / "losses.jsonl", lines)
    record = {**record, "finished": True, "history": [asdict(stage) for stage in history]}
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(
        (resources.files("automedeval.training") / "templates" / "checkpoint_card.md.jinja").read_text(encoding="utf-8")
    )
    write_whole(output / "README.md", template.render(**record, stages=history).rstrip() + "\n")
    for place in (output, output / "adapter"):  # a pickle; the record says the same, readably
        (place / "training_args.bin").unlink(missing_ok=True)
    write_record(output, record)
    remove_checkpoints(output)


def remove_checkpoints(output: Path) -> None:
    """Remove what a finished run could have gone on from."""
    for folder in output.glob("checkpoint-*"):
        shutil.rmtree(folder)


def digest(rows: Sequence[Mapping[str, Sequence[int]]]) -> str:
    """Return twelve hexadecimal digits over tokenized rows: what a run sees, whatever made it."""
    found = hashlib.sha256()
    for row in rows:
        found.update(json.dumps([row["input_ids"], row["labels"]]).encode())
    return found.hexdigest()[:12]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
