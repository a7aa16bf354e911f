"""What holds for all tests: limits of time, which skips fail, a tiny checkpoint, and the folder of human-rated data."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from doubles import clean_machine
from doubles.tiny_model import build_tiny_model
from programs import module_fixture, needs_encoder, needs_judge

# Minutes each: the others run beside them, and none of them is left alone at the end.
LONG = ("studies/test_rehearsal.py", "recipes/test_sft_distributed.py", "models/test_vllm.py")
MODELS = (needs_encoder.mark, needs_judge.mark)
# Endpoints are doubles on this machine, whatever the developer's own are.
os.environ["OPENAI_API_KEY"] = "a-key"
os.environ.pop("OPENAI_BASE_URL", None)
for name in ("NO_PROXY", "no_proxy"):
    os.environ[name] = f"{os.environ.get(name, '')},127.0.0.1"
SLOW_LIMIT = 3600  # seconds; setup.cfg has the limit of the others
# What the reasons of skips hold that continuous integration expects; any other skip fails there. `.ci/run` names in
# AUTOMEDEVAL_MISSING what could not be installed.
EXPECTED_SKIPS = (
    "AUTOMEDEVAL_DATA",  # public data, which are not part of the repository
    "AUTOMEDEVAL_VLLM is none",
    "could not be installed",  # the harnesses and vLLM, without a network
    *os.environ.get("AUTOMEDEVAL_MISSING", "").split(),
)
# A busy machine makes an example slow, not wrong.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move long files to the front, give slow tests more time, mark those that need a model."""
    items.sort(key=lambda item: not item.nodeid.partition("::")[0].endswith(LONG))
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(SLOW_LIMIT))
        if "tiny_model" in item.fixturenames or any(
            mark in MODELS for mark in item.iter_markers("skipif")
        ):
            item.add_marker(pytest.mark.model)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Let a skip fail that continuous integration does not expect."""
    return fail_unexpected((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    """Let the skip of a whole file fail as that of a test does."""
    return fail_unexpected((yield))


def fail_unexpected(
    report: pytest.TestReport | pytest.CollectReport,
) -> pytest.TestReport | pytest.CollectReport:
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not any(each.lower() in reason.lower() for each in EXPECTED_SKIPS):
            report.outcome = "failed"
            report.longrepr = f"{report.nodeid} is skipped, which CI does not expect: {reason}"
    return report


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("checkpoints") / "tiny-judge")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clean_machine.build(tmp_path_factory.mktemp("wheel"))


@module_fixture
def browser() -> Iterator[Any]:
    from doubles.grid_reader import (
        started_browser,
    )  # which skips a test where there is no playwright

    with started_browser() as chromium:
        yield chromium


@pytest.fixture
def human_data() -> Path:
    """Return the folder of human-rated data; skip where AUTOMEDEVAL_DATA does not name it."""
    folder = os.environ.get("AUTOMEDEVAL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("AUTOMEDEVAL_DATA does not name the folder of human-rated data")
    return Path(folder)
