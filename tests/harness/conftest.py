"""The environment with the harnesses, and the logs that they write in it."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock
from programs import ROOT

from automedeval.records import digest

GIVEN = "AUTOMEDEVAL_HARNESSES"  # names the Python of an environment that is there already
LOGS = "AUTOMEDEVAL_HARNESS_LOGS"  # names a folder that keeps the logs
PLACE = ROOT / ".venv-harnesses"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
LIMIT = 240  # seconds for the installation


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "harness_python" in item.fixturenames:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def harness_python() -> Path:
    """Return the Python of an environment with the harnesses and this package; install it once for each checkout.

    It shares the packages of this Python, and so holds 370 MB instead of 5 GB. Where pip cannot install it, the tests are
    skipped.
    """
    if named := os.environ.get(GIVEN):
        return Path(named)
    python = PLACE / "bin/python"
    stamp = PLACE / "installed"
    wanted = digest([REQUIREMENTS.read_text(encoding="utf-8"), sys.version, sys.prefix])
    with FileLock(f"{PLACE}.lock"):
        if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
            try:
                _install(python)
            except (OSError, subprocess.SubprocessError) as error:
                said = getattr(error, "stderr", None) or error
                pytest.skip(f"the harnesses could not be installed: {str(said)[-500:]}")
            stamp.write_text(wanted, encoding="utf-8")
    return python


def _install(python: Path) -> None:
    options = f"-m pip --python {python} install --quiet --no-compile --no-deps"
    pip = [sys.executable, *options.split()]
    run = {"check": True, "capture_output": True, "text": True, "timeout": LIMIT}
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(PLACE)], **run)
    shared = sysconfig.get_path("purelib")
    (site_packages,) = PLACE.glob("lib/python*/site-packages")
    (site_packages / "shared.pth").write_text(
        f"import site; site.addsitedir({shared!r})\n", encoding="utf-8"
    )
    subprocess.run([*pip, "--retries", "1", "--requirement", str(REQUIREMENTS)], **run)
    subprocess.run([*pip, "--no-build-isolation", "--editable", str(ROOT)], **run)


@pytest.fixture(scope="session")
def harness(harness_python: Path) -> Callable[..., str]:
    """Return a function that runs a command in the environment; without error it returns what the command printed."""
    path = f"{harness_python.parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path}
    environment.pop("PYTHONPATH", None)
    # Nobody answers a question.
    streams = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}

    def run(*command: object, cwd: Path | None = None, **variables: str) -> str:
        words = list(map(str, command))
        done = subprocess.run(words, timeout=1200, cwd=cwd, env=environment | variables, **streams)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def logs(harness: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Let the libraries write their logs: `lm`, `json`, `eval` and `error` of inspect_ai, those of `odd` tasks."""
    folder = Path(os.environ.get(LOGS) or tmp_path_factory.mktemp("logs"))
    if not list(folder.glob("odd/mixed/*.json")):
        harness("python", Path(__file__).with_name("make_logs.py"), folder)
    patterns = {
        "lm": "lm_eval/**/samples_medtext_*.jsonl",
        "json": "inspect-json/*.json",
        "error": "inspect-error/*.json",
        "eval": "inspect-eval/*.eval",
        "odd": "odd",
    }
    return {name: next(folder.glob(pattern)) for name, pattern in patterns.items()}


@pytest.fixture(scope="session")
def helm_runs(harness: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Let HELM write its runs; return the folder that holds those of `make_helm_logs`."""
    folder = Path(os.environ.get(LOGS) or tmp_path_factory.mktemp("logs")) / "helm"
    if not list(folder.glob("runs/suite/apart/*")):
        harness("python", Path(__file__).with_name("make_helm_logs.py"), folder)
    return folder / "runs/suite"
