"""Ask endpoints whether they serve a study's models, before anything is paid for.

    python recipes/check_teachers.py --teachers recipes/runs/automedeval-13b/teachers.yaml

Prints one line for each model of the file; exit status 1 if one is not served, or its key is not set. Endpoints are asked about
the model alone: no text is sent, and nothing costs money.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import NotFoundError, OpenAIError

from automedeval.models.completions import error_text
from automedeval.models.endpoint import OpenAIChat
from automedeval.records import RecordError, option
from automedeval.records.command_line import parse, run
from automedeval.records.errors import ChatError
from automedeval.records.teachers import read_teachers
from automedeval.records.text import shown_address

KEY = "OPENAI_API_KEY"


@dataclass
class CheckTeachersArguments:
    """The file with the models."""

    teachers: str = option("a teachers.yaml: the models of a study by their roles")


def main() -> None:
    """Ask for every model once, and list those that a study would not reach."""
    (args,) = parse((CheckTeachersArguments,), __doc__)
    roles: dict[
        tuple[Any, ...], tuple[str, dict[str, Any]]
    ] = {}  # one model may stand in several roles
    for role, settings in read_teachers(Path(args.teachers)).items():
        place = (settings["model"], settings.get("base_url"), settings.get("api_key_env"))
        roles.setdefault(place, (role, settings))
    faults = [fault for role, settings in roles.values() if (fault := fault_of(role, settings))]
    for fault in faults:
        print(f"- {fault}")
    if faults:
        raise RecordError(
            f"{args.teachers}: {len(faults)} of {len(roles)} models cannot be asked: {faults[0]}"
        )


def fault_of(role: str, settings: Mapping[str, Any]) -> str | None:
    """Return why a model cannot be asked; None, and a line on the screen, if its endpoint serves it."""
    model, url, key = settings["model"], settings.get("base_url"), settings.get("api_key_env")
    own_server = url or os.environ.get("OPENAI_BASE_URL")  # may need no key
    if (key or not own_server) and not os.environ.get(key or KEY):
        return f"{role}: {key or KEY} is not set: the key with which {model} is asked"
    try:
        chat = OpenAIChat(model, own_server, max_retries=1, timeout=20.0, api_key_env=key or KEY)
        if (
            not chat.served
        ):  # it is not in the endpoint's list; OpenAI's own is asked for the one model
            chat.client.models.retrieve(model)
    except (OpenAIError, ChatError) as error:
        problem = "does not exist" if isinstance(error, NotFoundError) else "could not be checked"
        place = shown_address(own_server or "OpenAI")
        return f"{role}: {model} {problem} at {place}: {error_text(error)}"
    print(f"{role}: {model} is served at {chat.address}")
    return None


if __name__ == "__main__":
    run(main)
