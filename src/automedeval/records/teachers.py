"""The models that a study asks over endpoints, by role: the `teachers.yaml` beside a study's YAMLs names them all.

In a YAML beside it, and in a flag beside `--config`, `teacher:ROLE` stands for the model's name: `judge: openai:teacher:strong`
takes the role's endpoint with it, `judges: introspection2,teacher:strong` the name alone.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from automedeval.records.errors import RecordError
from automedeval.records.types import without_none
from automedeval.records.yaml_file import YamlFile

ENDPOINT = ("base_url", "api_key_env")  # arguments of the programs that ask
_ROLE = re.compile(r"\bteacher:(\w+)")


def read_teachers(file: Path) -> dict[str, dict]:
    """Read a teachers.yaml: role → its `model`, what the `paper` used, and ENDPOINT. A role may stand for another one."""
    reader = YamlFile(str(file))
    entries = reader.read()
    if not isinstance(entries, dict):
        reader.fail("the file", "must be a mapping of roles")

    roles = {}
    for role, entry in entries.items():
        settings: Any = entries.get(entry) if isinstance(entry, str) else entry
        reader.only(settings, ("model", "paper", *ENDPOINT), f"{role}.")
        reader.take(settings, "model", str, inside=f"{role}.")
        roles[role] = settings
    return roles


def teacher_arguments(arguments: Mapping, place: str) -> dict:
    """Return the arguments that name roles with the models in their place, and the settings of endpoints that come with them.

    The arguments are those of the YAML at `place`, whose own settings stay. RecordError if there is no such role, or two
    models of one step are at different endpoints.
    """
    naming = {name: value for name, value in arguments.items() if _ROLE.search(str(value))}
    if not naming:
        return {}
    file = Path(place).with_name("teachers.yaml")
    teachers = read_teachers(file)
    changes: dict = {}
    for name, value in naming.items():
        roles = _ROLE.findall(str(value))
        for role in roles:
            if role not in teachers:
                there = ", ".join(teachers) or "no role"
                raise RecordError(f"{place}: {name}: teacher:{role}: {file} has {there}")
        changes[name] = _with_models(value, teachers)
        endpoint = ENDPOINT if str(value).startswith("openai:") else ()
        for key in set(endpoint) - arguments.keys():
            of_teacher = teachers[roles[0]].get(key)
            if changes.setdefault(key, of_teacher) != of_teacher:
                raise RecordError(
                    f"{place}: {name}: {value} has another {key} than the step's other model"
                )
    return without_none(changes)


def _with_models(value: Any, teachers: Mapping[str, Mapping]) -> Any:
    if isinstance(value, list):
        return [_with_models(entry, teachers) for entry in value]
    return _ROLE.sub(lambda match: str(teachers[match[1]]["model"]), str(value))
