"""Argument groups that several recipes share, and how every recipe reads its arguments.

One YAML is one run: `--config run.yaml` gives values by the arguments' names, the command line overrides it, both override
the defaults below. Unknown keys fail. Help is written once, in the field.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from transformers import HfArgumentParser

from automedeval.records import AutoMedEvalError, RecordError


def parse(kinds: Sequence[type], description: str, argv: Sequence[str] | None = None) -> tuple[Any, ...]:
    """Parse the command line, and the file that `--config` names, into one instance of each dataclass.

    Raises:
        RecordError: the YAML file cannot be read, or has a key that no argument has.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = HfArgumentParser(kinds, description=description)
    parser.add_argument(
        "--config", metavar="RUN.yaml", help="a YAML file with arguments by name; the command line wins"
    )
    if "--config" in argv[:-1]:
        file = argv[argv.index("--config") + 1]
        actions = {action.dest: action for action in parser._actions}
        for key, value in _read_config(file).items():
            if key not in actions or key in ("help", "config"):
                raise RecordError(f"{file}: unknown key {key!r}")
            actions[key].default, actions[key].required = value, False
    values = parser.parse_args_into_dataclasses(argv)
    return tuple(values[: len(kinds)])


def _read_config(file: str) -> dict[str, Any]:
    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecordError(f"{file}: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise RecordError(f"{file}: must be a mapping of arguments to values")
    return content


def run(main: Callable[[], None]) -> None:
    """Run a recipe; what the person at the keyboard can mend becomes one line and exit status 1."""
    try:
        main()
    except AutoMedEvalError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on from here")
    except OSError as error:
        sys.exit(f"error: {error.filename or ''}: {error.strerror or error}")


def installed_versions() -> dict[str, str]:
    """Return the versions of the libraries that can change a result."""
    names = ("automedeval", "torch", "transformers", "tokenizers", "accelerate", "openai")
    return {name: version(name) for name in names}


def git_commit() -> str | None:
    """Return the commit of the checkout that the running program stands in, None outside of one."""
    command = ["git", "-C", str(Path(sys.argv[0]).resolve().parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


@dataclass
class ChatArguments:
    """The model that answers: a checkpoint on this machine, or an endpoint."""

    base_url: str | None = field(default=None, metadata={"help": "endpoint of an openai:MODEL judge"})
    dtype: str = field(
        default="auto",
        metadata={"help": "auto | bfloat16 | float16 | float32", "choices": ["auto", "bfloat16", "float16", "float32"]},
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
        if self.max_cost is not None and not (self.price_in or self.price_out):
            raise RecordError("--max_cost needs --price_in and --price_out")

    def load(self, model: str, seed: int = 0) -> Any:
        """Return the chat that `model` names: `openai:MODEL` is an endpoint's, anything else a checkpoint."""
        if "://" in model:
            raise RecordError(f"{model}: an endpoint is given as openai:MODEL with --base_url {model}")
        if model.startswith("openai:"):
            from automedeval.chat import Budget, OpenAIChat

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
                budget=Budget(self.max_cost, self.price_in, self.price_out),
            )
        from automedeval.local_chat import LocalChat  # torch is loaded by those who need it

        return LocalChat(
            model,
            dtype=self.dtype,
            device=self.device,
            batch_tokens=self.batch_tokens,
            max_new_tokens=self.max_new_tokens,
            temperature=self.temperature,
            seed=seed,
            chat_template_path=self.chat_template_path,
            attn_implementation=self.attn_implementation,
        )
