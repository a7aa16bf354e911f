"""Drafted criteria on the physicians' page: decisions, export, and what of them reaches the cases."""

import random
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from doubles.agreement_study import read, write
from doubles.study_page import DRAFTED, HOSTILE, JUDGES, MODELS, opened, physician, write_study
from programs import error_line, run_command
from sklearn.metrics import cohen_kappa_score

from automedeval.annotation.export import write_export
from automedeval.annotation.store import Store
from automedeval.annotation.study import read_study
from automedeval.dataset.criteria_approvals import agreement_of, approve, read_drafts
from automedeval.records import Case, CriterionApproval, RecordError, read_cases

SAFE, DANGER, WATER = (each["criterion"] for each in DRAFTED)


def decide(store: Store, annotator: str, **said: tuple) -> None:
    """Answer every sheet: SAFE, DANGER and WATER by (decision, points, wording)."""
    while (assignment := store.next(annotator)) is not None:
        content: dict = {"decisions": {}, "points": {}, "wordings": {}, "comment": ""}
        for place, index in enumerate(assignment.order, 1):
            values = (*said[("safe", "danger", "water")[index]], None, None)[:3]
            for name, value in zip(("decisions", "points", "wordings"), values):
                if value is not None:
                    content[name][str(place)] = value
        store.answer(annotator, assignment.id, "criteria", content, assignment.version, 5.0)


def merge(folder: Path, *approvals: Path) -> subprocess.CompletedProcess:
    """Write the approved cases to out/cases.jsonl of the folder of a study."""
    (folder / "out").mkdir(exist_ok=True)
    shutil.copy(folder / "drafts.jsonl", folder / "out")
    given = ("--output", folder / "out", "--approvals", *approvals)
    return run_command("draft-criteria", folder / "cases.jsonl", *given)


def test_two_physicians_decide_and_only_what_both_accept_reaches_the_cases(tmp_path: Path) -> None:
    with opened(write_study(tmp_path, ("approve",))) as store:
        decide(store, "physician-1", safe=("approve", 5), danger=("approve", -10), water=("change", 2, "says to drink"))
        decide(store, "physician-2", safe=("approve", 8), danger=("refuse",), water=("approve", 1))
        counts = write_export(store, tmp_path / "export")
        assert store.next("physician-3") is None  # two are asked
    assert counts["criterion_approvals.jsonl"] == 12
    first = tmp_path / "export" / "criterion_approvals.jsonl"
    done = merge(tmp_path, first)
    assert done.returncode == 0, done.stderr
    why = "changed by some: 2, physicians differ: 2"
    assert f"6 drafted criteria → 2 approved by two physicians, 4 left out ({why})" in done.stdout
    assert "agreement on approval: alike 0.67" in done.stdout
    cases = list(read_cases(tmp_path / "out/cases.jsonl"))
    assert [[(each.criterion, each.points) for each in case.criteria] for case in cases] == [[(SAFE, 6.5)]] * 2
    assert cases[0].criteria[0].extra["citation"] == DRAFTED[0]["citation"]
    # The new wording is for a second round, with a database of its own.
    again = write_study(tmp_path / "again", ("approve",), approve={"drafts": str(tmp_path / "out/round-2.jsonl")})
    with opened(again) as store:
        for name in ("physician-1", "physician-3"):
            assert [each["criterion"] for each in store.study.drafts["case-1"]] == ["says to drink"]
            decide(store, name, safe=("approve", 2))
        write_export(store, tmp_path / "export2")
    done = merge(tmp_path, first, tmp_path / "export2" / "criterion_approvals.jsonl")
    assert "6 drafted criteria → 4 approved by two physicians, 2 left out (physicians differ: 2)" in done.stdout
    assert [each.criterion for each in next(read_cases(tmp_path / "out/cases.jsonl")).criteria] == [
        SAFE,
        "says to drink",
    ]
    with opened(again) as store:  # the study of the second round still has its drafts
        assert len(store.study.drafts) == 2


def test_the_report_says_how_many_were_approved(tmp_path: Path) -> None:
    with opened(write_study(tmp_path, ("approve",))) as store:
        for name in ("physician-1", "physician-2"):
            decide(store, name, safe=("approve", 5), danger=("approve", -10), water=("cannot_tell",))
        write_export(store, tmp_path / "export")
    assert merge(tmp_path, tmp_path / "export" / "criterion_approvals.jsonl").returncode == 0
    checklist = {"met": [True, False], "met_probabilities": [None, None], "score": 1.0, "lowest": 1.0, "highest": 1.0}
    base = {"judge": "j", "rubric": "checklist@1", "order": [0], "valid": True, "scores": None, "checklist": checklist}
    write(tmp_path / "v.jsonl", [{"case_id": f"case-{number}", **base} for number in (1, 2)])
    output = tmp_path / "report"
    given = ("--cases", tmp_path / "out/cases.jsonl", "--output", output, "--encoder", "none", "--resamples", 100)
    done = run_command("report", tmp_path / "v.jsonl", *given)
    assert done.returncode == 0, done.stderr
    assert "criteria: 4 of 6 approved by two physicians." in done.stdout
    assert "criteria: 4 of 6 approved by two physicians." in (output / "criteria.md").read_text()


@pytest.mark.parametrize("seed", range(3))
def test_what_is_approved_and_how_far_they_agree_is_that_of_a_loop(tmp_path: Path, seed: int) -> None:
    rng, names = random.Random(seed), list("ab")
    texts = [f"criterion {number}" for number in range(40)]
    cases = {name: Case(name, "Q?", ()) for name in ("c0", "c1")}
    entries = [
        each | {"citation": {"source": "", "text": ""}, "points": 1.0} for each in ({"criterion": t} for t in texts)
    ]
    write(tmp_path / "drafts.jsonl", [{"case_id": name, "drafter": "d", "criteria": entries} for name in cases])
    said = {
        (case, text, name): (rng.choice(["approve", "approve", "refuse"]), rng.randint(1, 10))
        for case in cases
        for text in texts
        for name in names[: rng.choice([1, 2, 2, 2])]
    }
    records = [
        {"case_id": case, "criterion": text, "annotator": name, "decision": decision, "points": points}
        for (case, text, name), (decision, points) in said.items()
    ]
    drafts = read_drafts(str(tmp_path / "drafts.jsonl"), cases)
    approved = approve(list(cases.values()), drafts, [str(write(tmp_path / "a.jsonl", records))])
    wanted, left, both = {}, Counter(), []
    for case in cases:
        for text in texts:
            pair = [said[case, text, name] for name in names if (case, text, name) in said]
            kinds = [decision for decision, _ in pair]
            if len(pair) == 2:
                both.append(kinds)
            if kinds == ["approve", "approve"]:
                wanted[case, text] = (pair[0][1] + pair[1][1]) / 2
            else:
                left[
                    "decided by fewer than two"
                    if len(pair) < 2
                    else "refused"
                    if len(set(kinds)) == 1
                    else "physicians differ"
                ] += 1
    got = {(case.id, each.criterion): each.points for case in approved.cases for each in case.criteria}
    assert (got, approved.left_out) == (wanted, left)
    alike = sum(one == two for one, two in both) / len(both)
    figures = approved.agreement["approval"]
    assert (figures["alike"].value, figures["alike"].n) == (pytest.approx(alike), len(both))
    # Krippendorff's alpha of two raters is Scott's pi, with the correction for few units.
    flat = [each for pair in both for each in pair]
    share = flat.count("approve") / len(flat)
    expected = 1 - (share**2 + (1 - share) ** 2)
    alpha = 1 - (1 - alike) / expected * (len(flat) - 1) / len(flat)
    assert figures["alpha (ordinal)"].value == pytest.approx(alpha)
    assert abs(alpha - cohen_kappa_score(*zip(*both))) < 0.1


def test_the_side_of_a_criterion_is_no_agreement_on_its_points() -> None:
    pairs = [(1, 2), (9, 3), (4, 8), (7, 1), (2, 6), (5, 5)]

    def alpha(sides: tuple[int, int]) -> float:
        said = [
            CriterionApproval(f"c{number % 3}", f"{number}", name, "approve", points * sides[number % 2])
            for number, pair in enumerate(pairs)
            for name, points in zip("ab", pair)
        ]
        return agreement_of(said, 100)["points"]["alpha (ordinal)"].value

    assert alpha((1, -1)) == alpha((1, 1))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"criterion": "another"}, "no criterion 'another' was drafted for case 'case-1'"),
        ({"annotator": "b"}, "'b' decided on this criterion before"),
        ({"decision": "perhaps"}, "'decision' must be one of approve, change, refuse, cannot_tell"),
        ({"points": 0}, "but not 0"),
        ({"points": None}, "'points' must be"),
        ({"decision": "change", "wording": " "}, "must not be empty"),
    ],
)
def test_approvals_that_do_not_fit_are_one_line_and_nothing_is_lost(tmp_path: Path, changes: dict, said: str) -> None:
    write_study(tmp_path, ("approve",))
    (tmp_path / "out").mkdir()
    (tmp_path / "out/cases.jsonl").write_text("kept")
    record = {"case_id": "case-1", "criterion": SAFE, "annotator": "a", "decision": "approve", "points": 3}
    line = error_line(merge(tmp_path, write(tmp_path / "a.jsonl", [record | {"annotator": "b"}, record | changes])))
    assert "a.jsonl:2: " in line
    assert said in line
    assert (tmp_path / "out/cases.jsonl").read_text() == "kept"


def test_the_cases_that_are_read_are_not_overwritten(tmp_path: Path) -> None:
    write_study(tmp_path, ("approve",))
    before = (tmp_path / "cases.jsonl").read_bytes()
    given = (tmp_path / "cases.jsonl", "--output", tmp_path, "--approvals", "none.jsonl")
    assert "cases.jsonl would be overwritten" in error_line(run_command("draft-criteria", *given))
    assert (tmp_path / "cases.jsonl").read_bytes() == before


def test_what_nobody_approved_makes_no_case(tmp_path: Path) -> None:
    write_study(tmp_path, ("approve",))
    record = {"case_id": "case-1", "criterion": SAFE, "annotator": "a", "decision": "approve", "points": 3}
    done = merge(tmp_path, write(tmp_path / "a.jsonl", [record]))
    assert "no criterion is approved by two physicians" in error_line(done)
    assert "6 drafted criteria → 0 approved by two physicians, 6 left out (decided by fewer than two: 6)" in done.stdout


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"raters": 1}, "approve.raters: must be from 2 to the 3 annotators"),
        ({"raters": 4}, "must be from 2 to the 3"),
        ({"judges": ["x"]}, "approve.judges"),
        ({"drafts": "none.jsonl"}, "none.jsonl"),
    ],
)
def test_a_plan_that_does_not_fit_is_one_line(tmp_path: Path, plan: dict, said: str) -> None:
    path = write_study(tmp_path, ("approve",), approve={"drafts": str(tmp_path / "drafts.jsonl"), **plan})
    with pytest.raises(RecordError, match=re.escape(said)):
        read_study(path)


def test_drafts_that_changed_are_refused_and_other_studies_keep_their_databases(tmp_path: Path) -> None:
    path = write_study(tmp_path, ("approve",))
    with opened(path):
        pass
    drafts = read(tmp_path / "drafts.jsonl")
    drafts[0]["criteria"][0]["criterion"] = "says something else"
    write(tmp_path / "drafts.jsonl", drafts)
    with pytest.raises(RecordError, match=r"another study|other"), opened(path):
        pass
    drafts[0]["case_digest"] = "0" * 12
    write(tmp_path / "drafts.jsonl", drafts)
    with pytest.raises(RecordError, match="changed after 'cedar' drafted criteria for it"):
        read_study(path)
    (tmp_path / "drafts.jsonl").write_text(
        '{"case_id": "case-1", "drafter": "d", "criteria": [{"criterion": "x", "points": 1}]}\n'
    )
    with pytest.raises(RecordError, match=r"drafts\.jsonl:1: 'citation'"):
        read_study(path)


def test_a_form_is_checked_and_no_page_names_a_model_or_shows_a_response(tmp_path: Path) -> None:
    with opened(write_study(tmp_path, ("approve",), 1)) as store:
        someone = physician(store)
        pages = [someone.page]
        place = someone.place()
        approved = dict.fromkeys(someone.asked(), "approve")
        assert len(approved) == 3
        assert someone.post(place, **dict(list(approved.items())[:2])).status_code == 422
        order = store.next("physician-2").order
        danger = f"points-{order.index(1) + 1}"
        points = {f"points-{number}": "5" for number in (1, 2, 3)} | {danger: "-3"}
        for wrong, said in (("0", "but not 0"), ("11", "from -10 to 10"), ("", "points"), ("3", "must not say it")):
            answer = someone.post(place, **approved, **{**points, danger: wrong})
            assert answer.status_code == 422
            assert said in answer.text
        answer = someone.post(place, **{**approved, "decisions-1": "change"}, **points)
        assert "please change its words" in answer.text
        pages.append(answer.text)
        assert HOSTILE not in "".join(pages)
        for page in pages:
            assert not [
                name for name in (*MODELS, *JUDGES, "cedar", "case-1", "acetaminophen, at least") if name in page
            ]
        assert someone.post(place, **approved, **points).status_code == 200
        content = next(store.answers()).content
        assert content["decisions"] == {"1": "approve", "2": "approve", "3": "approve"}
        assert sorted(content["points"].values()) == [-3, 5, 5]
        assert content["wordings"] == {}
