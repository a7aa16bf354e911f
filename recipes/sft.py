"""Train one stage of a curriculum, or one round of introspection, with TRL's SFTTrainer (paper sections 3.2, 3.3, Appendix C).

    accelerate launch --config_file accelerate_configs/zero3.yaml \\
        recipes/sft.py --config recipes/runs/automedeval-13b/stage1.yaml
    python recipes/sft.py --config recipes/runs/automedeval-135m/stage1.yaml

One run is one stage. It writes its weights to OUTPUT_DIR, from which the next stage starts. All arguments are TRL's, so that
`trl sft --config` reads the same files. The same command again resumes from the last complete checkpoint.
"""

import warnings
from pathlib import Path

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

from automedeval.models.checkpoints import checkpoint_folder, fingerprint, read_history, read_record
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError, digest
from automedeval.records.command_line import run
from automedeval.records.hub_names import hub_commits
from automedeval.records.run_record import describe_run
from automedeval.training.completion_logits import read_trained_positions
from automedeval.training.run import Run, tell
from automedeval.training.stages import DECISIVE, check_start, read_rows, stage_of, tokenize, write_card
from automedeval.training.start import device_name, parse_run, precision, tell_of_locks

FULL_DISK = ("No space left", "File too large", "file write failed", "unexpected pos", "iostream error")


def main(script: ScriptArguments, training: SFTConfig, model: ModelConfig, mixture: DatasetMixtureConfig) -> None:
    """Check the rows and the start, train with TRL, and save the checkpoint that the next stage starts from."""
    # --- load the data
    state, output = PartialState(), Path(training.output_dir)
    parts = [(each.path, each.split) for each in mixture.datasets]
    dataset, splits, rows, statistics = read_rows(parts or [(script.dataset_name, script.dataset_train_split)])
    place = f"{dataset}, {'+'.join(splits)}"
    start, peft = checkpoint_folder(model.model_name_or_path), get_peft_config(model)
    history = read_history(start)
    check_start(model.model_name_or_path, history, dataset, splits, statistics)
    if training.chat_template_path == "none":  # takes back the path that a YAML names
        training.chat_template_path = None
    encoder = PromptEncoder.from_checkpoint(model.model_name_or_path, training.chat_template_path)
    encoded = tokenize(rows, encoder, training.max_length, place)
    if len(rows) < state.num_processes:
        raise RecordError(f"{place}: {len(rows)} rows for {state.num_processes} processes; start fewer")
    stage = stage_of(encoded, dataset, splits, statistics, training.num_train_epochs)

    # --- reserve the folder for this run
    identity = {name: getattr(training, name) for name in DECISIVE}
    identity |= {"dtype": model.dtype, "peft": peft and peft.to_dict(), "processes": state.num_processes}
    identity |= {name: True for name in ("load_in_8bit", "load_in_4bit") if getattr(model, name)}
    identity |= {"rows": digest(encoded), "start": fingerprint(start, [])}
    name = model.model_name_or_path
    before = read_record(start) or {"base": name, "base_commit": hub_commits().get(name)}
    this = Run(
        output,
        {
            "identity": identity,
            "start": name,
            **{key: before.get(key) for key in ("base", "base_commit")},
            "rubrics": sorted(set(rows["rubric"])) if "rubric" in rows.column_names else [],
            **describe_run(script, training, model, libraries=("trl", "peft", "deepspeed", "datasets")),
            "device": device_name(),
            "precision": precision(training, model.dtype),
        },
    )
    if this.finished:
        return
    update = training.per_device_train_batch_size * training.gradient_accumulation_steps * state.num_processes
    budget = round(stage.tokens * stage.epochs)
    tell(
        f"{place}: {stage.rows:,} rows, {stage.tokens:,} tokens, {stage.trained:,} of them trained on; "
        f"{stage.epochs:g} epochs = {budget:,} tokens, {update} rows an update"
    )
    tell(f"precision: {this.record['precision']}")

    # --- train
    trainer = SFTTrainer(
        model=str(start),
        args=training,
        train_dataset=Dataset.from_list(encoded),
        processing_class=encoder.tokenizer,
        peft_config=peft,
        quantization_config=get_quantization_config(model),
    )
    if state.device.type == "cpu":  # elsewhere TRL itself skips positions without a label
        network = trainer.model.get_base_model() if peft else trainer.model
        read_trained_positions(network, network.base_model)
    this.train(trainer)

    # --- save
    save(trainer, output, start if peft else None, model.dtype)
    if state.is_main_process:
        losses = [line for line in trainer.state.log_history if "loss" in line]
        write_card(output, this.record | {"seconds": this.seconds}, [*history, stage], losses)
        this.finish(history=[vars(each) for each in (*history, stage)])
    state.wait_for_everyone()
    tell(f"{output}: {this.seconds / 3600:.2f} hours, {budget / this.seconds:,.0f} tokens/s")
    trainer.accelerator.end_training()


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
        PeftModel.from_pretrained(model, output / "adapter").merge_and_unload().save_pretrained(output)
        trainer.processing_class.save_pretrained(output)
    trainer.accelerator.wait_for_everyone()


def start() -> None:
    """Parse the arguments and run `main`; the libraries' errors for a full disk or a missing kernel become one line."""
    warnings.filterwarnings("ignore", r"`torch\.distributed", FutureWarning)  # thousands from DeepSpeed's calls
    tell_of_locks()
    try:
        main(*parse_run(TrlParser((ScriptArguments, SFTConfig, ModelConfig, DatasetMixtureConfig))))
    except ImportError as error:
        raise RecordError(" ".join(str(error).split())[:300]) from None
    except (RuntimeError, SafetensorError) as error:
        text = " ".join(str(error).split())
        if "closed by peer" in text or "reset by peer" in text:
            raise RecordError("another process of this run has ended; see its error line") from None
        if any(sign in text for sign in FULL_DISK):
            fault = f"a checkpoint could not be written: {text[:200]}; earlier checkpoints are complete"
            raise RecordError(fault) from None
        raise


if __name__ == "__main__":
    run(start)
