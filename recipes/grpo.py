"""Train a model that answers patients with TRL's GRPOTrainer, with a judge's scores as the reward.

    python recipes/grpo.py --config recipes/runs/grpo-135m/grpo.yaml
    accelerate launch --config_file accelerate_configs/zero3.yaml recipes/grpo.py --config recipes/runs/grpo-135m/grpo.yaml

--reward names the YAML file of the judge (`automedeval.harness.rewards`). Writes the weights to OUTPUT_DIR; the same command
again resumes from the last complete checkpoint. `trl grpo --reward_funcs automedeval.harness.rewards.medical_judge` trains the
same way.
"""

from dataclasses import dataclass, fields
from pathlib import Path

from accelerate import PartialState
from datasets import Dataset
from transformers import TrainingArguments
from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser, get_peft_config

from automedeval.harness.rewards import load_reward
from automedeval.models.checkpoints import checkpoint_folder
from automedeval.records import Case, RecordError, option, read_cases
from automedeval.records.command_line import run
from automedeval.records.run_record import describe_run
from automedeval.training.run import DECISIVE, Run, identity_of, tell
from automedeval.training.start import launched, parse_run


@dataclass
class CasesArguments:
    """What is asked, and who judges the answers."""

    cases: str = option("cases whose questions the model answers; their responses are not read")
    reward: str | None = option("YAML file of the judge; default: the small judge", None)


@launched()
def main() -> None:
    """Read the questions, load the judge, train, and save the model."""
    args, training, model = parse_run(TrlParser((CasesArguments, GRPOConfig, ModelConfig)))
    state, output = PartialState(), Path(training.output_dir)
    start = checkpoint_folder(model.model_name_or_path)
    # Of a blank response the question counts too.
    rows = [row_of(case) for case in read_cases(args.cases, blank="lowest")]
    if not rows:
        raise RecordError(f"{args.cases}: no case")
    reward = load_reward(args.reward)
    names = {each.name for each in fields(GRPOConfig)} - {each.name for each in fields(TrainingArguments)}
    peft = get_peft_config(model)
    identity = identity_of(training, model, peft, rows, start, sorted(names | set(DECISIVE)))
    identity |= {"judge": reward.judge.fingerprint}
    about = describe_run(args, training, model, libraries=("trl", "peft", "deepspeed", "datasets"))
    this = Run(output, {"identity": identity, "start": model.model_name_or_path, **about})
    if this.finished:
        return
    tell(f"{args.cases}: {len(rows):,} questions; reward by {reward.judge.name}")
    trainer = GRPOTrainer(
        model=str(start), reward_funcs=reward, args=training, train_dataset=Dataset.from_list(rows), peft_config=peft
    )
    this.train(trainer)
    trainer.save_model(str(output))
    if state.is_main_process:
        this.finish(rewards=[line for line in trainer.state.log_history if "reward" in line])
    state.wait_for_everyone()
    tell(f"{output}: {trainer.state.global_step:,} updates, {this.seconds / 60:.1f} minutes")
    trainer.end()


def row_of(case: Case) -> dict[str, object]:
    """Return what TRL trains on: the prompt as a conversation, and the columns that the reward reads."""
    question = case.question
    prompt = [{"role": "user", "content": question}] if isinstance(question, str) else question
    return {"prompt": prompt, "reference": case.reference}


if __name__ == "__main__":
    run(main)
