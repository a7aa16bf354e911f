"""recipes/publish.py page: the folder runs by itself, a private Docker Space holds it, and what must not go out does not."""

import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import httpx
import pytest
import yaml
from doubles.hub import HubDouble
from doubles.study_page import ANNOTATORS, Physician, write_study
from packaging.requirements import Requirement
from programs import ROOT, error_line, run_recipe

from automedeval.annotation.study import read_study

NAMES = ("--annotators_are_pseudonyms", "true")
# Hides whatever the folder's requirements do not bring along: in the container it is not there.
ONLY = """
import json, os, sys
from importlib.machinery import PathFinder
absent = set(json.loads(os.environ["ABSENT"]))
class Container:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.split(".")[0] in absent else PathFinder.find_spec(name, path, target)
    invalidate_caches, find_distributions = PathFinder.invalidate_caches, PathFinder.find_distributions
sys.meta_path[:] = [Container if finder is PathFinder else finder for finder in sys.meta_path]
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_study(tmp_path / "study")


def page(*arguments: object, **options) -> subprocess.CompletedProcess:
    return run_recipe("publish", "page", *arguments, **options)


def test_the_folder_holds_the_study_as_it_is(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "page"
    done = page(folder, "--study", study, *NAMES)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"made {folder}"
    before = read_study(study)
    hidden = study.parent.rename(tmp_path / "hidden")  # the folder needs nothing of it
    monkeypatch.chdir(folder)
    there = read_study("study.yaml")
    hidden.rename(study.parent)
    assert there.fingerprint == before.fingerprint
    assert (there.items, there.annotators) == (before.items, before.annotators)
    assert there.database == "sqlite:///state/annotation.sqlite"
    _, front, text = (folder / "README.md").read_text().split("---\n", 2)
    about = yaml.safe_load(front)
    assert (about["sdk"], about["app_port"], about["title"]) == ("docker", 7860, "Pain pills <2026>")
    assert "Keep this repository private" in text
    lines = (folder / "Dockerfile").read_text().splitlines()
    assert {"USER 1000", "EXPOSE 7860", 'CMD ["sh", "start.sh"]'} <= set(lines)
    # data of others and what judges and trains stay at home
    assert not (folder / "automedeval/sample").exists()
    assert not re.search(r"^(torch|trl|accelerate)\b", (folder / "requirements.txt").read_text(), re.M)
    # the same command again changes nothing; another's folder is left alone
    assert page(folder, "--study", study, *NAMES).returncode == 0
    (folder / "mine.txt").write_text("mine")
    assert "holds mine.txt, which is not part" in error_line(page(folder, "--study", study, *NAMES))


def test_own_rubrics_several_files_and_a_server_of_ones_own_go_along(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = ROOT / "src/automedeval/rubrics"
    shutil.copy(packaged / "packaged/automedeval.yaml", tmp_path / "own.yaml")
    (tmp_path / "automedeval.jinja").write_text((packaged / "templates/automedeval.jinja").read_text() + "{# ours #}")
    (tmp_path / "second").mkdir()
    case = json.loads((study.parent / "cases.jsonl").read_text().splitlines()[0])
    (tmp_path / "second" / "cases.jsonl").write_text(json.dumps(case | {"id": "another"}) + "\n")
    content = yaml.safe_load(study.read_text())
    content["cases"] = [content["cases"], str(tmp_path / "second" / "cases.jsonl")]
    content |= {"rubric": str(tmp_path / "own.yaml"), "database": "postgresql://page@db.example.org/study"}
    study.write_text(yaml.safe_dump(content))
    folder = tmp_path / "page"
    assert page(folder, "--study", study, *NAMES).returncode == 0
    before = read_study(study)
    monkeypatch.chdir(folder)
    there = read_study("study.yaml")
    assert there.fingerprint == before.fingerprint
    assert there.rubric.fingerprint == before.rubric.fingerprint
    assert "another" in there.cases
    assert there.database == "postgresql://page@db.example.org/study"
    assert "psycopg[binary]==" in (folder / "requirements.txt").read_text()
    assert sorted(path.name for path in (folder / "study").iterdir() if path.suffix == ".jsonl") == [
        "cases-2.jsonl", "cases.jsonl", "verdicts.jsonl",
    ]  # fmt: skip


def test_a_dry_run_lists_and_neither_writes_nor_sends(study: Path, tmp_path: Path) -> None:
    with HubDouble() as hub:
        done = page(
            tmp_path / "page", "--study", study, "--repo", "org/study", "--dry_run", *NAMES,
            env=hub.environment(tmp_path, None),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        listed = {line.split()[-1] for line in done.stdout.splitlines()[:-2]}
        assert {
            "Dockerfile",
            "study.yaml",
            "study/cases.jsonl",
            "automedeval/annotation/templates/task.html.jinja",
        } <= listed
        assert done.stdout.splitlines()[-1] == "dry run: nothing was sent"
        assert hub.requests == []
    assert not (tmp_path / "page").exists()


def test_a_private_docker_space_holds_it(study: Path, tmp_path: Path) -> None:
    created = []

    class Watched(HubDouble):
        """Keeps what a repository was asked to be."""

        def _create(self, wanted, token):
            created.append(wanted)
            return super()._create(wanted, token)

    with Watched() as hub:
        done = page("--study", study, "--repo", "org/study", *NAMES, env=hub.environment(tmp_path))
        assert done.returncode == 0, done.stderr
        space = hub.repos["space", "org/study"]
        assert done.stdout.splitlines()[-1] == f"pushed {hub.url}/spaces/org/study/commit/{space.head}"
        assert space.private
        assert [(each["type"], each["sdk"]) for each in created] == [("space", "docker")]
        assert space.files["study/cases.jsonl"].content == (study.parent / "cases.jsonl").read_bytes()
        assert b"https://org-study.hf.space" in space.files["README.md"].content


TOKEN = "hf_" + "a1B2" * 8


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "study.yaml: names annotators; if these are pseudonyms, set --annotators_are_pseudonyms true"),
        ((*NAMES, "--public", "true"), "a page must be private"),
        ((*NAMES, "--repo", "nowhere"), "--repo must be ORG/NAME"),
        ((*NAMES, "--judge", "mine"), "--judge belongs to a model, not to a page"),
    ],
)
def test_what_must_not_go_out_is_refused(study: Path, tmp_path: Path, more: tuple, message: str) -> None:
    assert message in error_line(page(tmp_path / "page", "--study", study, *more))
    assert not (tmp_path / "page").exists()


def test_keys_and_files_that_are_not_there_are_refused(study: Path, tmp_path: Path) -> None:
    folder, cases = tmp_path / "page", study.parent / "cases.jsonl"
    whole = cases.read_text()
    cases.write_text(whole.replace("headache", f"headache {TOKEN}"))
    line = error_line(page(folder, "--study", study, *NAMES))
    assert f"{cases}, line 1: looks like a Hub token" in line
    assert TOKEN not in line
    cases.write_text(whole)
    study.write_text(f"# {TOKEN}\n" + study.read_text())
    assert f"{study}, line 1: looks like a Hub token" in error_line(page(folder, "--study", study, *NAMES))
    study.write_text(study.read_text().replace("title:", "heading:"))
    assert "unknown key" in error_line(page(folder, "--study", study, *NAMES))
    assert "a page needs --study" in error_line(page(folder, *NAMES))
    assert "--repo is missing" in error_line(page("--study", study, *NAMES))
    assert "--study belongs to a page, not to a dataset" in error_line(
        run_recipe("publish", "dataset", folder, "--repo", "org/data", "--study", study)
    )
    assert not folder.exists()


def brought_along(folder: Path) -> set[str]:
    """Return the distributions that the folder's requirements install, by their normal names."""
    normal = lambda name: re.sub(r"[-_.]+", "-", name).lower()  # noqa: E731
    names, waiting = set(), [Requirement(line).name for line in (folder / "requirements.txt").read_text().splitlines()]
    while waiting:
        name = normal(waiting.pop())
        if name not in names:
            names.add(name)
            needed = [Requirement(each) for each in requires(name) or ()]
            waiting += [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    return names


@pytest.mark.slow
def test_the_folder_serves_the_study_with_its_own_libraries_and_code_alone(study: Path, tmp_path: Path) -> None:
    folder, data, site = tmp_path / "page", tmp_path / "data", tmp_path / "site"
    assert page(folder, "--study", study, *NAMES).returncode == 0
    there = brought_along(folder)
    names = packages_distributions()
    absent = [
        name for name, held in names.items() if not {re.sub(r"[-_.]+", "-", each).lower() for each in held} & there
    ]
    assert {"torch", "accelerate", "openai", "sklearn"} <= set(absent)
    absent = [name for name in absent if name not in ("automedeval", "_virtualenv", "sitecustomize")]
    site.mkdir()
    (site / "sitecustomize.py").write_text(ONLY)
    data.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(site), "PORT": str(port),
        "ABSENT": json.dumps(absent), "DATA": str(data), "AUTOMEDEVAL_COORDINATOR_PASSWORD": "correct horse battery",
        "HOME": str(tmp_path), "URL": f"http://127.0.0.1:{port}",
    }  # fmt: skip
    # From elsewhere, and under a name that no checkout lends it.
    server = subprocess.Popen(
        ["sh", str(folder / "start.sh")], env=environment, cwd=tmp_path, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        printed = ""
        while "stop with" not in printed:
            line = server.stdout.readline()
            assert line, printed
            printed += line
        links = re.findall(rf"(http://127.0.0.1:{port})/invitation/(\S+)", printed)
        assert len(links) == len(ANNOTATORS)
        for _ in range(100):
            try:
                httpx.get(links[0][0])
                break
            except httpx.ConnectError:
                time.sleep(0.1)
        with httpx.Client(base_url=links[0][0], timeout=30) as client:
            physician = Physician(client)
            assert physician.sign_in(links[0][1]).status_code == 200
            physician.post("/next")
            assert physician.post(physician.place(), **physician.fill()).status_code == 200
        with httpx.Client(base_url=links[0][0], timeout=60) as client:
            coordinator = Physician(client)
            coordinator.get("/coordinator/login")
            coordinator.post("/coordinator/login", password="correct horse battery")
            assert "How the study goes" in coordinator.page
            with zipfile.ZipFile(io.BytesIO(client.get("/coordinator/export.zip").content)) as archive:
                assert archive.read("ratings.jsonl").count(b"\n") == 9
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)
    assert (data / "annotation.sqlite").stat().st_size > 0
    assert (folder / "state").resolve() == data


def test_without_a_place_that_lasts_it_says_that_answers_will_be_lost(study: Path, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    assert page(folder, "--study", study, *NAMES).returncode == 0
    (tmp_path / "python").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "python").chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "DATA": str(tmp_path / "nowhere"),
        "SPACE_HOST": "o-s.hf.space",
    }
    done = subprocess.run(["sh", folder / "start.sh"], env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert "the answers are lost" in done.stderr
    assert done.stdout.split() == [
        "annotate.py", "--study", "study.yaml", "--host", "0.0.0.0", "--port", "7860", "--proxies", "1", "--url",
        "https://o-s.hf.space",
    ]  # fmt: skip
    assert (folder / "state").is_dir()
