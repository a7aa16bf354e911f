"""Check that a base model has all that a study needs, before anything is paid for or trained.

    python recipes/check_base.py --model models/SmolLM2-135M-Instruct
    python recipes/check_base.py --model models/MedLLaMA-13B \\
        --chat_template_path src/automedeval/models/templates/chat_template.jinja

Prints one line for each thing that is missing; exit status 1 if there is one. The list is in the README of this folder. No
weights are read, only their names and shapes, so that it takes seconds for a model of any size.
"""

from dataclasses import dataclass

from automedeval.records import RecordError, check_least, option
from automedeval.records.command_line import parse, run
from automedeval.training.base_model import base_faults


@dataclass
class CheckBaseArguments:
    """The base model, and what the study asks of it."""

    model: str = option("checkpoint to be trained: a folder, or ORG/NAME or ORG/NAME@REVISION")
    chat_template_path: str | None = option("Jinja file with a chat template, for a base without one", None)
    max_length: int = option("longest training row, in tokens", 2048)

    def __post_init__(self) -> None:
        check_least(self, 1, "max_length")


def main() -> None:
    """Check the base, and list what it lacks."""
    (args,) = parse((CheckBaseArguments,), __doc__)
    faults = base_faults(args.model, args.chat_template_path, args.max_length)
    for fault in faults:
        print(f"- {fault}")
    if faults:
        raise RecordError(f"{args.model}: {len(faults)} of what a base needs is missing or wrong: {faults[0]}")
    print(f"{args.model}: has all that a base needs")


if __name__ == "__main__":
    run(main)
