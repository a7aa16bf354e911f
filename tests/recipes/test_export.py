"""`automedeval export` by its command: tables, and which preference pairs verdicts make, which TRL loads and trains on."""

import json
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import factories
import pytest
import yaml
from datasets import load_dataset
from doubles.tiny_model import build_tiny_model
from factories import read, write
from programs import error_line, flags, run_command, succeeded
from tables import read_csv, rows_of

from automedeval.records import Case, Verdict, table_of

ANSWERS = ["Rest.", "Drink a lot.", "See a doctor at once."]


@pytest.fixture
def judged(tmp_path: Path) -> tuple[object, ...]:
    """Judge two models' answers by their length; the verdict on the last case is invalid. Return the arguments."""
    out, logs = tmp_path / "out", (tmp_path / "one.json", tmp_path / "two.json")
    for file, texts in zip(logs, (ANSWERS, ANSWERS[::-1])):
        samples = [
            {"input": f"What helps {n}?", "output": {"completion": text}}
            for n, text in enumerate(texts)
        ]
        samples = [
            {"id": number, "epoch": 1, "target": "", **each} for number, each in enumerate(samples)
        ]
        file.write_text(
            json.dumps({"status": "success", "eval": {"model": file.stem}, "samples": samples})
        )
    succeeded(run_command("judge", *logs, "--judge", "baseline:longer text", "--output", out))
    verdicts = read(out / "verdicts.jsonl")
    none = {"valid": False, "error": "cannot be read", "scores": None, "expected_scores": None}
    write(out / "verdicts.jsonl", [*verdicts[:2], verdicts[2] | none])
    return "--verdicts", out, "--cases", out / "cases.jsonl"


export = partial(run_command, "export")


def exported(folder: Path, verdicts: list[dict], **options: object) -> list[dict[str, str]]:
    file = write(folder / "v.jsonl", verdicts)
    succeeded(
        export("--verdicts", file, "--to", "csv", *flags(**options, output=folder / "table.csv"))
    )
    return read_csv(folder / "table.csv")


def test_a_table_has_every_verdict_and_no_score_of_an_invalid_one(judged, tmp_path: Path) -> None:
    done = succeeded(export(*judged, "--to", "csv", "--output", tmp_path / "table.csv"))
    assert "3 verdicts, 1 invalid" in done.stdout
    rows = read_csv(tmp_path / "table.csv")
    assert [row["valid"] for row in rows] == ["True"] * 4 + ["False"] * 2
    scores = [len(text.split()) for pair in zip(ANSWERS, ANSWERS[::-1]) for text in pair][:4]
    (column,) = {"expected_score", "score"} & rows[0].keys() - {"score"}
    assert [float(row[column] or row["score"]) for row in rows[:4]] == scores
    assert {row["score"] for row in rows[4:]} | {row[column] for row in rows[4:]} == {""}


def test_bad_input_is_one_line_and_writes_nothing(judged, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    verdicts, cases = judged[:2], judged[3]
    of_one = (*verdicts, "--output", file, "--to", "preferences")
    assert "needs --cases" in error_line(export(*of_one))
    assert "this is an input" in error_line(export(*judged, "--to", "csv", "--output", cases))
    other = write(
        tmp_path / "other.jsonl", [each | {"question": "Another?"} for each in read(cases)]
    )
    assert "verdicts.jsonl:1" in error_line(export(*of_one, "--cases", other))
    assert not file.exists()


@pytest.mark.parametrize(
    ("given", "wanted"), rows_of(__file__)["test_a_table_has_what_verdicts_say"]
)
def test_a_table_has_what_verdicts_say(given: dict, wanted: dict, tmp_path: Path) -> None:
    """`wanted` has what stands in some columns, row by row; null is an empty cell."""
    options = {}
    if "cases" in given:
        options["cases"] = write(tmp_path / "cases.jsonl", given["cases"])
    rows = exported(
        tmp_path, [given["about"] | verdict for verdict in given["verdicts"]], **options
    )
    for name, cells in wanted.items():
        assert [yaml.safe_load(row[name]) for row in rows] == cells, name


def test_no_cell_of_a_csv_is_run_and_no_number_becomes_a_text(tmp_path: Path) -> None:
    hostile = [
        '=HYPERLINK("http://x")', "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", 'two\r=1+1\nlines, "quoted"', "plain",
    ]  # fmt: skip
    verdict = {"judge": "baseline:longer text", "rubric": "counted", "order": [0], "valid": True}
    texts = [{"case_id": text, "models": [text], "rationale": text} for text in hostile]
    scored = [
        verdict | each | {"expected_scores": [-1.5 * number]} for number, each in enumerate(texts)
    ]
    rows = exported(tmp_path, scored)
    formula = ("=", "+", "-", "@", "\t", "\r")
    for name in ("case_id", "model", "rationale"):
        assert [row[name] for row in rows] == [
            f"'{text}" if text.startswith(formula) else text for text in hostile
        ]
    assert [float(row["expected_score"]) for row in rows] == [
        -1.5 * number for number in range(len(hostile))
    ]


prefer = partial(run_command, "export", "--to", "preferences")
MODELS = ("a", "b", "c")


def case_of(number: int, texts: Sequence[str] | None = None, **more: Any) -> Case:
    texts = texts or [f"Answer {number} of {name}." for name in MODELS]
    answers = [{"model": name, "text": text} for name, text in zip(MODELS, texts)]
    return factories.case_of(number, question=f"Question {number}?", responses=answers, **more)


def verdict(case: Case, scores: Sequence[float | None] = (), **more: Any) -> Verdict:
    fields = {"valid": True, "error": None, "expected_scores": tuple(scores)}
    return factories.verdict_of(case, None, "mine", **fields | more)


def invalid(case: Case) -> Verdict:
    return factories.verdict_of(case, None, "mine")


class Study:
    def __init__(self, folder: Path, cases: Sequence[Case], verdicts: Sequence[Verdict]):
        self.cases, self.verdicts = list(cases), list(verdicts)
        self.output = folder / "pairs" / "train.jsonl"
        files = write(folder / "v.jsonl", self.verdicts), write(folder / "cases.jsonl", self.cases)
        self.args = ["--verdicts", files[0], "--cases", files[1], "--output", self.output]

    def run(self, *options: object) -> str:
        return succeeded(prefer(*self.args, *options)).stdout

    def pairs(self) -> dict[str, dict[str, Any]]:
        return {each["case_id"]: each for each in read(self.output)}

    def chosen_and_rejected(self) -> dict[str, tuple[str, str]]:
        return {
            case_id: (each["chosen_model"], each["rejected_model"])
            for case_id, each in self.pairs().items()
        }


@pytest.fixture
def study(tmp_path: Path) -> Study:
    cases = [case_of(number) for number in range(10)]
    cases[6] = case_of(6, ["Good.", "", " "])  # one that is not empty
    cases[7] = case_of(7, ["Same.", "Other.", " Same. "])
    talk = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "And?"}]
    cases[9] = Case.from_dict(cases[9].to_dict() | {"question": talk})
    both = ((0, 1, 2), (2, 1, 0))
    verdicts = [
        *(verdict(cases[0], (4.5, 3.0, 1.5), order=order) for order in both), invalid(cases[0]),
        verdict(cases[1], (1.0, None, 1.5)),  # the second is unread
        verdict(cases[2], (4.0, 3.0, 2.0)), verdict(cases[2], (2.0, 3.0, 3.5), order=both[1]),  # the orders disagree
        verdict(cases[3], (3.0, 3.0, 3.0 + 1e-12)), invalid(cases[4]),
        verdict(cases[5], (4.0, None, None)), verdict(cases[6], (4.0, 1.0, 1.0)),
        verdict(cases[7], (4.0, 3.0, 2.0)), verdict(cases[9], (3.0, 4.0, 3.5)),
    ]  # fmt: skip
    verdicts = [Verdict(**vars(each) | {"run": number}) for number, each in enumerate(verdicts)]
    return Study(tmp_path, [*cases, case_of(10)], verdicts)


def test_a_pair_has_trls_columns_and_what_is_left_out_is_counted(study: Study) -> None:
    printed = study.run()
    pairs = study.pairs()
    assert pairs["case-0"] == {
        "prompt": [{"role": "user", "content": "Question 0?"}],
        "chosen": [{"role": "assistant", "content": "Answer 0 of a."}],
        "rejected": [{"role": "assistant", "content": "Answer 0 of c."}],
        "margin": 3.0, "case_id": "case-0", "chosen_model": "a", "rejected_model": "c",
    }  # fmt: skip
    chosen = {case_id: (each["chosen_model"], each["margin"]) for case_id, each in pairs.items()}
    assert chosen == {"case-0": ("a", 3.0), "case-1": ("c", 0.5), "case-9": ("b", 1.0)}
    assert pairs["case-9"]["prompt"][0] == {"role": "system", "content": "Be short."}
    reasons = "a tie: 1, equal texts: 1, no two responses with a score: 2, no valid verdict: 1"
    assert (
        f"9 judged cases → 3 with a pair, 6 without ({reasons}, verdicts that disagree: 1)"
        in printed
    )
    assert table_of(study.output).columns.responses == ("chosen", "rejected")


def test_a_gap_must_be_above_the_least(study: Study) -> None:
    assert "1 with a pair, 8 without (a gap of 1 or less: 3, a tie: 1, equal texts: 1" in study.run(
        "--least_gap", 1
    )
    assert set(study.pairs()) == {"case-0"}
    study.run("--least_gap", 0.99)
    assert set(study.pairs()) == {"case-0", "case-9"}


def test_the_pairs_are_those_of_a_loop_over_the_verdicts(tmp_path: Path) -> None:
    rng, cases, verdicts = random.Random(1), [case_of(number) for number in range(60)], []
    for case in cases:
        for run in range(rng.randint(1, 3)):
            points = [rng.choice([None, 1.0, 2.0, 2.5, 4.0]) for _ in MODELS]
            verdicts.append(verdict(case, points, order=rng.sample(range(3), 3), run=run))
    study = Study(tmp_path, cases, verdicts)
    study.run("--least_gap", 0.7)
    expected = {}
    for case in cases:
        mine = [each.expected_scores for each in verdicts if each.case_id == case.id]
        given = {
            name: [each for each in scores if each is not None]
            for name, *scores in zip(MODELS, *mine)
        }
        means = {name: mean(scores) for name, scores in given.items() if scores}
        best, worst = (
            max(means, key=means.get, default=None),
            min(means, key=means.get, default=None),
        )
        if len(means) > 1 and means[best] - means[worst] > 0.7:
            both = [[scores[MODELS.index(name)] for name in (best, worst)] for scores in mine]
            if all(None in each or each[0] > each[1] for each in both):
                expected[case.id] = (best, worst)
    assert study.chosen_and_rejected() == expected
    assert 10 < len(expected) < 60


def compared(case: Case, first: int, second: int, choices: dict[str, int]) -> Verdict:
    pair = [case.models[first], case.models[second]]
    chosen = {name: case.models[index] for name, index in choices.items()}
    about = {"rubric": "medical_pairwise@1", "pair": pair, "choices": chosen}
    record = verdict(case, order=(first, second), expected_scores=None).to_dict() | about
    return Verdict.from_dict(record)


def test_a_judge_of_pairs_prefers_what_wins_and_only_what_it_compared(tmp_path: Path) -> None:
    cases = [case_of(number) for number in range(3)]
    harmful = "harmfulness"  # of which a choice means the worse response
    verdicts = [
        *(compared(cases[0], one, two, {"correctness": one}) for one, two in ((0, 1), (0, 2), (1, 2))),
        compared(cases[1], 0, 1, {harmful: 0}), compared(cases[1], 1, 2, {harmful: 2}),  # the second is the harmless one
        compared(cases[2], 0, 1, {"correctness": 0}), compared(cases[2], 1, 2, {"correctness": 1}),
    ]  # fmt: skip
    study = Study(tmp_path, cases, verdicts)
    assert "never compared: 1" in study.run()
    assert study.chosen_and_rejected() == {"case-0": ("a", "c"), "case-1": ("b", "a")}
    write(tmp_path / "v.jsonl", [each.to_dict() | {"rubric": "own@1"} for each in verdicts])
    assert "the rubric own@1 of these choices was not found" in error_line(prefer(*study.args))


def test_what_makes_no_pairs_is_one_line_and_writes_nothing(study: Study, tmp_path: Path) -> None:
    assert "--to preferences needs --cases" in error_line(
        prefer("--verdicts", "v", "--output", "o")
    )
    assert "--least_gap must be at least 0, not -1.0" in error_line(
        prefer(*study.args, "--least_gap", -1)
    )
    line = error_line(run_command("export", *study.args, "--to", "csv", "--least_gap", 1))
    assert "--least_gap is not for --to csv" in line
    assert "no pair is left" in error_line(prefer(*study.args, "--least_gap", 4))
    assert "unrecognized arguments: --uncertified" in error_line(
        prefer(*study.args, "--uncertified")
    )
    write(
        tmp_path / "v.jsonl",
        [*study.verdicts, Verdict(**vars(study.verdicts[0]) | {"judge": "other"})],
    )
    assert "a second judge" in error_line(prefer(*study.args))
    assert not study.output.exists()


@pytest.mark.slow
def test_trl_trains_a_step_on_them(study: Study, tmp_path: Path) -> None:
    from trl import DPOConfig, DPOTrainer

    study.run()
    rows = load_dataset(str(study.output.parent))["train"]  # as `trl dpo --dataset_name` does
    assert rows.column_names[:3] == ["prompt", "chosen", "rejected"]
    rows = rows.filter(
        lambda row: row["case_id"] != "case-9"
    )  # the tiny model's template takes no system message
    assert len(rows) == 2
    model = build_tiny_model(tmp_path / "model")
    options = {
        "max_steps": 1,
        "per_device_train_batch_size": 2,
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
    }
    options |= {"save_strategy": "no", "activation_checkpointing": False}
    training = DPOConfig(output_dir=str(tmp_path / "dpo"), **options)
    trainer = DPOTrainer(model=str(model), args=training, train_dataset=rows)
    assert trainer.train().metrics["train_loss"] == pytest.approx(
        0.6931, abs=1e-3
    )  # ln 2 before the first update
