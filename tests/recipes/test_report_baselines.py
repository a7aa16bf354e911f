"""The baselines of `automedeval report`: their rows and differences, what is said of a judge, and what is left out."""

import json
import sys
from pathlib import Path

import pytest
from doubles.agreement_study import CASES, RATINGS, agreeing_verdicts, pairwise_verdicts, read, told, write
from programs import ENCODER, error_line, flags, needs_encoder, run_recipe, succeeded

from automedeval.records.extras import install

QUESTION, REFERENCE = "embedding to the question", "embedding to the reference"


def evaluated(folder: Path, verdicts: list[dict], *arguments: object) -> tuple[dict, str]:
    file = write(folder / "verdicts.jsonl", verdicts)
    args = ["--verdicts", file, "--cases", CASES, "--ratings", RATINGS, "--output", folder / "out", "--resamples", 200]
    succeeded(run_recipe("report", *args, *arguments))
    return json.loads((folder / "out" / "agreement.json").read_text(encoding="utf-8")), told(folder / "out")


@needs_encoder
@pytest.mark.slow
def test_embeddings_are_rows_of_the_report_with_paired_differences(tmp_path: Path) -> None:
    judged, few = {}, write(tmp_path / "few.jsonl", read(CASES)[:12])
    for name in (QUESTION, REFERENCE):
        out = ["--cases", few, "--output", tmp_path / "judged"]
        assert run_recipe("judge", "--judge", f"baseline:{name}", "--encoder", ENCODER, *out).returncode == 0
    for verdict in read(tmp_path / "judged" / "verdicts.jsonl"):
        judged.setdefault(verdict["judge"], []).append(verdict)
    verdicts = agreeing_verdicts() + judged[f"baseline:{QUESTION}"] + judged[f"baseline:{REFERENCE}"]
    result, printed = evaluated(tmp_path, verdicts, "--encoder", ENCODER, "--cases", few)
    for name in (QUESTION, REFERENCE):
        row, same = result["judges"][name], result["judges"][f"baseline:{name}"]
        assert row["kind"] == "baseline"
        assert row["concordance"] == same["concordance"]
        (versus,) = [each for each in result["comparisons"] if (each["first"], each["second"]) == ("echo", name)]
        expected = result["judges"]["echo"]["concordance"]["value"] - row["concordance"]["value"]
        assert versus["difference"]["value"] == pytest.approx(expected)
        assert versus["p_adjusted"] is not None
        # No judge is better than itself.
        assert same["best_baseline"]["outcome"] != "better"
    assert result["settings"]["encoder"].startswith("all-MiniLM-L6-v2 (")
    assert "the best baseline" not in printed, "of 12 rated cases"


def test_the_report_says_whether_a_judge_is_better_than_the_best_baseline(tmp_path: Path) -> None:
    args = ["--judge", "baseline:BM25 to the question", "--cases", CASES, "--output", tmp_path / "bm25"]
    succeeded(run_recipe("judge", *args))
    turned = agreeing_verdicts("turned", expected_scores=None)
    for each in turned:
        each["scores"] = [6 - score for score in each["scores"]]
    verdicts = [*agreeing_verdicts(), *turned, *read(tmp_path / "bm25" / "verdicts.jsonl"), *pairwise_verdicts()]
    result, printed = evaluated(tmp_path, verdicts, "--encoder", "none")
    best = {name: record.get("best_baseline") for name, record in result["judges"].items()}
    assert best["echo"]["outcome"] == "better"
    assert best["turned"]["outcome"] == "worse"
    assert best["baseline:BM25 to the question"]["outcome"] != "better"
    assert best["longer text"] is None
    assert "echo is better than every baseline." in printed
    assert f"turned is worse than the best baseline, {best['turned']['name']}: difference in concordance -0." in printed
    assert "pairs: harmfulness is better than every baseline." in printed
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "turned is worse than the best baseline, " in page


def test_without_an_encoder_a_note_says_what_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    result, printed = evaluated(tmp_path, agreeing_verdicts())
    assert QUESTION not in result["judges"]
    assert result["settings"]["encoder"] is None
    (note,) = [note for note in result["notes"] if note.startswith("no baselines that compare embeddings: ")]
    assert f"no encoder at models/all-MiniLM-L6-v2, in {tmp_path}/home/automedeval/models or in the cache of" in note
    assert f"note: {note}" in printed
    result, _ = evaluated(tmp_path, agreeing_verdicts(), "--encoder", "none")
    assert not any(note.startswith("no baseline") for note in result["notes"])
    args = flags(verdicts=tmp_path / "verdicts.jsonl", cases=CASES, ratings=RATINGS, output=tmp_path / "out")
    assert "no checkpoint at models/nowhere" in error_line(run_recipe("report", *args, "--encoder", "models/nowhere"))
    named = write(tmp_path / "named.jsonl", agreeing_verdicts(QUESTION))
    line = error_line(run_recipe("report", *args[2:], "--verdicts", named))
    assert f"a judge cannot be called {QUESTION!r} in a report" in line


def test_without_sentence_transformers_a_note_names_what_to_install(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("automedeval.models.embeddings.plain_window", lambda folder: None)  # an encoder of another kind
    monkeypatch.delitem(sys.modules, "automedeval.models.library", raising=False)
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    result, _ = evaluated(tmp_path, agreeing_verdicts())
    (note,) = [note for note in result["notes"] if note.startswith("no baselines that compare embeddings: ")]
    assert "sentence_transformers" in note
    assert note.endswith(f"{install('data')} (--encoder names one, none leaves them out)")
    args = ["--judge", f"baseline:{QUESTION}", "--cases", CASES, "--output", tmp_path / "judged"]
    assert install("data") in error_line(run_recipe("judge", *args))
