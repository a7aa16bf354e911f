"""Train one stage of a curriculum, or a round of introspection, with TRL's SFTTrainer (sections 3.2, 3.3).

    accelerate launch --config_file accelerate_configs/zero3.yaml \\
        recipes/sft.py --config recipes/runs/automedeval-13b/sft.yaml
    python recipes/sft.py --config recipes/runs/automedeval-135m/sft.yaml

One run is one stage. It writes its weights to OUTPUT_DIR, from which the next stage starts. The
same command again resumes from the last complete checkpoint. All arguments are TRL's, so that
`trl sft --config` reads the same files; docs/train.md has those that are refused. What matters first:

  --config FILE                    a YAML of arguments; those of the command line count more
  --model_name_or_path MODEL       the base, or the checkpoint of the stage before
  --dataset_name DATA              a folder of build_dataset.py, or ORG/NAME of the Hub
  --dataset_train_split SPLIT      stage1, train, or a part, as stage1[:50%]+stage2[:50%]
  --output_dir FOLDER              weights, card and records of this run alone
  --num_train_epochs N             of all rows
  --learning_rate RATE             the highest; lr_scheduler_type and warmup_steps shape it
  --gradient_accumulation_steps N  × per_device_train_batch_size × processes: rows an update
  --max_length N                   tokens; a longer row is refused, not cut
  --use_peft true                  trains an adapter, by lora_r, lora_alpha, lora_target_modules

--help_all explains all arguments.
"""

import os
import sys

if __name__ == "__main__":  # before anything slow is imported
    if {"-h", "--help"} & {*sys.argv}:
        print(__doc__)
        sys.exit()
    # TRL tells Hugging Face which trainer starts, on what model type and GPU; "0" lets it.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    if "LOCAL_RANK" not in os.environ:
        # One process is one GPU: TRL would spread the model over all that it sees.
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
        os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[0]

import shutil
from functools import partial
from pathlib import Path

from accelerate import PartialState
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser, get_peft_config

from automedeval.models.checkpoints import base_of, checkpoint_folder, read_history, read_record
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError, foreign_errors_at, read_json
from automedeval.records.command_line import run
from automedeval.records.hub_names import hub_commits
from automedeval.records.journal import write_json
from automedeval.records.run_record import describe_run, run_date
from automedeval.records.templates import write_readme
from automedeval.study.training import stages, start
from automedeval.study.training.run import Run, first_for_all, identity_of, launcher_of

LIBRARIES = ("trl", "peft", "deepspeed", "datasets")


def prepare(script_args, training_args, model_args, encoder):
    """Read, check and tokenize the rows, check the start, describe the run: once, for all.

    Return the rows, those held out, and the record that the run begins with.
    """
    name, peft_config = model_args.model_name_or_path, get_peft_config(model_args)
    dataset, split = script_args.dataset_name, script_args.dataset_train_split
    folder, splits, max_length = checkpoint_folder(name), split.split("+"), training_args.max_length
    encode = partial(
        stages.tokenize,
        encoder=encoder,
        max_length=max_length,
        num_proc=training_args.dataset_num_proc,
    )
    encoder.date = run_date(Path(training_args.output_dir, "training", "record.json"))
    rows, statistics = stages.read_rows(dataset, split)
    history = read_history(folder)
    stages.check_start(name, history, dataset, splits, statistics)
    stages.check_base(folder, encoder, max_length, peft_config)
    start.check_attention(model_args.attn_implementation)
    place, held_out = f"{dataset}, {split}", None
    rows = encode(rows, place)
    if training_args.eval_strategy != "no":
        other = script_args.dataset_test_split
        held_out = encode(stages.read_rows(dataset, other)[0], f"{dataset}, {other}")
    processes = training_args.world_size
    if len(rows) < processes:
        raise RecordError(f"{place}: {len(rows)} rows for {processes} processes; start fewer")

    stage = stages.stage_of(rows, dataset, splits, statistics, training_args)
    before = read_record(folder) or {"base": name, "base_commit": hub_commits().get(name)}
    record = {
        "identity": identity_of(training_args, model_args, peft_config, rows, folder),
        "start": name,
        "base": before["base"],
        "base_commit": before.get("base_commit"),
        "rubrics": sorted(set(rows["rubric"])) if "rubric" in rows.column_names else [],
        **describe_run(script_args, training_args, model_args, libraries=LIBRARIES),
        "date": encoder.date.isoformat(),
        "device": start.device_name(),
        "history": [vars(stage) for stage in (*history, stage)],
    }
    update = training_args.train_batch_size * training_args.gradient_accumulation_steps * processes
    print(f"{place}: {stage.rows:,} rows, {stage.tokens:,} tokens, {stage.trained:,} trained on")
    print(f"{update} rows an update", flush=True)
    # AdamW at 2e-5 changes a usual bfloat16 weight by less than half of its last digit, which rounding takes back. An adapter
    # is in float32, and so are the copies that ZeRO and FSDP keep.
    if model_args.dtype == "bfloat16" and not (peft_config or launcher_of(training_args)):
        print("weights in bfloat16 lose small updates: --dtype float32", flush=True)
    return rows, held_out, record


def main(script_args, training_args, model_args) -> None:
    """Check rows and start, train with TRL, and save what the next stage starts from."""
    name, output = model_args.model_name_or_path, Path(training_args.output_dir)

    # --- 1. Load data, and reserve the folder for this run ------------------------------------
    folder = checkpoint_folder(name)
    encoder = PromptEncoder.from_checkpoint(name, training_args.chat_template_path)
    given = (script_args, training_args, model_args, encoder)
    rows, held_out, record = first_for_all(lambda: prepare(*given))
    training_run = Run(output, record)
    if training_run.finished:
        return

    # --- 2. Load the model and train ----------------------------------------------------------
    with foreign_errors_at("the trainer cannot start", ImportError, ValueError):
        network = start.network_of(folder, training_args)
        trainer = SFTTrainer(
            model=network,
            args=training_args,
            train_dataset=rows,
            eval_dataset=held_out,
            processing_class=encoder.tokenizer,
            # A network has the adapter of the stage before; a path is that of whole weights.
            peft_config=get_peft_config(model_args) if isinstance(network, str) else None,
        )
    training_run.train(trainer)
    training_run.record["history"][-1]["epochs"] = trainer.state.epoch

    # --- 3. Save ------------------------------------------------------------------------------
    trainer.save_model(str(output))
    state = PartialState()
    if state.is_main_process:
        complete_adapter(output, base_of(folder))
        write_readme(
            output, "automedeval.study.training", "checkpoint_card.md.jinja", training_run.record
        )
        training_run.finish()
    state.wait_for_everyone()  # a process that ends while others work can take them along
    trainer.end()


def complete_adapter(output: Path, base: Path) -> None:
    """Copy the configuration of its base beside an adapter, and sort its layers: peft writes a set; whole weights stay."""
    file = output / "adapter_config.json"
    if not file.exists():
        return
    for config in base.glob("*config.json"):
        if not (output / config.name).exists():
            shutil.copyfile(config, output / config.name)
    settings = read_json(file)
    if isinstance(settings["target_modules"], list):
        settings["target_modules"].sort()
        write_json(file, settings)


def launch() -> None:
    """Parse the arguments, run `main`, and end."""
    main(*start.parse_run(TrlParser((ScriptArguments, SFTConfig, ModelConfig))))
    start.end()


if __name__ == "__main__":
    run(launch)
