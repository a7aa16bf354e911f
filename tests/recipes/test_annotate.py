"""`automedeval annotate`: a study is served, people are invited once, answers are exported, and faults are one line."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
from doubles.study_page import ANNOTATORS, Physician, write_study
from programs import ROOT, error_line, failed, free_port, run_recipe, succeeded
from tables import each_row

annotate = partial(run_recipe, "annotate")
LINK = re.compile(r"http\S+/invitation/(\S+)")


@contextmanager
def running(study: Path, port: int, *more: str) -> Iterator[str]:
    """Start the recipe as a process of its own; yield what it printed until it served, and interrupt it."""
    command = [
        sys.executable,
        "-m",
        "automedeval.cli.console",
        "annotate",
        "--study",
        study,
        "--port",
        str(port),
        *more,
    ]
    log = study.with_name("printed.log")
    with open(log, "w") as printed:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=printed, stderr=subprocess.STDOUT,
            # Whoever runs the tests in the background has them ignore it, and their children inherit that.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
    try:
        end = time.monotonic() + 120
        while "stop with Ctrl+C" not in (text := log.read_text()):
            assert process.poll() is None, text
            assert time.monotonic() < end, text
            time.sleep(0.05)
        yield text
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 1
        assert log.read_text() == text + "interrupted; the same command goes on from here\n"
    finally:
        process.kill()
        process.wait()


def test_a_study_is_served_and_goes_on_after_a_stop(tmp_path):
    study = write_study(tmp_path, ("rate",))
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    assert "no answers yet: " in annotate(study=study, export=tmp_path / "none").stdout
    with running(study, port) as printed, httpx.Client(base_url=address) as client:
        assert "cases: 2, items: 2, annotators: 3" in printed
        tokens = LINK.findall(printed)
        assert [name for name in ANNOTATORS if name in printed] == list(ANNOTATORS)
        assert len(set(tokens)) == 3
        assert all(len(token) >= 22 for token in tokens)  # 128 random bits and more
        someone = Physician(client)
        someone.sign_in(tokens[0])
        someone.post("/next")
        someone.post(someone.place(), **someone.fill())
        assert "Rate the verdict" in someone.page
        # A new link is made beside the running page, and the old one no longer works.
        link = succeeded(annotate(study=study, port=port, invite="physician-3")).stdout
        assert client.get(link.strip()).status_code == 200
        assert client.get(f"/invitation/{tokens[2]}").status_code == 404
        # The session outlives the server: its secret is kept with the answers.
        with_port_taken = annotate(study=study, port=port)
        said = error_line(with_port_taken)
        assert said.startswith(f"error: port {port} on 127.0.0.1: Address already in use")
        assert said.endswith(": choose another with --port or --host")
    database = b"".join(path.read_bytes() for path in tmp_path.glob("answers.sqlite*"))
    assert not [token for token in tokens if token.encode() in database]
    with running(study, port) as printed:
        assert not LINK.search(printed)
        assert "  physician-1 (attending): 0 done, 0 skipped, 2 to do\n" in printed
        someone.client.close()
        with httpx.Client(base_url=address, cookies=someone.client.cookies) as client:
            assert "Rate the verdict" in client.get("/tasks/1").text
    exported = succeeded(annotate(study=study, export=tmp_path / "export"))
    assert (tmp_path / "export/ratings.jsonl").read_text().count("\n") == 9
    assert "9 lines" in exported.stdout


def test_behind_https_the_cookie_travels_by_https_alone(tmp_path):
    port = free_port()
    with running(write_study(tmp_path), port, "--url", "https://rate.example.org") as printed:
        token = re.search(r"https://rate.example.org/invitation/(\S+)", printed)[1]
        answer = httpx.post(f"http://127.0.0.1:{port}/invitation/{token}")
        assert "secure" in answer.headers["set-cookie"].lower()
        assert "server" not in answer.headers


@each_row("arguments, fault")
def test_faults_are_one_line(tmp_path, arguments, fault):
    study = write_study(tmp_path)
    failed(annotate("--study", study, *arguments), fault)
