"""The console command `automedeval`: find the command that is named first, and run it with the other arguments."""

import sys
from importlib import import_module

import automedeval

# Each command, and what it does. Its module has its name, and is imported only when it is run.
COMMANDS = {
    "prepare": "turn files of questions and answers into cases",
    "judge": "judge the answers of a file of cases",
    "check": "compare the numbers of answers with a reference or books",
    "report": "compare the candidates by judges' verdicts, and the verdicts with people's ratings",
    "audit": "measure how order, length, planted texts and dangerous facts change a judge's scores",
    "calibrate": "fit a judge's scores to people's ratings",
    "export": "write verdicts for a table program or TRL",
    "annotate": "let people rate answers and verdicts on a page",
    "get-models": "get two small models, without a key or the Hub",
    "doctor": "show what this machine has, and what to do next",
}
# What stands before the first option of a command are the values of this one: `judge FILE` equals `judge --cases FILE`.
FIRST = {"judge": "--cases", "check": "--cases", "prepare": "--input", "report": "--verdicts"}


def main() -> None:
    """Run `automedeval COMMAND …`; without a command, list the commands."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h"):
        print(usage())
    elif name == "--version":
        print(f"automedeval {automedeval.__version__}")
    elif name not in COMMANDS:
        sys.exit(f"error: no command {name!r} (automedeval --help lists them)")
    else:
        from automedeval.records.command_line import run

        if name in FIRST and arguments and not arguments[0].startswith("-"):
            arguments = [FIRST[name], *arguments]
        sys.argv = [f"automedeval {name}", *arguments]
        module = import_module(f"automedeval.cli.{name.replace('-', '_')}")
        run(module.main)


def usage() -> str:
    """Return the list of commands."""
    commands = "\n".join(f"  {name:<12}{what}" for name, what in COMMANDS.items())
    last = "automedeval COMMAND --help explains a command. Begin with: automedeval doctor. Not for clinical use."
    return f"usage: automedeval COMMAND …\n\n{commands}\n\n{last}"


if __name__ == "__main__":
    main()
