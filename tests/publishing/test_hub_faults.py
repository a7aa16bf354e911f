"""What becomes of a push when the Hub refuses, fails, or the connection ends; and what a reader sees meanwhile."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from doubles.hub import READER, WRITER, Fault, File, HubDouble
from doubles.publishable import ABOUT, sharded, trained
from doubles.tiny_dataset import build_instructions
from programs import ROOT, error_line, run_recipe

READ = "import sys; from huggingface_hub import snapshot_download; print(snapshot_download('org/judge'))"


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


def test_what_passes_by_itself_is_tried_again(hub: HubDouble, dataset: Path, tmp_path: Path) -> None:
    hub.faults = [
        Fault("POST", "/preupload/", 429, headers={"Retry-After": "0"}),
        Fault("PUT", "^/lfs/", 500),
        Fault("PUT", "^/lfs/", after=1000),
    ]
    assert publish(hub, tmp_path, "dataset", dataset, "--repo", "org/data").returncode == 0
    assert all(not fault.times for fault in hub.faults)
    repo = hub.repos["dataset", "org/data"]
    assert len(repo.revisions) == 2
    for name in ("stage1.parquet", "test.parquet"):
        assert repo.files[name].content == (dataset / name).read_bytes()


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


@pytest.mark.slow
def test_killed_within_a_large_file_the_same_command_finishes_and_no_reader_sees_half(
    hub: HubDouble, tiny_model: Path, tmp_path: Path
) -> None:
    checkpoint = trained(sharded(tiny_model, tmp_path / "sharded"), tmp_path / "judge")
    command = ("model", str(checkpoint), "--repo", "org/judge", *ABOUT)

    def killed() -> None:
        """Start the push; kill it while one large file is half there and others have arrived."""
        arrived = len(hub.put)
        fault = Fault("PUT", "^/lfs/", after=1000, hold=True)
        hub.faults = [fault]
        with subprocess.Popen(
            [sys.executable, str(ROOT / "recipes" / "publish.py"), *command],
            env=hub.environment(tmp_path / "home"),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert fault.held.wait(60)
            deadline = time.monotonic() + 60
            while len(hub.put) == arrived and time.monotonic() < deadline:
                time.sleep(0.05)
            process.kill()
            assert b"pushed" not in process.stdout.read()
        assert len(hub.put) > arrived

    def read(name: str) -> dict[str, bytes]:
        """Return what a reader with an empty home gets, through a connection that ends within a large file."""
        hub.faults = [Fault("GET", r"/resolve/.*safetensors$", after=1000)]
        environment = hub.environment(tmp_path / name, READER)
        done = subprocess.run(
            [sys.executable, "-c", READ], env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        folder = Path(done.stdout.strip())
        names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        names = [name for name in names if name != ".gitattributes" and not name.startswith("rubric/")]
        return {name: (folder / name).read_bytes() for name in names}

    def here() -> dict[str, bytes]:
        names = (path.relative_to(checkpoint).as_posix() for path in checkpoint.rglob("*") if path.is_file())
        return {name: (checkpoint / name).read_bytes() for name in names if name != "README.md"}

    killed()
    assert read("before") == {}
    hub.faults = []
    assert publish(hub, tmp_path, *command).returncode == 0
    assert len(hub.put) == len(set(hub.put)) == len(list(checkpoint.glob("*.safetensors")))
    first = here()

    for shard in checkpoint.glob("*.safetensors"):  # the weights' last bytes: a new revision of every large file
        shard.write_bytes(shard.read_bytes()[:-4] + b"\0\0\0\0")
    killed()
    seen = read("between")
    card = seen.pop("README.md")
    assert seen == first
    hub.faults = []
    assert publish(hub, tmp_path, *command).returncode == 0
    assert len(hub.put) == len(set(hub.put)) == 2 * len(list(checkpoint.glob("*.safetensors")))
    seen = read("after")
    assert seen.pop("README.md") == card
    assert seen == here() != first
