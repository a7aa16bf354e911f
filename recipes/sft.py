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
from transformers import AutoModelForCausalLM
from transformers.integrations import unset_hf_deepspeed_config
from trl import (
    DatasetMixtureConfig,
    ModelConfig,
    ScriptArguments,
    SFTConfig,
    SFTTrainer,
    get_peft_config,
    get_quantization_config,
)

from automedeval.cli import describe_run, run
from automedeval.models.checkpoints import checkpoint_folder, read_history, read_record
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError
from automedeval.records.hub_names import hub_commits
from automedeval.training.arguments import describe_machine, identity_of, parse_training, tell_of_locks
from automedeval.training.completion_logits import read_trained_positions
from automedeval.training.run import TrainingRun, errors_in_a_line, tell
from automedeval.training.stages import check_start, finish_stage, read_rows, stage_of, tokenize


def main(script: ScriptArguments, training: SFTConfig, model: ModelConfig, mixture: DatasetMixtureConfig) -> None:
    """Check the rows and the start, train with TRL, and save the checkpoint that the next stage starts from."""
    processes, output = PartialState().num_processes, Path(training.output_dir)

    # --- load the data ------------------------------------------------------------------------------------------------

    parts = [(each.path, each.split) for each in mixture.datasets]
    dataset, splits, rows, statistics = read_rows(parts or [(script.dataset_name, script.dataset_train_split)])
    place = f"{dataset}, {'+'.join(splits)}"
    start = checkpoint_folder(model.model_name_or_path)
    history = read_history(start)
    check_start(model.model_name_or_path, history, dataset, splits, statistics)
    encoder = PromptEncoder.from_checkpoint(model.model_name_or_path, training.chat_template_path)
    encoded = tokenize(rows, encoder, training.max_length, place)
    if len(rows) < processes:
        raise RecordError(f"{place}: {len(rows)} rows for {processes} processes; start fewer")
    stage = stage_of(encoded, dataset, splits, statistics, training.num_train_epochs)

    # --- describe the run, which may be finished ----------------------------------------------------------------------

    base = read_record(start) or {
        "base": model.model_name_or_path,
        "base_commit": hub_commits().get(model.model_name_or_path),
    }
    record = {
        "identity": identity_of(training, model, encoded, start),
        "start": model.model_name_or_path,
        **{key: base.get(key) for key in ("base", "base_commit")},
        "rubrics": sorted(set(rows["rubric"])) if "rubric" in rows.column_names else [],
        **describe_run(script, training, model, libraries=("trl", "peft", "deepspeed", "datasets")),
        **describe_machine(training, model.dtype),
    }
    run = TrainingRun(output, record)
    if run.finished:
        return
    budget = round(stage.tokens * stage.epochs)
    tell(
        f"{place}: {stage.rows:,} rows, {stage.tokens:,} tokens, {stage.trained:,} of them trained on; "
        f"{stage.epochs:g} epochs = {budget:,} tokens, "
        f"{training.per_device_train_batch_size * training.gradient_accumulation_steps * processes} rows an update"
    )
    tell(f"precision: {record['precision']}")

    # --- load the model and train -------------------------------------------------------------------------------------

    peft = get_peft_config(model)
    trainer = SFTTrainer(
        model=str(start),
        args=training,
        train_dataset=Dataset.from_list(encoded),
        processing_class=encoder.tokenizer,
        peft_config=peft,
        quantization_config=get_quantization_config(model),
    )
    if training.device.type == "cpu":  # elsewhere TRL itself skips positions without a label
        network = trainer.model.get_base_model() if peft else trainer.model
        read_trained_positions(network, network.base_model)
    log = run.train(trainer)

    # --- save ---------------------------------------------------------------------------------------------------------

    save(trainer, output, start if peft else None, model.dtype)
    finish_stage(run, [*history, stage], [line for line in log if "loss" in line])
    tell(f"{output}: {run.seconds / 3600:.2f} hours, {budget / run.seconds:,.0f} tokens/s")
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
        merged = PeftModel.from_pretrained(model, output / "adapter").merge_and_unload()
        merged.save_pretrained(output)
        trainer.processing_class.save_pretrained(output)
    trainer.accelerator.wait_for_everyone()


def train() -> None:
    """Run `main` with the arguments of the YAML and the command line."""
    warnings.filterwarnings("ignore", r"`torch\.distributed", FutureWarning)  # thousands from DeepSpeed's calls
    with errors_in_a_line():
        tell_of_locks()
        main(*parse_training(ScriptArguments, SFTConfig, ModelConfig, DatasetMixtureConfig))


if __name__ == "__main__":
    run(train)
