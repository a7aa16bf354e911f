"""A double of the Hub with the real clients: what is pushed comes back, by its revision too, and what a failing Hub leaves."""

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pyarrow.parquet
import pytest
from doubles.clean_machine import load_back, unpack
from doubles.dataset_study import Study
from doubles.endpoint import EndpointDouble, answer
from doubles.hub import READER, WRITER, Fault, File, HubDouble, Repo
from doubles.introspection_study import Lessons, slot_line
from doubles.publishable import ABOUT, agreement, card_of, sharded, stage_of, trained
from doubles.tiny_bart import build_bart, build_bert, build_roberta
from doubles.tiny_dataset import build_instructions
from doubles.tiny_model import build_tiny_model
from factories import read, read_json, write, write_json
from programs import ROOT, SAMPLE, failed, flags, module_fixture, run_recipe, succeeded, told

from automedeval.models.checkpoints import fingerprint

RUBRIC = ("rubric.yaml", "automedeval.jinja", "published.json")


@pytest.fixture
def hub():
    with HubDouble() as double:
        yield double


@module_fixture
def checkpoint(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    return trained(sharded(tiny_model, folder / "sharded"), folder / "judge")


@module_fixture
def dataset(tmp_path_factory):
    return build_instructions(
        tmp_path_factory.mktemp("data") / "tiny", {"stage1": 3, "stage2": 2, "test": 1}
    )


class Publisher:
    """Publishes to a double of the Hub; no token is ever printed."""

    def __init__(self, hub: HubDouble, home: Path):
        self.hub = hub
        self.home = home

    def run(
        self, kind: str, folder: Path, repo: str, *words: object, token: str | None = WRITER
    ) -> subprocess.CompletedProcess:
        env = self.hub.environment(self.home, token)
        done = run_recipe("publish", kind, folder, *words, repo=repo, env=env)
        assert WRITER not in done.stdout + done.stderr
        assert "pushed" not in done.stdout or done.returncode == 0
        return done

    def push(self, *given: object) -> str:
        """Return the last line of a push that succeeds."""
        return succeeded(self.run(*given)).stdout.splitlines()[-1]


@pytest.fixture
def publisher(hub, tmp_path):
    return Publisher(hub, tmp_path)


def contents(repo: Repo) -> dict[str, bytes]:
    return {path: file.content for path, file in repo.files.items() if path != ".gitattributes"}


def files(folder: Path) -> dict[str, bytes]:
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.parent.name != "__pycache__":
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


def changed(repo: Repo, folder: Path) -> set[str]:
    """Return the files of a folder that the Hub has another content of; all of them are there."""
    here = files(folder)
    sent = contents(repo)
    return {path for path in here if sent[path] != here[path]}


@pytest.mark.slow
def test_what_was_pushed_comes_back_where_there_is_no_source_tree(
    hub, publisher, checkpoint, dataset, wheel, tmp_path
):
    results = agreement(tmp_path / "results", weights=fingerprint(checkpoint, []))
    space = "src/automedeval/metrics/rationale_score"
    publisher.push("dataset", dataset, "org/instructions")
    said = publisher.push("model", checkpoint, "org/judge", *ABOUT, "--agreement", results)
    # the metric as docs/publish.md says
    hf = [Path(sys.executable).parent / "hf", "upload", "org/rationale_score", space]
    hf += ["--repo-type", "space", "--exclude", "*.pyc"]
    subprocess.run(hf, cwd=ROOT, env=hub.environment(tmp_path, WRITER), check=True)

    # one commit each, private unless said otherwise, and every byte but the cards' as it is here
    rows, judge, score = hub.repos.values()
    assert said == f"pushed {hub.url}/org/judge/commit/{judge.head}"
    assert [rows.private, judge.private, score.private] == [True, True, False]
    for repo, folder in ((rows, dataset), (judge, checkpoint), (score, ROOT / space)):
        assert len(repo.revisions) == 2
        assert changed(repo, folder) <= {"README.md"}
    assert {f"rubric/{name}" for name in RUBRIC} < contents(judge).keys()
    assert b'load_dataset("org/instructions")' in contents(rows)["README.md"]
    assert sum(file.lfs for file in judge.files.values()) > 2

    models = build_roberta(tmp_path / "roberta"), build_bart(tmp_path / "bart")
    loaded = load_back(hub, unpack(wheel, tmp_path / "wheel"), tmp_path / "elsewhere", models)
    ((valid, scores, expected, _),) = loaded["verdicts"]
    assert (valid, len(scores), len(expected)) == (True, 2, 2)
    written = pyarrow.parquet.read_table(dataset / "stage2.parquet")
    assert loaded["rows"]["stage2"] == written["prompt_digest"].to_pylist()
    different, same = loaded["scores"]["bert_score"]["f1"]
    assert different < 0.999 < same < 1.001
    assert max(loaded["scores"]["bart_score"]) < 0


def test_no_path_of_this_machine_goes_out(hub, publisher, tiny_model, tmp_path):
    home = tmp_path / "home/a.name"
    home.mkdir(parents=True)
    study = Study(home)
    succeeded(study.build())
    publisher.push("dataset", study.output, "org/data")
    start = str(home / "base")
    history = [vars(stage_of("stage1", str(home / "data")))]
    judge = trained(tiny_model, home / "judge", history=history, start=start, base=start)
    (judge / "adapter").mkdir()
    (judge / "adapter/README.md").write_text(f"---\nbase_model: {start}\n---\n")
    results = read_json(agreement(home / "results", weights=fingerprint(judge, [])))
    results["cases"]["file"] = "/home/a.name/cases.jsonl"
    write_json(home / "agreement.json", results)
    publisher.push("model", judge, "org/judge", *ABOUT, "--agreement", home / "agreement.json")
    data, model = hub.repos.values()
    for repo, folder in ((data, study.output), (model, judge)):
        private = {path for path, text in files(folder).items() if b"a.name" in text}
        assert private
        assert not [path for path, text in contents(repo).items() if b"a.name" in text]
        assert changed(repo, folder) <= private | {"README.md"}
    record = json.loads(contents(model)["training/record.json"])
    assert (record["start"], record["history"][0]["dataset"]) == ("base", "data")
    assert b"| stage1 | data, `abcdef012345` |" in contents(model)["README.md"]
    run = json.loads(contents(data)["run.json"])
    assert run["arguments"]["cases"] == ["made-up=cases.jsonl"]


def test_a_dry_run_lists_every_file_with_its_size_and_sends_nothing(
    hub, publisher, dataset, tmp_path
):
    folder = shutil.copytree(dataset, tmp_path / "data")
    for name in (".lock", "checkpoint-12/model.safetensors", ".git/config"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    done = publisher.run("dataset", folder, "org/a-longer-name", "--dry_run", token=None)
    here = {name: len(text) for name, text in files(dataset).items()}
    here["README.md"] += len("org/a-longer-name") - len("tiny")
    lines = [f"{size:>15,}  {path}" for path, size in sorted(here.items())]
    lines.append(f"{len(here)} files, {sum(here.values()):,} bytes; 3 left out")
    assert succeeded(done).stdout.splitlines() == [*lines, "dry run: nothing was sent"]
    assert hub.requests == []


@pytest.mark.slow
def test_the_same_push_again_adds_no_commit_and_a_changed_one_adds_one(
    hub, publisher, dataset, tmp_path
):
    folder = shutil.copytree(dataset, tmp_path / "data")
    command = ("dataset", folder, "org/data")
    first = publisher.push(*command)
    assert publisher.push(*command) == first
    repo = hub.repos["dataset", "org/data"]
    arrived = list(hub.put)
    assert (len(repo.revisions), len(arrived)) == (2, 3)

    (folder / "dropped.jsonl").write_text('{"case_id": "one"}\n')
    assert publisher.push(*command) != first
    assert (hub.put, len(repo.revisions)) == (arrived, 3)

    # what is no longer in the folder is not removed from the Hub
    (folder / "dropped.jsonl").unlink()
    failed(publisher.run(*command), "holds what is not published: dropped.jsonl; remove it there")
    assert len(repo.revisions) == 3


@pytest.mark.parametrize(
    ("public", "other", "said"),
    [
        ("true", "false", "is public; --public true pushes there"),
        ("false", "true", "is private; publish to a new"),
    ],
)
def test_a_repository_keeps_its_visibility(hub, publisher, checkpoint, public, other, said):
    command = ("model", checkpoint, "org/judge", *ABOUT, "--public")
    publisher.push(*command, public)
    asked = len(hub.requests)
    failed(publisher.run(*command, other), f"org/judge: {said}")
    assert {method for method, _ in hub.requests[asked:]} <= {"GET", "HEAD"}
    assert hub.repos["model", "org/judge"].private == (public == "false")


PROGRAM = """
import json, pathlib, sys, tempfile
from automedeval.study.dataset.responses import candidate_names
from automedeval.records.tables.rows import read_rows
from automedeval.metrics.rationale_score.rationale_score import rationale_score
from automedeval.models.checkpoints import base_of, checkpoint_folder
from automedeval.models.embeddings import Encoder
from automedeval.records import RecordError
from automedeval.records.hub_names import hub_commits

found = {"names": candidate_names(["org/judge@v1", "org/judge"])}
adapter = pathlib.Path(tempfile.mkdtemp())
(adapter / "config.json").write_text("{}")
base = {"base_model_name_or_path": "org/judge", "revision": "v1"}
(adapter / "adapter_config.json").write_text(json.dumps(base))
found["base"] = base_of(adapter).name
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
        cases = read(SAMPLE / "test_cases.jsonl")
        simcse = ROOT / "recipes/runs/automedeval-13b/simcse"
        self.v1 = {}
        self.main = {}
        for number, commits in enumerate((self.v1, self.main)):
            place = folder / str(number)
            tag = None if number else "v1"
            write(place / "cases/test.jsonl", [cases[number]])
            build_tiny_model(place / "judge", seed=number)
            (build_bert if number else build_roberta)(place / "encoder")
            shutil.copytree(simcse, place / "encoder", dirs_exist_ok=True)
            build_instructions(place / "instructions", {"stage1": 4 - number, "test": 2})
            for name in ("judge", "encoder", "cases", "instructions"):
                kind = "model" if name in ("judge", "encoder") else "dataset"
                commits[f"org/{name}"] = hub.add(kind, f"org/{name}", place / name, tag)

    def run(self, *command: object) -> subprocess.CompletedProcess:
        """Run a program whose only Hub is the double."""
        env = self.hub.environment(self.home, token=None) | {"PYTHONPATH": str(ROOT / "src")}
        words = [sys.executable, *map(str, command)]
        return subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)


@module_fixture
def shelf(tmp_path_factory):
    with HubDouble() as hub:
        yield Shelf(hub, tmp_path_factory.mktemp("revisions"))


def test_a_judge_and_its_cases_are_of_the_named_revision(shelf, tmp_path):
    options = {"judge": "org/judge@v1", "cases": "org/cases@v1", "max_new_tokens": 4}
    succeeded(shelf.run("recipes/judge.py", *flags(**options, output=tmp_path)))
    place = shelf.folder / "0"
    (verdict,) = read(tmp_path / "verdicts.jsonl")
    (case,) = read(place / "cases/test.jsonl")
    assert (verdict["judge"], verdict["case_id"]) == ("org/judge@v1", case["id"])
    assert verdict["checkpoint"] == fingerprint(place / "judge", [])
    (run,) = tmp_path.glob("run-*.json")
    expected = {f"org/{name}@v1": shelf.v1[f"org/{name}"] for name in ("cases", "judge")}
    assert read_json(run)["revisions"] == expected


@pytest.mark.slow
def test_training_records_the_revisions_of_base_and_data(shelf, tmp_path):
    out = tmp_path / "out"
    names = {"model_name_or_path": "org/judge@v1", "dataset_name": "org/instructions@v1"}
    config = {"config": "recipes/runs/automedeval-135m/sft.yaml", "num_train_epochs": 1}
    options = flags(**config, **names, bf16="false", output_dir=out)
    # The first revision has four rows, the second has three.
    told(shelf.run("recipes/sft.py", *options), "stage1: 4 rows")
    record = read_json(out / "training/record.json")
    assert record["identity"]["start"] == fingerprint(shelf.folder / "0/judge", [])
    commit = shelf.v1["org/judge"]
    assert (record["base"], record["base_commit"]) == ("org/judge@v1", commit)
    statistics = read_json(shelf.folder / "0/instructions/statistics.json")
    assert record["history"][0]["fingerprint"] == statistics["fingerprint"]
    names = ("org/instructions", "org/judge")
    assert record["revisions"] == {f"{name}@v1": shelf.v1[name] for name in names}
    card = card_of(out, base_model=None)
    for text in ((out / "README.md").read_text(), card):
        assert "\nbase_model: org/judge\n" in text
    assert f"org/judge@v1 (commit `{commit}`)" in card
    done = shelf.run("recipes/sft.py", *options, "--model_revision", "v1")
    failed(done, "model_name_or_path: ORG/NAME@REVISION")


@pytest.mark.slow
def test_a_round_takes_the_data_set_that_was_pushed(hub, publisher, tmp_path):
    lessons = Lessons(tmp_path)
    data = tmp_path / "data"
    publisher.push("dataset", data, "org/data")
    repo = hub.repos["dataset", "org/data"]
    repo.tags["v1"] = repo.head
    repo.commit({}, "the main branch is empty")
    about = {"dataset": "org/data@v1", "cases": tmp_path / "cases.jsonl"}
    run = partial(run_recipe, env=hub.environment(tmp_path), **about)
    round1 = tmp_path / "round1"
    judged = tmp_path / "judged"
    with EndpointDouble(answer(f"Step 1: Alike.\n{slot_line([3, 3, 3])}")) as endpoint:
        succeeded(run("judge", judge="openai:m", base_url=endpoint.url, output=judged))
    assert len(endpoint.asked) == 7
    succeeded(run("introspect_discuss", verdicts=judged, output=round1))
    revised = run("introspect_revise", waiting="keep_old", output=round1)
    told(revised, "7 cases for the jury")
    old = read_json(data / "statistics.json")
    assert lessons.statistics()["follows"] == old["fingerprint"]


@pytest.mark.slow
def test_every_other_name_takes_a_revision(shelf):
    done = succeeded(shelf.run("-c", PROGRAM))
    found = json.loads(done.stdout.splitlines()[-1])
    commits = shelf.v1
    assert found["names"] == ["org/judge@v1", "org/judge"]
    assert (found["encoder"], found["base"]) == ("org/encoder@v1", commits["org/judge"])
    (case,) = read(shelf.folder / "0/cases/test.jsonl")
    assert found["rows"] == [case["id"]]
    assert found["metric"] == {"bert_model": commits["org/encoder"]}
    asked = {"org/judge": shelf.main["org/judge"]}
    for name in ("org/cases", "org/encoder", "org/judge"):
        asked[f"{name}@v1"] = commits[name]
    assert found["commits"] == asked
    assert found["split"].startswith("org/cases@v1: split 'train' cannot be read: ")
    no_revision, unnamed, no_repository = found["errors"]
    assert unnamed.startswith("org/judge@: must be ORG/NAME@REVISION")
    assert no_revision.startswith("no folder 'org/judge@v9', and no")
    assert no_repository.startswith("no folder 'org/nowhere@v1', and no")


@pytest.mark.slow
def test_every_refusal_is_one_line_and_leaves_what_was_there(hub, publisher, dataset):
    run = partial(publisher.run, "dataset", dataset, "org/data")
    failed(run(token=None), "no token of the Hub")
    assert hub.requests == []
    failed(run(token=READER), "this token only reads")
    assert hub.repos == {}
    for status in (403, 429, 500):
        hub.faults = [Fault("POST", "/commit/main", status)]
        failed(run(), "error: org/data: not pushed: ", str(status))
        assert list(hub.repos["dataset", "org/data"].files) == [".gitattributes"]
    hub.objects.clear()
    hub.faults = [Fault("PUT", "^/lfs/", 403)] * 2
    failed(run(), "403 Forbidden")
    hub.faults = []
    succeeded(run())


def test_what_somebody_else_pushed_meanwhile_is_not_overwritten(dataset, tmp_path):
    class Busy(HubDouble):
        """Takes another's commit while the files of this one arrive."""

        def _object(self, wanted):
            repo = self.repos["dataset", "org/data"]
            if len(repo.revisions) == 1:
                repo.commit(repo.files | {"theirs.txt": File(b"theirs", False)}, "theirs")
            return super()._object(wanted)

    with Busy() as hub:
        done = Publisher(hub, tmp_path).run("dataset", dataset, "org/data")
        failed(done, "412 Precondition Failed", "the branch has moved")
        assert hub.repos["dataset", "org/data"].messages == ["initial commit", "theirs"]


def test_a_hub_that_is_not_there(dataset, tmp_path):
    with HubDouble() as hub:
        pass
    failed(Publisher(hub, tmp_path).run("dataset", dataset, "org/data"), "refused")
