"""Train one stage of a curriculum, or one round of introspection, with TRL's SFTTrainer (paper sections 3.2, 3.3, Appendix C).

    accelerate launch --config_file accelerate_configs/zero3.yaml \\
        recipes/sft.py --config recipes/runs/automedeval-13b/stage1.yaml
    python recipes/sft.py --config recipes/runs/automedeval-135m/stage1.yaml

One run is one stage. It writes its weights to OUTPUT_DIR, from which the next stage starts. All arguments are TRL's, so that
`trl sft --config` reads the same files. The same command again resumes from the last complete checkpoint.
"""

import os
import sys
import warnings
from pathlib import Path

import torch
from accelerate import PartialState
from datasets import Dataset
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM
from transformers.integrations import unset_hf_deepspeed_config
from trl import (
    DatasetMixtureConfig,
    ModelConfig,
    ScriptArguments,
    SFTConfig,
    SFTTrainer,
    TrlParser,
    get_peft_config,
    get_quantization_config,
)

from automedeval.cli import describe_run, run
from automedeval.models.checkpoints import checkpoint_folder, fingerprint, read_history, read_record
from automedeval.models.precision import bfloat16_missing
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError, digest
from automedeval.records.hub_names import hub_commits
from automedeval.training.checkpointing import WholeCheckpoints
from automedeval.training.completion_logits import read_trained_positions
from automedeval.training.stages import (
    DECISIVE,
    begin,
    check_rows,
    check_start,
    finish,
    plain,
    read_rows,
    refuse_unused,
    remove_checkpoints,
    stage_of,
    tokenize,
)
from automedeval.training.start import loading_options, tell, tell_of_locks, whole_checkpoint, without_bfloat16

FULL_DISK = ("No space left", "File too large", "file write failed", "unexpected pos", "iostream error")


def main() -> None:
    """Check the rows and the start, train with TRL, and save the checkpoint that the next stage starts from."""
    tell_of_locks()
    script, training, model, mixture = parse()
    state, output = PartialState(), Path(training.output_dir)
    parts = [(each.path, each.split) for each in mixture.datasets]
    dataset, splits, rows, statistics = read_rows(parts or [(script.dataset_name, script.dataset_train_split)])
    place = f"{dataset}, {'+'.join(splits)}"
    start = checkpoint_folder(model.model_name_or_path)
    history = read_history(start)
    check_start(model.model_name_or_path, history, dataset, splits, statistics)
    check_rows(rows, place)
    if len(rows) < state.num_processes:
        raise RecordError(f"{place}: {len(rows)} rows for {state.num_processes} processes; start fewer")
    encoder = PromptEncoder.from_checkpoint(model.model_name_or_path, training.chat_template_path)
    encoded = tokenize(rows, encoder, training.max_length, place)
    stage = stage_of(encoded, dataset, splits, statistics, training.num_train_epochs)
    peft = get_peft_config(model)
    identity = {name: getattr(training, name) for name in DECISIVE}
    identity |= {"dtype": model.dtype, "peft": peft and peft.to_dict(), "processes": state.num_processes}
    identity |= {name: True for name in ("load_in_8bit", "load_in_4bit") if getattr(model, name)}
    identity |= {"rows": digest(encoded), "start": fingerprint(start, [])}
    record = {
        "identity": plain(identity),
        "start": model.model_name_or_path,
        **base_of(start, model.model_name_or_path),
        "rubrics": sorted(set(rows["rubric"])) if "rubric" in rows.column_names else [],
        **plain(describe_run(script, training, model, libraries=("trl", "peft", "deepspeed", "datasets"))),
        "device": device_name(),
        "precision": precision(training, model.dtype),
    }
    state.wait_for_everyone()  # the folder is reserved only after all processes have checked the input
    finished = begin(output, record) if state.is_main_process else False
    state.wait_for_everyone()
    if finished or read_record(output)["finished"]:
        if state.is_main_process:
            remove_checkpoints(output)  # left by a run that was killed after writing its record
        tell(f"{output}: this run is finished already")
        return
    update = training.per_device_train_batch_size * training.gradient_accumulation_steps * state.num_processes
    budget = round(stage.tokens * stage.epochs)
    tell(
        f"{place}: {stage.rows:,} rows, {stage.tokens:,} tokens, {stage.trained:,} of them trained on; "
        f"{stage.epochs:g} epochs = {budget:,} tokens, {update} rows an update"
    )
    tell(f"precision: {record['precision']}")
    checkpoint, seconds = whole_checkpoint(output)
    timer = WholeCheckpoints(seconds)
    trainer = SFTTrainer(
        model=str(start),
        args=training,
        train_dataset=Dataset.from_list(encoded),
        processing_class=encoder.tokenizer,
        peft_config=peft,
        quantization_config=get_quantization_config(model),
        callbacks=[timer],
    )
    if state.device.type == "cpu":  # elsewhere TRL itself skips positions without a label
        network = trainer.model.get_base_model() if peft else trainer.model
        read_trained_positions(network, network.base_model)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    save(trainer, output, start if peft else None, model.dtype)
    if state.is_main_process:
        losses = [line for line in trainer.state.log_history if "loss" in line]
        finish(output, record | {"seconds": round(timer.seconds, 1)}, [*history, stage], losses)
    state.wait_for_everyone()
    tell(f"{output}: {timer.seconds / 3600:.2f} hours, {budget / timer.seconds:,.0f} tokens/s")
    trainer.accelerator.end_training()


def parse() -> tuple[ScriptArguments, SFTConfig, ModelConfig, DatasetMixtureConfig]:
    """Parse YAML and command line; unknown keys and arguments that would run foreign code are errors."""
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig, DatasetMixtureConfig))
    try:
        script, training, model, mixture = parser.parse_args_and_config([*sys.argv[1:], *without_bfloat16()])
    except (ValueError, OSError) as error:
        raise RecordError(" ".join(str(error).split())) from None
    refuse_unused({**vars(script), **vars(training), **vars(model)})
    if training.chat_template_path == "none":  # takes back the path that a YAML names
        training.chat_template_path = None
    if not model.model_name_or_path or not training.output_dir:
        raise RecordError("model_name_or_path and output_dir are needed")
    training.model_init_kwargs = loading_options(model, training.model_init_kwargs)
    return script, training, model, mixture


def save(trainer: SFTTrainer, output: Path, base: Path | None, dtype: str) -> None:
    """Save weights and tokenizer; an adapter of `base` is also merged, so that judging and the next stage do not need it."""
    if base is None:
        trainer.save_model(str(output))
        return
    trainer.save_model(str(output / "adapter"))
    if trainer.accelerator.is_main_process:
        from peft import PeftModel  # only adapters need it

        # While a ZeRO-3 configuration is set, every process has to load a model together with the others.
        unset_hf_deepspeed_config()
        model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype, use_safetensors=True)
        merged = PeftModel.from_pretrained(model, output / "adapter").merge_and_unload()
        merged.save_pretrained(output)
        trainer.processing_class.save_pretrained(output)
    trainer.accelerator.wait_for_everyone()


def base_of(start: Path, name: str) -> dict[str, str | None]:
    """Return the model that the first stage started from, and its commit if it came from the Hub."""
    before = read_record(start) or {"base": name, "base_commit": hub_commits().get(name)}
    return {key: before.get(key) for key in ("base", "base_commit")}


def device_name() -> str:
    """Return the name of the device, with the number of processes."""
    state = PartialState()
    if state.device.type == "cuda":
        name = torch.cuda.get_device_name()
    else:
        name = "Apple GPU" if state.device.type == "mps" else f"CPU, {os.cpu_count()} cores"
    return f"{state.num_processes} × {name}" if state.num_processes > 1 else name


def precision(training: SFTConfig, dtype: str) -> str:
    """Return the number formats of the run in words; where the device has no bfloat16 instructions, with that reason."""
    computed = "bfloat16" if training.bf16 else "float16" if training.fp16 else dtype
    why = bfloat16_missing(training.device.type)
    text = f"computes in {computed}, weights in {dtype}"
    return f"{text} ({why})" if why else text


def train() -> None:
    """Run `main`; the libraries' errors for a full disk or a missing kernel become one line."""
    warnings.filterwarnings("ignore", r"`torch\.distributed", FutureWarning)  # thousands from DeepSpeed's calls
    try:
        main()
    except ImportError as error:
        raise RecordError(" ".join(str(error).split())[:300]) from None
    except (RuntimeError, SafetensorError) as error:
        text = " ".join(str(error).split())
        if "closed by peer" in text or "reset by peer" in text:
            raise RecordError("another process of this run has ended; see its error line") from None
        if not any(sign in text for sign in FULL_DISK):
            raise
        raise RecordError(
            f"a checkpoint could not be written: {text[:200]}; earlier checkpoints are complete"
        ) from None


if __name__ == "__main__":
    run(train)
