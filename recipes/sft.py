"""Train one stage of a curriculum, or one round of introspection, with TRL's SFTTrainer (paper sections 3.2, 3.3, Appendix C).

    accelerate launch --config_file accelerate_configs/zero3.yaml \\
        recipes/sft.py --config recipes/runs/automedeval-13b/stage1.yaml
    python recipes/sft.py --config recipes/runs/automedeval-135m/stage1.yaml

One run is one stage. It writes its weights to OUTPUT_DIR, from which the next stage starts. All arguments are TRL's, so that
`trl sft --config` reads the same files. The same command again resumes from the last complete checkpoint.
"""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

from accelerate import PartialState
from trl import (
    ModelConfig,
    ScriptArguments,
    SFTConfig,
    SFTTrainer,
    TrlParser,
    get_peft_config,
    get_quantization_config,
)

from automedeval.models.checkpoints import (
    base_of,
    checkpoint_folder,
    read_history,
    read_record,
)
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError
from automedeval.records.command_line import run
from automedeval.records.hub_names import hub_commits
from automedeval.records.run_record import describe_run, run_date
from automedeval.study.training.run import Run, identity_of
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


def main(script_args, training_args, model_args) -> None:
    """Check the rows and the start, train with TRL, and save the checkpoint that the next stage starts from."""
    # --- 1. Load data ---------------------------------------------------------------------------------------------------
    state, name, output = (
        PartialState(),
        model_args.model_name_or_path,
        Path(training_args.output_dir),
    )
    start, peft_config = checkpoint_folder(name), get_peft_config(model_args)
    dataset, split = script_args.dataset_name, script_args.dataset_train_split
    rows, statistics = read_rows(dataset, split)
    place, history, splits = f"{dataset}, {split}", read_history(start), split.split("+")
    check_start(
        name, history, dataset, splits, statistics
    )  # a stage starts where the one before ended
    encoder = PromptEncoder.from_checkpoint(name, training_args.chat_template_path)
    encoder.date = run_date(output / "training" / "record.json")
    check_base(start, encoder, training_args.max_length, peft_config)
    check_attention(model_args.attn_implementation)
    encode = partial(
        tokenize,
        encoder=encoder,
        max_length=training_args.max_length,
        num_proc=training_args.dataset_num_proc,
    )
    rows, held_out = encode(rows, place), None
    if len(rows) < state.num_processes:
        raise RecordError(
            f"{place}: {len(rows)} rows for {state.num_processes} processes; start fewer"
        )
    if training_args.eval_strategy != "no":
        split = script_args.dataset_test_split
        held_out = encode(read_rows(dataset, split)[0], f"{dataset}, {split}")
    stage = stage_of(rows, dataset, splits, statistics, training_args)

    # --- 2. Reserve the folder for this run -----------------------------------------------------------------------------
    encoded = [rows["input_ids"][:], rows["completion_mask"][:]]
    before = read_record(start) or {"base": name, "base_commit": hub_commits().get(name)}
    this = Run(
        output,
        {
            "identity": identity_of(training_args, model_args, peft_config, encoded, start),
            "start": name,
            **{key: before.get(key) for key in ("base", "base_commit")},
            "rubrics": sorted(set(rows["rubric"])) if "rubric" in rows.column_names else [],
            **describe_run(
                script_args,
                training_args,
                model_args,
                libraries=("trl", "peft", "deepspeed", "datasets"),
            ),
            "date": encoder.date.isoformat(),
            "device": device_name(),
            "precision": precision(training_args, model_args.dtype, bool(peft_config)),
        },
    )
    if this.finished:
        return
    update = (
        training_args.per_device_train_batch_size
        * training_args.gradient_accumulation_steps
        * state.num_processes
    )
    steps, epochs = (
        training_args.max_steps,
        f"{stage.epochs:g} epochs = {stage.tokens * stage.epochs:,.0f} tokens",
    )
    state.print(
        f"{place}: {stage.rows:,} rows, {stage.tokens:,} tokens, {stage.trained:,} of them trained on; "
        f"{f'{steps:,} updates' if steps > 0 else epochs}, {update} rows an update"
    )
    state.print(f"precision: {this.record['precision']}", flush=True)

    # --- 3. Load the model and train ------------------------------------------------------------------------------------
    quantization = get_quantization_config(model_args)
    network = network_of(start, quantization, training_args)
    new = isinstance(network, str)  # else it has the adapter of the stage before
    trainer = SFTTrainer(
        model=network,
        args=training_args,
        train_dataset=rows,
        eval_dataset=held_out,
        processing_class=encoder.tokenizer,
        peft_config=peft_config if new else None,
        quantization_config=quantization if new else None,
    )
    this.train(trainer)
    stage = replace(stage, epochs=trainer.state.epoch) if steps > 0 else stage

    # --- 4. Save; an adapter lies beside its base's configuration, and stays one through the stages ---------------------
    trainer.save_model(str(output))
    if state.is_main_process:
        for file in base_of(start).glob("*config.json") if peft_config else ():
            if not (output / file.name).exists():
                shutil.copyfile(file, output / file.name)
        losses, evaluations = (
            [line for line in trainer.state.log_history if key in line]
            for key in ("loss", "eval_loss")
        )
        write_card(output, this.record | {"seconds": this.seconds}, [*history, stage], losses)
        this.finish(history=[vars(each) for each in (*history, stage)], evaluations=evaluations)
    state.wait_for_everyone()  # a process that ends while others work can take them along
    speed = stage.tokens * stage.epochs / this.seconds
    state.print(f"{output}: {this.seconds / 3600:.2f} hours, {speed:,.0f} tokens/s")
    trainer.end()


@launched()
def start() -> None:
    """Parse the arguments and run `main`."""
    main(*parse_run(TrlParser((ScriptArguments, SFTConfig, ModelConfig))))


if __name__ == "__main__":
    run(start)
