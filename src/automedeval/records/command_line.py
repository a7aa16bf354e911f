"""Read a program's arguments, and end it with one line where the user can correct an error.

`--config run.yaml` gives values by the arguments' names. The command line overrides the file, and both override the defaults.
An unknown key is an error.
"""

import argparse
import importlib.util
import io
import os
import runpy
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from automedeval.records import offline
from automedeval.records.errors import AutoMedEvalError, RecordError, UnclearArguments, reason
from automedeval.records.teachers import teacher_arguments
from automedeval.records.text import printable, shown_address
from automedeval.records.types import as_list
from automedeval.records.yaml_file import YamlFile

if TYPE_CHECKING:
    from transformers import HfArgumentParser
else:  # read from its file: `import transformers` takes longer than all else that --help needs
    _file = Path(importlib.util.find_spec("transformers").origin).with_name("hf_argparser.py")
    HfArgumentParser = runpy.run_path(str(_file))["HfArgumentParser"]


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, [], "") else super()._get_help_string(action)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Fill the paragraphs of prose, and leave examples, which are indented, as they are."""
        fill = partial(textwrap.fill, width=width, break_on_hyphens=False)
        parts = text.strip("\n").split("\n\n")
        return "\n\n".join(part if part.startswith(" ") else fill(part) for part in parts)


class _Parser(HfArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise RecordError(f"{message} (--help_all lists what there is)")

    def hide(self, shown: Sequence[str]) -> None:
        """Explain in `--help` the options that are shown and the required ones, and only name the others."""
        hidden = []
        for action in self._actions:
            if action.required or action.dest in shown:
                continue
            action.help = argparse.SUPPRESS
            if action.dest not in ("help", "help_all"):
                hidden.append(f"--{action.dest}")
        self.usage = "%(prog)s [OPTION VALUE …]"
        self.epilog = f"other options, which --help_all explains: {' '.join(dict.fromkeys(hidden))}"


def parse(
    kinds: Sequence[type],
    description: str,
    argv: Sequence[str] | None = None,
    first: Sequence[str] = (),
) -> tuple[Any, ...]:
    """Parse the command line and the file of `--config` into one instance of each dataclass.

    `--help` explains the options in `first`; without any it explains all. RecordError if an argument is unknown, missing or
    wrong, or the YAML file cannot be read or has an unknown key.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    dataclasses: list[Any] = list(kinds)
    parser = _Parser(
        dataclasses, description=description, allow_abbrev=False, formatter_class=_Formatter
    )
    parser.add_argument("--help_all", action="help", help="explain every option")
    parser.add_argument(
        "--config",
        metavar="RUN.yaml",
        help="YAML file of arguments by name; the command line overrides it",
    )
    parser.add_argument(
        "--offline",
        metavar="OFFLINE",  # as truth values have it, so that documents are checked by the usage
        nargs="?",
        const="true",
        choices=["true", "false"],
        type=str.lower,
        help=f"refuse every address but this machine's, as {offline.VARIABLE}=1 does",
    )
    if first and "--help_all" not in argv:
        parser.hide(first)
    options = {action.dest: action.nargs for action in parser._actions}
    given = _given(argv, options)
    if config := given.get("config"):
        content = _arguments_in(config, options)
        models = teacher_arguments(content | given, config)
        # The file stands before the command line: types and choices are checked alike, and the later value counts.
        argv = [*_words(content, options), *argv, *_words(models, options)]
    *values, own, rest = parser.parse_args_into_dataclasses(argv, return_remaining_strings=True)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if own.offline == "true":
        offline.stay_offline()
    return tuple(values)


def _given(argv: Sequence[str], options: Iterable[str]) -> dict[str, str]:
    """Return name → value, or its first word, of the options on a command line."""
    reader = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS
    )
    for name in options:
        reader.add_argument(f"--{name}", nargs="?")
    return vars(reader.parse_known_args(argv)[0])


def _arguments_in(file: str, options: Mapping) -> dict:
    """Return the arguments in a YAML file; RecordError for one that is none of the options, or has keys."""
    content = YamlFile(file).read()
    if not isinstance(content, dict):
        raise RecordError(f"{file}: must be a mapping of arguments to values")
    for key, value in content.items():
        if key not in options or key in ("help", "help_all", "config"):
            raise RecordError(f"{file}: unknown key {key!r}")
        if isinstance(value, dict):
            raise RecordError(f"{file}: {key}: must be one value or a list of values")
    return content


def _words(arguments: Mapping, options: Mapping) -> list[str]:
    """Return the words of the command line that say the same; a list is a value each where an option takes several."""
    words = []
    for key, value in arguments.items():
        if value is None:
            continue
        texts = list(map(str, as_list(value)))
        if texts and options.get(key) == "+" and not any(text.startswith("-") for text in texts):
            words += [f"--{key}", *texts]
        else:
            words.append(f"--{key}={','.join(texts)}")
    return words


class _Screen:
    """A stream to which names and texts of files can be printed: what would steer the terminal becomes a space.

    Where nobody reads any more, as of `| head`, the program goes on with its work.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        with self._perhaps_unread():
            self._stream.write("\n".join(map(printable, text.split("\n"))))
        return len(text)

    def flush(self) -> None:
        with self._perhaps_unread():
            self._stream.flush()

    @contextmanager
    def _perhaps_unread(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def run(main: Callable[[], None]) -> None:
    """Run a recipe; an error that the user can correct becomes one line and exit status 1."""
    # as on stderr, a character that the terminal's encoding lacks is escaped
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with redirect_stdout(_Screen(sys.stdout)) as screen:
            try:
                main()
            finally:
                screen.flush()
    except UnclearArguments as error:
        program, *words = sys.argv
        by = f"by {program} {shlex.join(words)} --columns "
        ways = f", or {by}".join(map(shlex.join, error.ways))
        _end(f"error: {error}; say it {by}{ways}")
    except AutoMedEvalError as error:
        _end(f"error: {error}")
    except KeyboardInterrupt:
        _end("interrupted; the same command goes on from here")
    except OSError as error:
        _end(f"error: {error.filename or ''}: {reason(error)}")
    except RuntimeError as error:
        text = str(error)
        if "closed by peer" in text or "reset by peer" in text:
            _end("error: another process of this run has ended; see its error line")
        if "out of memory" not in text:
            raise
        _end("error: out of memory; a smaller --batch_tokens may help")


def _end(line: str) -> NoReturn:
    # In one write: `sys.exit` writes the newline separately, and another process of the run may write in between.
    sys.stderr.write(f"{printable(shown_address(line))}\n")
    sys.exit(1)
