"""Train a model that answers patients with TRL's GRPOTrainer, with a judge's scores as the reward.

    python recipes/grpo.py --config recipes/runs/grpo-135m/grpo.yaml
    accelerate launch --config_file accelerate_configs/zero3.yaml recipes/grpo.py --config recipes/runs/grpo-135m/grpo.yaml

--reward names the YAML file of the judge (`automedeval.rewards`). Writes the weights to OUTPUT_DIR; the same command again
resumes from the last complete checkpoint. `trl grpo --reward_funcs automedeval.rewards.medical_judge` trains the same way.
"""

from dataclasses import dataclass, field, fields
from pathlib import Path

from datasets import Dataset
from transformers import TrainingArguments
from trl import GRPOConfig, GRPOTrainer, ModelConfig, get_peft_config

from automedeval.cli import describe_run, run
from automedeval.models.checkpoints import checkpoint_folder
from automedeval.records import Case, RecordError, read_cases
from automedeval.rewards import load_reward
from automedeval.training.arguments import DECISIVE, identity_of, parse_training, tell_of_locks
from automedeval.training.run import TrainingRun, errors_in_a_line, tell


@dataclass
class CasesArguments:
    """What is asked, and who judges the answers."""

    cases: str = field(metadata={"help": "cases whose questions the model answers; their responses are not read"})
    reward: str | None = field(default=None, metadata={"help": "YAML file of the judge; default: the small judge"})


def main(args: CasesArguments, training: GRPOConfig, model: ModelConfig) -> None:
    """Read the questions, load the judge, train, and save the model."""
    output, start = Path(training.output_dir), checkpoint_folder(model.model_name_or_path)
    # Of a blank response the question counts too.
    rows = [row_of(case) for case in read_cases(args.cases, blank="lowest")]
    if not rows:
        raise RecordError(f"{args.cases}: no case")
    reward = load_reward(args.reward)
    names = {each.name for each in fields(GRPOConfig)} - {each.name for each in fields(TrainingArguments)}
    identity = identity_of(training, model, rows, start, sorted(names | set(DECISIVE)))
    record = {
        "identity": {**identity, "judge": reward.judge.fingerprint},
        "start": model.model_name_or_path,
        **describe_run(args, training, model, libraries=("trl", "peft", "deepspeed", "datasets")),
    }
    run = TrainingRun(output, record)
    if run.finished:
        return
    tell(f"{args.cases}: {len(rows):,} questions; reward by {reward.judge.name}")
    trainer = GRPOTrainer(
        model=str(start),
        reward_funcs=reward,
        args=training,
        train_dataset=Dataset.from_list(rows),
        peft_config=get_peft_config(model),
    )
    log = run.train(trainer)
    trainer.save_model(str(output))
    run.finish(rewards=[line for line in log if "reward" in line])
    tell(f"{output}: {trainer.state.global_step:,} updates, {run.seconds / 60:.1f} minutes")
    trainer.accelerator.end_training()


def row_of(case: Case) -> dict[str, object]:
    """Return what TRL trains on: the prompt as a conversation, and the columns that the reward reads."""
    question = case.question
    prompt = [{"role": "user", "content": question}] if isinstance(question, str) else question
    return {"prompt": prompt, "reference": case.reference}


def train() -> None:
    """Run `main` with the arguments of the YAML and the command line."""
    with errors_in_a_line():
        tell_of_locks()
        main(*parse_training(CasesArguments, GRPOConfig, ModelConfig))


if __name__ == "__main__":
    run(train)
