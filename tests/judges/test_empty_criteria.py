"""Empty and unreadable responses of judges of criteria, from the judge to the report, beside loops over the input file."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from doubles.agreement_study import read, write
from doubles.criteria_grader import grade, shown
from doubles.endpoint import EndpointDouble, answer
from programs import run_command, succeeded

GOOD, THAI = "Swallow tablets whole together with food or milk.", "รับประทานยาพร้อมอาหาร"
CRITERIA = [{"criterion": "says to take it together with food or milk", "points": 5}, {"criterion": THAI, "points": 2}]
HARM = {"criterion": "says that any dose is harmless", "points": -4}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four cases: a answers all, b one and is silent in the others, c one and the others in a script nobody reads."""
    records = []
    for number in range(4):
        texts = {"a": GOOD, "b": GOOD if number == 0 else " \u200b\n", "c": GOOD if number == 0 else THAI}
        responses = [{"model": model, "text": text} for model, text in texts.items()]
        criteria = [CRITERIA[0], HARM] if number else [HARM, *CRITERIA]
        about = {"id": f"c{number}", "question": "How do I take ibuprofen?"}
        records.append(about | {"responses": responses, "criteria": criteria})
    return write(tmp_path_factory.mktemp("empty") / "cases.jsonl", records)


def points(case: dict, met: list) -> float:
    all_points = [each["points"] for each in case["criteria"]]
    return sum(each for each, is_met in zip(all_points, met) if is_met) / sum(each for each in all_points if each > 0)


def columns(said: str) -> dict[str, dict[str, str]]:
    """Return the printed table: model → column → cell."""
    lines = [line for line in said.splitlines() if line.startswith(("model ", "a ", "b ", "c "))]
    names, *rows = (re.split(" {2,}", line) for line in lines)
    return {row[0]: dict(zip(names, row)) for row in rows}


def test_whoever_answers_one_of_four_is_not_the_best(cases: Path, tmp_path: Path) -> None:
    def reads_english(body: dict) -> dict:
        response, criteria = shown(body)
        return answer("?") if THAI in (response, *criteria.values()) else grade(body)

    with EndpointDouble(reads_english) as endpoint:
        options = ("--cases", cases, "--judge", "openai:m", "--base_url", endpoint.url, "--rubric", "checklist")
        done = succeeded(run_command("judge", *options, "--output", tmp_path / "v"))
        assert len(endpoint.asked) == 9 + 3 + 9  # of b about its one answer alone
        done_again = run_command("judge", *options, "--output", tmp_path / "v")
    assert "0 new" in done_again.stdout
    succeeded(run_command("report", "--verdicts", tmp_path / "v", "--cases", cases, "--output", tmp_path / "r"))
    report = json.loads((tmp_path / "r" / "agreement.json").read_text())
    result, means = report["criteria"]["judges"]["m"]["candidates"], report["models"]["m"]["models"]
    verdicts = {(each["case_id"], each["order"][0]): each for each in read(tmp_path / "v" / "verdicts.jsonl")}
    printed = columns(done.stdout)
    for slot, model in enumerate("abc"):
        whole, unread = [], 0
        for case in read(cases):
            verdict, text = verdicts[case["id"], slot], case["responses"][slot]["text"]
            met = verdict["checklist"]["met"] if verdict["valid"] else [None] * len(case["criteria"])
            if model == "b" and case["id"] != "c0":
                assert met == [False] * len(case["criteria"])
                assert (verdict["empty"], verdict["checklist"]["score"]) == (["b"], 0.0)
            elif text == THAI:
                assert not verdict["valid"]
            else:
                assert [each is None for each in met] == [each["criterion"] == THAI for each in case["criteria"]]
            unread += met.count(None)
            whole += [points(case, met)] if None not in met else []
        if whole:
            assert means[model]["score"]["value"] == pytest.approx(np.mean(whole))
        assert [*result[model].values()][:3] == [4, len(whole), unread]
        assert printed[model]["unread criteria"] == str(unread)
    assert (means["a"]["score"]["value"], means["b"]["score"]["value"]) == (1, 0)
    assert "b gave no answer in 3 cases, which counts as the lowest" in done.stdout
    assert "  invalid, 3: " in done.stdout


def test_an_older_verdict_on_an_empty_response_counts_as_nothing_met(cases: Path, tmp_path: Path) -> None:
    verdict = {"judge": "old", "rubric": "checklist@1", "order": [1], "valid": False, "error": "no words"}
    file = write(tmp_path / "v.jsonl", [verdict | {"case_id": case["id"]} for case in read(cases)[1:]])
    succeeded(run_command("report", "--verdicts", file, "--cases", cases, "--output", tmp_path / "r"))
    result = json.loads((tmp_path / "r" / "agreement.json").read_text())
    row = result["criteria"]["judges"]["old"]["candidates"]["b"]
    assert (row["scored"], row["harm"]["value"], row["unread criteria"]) == (3, 0, 0)
    assert result["judges"]["old"]["empty"] == {"b": 3}
