"""What becomes of a push when the Hub refuses or fails, or somebody else pushes meanwhile."""

import subprocess
from pathlib import Path

import pytest
from doubles.hub import READER, WRITER, Fault, File, HubDouble
from doubles.tiny_dataset import build_instructions
from programs import error_line, run_recipe


@pytest.fixture
def hub():
    with HubDouble() as double:
        yield double


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_instructions(tmp_path_factory.mktemp("data") / "tiny", {"stage1": 3, "test": 1})


def publish(hub: HubDouble, home: Path, *arguments: object, token: str | None = WRITER) -> subprocess.CompletedProcess:
    done = run_recipe("publish", *arguments, env=hub.environment(home, token))
    assert WRITER not in done.stdout + done.stderr
    assert ("pushed" in done.stdout) == (done.returncode == 0)
    return done


@pytest.mark.slow
def test_every_refusal_is_one_line_and_leaves_what_was_there(hub: HubDouble, dataset: Path, tmp_path: Path) -> None:
    command = ("dataset", dataset, "--repo", "org/data")
    assert "no token of the Hub" in error_line(publish(hub, tmp_path, *command, token=None))
    assert hub.requests == []
    assert "Invalid credentials" in error_line(publish(hub, tmp_path, *command, token="nonsense"))
    assert "this token only reads" in error_line(publish(hub, tmp_path, *command, token=READER))
    assert hub.repos == {}
    for status in (401, 403, 404, 409, 429, 500):
        hub.faults = [Fault("POST", "/commit/main", status)]
        line = error_line(publish(hub, tmp_path, *command))
        assert line.startswith("error: org/data: not pushed: ")
        assert str(status) in line
        assert list(hub.repos["dataset", "org/data"].files) == [".gitattributes"]
    hub.faults = [Fault("PUT", "^/lfs/", 403, times=2)]
    hub.objects.clear()
    assert "403 Forbidden" in error_line(publish(hub, tmp_path, *command))
    hub.faults = []
    assert publish(hub, tmp_path, *command).returncode == 0


def test_what_somebody_else_pushed_meanwhile_is_not_overwritten(dataset: Path, tmp_path: Path) -> None:
    class Busy(HubDouble):
        """Takes another's commit while the files of this one arrive."""

        def _object(self, wanted):
            repo = self.repos["dataset", "org/data"]
            if len(repo.revisions) == 1:
                repo.commit(repo.files | {"theirs.txt": File(b"theirs", False)}, "theirs")
            return super()._object(wanted)

    with Busy() as hub:
        line = error_line(publish(hub, tmp_path, "dataset", dataset, "--repo", "org/data"))
        assert "412 Precondition Failed" in line
        assert "the branch has moved" in line
        assert hub.repos["dataset", "org/data"].messages == ["initial commit", "theirs"]


def test_a_hub_that_is_not_there(dataset: Path, tmp_path: Path) -> None:
    with HubDouble() as hub:
        pass
    assert "refused" in error_line(publish(hub, tmp_path, "dataset", dataset, "--repo", "org/data"))
