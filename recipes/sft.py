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

from automedeval.models.checkpoints import (
    base_of,
    checkpoint_folder,
    read_history,
    read_record,
)
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError, foreign_errors_at, read_json
from automedeval.records.command_line import run
from automedeval.records.hub_names import hub_commits
from automedeval.records.journal import write_json
from automedeval.records.run_record import describe_run, run_date
from automedeval.study.training.run import (
    Run,
    first_for_all,
    identity_of,
    launcher_of,
    plain,
)
from automedeval.study.training.stages import (
    check_base,
    check_start,
    read_rows,
    stage_of,
    tokenize,
    write_card,
)
from automedeval.study.training.start import (
    check_attention,
    device_name,
    launched,
    network_of,
    parse_run,
    precision,
)


def check_saves(training_args) -> None:
    """Raise RecordError if accelerate's file would save weights in parts, or, as FSDP2 does by default, none at all."""
    launcher = launcher_of(training_args)
    if launcher == "ZeRO-3":
        zero = training_args.deepspeed_plugin.deepspeed_config["zero_optimization"]
        if not zero.get("stage3_gather_16bit_weights_on_model_save"):
            raise RecordError(
                "zero3_save_16bit_model must be true: a stage starts from whole weights"
            )
    if launcher == "FSDP" and os.environ.get("FSDP_STATE_DICT_TYPE") != "FULL_STATE_DICT":
        raise RecordError("fsdp_state_dict_type must be FULL_STATE_DICT: else no weights are saved")


def sort_layers(file: Path) -> None:
    """Sort the layers in an adapter's configuration: peft writes a set, and a checkpoint is known by its files."""
    if file.exists():
        settings = read_json(file, others=True)
        if isinstance(settings["target_modules"], list):
            settings["target_modules"].sort()
            write_json(file, settings)


def prepare(script_args, training_args, model_args, start, peft_config, encoder):
    """Read, check and tokenize the rows, check the start, describe the run: once, for all.

    Return the rows, those held out, and the record that the run begins with.
    """
    name, processes = model_args.model_name_or_path, training_args.world_size
    dataset, split = script_args.dataset_name, script_args.dataset_train_split
    rows, statistics = read_rows(dataset, split)
    place, history, splits = f"{dataset}, {split}", read_history(start), split.split("+")
    check_start(
        name, history, dataset, splits, statistics
    )  # a stage starts where the one before ended
    check_base(start, encoder, training_args.max_length, peft_config)
    check_attention(model_args.attn_implementation)
    encode = partial(
        tokenize,
        encoder=encoder,
        max_length=training_args.max_length,
        num_proc=training_args.dataset_num_proc,
    )
    rows, held_out = encode(rows, place), None
    if len(rows) < processes:
        raise RecordError(f"{place}: {len(rows)} rows for {processes} processes; start fewer")
    if training_args.eval_strategy != "no":
        split = script_args.dataset_test_split
        held_out = encode(read_rows(dataset, split)[0], f"{dataset}, {split}")
    stage = stage_of(rows, dataset, splits, statistics, training_args)
    before = read_record(start) or {"base": name, "base_commit": hub_commits().get(name)}
    formats = precision(training_args, model_args.dtype, bool(peft_config))
    record = {
        "identity": identity_of(training_args, model_args, peft_config, rows, start),
        "start": name,
        "base": before["base"],
        "base_commit": before.get("base_commit"),
        "rubrics": sorted(set(rows["rubric"])) if "rubric" in rows.column_names else [],
        **describe_run(
            script_args,
            training_args,
            model_args,
            libraries=("trl", "peft", "deepspeed", "datasets"),
        ),
        "date": encoder.date.isoformat(),
        "device": device_name(),
        "precision": formats,
        "history": [vars(stage) for stage in (*history, stage)],
    }
    update = training_args.train_batch_size * training_args.gradient_accumulation_steps
    print(
        f"{place}: {stage.rows:,} rows, {stage.tokens:,} tokens, {stage.trained:,} of them trained on; "
        f"{update * processes} rows an update\nprecision: {formats}",
        flush=True,
    )
    return rows, held_out, plain(record)


def main(script_args, training_args, model_args) -> None:
    """Check rows and start, train with TRL, and save what the next stage starts from."""
    state, output = PartialState(), Path(training_args.output_dir)
    name, peft_config = model_args.model_name_or_path, get_peft_config(model_args)
    check_saves(training_args)

    # --- 1. Load data, and reserve the folder for this run ------------------------------------
    start = checkpoint_folder(name)
    encoder = PromptEncoder.from_checkpoint(name, training_args.chat_template_path)
    encoder.date = run_date(output / "training" / "record.json")
    rows, held_out, record = first_for_all(
        partial(prepare, script_args, training_args, model_args, start, peft_config, encoder)
    )
    this = Run(output, record)
    if this.finished:
        return

    # --- 2. Load the model and train ----------------------------------------------------------
    with foreign_errors_at("the trainer cannot start", ImportError, ValueError):
        network = network_of(start, training_args)
        trainer = SFTTrainer(
            model=network,
            args=training_args,
            train_dataset=rows,
            eval_dataset=held_out,
            processing_class=encoder.tokenizer,
            # A network has the adapter of the stage before; a path is that of whole weights.
            peft_config=peft_config if isinstance(network, str) else None,
        )
    this.train(trainer)
    this.record["history"][-1]["epochs"] = trainer.state.epoch

    # --- 3. Save; an adapter lies beside its base's configuration -----------------------------
    trainer.save_model(str(output))
    if state.is_main_process:
        for file in base_of(start).glob("*config.json") if peft_config else ():
            if not (output / file.name).exists():
                shutil.copyfile(file, output / file.name)
        sort_layers(output / "adapter_config.json")
        write_card(output, this.record | {"seconds": this.seconds})
        this.finish()
    state.wait_for_everyone()  # a process that ends while others work can take them along
    state.print(f"{output}: {this.seconds / 3600:.2f} hours")
    trainer.end()


@launched()
def start() -> None:
    """Parse the arguments and run `main`."""
    main(*parse_run(TrlParser((ScriptArguments, SFTConfig, ModelConfig))))


if __name__ == "__main__":
    run(start)
