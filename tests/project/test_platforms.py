"""What can be known on Linux about Windows and macOS, where nobody has run the package: imports, files, streams, devices."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from programs import ROOT, SAMPLE, run_recipe

PROGRAMS = sorted({*(ROOT / "src").rglob("*.py"), *(ROOT / "recipes").rglob("*.py")})
# Python's documentation says "Availability: Unix" of these modules, and of these names in `os` and `signal`.
UNIX_MODULES = {"crypt", "curses", "fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios"}
UNIX_NAMES = {
    *("SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "alarm", "chown", "fchmod", "fork", "getegid", "geteuid"),
    *("getgid", "getloadavg", "getpgid", "getuid", "killpg", "mkfifo", "nice", "posix_fadvise", "pread", "pwrite"),
    *("sched_getaffinity", "setsid", "statvfs", "sysconf", "uname", "wait3", "wait4"),
}


def nodes(*kinds: type) -> Iterator[tuple[str, ast.AST]]:
    """Yield the nodes of some kinds in every program, with the place of each."""
    for file in PROGRAMS:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, kinds):
                yield f"{file.relative_to(ROOT)}:{node.lineno}", node


def test_no_program_uses_what_windows_lacks() -> None:
    modules = [(place, each.name) for place, node in nodes(ast.Import) for each in node.names]
    modules += [(place, node.module) for place, node in nodes(ast.ImportFrom)]
    assert not [place for place, name in modules if name.partition(".")[0] in UNIX_MODULES]
    names = [
        (place, node.attr) for place, node in nodes(ast.Attribute) if getattr(node.value, "id", "") in ("os", "signal")
    ]
    assert not [place for place, name in names if name in UNIX_NAMES]


def test_text_files_are_utf_8_and_end_lines_alike_everywhere() -> None:
    wrong = []
    for place, node in nodes(ast.Call):
        given, function = {each.arg for each in node.keywords}, ast.unparse(node.func)
        if function in ("open", "os.fdopen"):
            mode = node.args[1].value if len(node.args) > 1 else "r"
        elif function.endswith((".read_text", ".write_text")):
            mode = "r" if function.endswith(".read_text") else "w"
        else:
            continue
        if "b" not in mode and not given >= ({"encoding"} if mode == "r" else {"encoding", "newline"}):
            wrong.append(place)
    assert not wrong


def test_a_terminal_that_lacks_a_character_gets_its_escape(tmp_path: Path) -> None:
    # On Windows a redirected stream is in the system's code page, which has no arrow; Python would stop with a traceback.
    arguments = ("--input", SAMPLE / "test_cases.jsonl", "--output", tmp_path / "out")
    done = run_recipe("prepare", *arguments, env=os.environ | {"PYTHONIOENCODING": "cp1252"})
    assert done.returncode == 0, done.stderr
    assert "\\u2192" in done.stdout


@pytest.mark.parametrize(
    ("environment", "cuda", "mps", "device"),
    [
        ({}, False, False, "cpu"),
        ({}, False, True, "mps"),
        ({"LOCAL_RANK": "1"}, True, False, "cuda:1"),
        ({"LOCAL_RANK": "1"}, False, True, "mps"),
        ({"ACCELERATE_USE_CPU": "true"}, True, True, "cpu"),
    ],
)
def test_auto_is_a_gpu_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], cuda: bool, mps: bool, device: str
) -> None:
    from automedeval.models.device import best_device

    for name in ("LOCAL_RANK", "ACCELERATE_USE_CPU"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert best_device() == device


def test_the_metric_which_stands_alone_chooses_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    from automedeval.metrics.rationale_score import rationale_score as metric

    def load(what: str, name: str, *given: object) -> None:
        raise ValueError(f"loaded with {given}")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(metric, "_load", load)
    with pytest.raises(ValueError, match="'mps'"):
        metric.rationale_score(["rest"], ["rest"])


def test_no_other_program_chooses_a_device() -> None:
    choosing = {file.stem for file in PROGRAMS if "is_available()" in file.read_text(encoding="utf-8")}
    # Training leaves the device to accelerate, and start.py asks whether there is a GPU for the number format.
    assert choosing == {"device", "rationale_score", "start"}
