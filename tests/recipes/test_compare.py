"""`automedeval compare` by its command: three estimates of the sample's models, two runs, bad input, and a build's gate."""

import json
import re
import shlex
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from doubles.agreement_study import (
    CASES,
    MODELS,
    RATINGS,
    case_of,
    noisy_verdicts,
    pairwise_verdicts,
    people_means,
    rating,
    read,
    verdict,
    write,
)
from doubles.endpoint import EndpointDouble, answer
from programs import ROOT, error_line, flags, run_command, run_recipe, succeeded
from tables import rows_of, write_csv

from automedeval.meta_evaluation.agreement.cases import Cases

compare = partial(run_recipe, "compare")


def judged(folder: Path, ratings: Path = RATINGS) -> list[object]:
    for name, noise, seed in (("good", 0.3, 1), ("poor", 1.0, 2)):
        write(folder / f"{name}.jsonl", noisy_verdicts(name, noise, seed))
    verdicts = [f"{name}={folder / name}.jsonl" for name in ("good", "poor")]
    return [
        "--cases",
        CASES,
        "--verdicts",
        *verdicts,
        "--ratings",
        ratings,
        "--output",
        folder / "out",
    ]


def drawn_ratings(folder: Path, number: int) -> Path:
    """Write the ratings of a random draw of so many cases."""
    numbers = np.random.default_rng(0).choice(30, number, replace=False)
    drawn = [Cases.read(str(CASES)).records[place].id for place in numbers]
    return write(
        folder / "ratings.jsonl", [line for line in read(RATINGS) if line["case_id"] in drawn]
    )


@pytest.fixture
def args(tmp_path: Path) -> list[object]:
    return judged(tmp_path)


def outcome(folder: Path, *arguments: object) -> SimpleNamespace:
    said = succeeded(compare(*arguments)).stdout
    texts = {
        kind: (folder / "out" / f"comparison.{kind}").read_text("utf-8")
        for kind in ("json", "html", "md")
    }
    return SimpleNamespace(
        result=json.loads(texts["json"]), page=texts["html"], summary=texts["md"], said=said
    )


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Return the comparison of both judges with 15 of the 30 rated cases."""
    folder = tmp_path_factory.mktemp("half")
    made = outcome(folder, *judged(folder, drawn_ratings(folder, 15)))
    made.folder = folder
    return made


def test_three_estimates_of_every_model_and_pair(half: SimpleNamespace) -> None:
    result, means = half.result, people_means()
    assert result["cases"] == {"file": str(CASES), "cases": 30, "responses": 90, "rated_cases": 15}
    assert (list(result["judges"]), result["lead"]) == (["good", "poor"], "good")
    assert sorted(result["models"]) == MODELS
    assert [pair["pair"][0] for pair in result["pairs"]] == [result["baseline"]] * 2
    for model, record in result["models"].items():
        good = record["mean"]["good"]
        truth = np.mean([score for (_, name), score in means.items() if name == model])
        assert good["rated"] == good["unrated"] == 15
        assert good["prediction_powered"]["low"] < truth < good["prediction_powered"]["high"]
        assert good["naive"]["high"] < truth, "the judge is too strict"
        narrow = [
            good[kind]["high"] - good[kind]["low"] for kind in ("prediction_powered", "classical")
        ]
        assert narrow[0] < narrow[1]
        assert good["worth"] > 15
    for pair in result["pairs"]:
        assert 0 <= pair["win_rate"]["good"]["prediction_powered"]["value"] <= 1
    assert (
        result["judges"]["good"]["concordance"]["value"]
        > result["judges"]["poor"]["concordance"]["value"]
    )


def test_report_says_it_in_words_and_draws_it_and_the_same_input_gives_the_same_bytes(
    half: SimpleNamespace,
) -> None:
    page, summary = half.page, half.summary
    assert page.count("<script") == 1
    assert "default-src 'none'" in page
    assert "://" not in page.replace("http://www.w3.org/", "")
    for text in (page, summary, half.said):
        assert text.count("-7b is not clearly different from ") == 2
        assert "15 rated cases give a difference as precisely as" in text
    assert "assumes that the rated cases are a random draw of all cases" in page
    rows = [line.split(" | ")[0] for line in summary.splitlines() if line.startswith("| ")]
    assert rows[0] == "| mean score"
    assert sorted(rows[1:]) == [f"| {model}" for model in MODELS]
    written = {path.name: path.read_bytes() for path in (half.folder / "out").iterdir()}
    outcome(half.folder, *judged(half.folder, half.folder / "ratings.jsonl"))
    assert written == {path.name: path.read_bytes() for path in (half.folder / "out").iterdir()}
    assert set(written) == {f"comparison.{kind}" for kind in ("json", "md", "html")}


def of_candidates(shifts: dict[str, float], folder: Path) -> SimpleNamespace:
    """Return a comparison with 20 rated cases, where people give each candidate that much more than 3 points."""
    draw = np.random.default_rng(0)
    cases, ratings, verdicts = [], [], []
    for number in range(40):
        case, scores = (
            case_of(
                f"c{number}", "What helps?", {model: f"Rest, says {model}." for model in shifts}
            ),
            [],
        )
        for model, shift in shifts.items():
            points = 3 + shift + draw.normal(0, 0.3)
            scores.append(points + draw.normal(0, 0.1))
            ratings += [rating(case["id"], model, points)] * (number < 20)
        cases.append(case)
        rounded = [min(5, max(1, round(score))) for score in scores]
        verdicts.append(
            verdict(
                case, rounded, "good", expected_scores=[min(5, max(1, score)) for score in scores]
            )
        )
    files = {"cases": cases, "ratings": ratings, "verdicts": verdicts}
    files = {name: write(folder / f"{name}.jsonl", lines) for name, lines in files.items()}
    return outcome(folder, *flags(**files, output=folder / "out"))


SENTENCES = rows_of(__file__)["test_one_sentence_says_which_candidate_is_best"]


@pytest.mark.parametrize(("shifts", "patterns"), SENTENCES.values(), ids=SENTENCES)
def test_one_sentence_says_which_candidate_is_best(
    tmp_path: Path, shifts: dict, patterns: list[str]
) -> None:
    said = of_candidates(shifts, tmp_path).said
    for pattern in patterns:
        assert re.search(pattern, said), said
    assert len(said[: said.index("Harm:")].splitlines()) <= 6, "not a sentence for each pair"


def test_every_model_is_compared_with_the_baseline_by_default_the_first(tmp_path: Path) -> None:
    first = of_candidates({name: -2.0 * (name == "b") for name in "abcdefg"}, tmp_path)
    files = flags(
        cases=tmp_path / "cases.jsonl",
        verdicts=tmp_path / "verdicts.jsonl",
        output=tmp_path / "out",
    )
    assert "has no model 'h'" in error_line(compare(*files, "--baseline", "h"))
    beside = outcome(tmp_path, *files, "--baseline", "c")
    assert [pair["pair"] for pair in first.result["pairs"]] == [["a", name] for name in "bcdefg"]
    assert [pair["pair"] for pair in beside.result["pairs"]] == [["c", name] for name in "abdefg"]
    scores = {
        line["case_id"]: line["expected_scores"] for line in read(tmp_path / "verdicts.jsonl")
    }
    at = {
        case["id"]: [each["model"] for each in case["responses"]]
        for case in read(tmp_path / "cases.jsonl")
    }
    for pair in beside.result["pairs"]:
        gaps = [
            np.subtract(*(each[at[case].index(name)] for name in pair["pair"]))
            for case, each in scores.items()
        ]
        assert pair["difference"]["good"]["naive"]["value"] == pytest.approx(np.mean(gaps))
    said = beside.said.splitlines()[0]
    assert "; b scores lower than c; " in said
    assert said.endswith("; 3 more models stand below.")


def test_one_model_is_compared_with_nothing_and_it_is_said(tmp_path: Path) -> None:
    alone = of_candidates({"a": 0.0}, tmp_path)
    assert alone.said.startswith("There is one model, and nothing to compare it with.")
    assert alone.result["pairs"] == []


def test_without_ratings_all_is_by_the_judge_alone(args: list, tmp_path: Path) -> None:
    made = outcome(tmp_path, *args[:4], *args[-2:])
    for pair in made.result["pairs"]:
        assert pair["difference"]["good"]["naive"]["low"] is not None
        assert pair["difference"]["good"]["prediction_powered"]["value"] is None
    assert "is rated" not in made.said
    assert "Not known. No ratings are given." in made.said
    assert "random draw" not in made.page


def test_invalid_verdicts_are_counted_and_the_ratings_kept(args: list, tmp_path: Path) -> None:
    lines = noisy_verdicts("good", 0.3, 1)
    for number in (0, 4, 8):
        lines[number] = verdict(read(CASES)[number], None, "good")
    write(tmp_path / "good.jsonl", lines)
    result = outcome(tmp_path, *args[:4], *args[5:]).result
    mean = result["models"][MODELS[0]]["mean"]["good"]
    assert (mean["rated"], mean["rated_without_verdict"], mean["naive"]["n"]) == (30, 3, 27)
    assert mean["prediction_powered"] == pytest.approx(mean["classical"]), (
        "nothing is left to predict"
    )
    silent = f"silent={write(tmp_path / 'silent.jsonl', [verdict(case, None, 'silent') for case in read(CASES)])}"
    result = outcome(tmp_path, *args[:4], silent, *args[5:]).result
    assert list(result["judges"]) == ["good"]
    assert any("silent has no valid verdict" in note for note in result["notes"])
    assert "no judge has a valid verdict" in error_line(compare(*args[:3], silent, *args[5:]))


def test_judges_that_compare_pairs(tmp_path: Path) -> None:
    verdicts = write(tmp_path / "pairs.jsonl", pairwise_verdicts())
    options = flags(
        cases=CASES, verdicts=verdicts, ratings=drawn_ratings(tmp_path, 15), output=tmp_path / "out"
    )
    result = outcome(tmp_path, *options).result
    assert list(result["judges"]) == ["pairs", "pairs: correctness", "pairs: harmfulness"]
    pair = result["pairs"][0]
    figure = pair["win_rate"]["pairs: correctness"]
    assert figure["naive"]["value"] == pytest.approx(figure["classical"]["value"], abs=0.25)
    assert figure["weight"] > 0
    assert pair["difference"]["pairs: correctness"]["prediction_powered"]["low"] is not None
    cases = [case | {"responses": case["responses"][::-1]} for case in read(CASES)]
    lines = [
        line | {"order": [2 - place for place in line["order"]]} for line in pairwise_verdicts()
    ]
    options[1], options[3] = write(tmp_path / "c.jsonl", cases), write(tmp_path / "v.jsonl", lines)
    beside = outcome(tmp_path, *options, "--baseline", pair["pair"][1]).result["pairs"]
    turned = next(each for each in beside if each["pair"] == pair["pair"][::-1])
    for kind, whole in (("win_rate", 1), ("difference", 0)):
        plain, swapped = (
            each[kind]["pairs: correctness"]["prediction_powered"] for each in (pair, turned)
        )
        assert swapped["value"] == pytest.approx(whole - plain["value"])
        assert swapped["high"] == pytest.approx(whole - plain["low"])
    plain, swapped = (
        each["win_rate"]["pairs: correctness"]["naive"]["value"] for each in (pair, turned)
    )
    assert swapped == pytest.approx(1 - plain)
    mean = result["models"][MODELS[0]]["mean"]["pairs: correctness"]
    gap = {
        "value": None,
        "low": None,
        "high": None,
        "n": 0,
        "reason": "this judge compares pairs and gives no scores",
    }
    assert mean["prediction_powered"] == gap
    assert mean["classical"]["low"] is not None


def blanks(folder: Path) -> list[object]:
    records = read(CASES)
    records[7]["responses"][0]["model"] = f" {MODELS[0].replace('-', ' -')}"
    return flags(cases=write(folder / "blanks.jsonl", records))


def no_models(folder: Path) -> list[object]:
    records = read(CASES)
    for number, case in enumerate(records):
        for place, response in enumerate(case["responses"]):
            response["model"] = f"passage {number}-{place}"
    ratings = write(folder / "r.jsonl", [rating(records[0]["id"], "passage 0-0", 3)])
    return flags(cases=write(folder / "names.jsonl", records), ratings=ratings)


def other_ratings(folder: Path) -> list[object]:
    return flags(ratings=write(folder / "r.jsonl", [read(RATINGS)[0] | {"case_id": "elsewhere"}]))


def test_models_without_a_case_in_common_are_not_compared(tmp_path: Path) -> None:
    cases = [case_of(f"c{n}", "What helps?", {f"v{n % 2}": "Rest."}) for n in range(30)]
    files = {
        "cases": cases,
        "verdicts": [verdict(case, [3]) for case in cases],
        "ratings": [rating("c0", "v0", 3)],
    }
    options = {name: write(tmp_path / f"{name}.jsonl", own) for name, own in files.items()}
    made = outcome(tmp_path, *flags(**options, output=tmp_path / "out"))
    assert (
        "The models are not compared: v0 and v1 answered 0 cases in common: not compared."
        in made.said
    )
    assert (made.result["pairs"], made.result["changes"]) == ([], [])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            blanks,
            "blanks.jsonl:8: the models 'juniper-7b' and ' juniper -7b' differ by blanks alone: rename one of",
        ),
        (no_models, "names.jsonl: 90 model names in 30 cases: these are not models"),
        (other_ratings, "no rating of any case"),
    ],
)
def test_files_that_do_not_fit_are_refused_in_a_line(
    args: list, tmp_path: Path, change, said: str
) -> None:
    assert said in error_line(compare(*args, *change(tmp_path)))
    assert not list((tmp_path / "out").glob("comparison.*"))


def test_a_model_that_is_lower_by_the_same_in_every_case_is_called_lower(tmp_path: Path) -> None:
    cases = [
        case_of(f"c{n}", "What helps?", {"v1": f"Rest {n}.", "v2": f"Tea {n}."}) for n in range(20)
    ]
    verdicts = write(
        tmp_path / "v.jsonl", [verdict(case, [4, 3], expected_scores=None) for case in cases]
    )
    options = flags(
        cases=write(tmp_path / "c.jsonl", cases), verdicts=verdicts, output=tmp_path / "out"
    )
    made = outcome(tmp_path, *options)
    assert "v2 scores lower than v1, by 1 point in each of 20 cases." in made.said
    assert "cannot be compared" not in made.said


RTL = "روبوت"


def split(case: dict, verdict: dict, model: str, name: str) -> tuple[dict, dict]:
    """Return a case with the answer of one model, under a name, and the verdict on it."""
    place = [response["model"] for response in case["responses"]].index(model)
    response = case["responses"][place] | {"model": name}
    mark = {"factor": 3.0, "kind": "mass", "start": 0, "end": 1, "source": "reference"}
    mark |= {"sentence": ["", "3 g", ""], "passage": ["", "1 g", ""]}
    differs = {name: [mark] * (model == MODELS[1])}
    values = {key: [verdict[key][place]] for key in ("scores", "expected_scores")}
    return case | {"responses": [response]}, verdict | values | {"order": [0], "differs": differs}


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, tuple[Path, Path]]:
    """Write what one model answered, and another as its new version; each file lacks a case of the other one."""
    lines = list(zip(read(CASES), noisy_verdicts("good", 0.3, 1), strict=True))
    files = {}
    for version, model, part in (("old", MODELS[0], lines[:-1]), ("new", MODELS[1], lines[:0:-1])):
        pairs = [split(case, verdict, model, "bot") for case, verdict in part]
        names = [tmp_path / version / f"{name}.jsonl" for name in ("cases", "verdicts")]
        files[version] = tuple(map(write, names, zip(*pairs, strict=True)))
    return files


def arguments(runs: dict, old: str = "old", new: str = "new") -> list[object]:
    (old_cases, old_verdicts), (new_cases, new_verdicts) = runs["old"], runs["new"]
    return [
        "--cases",
        f"{old}={old_cases}",
        f"{new}={new_cases}",
        "--verdicts",
        old_verdicts,
        new_verdicts,
    ]


def test_two_runs_give_the_figures_of_one_file_with_both(runs: dict, tmp_path: Path) -> None:
    done = succeeded(compare(*arguments(runs, new=RTL), "--output", tmp_path / "out"))
    result = json.loads((tmp_path / "out" / "comparison.json").read_text("utf-8"))
    assert result["cases"]["cases"] == 28
    assert f"--cases {runs['new'][0]} " in done.stdout  # the audit that it advises can be run
    assert any(
        "29 and 29 cases; the 28 that are in both are compared" in note for note in result["notes"]
    )
    lines = list(zip(read(CASES), noisy_verdicts("good", 0.3, 1), strict=True))[1:-1]
    places = {case["id"]: [r["model"] for r in case["responses"]] for case, _ in lines}
    both = [
        [verdict["expected_scores"][places[case["id"]].index(name)] for name in MODELS[:2]]
        for case, verdict in lines
    ]
    gaps = [new - old for old, new in both]
    (pair,), (changes,) = result["pairs"], result["changes"]
    assert pair["pair"] == ["old", RTL]
    assert pair["difference"]["good"]["naive"]["value"] == pytest.approx(-sum(gaps) / len(gaps))
    assert (changes["old"], changes["new"], changes["compared"]) == ("old", RTL, 28)
    assert (changes["won"], changes["lost"]) == (
        sum(gap > 1e-9 for gap in gaps),
        sum(gap < -1e-9 for gap in gaps),
    )
    assert changes["newly_differs"] == 28
    page = (tmp_path / "out" / "comparison.html").read_text("utf-8")
    assert f'<th scope="row" dir="auto">{RTL}</th>' in page
    assert "<caption>Mean scores</caption>" in page


def test_two_runs_pass_the_gate(runs: dict) -> None:
    assert compare(*arguments(runs), "--fail_if_worse", "new", "old", "--by", 3).returncode == 0
    assert "--cases of two runs" in error_line(compare(*arguments(runs)[:-1], "--output", "out"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda case: case | {"id": f"{case['id']}-b"}, "have no case in common"),
        (lambda case: case | {"reference": "Another one."}, "differs in its reference"),
        (lambda case: case | {"question": f"{case['question']} Why?"}, "differs in its question"),
    ],
)
def test_runs_that_do_not_fit_are_refused_in_a_line(
    runs: dict, tmp_path: Path, change, said: str
) -> None:
    cases, verdicts = runs["new"]
    changed = [change(case) for case in read(cases)]
    lines = [
        line | {"case_id": case["id"]} for line, case in zip(read(verdicts), changed, strict=True)
    ]
    runs["new"] = write(cases, changed), write(verdicts, lines)
    assert said in error_line(compare(*arguments(runs), "--output", tmp_path / "out"))


def test_a_model_in_both_runs_needs_names_and_the_judge_is_the_same(
    runs: dict, tmp_path: Path
) -> None:
    files = [file for pair in zip(*runs.values(), strict=True) for file in pair]
    output = ("--output", tmp_path / "out")
    assert "name the versions" in error_line(
        compare("--cases", *files[:2], "--verdicts", *files[2:], *output)
    )
    write(runs["new"][1], [line | {"judge": "other"} for line in read(runs["new"][1])])
    assert "no judge has verdicts on both" in error_line(compare(*arguments(runs), *output))
    write(runs["new"][1], [line | {"rubric": "checklist@1"} for line in read(runs["new"][1])])
    assert "compare read these, on one file of cases" in error_line(
        compare(*arguments(runs), *output)
    )


GATE = ("--fail_if_worse", "new", "old", "--by", 0.1)


def study(folder: Path, loss: int, cases: int = 400, invalid: int = 0) -> tuple[object, ...]:
    """Write cases of two candidates, of which the new one loses `loss` points in every second case."""
    records, verdicts = [], []
    for number in range(cases):
        answers = {name: f"{name} {number}" for name in ("old", "new")}
        records.append(case_of(f"c{number}", f"What helps against {number}?", answers))
        scores = None if number < invalid else [3, 3 - loss * (number % 2)]
        verdicts.append(verdict(records[-1], scores, expected_scores=scores))
    write(folder / "cases.jsonl", records)
    return (
        "--cases",
        folder / "cases.jsonl",
        "--verdicts",
        write(folder / "verdicts.jsonl", verdicts),
    )


@pytest.mark.parametrize(
    ("loss", "cases", "status", "word"),
    [(0, 400, 0, "not lower"), (1, 400, 3, "lower"), (0, 10, 4, "undecided")],
)
def test_the_exit_status_tells_the_result(
    tmp_path: Path, loss: int, cases: int, status: int, word: str
) -> None:
    done = compare(*study(tmp_path, loss, cases), *GATE, "--output", tmp_path / "out")
    assert done.returncode == status, done.stderr
    assert f"{word} (exit status {status})" in done.stdout
    record = json.loads((tmp_path / "out" / "gate.json").read_text(encoding="utf-8"))
    assert record["mean"] == pytest.approx(-loss / 2)
    assert (record["status"], record["cases"], record["result"]) == (status, cases, word)
    assert (status == 4) == ("would do" in done.stdout)


def test_an_invalid_verdict_is_left_out_and_many_leave_it_undecided(tmp_path: Path) -> None:
    done = succeeded(compare(*study(tmp_path, 0, invalid=40), *GATE))
    assert "40 of 400 cases without a valid verdict" in done.stdout
    assert "on 360 cases" in done.stdout
    done = compare(*study(tmp_path, 1, invalid=41), *GATE)
    assert done.returncode == 4
    assert "mean difference -0.5" in done.stdout.replace("-0.499", "-0.5").replace("-0.501", "-0.5")


@pytest.mark.parametrize(("arguments", "message"), rows_of(__file__)["test_bad_input_is_one_line"])
def test_bad_input_is_one_line(tmp_path: Path, arguments: tuple, message: str) -> None:
    assert message in error_line(compare(*study(tmp_path, 0, 4), *arguments))


def documented() -> list[tuple[list[str], list[str]]]:
    """Return of each workflow of docs/ci-gate.md the commands before it, and its own, without the word `automedeval`."""
    text = (ROOT / "docs" / "ci-gate.md").read_text(encoding="utf-8")
    found, before = [], []
    for language, body in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL):
        if language == "yaml":
            (job,) = yaml.safe_load(body)["jobs"].values()
            found.append(
                (before, commands("".join(step.get("run", "") + "\n" for step in job["steps"])))
            )
        before = commands(body)
    return found


def commands(script: str) -> list[list[str]]:
    lines = [shlex.split(line, comments=True) for line in script.replace("\\\n", " ").splitlines()]
    return [words[1:] for words in lines if words[:1] == ["automedeval"]]


def test_the_workflow_of_the_documents_runs_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (_, workflow), _ = documented()
    study(tmp_path / "evaluation", 1)
    monkeypatch.chdir(tmp_path)
    assert [words[0] for words in workflow] == ["get-models", "judge", "compare"]
    done = run_command(*workflow[-1])
    assert done.returncode == 3, done.stderr


JUDGES = {  # the number of a case, and whether the answer is the good one -> the score
    "careful": lambda number, good: 5 if good else 2,
    "strict": lambda number, good: 4 if good else 2,
    "careless": lambda number, good: 5,
    "confused": lambda number, good: 5 if good == number % 2 else 2,
    "torn": lambda number, good: (
        None if number % 3 == 0 else 5 if good else 2
    ),  # too few verdicts to tell
}
NIGHTS = rows_of(__file__)["test_the_nightly_workflow_fails_for_a_judge_that_was_made_worse"]


@pytest.mark.parametrize(("tonight", "statuses", "fails"), NIGHTS)
def test_the_nightly_workflow_fails_for_a_judge_that_was_made_worse(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tonight: str,
    statuses: list[int],
    fails: str | None,
) -> None:
    judge = JUDGES["careful"]

    def reply(body: dict) -> dict:
        prompt = body["messages"][-1]["content"]
        number = int(re.search(r"case (\d+)", prompt)[1])
        shown = re.findall(r"Doctor (\d+):\n~~~\n(.*?)\n~~~", prompt, re.DOTALL)
        scores = [(slot, judge(number, "rest" in text)) for slot, text in shown]
        line = " ".join(
            f"Doctor {slot}: {score} points." for slot, score in scores if score is not None
        )
        return answer(f"Step 1: Rest helps.\nScore: {line}")

    _, (keep, workflow) = documented()
    (tmp_path / "kept").mkdir()
    rows = [
        (f"What helps in case {number}?", f"Drink and rest, {number}.", f"Run far, {number} miles.")
        for number in range(60)
    ]
    write_csv(tmp_path / "kept" / "cases.csv", ("question", "good", "bad"), rows)
    monkeypatch.chdir(tmp_path)
    with EndpointDouble(reply) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
        for command in keep:
            assert run_command(*command).returncode == 0
        judge = JUDGES[tonight]
        done = []
        for command in workflow:  # the shell of a workflow stops at the first that fails
            done.append(run_command(*command))
            if done[-1].returncode:
                break
    assert [each.returncode for each in done] == statuses, done[-1].stderr
    assert not fails or done[-1].stdout.startswith(f"{fails} against ")
