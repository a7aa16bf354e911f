"""Another base model for a study: its steps with this model in the base's place, and names of their own for what comes of it.

What does not depend on the base is shared with the study itself: questions, responses, the teachers' verdicts, ratings, and the
folder with the verdicts on the test cases, where judges have other names.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from study.files import TEMPLATES, Lists, UserFile
from study.steps import NAMES, WRITES, Step, changed, comma_list, moved, read_judges, read_yaml

STARTS = {"judge", "tokenizer", "model_name_or_path"}  # arguments that name the base
DEPENDS = {"sft", "build_dataset", "introspect", "report", "audit", "calibrate", "compare"}  # recipes


@dataclass(frozen=True)
class Base:
    """A model in the place of a study's base.

    Args:
        folder: the run's folder.
        model: the folder of the model.
    """

    folder: Path
    model: str

    @property
    def suffix(self) -> str:
        """Return what the names of this base's own files and judges end with."""
        return f"-{Path(self.model).name}"

    @cached_property
    def _replaced(self) -> str:
        """Return the base of the study's own YAMLs."""
        return read_yaml(self.folder / "judge.yaml")["judge"]

    @cached_property
    def _others(self) -> set[str]:
        """Return the other judges, which have nothing of the base."""
        return {str(each["judge"]) for each in read_judges(self.folder).each.values()}

    @cached_property
    def _own(self) -> set[str]:
        """Return the outputs of the study that depend on its base."""
        shared, found = read_yaml(self.folder / "judge.yaml")["output"], set()
        for file in self.folder.glob("*.yaml"):
            first = file.read_text(encoding="utf-8").partition("\n")[0].split()
            recipe = next((Path(word).stem for word in first if word.startswith("recipes/")), None)
            if recipe in DEPENDS or recipe == "judge":
                found.add(read_yaml(file)[WRITES[recipe][0]])
        return found - {shared}

    @cached_property
    def has_template(self) -> bool:
        """Return whether the model has a chat template of its own; one that is not there yet is taken to have one."""
        place, settings = Path(self.model), Path(self.model, "tokenizer_config.json")
        if not place.is_dir() or (place / "chat_template.jinja").is_file():
            return True
        return settings.is_file() and bool(json.loads(settings.read_text(encoding="utf-8")).get("chat_template"))

    def adapt(self, step: Step) -> Step:
        """Return a step with this base, its own chat template if it has one, and its own names."""
        if step.arguments.get("judge") in self._others:
            return step
        changes = {}
        for name, value in step.arguments.items():
            if name in TEMPLATES and self.has_template:
                changes[name] = "none"
            elif name == "judge_name":
                changes[name] = self._judge(value)
            elif name in NAMES and value:
                names = [self._judge(each) for each in comma_list(value)]
                changes[name] = value if names == comma_list(value) else names
            else:
                changes[name] = moved(value, partial(self._path, name))
        return changed(step, changes)

    def _judge(self, name: str) -> str:
        """Return the name of a judge: a trained one, which is called like its YAML, gets the suffix before its run."""
        if not (self.folder / f"{name.partition('-')[0]}.yaml").is_file():
            return name
        name, run = re.fullmatch(r"(.*?)(-run\d+)?", name).groups(default="")
        return f"{name}{self.suffix}{run}"

    def _path(self, argument: str, path: str) -> str:
        """Return a path of this base's own."""
        if argument in STARTS and path in (self._replaced, Path(self._replaced).name):
            return self.model if path == self._replaced else Path(self.model).name
        own = next((own for own in self._own if path == own or path.startswith(f"{own}/")), None)
        return path if own is None else own + self.suffix + path.removeprefix(own)

    def lists(self, lists: Lists) -> Lists:
        """Return the study's lists with this base in the place of its own."""
        brought = UserFile(
            self.model,
            "the base model, any chat model (docs/train.md, Base models)",
            f"hf download ORG/{Path(self.model).name} --local-dir {self.model}",
            "chat_llama",
        )
        kept = {path: each for path, each in lists.brings.items() if path != self._replaced}
        # The machine of the sizes is that of the study's own base.
        sizes = {name: size for name, size in lists.sizes.items() if name != "machine"}
        return lists._replace(brings={self.model: brought} | kept, sizes=sizes)


def check_command(steps: Sequence[Step], python: str) -> list[str] | None:
    """Return the command that checks the model from which the first training starts; None for a study without training."""
    first = next((step.arguments for step in steps if step.recipe.endswith("sft.py")), None)
    if first is None:
        return None
    given = {name: first[name] for name in ("chat_template_path", "max_length") if first.get(name)}
    given = {"model": first["model_name_or_path"]} | given
    return [
        python,
        "recipes/check_base.py",
        *(word for name, value in given.items() for word in (f"--{name}", str(value))),
    ]
