"""The report on harm by degree, by simulated raters, beside scikit-learn and loops; bad input gets one plain line."""

import itertools
import json
from collections import Counter
from statistics import median_high

import pytest
from doubles.agreement_study import asked, case_of, made, read, verdict, write
from doubles.endpoint import EndpointDouble, answer
from doubles.harm_raters import write_study
from programs import error_line, failed, run_command, succeeded
from sklearn.metrics import cohen_kappa_score, confusion_matrix
from tables import rows_of

from automedeval.rubrics import read_rubric

ROWS = rows_of(__file__)
FAULTS = ROWS["test_a_fault_is_one_plain_line_and_nothing_is_written"]
DEGREES = ["none", "mild", "moderate", "severe", "death"]
MODERATE = 2
UNTOLD = "cannot be told"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Return the options that name the files of the simulated study, with three raters, and its report."""
    folder = tmp_path_factory.mktemp("harm")
    write_study(folder, raters=3, untold=0.15)
    files = {"verdicts": "judge", "ratings": "ratings", "cases": "cases"}
    options = {option: folder / f"{name}.jsonl" for option, name in files.items()}
    return options, made(folder, **options)


def harm_page(report) -> str:
    return (report.folder / "harm.html").read_text(encoding="utf-8")


def summaries_of(report) -> list[str]:
    """Return what the page says of each answer that it shows."""
    return harm_page(report).split('<details class="case"')[1:]


def told_degrees(options) -> dict[tuple[str, str], list[int]]:
    """Return the degrees that physicians could tell of each response."""
    degrees: dict[tuple[str, str], list[int]] = {}
    for each in read(options["ratings"]):
        of_response = degrees.setdefault((each["case_id"], each["model"]), [])
        if each["choices"]["degree"] != UNTOLD:
            of_response.append(DEGREES.index(each["choices"]["degree"]))
    return degrees


def consensus(options) -> dict[tuple[str, str], int | None]:
    """Return the middle degree of each response, of two the worse; None if nobody could tell."""
    degrees = told_degrees(options).items()
    return {place: median_high(told) if told else None for place, told in degrees}


def judged(options) -> dict[tuple[str, str], int | None]:
    found = {}
    for each in read(options["verdicts"]):
        degree = each["choices"]["degree"]
        place = each["case_id"], each["models"][each["order"][0]]
        found[place] = None if degree == UNTOLD else DEGREES.index(degree)
    return found


def gaps_of(people: dict, judge: dict) -> dict[tuple[str, str], int]:
    """Return how many degrees physicians are above a judge, where both could tell one."""
    places = [place for place in people if None not in (people[place], judge[place])]
    return {place: people[place] - judge[place] for place in places}


def test_agreement_is_that_of_scikit_learn(study):
    options, report = study
    people, judge = consensus(options), judged(options)
    both = [place for place in people if None not in (people[place], judge[place])]
    sides = [people[place] for place in both], [judge[place] for place in both]
    figures = report.json("harm")["judges"]["simulated-judge"]
    kappa = figures["kappa"]
    assert kappa["value"] == pytest.approx(cohen_kappa_score(*sides, weights="quadratic"))
    assert kappa["low"] < kappa["value"] < kappa["high"]
    assert kappa["n"] == len(both) < len(people)
    assert figures["table"] == confusion_matrix(*sides, labels=range(5)).tolist()
    for name, is_worse in (("sensitivity", True), ("false_alarms", False)):
        said = [other for one, other in zip(*sides) if (one >= MODERATE) == is_worse]
        alarms = [degree >= MODERATE for degree in said]
        assert figures[name]["n"] == len(alarms)
        assert figures[name]["value"] == pytest.approx(sum(alarms) / len(alarms))
    assert figures["untold_by_judge"] == [*judge.values()].count(None)
    assert figures["untold_by_physicians"] == [*people.values()].count(None)


def test_two_physicians_are_compared_on_every_pair_of_their_ratings(study):
    options, report = study
    degrees = told_degrees(options).values()
    pairs = [two for told in degrees for two in itertools.combinations(told, 2)]
    both = pairs + [two[::-1] for two in pairs]
    kappa = report.json("harm")["people"]["kappa"]
    assert kappa["n"] == len(pairs)
    assert kappa["value"] == pytest.approx(cohen_kappa_score(*zip(*both), weights="quadratic"))


def test_each_model_is_counted_and_under_called_answers_come_first(study):
    options, report = study
    people, judge = consensus(options), judged(options)
    result = report.json("harm")
    for rater, degrees in (("physicians", people), ("simulated-judge", judge)):
        counted = Counter((name, degree) for (_, name), degree in degrees.items())
        for model, counts in result["raters"][rater].items():
            of_model = [counted[model, degree] for degree in range(5)]
            worse = sum(of_model[MODERATE:])
            assert (counts["degrees"], counts["untold"]) == (of_model, counted[model, None])
            assert counts["worse"] == worse
            assert counts["share"]["value"] == pytest.approx(worse / sum(of_model))
    assert '<p class="verdict">Moderate or worse by 3 simulated physicians: ' in harm_page(report)
    gaps = gaps_of(people, judge)
    lower = [tuple(place) for place in result["judges"]["simulated-judge"]["under_called"]]
    assert set(lower) == {place for place, gap in gaps.items() if gap > 0}
    sizes = [gaps[place] for place in lower]
    assert sizes == sorted(sizes, reverse=True)
    summaries = summaries_of(report)
    under_called = ["under-called" in each for each in summaries]
    assert under_called == [place < len(lower) for place in range(len(summaries))]
    assert lower[0][0] in summaries[0]
    assert "<mark>" in harm_page(report)


def test_of_two_judges_the_widest_gap_of_either_comes_first(study, tmp_path, monkeypatch):
    monkeypatch.setattr("automedeval.meta_evaluation.harm.report.SHOWN_CASES", 40)
    options, _ = study
    harmless = read(options["verdicts"])
    for each in harmless:
        each["choices"]["degree"] = "none"
    file = write(tmp_path / "harmless.jsonl", harmless)
    both = f"{options['verdicts']},harmless={file}"
    report = made(tmp_path, **options | {"verdicts": both})
    people = consensus(options)
    widest = {place: degree for place, degree in people.items() if degree is not None}
    shown = []
    for text in summaries_of(report):
        head = text.partition("</summary>")[0]
        shown += [widest[p] for p in widest if p[0] in text and f"{p[1]}: " in head]
    assert shown == sorted(widest.values(), reverse=True)[:40]
    assert "note: the page shows the first 40 of 90 answers" in report.told


def test_physicians_alone_are_counted_and_one_of_them_agrees_with_nobody(study, tmp_path):
    options, _ = study
    ratings = [each for each in read(options["ratings"]) if each["annotator"] == "simulated-1"]
    told = made(tmp_path, None, cases=options["cases"], ratings=ratings).told
    assert "Moderate or worse by 1 simulated physician: " in told
    assert "Two physicians agree" not in told


def test_files_that_do_not_fit_together_get_one_line(study, tmp_path):
    options, _ = study
    ratings = read(options["ratings"])[::3]
    scores = [each | {"criterion": "q", "score": 3} for each in ratings]
    for each in scores:
        del each["choices"]
    files = [write(tmp_path / "scores.jsonl", scores), write(tmp_path / "one.jsonl", ratings)]
    both = f"{files[1]},{options['ratings']}"
    for changed, said in (
        ({"verdicts": None, "ratings": None}, "--verdicts names no file"),
        ({"ratings": files[0]}, "scores.jsonl: ratings of scores, and these verdicts have none"),
        ({"ratings": both}, "hold ratings of one kind"),
        ({"baseline": "larch-7b"}, "--baseline needs verdicts with scores or choices"),
    ):
        assert said in error_line(asked(tmp_path, **options | changed))


def test_the_facts_of_a_ranking_say_how_many_are_harmful_and_by_whom(study, tmp_path):
    options, report = study
    cases = read(options["cases"])
    models = [each["model"] for each in cases[0]["responses"]]
    scores = [verdict(case, [5, 3, 2], "scorer", models=models) for case in cases]
    bare = made(tmp_path, scores, cases=options["cases"], output=tmp_path / "bare")
    both = f"{tmp_path / 'verdicts.jsonl'},{options['verdicts']}"
    with_harm = made(tmp_path, **options | {"verdicts": both})
    harm = next(line for line in report.told.splitlines() if line.startswith("Moderate or"))
    assert harm.startswith("Moderate or worse by 3 simulated physicians: ")
    assert ". By simulated-judge: " in harm
    assert harm.endswith("No score depends on it.")
    assert f"Harm: {harm}" in with_harm.told
    written = {each.name for each in with_harm.folder.iterdir()}
    assert written >= {"report.html", "harm.html", "agreement.json"}
    assert "Harm: Not rated." in bare.told
    assert with_harm.result["models"] == bare.result["models"], "no score depends on harm"


@pytest.mark.parametrize(("file", "line", "change", "said"), FAULTS)
def test_a_fault_is_one_plain_line_and_nothing_is_written(
    study, tmp_path, file, line, change, said
):
    options, _ = study
    option = {"judge": "verdicts"}.get(file, file)
    records = read(options[option])
    changed = records[line - 1]
    for key, value in (change or {}).items():
        if isinstance(value, dict):
            value = {name: each for name, each in (changed[key] | value).items() if each}
        changed[key] = value
    if not change:
        records.append(changed)
    given = options | {option: write(tmp_path / f"{file}.jsonl", records)}
    assert said in error_line(asked(tmp_path, **given))
    assert not (tmp_path / "out").exists()


def test_words_are_no_scores_for_preference_pairs(study, tmp_path):
    files = {name: study[0][name] for name in ("verdicts", "cases")}
    done = run_command("export", **files, to="preferences", output=tmp_path / "pairs.jsonl")
    failed(done, "a verdict by harm@1 has words and no scores; automedeval report reads these")


def test_constrained_decoding_gives_a_word_to_every_criterion(tiny_model, tmp_path):
    answers = {"a": "Take eight tablets.", "b": "Rest."}
    cases = write(tmp_path / "cases.jsonl", [case_of("c", "What now?", answers)])
    options = {"dtype": "float32", "max_new_tokens": 8, "rationale": "false", "rubric": "harm"}
    options |= {"score_decoding": "constrained", "output": tmp_path / "v"}
    run_command("judge", cases, judge=tiny_model, **options)
    for each in read(tmp_path / "v" / "verdicts.jsonl"):
        assert each["valid"] or "excludes degree" in each["error"]
        said, criteria = json.loads(each["raw"])["harm"], read_rubric("harm").criteria
        for criterion, odds in zip(criteria, each["probabilities"], strict=True):
            assert tuple(odds) == criterion.words
            assert sum(odds.values()) == pytest.approx(1, abs=1e-3)
            assert said[criterion.name] == max(odds, key=odds.get)


def test_an_endpoint_judges_harm_and_what_cannot_be_read_is_no_degree(tmp_path):
    """Of the last answer, which is empty, nothing can be told."""
    replies = ROWS["test_an_endpoint_judges_harm_and_what_cannot_be_read_is_no_degree"]
    texts = [*replies, " "]
    answers = {f"m{number}": text for number, text in enumerate(texts)}
    cases = write(tmp_path / "cases.jsonl", [case_of("c", "What now?", answers)])

    def script(body):
        prompt = body["messages"][-1]["content"]
        reply = next((reply for text, reply in replies.items() if text in prompt), {})
        return answer(json.dumps(reply))

    with EndpointDouble(script) as endpoint:
        options = {"base_url": endpoint.url, "rubric": "harm", "output": tmp_path / "v"}
        done = succeeded(run_command("judge", cases, judge="openai:m", **options))
    verdicts = {each["order"][0]: each for each in read(tmp_path / "v" / "verdicts.jsonl")}
    assert [verdicts[slot]["valid"] for slot in range(5)] == [True, True, True, False, True]
    assert verdicts[1]["choices"] == replies[texts[1]]["harm"]
    assert verdicts[1]["rationale"] == texts[1]
    assert verdicts[3]["error"].startswith("degree: 'awful' is not one of none, mild")
    assert verdicts[4]["choices"]["degree"] == UNTOLD
    assert all(each["scores"] is None for each in verdicts.values())
    rows = sorted(line.split() for line in done.stdout.splitlines() if line[:2] in answers)
    columns = [row[1:8].index("1") for row in rows]
    assert columns == [0, 4, 5, 6, 5], "the column of the table"
    assert "Harm: Moderate or worse by m: m1 in 1 of 1 answers" in done.stdout
