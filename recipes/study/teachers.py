"""The models that a study asks over endpoints: those of its teachers.yaml or of --teacher, and whether they are served."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from study.files import Lists, UserFile
from study.steps import Step, StudyError

from automedeval.records import RecordError
from automedeval.records.teachers import TEACHERS, read_teachers, teacher_arguments, with_models

KEY = "OPENAI_API_KEY"


class Teachers:
    """The models of a run's folder by role.

    Args:
        folder: the folder with teachers.yaml; one that names no role needs none.
        instead: ROLE=MODEL or ROLE=MODEL@URL, in the place of the file's.

    Raises:
        StudyError: an entry of `instead` is malformed, or the file lacks its role.
    """

    def __init__(self, folder: Path, instead: Sequence[str] = ()):
        self.file, self.instead = folder / TEACHERS, dict(entry.partition("=")[::2] for entry in instead)
        for role, model in self.instead.items():
            if not model.strip():
                raise StudyError(f"--teacher {role}: must be ROLE=MODEL, or ROLE=MODEL@URL for an endpoint of your own")
        if self.instead:
            self.by_role  # noqa: B018  a role that the file lacks is reported before the first step

    @cached_property
    def by_role(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the settings of each role."""
        try:
            return read_teachers(self.file, self.instead)
        except RecordError as error:
            raise StudyError(str(error)) from None

    def arguments(self, arguments: Mapping[str, Any], file: Path) -> dict[str, Any]:
        """Return the arguments of a YAML that name roles, with the models in their place, and the endpoints."""
        try:
            return teacher_arguments(arguments, str(file), self.by_role if "teacher:" in str(arguments) else {})
        except RecordError as error:
            raise StudyError(str(error)) from None

    def page_studies(self, lists: Lists) -> tuple[Lists, dict[str, str]]:
        """Return the lists, and by path the studies of the physicians' page in the place of those with replaced models."""
        studies: dict[str, str] = {}

        def adapted(brought: UserFile) -> UserFile:
            words = brought.get.split()
            file = Path(words[words.index("--study") + 1]) if "--study" in words else None
            text = file.read_text(encoding="utf-8") if self.instead and file and file.is_file() else ""
            if file is None or "teacher:" not in text:
                return brought
            path = f"ratings/{self.file.parent.name}-{file.name}"
            studies[path] = with_models(text, self.by_role)
            return replace(brought, get=brought.get.replace(str(file), path))

        return lists._replace(brings={path: adapted(each) for path, each in lists.brings.items()}), studies

    def faults(self, steps: Sequence[Step]) -> list[str]:
        """Return the models that their endpoints do not serve, with step, file and option; print what each endpoint says.

        Endpoints are asked about the model alone: no text is sent, and nothing costs money. One without a key is not asked.
        """
        from openai import NotFoundError, OpenAIError  # slow to import, and a study of checkpoints alone does without

        from automedeval.models.base import ChatError
        from automedeval.models.completions import error_text
        from automedeval.models.endpoint import OpenAIChat

        errors, default = [], os.environ.get("OPENAI_BASE_URL", "OpenAI")
        places: dict[tuple[str, str | None, str | None], list[tuple[Step, str]]] = {}
        for step, argument, model in asked_models(steps):
            place = (model, step.arguments.get("base_url"), step.arguments.get("api_key_env"))
            places.setdefault(place, []).append((step, argument))
        for (model, url, key), askers in places.items():
            step, argument = askers[0]
            if absent := missing_keys([step]):
                print(f"{'no key':<10}  {model}: not checked, {min(absent)} is not set")
                continue
            try:
                chat = OpenAIChat(model, url, max_retries=1, timeout=20.0, api_key_env=key or KEY)
                if not chat.served:  # it is not in the endpoint's list; OpenAI's own is asked for the one model
                    chat.client.models.retrieve(model)
                print(f"{'served':<10}  {model} at {chat.client.base_url}")
            except (OpenAIError, ChatError) as error:
                problem = "does not exist" if isinstance(error, NotFoundError) else "could not be checked"
                files = ", ".join(dict.fromkeys(str(step.file) for step, _ in askers[1:]))
                role = next((role for role, each in self.by_role.items() if each["model"] == model), "ROLE")
                errors.append(
                    f"{step.file}: {argument}: {model} {problem} at {url or default}: {error_text(error)}"
                    f"{f' (asked by {files} too)' if files else ''}. Another: --teacher {role}=MODEL, or {self.file}"
                )
        return errors


def asked_models(steps: Sequence[Step]) -> Iterator[tuple[Step, str, str]]:
    """Yield (step, argument, model) for every model that is asked over an endpoint."""
    for step in steps:
        for argument in ("judge", "suggester", "reviewer"):
            kind, _, model = str(step.arguments.get(argument)).partition(":")
            if kind == "openai":
                yield step, argument, model


def keys(steps: Sequence[Step]) -> dict[str, Step]:
    """Return the environment variables that hold the keys of endpoints, each with the first step that needs it."""
    needed: dict[str, Step] = {}
    for step, _, _ in asked_models(steps):
        # A server of one's own may need no key.
        if "api_key_env" in step.arguments or "base_url" not in step.arguments:
            needed.setdefault(step.arguments.get("api_key_env", KEY), step)
    return needed


def missing_keys(steps: Sequence[Step]) -> dict[str, Step]:
    """Return the keys of endpoints that are not in the environment, each with a step that needs it."""
    served = KEY if os.environ.get("OPENAI_BASE_URL") else None  # a server of one's own may need no key
    return {name: step for name, step in keys(steps).items() if name != served and not os.environ.get(name)}
