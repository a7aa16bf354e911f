"""Where answers disagree and nothing says which is right: in the report of any judge, beside what `check` finds."""

import json
from pathlib import Path

from doubles.agreement_study import read, told, write
from programs import ENCODER, SAMPLE, needs_encoder, run_command, succeeded

BARE = [each | {"reference": None} for each in read(SAMPLE / "two_bots.jsonl")]
PAIR = [
    {"model": "a", "text": "Adults take at most 4 g of aspirin a day."},
    {"model": "b", "text": "Adults take at most 40 g of aspirin a day."},
]
ADVICE = [
    {"model": "a", "text": "You can take aspirin with warfarin."},
    {"model": "b", "text": "Aspirin must not be combined with warfarin."},
]


def report(cases: list[dict], folder: Path) -> tuple[str, str, dict]:
    """What a report of a judge without a model prints, its page, and agreement.json."""
    folder.mkdir()
    options = ["--cases", write(folder / "cases.jsonl", cases)]
    succeeded(run_command("judge", *options, "--judge", "baseline:longer text", "--output", folder / "v"))
    done = run_command("report", *options, "--verdicts", folder / "v", "--encoder", "none", "--output", folder / "r")
    assert done.returncode == 0, done.stderr
    return (
        told(folder / "r"),
        (folder / "r" / "report.html").read_text(),
        json.loads((folder / "r/agreement.json").read_text()),
    )


@needs_encoder
def test_each_is_one_that_the_check_finds_and_stands_beside_its_answer(tmp_path: Path) -> None:
    said, page, result = report(BARE, tmp_path / "bare")
    shown = result["main_judge"]["cases"]["answers_disagree"]
    assert f"in {len(shown)} cases. One of the two is wrong, if the rule is right. No score depends on it." in said
    answers = ["--evidence", "answers", "--encoder", ENCODER, "--output", tmp_path / "check"]
    assert run_command("check", tmp_path / "bare" / "cases.jsonl", *answers).returncode == 0
    wrong = {
        (each["case_id"], line["text"]): line
        for each in read(tmp_path / "check" / "claims.jsonl")
        for line in each["statements"]
        if line.get("rule")
    }
    assert {case for case, _ in wrong} == set(shown)
    for _, text in wrong:
        assert f"<mark>{text}</mark>" in page
    assert page.count("<mark>") == len(wrong) == page.count("– answer of bot-v")


def test_a_case_with_a_reference_shows_none_and_all_others_are_marked(tmp_path: Path) -> None:
    cases = [{"id": f"c{n}", "question": "Aspirin?", "responses": PAIR} for n in range(8)]
    others = [{"id": "r", "reference": "Ask first."}, {"id": "advice", "responses": ADVICE}]  # advice is not compared
    said, page, result = report([*cases, *(cases[0] | each for each in others)], tmp_path / "bare")
    assert set(result["main_judge"]["cases"]["answers_disagree"]) == {case["id"] for case in cases}
    assert "in 8 cases" in said
    assert page.count('<span class="mark">answers disagree</span>') == 8
    said, page, result = report([case | {"reference": "Ask first."} for case in cases], tmp_path / "aided")
    assert "disagree" not in said
    assert "<mark>" not in page
    assert "answers_disagree" not in result["main_judge"]["cases"]
