"""`automedeval report`: what it finds, beside baselines, of verdicts themselves, and a page that is safe to open."""

import random
import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from doubles.agreement_study import (
    CASES,
    RATINGS,
    agreeing_verdicts,
    asked,
    case_of,
    made,
    pairwise_verdicts,
    read,
    verdict,
)
from doubles.introspection_study import case_of as complaint
from doubles.introspection_study import verdict_of
from doubles.tiny_bart import build_bart, build_roberta
from programs import (
    ENCODER,
    error_line,
    failed,
    flags,
    module_fixture,
    needs_encoder,
    run_command,
    succeeded,
)
from tables import each_row

from automedeval.meta_evaluation.report import grid
from automedeval.records import Verdict


def test_reports_agreement_with_people_and_baselines(tmp_path):
    report = made(tmp_path, agreeing_verdicts(), ratings=RATINGS)
    result = report.result
    page = report.page
    baselines = {"longer text", "BM25 to the question", "ROUGE-L to the reference", "random"}
    assert result["judges"].keys() == {"echo"} | baselines
    assert {each["second"] for each in result["comparisons"]} == baselines
    assert result["people"]["raters"] == "crossed"
    assert page.count('class="shares"') == 6, "three pairs by the judge, and by people"
    assert "<dt>Wins most pairs</dt><dd>No model clearly wins most pairs. " in page


def test_one_rater_has_no_reliability_and_no_ceiling(tmp_path):
    alone = [rating for rating in read(RATINGS) if rating["annotator"] == "simulated-1"]
    report = made(tmp_path, agreeing_verdicts(), ratings=alone)
    people = report.result["people"]
    assert people["reliability"] is None
    assert "no answer has two raters" in people["reason"]
    assert "ceiling" not in people
    assert "No answer has two raters: the agreement between people is not known." in report.told


def test_a_rater_of_hard_cases_is_no_strict_one_and_a_strict_one_does_not_disagree(tmp_path):
    """Raters of other names for half of the cases, who agree but for a strict one of each half."""
    ratings = []
    for rating in read(RATINGS):
        is_hard = rating["case_id"] in CASE_IDS[:15]
        rater = f"{rating['annotator']} {is_hard}"
        score = len(rating["model"]) - 4 * is_hard - rater.startswith("simulated-1")
        ratings.append(rating | {"annotator": rater, "score": score})
    people = made(tmp_path, agreeing_verdicts(), ratings=ratings).result["people"]
    assert people["ceiling"]["pearson"]["value"] == pytest.approx(1)


def test_raters_who_did_not_rate_all_are_partly_crossed_and_it_is_said(tmp_path):
    report = made(tmp_path, agreeing_verdicts(), ratings=read(RATINGS)[5:])
    result = report.result
    assert "; the raters of two models may differ. Lines" in report.page
    assert result["people"]["raters"] == "partly crossed"
    figures = result["people"]["reliability"]["fluency"]
    assert "ICC(1,1)" in figures
    assert figures["answers of ICC"] == figures["ICC(1,1)"]["n"] == 90
    report = made(tmp_path, agreeing_verdicts(), raters="crossed", ratings=read(RATINGS)[5:])
    (answers,) = re.findall(
        '(?s)<th scope="col">answers of ICC</th>.*?<td>([0-9]+)</td>', report.page
    )
    assert int(answers) < 90, "those that all rated"
    assert any("taken as partly crossed" in note for note in result["notes"])


def test_ratings_of_other_texts_of_a_judge_are_left_out_and_counted(tmp_path):
    verdicts = agreeing_verdicts()
    about = {"judge": "echo", "annotator": "chief", "criterion": "knowledge"}
    ratings = []
    for each in verdicts:
        of_text = {"case_id": each["case_id"], "verdict_digest": Verdict.from_dict(each).digest}
        ratings.append(about | of_text | {"score": 5})
    of_an_earlier_run = {"score": 1, "verdict_digest": "0123456789ab"}
    ratings += [each | of_an_earlier_run for each in ratings[:4]]
    ratings.append(about | {"case_id": CASE_IDS[0], "annotator": "other", "score": 3})
    ratings += [each | {"judge": "absent"} for each in ratings[:2]]
    report = made(tmp_path, verdicts, ratings=ratings)
    of_judges = report.result["verdict_ratings"]
    assert of_judges["echo"]["knowledge"]["counts"] == {"3": 1, "5": 30}
    assert of_judges["absent"]["knowledge"]["mean"]["n"] == 2
    assert "Figure 5a" in report.page
    notes = " ".join(report.result["notes"])
    assert "4 left out: of other texts than the judges' verdicts given here" in notes
    unchecked = (
        "have no verdict_digest, or no verdict is given here: counted by case and judge alone"
    )
    assert f"3 {unchecked}" in notes


def test_errors_that_people_found_in_verdicts_are_counted_by_kind(tmp_path):
    """Beside the counts of a loop over the export's lines."""
    verdicts = agreeing_verdicts()
    draw = random.Random(5)
    kinds = ("incomplete", "outdated", "bias_or_hallucination")
    ratings, findings, in_verdicts = [], Counter(), Counter()
    for each in verdicts[:20]:
        found = []
        for annotator in ("one", "two", "three"):
            ticked = [kind for kind in kinds if draw.random() < 0.3]
            found += ticked
            about = {"case_id": each["case_id"], "judge": "echo", "annotator": annotator}
            about |= {"verdict_digest": Verdict.from_dict(each).digest}
            ratings.append(about | {"criterion": "knowledge", "score": 2, "tags": ticked})
        findings.update(found)
        in_verdicts.update({*found})
    ratings += [ratings[0] | {"judge": "unasked", "verdict_digest": None, "tags": None}]
    report = made(tmp_path, verdicts, ratings=ratings)
    errors = report.result["verdict_errors"]
    assert list(errors) == ["echo"]  # nobody was asked about the other's errors
    assert list(errors["echo"]) == [*kinds, "unsupported_rating"]
    for kind, counted in errors["echo"].items():
        assert (counted["findings"], counted["verdicts"]) == (findings[kind], in_verdicts[kind])
        assert counted["share"]["value"] == pytest.approx(in_verdicts[kind] / 20)
    assert "Errors that people found" in report.page


def test_names_that_are_no_models_leave_a_stated_gap(tmp_path):
    answers = [{f"c{n}-{at}": "Rest." for at in range(3)} for n in range(8)]
    cases = [case_of(f"c{n}", "What helps?", texts) for n, texts in enumerate(answers)]
    report = made(tmp_path, [verdict(case, [1, 2, 3]) for case in cases], cases=cases)
    assert "ever compared with each other" in report.result["models"]["echo"]["gap"]
    assert "The models cannot be compared: " in report.told


HOSTILE = "\u202e</script><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7*7 }}$\\frac$ <!-- --> ]]>"


class Tags(HTMLParser):
    """Reads the tags of a page and their attributes."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()
        self.attributes = []

    def handle_starttag(self, tag, attrs):
        self.seen[tag] += 1
        self.attributes += attrs


def test_hostile_texts_and_names_stay_text(tmp_path):
    cases, ratings, verdicts = read(CASES), read(RATINGS), agreeing_verdicts()
    for case in cases:
        case |= {"question": case["question"] + HOSTILE, "topic": f"topic {HOSTILE}"}
        for response in case["responses"]:
            response |= {name: response[name] + HOSTILE for name in ("model", "text")}
    for rating in ratings:
        rating |= {name: rating[name] + HOSTILE for name in ("model", "criterion")}
        rating |= {"comment": HOSTILE}
    for each in verdicts:
        each |= {"judge": "echo" + HOSTILE, "rationale": HOSTILE}
    report = made(tmp_path, verdicts, worse="none", cases=cases, ratings=ratings)
    page = report.page
    tags = Tags()
    tags.feed(page)
    assert tags.seen["script"] == 1
    assert not tags.seen.keys() & {"img", "iframe", "link", "object"}
    assert not [name for name, _ in tags.attributes if name.startswith("on")]
    links = [value for name, value in tags.attributes if name in ("src", "href", "xlink:href")]
    assert all(link.startswith("#") for link in links)
    assert "default-src 'none'" in page
    shown = page.partition("<script>")[0]
    assert "\u202e" not in shown, "it would turn the rest of a sentence round"
    ids = [value for name, value in tags.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert "<script>" not in (report.folder / "report.md").read_text(encoding="utf-8")


def test_many_cases_are_sampled_and_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "GRID_CASES", 20)
    assert "20 of 30 cases are here" in made(tmp_path, agreeing_verdicts()).page


QUESTION = "embedding to the question"


@needs_encoder
@pytest.mark.slow
def test_embeddings_are_rows_of_the_report_with_paired_differences(tmp_path):
    verdicts = agreeing_verdicts()
    cases = tmp_path / "cases.jsonl"
    cases.write_text("".join(CASES.read_text("utf-8").splitlines(keepends=True)[:12]), "utf-8")
    given = flags(judge=f"baseline:{QUESTION}", output=tmp_path / "judged", encoder=ENCODER)
    succeeded(run_command("judge", *given, *flags(cases=cases)))
    verdicts += read(tmp_path / "judged/verdicts.jsonl")
    result = made(tmp_path, verdicts, cases=cases, ratings=RATINGS, encoder=ENCODER).result
    row = result["judges"][QUESTION]
    same = result["judges"][f"baseline:{QUESTION}"]
    assert row["concordance"] == same["concordance"]
    assert same["best_baseline"]["outcome"] != "better", "no judge is better than itself"
    assert result["settings"]["encoder"].startswith("all-MiniLM-L6-v2 (")


def test_the_report_says_whether_a_judge_is_better_than_the_best_baseline(tmp_path):
    turned = agreeing_verdicts("turned", expected_scores=None)
    for each in turned:
        each["scores"] = [6 - score for score in each["scores"]]
    verdicts = [*agreeing_verdicts(), *turned, *pairwise_verdicts()]
    report = made(tmp_path, verdicts, ratings=RATINGS)
    assert " (of 3 judges; " in report.told
    best = {name: each.get("best_baseline") for name, each in report.result["judges"].items()}
    assert best["longer text"] is None
    but = "but the embedding, which was not compared. The best of them is"
    assert f"echo is better than every baseline {but}" in report.told
    assert "no proof that echo agrees with people better than every simple baseline" in report.told
    legend = r"\n\nEvery judge: means over its runs, .* \* is p < 0.001.*\n\n\| evaluation model \|"
    assert re.search(legend, report.told)
    assert f"turned is worse than the best baseline, {best['turned']['name']}: " in report.told
    assert f"pairs: harmfulness is better than every baseline {but}" in report.told


NO_ENCODER = "no baselines that compare embeddings: "


def test_without_an_encoder_a_note_says_what_is_left_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    report = made(tmp_path, agreeing_verdicts(), ratings=RATINGS, encoder=None)
    assert report.result["settings"]["encoder"] is None
    (note,) = (note for note in report.result["notes"] if note.startswith(NO_ENCODER))
    assert "no encoder at models/all-MiniLM-L6-v2" in note
    assert f"note: {note}" in report.told
    rated = {"ratings": RATINGS, "encoder": "models/nowhere"}
    line = error_line(asked(tmp_path, agreeing_verdicts(), **rated))
    assert "no checkpoint at models/nowhere" in line


CASE_IDS = [case["id"] for case in read(CASES)]
JUDGES = ["echo", "other"]


def preference(case_id, choice, annotator="anna", judges=JUDGES):
    about = {"case_id": case_id, "judges": judges, "annotator": annotator}
    return about | {"criterion": "overall", "choice": choice}


def test_shares_by_hand_with_intervals_over_cases(tmp_path):
    """Three annotators on 30 cases: two prefer echo mostly, the third of them neither; half name other first."""
    preferred = []
    for number, case_id in enumerate(CASE_IDS):
        choice = "echo" if number % 5 else "other"
        judges = JUDGES[:: (-1) ** number]
        for annotator, own in (("anna", choice), ("ben", choice), ("cleo", "tie")):
            preferred.append(preference(case_id, own, annotator, judges))
    report = made(tmp_path, agreeing_verdicts(), ratings=preferred)
    (compared,) = report.result["preferences"]
    assert compared["judges"] == JUDGES
    record = compared["criteria"]["overall"]
    shares = [record[name]["value"] for name in ("first", "tie", "second", "margin")]
    assert shares == pytest.approx([48 / 90, 30 / 90, 12 / 90, 36 / 90])
    assert (record["first"]["n"], record["cases"]) == (90, 30)
    assert record["annotators"] == {"anna": [0.8, 0, 0.2], "ben": [0.8, 0, 0.2], "cleo": [0, 1, 0]}
    # A case's votes stand or fall together: 30 cases of -2/3 or 2/3 leave ± 0.20, 90 choices by themselves would leave ± 0.15.
    low = record["margin"]["low"]
    high = record["margin"]["high"]
    assert 0.36 < high - low < 0.44
    assert low < 0.4 < high
    page = report.page.partition("preferences between the verdicts of echo and other")[2]
    assert re.search("grow: 0.8;.*?grow: 0.0;.*?grow: 0.2;", page)


def test_more_than_two_judges_and_a_few_other_cases(tmp_path):
    records = [preference(case_id, "tie") for case_id in (*CASE_IDS[:10], "elsewhere")]
    records += [preference(each, "third", judges=["third", "echo"]) for each in CASE_IDS[:5]]
    records[0]["verdict_digests"] = ["0123456789ab", "123456789abc"]
    report = made(tmp_path, agreeing_verdicts(), ratings=records)
    assert re.search(r"--ratings \S+/rate-\w+/ratings.jsonl \S+/ratings.jsonl", report.told)
    assert report.told.count(" --ratings /") == 1
    result = report.result
    assert result["preferences"][0]["criteria"]["overall"]["tie"]["n"] == 9
    notes = " ".join(result["notes"])
    assert "ratings.jsonl: 1 left out: of other texts than the judges'" in notes
    assert "ratings.jsonl: 14 have no verdict_digest, or no verdict is given here" in notes
    assert [each["judges"] for each in result["preferences"]] == [JUDGES, ["third", "echo"]]
    assert result["preferences"][1]["criteria"]["overall"]["first"]["value"] == 1
    assert "preferences: 1 left out" in notes


@each_row("changes, message")
def test_a_fault_is_one_line_that_names_file_and_line(changes, message, tmp_path):
    records = [preference(CASE_IDS[0], "echo") | each for each in changes]
    records = [{key: each[key] for key in each if each[key] != "missing"} for each in records]
    line = error_line(asked(tmp_path, agreeing_verdicts(), ratings=records))
    assert re.search(rf"ratings\.jsonl.*{message}|ratings\.jsonl{message}", line)
    assert not (tmp_path / "out").exists()


COMPLAINTS = [complaint(number) for number in range(4)]


@module_fixture
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    bert = build_roberta(folder / "distilroberta-base", window=256, layers=5)
    return {"bert_model": bert, "bart_model": build_bart(folder / "bart", window=256)}


@pytest.fixture
def compared(models):
    """Return verdicts of a judge and a teacher with the same rationales, of which the judge lacks one, and the options."""
    verdicts = [verdict_of(case, (3, 4, 5), "judge") for case in COMPLAINTS[:3]]
    rubric = verdicts[0].rubric
    last = COMPLAINTS[3].id
    verdicts.append(Verdict(last, "judge", rubric, (0, 1, 2), error="unreadable"))
    verdicts += [verdict_of(case, (3, 4, 5), "teacher") for case in COMPLAINTS]
    files = {"verdicts": verdicts, "cases": COMPLAINTS}
    return files | {"teacher_verdicts": "teacher"} | models


def test_similarity_is_reported_as_similarity(compared, tmp_path):
    report = made(tmp_path, **compared)
    similarity = report.result["similarity"]
    text = report.text
    judge = similarity["judges"]["judge"]
    assert similarity["teacher"] == "teacher"
    assert (judge["rationales"], judge["left_out"]) == (3, {"invalid": 1})
    assert judge["bert_score"]["value"] == pytest.approx(1.0, abs=1e-4)  # the same words
    assert judge["bart_score"]["value"] < 0
    assert "Similarity to the teacher's rationale, not its quality" in text
    assert ">1.000" in text
    assert similarity["judges"]["teacher"] == {"reason": "the teacher itself"}


@each_row("more, message")
def test_what_cannot_be_compared_is_told_in_one_line(compared, tmp_path, more, message):
    failed(asked(tmp_path, **compared | more), message)
    assert not (tmp_path / "out/report.html").exists()
