"""`automedeval export` by its command: tables, and which preference pairs verdicts make, which TRL loads and trains on."""

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import factories
import pytest
import yaml
from datasets import load_dataset
from doubles.tiny_model import build_tiny_model
from factories import Json, read, write, write_yaml
from programs import failed, run_command, succeeded, told
from tables import each_row, read_csv, rows_of

from automedeval.records import Case, Verdict
from automedeval.records.tables.cases import CaseFile

ROWS = rows_of(__file__)
ANSWERS = ["Rest.", "Drink a lot.", "See a doctor at once."]
export = partial(run_command, "export")


@pytest.fixture
def judged(tmp_path):
    """Judge two models' answers by their length; the verdict on the last case is invalid. Return the arguments."""
    out = tmp_path / "out"
    cases = tmp_path / "cases.jsonl"
    pairs = zip(ANSWERS, ANSWERS[::-1])
    write(cases, [case_of(number, texts=texts) for number, texts in enumerate(pairs)])
    succeeded(run_command("judge", cases, judge="baseline:longer text", output=out))
    verdicts = read(out / "verdicts.jsonl")
    verdicts[2] |= ROWS["an invalid verdict"]
    write(out / "verdicts.jsonl", verdicts)
    return {"verdicts": out, "cases": cases}


def exported(folder: Path, verdicts: list[dict], **options: object) -> list[dict[str, str]]:
    file = write(folder / "v.jsonl", verdicts)
    table = folder / "table.csv"
    succeeded(export(verdicts=file, to="csv", output=table, **options))
    return read_csv(table)


def test_a_table_has_every_verdict_and_no_score_of_an_invalid_one(judged, tmp_path):
    table = tmp_path / "a\ntable.csv"
    told(export(**judged, to="csv", output=table), "verdicts: 3, invalid: 1, ", "/a table.csv\n")
    rows = read_csv(table)
    assert [row["valid"] for row in rows] == ["True"] * 4 + ["False"] * 2
    for row, words in zip(rows[:4], (1, 5, 3, 3), strict=True):
        assert len(row["answer"].split()) == words
        assert float(row["expected_score"]) == words
    for row in rows[4:]:
        assert row["score"] == ""
        assert row["expected_score"] == ""


def test_a_link_and_a_pipe_are_written_to_and_not_replaced(judged, tmp_path):
    table, link, pipe = (tmp_path / name for name in ("table.csv", "link", "pipe"))
    link.symlink_to(table)
    os.mkfifo(pipe)
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as end:
        for output in (link, pipe):
            succeeded(export(**judged, to="csv", output=output))
        assert end.read() == table.read_bytes()


def test_bad_input_is_one_line_and_writes_nothing(judged, tmp_path):
    file = tmp_path / "pairs.jsonl"
    failed(export(**judged, to="csv", output=judged["cases"]), "this is an input")
    changed = [case | {"question": "Another?"} for case in read(judged["cases"])]
    prefer = partial(export, verdicts=judged["verdicts"], to="preferences", output=file)
    failed(prefer(), "needs --cases")
    other = write(tmp_path / "other.jsonl", changed)
    failed(prefer(cases=other), "verdicts.jsonl:1")
    assert not file.exists()


def test_cases_beside_the_verdicts_are_read_only_if_they_are_those_that_were_judged(
    judged, tmp_path
):
    table = tmp_path / "table.csv"
    same = read(judged["cases"])
    others = [case | {"question": "Another?"} for case in same]
    for beside in (others, [{"prompt": "Another?"}], same):
        write(judged["verdicts"] / "cases.jsonl", beside)
        succeeded(export(verdicts=judged["verdicts"], to="csv", output=table))
        assert ("answer" in read_csv(table)[0]) == (beside is same)
    write(judged["verdicts"] / "cases.jsonl", [*same[:2], *others[2:]])
    failed(export(verdicts=judged["verdicts"], to="csv", output=table), same[2]["id"])


@pytest.mark.parametrize("form", ["csv", "preferences"])
def test_verdicts_on_cases_that_are_gone_are_left_out_and_counted(judged, form, tmp_path):
    cases = read(judged["cases"])
    not_judged = cases[2] | {"id": "not judged"}
    write(judged["verdicts"] / "cases.jsonl", [*cases[:2], not_judged])
    done = export(verdicts=judged["verdicts"], to=form, output=tmp_path / "gone")
    told(done, f"verdicts: {len(cases) - 2} left out")
    assert "invalid or missing" not in done.stdout


@each_row("given, wanted")
def test_a_table_has_what_verdicts_say(given, wanted, tmp_path):
    """`wanted` has what stands in some columns, row by row; null is an empty cell."""
    options = {}
    if "cases" in given:
        options["cases"] = write(tmp_path / "cases.jsonl", given["cases"])
    verdicts = [given["about"] | each for each in given["verdicts"]]
    rows = exported(tmp_path, verdicts, **options)
    for name, cells in wanted.items():
        assert [yaml.safe_load(row[name]) for row in rows] == cells, name


def test_no_cell_of_a_csv_is_run_and_no_number_becomes_a_text(tmp_path):
    cells = ROWS["cells of a CSV"]
    verdicts = []
    for number, text in enumerate(cells):
        record = ROWS["a counted verdict"] | {"expected_scores": [-1.5 * number]}
        verdicts.append(record | {"case_id": text, "models": [text], "rationale": text})
    rows = exported(tmp_path, verdicts)
    for row, cell in zip(rows, cells.values(), strict=True):
        assert row["case_id"] == cell
        assert row["model"] == cell
        assert row["rationale"] == cell
    for number, row in enumerate(rows):
        assert float(row["expected_score"]) == -1.5 * number


MODELS = ("a", "b", "c")


def case_of(number: int, **more: Any) -> Case:
    texts = more.pop("texts", [f"Answer {number} of {name}." for name in MODELS])
    answers = [{"model": name, "text": text} for name, text in zip(MODELS, texts)]
    usual = {"question": f"Question {number}?", "responses": answers}
    return factories.case_of(number, **usual | more)


def verdict(case: Case, scores: Sequence[float | None] | None, **more: Any) -> Verdict:
    if scores is None:
        return factories.verdict_of(case, None, "mine", **more)
    fields = {"valid": True, "error": None, "expected_scores": tuple(scores)}
    return factories.verdict_of(case, None, "mine", **fields | more)


def compared(case: Case, pair: str, choices: dict[str, str]) -> Verdict:
    """Return a verdict on a pair of responses, by its two models."""
    order = [case.models.index(name) for name in pair]
    about = {"rubric": "medical_pairwise@1", "pair": list(pair), "choices": choices}
    record = verdict(case, (), order=order, expected_scores=None).to_dict() | about
    return Verdict.from_dict(record)


class Study:
    """Verdicts and cases in files, and the pairs that the command makes of them."""

    def __init__(self, folder: Path, cases: Sequence[Case], verdicts: Sequence[Verdict]):
        self.verdicts = folder / "v.jsonl"
        self.output = folder / "pairs/train.jsonl"
        write(self.verdicts, verdicts)
        cases = write(folder / "cases.jsonl", cases)
        files = {"verdicts": self.verdicts, "cases": cases, "output": self.output}
        self.prefer = partial(export, to="preferences", **files)

    def pairs(self) -> dict[str, Json]:
        return {each["case_id"]: each for each in read(self.output)}

    def chosen_and_rejected(self) -> dict[str, list[str]]:
        found = {}
        for case_id, each in self.pairs().items():
            found[case_id] = [each["chosen_model"], each["rejected_model"]]
        return found


@pytest.fixture
def study(tmp_path):
    cases = {number: case_of(number, **more) for number, more in ROWS["cases"].items()}
    verdicts = []
    for run, (number, scores, *order) in enumerate(ROWS["verdicts"]):
        verdicts.append(verdict(cases[number], scores, order=order or range(3), run=run))
    return Study(tmp_path, list(cases.values()), verdicts)


def test_a_pair_has_trls_columns_and_what_is_left_out_is_counted(study):
    told(study.prefer(), ROWS["left out"])
    pairs = study.pairs()
    assert pairs.keys() == ROWS["pairs"].keys()
    for case_id, wanted in ROWS["pairs"].items():
        assert pairs[case_id].items() >= wanted.items()
    assert CaseFile(study.output).table.columns.responses == ("chosen", "rejected")


def test_a_gap_must_be_above_the_least(study):
    left_out = "1 with a pair, 9 without (a gap of 1 or less: 3, a tie: 1, equal texts: 1"
    told(study.prefer(least_gap=1), left_out)
    assert set(study.pairs()) == {"case-0"}
    succeeded(study.prefer(least_gap=0.99))
    assert set(study.pairs()) == {"case-0", "case-9"}


def test_the_pairs_are_those_of_a_loop_over_the_verdicts(tmp_path):
    rng = random.Random(1)
    cases = [case_of(number) for number in range(60)]
    verdicts = []
    for case in cases:
        for run in range(rng.randint(1, 3)):
            points = rng.choices([None, 1.0, 2.0, 2.5, 4.0], k=3)
            order = rng.sample(range(3), 3)
            verdicts.append(verdict(case, points, order=order, run=run))
    study = Study(tmp_path, cases, verdicts)
    succeeded(study.prefer(least_gap=0.7))
    expected = {}
    for case in cases:
        mine = [each.expected_scores for each in verdicts if each.case_id == case.id]
        means = {}
        for place, *scores in zip(range(3), *mine):
            given = [score for score in scores if score is not None]
            if given:
                means[place] = mean(given)
        if len(means) < 2:
            continue
        best = max(means, key=means.get)
        worst = min(means, key=means.get)
        agree = True
        for scores in mine:
            first = scores[best]
            last = scores[worst]
            if None not in (first, last) and first <= last:
                agree = False
        if agree and means[best] - means[worst] > 0.7:
            expected[case.id] = [MODELS[best], MODELS[worst]]
    assert study.chosen_and_rejected() == expected
    assert 10 < len(expected) < 60


def test_a_judge_of_pairs_prefers_what_wins_and_only_what_it_compared(tmp_path):
    cases = [case_of(number) for number in range(3)]
    verdicts = [compared(cases[at], *row) for at, *row in ROWS["choices of pairs"]]
    study = Study(tmp_path, cases, verdicts)
    told(study.prefer(), "never compared: 1")
    assert study.chosen_and_rejected() == {"case-0": ["a", "c"], "case-1": ["b", "a"]}
    write(study.verdicts, [replace(each, rubric="own@1") for each in verdicts])
    failed(study.prefer(), "the rubric own@1 of these choices was not found where the run had its")
    (tmp_path / "own.jinja").write_text("")
    own = tmp_path / "own.yaml"
    write_yaml(own, ROWS["of pairs"])
    (tmp_path / "run-s1.json").write_text(f'{{"arguments": {{"rubric": "{own}"}}}}')
    succeeded(study.prefer())


@each_row("options, said")
def test_what_makes_no_pairs_is_one_line_and_writes_nothing(options, said, study):
    failed(study.prefer(**options), said)
    assert not study.output.exists()


def test_the_pairs_are_of_one_judge(study):
    records = read(study.verdicts)
    write(study.verdicts, [*records, records[0] | {"judge": "other"}])
    failed(study.prefer(), "a second judge")


@pytest.mark.slow
def test_trl_trains_a_step_on_them(study, tmp_path):
    from trl import DPOConfig, DPOTrainer

    succeeded(study.prefer())
    rows = load_dataset(str(study.output.parent))["train"]  # as `trl dpo --dataset_name` does
    assert rows.column_names[:3] == ["prompt", "chosen", "rejected"]
    # The tiny model's template takes no system message.
    rows = rows.filter(lambda row: row["case_id"] != "case-9")
    assert len(rows) == 2
    training = DPOConfig(output_dir=str(tmp_path / "dpo"), **ROWS["training"])
    model = str(build_tiny_model(tmp_path / "model"))
    trainer = DPOTrainer(model=model, args=training, train_dataset=rows)
    # ln 2 before the first update
    assert trainer.train().metrics["train_loss"] == pytest.approx(0.6931, abs=1e-3)
