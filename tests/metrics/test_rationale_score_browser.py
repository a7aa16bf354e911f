"""The Space's page in a real browser: what a visitor types, presses and reads, on a wide screen and on a telephone's.

Gradio comes with the Space and is none of the project's libraries. The page is tried where gradio can be imported, or where
AUTOMEDEVAL_GRADIO names a folder that it was installed into (`pip install --target FOLDER gradio`); elsewhere it is skipped.
"""

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from doubles.tiny_bart import TEXTS, build_bart, build_roberta
from programs import ROOT

pytest.importorskip("evaluate", reason="the metric is a module of evaluate, which is not installed")
playwright = pytest.importorskip(
    "playwright.sync_api", reason="the browser is led by playwright, which is not installed"
)

SPACE = ROOT / "src" / "automedeval" / "metrics" / "rationale_score"
WIDTHS = {"wide": (1280, 900), "telephone": (375, 800)}
# Gradio's folder stands last: what both have is taken from where the tests take it.
START = """
import runpy, sys
sys.path[:0], sys.path[len(sys.path):] = [sys.argv[1]], sys.argv[2:]
runpy.run_path(sys.argv[1] + "/app.py", run_name="__main__")
"""
OPTIONS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def score(prediction: str, reference: str, **options: object) -> dict:
    """Return what the metric itself says."""
    from automedeval.metrics.rationale_score.rationale_score import rationale_score

    return rationale_score([prediction], [reference], **options)


@dataclass
class Visit:
    """A page that was opened, the addresses that it asked for, and what the browser complained of."""

    page: "playwright.Page"
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def compare(self, **texts: str) -> None:
        for label, text in texts.items():
            self.page.get_by_label(label, exact=True).fill(text)
        self.page.get_by_role("button", name="Compare").click()

    def says(self, words: str) -> None:
        self.page.get_by_text(words).wait_for(timeout=20_000)

    def figures(self, count: int) -> dict[str, float]:
        """Return the numbers of the table by their names, once it has so many rows."""
        self.page.locator("tbody tr").nth(count - 1).wait_for(timeout=30_000)
        rows = [row.locator("td").all_inner_texts() for row in self.page.locator("tbody tr").all()]
        assert len(rows) == count
        return {name: float(re.match(r"-?\d+\.\d{4}", value)[0]) for name, value in rows}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return the folders of a tiny RoBERTa and a tiny BART."""
    folder = tmp_path_factory.mktemp("models")
    return str(build_roberta(folder / "roberta")), str(build_bart(folder / "bart"))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start the page from a folder that holds the Space's files alone; yield its address."""
    extra = os.environ.get("AUTOMEDEVAL_GRADIO")
    if extra and not Path(extra, "gradio").is_dir():
        pytest.fail(f"AUTOMEDEVAL_GRADIO={extra}: there is no gradio in it")
    if not extra and importlib.util.find_spec("gradio") is None:
        pytest.skip("gradio is not installed, and AUTOMEDEVAL_GRADIO names no folder that holds it")
    folder = tmp_path_factory.mktemp("space")
    for name in ("app.py", "rationale_score.py"):
        shutil.copy(SPACE / name, folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = os.environ | {"GRADIO_SERVER_PORT": str(port), "GRADIO_TEMP_DIR": str(folder / "gradio")}
    environment |= {"HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1", "GRADIO_SERVER_NAME": "127.0.0.1"}
    command = [sys.executable, "-c", START, str(folder), *([extra] if extra else [])]
    with open(folder / "log", "w+", encoding="utf-8") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            for _ in range(600):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert server.poll() is None, Path(log.name).read_text(encoding="utf-8")
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()
            server.wait(timeout=20)


@pytest.fixture(scope="module")
def browser() -> Iterator["playwright.Browser"]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no chromium on this machine")
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=chromium, args=OPTIONS)
        yield launched
        launched.close()


@pytest.fixture(params=WIDTHS)
def visit(request: pytest.FixtureRequest, address: str, browser: "playwright.Browser") -> Iterator[Visit]:
    """Open the page; when the test is over, nothing may have left this machine, and the browser has no complaint."""
    width, height = WIDTHS[request.param]
    context = browser.new_context(viewport={"width": width, "height": height})
    visit = Visit(context.new_page())
    visit.page.on("request", lambda asked: visit.asked.append(asked.url))
    visit.page.on("websocket", lambda asked: visit.asked.append(asked.url))
    visit.page.on("console", lambda message: message.type == "error" and visit.complaints.append(message.text))
    visit.page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    visit.page.goto(address)
    visit.page.get_by_role("button", name="Compare").wait_for()
    yield visit
    hosts = {urlsplit(asked).netloc for asked in visit.asked if not asked.startswith(("data:", "blob:"))}
    assert hosts == {urlsplit(address).netloc}
    assert visit.complaints == []
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing to scroll for sideways"
    context.close()


def test_a_visitor_reads_the_metrics_own_numbers(visit: Visit, models: tuple[str, str]) -> None:
    visit.says("not for clinical decisions")
    visit.page.get_by_role("button", name="Models").click()
    bert, bart = models
    chosen = {"Model for BERTScore": bert, "Layer for BERTScore": "2", "Model for BARTScore": bart}
    visit.compare(Reference=TEXTS[0], Prediction=TEXTS[1], **chosen)
    figures = visit.figures(4)
    options = {"bert_model": bert, "bert_num_layers": 2, "bart_model": bart}
    expected = score(TEXTS[1], TEXTS[0], **options)
    for name, values in expected["bert_score"].items():
        assert figures.pop(f"BERTScore {name}") == pytest.approx(values[0], abs=1e-4)
    assert figures == {"BARTScore": pytest.approx(expected["bart_score"][0], abs=1e-4)}
    for cell in visit.page.locator("th, td").all():  # on a telephone too, names and values are seen without scrolling
        box = cell.bounding_box()
        assert 0 <= box["x"] < box["x"] + box["width"] <= visit.page.viewport_size["width"]

    # without BERTScore; a note says that a text is beyond the window
    long = " ".join(TEXTS)
    visit.compare(Prediction=long, **{"Model for BERTScore": ""})
    visit.says("its end was not compared")
    (value,) = score(long, TEXTS[0], bert_model=None, bart_model=bart)["bart_score"]
    assert visit.figures(1) == {"BARTScore": pytest.approx(value, abs=1e-4)}


def test_what_cannot_be_compared_is_said_plainly_and_can_be_mended(visit: Visit, models: tuple[str, str]) -> None:
    visit.compare()
    visit.says("The reference is empty.")
    visit.compare(Reference=TEXTS[0], Prediction=" \n")
    visit.says("The prediction is empty.")
    visit.page.get_by_role("button", name="Models").click()
    visit.compare(Prediction=TEXTS[1], **{"Model for BERTScore": models[0], "Model for BARTScore": ""})
    visit.says("bert_num_layers must be given")
    assert "Traceback" not in visit.page.inner_text("body")
    visit.compare(**{"Layer for BERTScore": "two"})
    visit.says("The layer must be a whole number, not 'two'.")
    visit.compare(**{"Layer for BERTScore": "2"})
    figures = visit.figures(3)
    expected = score(TEXTS[1], TEXTS[0], bert_model=models[0], bert_num_layers=2, bart_model=None)
    assert figures["BERTScore f1"] == pytest.approx(expected["bert_score"]["f1"][0], abs=1e-4)
    assert visit.page.get_by_text("No figures.").count() == 0, "the message goes when there are figures"
