"""Check the rows and the start of a training stage (paper section 3.2, Table 1), before TRL trains on them.

Which case is in which stage is decided by `dataset/curriculum.py`; what a run leaves in its folder, by `run.py`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from automedeval.dataset.folder import TEST, read_statistics, read_table
from automedeval.models.checkpoints import Stage
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError
from automedeval.records.hub_names import hub_rows
from automedeval.records.journal import write_lines, write_whole
from automedeval.records.templates import environment

UNTRAINED = -100  # torch's label of a token that the loss ignores
_SHOWN = 5  # ids that an error lists
# Arguments of a trainer that have no effect here, or a dangerous one, with the values that are accepted.
_UNUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "trust_remote_code": ((False,), "code in a checkpoint is not run"),
    "push_to_hub": ((False,), "training does not publish; use recipes/publish.py"),
    "eval_strategy": (("no",), "a finished stage is evaluated with automedeval judge, not by its loss"),
    "resume_from_checkpoint": ((None,), "the same command resumes from the last complete checkpoint"),
    "save_only_model": ((False,), "an interrupted run reaches the same weights only with the optimizer's state"),
    "ignore_data_skip": ((False,), "a resumed run would train again on the rows that it has seen"),
    "dataset_streaming": ((False,), "all rows are read, because their lengths are checked before training starts"),
    "dataset_config": ((None,), "a data set is a folder, or a Hub id with a single configuration"),
    "model_revision": (("main",), "write it behind the name: model_name_or_path: ORG/NAME@REVISION"),
    "completion_only_loss": ((None, True), "the loss is that of the completions: a judge is not taught its prompts"),
}
# TRL's arguments that determine the weights, together with the rows and the start; not speed, device or logging. A run is
# resumed only if all of them are unchanged.
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
    "loss_type", "label_smoothing_factor", "neftune_noise_alpha", "router_aux_loss_coef", "assistant_only_loss",
    "average_tokens_across_devices",
    # number formats and parallelism: a DeepSpeed file may name another optimizer
    "bf16", "fp16", "tf32", "model_init_kwargs", "deepspeed", "fsdp", "fsdp_config", "parallelism_config",
)  # fmt: skip


def read_rows(parts: Sequence[tuple[str | None, str]]) -> tuple[str, list[str], Any, dict[str, Any]]:
    """Read the splits that a run trains on, given as (data set, split).

    Returns:
        The data set's name, the splits, their rows as one `datasets.Dataset`, and the data set's statistics.json.

    Raises:
        RecordError: there are several data sets, a split is the test split, or one cannot be read.
    """
    (dataset, *others), splits = {name for name, _ in parts}, [split for _, split in parts]
    if dataset is None or others:
        raise RecordError("dataset_name, or the paths under datasets, must name one data set")
    if TEST in splits:
        raise RecordError(f"{dataset}: the split {TEST!r} is held out; no run trains on it")
    from datasets import Dataset, concatenate_datasets  # slow to import, and only training needs it

    if (Path(dataset) / "statistics.json").exists():
        statistics = read_statistics(dataset)
        if missing := [split for split in splits if split not in statistics["splits"]]:
            raise RecordError(f"{dataset}: no split {missing[0]!r}; there are {', '.join(statistics['splits'])}")
        # Not by `datasets`: it caches a folder by name, and returns the old rows of a folder that was built again.
        rows = concatenate_datasets([Dataset(read_table(dataset, split)) for split in splits])
        return dataset, splits, rows, statistics
    statistics = {}  # a data set that was not built here, as one of the Hub, has no statistics.json
    try:
        rows = concatenate_datasets([hub_rows(dataset, split, streaming=False) for split in splits])
    except (ValueError, OSError) as error:  # raised for a wrong name, split or file
        raise RecordError(f"{dataset}, {'+'.join(splits)}: {' '.join(str(error).split())[:300]}") from None
    return dataset, splits, rows, statistics


def tokenize(rows: Any, encoder: PromptEncoder, max_length: int | None, place: str) -> list[dict[str, list[int]]]:
    """Tokenize prompts and completions as judging does; only the completion gets labels.

    Rows are tokenized here and not by TRL, so that a control token inside a text stays ordinary characters, as in judging.

    Returns:
        `input_ids` and `labels` of each row, of equal length.

    Raises:
        RecordError: there are no rows, or rows without a prompt or a completion; rows have more than `max_length` tokens, so
            that truncation would cut off the scores; or the chat template's answered prompt does not begin with its prompt.
    """
    for column in ("prompt", "completion"):
        if column not in rows.column_names:
            raise RecordError(
                f"{place}: no column {column!r}; there are {', '.join(rows.column_names)} "
                "(recipes/build_dataset.py writes prompt and completion)"
            )
    if not len(rows):
        raise RecordError(f"{place}: not a single row")
    names = [repr(each) for each in (rows["case_id"] if "case_id" in rows.column_names else range(len(rows)))]
    empty = [
        name
        for name, messages in zip(names, rows["completion"])
        if not isinstance(messages, list) or not any((each["content"] or "").strip() for each in messages)
    ]
    if empty:
        raise RecordError(f"{place}: {_listed('without a completion', empty)}")
    encoded, over = [], []
    for start in range(0, len(rows), 256):
        window = rows[start : start + 256]
        prompts = encoder.encode(window["prompt"])
        answered = [[*prompt, *answer] for prompt, answer in zip(window["prompt"], window["completion"])]
        wholes = encoder.encode(answered, answered=True)
        for at, (prompt, whole) in enumerate(zip(prompts, wholes), start):
            if whole[: len(prompt)] != prompt:
                raise RecordError(
                    f"{place}: row {names[at]}: with an answer, the chat template renders the prompt differently "
                    "than without: the prompts of training and judging would differ"
                )
            if max_length is not None and len(whole) > max_length:
                over.append(f"{names[at]} ({len(whole):,})")
            encoded.append({"input_ids": whole, "labels": [UNTRAINED] * len(prompt) + whole[len(prompt) :]})
    if over:
        raise RecordError(
            f"{place}: {_listed(f'of {len(rows):,} longer than max_length, {max_length:,} tokens', over)}; build the data "
            "set with this --max_length, or raise it"
        )
    return encoded


def stage_of(
    rows: Sequence[Mapping], dataset: str, splits: Sequence[str], statistics: Mapping[str, Any], epochs: float
) -> Stage:
    """Return the record of a stage that trains on these tokenized rows."""
    tokens = sum(len(row["input_ids"]) for row in rows)
    trained = sum(label != UNTRAINED for row in rows for label in row["labels"])
    return Stage(tuple(splits), dataset, statistics.get("fingerprint", "unknown"), len(rows), tokens, trained, epochs)


def _listed(fault: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    return f"{len(names):,} row{'' if len(names) == 1 else 's'} {fault}: {shown}"


def refuse_unused(arguments: Mapping[str, Any]) -> None:
    """Raise RecordError if an argument of a trainer is set that has no effect here, or a dangerous one."""
    for name, (accepted, why) in _UNUSED.items():
        if arguments.get(name, accepted[0]) not in accepted:
            raise RecordError(f"{name}: {why}")


def check_start(
    model: str, history: Sequence[Stage], dataset: str, splits: Sequence[str], statistics: Mapping[str, Any]
) -> None:
    """Check that a stage starts from the right checkpoint; raise RecordError if `model` is that of another stage.

    The first stage of a curriculum starts from a model that was not trained on the data set; a round of introspection starts
    from a judge whose last stage was on the data set that the round revised (any of its stages, because the round's statistics
    name only the data set). Every later stage starts from the checkpoint of the stage before it. A run on several splits, or on
    a data set without statistics, may start from any checkpoint.
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
            raise RecordError(f"{dataset} revises mistakes of a judge trained on {statistics['follows']}, and {seen}")
    elif any(stage.fingerprint == statistics["fingerprint"] for stage in history):
        raise RecordError(f"{splits[0]} is the first stage of {dataset}, and {seen}")


def write_card(output: Path, record: Mapping[str, Any], history: Sequence[Stage], losses: Sequence[Mapping]) -> None:
    """Write the card of a checkpoint, and the losses of its last stage."""
    write_lines(output / "training" / "losses.jsonl", losses)
    template = environment("automedeval.training").get_template("checkpoint_card.md.jinja")
    write_whole(output / "README.md", template.render(**record, stages=history).rstrip() + "\n")
