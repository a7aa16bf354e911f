"""A study whose study.yaml lists its steps: YAMLs of another run folder, made smaller, with all that they write in one place.

of: recipes/runs/NAME             the folder of the YAMLs
place: FOLDER                     what the steps write is written below it, so that the other study's files stay
steps:
  - {run: YAML, about: WHAT AND WHY, seconds: N, with: {ARGUMENT: VALUE}}
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from study.files import output_of
from study.steps import Adapt, Step, StudyError


class Listed:
    """The steps that a study.yaml lists.

    Args:
        content: the keys of, place and steps.
        adapts: change every step, one after the other.
    """

    def __init__(self, content: Mapping[str, Any], adapts: Sequence[Adapt] = ()):
        self._of, self._place, self.left_out = Path(content["of"]), content["place"], []
        steps = [self._step(given) for given in content["steps"]]
        outputs = {str(step.arguments[argument]) for step in steps if (argument := output_of(step)[0])}
        self.steps = [self._moved(step, outputs) for step in steps]
        for adapt in adapts:
            self.steps = [adapt(step) for step in self.steps]

    def _step(self, given: Mapping[str, Any]) -> Step:
        needed, keys = {"run", "about"}, set(given) if isinstance(given, dict) else set()
        if needed - keys or keys - needed - {"seconds", "with"}:
            raise StudyError(
                f"study.yaml: steps: each has the keys run and about, and may have seconds and with: {given}"
            )
        file = self._of / f"{given['run']}.yaml"
        if not file.is_file():
            raise StudyError(f"study.yaml: steps: there is no {file}")
        return Step(file, given["about"], given.get("with", {}), seconds=given.get("seconds"))

    def _moved(self, step: Step, outputs: set[str]) -> Step:
        """Return a step that looks below `place` for what these steps write, and writes there."""

        def moved(value: Any) -> Any:
            if isinstance(value, list):
                return [moved(each) for each in value]
            if not isinstance(value, str):
                return value
            at = max(value.rfind(":"), value.rfind("=")) + 1  # KIND:PATH, NAME=PATH
            path = Path(value[at:])
            ours = any(str(each) in outputs for each in (path, *path.parents))
            return f"{value[:at]}{self._place}/{path}" if ours else value

        changes = {name: moved(value) for name, value in step.arguments.items()}
        changes = {name: value for name, value in changes.items() if value != step.arguments[name]}
        return replace(step, changes={**step.changes, **changes})
