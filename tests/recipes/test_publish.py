"""A double of the Hub with the real clients: what is pushed comes back, by its revision too, and what a failing Hub leaves."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet
import pytest
from doubles.clean_machine import load_back, unpack
from doubles.dataset_study import Study
from doubles.hub import READER, WRITER, Fault, File, HubDouble, Repo
from doubles.publishable import ABOUT, agreement, card_of, sharded, trained
from doubles.tiny_bart import build_bart, build_bert, build_roberta
from doubles.tiny_dataset import build_instructions
from doubles.tiny_model import build_tiny_model
from factories import read
from programs import ROOT, SAMPLE, error_line, flags, run_recipe, succeeded

from automedeval.models.checkpoints import fingerprint

RUBRIC = ("rubric.yaml", "automedeval.jinja", "published.json")


@pytest.fixture
def hub():
    with HubDouble() as double:
        yield double


@pytest.fixture(scope="module")
def checkpoint(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    return trained(sharded(tiny_model, folder / "sharded"), folder / "judge")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_instructions(
        tmp_path_factory.mktemp("data") / "tiny", {"stage1": 3, "stage2": 2, "test": 1}
    )


def publish(
    hub: HubDouble, home: Path, *arguments: object, token: str | None = WRITER
) -> subprocess.CompletedProcess:
    done = run_recipe("publish", *arguments, env=hub.environment(home, token))
    assert WRITER not in done.stdout + done.stderr
    assert "pushed" not in done.stdout or done.returncode == 0
    return done


def pushed(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def contents(repo: Repo) -> dict[str, bytes]:
    return {path: file.content for path, file in repo.files.items() if path != ".gitattributes"}


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
def test_what_was_pushed_comes_back_where_there_is_no_source_tree(
    hub, checkpoint, dataset, wheel, tmp_path
) -> None:
    results, space = agreement(tmp_path / "results"), "src/automedeval/metrics/rationale_score"
    done = publish(hub, tmp_path, "dataset", dataset, "--repo", "org/instructions")
    rows = hub.repos["dataset", "org/instructions"]
    assert pushed(done) == f"pushed {hub.url}/datasets/org/instructions/commit/{rows.head}"
    done = publish(
        hub, tmp_path, "model", checkpoint, "--repo", "org/judge", *ABOUT, "--agreement", results
    )
    judge = hub.repos["model", "org/judge"]
    assert pushed(done) == f"pushed {hub.url}/org/judge/commit/{judge.head}"
    # the metric as docs/publish.md says
    hf = (
        Path(sys.executable).parent / "hf",
        "upload",
        "org/rationale_score",
        space,
        "--repo-type",
        "space",
    )
    subprocess.run(
        [*hf, "--exclude", "*.pyc"], cwd=ROOT, env=hub.environment(tmp_path, WRITER), check=True
    )
    score = hub.repos["space", "org/rationale_score"]

    # one commit each, private unless said otherwise, and every byte but the cards' as it is here
    for repo, folder, public in (
        (rows, dataset, False),
        (judge, checkpoint, False),
        (score, ROOT / space, True),
    ):
        assert (len(repo.revisions), repo.private) == (2, not public)
        sent, here = (
            contents(repo),
            {path: text for path, text in files(folder).items() if "__pycache__" not in path},
        )
        rubric = {path for path in sent if path.startswith("rubric/")}
        assert rubric == ({f"rubric/{name}" for name in RUBRIC} if repo is judge else set())
        sent = {path: text for path, text in sent.items() if path not in rubric}
        assert sent.keys() == here.keys()
        assert {path for path in sent if sent[path] != here[path]} <= {"README.md"}
    assert b'load_dataset("org/instructions")' in contents(rows)["README.md"]
    assert sum(file.lfs for file in judge.files.values()) > 2

    models = build_roberta(tmp_path / "roberta"), build_bart(tmp_path / "bart")
    loaded = load_back(hub, unpack(wheel, tmp_path / "wheel"), tmp_path / "elsewhere", models)
    ((valid, scores, expected, rationale),) = loaded["verdicts"]
    assert (valid, len(scores), len(expected)) == (True, 2, 2)
    assert isinstance(rationale, str)
    assert loaded["rows"] == {
        name: pyarrow.parquet.read_table(dataset / f"{name}.parquet")["prompt_digest"].to_pylist()
        for name in ("stage1", "stage2", "test")
    }
    scores = loaded["scores"]
    different, same = scores["bert_score"]["f1"]
    assert different < 0.999 < same < 1.001
    assert all(value < 0 for value in scores["bart_score"])


def test_no_path_of_this_machine_goes_out(hub: HubDouble, tiny_model: Path, tmp_path: Path) -> None:
    home = tmp_path / "home" / "a.name"
    home.mkdir(parents=True)
    study = Study(home)
    assert study.build().returncode == 0
    pushed(publish(hub, tmp_path, "dataset", study.output, "--repo", "org/data"))
    start, record = (
        trained(tiny_model, home / "base"),
        {"arguments": {"output_dir": str(home / "judge")}},
    )
    judge = trained(tiny_model, home / "judge", start=str(start), base=str(start), **record)
    written = judge / "training" / "record.json"
    training = json.loads(written.read_text())
    training["history"][0]["dataset"] = str(home / "data")
    written.write_text(json.dumps(training))
    (judge / "adapter").mkdir()
    (judge / "adapter" / "README.md").write_text(f"---\nbase_model: {start}\n---\n")
    (judge / "adapter" / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": str(start)})
    )
    results = json.loads(agreement(home / "results").read_text())
    results["cases"]["file"] = "/home/a.name/cases.jsonl"
    (home / "agreement.json").write_text(json.dumps(results))
    command = (
        "model",
        judge,
        "--repo",
        "org/judge",
        *ABOUT,
        "--agreement",
        home / "agreement.json",
    )
    pushed(publish(hub, tmp_path, *command))
    for repo, folder in (
        (hub.repos["dataset", "org/data"], study.output),
        (hub.repos["model", "org/judge"], judge),
    ):
        sent, here = contents(repo), files(folder)
        assert any(b"a.name" in text for text in here.values())
        assert [
            path
            for path, text in sent.items()
            if b"a.name" in text or str(tmp_path).encode() in text
        ] == []
        untouched = {
            path for path, text in here.items() if b"a.name" not in text and path != "README.md"
        }
        assert all(sent[path] == here[path] for path in untouched)
    sent = contents(hub.repos["model", "org/judge"])
    record = json.loads(sent["training/record.json"])
    names = (record["start"], record["arguments"]["output_dir"], record["history"][0]["dataset"])
    assert names == ("base", "judge", "data")
    assert b"| stage1 | data, `abcdef012345` |" in sent["README.md"]
    run = json.loads(contents(hub.repos["dataset", "org/data"])["run.json"])
    assert run["arguments"]["cases"] == ["made-up=cases.jsonl"]


def test_a_dry_run_lists_every_file_with_its_size_and_sends_nothing(hub, dataset, tmp_path) -> None:
    folder = shutil.copytree(dataset, tmp_path / "data")
    for name in (".lock", "checkpoint-12/model.safetensors", ".git/config"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    done = publish(
        hub, tmp_path, "dataset", folder, "--repo", "org/a-longer-name", "--dry_run", token=None
    )
    *listed, total, last = done.stdout.splitlines()
    sizes = {path: int(size.replace(",", "")) for size, path in (line.split() for line in listed)}
    here = {name: len(text) for name, text in files(dataset).items()}
    here["README.md"] += len("org/a-longer-name") - len("tiny")
    assert sizes == here
    assert total == f"{len(here)} files, {sum(here.values()):,} bytes; 3 left out"
    assert (last, hub.requests, done.returncode) == ("dry run: nothing was sent", [], 0)


def test_the_same_push_again_adds_no_commit_and_a_changed_one_adds_one(
    hub, dataset, tmp_path
) -> None:
    folder = shutil.copytree(dataset, tmp_path / "data")
    first = pushed(publish(hub, tmp_path, "dataset", folder, "--repo", "org/data"))
    assert pushed(publish(hub, tmp_path, "dataset", folder, "--repo", "org/data")) == first
    repo, arrived = hub.repos["dataset", "org/data"], list(hub.put)
    assert (len(repo.revisions), len(arrived)) == (2, 3)

    (folder / "dropped.jsonl").write_text('{"case_id": "one"}\n')
    second = pushed(publish(hub, tmp_path, "dataset", folder, "--repo", "org/data"))
    assert second != first
    assert repo.messages[-1].startswith("Publish dataset with AutoMedEval ")
    assert (hub.put, len(repo.revisions)) == (arrived, 3)

    # what is no longer in the folder is not removed from the Hub
    (folder / "dropped.jsonl").unlink()
    line = error_line(publish(hub, tmp_path, "dataset", folder, "--repo", "org/data"))
    assert "holds what is not published: dropped.jsonl; remove it there" in line
    assert ("dropped.jsonl" in repo.files, len(repo.revisions)) == (True, 3)


def test_a_repository_keeps_its_visibility(
    hub: HubDouble, checkpoint: Path, tmp_path: Path
) -> None:
    for name, public in (("org/open", "true"), ("org/closed", "false")):
        command = ("model", checkpoint, "--repo", name, *ABOUT, "--public")
        pushed(publish(hub, tmp_path, *command, public))
        repo = hub.repos["model", name]
        assert repo.private == (public == "false")
        before, asked = dict(repo.revisions), len(hub.requests)
        other = "false" if public == "true" else "true"
        line = error_line(publish(hub, tmp_path, *command, other))
        said = {
            "true": "is public; --public true pushes there",
            "false": "is private; publish to a new",
        }
        assert f"{name}: {said[public]}" in line
        assert {method for method, _ in hub.requests[asked:]} <= {"GET", "HEAD"}
        assert (dict(repo.revisions), repo.private) == (before, public == "false")


PROGRAM = """
import json, sys
from automedeval.dataset.responses import candidate_names
from automedeval.records.rows import read_rows
from automedeval.metrics.rationale_score.rationale_score import rationale_score
from automedeval.models.checkpoints import checkpoint_folder
from automedeval.models.embeddings import Encoder
from automedeval.records import RecordError
from automedeval.records.hub_names import hub_commits

found = {"names": candidate_names(["org/judge@v1", "org/judge"])}
found["encoder"] = Encoder("org/encoder@v1", device="cpu").name
found["rows"] = [row["id"] for _, row in read_rows("org/cases@v1", "test")]
options = {"bert_model": "org/encoder@v1", "bert_num_layers": 1, "bart_model": None}
found["metric"] = rationale_score(["a dose"], ["a rash"], **options)["revisions"]
found["errors"] = []
for name in ("org/judge@v9", "org/judge@", "org/nowhere@v1"):
    try:
        checkpoint_folder(name)
    except RecordError as error:
        found["errors"].append(str(error))
try:
    list(read_rows("org/cases@v1", "train"))
except RecordError as error:
    found["split"] = str(error)
print(json.dumps(found | {"commits": hub_commits()}))
"""


class Shelf:
    """A Hub with two revisions of a checkpoint, an encoder, cases and instructions; the first of each has the tag v1."""

    def __init__(self, hub: HubDouble, folder: Path):
        self.hub, self.home, self.folder = hub, folder / "home", folder
        cases = (SAMPLE / "test_cases.jsonl").read_text(encoding="utf-8").splitlines()
        self.v1, self.main = {}, {}
        for number, commits in enumerate((self.v1, self.main)):
            place, tag = folder / str(number), None if number else "v1"
            (place / "cases").mkdir(parents=True)
            (place / "cases" / "test.jsonl").write_text(cases[number] + "\n", encoding="utf-8")
            build_tiny_model(place / "judge", seed=number)
            (build_bert if number else build_roberta)(place / "encoder")
            shutil.copytree(
                ROOT / "recipes/runs/automedeval-13b/simcse", place / "encoder", dirs_exist_ok=True
            )
            build_instructions(place / "instructions", {"stage1": 4 - number, "test": 2})
            for name in ("judge", "encoder", "cases", "instructions"):
                kind = "model" if name in ("judge", "encoder") else "dataset"
                commits[f"org/{name}"] = hub.add(kind, f"org/{name}", place / name, tag)

    def run(self, *command: object) -> subprocess.CompletedProcess:
        """Run a program whose only Hub is the double."""
        environment = self.hub.environment(self.home, token=None) | {
            "PYTHONPATH": str(ROOT / "src")
        }
        command = [sys.executable, *map(str, command)]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
        )


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    with HubDouble() as hub:
        yield Shelf(hub, tmp_path_factory.mktemp("revisions"))


@pytest.mark.parametrize("tag", ["@v1", pytest.param("", marks=pytest.mark.slow)])
def test_a_judge_and_its_cases_are_of_the_named_revision(
    shelf: Shelf, tmp_path: Path, tag: str
) -> None:
    asked = [
        "--judge",
        f"org/judge{tag}",
        "--cases",
        f"org/cases{tag}",
        "--output",
        tmp_path,
        "--max_new_tokens",
        4,
    ]
    succeeded(shelf.run("recipes/judge.py", *asked))
    commits, place = (shelf.v1, shelf.folder / "0") if tag else (shelf.main, shelf.folder / "1")
    (verdict,) = read(tmp_path / "verdicts.jsonl")
    assert verdict["judge"] == f"org/judge{tag}"
    assert verdict["checkpoint"] == fingerprint(place / "judge", [])
    assert verdict["case_id"] == json.loads((place / "cases" / "test.jsonl").read_text())["id"]
    (run,) = tmp_path.glob("run-*.json")
    expected = {f"{name}{tag}": commits[name] for name in ("org/cases", "org/judge")}
    assert json.loads(run.read_text())["revisions"] == expected


@pytest.mark.slow
def test_training_records_the_revisions_of_base_and_data(shelf: Shelf, tmp_path: Path) -> None:
    names = {"model_name_or_path": "org/judge@v1", "dataset_name": "org/instructions@v1"}
    paths = flags(**names, output_dir=tmp_path / "out")
    config = [
        "--config",
        "recipes/runs/automedeval-135m/stage1.yaml",
        "--bf16",
        "false",
        "--num_train_epochs",
        1,
    ]
    done = succeeded(shelf.run("recipes/sft.py", *config, *paths))
    assert "stage1: 4 rows" in done.stdout, "the first revision has four rows, the second has three"
    record = json.loads((tmp_path / "out" / "training" / "record.json").read_text())
    assert record["identity"]["start"] == fingerprint(shelf.folder / "0" / "judge", [])
    assert (record["base"], record["base_commit"]) == ("org/judge@v1", shelf.v1["org/judge"])
    assert record["revisions"] == {
        f"{name}@v1": shelf.v1[name] for name in ("org/instructions", "org/judge")
    }
    assert "\nbase_model: org/judge\n" in (tmp_path / "out" / "README.md").read_text()
    card = card_of(tmp_path / "out", base_model=None)
    assert "\nbase_model: org/judge\n" in card
    assert f"org/judge@v1 (commit `{shelf.v1['org/judge']}`)" in card
    done = shelf.run("recipes/sft.py", *config, *paths, "--model_revision", "v1")
    assert "model_name_or_path: ORG/NAME@REVISION" in error_line(done)


@pytest.mark.slow
def test_every_other_name_takes_a_revision(shelf: Shelf) -> None:
    done = succeeded(shelf.run("-c", PROGRAM))
    commits = json.loads(done.stdout.splitlines()[-1])
    assert commits["names"] == ["org/judge@v1", "org/judge"]
    assert commits["encoder"] == "org/encoder@v1"
    assert commits["rows"] == [
        json.loads((shelf.folder / "0" / "cases" / "test.jsonl").read_text())["id"]
    ]
    assert commits["metric"] == {"bert_model": shelf.v1["org/encoder"]}
    read = {f"org/{name}@v1": shelf.v1[f"org/{name}"] for name in ("cases", "encoder", "judge")}
    assert commits["commits"] == read | {"org/judge": shelf.main["org/judge"]}
    assert commits["split"].startswith("org/cases@v1: split 'train' cannot be read: ")
    unknown, empty, nowhere = commits["errors"]
    assert unknown.startswith("no folder 'org/judge@v9', and no download from the Hub: ")
    assert (
        empty == "org/judge@: must be ORG/NAME@REVISION, with a branch, tag or commit behind the @"
    )
    assert nowhere.startswith("no folder 'org/nowhere@v1', and no download from the Hub: ")


@pytest.mark.slow
def test_every_refusal_is_one_line_and_leaves_what_was_there(
    hub: HubDouble, dataset: Path, tmp_path: Path
) -> None:
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


def test_what_somebody_else_pushed_meanwhile_is_not_overwritten(
    dataset: Path, tmp_path: Path
) -> None:
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
