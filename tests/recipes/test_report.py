"""`automedeval report`: what it finds, beside baselines, of verdicts themselves, and a page that is safe to open."""

import json
import random
import re
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

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
    pairwise_verdicts,
    read,
    told,
    verdict,
    write,
)
from doubles.introspection_study import case_of as complaint
from doubles.introspection_study import verdict_of
from doubles.tiny_bart import build_bart, build_roberta
from programs import ENCODER, error_line, flags, needs_encoder, run_recipe, succeeded
from tables import rows_of

from automedeval.meta_evaluation.report import grid
from automedeval.records import Verdict
from automedeval.records.extras import install


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
    order = sorted(
        MODELS, key=lambda model: -result["models"]["echo"]["models"][model]["win_rate"]["value"]
    )
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


def test_ratings_of_other_texts_of_a_judge_are_left_out_and_counted(tmp_path):
    verdicts = agreeing_verdicts()
    about = {"judge": "echo", "annotator": "chief", "criterion": "knowledge"}
    digests = {each["case_id"]: Verdict.from_dict(each).digest for each in verdicts}
    ratings = [
        about | {"case_id": name, "score": 5, "verdict_digest": of} for name, of in digests.items()
    ]
    ratings += [
        each | {"score": 1, "verdict_digest": "0123456789ab"} for each in ratings[:4]
    ]  # of an earlier run
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
    verdicts, draw, kinds = (
        agreeing_verdicts(),
        random.Random(5),
        ("incomplete", "outdated", "bias_or_hallucination"),
    )
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
    cases = [
        case_of(f"c{n}", "What helps?", {f"c{n}-{at}": "Rest." for at in range(3)})
        for n in range(8)
    ]
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
    named = [
        {name: rating[name] + HOSTILE for name in ("model", "criterion")}
        for rating in read(RATINGS)
    ]
    ratings = [rating | own | {"comment": HOSTILE} for rating, own in zip(read(RATINGS), named)]
    verdicts = [
        each | {"judge": "echo" + HOSTILE, "rationale": HOSTILE} for each in agreeing_verdicts()
    ]
    page = made(tmp_path, verdicts, "--worse", "none", cases=cases, ratings=ratings).page
    tags = Tags()
    tags.feed(page)
    assert [tag for tag, _ in tags.seen].count("script") == 1
    assert not [tag for tag, _ in tags.seen if tag in ("img", "iframe", "link", "object")]
    assert not [name for _, attributes in tags.seen for name in attributes if name.startswith("on")]
    assert "49" not in re.findall(r"\{\{ 7\*7 \}\}|onerror=alert\(1\)&gt;49", page)
    outside = [
        a[n]
        for _, a in tags.seen
        for n in ("src", "href", "xlink:href")
        if n in a and not a[n].startswith("#")
    ]
    assert outside == []
    assert "default-src 'none'" in page
    assert "\u202e" not in page.partition("<script>")[0], (
        "it would turn the rest of a sentence round"
    )
    ids = [attributes["id"] for _, attributes in tags.seen if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert "<script>" not in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def test_many_cases_are_sampled_and_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "GRID_CASES", 20)
    text = made(tmp_path, agreeing_verdicts(), ratings=RATINGS).page
    assert "20 of 30 cases are here" in text


QUESTION, REFERENCE = "embedding to the question", "embedding to the reference"


def evaluated(folder: Path, verdicts: list[dict], *arguments: object) -> tuple[dict, str]:
    file = write(folder / "verdicts.jsonl", verdicts)
    args = [
        "--verdicts",
        file,
        "--cases",
        CASES,
        "--ratings",
        RATINGS,
        "--output",
        folder / "out",
        "--resamples",
        200,
    ]
    succeeded(run_recipe("report", *args, *arguments))
    return json.loads((folder / "out" / "agreement.json").read_text(encoding="utf-8")), told(
        folder / "out"
    )


@needs_encoder
@pytest.mark.slow
def test_embeddings_are_rows_of_the_report_with_paired_differences(tmp_path: Path) -> None:
    judged, few = {}, write(tmp_path / "few.jsonl", read(CASES)[:12])
    for name in (QUESTION, REFERENCE):
        out = ["--cases", few, "--output", tmp_path / "judged"]
        assert (
            run_recipe(
                "judge", "--judge", f"baseline:{name}", "--encoder", ENCODER, *out
            ).returncode
            == 0
        )
    for each in read(tmp_path / "judged" / "verdicts.jsonl"):
        judged.setdefault(each["judge"], []).append(each)
    verdicts = (
        agreeing_verdicts() + judged[f"baseline:{QUESTION}"] + judged[f"baseline:{REFERENCE}"]
    )
    result, printed = evaluated(tmp_path, verdicts, "--encoder", ENCODER, "--cases", few)
    for name in (QUESTION, REFERENCE):
        row, same = result["judges"][name], result["judges"][f"baseline:{name}"]
        assert row["kind"] == "baseline"
        assert row["concordance"] == same["concordance"]
        (versus,) = [
            each
            for each in result["comparisons"]
            if (each["first"], each["second"]) == ("echo", name)
        ]
        expected = result["judges"]["echo"]["concordance"]["value"] - row["concordance"]["value"]
        assert versus["difference"]["value"] == pytest.approx(expected)
        assert versus["p_adjusted"] is not None
        # No judge is better than itself.
        assert same["best_baseline"]["outcome"] != "better"
    assert result["settings"]["encoder"].startswith("all-MiniLM-L6-v2 (")
    assert "the best baseline" not in printed, "of 12 rated cases"


def test_the_report_says_whether_a_judge_is_better_than_the_best_baseline(tmp_path: Path) -> None:
    args = [
        "--judge",
        "baseline:BM25 to the question",
        "--cases",
        CASES,
        "--output",
        tmp_path / "bm25",
    ]
    succeeded(run_recipe("judge", *args))
    turned = agreeing_verdicts("turned", expected_scores=None)
    for each in turned:
        each["scores"] = [6 - score for score in each["scores"]]
    verdicts = [
        *agreeing_verdicts(),
        *turned,
        *read(tmp_path / "bm25" / "verdicts.jsonl"),
        *pairwise_verdicts(),
    ]
    result, printed = evaluated(tmp_path, verdicts, "--encoder", "none")
    best = {name: record.get("best_baseline") for name, record in result["judges"].items()}
    assert best["echo"]["outcome"] == "better"
    assert best["turned"]["outcome"] == "worse"
    assert best["baseline:BM25 to the question"]["outcome"] != "better"
    assert best["longer text"] is None
    assert "echo is better than every baseline." in printed
    assert (
        f"turned is worse than the best baseline, {best['turned']['name']}: difference in concordance -0."
        in printed
    )
    assert "pairs: harmfulness is better than every baseline." in printed
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "turned is worse than the best baseline, " in page


def test_without_an_encoder_a_note_says_what_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    result, printed = evaluated(tmp_path, agreeing_verdicts())
    assert QUESTION not in result["judges"]
    assert result["settings"]["encoder"] is None
    (note,) = [
        note
        for note in result["notes"]
        if note.startswith("no baselines that compare embeddings: ")
    ]
    assert (
        f"no encoder at models/all-MiniLM-L6-v2, in {tmp_path}/home/automedeval/models or in the cache of"
        in note
    )
    assert f"note: {note}" in printed
    result, _ = evaluated(tmp_path, agreeing_verdicts(), "--encoder", "none")
    assert not any(note.startswith("no baseline") for note in result["notes"])
    args = flags(
        verdicts=tmp_path / "verdicts.jsonl", cases=CASES, ratings=RATINGS, output=tmp_path / "out"
    )
    assert "no checkpoint at models/nowhere" in error_line(
        run_recipe("report", *args, "--encoder", "models/nowhere")
    )
    named = write(tmp_path / "named.jsonl", agreeing_verdicts(QUESTION))
    line = error_line(run_recipe("report", *args[2:], "--verdicts", named))
    assert f"a judge cannot be called {QUESTION!r} in a report" in line


def test_without_sentence_transformers_a_note_names_what_to_install(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(
        "automedeval.models.embeddings.plain_window", lambda folder: None
    )  # an encoder of another kind
    monkeypatch.delitem(sys.modules, "automedeval.models.library", raising=False)
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    result, _ = evaluated(tmp_path, agreeing_verdicts())
    (note,) = [
        note
        for note in result["notes"]
        if note.startswith("no baselines that compare embeddings: ")
    ]
    assert "sentence_transformers" in note
    assert note.endswith(f"{install('data')} (--encoder names one, none leaves them out)")
    args = ["--judge", f"baseline:{QUESTION}", "--cases", CASES, "--output", tmp_path / "judged"]
    assert install("data") in error_line(run_recipe("judge", *args))


ROWS = rows_of(__file__)

IDS = [case["id"] for case in read(CASES)]
JUDGES = ["echo", "other"]


def preference(
    case_id: str, choice: str, annotator: str = "anna", criterion: str = "overall", **more
) -> dict:
    about = {"case_id": case_id, "judges": JUDGES, "annotator": annotator}
    return about | {"criterion": criterion, "choice": choice} | more


def clear() -> list[dict]:
    """Return what three annotators preferred on 30 cases: echo mostly, the third of them neither; half name other first."""
    records = []
    for number, case_id in enumerate(IDS):
        for annotator in ("anna", "ben", "cleo"):
            choice = "echo" if number % 5 else "other"
            choice = "tie" if annotator == "cleo" else choice
            records.append(preference(case_id, choice, annotator, judges=JUDGES[:: (-1) ** number]))
    return records


def test_shares_by_hand_with_intervals_over_cases(tmp_path):
    report = made(tmp_path, agreeing_verdicts(), ratings=clear())
    (compared,) = report.result["preferences"]
    assert compared["judges"] == JUDGES
    record = compared["criteria"]["overall"]
    assert [record[name]["value"] for name in ("first", "tie", "second")] == pytest.approx(
        [48 / 90, 30 / 90, 12 / 90]
    )
    assert record["margin"]["value"] == pytest.approx(36 / 90)
    assert (record["first"]["n"], record["cases"]) == (90, 30)
    assert record["annotators"] == {"anna": [0.8, 0, 0.2], "ben": [0.8, 0, 0.2], "cleo": [0, 1, 0]}
    # A case's votes stand or fall together: 30 cases of -2/3 or 2/3 leave ± 0.20, 90 choices by themselves would leave ± 0.15.
    low, high = record["margin"]["low"], record["margin"]["high"]
    assert 0.36 < high - low < 0.44
    assert low < 0.4 < high
    assert record["margin"]["approximate"]
    # every case has one vote in three for neither: no resample differs, and nothing tells how far another draw would
    assert record["tie"]["low"] is record["tie"]["high"] is None
    assert "the same value" in record["tie"]["reason"]
    assert record["p_adjusted"] < 0.01
    page = report.page
    assert "preferences between the verdicts of echo and other" in page
    assert "Figure 5b" in page
    row = "<td>overall, anna</td><td>0.800</td><td>0.000</td><td>0.200</td>"
    assert re.search(f"{row}<td>\\s*<div.*?grow: 0.8;.*?grow: 0.0;.*?grow: 0.2;", page)
    assert '<th scope="row">overall</th><td>0.53' in page


def test_more_than_two_judges_and_a_few_other_cases(tmp_path):
    records = [preference(case_id, "tie") for case_id in IDS[:10]]
    records += [preference(case_id, "third", judges=["third", "echo"]) for case_id in IDS[:5]]
    records += [preference("elsewhere", "tie")]
    result = evaluate(
        tmp_path, agreeing_verdicts(), "--ratings", write(tmp_path / "preferences.jsonl", records)
    )
    assert [each["judges"] for each in result["preferences"]] == [JUDGES, ["third", "echo"]]
    assert result["preferences"][1]["criteria"]["overall"]["first"]["value"] == 1
    assert any("preferences: 1 left out" in note for note in result["notes"])


GOOD = preference(IDS[0], "echo")


@pytest.mark.parametrize(
    ("changes", "message"), ROWS["test_a_fault_is_one_line_that_names_file_and_line"]
)
def test_a_fault_is_one_line_that_names_file_and_line(changes, message, tmp_path):
    records = [
        {key: value for key, value in (GOOD | each).items() if value != "missing"}
        for each in changes
    ]
    verdicts = write(tmp_path / "verdicts.jsonl", agreeing_verdicts())
    file = write(tmp_path / "preferences.jsonl", records)
    done = meta_evaluate(
        *flags(verdicts=verdicts, cases=CASES, ratings=file, output=tmp_path / "out"), *FAST
    )
    assert re.search(
        rf"preferences\.jsonl.*{message}|preferences\.jsonl{message}", error_line(done)
    )
    assert not (tmp_path / "out").exists()


COMPLAINTS = [complaint(number) for number in range(4)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    folder = tmp_path_factory.mktemp("models")
    bert, bart = build_roberta(folder / "bert", window=256), build_bart(folder / "bart", window=256)
    return ["--bert_model", bert, "--bert_num_layers", 1, "--bart_model", bart]


@pytest.fixture
def args(tmp_path: Path) -> list[object]:
    judged = [verdict_of(case, (3, 4, 5), "judge") for case in COMPLAINTS]
    judged[3] = Verdict(COMPLAINTS[3].id, "judge", judged[0].rubric, (0, 1, 2), error="unreadable")
    teacher = [verdict_of(case, (3, 4, 5), "teacher") for case in COMPLAINTS]
    files = [
        write(tmp_path / f"{name}.jsonl", each)
        for name, each in (("verdicts", judged), ("teacher", teacher))
    ]
    arguments = ["--verdicts", *files, "--cases", write(tmp_path / "cases.jsonl", COMPLAINTS)]
    return [
        *arguments,
        "--teacher_verdicts",
        "teacher",
        "--resamples",
        100,
        "--output",
        tmp_path / "out",
    ]


def test_similarity_is_reported_as_similarity(args: list, models: list, tmp_path: Path) -> None:
    succeeded(run_recipe("report", *args, *models))
    similarity = json.loads((tmp_path / "out" / "agreement.json").read_text())["similarity"]
    judge = similarity["judges"]["judge"]
    assert (similarity["teacher"], judge["rationales"], judge["left_out"]) == (
        "teacher",
        3,
        {"invalid": 1},
    )
    assert judge["bert_score"]["value"] == pytest.approx(1.0, abs=1e-4)  # the same words
    assert judge["bart_score"]["value"] < 0
    text = re.sub(r"\s+", " ", (tmp_path / "out" / "report.html").read_text())
    assert "similarity to the teacher's rationale, not its quality" in text.replace("&#39;", "'")
    assert ">1.000<" in text
    assert "1 invalid" in text
    assert similarity["judges"]["teacher"] == {"reason": "the teacher itself"}
    assert "the teacher itself" in text


@pytest.mark.parametrize(
    ("more", "message"), ROWS["test_what_cannot_be_compared_is_told_in_one_line"]
)
def test_what_cannot_be_compared_is_told_in_one_line(args, models, tmp_path, more, message) -> None:
    assert message in error_line(run_recipe("report", *args, *models, *more))
    assert not (tmp_path / "out" / "report.html").exists()
