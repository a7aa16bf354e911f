"""The names and the arguments that choose a model: a checkpoint on this machine, an endpoint, or an encoder."""

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import Any

from automedeval.models.checkpoints import (
    DECISION,
    checkpoint_folder,
    find_model,
    loading,
    user_models,
)
from automedeval.records import JsonObject, RecordError, check_least, option
from automedeval.records.processes import is_first
from automedeval.records.types import as_list

ENCODER = "models/all-MiniLM-L6-v2"  # where `make demo` puts it
ENCODER_ON_HUB = "sentence-transformers/all-MiniLM-L6-v2"
PREFIXES = ("openai", "decision", "likelihood", "baseline", "small", "recording")


def parse_model(spec: str) -> tuple[str, str]:
    """Split a model's or judge's name into kind and rest: "openai:gpt" is ("openai", "gpt"), "x" is ("checkpoint", "x")."""
    kind, colon, name = spec.partition(":")
    if spec == "small":
        return "small", ""  # the packaged one
    return (kind, name) if colon and kind in PREFIXES else ("checkpoint", spec)


def checked_model(spec: str) -> tuple[str, str]:
    """Split the name of a model like `parse_model`; raise RecordError if it is empty or an endpoint's URL."""
    kind, name = parse_model(spec)
    if not name.strip() and spec != "small":
        raise RecordError("the name of a model is empty")
    if "://" in spec:
        raise RecordError(f"{spec}: an endpoint is given as openai:MODEL with --base_url {spec}")
    return kind, name


@dataclass
class ChatArguments:
    """The model that answers: a checkpoint on this machine, or an endpoint."""

    base_url: str | None = option(
        "URL of the endpoint of openai:MODEL or decision:MODEL; default: OpenAI's own", None
    )
    api_key_env: str = option(
        "endpoint: the environment variable that holds the key, such as GEMINI_API_KEY",
        "OPENAI_API_KEY",
    )
    dtype: str = option(
        "of a checkpoint's weights; auto: bfloat16 where the device computes it in hardware, else float32",
        "auto",
        choices=["auto", "bfloat16", "float16", "float32"],
    )
    device: str = option("cpu, cuda, cuda:N, mps, or auto: a GPU if there is one", "auto")
    batch_tokens: int = option(
        "most tokens of a batch, prompts and answers; 0: what the device's memory holds", 0
    )
    chat_template_path: str | None = option(
        "Jinja file, for a checkpoint without a chat template; none: its own", None
    )
    max_new_tokens: int = option("most tokens of a rationale or an endpoint's answer", 512)
    temperature: float = option("0 decodes greedily", 0.0)
    concurrency: int = option("endpoint: most requests under way at once", 32)
    max_retries: int = option("endpoint: how often a failed request is tried again", 5)
    timeout: float = option("endpoint: seconds without a byte that end an attempt", 120.0)
    # No arguments: whether no server is asked, since requests go into a file or are counted; whether `load` reads the weights,
    # which counting tokens does not need; by the checkpoint's name what --dtype auto chose here, which is recorded.
    unasked = False
    loads = True
    computed: dict[str, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        check_least(self, 0, "batch_tokens", "max_retries", "temperature")
        check_least(self, 1, "max_new_tokens", "concurrency")
        check_least(self, 0.001, "timeout")

    def load(self, model: str, seed: int = 0) -> Any:
        """Return the chat of a model: `openai:MODEL` and `decision:MODEL` are an endpoint's, any other name a checkpoint's.

        `seed` is for sampling. RecordError if it cannot be loaded.
        """
        kind, name = checked_model(model)
        if kind in ("openai", "decision"):
            from automedeval.models.decisions import DecisionChat
            from automedeval.models.endpoint import OpenAIChat

            self.base_url = (
                self.base_url or os.environ.get("OPENAI_BASE_URL") or None
            )  # recorded with the run
            asks = OpenAIChat if kind == "openai" else DecisionChat
            return asks(name, seed=seed, **self._shared(asks))
        with loading(model):
            from automedeval.models.decision_folder import (
                LocalChat,
                LocalDecisions,
            )  # torch is slow to import

            local_chat = (
                LocalDecisions if (checkpoint_folder(model) / DECISION).is_file() else LocalChat
            )
            local = local_chat(model, seed=seed, **self._shared(local_chat))
            if self.loads:
                local.prepare()
        if local.precision:
            self.computed[local.name] = local.precision
            if is_first():
                print(f"{local.name}: {local.precision}", file=sys.stderr)
        return local

    def _shared(self, kind: type) -> JsonObject:
        """Return the arguments that a chat of this kind has a field for."""
        return {
            argument.name: getattr(self, argument.name)
            for argument in fields(kind)
            if hasattr(self, argument.name)
        }


@dataclass
class EncoderArguments:
    """The sentence encoder of a small judge, a knowledge store, a classifier, or baselines that compare embeddings."""

    encoder: str | None = option(
        "sentence encoder of a small judge, a knowledge store or baselines that compare embeddings, a folder or Hub id "
        f"(default: {ENCODER}, else where automedeval get-models puts it, else {ENCODER_ON_HUB} in the cache of the Hub); "
        "reports and audits leave these baselines out with none",
        None,
    )

    @property
    def place(self) -> str:
        """Return the folder or Hub id of the encoder; RecordError if none was named, and the default one is not here."""
        if folder := self.encoder or find_model(ENCODER):
            return str(folder)
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(ENCODER_ON_HUB, "model.safetensors")
        if not isinstance(cached, str):
            raise RecordError(
                f"no encoder at {ENCODER}, in {user_models()} or in the cache of the Hub; `automedeval get-models` gets it"
            )
        return str(Path(cached).parent)

    def is_there(self) -> bool:
        """Return whether an encoder was named, or the default one is on this machine."""
        try:
            return bool(self.place)
        except RecordError:
            return False

    def load(self, device: str = "auto") -> Any:
        """Return the encoder; RecordError if it cannot be loaded, or takes sentence-transformers, which is not installed."""
        from automedeval.models.embeddings import Encoder

        return Encoder(self.place, device)

    def load_if_there(self, notes: list[str]) -> Any:
        """Return the encoder for a report, None if there is none; where none was named, a note says what is left out and why.

        RecordError as `load`, where an encoder was named.
        """
        if self.encoder == "none":
            return None
        try:
            return self.load()
        except RecordError as error:
            if self.encoder is not None:
                raise
            notes.append(
                f"no baselines that compare embeddings: {error} (--encoder names one, none leaves them out)"
            )
            return None


def next_command(command: str, run: JsonObject, takes: Sequence[type], **options: Any) -> str:
    """Return a command to paste that goes on from a run, by the arguments in its record.

    The options of the dataclasses `takes` are carried over where the run did not leave them at their defaults. Of the further
    ones a list has several values, and None, "" and [] are left out.
    """
    for argument in chain.from_iterable(map(fields, takes)):
        value = run.get(argument.name, argument.default)
        if argument.init and value != argument.default:
            options.setdefault(argument.name, value)
    if run.get("offline"):
        options["offline"] = True
    words = ["automedeval", command]
    for name, value in options.items():
        values = as_list(value)
        if values and value not in (None, ""):
            words += [f"--{name}", *map(str, values)]
    return shlex.join(words)
