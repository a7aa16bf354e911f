"""The arguments that choose a model: a checkpoint on this machine, or an endpoint."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automedeval.records import AutoMedEvalError, RecordError


@dataclass
class ChatArguments:
    """The model that answers: a checkpoint on this machine, or an endpoint."""

    base_url: str | None = field(default=None, metadata={"help": "endpoint of an openai:MODEL judge"})
    dtype: str = field(
        default="auto",
        metadata={
            "help": "auto: as the device likes it, float32 for a channel judge",
            "choices": ["auto", "bfloat16", "float16", "float32"],
        },
    )
    device: str = field(default="auto", metadata={"help": "auto | cpu | cuda | cuda:N"})
    attn_implementation: str = field(default="sdpa", metadata={"help": "attention kernel, as in transformers"})
    batch_tokens: int = field(
        default=16384, metadata={"help": "most tokens in one batch, prompts and answers together"}
    )
    chat_template_path: str | None = field(
        default=None, metadata={"help": "Jinja file, for checkpoints without a chat template"}
    )
    max_new_tokens: int = field(
        default=512, metadata={"help": "most tokens of a rationale, or of an endpoint's answer"}
    )
    temperature: float = field(default=0.0, metadata={"help": "0 decodes greedily"})
    concurrency: int = field(default=8, metadata={"help": "endpoint: requests under way at once"})
    max_retries: int = field(default=5, metadata={"help": "endpoint: how often a failed request is tried again"})
    timeout: float = field(
        default=120.0, metadata={"help": "endpoint: seconds without a byte before giving an attempt up"}
    )
    structured_output: bool = field(
        default=True, metadata={"help": "endpoint: send a JSON schema where the rubric has one"}
    )
    top_logprobs: int = field(
        default=5, metadata={"help": "endpoint: alternatives per token, for expected scores; 0: none"}
    )
    cache: str = field(
        default="~/.cache/automedeval", metadata={"help": "endpoint: folder that keeps answers (mode 0600), or off"}
    )
    price_in: float = field(default=0.0, metadata={"help": "endpoint: price of a million prompt tokens"})
    price_out: float = field(default=0.0, metadata={"help": "endpoint: price of a million completion tokens"})
    max_cost: float | None = field(
        default=None, metadata={"help": "endpoint: stop before a call whose worst case would exceed this sum"}
    )

    def __post_init__(self) -> None:
        for name, least in (("batch_tokens", 0), ("max_new_tokens", 1), ("concurrency", 1), ("max_retries", 0)):
            if getattr(self, name) < least:
                raise RecordError(f"--{name} must be at least {least}, not {getattr(self, name)}")
        for name in ("temperature", "price_in", "price_out", "max_cost"):
            value = getattr(self, name)
            if value is not None and not (value >= 0 and math.isfinite(value)):
                raise RecordError(f"--{name} must be a finite number of at least 0, not {value}")
        if self.max_cost is not None and not (self.price_in or self.price_out):
            raise RecordError("--max_cost needs --price_in and --price_out")

    def load(self, model: str, seed: int = 0, processes: int = 1, auto: str = "auto") -> Any:
        """Return the chat that `model` names: `openai:MODEL` is an endpoint's, anything else a checkpoint.

        Args:
            auto: the dtype that `auto` stands for; itself: what suits the device.

        Raises:
            RecordError: the checkpoint cannot be loaded.
        """
        if not model.strip() or model == "openai:":
            raise RecordError("the name of a model is empty")
        if "://" in model:
            raise RecordError(f"{model}: an endpoint is given as openai:MODEL with --base_url {model}")
        if model.startswith("openai:"):
            from automedeval.models.endpoint import Budget, OpenAIChat

            return OpenAIChat(
                model.removeprefix("openai:"),
                base_url=self.base_url,
                max_new_tokens=self.max_new_tokens,
                temperature=self.temperature,
                seed=seed,
                concurrency=self.concurrency,
                max_retries=self.max_retries,
                timeout=self.timeout,
                structured_output=self.structured_output,
                top_logprobs=self.top_logprobs,
                cache=None if self.cache == "off" else Path(self.cache).expanduser(),
                # Each process spends its own share.
                budget=Budget(self.max_cost and self.max_cost / processes, self.price_in, self.price_out),
            )
        from automedeval.models.local import LocalChat  # torch is loaded by those who need it

        try:
            return LocalChat(
                model,
                dtype=auto if self.dtype == "auto" else self.dtype,
                device=self.device,
                batch_tokens=self.batch_tokens,
                max_new_tokens=self.max_new_tokens,
                temperature=self.temperature,
                seed=seed,
                chat_template_path=self.chat_template_path,
                attn_implementation=self.attn_implementation,
            )
        except AutoMedEvalError:
            raise
        except Exception as error:  # noqa: BLE001  a bad checkpoint makes transformers, torch and safetensors raise a dozen kinds
            raise RecordError(f"{model} cannot be loaded: {' '.join(str(error).split())[:300]}") from None
