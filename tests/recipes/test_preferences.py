"""recipes/preferences.py: pairs of certified verdicts, both orders checked, with what they come from; TRL trains on them."""

import json
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset
from doubles.agreement_study import read
from doubles.tiny_model import build_tiny_model
from programs import ENCODER, error_line, needs_encoder, run_command, run_recipe

from automedeval.meta_evaluation.calibration.abstention import certified_digest
from automedeval.records import Case, Verdict

preferences = partial(run_recipe, "preferences")


def case_of(number: int) -> Case:
    answers = [{"model": name, "text": f"Answer {number} of {name}."} for name in ("a", "b", "c")]
    return Case.from_dict({"id": f"case-{number}", "question": f"Question {number}?", "responses": answers})


def verdict(number: int, scores: Sequence[float], order: Sequence[int] = (0, 1, 2), **more: Any) -> Verdict:
    case = case_of(number)
    extra = {"models": case.models, "case_digest": case.digest, "settings": "5" * 12} | more.pop("extra", {})
    fields = {"expected_scores": tuple(scores), "valid": True} | more
    return Verdict(case.id, "mine", "automedeval@1", tuple(order), extra=extra, **fields)


BOTH = ((0, 1, 2), (2, 1, 0))
VERDICTS = [
    *(verdict(0, (4.5, 3.0, 1.5), order) for order in BOTH),
    verdict(1, (4.5, 3.0, 1.5)),  # in one order alone
    verdict(2, (4.0, 3.0, 2.0), BOTH[0]), verdict(2, (2.0, 3.0, 3.5), BOTH[1]),  # the orders contradict each other
    *(verdict(3, (3.0, 3.0, 3.0), order) for order in BOTH),
    verdict(4, (), BOTH[0], valid=False, expected_scores=None, error="not readable"),
    *(verdict(5, (1.0, 1.25, 1.5), order) for order in BOTH),
]  # fmt: skip


class Kept:
    """A folder as automedeval abstain writes it."""

    def __init__(self, folder: Path, verdicts: Sequence[Verdict] = VERDICTS, **certificate: Any):
        self.folder, self.output = folder, folder / "out"
        (folder / "kept").mkdir()
        cases = [case_of(number) for number in sorted({int(each.case_id[5:]) for each in verdicts})]
        content = {"threshold": 0.5, "risk": 0.2, "delta": 0.1, "kept_digest": certified_digest(cases, verdicts)}
        content |= certificate
        (folder / "abstention.json").write_text(json.dumps(content))
        for name, records in (("verdicts", verdicts), ("cases", map(case_of, range(6)))):
            text = "".join(json.dumps(each.to_dict()) + "\n" for each in records)
            (folder / "kept" / f"{name}.jsonl").write_text(text)

    def run(self, *options: object) -> Any:
        kept = self.folder / "kept"
        return preferences("--verdicts", kept, "--cases", kept / "cases.jsonl", "--output", self.output, *options)

    def rows(self) -> list[dict]:
        return [json.loads(line) for line in (self.output / "train.jsonl").read_text().splitlines()]


def test_a_pair_has_its_texts_its_margin_and_where_it_comes_from(tmp_path: Path) -> None:
    study = Kept(tmp_path)
    done = study.run()
    assert done.returncode == 0, done.stderr
    first, second = study.rows()
    assert first == {
        "prompt": [{"role": "user", "content": "Question 0?"}],
        "chosen": [{"role": "assistant", "content": "Answer 0 of a."}],
        "rejected": [{"role": "assistant", "content": "Answer 0 of c."}],
        "margin": 3.0, "chosen_model": "a", "rejected_model": "c", "case_id": "case-0", "case_digest": case_of(0).digest,
        "judge": "mine", "rubric": "automedeval@1", "settings": "5" * 12, "verdicts": 2,
    }  # fmt: skip
    assert (second["case_id"], second["chosen_model"], second["margin"]) == ("case-5", "c", 0.5)
    message = (
        "6 cases with verdicts → 2 with a pair, 4 rejected (another order says otherwise: 1, judged in one order: 1, "
    )
    assert message + "no difference: 1, no valid verdict: 1)" in done.stdout
    assert "certified: at most 0.2 of the kept pairs wrong, at delta 0.1" in done.stdout
    study.run("--orders", "any")
    assert [row["case_id"] for row in study.rows()] == ["case-0", "case-1", "case-5"]


def test_only_what_is_certified_becomes_a_pair(tmp_path: Path) -> None:
    for name, certificate in (
        ("none", {"threshold": None}),
        ("other", {"kept_digest": "6" * 12}),
        ("old", {"kept_digest": None}),
    ):
        (tmp_path / name).mkdir()
        study = Kept(tmp_path / name, **certificate)
        assert "no certificate covers these verdicts" in error_line(study.run())
        assert not study.output.exists()
    assert "2 pairs by mine; no certificate" in study.run("--uncertified").stdout
    (tmp_path / "own").mkdir()
    says = [verdict(0, (4.5, 3.0, 1.5), extra={"abstains": False}), verdict(1, (4, 3, 2), extra={"abstains": True})]
    study = Kept(tmp_path / "own", says, threshold=None)
    assert "the judge abstains: 1" in study.run("--orders", "any").stdout
    assert [row["case_id"] for row in study.rows()] == ["case-0"]
    assert "no pair is left" in error_line(study.run())


def test_a_case_with_one_answer_or_none_has_no_pair(tmp_path: Path) -> None:
    texts = [("", " "), ("One.", ""), ("Two words.", "One.")]
    cases = [
        {"id": f"c{number}", "question": "Q?", "responses": [{"model": "a", "text": a}, {"model": "b", "text": b}]}
        for number, (a, b) in enumerate(texts)
    ]
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(each) + "\n" for each in cases))
    args = ("--cases", tmp_path / "cases.jsonl")
    assert run_command("judge", *args, "--judge", "baseline:longer text", "--output", tmp_path / "v").returncode == 0
    options = ("--orders", "any", "--uncertified", "true", "--output", tmp_path / "out")
    done = preferences("--verdicts", tmp_path / "v", *args, *options)
    assert done.returncode == 0, done.stderr
    assert "3 cases with verdicts → 1 with a pair, 2 rejected (no two answers with a score: 2)" in done.stdout
    assert [row["case_id"] for row in read(tmp_path / "out" / "train.jsonl")] == ["c2"]


@needs_encoder
def test_one_empty_answer_does_not_take_the_certificate_from_the_other_cases(tmp_path: Path) -> None:
    """The packaged small judge certifies each case by itself, and none with an answer that is empty or unread."""
    right, wrong = "Take ibuprofen with food or milk to protect your stomach.", "I like trains, planes and bus rides."
    texts = [(right, wrong), (right, ""), (right, "👍"), (right, right + " Ask your doctor.")]
    cases = [
        {"id": f"c{number}", "question": "May I take ibuprofen with food?",
         "responses": [{"model": model, "text": text} for model, text in zip("ab", both)]}
        for number, both in enumerate(texts)
    ]  # fmt: skip
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(each) + "\n" for each in cases))
    options = ("--cases", tmp_path / "cases.jsonl")
    done = run_command("judge", *options, "--judge", "small", "--encoder", ENCODER, "--output", tmp_path / "v")
    assert done.returncode == 0, done.stderr
    abstains = {each["case_id"]: each.get("abstains") for each in read(tmp_path / "v" / "verdicts.jsonl")}
    assert [abstains[f"c{number}"] for number in range(4)] == [False, None, None, True]
    done = preferences("--verdicts", tmp_path / "v", *options, "--orders", "any", "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "4 cases with verdicts → 1 with a pair, 3 rejected (not certified: 2, the judge abstains: 1)" in done.stdout
    assert [row["case_id"] for row in read(tmp_path / "out" / "train.jsonl")] == ["c0"]


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of automedeval abstain over half of 120 cases; half are rated, and longer is better if by far."""
    folder, rng = tmp_path_factory.mktemp("certified"), random.Random(0)
    cases, ratings = [], []
    for number in range(120):
        long, better = [rng.randint(1, 30) for _ in "ab"], rng.randint(0, 1)
        better = long.index(max(long)) if abs(long[0] - long[1]) > 8 else better
        texts = [{"model": model, "text": "word " * count} for model, count in zip("ab", long)]
        cases.append({"id": f"c{number}", "question": f"Question {number}?", "responses": texts})
        rating = {"case_id": f"c{number}", "annotator": "p", "criterion": "q"}
        ratings += [
            rating | {"model": model, "score": 2 + 2 * (k == better)} for k, model in enumerate("ab") if number % 2
        ]
    for name, records in (("cases", cases), ("ratings", ratings)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    args = ("--cases", folder / "cases.jsonl")
    assert run_command("judge", *args, "--judge", "baseline:longer text", "--output", folder / "mine").returncode == 0
    args += ("--verdicts", folder / "mine", "--ratings", folder / "ratings.jsonl", "--abstain_at", 0.2)
    done = run_command("abstain", *args, "--output", folder)
    assert "certified" in done.stdout, done.stderr
    return folder


def test_the_certificate_is_of_the_kept_verdicts_alone(certified: Path, tmp_path: Path) -> None:
    kept, cases = (read(certified / "kept" / f"{name}.jsonl") for name in ("verdicts", "cases"))
    every = read(certified / "mine" / "verdicts.jsonl")
    assert 1 < len(kept) < len(every) / 2
    swapped = [kept[0] | {"expected_scores": kept[0]["expected_scores"][::-1]}, *kept[1:]]
    silent = [{key: value for key, value in each.items() if key != "case_digest"} for each in kept]
    edited = [cases[0] | {"responses": [each | {"text": "Other."} for each in cases[0]["responses"]]}, *cases[1:]]
    kept_ids = {each["case_id"] for each in kept}
    queued = [each for each in every if each["case_id"] not in kept_ids]
    whole = read(certified / "cases.jsonl")
    for name, verdicts, texts in (
        ("kept", kept, cases), ("turned", kept[::-1], cases[::-1]), ("among others", kept, whole), ("all", every, whole),
        ("a part", kept[1:], cases), ("queued", queued, whole), ("changed", swapped, cases), ("edited", silent, edited),
    ):  # fmt: skip
        place = tmp_path / name / "kept"
        place.mkdir(parents=True)
        (place.parent / "abstention.json").write_bytes((certified / "abstention.json").read_bytes())
        for file, records in (("verdicts", verdicts), ("cases", texts)):
            (place / f"{file}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
        args = ("--verdicts", place, "--cases", place / "cases.jsonl", "--orders", "any", "--output", tmp_path / "out")
        done = preferences(*args)
        if name in ("kept", "turned", "among others"):
            assert f"{len(kept)} pairs by baseline:longer text; certified" in done.stdout, (name, done.stderr)
        else:
            assert "no certificate covers these verdicts: give the whole folder kept" in error_line(done), name


@pytest.mark.slow
def test_trl_trains_a_step_on_them(tmp_path: Path) -> None:
    from trl import DPOConfig, DPOTrainer

    study = Kept(tmp_path)
    study.run()
    rows = load_dataset(str(study.output))["train"]
    assert len(rows) == 2
    model = build_tiny_model(tmp_path / "model")
    options = {"max_steps": 1, "per_device_train_batch_size": 2, "use_cpu": True, "bf16": False, "report_to": "none"}
    training = DPOConfig(output_dir=str(tmp_path / "dpo"), save_strategy="no", gradient_checkpointing=False, **options)
    trainer = DPOTrainer(model=str(model), args=training, train_dataset=rows)
    assert trainer.train().metrics["train_loss"] == pytest.approx(0.6931, abs=1e-3)  # ln 2 before the first update
