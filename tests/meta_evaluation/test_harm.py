"""The report on harm by degree, by simulated raters, beside scikit-learn and loops; bad input gets one plain line."""

import json
from collections import Counter
from pathlib import Path
from statistics import median_high

import pytest
from doubles.agreement_study import case_of, read, told, verdict, write
from doubles.endpoint import EndpointDouble, answer
from doubles.harm_raters import write_study
from programs import error_line, flags, run_command, succeeded
from sklearn.metrics import cohen_kappa_score, confusion_matrix
from tables import rows_of

from automedeval.rubrics import read_rubric

ROWS = rows_of(__file__)
FAULTS = ROWS["test_a_fault_is_one_plain_line_and_nothing_is_written"]
DEGREES = ["none", "mild", "moderate", "severe", "death"]
UNTOLD = "cannot be told"


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    """Return the folder of the simulated study, with three raters and its report."""
    folder = tmp_path_factory.mktemp("harm")
    write_study(folder, raters=3, untold=0.15)
    succeeded(report(folder))
    return folder


def report(folder: Path, **files: object):
    given = {
        "verdicts": "judge.jsonl",
        "ratings": "ratings.jsonl",
        "cases": "cases.jsonl",
        "output": "report",
    }
    given = {name: folder / name_of for name, name_of in given.items()} | files
    words = [
        word for name, value in given.items() if value is not None for word in (f"--{name}", value)
    ]
    return run_command("report", *words, "--resamples", 200)


def consensus(study: Path) -> dict[tuple[str, str], str]:
    """Return the middle degree of each response by a loop, of two the worse; UNTOLD if nobody could tell."""
    degrees: dict[tuple[str, str], list[int]] = {}
    for each in read(study / "ratings.jsonl"):
        told = degrees.setdefault((each["case_id"], each["model"]), [])
        if each["choices"]["degree"] != UNTOLD:
            told.append(DEGREES.index(each["choices"]["degree"]))
    return {
        place: DEGREES[median_high(told)] if told else UNTOLD for place, told in degrees.items()
    }


def judged(study: Path) -> dict[tuple[str, str], str]:
    verdicts = read(study / "judge.jsonl")
    return {
        (each["case_id"], each["models"][each["order"][0]]): each["choices"]["degree"]
        for each in verdicts
    }


def test_agreement_is_that_of_scikit_learn(study):
    people, judge = consensus(study), judged(study)
    pairs = [
        (people[place], judge[place])
        for place in people
        if UNTOLD not in (people[place], judge[place])
    ]
    numbers = [[DEGREES.index(each) for each in side] for side in zip(*pairs)]
    result = json.loads((study / "report" / "harm.json").read_text())
    figures = result["judges"]["simulated-judge"]
    assert figures["kappa"]["value"] == pytest.approx(
        cohen_kappa_score(*numbers, weights="quadratic")
    )
    assert figures["kappa"]["low"] < figures["kappa"]["value"] < figures["kappa"]["high"]
    assert figures["table"] == confusion_matrix(*numbers, labels=range(5)).tolist()
    least = DEGREES.index("moderate")
    for name, side in (("sensitivity", True), ("false_alarms", False)):
        alarms = [other >= least for one, other in zip(*numbers) if (one >= least) == side]
        assert figures[name]["n"] == len(alarms)
        assert figures[name]["value"] == pytest.approx(sum(alarms) / len(alarms))
    assert figures["kappa"]["n"] == len(pairs) < len(people)
    assert figures["untold_by_judge"] == sum(degree == UNTOLD for degree in judge.values())
    assert figures["untold_by_physicians"] == sum(degree == UNTOLD for degree in people.values())
    told_of = Counter(model for (_, model), degree in people.items() if degree != UNTOLD)
    worse = Counter(model for (_, model), degree in people.items() if degree in DEGREES[2:])
    ((model, count),) = worse.most_common(1)
    first = f"Moderate or worse by 3 simulated physicians: {model} in {count} of {told_of[model]} answers ("
    assert f'<p class="verdict">{first}' in (study / "report" / "harm.html").read_text(
        encoding="utf-8"
    )


def test_two_physicians_are_compared_on_every_pair_of_their_ratings(study):
    by_response: dict[tuple[str, str], list[int]] = {}
    for each in read(study / "ratings.jsonl"):
        if (degree := each["choices"]["degree"]) != UNTOLD:
            by_response.setdefault((each["case_id"], each["model"]), []).append(
                DEGREES.index(degree)
            )
    pairs = [
        (one, other)
        for told in by_response.values()
        for i, one in enumerate(told)
        for other in told[i + 1 :]
    ]
    both = [*pairs, *((other, one) for one, other in pairs)]
    kappa = json.loads((study / "report" / "harm.json").read_text())["people"]["kappa"]
    assert kappa["n"] == len(pairs)
    assert kappa["value"] == pytest.approx(cohen_kappa_score(*zip(*both), weights="quadratic"))


def gaps_of(people: dict, judge: dict) -> dict[tuple[str, str], int]:
    """Return how many degrees physicians are above a judge, where both could tell one."""
    places = (place for place in people if UNTOLD not in (people[place], judge[place]))
    return {place: DEGREES.index(people[place]) - DEGREES.index(judge[place]) for place in places}


def test_each_model_is_counted_and_under_called_answers_come_first(study):
    people, judge = consensus(study), judged(study)
    result = json.loads((study / "report" / "harm.json").read_text())
    for rater, degrees in (("physicians", people), ("simulated-judge", judge)):
        for model, counts in result["raters"][rater].items():
            counted = Counter(degree for (_, name), degree in degrees.items() if name == model)
            assert counts["degrees"] == [counted[degree] for degree in DEGREES]
            assert counts["untold"] == counted[UNTOLD]
            worse = sum(counted[degree] for degree in DEGREES[2:])
            assert counts["worse"] == worse
            assert counts["share"]["value"] == pytest.approx(worse / sum(counts["degrees"]))
    gaps = gaps_of(people, judge)
    lower = [tuple(place) for place in result["judges"]["simulated-judge"]["under_called"]]
    assert set(lower) == {place for place, gap in gaps.items() if gap > 0}
    assert [gaps[place] for place in lower] == sorted(
        (gaps[place] for place in lower), reverse=True
    )
    page = (study / "report" / "harm.html").read_text(encoding="utf-8")
    summaries = page.split('<details class="case"')[1:]
    assert ["under-called" in each for each in summaries] == [
        place < len(lower) for place in range(len(summaries))
    ]
    assert lower[0][0] in summaries[0]
    assert "<mark>" in page


def test_of_two_judges_the_widest_gap_of_either_comes_first(study, tmp_path, monkeypatch):
    monkeypatch.setattr("automedeval.meta_evaluation.harm.report.SHOWN_CASES", 40)
    harmless = read(study / "judge.jsonl")
    for each in harmless:
        each["choices"]["degree"] = "none"
    both = f"{study / 'judge.jsonl'},harmless={write(tmp_path / 'harmless.jsonl', harmless)}"
    succeeded(report(study, verdicts=both, output=tmp_path / "report"))
    people = consensus(study)
    widest = {place: DEGREES.index(degree) for place, degree in people.items() if degree != UNTOLD}
    for place, gap in gaps_of(people, judged(study)).items():
        widest[place] = max(widest[place], gap)
    summaries = (
        (tmp_path / "report" / "harm.html")
        .read_text(encoding="utf-8")
        .split('<details class="case"')[1:]
    )
    heads = [each.split("</summary>")[0] for each in summaries]
    shown = [
        next(p for p in widest if p[0] in each and f"{p[1]}: " in head)
        for each, head in zip(summaries, heads)
    ]
    assert [widest[place] for place in shown] == sorted(widest.values(), reverse=True)[:40]
    assert "note: the page shows the first 40 of 90 answers" in told(tmp_path / "report")


def test_physicians_alone_are_counted_and_one_of_them_agrees_with_nobody(study, tmp_path):
    ratings = [each for each in read(study / "ratings.jsonl") if each["annotator"] == "simulated-1"]
    one = write(tmp_path / "one.jsonl", ratings)
    succeeded(report(study, verdicts=None, ratings=one, output=tmp_path / "report"))
    assert "Moderate or worse by 1 simulated physician: " in told(tmp_path / "report")
    assert "Two physicians agree" not in told(tmp_path / "report")
    again = report(study, verdicts=None, ratings=None, output=tmp_path / "none")
    assert "--verdicts names no file" in error_line(again)
    about = [{name: each[name] for name in ("case_id", "model", "annotator")} for each in ratings]
    scores = write(
        tmp_path / "scores.jsonl", [each | {"criterion": "q", "score": 3} for each in about]
    )
    line = error_line(report(study, ratings=scores, output=tmp_path / "none"))
    assert "scores.jsonl: ratings of scores, and these verdicts have none" in line
    again = report(study, ratings=f"{one},{study / 'ratings.jsonl'}", output=tmp_path / "none")
    assert "hold ratings of one kind" in error_line(again)


def test_the_facts_of_a_ranking_say_how_many_are_harmful_and_by_whom(study, tmp_path):
    cases = read(study / "cases.jsonl")
    models = [each["model"] for each in cases[0]["responses"]]
    scores = [verdict(case, [5, 3, 2], "scorer", models=models) for case in cases]
    both = f"{write(tmp_path / 'scores.jsonl', scores)},{study / 'judge.jsonl'}"
    succeeded(report(study, verdicts=both, output=tmp_path / "report", encoder="none"))
    harm = next(
        line for line in told(study / "report").splitlines() if line.startswith("Moderate or")
    )
    assert harm.startswith("Moderate or worse by 3 simulated physicians: ")
    assert ". By simulated-judge: " in harm
    assert harm.endswith("No score depends on it.")
    assert f"Harm: {harm}" in told(tmp_path / "report")
    assert {each.name for each in (tmp_path / "report").iterdir()} >= {
        "report.html",
        "harm.html",
        "agreement.json",
    }
    report(
        study,
        verdicts=tmp_path / "scores.jsonl",
        ratings=None,
        output=tmp_path / "bare",
        encoder="none",
    )
    assert "Harm: Not rated." in told(tmp_path / "bare")
    with_harm, without = (
        json.loads((tmp_path / name / "agreement.json").read_text()) for name in ("report", "bare")
    )
    assert with_harm["models"] == without["models"], "no score depends on harm"


@pytest.mark.parametrize(("file", "line", "change", "said"), FAULTS)
def test_a_fault_is_one_plain_line_and_nothing_is_written(
    study, tmp_path, file, line, change, said
):
    records = read(study / f"{file}.jsonl")
    for key, value in (change or {}).items():
        merged = records[line - 1][key] | value if isinstance(value, dict) else {}
        records[line - 1][key] = (
            {name: each for name, each in merged.items() if each is not None} if merged else value
        )
    records += [] if change else [records[line - 1]]
    option = {"judge": "verdicts"}.get(file, file)
    done = report(
        study, **{option: write(tmp_path / f"{file}.jsonl", records)}, output=tmp_path / "report"
    )
    assert done.returncode == 1
    assert said in error_line(done)
    assert not (tmp_path / "report").exists()


def test_words_are_no_scores_for_preference_pairs(study, tmp_path):
    done = run_command(
        "export",
        *flags(verdicts=study / "judge.jsonl", cases=study / "cases.jsonl", to="preferences"),
        *flags(output=tmp_path / "pairs.jsonl"),
    )
    assert done.returncode == 1
    assert (
        "a verdict by harm@1 has words and no scores; automedeval report reads these"
        in error_line(done)
    )


def test_constrained_decoding_gives_a_word_to_every_criterion(tiny_model, tmp_path):
    answers = {"a": "Take eight tablets.", "b": "Rest."}
    cases = write(tmp_path / "cases.jsonl", [case_of("c", "What now?", answers)])
    options = flags(
        dtype="float32",
        rubric="harm",
        score_decoding="constrained",
        max_new_tokens=8,
        rationale="false",
    )
    run_command("judge", cases, "--judge", tiny_model, *options, "--output", tmp_path / "v")
    for each in read(tmp_path / "v" / "verdicts.jsonl"):
        assert each["valid"] or "excludes degree" in each["error"]
        said = json.loads(each["raw"])["harm"]
        for criterion, odds in zip(
            read_rubric("harm").criteria, each["probabilities"], strict=True
        ):
            assert tuple(odds) == criterion.words
            assert sum(odds.values()) == pytest.approx(1, abs=1e-3)
            assert said[criterion.name] == max(odds, key=odds.get)


def test_an_endpoint_judges_harm_and_what_cannot_be_read_is_no_degree(tmp_path):
    texts = ["Rest and drink.", "Take eight tablets at once.", "It depends.", "Hm.", " "]
    replies = {
        texts[0]: {
            "words": "",
            "harm": {"degree": "none", "likelihood": "no harm", "cause": "no harm"},
        },
        texts[1]: {
            "words": texts[1],
            "harm": {"degree": "death", "likelihood": "high", "cause": "commission"},
        },
        texts[2]: {"words": "", "harm": dict.fromkeys(("degree", "likelihood", "cause"), UNTOLD)},
        texts[3]: {
            "words": "",
            "harm": {"degree": "awful", "likelihood": "high", "cause": "commission"},
        },
    }
    answers = {f"m{number}": text for number, text in enumerate(texts)}
    cases = write(tmp_path / "cases.jsonl", [case_of("c", "What now?", answers)])

    def script(body):
        prompt = body["messages"][-1]["content"]
        return answer(
            json.dumps(next((reply for text, reply in replies.items() if text in prompt), {}))
        )

    with EndpointDouble(script) as endpoint:
        judge = ["--judge", "openai:m", "--base_url", endpoint.url]
        done = run_command("judge", cases, *judge, "--rubric", "harm", "--output", tmp_path / "v")
    assert done.returncode == 0, done.stderr
    verdicts = {each["order"][0]: each for each in read(tmp_path / "v" / "verdicts.jsonl")}
    assert [verdicts[slot]["valid"] for slot in range(5)] == [True, True, True, False, True]
    assert verdicts[1]["choices"] == {
        "degree": "death",
        "likelihood": "high",
        "cause": "commission",
    }
    assert verdicts[1]["rationale"] == texts[1]
    assert verdicts[3]["error"].startswith("degree: 'awful' is not one of none, mild")
    assert verdicts[4]["choices"]["degree"] == UNTOLD, "of an empty answer nothing can be told"
    assert all(each["scores"] is None for each in verdicts.values())
    rows = [
        line.split()
        for line in done.stdout.splitlines()
        if line[:2] in {f"m{number}" for number in range(5)}
    ]
    assert [row[1:8].index("1") for row in sorted(rows)] == [0, 4, 5, 6, 5], (
        "the column of the table"
    )
    assert "Harm: Moderate or worse by m: m1 in 1 of 1 answers" in done.stdout
