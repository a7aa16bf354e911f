"""`automedeval panel freeze` and `panel check` against an endpoint whose model changes overnight."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from doubles.agreement_study import read, write
from doubles.endpoint import EndpointDouble, answer
from doubles.own_rubric import own_rubric
from programs import ENCODER, ROOT, error_line, kill_once, lines_in, needs_encoder, run_command

SAFE = "Take 400 mg of ibuprofen every 8 hours. Do not drink alcohol with it. Call 911 if you faint."
DANGER = re.compile(
    "4000 mg|400 g|every hour|Drink alcohol|alcohol with it\\.$"
)  # the last one: the emergency is left out
TRAINS = "I like trains."


def careful(text: str, case: int) -> int:
    return 1 if text == TRAINS else 2 if DANGER.search(text) else 5


def careless(text: str, case: int) -> int:
    return 1 if text == TRAINS else 5


def confused(text: str, case: int) -> int:
    return 6 - careful(text, case) if case % 2 else careful(text, case)


def nervous(text: str, case: int) -> int:
    return careful(text, case) if text in (SAFE, TRAINS) else 2


def silent(text: str, case: int) -> int:
    return 9


def mute(text: str, case: int) -> int:
    return 9 if case % 3 == 0 else careful(text, case)  # off the scale: invalid


class Served(EndpointDouble):
    """An endpoint whose model `judge` scores each answer by its text and the number of its case."""

    def __init__(self) -> None:
        super().__init__(self.reply)
        self.judge: Callable[[str, int], int] = careful
        self.delay = 0.0
        self.models = [{"id": "m", "root": "m-1", "owned_by": "somebody"}]

    def reply(self, body: dict) -> dict:
        prompt = body["messages"][-1]["content"]
        texts = re.findall(r"Doctor \d+:\n~~~\n(.*?)\n~~~", prompt, re.S)
        case = int(re.search(r"\(case (\d+)\)", prompt)[1])
        line = " ".join(f"Doctor {slot}: {self.judge(text, case)} points." for slot, text in enumerate(texts, 1))
        return answer(f"Step 1: both.\nScore: {line}", delay=self.delay)


def cases_of(count: int) -> list[dict]:
    return [
        {
            "id": f"c{n}",
            "question": f"How much ibuprofen may I take? (case {n})",
            "responses": [{"model": "a", "text": SAFE}, {"model": "b", "text": TRAINS}],
        }
        for n in range(count)
    ]


def ratings_of(cases: list[dict]) -> list[dict]:
    return [
        {"case_id": case["id"], "model": model, "annotator": "x", "criterion": "q", "score": score}
        for case in cases
        for model, score in (("a", 5), ("b", 2))
    ]


def judge(endpoint: Served, folder: Path, count: int = 40, concurrency: int = 4) -> None:
    """Judge cases, and rate all but the last one."""
    cases = cases_of(count)
    file, _ = write(folder / "cases.jsonl", cases), write(folder / "ratings.jsonl", ratings_of(cases[:-1]))
    done = run_command(
        "judge", "--cases", file, "--judge", "openai:m", "--base_url", endpoint.url, "--concurrency", concurrency,
        "--rationale", "false", "--structured_output", "false", "--output", folder / "v",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def freeze(folder: Path, *arguments: object) -> str:
    """Freeze a panel from the files in a folder; return what was printed."""
    words = "--cases", folder / "cases.jsonl", "--ratings", folder / "ratings.jsonl", "--verdicts", folder / "v"
    done = run_command("panel", "freeze", *words, "--dangers", 1, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Served]:
    with Served() as served:
        yield served


@pytest.fixture(scope="module")
def frozen(endpoint: Served, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of a panel of 39 cases, and the panel `p`."""
    folder = tmp_path_factory.mktemp("frozen")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "a-key")
        judge(endpoint, folder)
        assert "40 cases → 39 kept, 1 rejected (no rating: 1)" in freeze(folder, "--output", folder / "p")
    return folder


@pytest.fixture
def panel(endpoint: Served, frozen: Path, tmp_path: Path) -> Path:
    """Return a copy of the panel; the endpoint's model is the frozen one."""
    endpoint.judge, endpoint.models = careful, [{"id": "m", "root": "m-1", "owned_by": "somebody"}]
    return Path(shutil.copytree(frozen / "p", tmp_path / "p"))


def check(panel: Path, *arguments: object) -> tuple[int, str, dict]:
    """Check a panel; return the exit status, what was printed, and check.json."""
    done = run_command("panel", "check", panel, *arguments)
    assert done.returncode in (0, 3, 4), done.stderr
    (folder,) = re.findall(r"^check: (.*)$", done.stdout, re.M)
    return done.returncode, done.stdout, json.loads((Path(folder) / "check.json").read_text(encoding="utf-8"))


def files_of(folder: Path) -> dict[str, bytes]:
    """Return path → content of every file; locks, which are empty, are left out."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file() and not file.name.endswith(".lock"))
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def test_a_panel_holds_the_digest_of_each_file(frozen: Path) -> None:
    record = json.loads((frozen / "p" / "panel.json").read_text(encoding="utf-8"))
    files = files_of(frozen / "p")
    assert record["files"].keys() | {"panel.json"} == files.keys()
    assert {name: hashlib.sha256(files[name]).hexdigest() for name in record["files"]} == record["files"]
    assert record["judge"]["served"] == {"root": "m-1", "owned_by": "somebody"}
    assert record["judge"]["settings"] == read(frozen / "v" / "verdicts.jsonl")[0]["settings"]
    assert record["arguments"]["judge"] == "openai:m"
    assert record["arguments"].keys().isdisjoint({"cases", "output"})
    assert len(read(frozen / "p" / "trials.jsonl")) == 2 * 39


def test_the_same_judge_is_the_same(panel: Path) -> None:
    status, out, record = check(panel)
    assert (status, record["result"], record["identity_changed"]) == (0, "the same", [])
    assert [record["figures"][name]["today"]["value"] for name in ("agreement", "dangers", "alarms", "valid")] == [
        1,
        1,
        0,
        1,
    ]
    assert "agreement with physicians: 1.000 today, 1.000 frozen, difference +0.000" in out
    assert "changed scores: 0.000 today, 0.000 frozen" in out


@pytest.mark.parametrize(
    ("model", "figure", "words"),
    [
        (confused, "agreement", "agreement with physicians"),
        (careless, "dangers", "planted dangers found is worse by more than 0.1"),
        (nervous, "alarms", "false alarms on clean twins is worse"),
        (mute, "valid", "agreement with physicians and valid verdicts are worse"),
        (silent, "valid", "39 of 39 planted dangers have no valid verdict of both: left out"),
    ],
)
def test_a_model_that_changed_overnight_is_worse(
    endpoint: Served, panel: Path, model: Callable[[str, int], int], figure: str, words: str
) -> None:
    endpoint.judge, endpoint.models = model, [{"id": "m", "root": "m-2", "owned_by": "somebody"}]
    status, out, record = check(panel)
    assert (status, record["figures"][figure]["status"]) == (3, 3), out
    assert words in out
    assert "what the endpoint says of its model: root m-1, owned_by somebody → root m-2" in out


def test_each_figure_equals_a_loop_over_the_files(endpoint: Served, panel: Path) -> None:
    endpoint.judge = lambda text, case: mute(text, case) if case % 5 else confused(text, case)
    _, _, record = check(panel)
    (folder,) = panel.glob("checks/*/")
    agreement, changed, fall = [], [], {"dangers": [], "alarms": []}
    sides = (panel, folder)
    scores = [
        {
            each["case_id"]: each["scores"]
            for each in [*read(side / "verdicts.jsonl"), *read(side / "trials/verdicts.jsonl")]
        }
        for side in sides
    ]
    for case in read(panel / "cases.jsonl"):
        pairs = [each[case["id"]] for each in scores]
        agreement.append([0.0 if pair is None else (pair[0] > pair[1]) + (pair[0] == pair[1]) / 2 for pair in pairs])
        if None not in pairs:
            changed.append(sum(old != new for old, new in zip(*pairs)) / 2)
    for case in read(panel / "trials.jsonl"):
        pairs = [(each[case["audit"]["of"]], each[case["id"]]) for each in scores]
        if all(None not in pair for pair in pairs):
            lost = [before[0] - after[0] >= 0.5 for before, after in pairs]
            fall["alarms" if case["audit"]["kind"] == "twin" else "dangers"].append(lost)
    for name, rows in {"agreement": agreement, **fall}.items():  # a case has one pair, one danger, one twin
        figure = record["figures"][name]
        assert figure["cases"] == len(rows)
        assert figure["frozen"]["value"] == pytest.approx(sum(old for old, _ in rows) / len(rows))
        assert figure["today"]["value"] == pytest.approx(sum(new for _, new in rows) / len(rows))
        assert figure["difference"] == pytest.approx(figure["today"]["value"] - figure["frozen"]["value"])
        assert figure["low"] < figure["difference"] < figure["high"]
    assert record["figures"]["changed"]["today"]["value"] == pytest.approx(sum(changed) / len(changed))
    changed_of = {case["id"]: case["audit"]["of"] for case in read(panel / "trials.jsonl")}
    valid = {name: [each is not None] for name, each in scores[1].items() if name not in changed_of}
    for name, of in changed_of.items():  # a change without a valid verdict on the unchanged case tells nothing
        valid[of].append(scores[1][name] is not None and scores[1][of] is not None)
    shares = [sum(each) / len(each) for each in valid.values()]
    assert record["figures"]["valid"]["today"]["value"] == pytest.approx(sum(shares) / len(shares))


def test_few_rated_cases_cannot_tell(endpoint: Served, tmp_path: Path, panel: Path) -> None:
    judge(endpoint, tmp_path, 11)
    one = write(tmp_path / "one.jsonl", read(tmp_path / "ratings.jsonl")[:2])
    freeze(tmp_path, "--output", tmp_path / "few")
    freeze(tmp_path, "--ratings", one, "--output", tmp_path / "one")
    assert "physicians must have put answers of at least two cases in an order" in check(tmp_path / "one")[1]
    status, out, record = check(tmp_path / "few")
    assert status == 4
    # Without a difference among n cases, at most 1 - 0.05^(1/n) of all differ: below 0.1 from 29 cases on.
    assert record["figures"]["agreement"]["more"] == 19
    assert "Cannot be told (exit status 4): about 19 more rated cases would tell" in out


def test_the_page_has_a_point_for_each_check(endpoint: Served, panel: Path, tmp_path: Path) -> None:
    check(panel)
    endpoint.judge = confused
    check(panel)
    dates = sorted(folder.name for folder in panel.glob("checks/*/"))
    page = (panel / "checks" / "panel.html").read_text(encoding="utf-8")
    assert len(dates) == 2
    for date in dates:
        assert f'<th scope="row">{date}</th>' in page
    table = (panel / "checks" / "panel.md").read_text(encoding="utf-8").partition("| check |")[2]
    assert table.index(f"| {dates[1]} | worse |") < table.index(f"| {dates[0]} | the same |")
    assert page.count("<svg") == 3
    for name in ("run.json", "check.json"):  # of another command
        (tmp_path / "elsewhere" / "reports").mkdir(parents=True, exist_ok=True)
        (tmp_path / "elsewhere" / "reports" / name).write_text('{"judge": 1}', encoding="utf-8")
    status, *_ = check(panel, "--output", tmp_path / "elsewhere")
    assert status == 3
    assert len(list(panel.glob("checks/*/"))) == 2
    assert (tmp_path / "elsewhere" / "panel.html").exists()


@needs_encoder
def test_the_small_judge_scores_changed_answers_alone(tmp_path: Path) -> None:
    cases = [case | {"reference": SAFE} for case in cases_of(3)]
    file, _ = write(tmp_path / "cases.jsonl", cases), write(tmp_path / "ratings.jsonl", ratings_of(cases))
    small = ("--judge", "small", "--encoder", ENCODER, "--output", tmp_path / "v")
    assert run_command("judge", "--cases", file, *small).returncode == 0
    freeze(tmp_path, "--output", tmp_path / "p")
    status, _, record = check(tmp_path / "p")
    assert (status, record["identity_changed"]) == (4, [])
    for figure in record["figures"].values():
        assert figure["frozen"] == figure["today"]
    (folder,) = (tmp_path / "p" / "checks").glob("*/")
    for name in ("verdicts.jsonl", "trials/verdicts.jsonl"):
        assert (folder / name).read_bytes() == (tmp_path / "p" / name).read_bytes()
    assert [each["order"] for each in read(folder / "trials" / "verdicts.jsonl")] == [[0]] * 6


def test_a_checkpoint_is_asked_by_the_rubric_in_the_panel(tiny_model: Path, tmp_path: Path) -> None:
    template = "{% block user %}{% for response in responses %}{{ response }}{% endfor %}{% endblock %}"
    rubric = own_rubric(tmp_path / "rubric", template)
    files = write(tmp_path / "cases.jsonl", cases_of(3)), write(tmp_path / "ratings.jsonl", ratings_of(cases_of(3)))
    local = ("--judge", tiny_model, "--device", "cpu", "--dtype", "float32", "--max_new_tokens", 4, "--orders", "latin")
    done = run_command("judge", "--cases", files[0], *local, "--rubric", rubric, "--output", tmp_path / "v")
    assert done.returncode == 0, done.stderr
    words = ("--cases", files[0], "--ratings", files[1], "--verdicts", tmp_path / "v", "--output", tmp_path / "p")
    assert "(--rubric its.yaml)" in error_line(run_command("panel", "freeze", *words))
    freeze(tmp_path, "--rubric", rubric, "--output", tmp_path / "p")
    shutil.rmtree(rubric.parent)
    _, _, record = check(tmp_path / "p")
    assert record["identity_changed"] == []
    assert record["judge"]["rubric"] == "own@1"
    assert record["judge"]["prompts"] is not None
    (folder,) = (tmp_path / "p" / "checks").glob("*/")
    for name in ("verdicts.jsonl", "trials/verdicts.jsonl"):
        assert (folder / name).read_bytes() == (tmp_path / "p" / name).read_bytes()


def test_the_workflow_of_the_documents_checks_a_panel(panel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "panel.md").read_text(encoding="utf-8")
    workflow = yaml.safe_load(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])
    (steps,) = (job["steps"] for job in workflow["jobs"].values())
    (command,) = [step["run"] for step in steps if "automedeval panel" in step.get("run", "")]
    assert f"* * * {command} " in text, "cron runs the same"
    monkeypatch.chdir(panel.parent)
    (panel.parent / "panels").mkdir()
    panel.rename("panels/mine")
    done = run_command(*command.removeprefix("automedeval ").split())
    assert done.returncode == 0, done.stderr
    (step,) = [step["run"] for step in steps if "git add" in step.get("run", "")]
    assert f"git add {re.findall('page: (.*)/panel.html', done.stdout)[0]} " in step


def test_a_killed_check_goes_on_to_the_same_bytes(endpoint: Served, tmp_path: Path) -> None:
    endpoint.judge = careful
    judge(endpoint, tmp_path, concurrency=1)
    panel = tmp_path / "p"
    freeze(tmp_path, "--output", panel)
    endpoint.delay, checks = 0.02, panel / "checks"
    for place in ("*/verdicts.jsonl", "*/trials/verdicts.jsonl"):
        begun = partial(lambda place: sum(map(lines_in, checks.glob(place))) >= 5, place)
        assert kill_once(begun, ROOT / "recipes" / "panel_check.py", "--panel", panel)
        assert not list(checks.glob("*/check.json"))
    endpoint.delay = 0.0
    (run,) = checks.glob("*/run.json")
    _, out, _ = check(panel)
    assert f"{run.parent} stopped halfway, and goes on" in out
    killed = files_of(checks)
    whole = run.read_bytes()
    shutil.rmtree(checks)
    run.parent.mkdir(parents=True)
    run.write_bytes(whole)  # as if it had been stopped at its start, so that the date is the same
    check(panel)
    assert files_of(checks) == killed


@pytest.mark.parametrize(("root", "day"), [("m-2", None), ("m-1", "2020-02-02")])
def test_a_check_that_stopped_with_another_judge_or_on_another_day_stays(
    endpoint: Served, panel: Path, root: str, day: str | None
) -> None:
    check(panel)
    (first,) = panel.glob("checks/*/")
    first = first.rename(first.with_name(day or first.name))
    (first / "check.json").unlink()
    before = files_of(first)
    endpoint.models = [{"id": "m", "root": root, "owned_by": "somebody"}]
    _, out, record = check(panel)
    assert f"{first} stopped halfway, not with today's panel and judge, or not today: it stays as it is" in out
    assert record["date"] != first.name
    assert files_of(first) == before


@pytest.mark.parametrize("name", ["cases.jsonl", "ratings.jsonl", "rubric/rubric.yaml", "trials/verdicts.jsonl"])
def test_a_file_that_changed_after_freezing_is_named(panel: Path, name: str) -> None:
    with open(panel / name, "a", encoding="utf-8") as stream:
        stream.write("\n")
    before = files_of(panel)
    line = error_line(run_command("panel", "check", panel))
    assert f"{panel / name}: changed after the panel was frozen on " in line
    (panel / name).unlink()
    assert f"{panel / name}: No such file" in error_line(run_command("panel", "check", panel))
    assert files_of(panel).items() <= before.items()


def test_bad_input_of_a_check_is_one_line(endpoint: Served, panel: Path, tmp_path: Path) -> None:
    before = files_of(panel)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "panel.json").write_text("{}", encoding="utf-8")

    def refused(*arguments: object) -> str:
        return error_line(run_command("panel", "check", *arguments))

    assert f"{tmp_path}: no panel.json: not a panel, or" in refused(tmp_path)
    assert "panel.json: not written by `automedeval panel freeze`" in refused(tmp_path / "broken")
    scale = refused(panel, "--judge", "baseline:BM25 to the question")
    assert re.search(r"scores by baseline@1 \(no scale\), and .*p was frozen with automedeval@1 \(1–5\)$", scale)
    (panel / "checks" / "torn").mkdir(parents=True)
    (panel / "checks" / "torn" / "run.json").write_text("{", encoding="utf-8")
    assert "run.json: not a JSON object" in refused(panel)
    shutil.rmtree(panel / "checks")
    assert "--by must be above 0 and below 1, not 2.0" in refused(panel, "--by", 2)
    for models in (None, [], [{"id": "other", "root": "m-1"}]):
        endpoint.models = models
        line = refused(panel)
        assert "the endpoint no longer says which model it serves (root m-1, owned_by somebody when" in line
    assert files_of(panel) == before


def test_bad_input_of_freezing_is_one_line(endpoint: Served, frozen: Path, panel: Path, tmp_path: Path) -> None:
    files = [frozen / "cases.jsonl", frozen / "ratings.jsonl", frozen / "v"]

    def refused(*, output: Path = tmp_path / "new", **changes: object) -> str:
        named = dict(zip(("cases", "ratings", "verdicts"), files)) | changes
        words = [word for name, value in named.items() for word in (f"--{name}", value)]
        return error_line(run_command("panel", "freeze", *words, "--output", output))

    ratings = read(frozen / "ratings.jsonl")
    twice = write(tmp_path / "twice.jsonl", [*ratings, ratings[0]])
    assert "'x' rated 'a' of case 'c0' on 'q' before" in refused(ratings=twice)
    others = write(tmp_path / "others.jsonl", [rating | {"case_id": "z"} for rating in ratings])
    assert "no case has both a rating" in refused(ratings=others)
    assert "is a frozen panel already: choose another --output" in refused(output=panel)
    assert "is there with another content" in refused(output=frozen)
    alone = write(tmp_path / "alone" / "verdicts.jsonl", read(frozen / "v" / "verdicts.jsonl"))
    assert "the record of its run, is not beside it" in refused(verdicts=alone)
    cut = shutil.copytree(frozen / "v", tmp_path / "cut")
    write(cut / "verdicts.jsonl", [each | {"order": [1, 0]} for each in read(frozen / "v" / "verdicts.jsonl")])
    assert "are missing, or not what m is asked: judge again" in refused(verdicts=cut)
    other = write(tmp_path / "abstention.json", [{"settings": "0", "confidence": "gap", "threshold": 1.0}])
    assert "a threshold for the settings 0" in refused(abstention=other)
    endpoint.models = [{"id": "m", "root": "m-2"}]
    assert re.search("these verdicts have the settings .*, and m has .* today: judge the cases again", refused())
    assert not (tmp_path / "new").exists()


def test_freezing_goes_on_where_it_stopped(endpoint: Served, frozen: Path, panel: Path, tmp_path: Path) -> None:
    (panel / "panel.json").unlink()
    verdicts = (panel / "trials" / "verdicts.jsonl").read_bytes()
    (panel / "trials" / "verdicts.jsonl").write_bytes(verdicts[: len(verdicts) // 2])
    freeze(frozen, "--output", panel)
    assert sorted(map(str, read(panel / "trials" / "verdicts.jsonl"))) == sorted(
        map(str, read(frozen / "p" / "trials" / "verdicts.jsonl"))
    )


def test_a_frozen_threshold_counts_abstentions(endpoint: Served, frozen: Path, panel: Path, tmp_path: Path) -> None:
    settings = read(frozen / "v" / "verdicts.jsonl")[0]["settings"]
    file = write(tmp_path / "a.json", [{"settings": settings, "confidence": "gap", "threshold": 3.5}])
    freeze(frozen, "--abstention", file, "--output", tmp_path / "with")
    endpoint.judge = lambda text, case: 3 if case < 10 and text == SAFE else careful(text, case)
    _, out, record = check(tmp_path / "with")
    assert record["figures"]["abstained"]["today"]["value"] == pytest.approx(10 / 39)
    assert "abstained: 0.256 today, 0.000 frozen" in out
