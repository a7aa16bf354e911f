"""`automedeval report` by its command: what it finds, what it says of gaps, bad input, and a page that is safe to open."""

import json
import random
import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from doubles.agreement_study import (
    CASES,
    FAST,
    MEASURES,
    MODELS,
    RATINGS,
    agreeing_verdicts,
    case_of,
    evaluate,
    made,
    meta_evaluate,
    read,
    verdict,
    write,
)
from programs import error_line, succeeded

from automedeval.meta_evaluation.report import grid
from automedeval.records import Verdict


def test_reports_agreement_with_intervals_ceiling_and_baselines(tmp_path):
    report = made(tmp_path, agreeing_verdicts(), ratings=RATINGS)
    result, page = report.result, report.page
    echo = result["judges"]["echo"]
    for name in (*MEASURES, "valid_rate"):
        estimate = echo[name]
        assert {"value", "low", "high", "n"} <= estimate.keys()
        assert estimate["low"] <= estimate["value"] <= estimate["high"], name
    assert echo["pairwise_accuracy"]["n"] == 90
    assert echo["triple_accuracy"]["n"] == 30
    assert echo["concordance"]["value"] > 0.85
    baselines = {"longer text", "BM25 to the question", "ROUGE-L to the reference", "random"}
    assert result["judges"].keys() == {"echo"} | baselines
    by_chance = result["judges"]["random"]
    assert by_chance["concordance"]["value"] is not None
    assert result["people"]["raters"] == "crossed"
    criteria = {"relevancy", "knowledge_correctness", "fluency", "mean of the criteria"}
    assert result["people"]["reliability"].keys() == criteria
    assert 0.5 < result["people"]["ceiling"]["concordance"]["value"] <= 1
    assert {each["second"] for each in result["comparisons"]} == baselines
    assert len(result["models"]["echo"]["pairs"]) == 3
    assert page.count('class="shares"') == 6, "three pairs by the judge, and by people"
    assert "<dt>Best model</dt><dd>No model is shown to be best. " in page
    assert "of the pairs of responses as people do" in page
    summary = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "- Best model: No model is shown to be best. " in summary
    rows = [line.split(" | ")[0] for line in summary.splitlines() if line.startswith("| ")]
    order = sorted(MODELS, key=lambda model: -result["models"]["echo"]["models"][model]["win_rate"]["value"])
    assert rows == ["| model", *(f"| {model}" for model in order)]
    assert "[report.html](report.html)" in summary


def test_one_rater_has_no_reliability_and_no_ceiling(tmp_path):
    alone = [rating for rating in read(RATINGS) if rating["annotator"] == "simulated-1"]
    report = made(tmp_path, agreeing_verdicts(), ratings=alone)
    result = report.result
    assert result["people"]["reliability"] is None
    assert "one rater" in result["people"]["reason"]
    assert "ceiling" not in result["people"]
    assert "one rater only" in report.page


def test_raters_who_did_not_rate_all_are_taken_as_anonymous_and_it_is_said(tmp_path):
    some = write(tmp_path / "ratings.jsonl", read(RATINGS)[5:])
    result = evaluate(tmp_path, agreeing_verdicts(), "--ratings", some)
    assert result["people"]["raters"] == "anonymous"
    assert "ICC(1,1)" in result["people"]["reliability"]["fluency"]
    assert any("taken as anonymous" in note for note in result["notes"])
    crossed = evaluate(tmp_path, agreeing_verdicts(), "--ratings", some, "--raters", "crossed")
    assert "ICC(A,1)" in crossed["people"]["reliability"]["fluency"]


def test_files_can_name_their_judges(tmp_path):
    file = write(tmp_path / "one.jsonl", agreeing_verdicts())
    options = ("--cases", CASES, "--output", tmp_path / "out", *FAST, "--verdicts")
    succeeded(meta_evaluate(*options, f"first={file}", f"second={file}"))
    assert list(json.loads((tmp_path / "out" / "agreement.json").read_text())["judges"]) == ["first", "second"]
    assert "two judges are called 'echo'" in error_line(meta_evaluate(*options, file, file))


def test_ratings_of_other_texts_of_a_judge_are_left_out_and_counted(tmp_path):
    verdicts = agreeing_verdicts()
    about = {"judge": "echo", "annotator": "chief", "criterion": "knowledge"}
    digests = {each["case_id"]: Verdict.from_dict(each).digest for each in verdicts}
    ratings = [about | {"case_id": name, "score": 5, "verdict_digest": of} for name, of in digests.items()]
    ratings += [each | {"score": 1, "verdict_digest": "0123456789ab"} for each in ratings[:4]]  # of an earlier run
    ratings += [{"case_id": ratings[0]["case_id"], **about, "annotator": "other", "score": 3}]
    ratings += [each | {"judge": "absent"} for each in ratings[:2]]
    report = made(tmp_path, verdicts, ratings=write(tmp_path / "verdict_ratings.jsonl", ratings))
    result = report.result
    assert result["verdict_ratings"]["echo"]["knowledge"]["counts"] == {"3": 1, "5": 30}
    assert result["verdict_ratings"]["absent"]["knowledge"]["mean"]["n"] == 2
    notes = [note.partition(": ")[2] for note in result["notes"] if "verdict_ratings" in note]
    assert "Figure 5a" in report.page
    assert notes == [
        "4 left out: of other texts than the judges' verdicts given here",
        "1 have no verdict_digest: counted by case and judge alone",
    ]


def test_errors_that_people_found_in_verdicts_are_counted_by_kind(tmp_path):
    """Beside the counts of a loop over the export's lines."""
    verdicts, draw, kinds = agreeing_verdicts(), random.Random(5), ("incomplete", "outdated", "bias_or_hallucination")
    ratings, found = [], Counter()
    for each in verdicts[:20]:
        in_it = set()
        for annotator in ("one", "two", "three"):
            ticked = [kind for kind in kinds if draw.random() < 0.3]
            in_it |= {*ticked}
            found.update(("findings", kind) for kind in ticked)
            about = {"case_id": each["case_id"], "judge": "echo", "annotator": annotator}
            about |= {"verdict_digest": Verdict.from_dict(each).digest}
            ratings += [about | {"criterion": "knowledge", "score": 2, "tags": ticked}]
            ratings += [about | {"criterion": "fluency", "score": 4, "tags": []}]
        found.update(("verdicts", kind) for kind in in_it)
    ratings += [ratings[0] | {"judge": "unasked", "verdict_digest": None, "tags": None}]
    report = made(tmp_path, verdicts, ratings=write(tmp_path / "verdict_ratings.jsonl", ratings))
    errors = report.result["verdict_errors"]
    assert errors.keys() == {"echo"}  # nobody was asked about the other's errors
    assert list(errors["echo"]) == [*kinds, "unsupported_rating"]
    assert min(found.values()) > 0
    for kind, counted in errors["echo"].items():
        assert counted["findings"] == found["findings", kind]
        assert counted["verdicts"] == found["verdicts", kind]
        assert counted["share"]["n"] == 20
        assert counted["share"]["value"] == pytest.approx(found["verdicts", kind] / 20)
    assert "Errors that people found in verdicts of echo" in report.page
    row = rf"<th scope=.row.>outdated</th><td>{found['verdicts', 'outdated']} of 20</td>"
    assert re.search(row, report.page)


def test_names_that_are_no_models_leave_a_stated_gap(tmp_path):
    cases = [case_of(f"c{n}", "What helps?", {f"c{n}-{at}": "Rest." for at in range(3)}) for n in range(8)]
    report = made(tmp_path, [verdict(case, [1, 2, 3]) for case in cases], cases=cases)
    assert "never compared with each other" in report.result["models"]["echo"]["gap"]
    assert "The models cannot be compared: " in report.told


HOSTILE = "\u202e</script><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7*7 }}$\\frac$ <!-- --> ]]>"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict]] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.seen.append((tag, dict(attrs)))


def test_hostile_texts_and_names_stay_text(tmp_path):
    cases = read(CASES)
    for case in cases:
        case["question"] += HOSTILE
        case["topic"] = f"topic {HOSTILE}"
        for response in case["responses"]:
            response["text"] += HOSTILE
            response["model"] += HOSTILE
    named = [{name: rating[name] + HOSTILE for name in ("model", "criterion")} for rating in read(RATINGS)]
    ratings = [rating | own | {"comment": HOSTILE} for rating, own in zip(read(RATINGS), named)]
    verdicts = [each | {"judge": "echo" + HOSTILE, "rationale": HOSTILE} for each in agreeing_verdicts()]
    page = made(tmp_path, verdicts, cases=cases, ratings=ratings).page
    tags = Tags()
    tags.feed(page)
    assert [tag for tag, _ in tags.seen].count("script") == 1
    assert not [tag for tag, _ in tags.seen if tag in ("img", "iframe", "link", "object")]
    assert not [name for _, attributes in tags.seen for name in attributes if name.startswith("on")]
    assert "49" not in re.findall(r"\{\{ 7\*7 \}\}|onerror=alert\(1\)&gt;49", page)
    outside = [a[n] for _, a in tags.seen for n in ("src", "href", "xlink:href") if n in a and not a[n].startswith("#")]
    assert outside == []
    assert "default-src 'none'" in page
    assert "\u202e" not in page.partition("<script>")[0], "it would turn the rest of a sentence round"
    ids = [attributes["id"] for _, attributes in tags.seen if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert "<script>" not in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def test_many_cases_are_sampled_and_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "GRID_CASES", 20)
    text = made(tmp_path, agreeing_verdicts(), ratings=RATINGS).page
    assert "20 of 30 cases are here" in text
