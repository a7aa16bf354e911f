"""Argument groups that several recipes share, and how every recipe reads its arguments.

One YAML is one run: `--config run.yaml` gives values by the arguments' names, the command line overrides it, both override
the defaults below. Unknown keys fail. Help is written once, in the field.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

import yaml
from transformers import HfArgumentParser

from automedeval.journal import ALONE, Processes, write_whole
from automedeval.records import AutoMedEvalError, RecordError


class _OneLine:
    def error(self, message: str) -> NoReturn:
        raise RecordError(f"{message} (--help lists what there is)")


class _Parser(_OneLine, HfArgumentParser):
    pass


class _FileParser(_OneLine, argparse.ArgumentParser):
    pass


def parse(kinds: Sequence[type], description: str, argv: Sequence[str] | None = None) -> tuple[Any, ...]:
    """Parse the command line, and the file that `--config` names, into one instance of each dataclass.

    Raises:
        RecordError: an argument that is not known, missing or wrong; the YAML file cannot be read, or has a key that no
            argument has.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = _Parser(kinds, description=description, allow_abbrev=False)
    parser.add_argument(
        "--config", metavar="RUN.yaml", help="a YAML file with arguments by name; the command line wins"
    )
    file = _FileParser(add_help=False, allow_abbrev=False)
    file.add_argument("--config")
    config = file.parse_known_args(argv)[0].config
    if config:
        known = {action.dest for action in parser._actions} - {"help", "config"}
        # In front of the command line, as if typed there: the same checks of types and choices, and the later one wins.
        argv = [*_config_arguments(config, known), *argv]
    *values, rest = parser.parse_args_into_dataclasses(argv, return_remaining_strings=True)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return tuple(values[: len(kinds)])


def _config_arguments(file: str, known: set[str]) -> list[str]:
    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecordError(f"{file}: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise RecordError(f"{file}: must be a mapping of arguments to values")
    arguments = []
    for key, value in content.items():
        if key not in known:
            raise RecordError(f"{file}: unknown key {key!r}")
        if isinstance(value, dict):
            raise RecordError(f"{file}: {key}: must be one value or a list of values")
        if value is not None:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            arguments.append(f"--{key}={text}")
    return arguments


def run(main: Callable[[], None]) -> None:
    """Run a recipe; what the person at the keyboard can mend becomes one line and exit status 1."""
    try:
        main()
    except AutoMedEvalError as error:
        _end(f"error: {error}")
    except KeyboardInterrupt:
        _end("interrupted; the same command goes on from here")
    except OSError as error:
        why = "is a file, and a folder is needed" if isinstance(error, FileExistsError) else error.strerror or error
        _end(f"error: {error.filename or ''}: {why}")
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        _end("error: out of memory; a smaller --batch_tokens may help")


def _end(line: str) -> NoReturn:
    # In one piece: `sys.exit` writes the end of the line by itself, and another process of the run may come in between.
    sys.stderr.write(f"{line}\n")
    sys.exit(1)


def installed_versions(*more: str) -> dict[str, str]:
    """Return the versions of the libraries that can change a result, and of `more` that are installed."""
    names = ("automedeval", "torch", "transformers", "tokenizers", "accelerate", "openai")
    found = {name: version(name) for name in names}
    for name in more:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def git_commit() -> str | None:
    """Return the commit of the checkout that the running program stands in, None outside of one."""
    command = ["git", "-C", str(Path(sys.argv[0]).resolve().parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def join_processes() -> Processes:
    """Join the other processes of `accelerate launch`, if there are any."""
    rank, count = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if count == 1:
        return ALONE
    from accelerate import PartialState  # slow to import, and one process does without

    # A process that is done waits for the slowest, which may take days.
    return Processes(rank, count, PartialState(timeout=timedelta(days=30)).wait_for_everyone)


def record_run(file: Path, *groups: Any, timing: dict[str, float] | None = None) -> None:
    """Leave the resolved arguments, versions and git commit beside what a run writes; `timing` is added to earlier ones."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        timings = json.loads(file.read_text(encoding="utf-8"))["timings"]
    except (OSError, ValueError, KeyError, TypeError):  # the first run, or one that was cut off while it wrote
        timings = []
    record = {
        "arguments": {name: value for group in groups for name, value in vars(group).items()},
        "versions": installed_versions(),
        "commit": git_commit(),
        "timings": timings + ([timing] if timing else []),
    }
    write_whole(file, json.dumps(record, indent=1) + "\n")


@dataclass
class KnowledgeArguments:
    """The books that a model may ask before it answers."""

    knowledge: str = field(
        default="chain",
        metadata={"help": "chain: the model may ask the store; none: it may not", "choices": ["chain", "none"]},
    )
    store: str | None = field(default=None, metadata={"help": "folder of the knowledge store"})
    qdrant_url: str | None = field(default=None, metadata={"help": "a Qdrant server in the store's place"})
    collection: str = field(default="knowledge", metadata={"help": "the store's collection"})
    encoder: str = field(
        default="models/all-MiniLM-L6-v2", metadata={"help": "checkpoint that the store was built with"}
    )
    questions: int = field(default=3, metadata={"help": "most rounds of questions"})  # Paper: Algorithm 1's T
    passages: int = field(default=3, metadata={"help": "passages that answer a question"})

    def __post_init__(self) -> None:
        for name in ("questions", "passages"):
            if getattr(self, name) < 1:
                raise RecordError(f"--{name} must be at least 1, not {getattr(self, name)}")

    def check(self) -> None:
        """Raise RecordError if there are to be books and nothing says where."""
        if self.knowledge == "chain" and not (self.store or self.qdrant_url):
            raise RecordError(
                "--store names no folder (recipes/build_index.py builds one; --knowledge none goes without)"
            )

    def open(self, device: str, opened: ExitStack) -> tuple[Any, str]:
        """Return a search, which is closed with `opened`, and the fingerprint of what it searches; (None, "") without books.

        Raises:
            RecordError: no store is named, or it cannot be opened.
        """
        self.check()
        if self.knowledge == "none":
            return None, ""
        from automedeval.completion_chain import SharedSearch  # these load heavy libraries, and many runs have no books
        from automedeval.embeddings import Encoder
        from automedeval.knowledge import KnowledgeBase

        # In float32 what is found for a question does not depend on which others are looked up with it.
        encoder = Encoder(self.encoder, device=device, dtype="float32")
        base = opened.enter_context(KnowledgeBase(self.store, encoder, self.qdrant_url, self.collection))
        if base.advice:
            print(base.advice, file=sys.stderr)
        fingerprint = f"{encoder.fingerprint}:{self.collection}:{len(base)}:{self.passages}"
        return SharedSearch(base.search, self.passages), fingerprint


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
                # Each process spends its own share.
                budget=Budget(self.max_cost and self.max_cost / processes, self.price_in, self.price_out),
            )
        from automedeval.local_chat import LocalChat  # torch is loaded by those who need it

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
