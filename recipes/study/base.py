"""Another base model for a study: what the user brings then, and the check of the model from which training starts."""

from collections.abc import Sequence
from pathlib import Path

from study.files import Lists, UserFile
from study.steps import Step


def with_base(lists: Lists, model: str, replaced: str) -> Lists:
    """Return the study's lists with a model in the place of its own base, `replaced`."""
    brought = UserFile(
        model,
        "the base model, any chat model (docs/train.md, Base models)",
        f"hf download ORG/{Path(model).name} --local-dir {model}",
        "chat_llama",
    )
    kept = {path: user_file for path, user_file in lists.brings.items() if path != replaced}
    return lists._replace(brings={model: brought} | kept)


def check_command(steps: Sequence[Step], python: str) -> list[str] | None:
    """Return the command that checks the model from which the first training starts; None for a study without training."""
    first = next((step.arguments for step in steps if step.recipe == "sft"), None)
    if first is None:
        return None
    command = [python, "recipes/check_base.py", "--model", first["model_name_or_path"]]
    for name in ("chat_template_path", "max_length"):
        command += [f"--{name}", str(first[name])] if first.get(name) else []
    return command
