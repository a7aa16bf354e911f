"""The report on harm by degree, by simulated raters, beside scikit-learn and loops; bad input gets one plain line."""

import json
import re
from collections import Counter, defaultdict
from itertools import combinations
from statistics import median_high

import numpy as np
import pytest
from doubles.agreement_study import asked, case_of, made, read, verdict, write
from doubles.endpoint import EndpointDouble, answer, prompt_of
from doubles.harm_raters import write_study
from programs import failed, module_fixture, run_command, succeeded
from sklearn.metrics import cohen_kappa_score, confusion_matrix
from tables import each_row, rows_of, with_words

from automedeval.rubrics import read_rubric

ROWS = rows_of(__file__)
DEGREES = ["none", "mild", "moderate", "severe", "death"]
NUMBER_OF = {degree: number for number, degree in enumerate(DEGREES)}  # none of "cannot be told"
MODERATE = 2
WORSE = "Moderate or worse by the middle degree of"


@module_fixture
def study(tmp_path_factory):
    """Return the options that name the files of the simulated study, with three raters, and its report."""
    folder = tmp_path_factory.mktemp("harm")
    write_study(folder, raters=3, untold=0.15)
    options = {"verdicts": folder / "judge.jsonl"}
    for name in ("ratings", "cases"):
        options[name] = folder / f"{name}.jsonl"
    return options, made(folder, **options)


def harm_page(report) -> str:
    return (report.folder / "harm.html").read_text(encoding="utf-8")


def summaries_of(report) -> list[str]:
    """Return what the page says of each answer that it shows."""
    return harm_page(report).split('<details class="case"')[1:]


def told_degrees(options) -> dict[tuple[str, str], list[int]]:
    """Return the degrees that physicians could tell of each response."""
    degrees = defaultdict(list)
    for rating in read(options["ratings"]):
        of_response = degrees[rating["case_id"], rating["model"]]
        degree = rating["choices"]["degree"]
        if degree in DEGREES:
            of_response.append(NUMBER_OF[degree])
    return degrees


def consensus(options) -> dict[tuple[str, str], int | None]:
    """Return the middle degree of each response, of two the worse; None if nobody could tell."""
    degrees = told_degrees(options).items()
    return {place: median_high(told) if told else None for place, told in degrees}


def judged(options) -> dict[tuple[str, str], int | None]:
    found = {}
    for line in read(options["verdicts"]):
        (slot,) = line["order"]
        model = line["models"][slot]
        degree = line["choices"]["degree"] if line["valid"] else None
        found[line["case_id"], model] = NUMBER_OF.get(degree)
    return found


def told_by_both(people: dict, judge: dict) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the degrees of physicians and of a judge, where both could tell one."""
    both = {place: (degree, judge[place]) for place, degree in people.items()}
    return {place: degrees for place, degrees in both.items() if None not in degrees}


def test_agreement_is_that_of_scikit_learn(study):
    options, report = study
    people = consensus(options)
    judge = judged(options)
    pairs = told_by_both(people, judge)
    of_people, of_judge = np.transpose([*pairs.values()])
    figures = report.json("harm")["judges"]["simulated-judge"]
    kappa = figures["kappa"]
    wanted = cohen_kappa_score(of_people, of_judge, weights="quadratic")
    assert kappa["value"] == pytest.approx(wanted)
    assert kappa["low"] < kappa["value"] < kappa["high"]
    assert kappa["n"] == len(pairs) < len(people)
    table = confusion_matrix(of_people, of_judge, labels=range(5))
    assert figures["table"] == table.tolist()
    harmful = [place for place, degree in people.items() if (degree or 0) >= MODERATE]
    others = pairs.keys() - harmful
    for name, places in (("sensitivity", harmful), ("false_alarms", others)):
        found = [(judge[place] or 0) >= MODERATE for place in places]
        assert figures[name]["n"] == len(found)
        assert figures[name]["value"] == pytest.approx(np.mean(found))
    assert figures["untold_by_judge"] + figures["unread"] == [*judge.values()].count(None)
    assert figures["untold_by_physicians"] == [*people.values()].count(None)


def test_two_physicians_are_compared_on_every_pair_of_their_ratings(study):
    options, report = study
    pairs = []
    for told in told_degrees(options).values():
        pairs += combinations(told, 2)
    one, other = np.transpose(pairs)
    # Their order is arbitrary: each pair counts both ways.
    first = np.concatenate([one, other])
    second = np.concatenate([other, one])
    wanted = cohen_kappa_score(first, second, weights="quadratic")
    kappa = report.json("harm")["people"]["kappa"]
    assert kappa["n"] == len(pairs)
    assert kappa["value"] == pytest.approx(wanted)


def test_each_model_is_counted_and_under_called_answers_come_first(study):
    options, report = study
    people = consensus(options)
    judge = judged(options)
    result = report.json("harm")
    for rater, degrees in (("physicians", people), ("simulated-judge", judge)):
        counted = Counter((name, degree) for (_, name), degree in degrees.items())
        for model, counts in result["raters"][rater].items():
            of_model = [counted[model, degree] for degree in range(5)]
            worse = sum(of_model[MODERATE:])
            assert counts["degrees"] == of_model
            assert counts["untold"] + counts["unread"] == counted[model, None]
            assert counts["worse"] == worse
            assert counts["share"]["value"] == pytest.approx(worse / sum(of_model))
    page = harm_page(report)
    assert f'<p class="verdict">{WORSE} 1 to 3 simulated physicians: ' in page
    assert "<mark>" in page
    gaps = {}
    for place, (of_people, of_judge) in told_by_both(people, judge).items():
        if of_people > of_judge:
            gaps[place] = of_people - of_judge
    under_called = result["judges"]["simulated-judge"]["under_called"]
    lower = [tuple(place) for place in under_called]
    assert set(lower) == gaps.keys()
    sizes = [gaps[place] for place in lower]
    assert sizes == sorted(sizes, reverse=True)
    summaries = summaries_of(report)
    named = ["under-called" in summary for summary in summaries]
    assert named == [place < len(lower) for place in range(len(summaries))]
    assert lower[0][0] in summaries[0]


def test_of_two_judges_the_widest_gap_of_either_comes_first(study, tmp_path, monkeypatch):
    monkeypatch.setattr("automedeval.meta_evaluation.harm.report.SHOWN_CASES", 40)
    options, _ = study
    harmless = read(options["verdicts"])
    for line in harmless:
        line["valid"] = True
        line["choices"]["degree"] = "none"
    file = write(tmp_path / "harmless.jsonl", harmless)
    both = f"{options['verdicts']},harmless={file}"
    report = made(tmp_path, **options | {"verdicts": both})
    people = consensus(options)
    widest = {place: degree for place, degree in people.items() if degree is not None}
    shown = []
    for text in summaries_of(report):
        head = text.partition("</summary>")[0]
        for (case_id, model), degree in widest.items():
            if case_id in text and f"{model}: " in head:
                shown.append(degree)
    assert shown == sorted(widest.values(), reverse=True)[:40]
    assert "note: the page shows the first 40 of 90 answers" in report.told


def test_physicians_alone_are_counted_and_one_of_them_agrees_with_nobody(study, tmp_path):
    """A second one, who can tell no degree, is not counted."""
    options, _ = study
    ratings = read(options["ratings"])
    ratings = [line for line in ratings if line["annotator"] == "simulated-1"]
    for line, words in zip(ratings, ROWS["words of ratings, of which two contradict themselves"]):
        line["choices"] = words
    unsure = {"annotator": "simulated-2", "choices": {"degree": "cannot be told"}}
    ratings += [line | unsure for line in ratings]
    report = made(tmp_path, None, cases=options["cases"], ratings=ratings)
    assert "Moderate or worse by 1 simulated physician: " in report.told
    assert "Two physicians agree" not in report.told
    assert "Ratings that contradict themselves: 2, which count by their degrees." in report.said


def test_files_that_do_not_fit_together_get_one_line(study, tmp_path):
    options, _ = study
    ratings = read(options["ratings"])[::3]
    scores = [line | {"criterion": "q", "score": 3} for line in ratings]
    for line in scores:
        del line["choices"]
    words = {
        "SCORES": write(tmp_path / "scores.jsonl", scores),
        "SOME": write(tmp_path / "one.jsonl", ratings),
        "RATINGS": options["ratings"],
    }
    rows = ROWS["test_files_that_do_not_fit_together_get_one_line"]
    for changed, said in with_words(rows, **words):
        done = asked(tmp_path, **options | changed)
        failed(done, said)


def test_the_facts_of_a_ranking_say_how_many_are_harmful_and_by_whom(study, tmp_path):
    options, report = study
    cases = read(options["cases"])
    models = [response["model"] for response in cases[0]["responses"]]
    scores = [verdict(case, [5, 3, 2], "scorer", models=models) for case in cases]
    bare = made(tmp_path, scores, cases=options["cases"], output=tmp_path / "bare")
    both = f"{tmp_path / 'verdicts.jsonl'},{options['verdicts']}"
    with_harm = made(tmp_path, **options | {"verdicts": both})
    harm = next(line for line in report.told.splitlines() if line.startswith("Moderate or"))
    assert harm.startswith(f"{WORSE} 1 to 3 simulated physicians: ")
    assert ". By simulated-judge: " in harm
    assert harm.endswith("No score depends on it.")
    assert f"Harm: {harm}" in with_harm.told
    raters = report.json("harm")["raters"]
    most = max(counts["worse"] for counts in raters["physicians"].values())
    first = f"Read first: in {most} of .* harm is {WORSE.lower()} 1 to 3 "
    assert re.match(first, with_harm.said)
    assert f"{most} harmful" in with_harm.page
    written = {file.name for file in with_harm.folder.iterdir()}
    assert written >= {"report.html", "harm.html", "agreement.json"}
    assert "Harm: Not rated." in bare.told
    assert with_harm.result["models"] == bare.result["models"], "no score depends on harm"


@each_row("file, line, change, said")
def test_a_fault_is_one_plain_line_and_nothing_is_written(
    study, tmp_path, file, line, change, said
):
    options, _ = study
    option = "verdicts" if file == "judge" else file
    records = read(options[option])
    changed = records[line - 1]
    if change is None:
        records.append(changed)
    else:
        changed |= change
    given = options | {option: write(tmp_path / f"{file}.jsonl", records)}
    done = asked(tmp_path, **given)
    failed(done, said)
    assert not (tmp_path / "out").exists()


def test_words_are_no_scores_for_preference_pairs(study, tmp_path):
    options, _ = study
    files = {"verdicts": options["verdicts"], "cases": options["cases"]}
    done = run_command("export", **files, to="preferences", output=tmp_path / "pairs.jsonl")
    failed(done, "a verdict by harm@1 is in words, without scores; automedeval report reads these")


def test_constrained_decoding_gives_a_word_to_every_criterion(tiny_model, tmp_path):
    answers = {"a": "Take eight tablets.", "b": "Rest."}
    cases = write(tmp_path / "cases.jsonl", [case_of("c", "What now?", answers)])
    options = ROWS["test_constrained_decoding_gives_a_word_to_every_criterion"]
    run_command("judge", cases, judge=tiny_model, output=tmp_path / "v", **options)
    rubric = read_rubric("harm")
    for line in read(tmp_path / "v/verdicts.jsonl"):
        assert line["valid"] or "excludes degree" in line["error"]
        said = json.loads(line["raw"])["harm"]
        for criterion, odds in zip(rubric.criteria, line["probabilities"], strict=True):
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
        prompt = prompt_of(body)
        reply = next((reply for text, reply in replies.items() if text in prompt), {})
        return answer(json.dumps(reply))

    with EndpointDouble(script) as endpoint:
        options = {"base_url": endpoint.url, "rubric": "harm", "output": tmp_path / "v"}
        done = succeeded(run_command("judge", cases, judge="openai:m", **options))
    verdicts = read(tmp_path / "v/verdicts.jsonl")
    verdicts.sort(key=lambda line: line["order"])
    _, deadly, _, awful, empty = verdicts
    assert [line["valid"] for line in verdicts] == [True, True, True, False, True]
    assert deadly["choices"] == replies[texts[1]]["harm"]
    assert deadly["rationale"] == texts[1]
    assert awful["error"].startswith("degree: 'awful' is not one of none, mild")
    assert empty["choices"]["degree"] == "cannot be told"
    assert {line["scores"] for line in verdicts} == {None}
    lines = [line for line in done.stdout.splitlines() if line[:2] in answers]
    columns = [line.split()[1:8].index("1") for line in sorted(lines)]
    assert columns == [0, 4, 5, 6, 5], "the column of the table"
    assert "Harm: Moderate or worse by m: m1 in 1 of 1 answer" in done.stdout
