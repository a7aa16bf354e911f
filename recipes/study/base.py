"""Another base model for a study: what the user brings then, and the check of the model from which training starts."""

import json
from collections.abc import Sequence
from pathlib import Path

from study.files import Lists, UserFile
from study.steps import Step


def has_template(model: str) -> bool:
    """Return whether a model has a chat template of its own; one that is not there yet is taken to have one."""
    place, settings = Path(model), Path(model, "tokenizer_config.json")
    if not place.is_dir() or (place / "chat_template.jinja").is_file():
        return True
    return settings.is_file() and bool(json.loads(settings.read_text(encoding="utf-8")).get("chat_template"))


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
