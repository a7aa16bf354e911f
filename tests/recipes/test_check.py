"""`automedeval check` by its command, the packaged checker beside plain transformers, and recipes/train_checker.py."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import torch
from doubles.agreement_study import read, write
from peft import PeftModel
from programs import (
    ENCODER,
    SAMPLE,
    error_line,
    flags,
    needs_encoder,
    run_command,
    run_recipe,
    succeeded,
)
from tables import read_csv, rows_of, write_csv
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from automedeval.evidence.checker import LABELS, PACKAGED
from automedeval.records.thoughts import LONGEST_ANSWER

pytestmark = needs_encoder


def case(number: int, reference: str | None, **answers: str) -> dict:
    responses = [{"model": name, "text": text} for name, text in answers.items()]
    return {
        "id": f"c{number}",
        "question": "How do I take it?",
        "reference": reference,
        "responses": responses,
    }


WEEKLY, DAILY = "Take one tablet of 5 mg once a week.", "Take one 50 mg tablet every day."
UNSAFE, SAFE = "Ibuprofen is not safe in late pregnancy.", "Ibuprofen is safe in late pregnancy."
CASES = [
    case(1, WEEKLY, right="Take it once a week.", wrong=DAILY),
    case(2, UNSAFE, right="Ask before you take it.", wrong=SAFE),
    case(3, None, right="Rest well tonight.", wrong="Drink some water."),
]


def check(
    cases: list[dict] | Path, output: Path, *more: object
) -> tuple[subprocess.CompletedProcess, list[dict]]:
    file = cases if isinstance(cases, Path) else write(output.with_suffix(".jsonl"), cases)
    done = run_command("check", file, "--output", output, "--encoder", ENCODER, *more)
    return done, read(output / "claims.jsonl") if (output / "claims.jsonl").exists() else []


def wrong_of(records: list[dict]) -> list[tuple[str, str]]:
    labels = {
        (each["case_id"], each["model"]): [one["label"] for one in each["statements"]]
        for each in records
    }
    return [place for place, own in labels.items() if "contradicted" in own]


def test_it_marks_what_contradicts_the_reference_writes_every_file_and_can_fail_a_build(
    tmp_path: Path,
) -> None:
    done, records = check(CASES, tmp_path / "out", "--fail_if_contradicted", "true")
    assert done.returncode == 3, done.stderr
    right = [each | {"responses": each["responses"][:1]} for each in CASES]
    succeeded(check(right, tmp_path / "two", "--fail_if_contradicted", "true")[0])
    assert wrong_of(records) == [("c1", "wrong"), ("c2", "wrong")]
    texts = {
        (each["id"], answer["model"]): answer["text"]
        for each in CASES
        for answer in each["responses"]
    }
    for each in records:
        for statement in each["statements"]:
            text = texts[each["case_id"], each["model"]]
            assert text[statement["start"] : statement["end"]] == statement["text"]
    assert "2 answers had nothing to be checked against" in done.stdout
    page = (tmp_path / "out" / "check.html").read_text()
    assert re.findall("<mark>(.*?)</mark>", page) == [DAILY, SAFE]
    assert len(read_csv(tmp_path / "out" / "claims.csv")) == sum(
        len(each["statements"]) for each in records
    )
    figures = json.loads((tmp_path / "out" / "check.json").read_text())["models"]
    assert (figures["wrong"]["contradicted"], figures["right"]["contradicted"]) == (2, 0)
    assert figures["wrong"]["contradicted_answers"]["value"] == 1.0


@pytest.mark.parametrize("long", [True, False])
def test_a_statement_is_told_with_the_row_of_its_answer(long: bool, tmp_path: Path) -> None:
    """In a table with a row for each answer, the answers of one question stand apart."""
    names, own = ("question", "reference", "right", "wrong"), (1, 1)
    rows = [("How do I take it?", WEEKLY, "Take it once a week.", DAILY)]
    if long:
        names, own = ("question", "reference", "model", "answer"), (1, 3)
        rows = [("How do I take it?", WEEKLY, "right", "Take it once a week.")]
        rows += [("May I walk?", "Yes, walk.", "right", "Yes, walk.")]
        rows += [("How do I take it?", WEEKLY, "wrong", DAILY)]
    table = write_csv(tmp_path / "answers.csv", names, rows)
    succeeded(check(table, tmp_path / "out")[0])
    claims = read_csv(tmp_path / "out" / "claims.csv")
    told = {each["model"]: each["row"] for each in claims if each["question"] == rows[0][0]}
    assert told == {"right": str(own[0]), "wrong": str(own[1])}


def test_evidence_in_a_language_that_is_not_read_leaves_statements_unread(tmp_path: Path) -> None:
    thai = "รับประทานยาเม็ดวันละครั้งหลังอาหารเช้า"
    done, records = check([case(1, thai, a=DAILY)], tmp_path / "out")
    succeeded(done)
    assert [each["label"] for each in records[0]["statements"]] == ["unread"]
    assert "a: no statement could be read." in done.stdout


def test_of_a_very_long_answer_the_first_characters_are_checked(tmp_path: Path) -> None:
    long = case(2, None, long="Rest well. " * 20_000, other="Rest well.")
    done, records = check([CASES[0], long], tmp_path / "out")
    succeeded(done)
    assert "1 answer held more than 100,000 characters" in done.stdout
    ends = {each["model"]: each["statements"][-1]["end"] for each in records}
    assert (ends["long"], ends["other"]) == (LONGEST_ANSWER, 10)


def test_books_contradict_where_a_passage_is_near(tmp_path: Path) -> None:
    book = "Methotrexate tablets for arthritis are taken once a week."
    (tmp_path / "book.md").write_text(f"# Drugs\n\n{book}\n")
    store = tmp_path / "store"
    succeeded(
        run_recipe(
            "build_store", "--books", tmp_path / "book.md", "--encoder", ENCODER, "--store", store
        )
    )
    cases = [
        case(
            1, None, right="Rest well.", wrong="Take methotrexate tablets for arthritis every day."
        )
    ]
    done, records = check(cases, tmp_path / "out", "--evidence", store)
    succeeded(done)
    assert wrong_of(records) == [("c1", "wrong")]
    (statement,) = next(each["statements"] for each in records if each["model"] == "wrong")
    assert (statement["rule"], statement["source"]) == ("frequency", "Drugs")


@pytest.mark.parametrize(
    ("cases", "more", "said"),
    [
        ([case(1, None, a="Take it.")], (), "nothing could be checked"),
        (CASES, ("--evidence", "empty"), "no knowledge store"),
        (CASES, ("--checker", SAMPLE), "not the description of a checker"),
    ],
)
def test_bad_input_gets_one_line(cases: list[dict], more: tuple, said: str, tmp_path: Path) -> None:
    done, records = check(cases, tmp_path / "out", *more)
    assert done.returncode == 1
    assert said in error_line(done)
    assert not records


def test_the_packaged_checker_gives_the_probabilities_of_plain_transformers(tmp_path: Path) -> None:
    _, records = check(SAMPLE / "two_bots.jsonl", tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(ENCODER)
    base = AutoModelForSequenceClassification.from_pretrained(
        ENCODER, num_labels=3, dtype=torch.float32
    )
    model = PeftModel.from_pretrained(base, PACKAGED / "adapter").eval()
    compared = 0
    for each in (statement for record in records for statement in record["statements"]):
        if "probability" not in each or "rule" in each or "not" in each["passage"] + each["text"]:
            continue  # the checker spells "cannot" out
        pair = tokenizer(
            each["passage"], each["text"], return_tensors="pt", truncation=True, max_length=128
        )
        with torch.no_grad():
            plain = model(**pair).logits.softmax(-1)[0, LABELS.index(each["label"])].item()
        assert each["probability"] == pytest.approx(plain, abs=2e-3)
        compared += 1
    assert compared > 10


@pytest.mark.parametrize(
    ("statement", "passage"), rows_of(__file__)["test_another_spelling_of_not_is_no_contradiction"]
)
def test_another_spelling_of_not_is_no_contradiction(
    statement: str, passage: str, tmp_path: Path
) -> None:
    (record,) = check([case(1, passage, a=statement)], tmp_path / "out")[1]
    assert [each["label"] for each in record["statements"]] == ["supported"]


def test_the_packaged_checker_is_small_certified_and_finds_what_its_card_says(
    tmp_path: Path,
) -> None:
    files = [path for path in PACKAGED.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 15e6
    content = json.loads((PACKAGED / "checker.json").read_text())
    certificate = content["certificate"]
    last = next(line for line in certificate["tested"] if line["threshold"] == content["threshold"])
    assert last["p"] <= certificate["delta"]
    assert certificate["risk"] == 0.05
    records = check(SAMPLE / "two_bots.jsonl", tmp_path / "out")[1]
    bots = read(SAMPLE / "two_bots.jsonl")
    kinds = {
        (each["id"], answer["model"]): answer["kind"]
        for each in bots
        for answer in each["responses"]
    }
    flagged = [kinds[each] for each in wrong_of(records)]
    card = (PACKAGED / "README.md").read_text()
    dangerous, safe = flagged.count("dangerous_error"), flagged.count("safe")
    assert f"| {dangerous} of 6 | {safe} of 18 |" in card


CLASSES = ("supported", "contradicted", "not_found")


def arguments(folder: Path) -> list[object]:
    (folder / "trials").mkdir()
    rows = [
        {
            "evidence": f"Trial {at} gave drug {at} daily.",
            "claim": f"Drug {at} was daily.",
            "pmc": str(at),
        }
        | {"label": CLASSES[at % 3]}
        for at in range(60)
    ]
    rows.append(rows[0] | {"evidence": "Another text.", "claim": "A Claim of a test"})
    write(folder / "trials" / "pairs.jsonl", rows)
    write(
        folder / "test.jsonl",
        [{"evidence": "Text.", "claim": "A claim of a test.", "label": "supported"}],
    )
    text = "Aspirin is safe for most adults who take it daily. It does not help children with a viral fever at all."
    write(folder / "books.jsonl", [{"id": f"b{at}", "text": text} for at in range(30)])
    files = {
        "pairs": folder / "trials",
        "evaluation_pairs": folder / "test.jsonl",
        "books": folder / "books.jsonl",
    }
    training = {
        "max_steps": 2,
        "per_device_train_batch_size": 4,
        "use_cpu": "true",
        "report_to": "none",
    }
    return flags(
        **files,
        held_out="trials",
        contrast=20,
        encoder=ENCODER,
        **training,
        output_dir=folder / "out",
    )


def test_a_checker_trains_holds_out_documents_and_leaves_tests_out(tmp_path: Path) -> None:
    options = arguments(tmp_path)
    done = succeeded(run_recipe("train_checker", *options))
    assert (tmp_path / "out" / "adapter" / "adapter_model.safetensors").is_file()
    assert "text of a test: 1" in done.stdout
    held_out = read(tmp_path / "out" / "held_out.jsonl")
    trials = [row for row in held_out if row["source"] == "trials"]
    assert 3 <= len(trials) <= 25
    assert {row["source"] for row in held_out} <= {"trials", "contrast"}
    record = json.loads((tmp_path / "out" / "training" / "record.json").read_text())
    trained = sum(count for name, count in record["pairs"].items() if name.startswith("trials"))
    assert trained == 60 - len(trials)
    assert (
        sum(count for name, count in record["pairs"].items() if name.startswith("contrast")) == 20
    )
    again = succeeded(run_recipe("train_checker", *options))
    assert "finished already" in again.stdout


def test_pairs_that_are_none_get_one_line(tmp_path: Path) -> None:
    options = arguments(tmp_path)
    (tmp_path / "trials" / "pairs.jsonl").write_text('{"claim": "a"}\n')
    done = run_recipe("train_checker", *options)
    assert done.returncode == 1
    assert "not pairs of evidence, claim and label" in error_line(done)
