"""Every `automedeval` command that the pages for users print is run on small files, and ends well.

The commands of a page run in its order in one folder. Names that stand for the reader's own things stand for small ones: a
two-layer checkpoint, a local endpoint, cases that are written here. docs/harnesses.md is run with the real harnesses by
tests/harness, docs/annotation.md by tests/annotation, README.md by test_first_minutes.py.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from doubles.agreement_study import case_of, rating, read, verdict, write
from doubles.criteria_grader import grade
from doubles.endpoint import EndpointDouble, good_answer
from programs import ENCODER, ROOT, needs_encoder, run_command, run_recipe, succeeded
from project.test_docs import commands
from tables import rows_of, write_csv

PAGES = [
    f"docs/{page}.md" for page in ("index", "believe", "criteria", "judge", "rewards", "serving")
]
NOT_RUN = rows_of(__file__)["not run"]
ENDS = {"audit": (0, 3)}  # exit statuses that are no error; a judge may not pass its audit


def case(number: int, criteria: bool = False) -> dict:
    answers = {
        "a": "Take ibuprofen with food or milk.",
        "b": "I like trains." if number % 3 else "Food protects the stomach.",
    }
    more: dict = {"reference": None}
    if number % 2:
        more["reference"] = "Yes, ibuprofen is best taken with food or milk."
    if criteria:
        own = {"points": 3, "tags": ["category:use"]}
        more["criteria"] = [own | {"criterion": "says food"}, own | {"criterion": "names milk"}]
    return case_of(f"c{number}", f"May I take ibuprofen with food? ({number})", answers, **more)


def rate(cases: list[dict]) -> list[dict]:
    ratings = []
    for number, each in enumerate(cases):
        both = (4, 1) if number % 5 == 4 else (5, 2)
        ratings += [rating(each["id"], model, score) for model, score in zip("ab", both)]
    return ratings


def verdicts_of(cases: list[dict], name: str) -> list[dict]:
    more = {"rationale": "Step 1: a is better.\nStep 2: b is worse.", "models": ["a", "b"]}
    more["settings"] = f"{name:0<12.12}"
    verdicts = []
    for number, each in enumerate(cases):
        expected = [4 + number % 5 / 10, 2 - number % 3 / 10]
        verdicts.append(verdict(each, [4, 2], name, expected_scores=expected, **more))
    return verdicts


def write_table(file: Path, cases: list[dict]) -> None:
    rows = []
    for each in cases:
        answers = [response["text"] for response in each["responses"]]
        rows.append([each["question"], *answers, each["reference"]])
    write_csv(file, ("question", "a", "b", "reference"), rows)


@pytest.fixture
def readers_endpoint(tmp_path, tiny_model, monkeypatch) -> Iterator[EndpointDouble]:
    """Put the reader's own files into a folder, and go there; yield the reader's endpoint."""
    monkeypatch.chdir(tmp_path)
    for name in ("models", "cases", "kqa"):
        (tmp_path / name).mkdir()
    for place in ("models/SmolLM2-135M-Instruct", "MODEL"):
        (tmp_path / place).symlink_to(tiny_model)
    (tmp_path / "models" / ENCODER.name).symlink_to(ENCODER.resolve())
    (tmp_path / "src").symlink_to(ROOT / "src")
    rated = [case(n) for n in range(24)]
    mine = [case(n) for n in range(24, 36)]
    for name, records in {
        "rated.jsonl": rated, "my_cases.jsonl": mine, "new.jsonl": mine, "cases.jsonl": mine[:4],
        "my_ratings.jsonl": rate([*rated, *mine[:6]]), "ratings.jsonl": rate(rated),
        "cases/cases.jsonl": [case(n, True) for n in range(4)], "kqa/cases.jsonl": [case(n, True) for n in range(4)],
    }.items():  # fmt: skip
        write(tmp_path / name, records)
    labels = []
    for number, model, criterion in product(range(4), "ab", ("says food", "names milk")):
        label = {"case_id": f"c{number}", "model": model, "criterion": criterion}
        label["label"] = "met" if model == "a" else "not_met"
        labels += [label | {"annotator": "p1"}, label | {"annotator": "p2"}]
    for place in ("criterion_labels.jsonl", "kqa/criterion_labels.jsonl"):
        write(tmp_path / place, labels)
    write_table(tmp_path / "my_answers.csv", mine[:4])
    with EndpointDouble(
        lambda body: grade(body) if "Criterion 1" in str(body) else good_answer(body)
    ) as endpoint:
        yield endpoint


def prepared(words: list[str]) -> None:
    """Write what an earlier page made: the verdicts and the store that a command reads and that are not there."""
    if "stores/mine" in words and not Path("stores").exists():
        Path("book.md").write_text("# Tetanus\n\nA booster is given after ten years.\n")
        store = {"books": "book.md", "store": "stores/mine", "encoder": ENCODER}
        succeeded(run_recipe("build_store", **store))
    cases = [*read(Path("rated.jsonl")), *read(Path("my_cases.jsonl"))]
    for word in words:
        place = Path(word.rpartition("=")[2])
        if place.parts[:1] != ("verdicts",) or (place / "verdicts.jsonl").exists():
            continue
        own = {"rated": cases[:24], "mine": cases[24:], "small": cases, "large": cases}
        own["teacher"] = cases[24:]
        if place.name in own and words[0] != "judge":
            name = "mine" if place.name == "rated" else place.name
            write(place / "verdicts.jsonl", verdicts_of(own[place.name], name))


def stand_ins(words: list[str], url: str) -> list[str]:
    """Return a command for the reader's machine: its endpoint, and few tokens for a checkpoint of random weights."""
    words = [word.replace("openai:MODEL", "openai:served") for word in words]
    words = [url if word in ("http://localhost:8000/v1", "URL") else word for word in words]
    if any(word.startswith("openai:") for word in words):
        words += [] if "--base_url" in words else ["--base_url", url]
        words += ["--score_decoding", "free", "--max_retries", "0"] if words[0] == "judge" else []
    if any(word in ("MODEL", "models/SmolLM2-135M-Instruct") for word in words):
        words += ["--device", "cpu", "--dtype", "float32", "--max_new_tokens", "8"]
    if words[0] == "audit":
        words += ["--limit", "2"]
        words += [] if "--edits" in words else ["--edits", "1"]
    if words[0] == "report":
        words += ["--resamples", "100"]
    return words


@needs_encoder
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_end_well_on_small_files(page, readers_endpoint, tmp_path):
    run = 0
    for command in commands((ROOT / page).read_text(encoding="utf-8")):
        line = " ".join(command)
        if command[0] != "automedeval" or any(word in line for word in NOT_RUN):
            continue
        words = stand_ins(command[1:], readers_endpoint.url)
        prepared(words)
        done = run_command(*words)
        assert done.returncode in ENDS.get(words[0], (0,)), (
            f"{line}\n{done.stdout[-400:]}{done.stderr[-800:]}"
        )
        run += 1
    assert run, f"{page} prints no command that is run"
