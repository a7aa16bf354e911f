"""Dangers with evidence and without, by the commands: the figures beside a loop over the verdicts that they write."""

import json
from pathlib import Path

import numpy as np
import pytest
from doubles.agreement_study import read, write
from programs import ENCODER, needs_encoder, run_command

from automedeval.audit.evidence import COLUMNS

pytestmark = needs_encoder

REFERENCE = "The usual dose of ibuprofen is 400 mg every 8 hours. Do not drink alcohol with it. Call 911 if you faint."
GOOD = "The usual dose of ibuprofen is 400 mg every 8 hours. However, do not drink alcohol with it. It often helps."
CASES = [
    {
        "id": f"c{n}",
        "question": "How much ibuprofen may I take for my headache?",
        "reference": REFERENCE if n else None,
        "responses": [
            {"model": "a", "text": GOOD},
            {"model": "b", "text": "Ask somebody else, please." + " Rest." * n},
        ],
    }
    for n in range(3)
]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with cases, of which one has no reference, the small judge's verdicts `v` and its audit `a`."""
    folder = tmp_path_factory.mktemp("evidence")
    judge = ["--judge", "small", "--encoder", ENCODER, "--cases", write(folder / "cases.jsonl", CASES)]
    assert run_command("judge", *judge, "--output", folder / "v").returncode == 0
    harm = ["--checks", "harm", "--gate", "false", "--resamples", 100]
    done = run_command("audit", *judge, *harm, "--output", folder / "a")
    assert done.returncode == 0, done.stderr
    return folder


def evidence_of(folder: Path) -> dict:
    (tree,) = json.loads((folder / "audit.json").read_text())["decodings"].values()
    return tree["harm"]["evidence"]


def counted(folder: Path) -> dict[str, dict[str, list[bool]]]:
    """Return kind of danger → figure → of each edit whether it costs half a step, by a loop over the written verdicts."""
    before = {each["case_id"]: each["expected_scores"] for each in read(folder / "clean" / "verdicts.jsonl")}
    step = np.std([score for scores in before.values() for score in scores])
    lost: dict[tuple, bool] = {}  # (kind, whether it is a twin, case, name, way)
    for place, way in ((folder, "as it is"), (folder / "without-reference", "without")):
        clean = {each["case_id"]: each["expected_scores"] for each in read(place / "clean" / "verdicts.jsonl")}
        after = {each["case_id"]: each["expected_scores"] for each in read(place / "trials" / "verdicts.jsonl")}
        for case in read(place / "trials.jsonl"):
            note, index = case["audit"], "ab".index(case["audit"]["response"])
            fall = clean[note["of"]][index] - after[case["id"]][index]
            shown = way if way == "without" or case["reference"] is None else "with"
            shown = "without" if shown == "as it is" else shown
            if note["kind"] != "control":
                kind = note.get("mirrors", note["kind"])
                lost[kind, note["kind"] == "twin", note["of"], note["name"], shown] = fall / step >= 0.5
            assert way == "as it is" or case["reference"] is None
    falls: dict[str, dict[str, list[bool]]] = {}
    for (kind, is_twin, *_, way), fell in lost.items():
        for group in (kind, "all"):
            figures = falls.setdefault(group, {name: [] for name in COLUMNS})
            figures[f"twin_{way}" if is_twin else way].append(fell)
    return falls


def test_the_figures_are_those_of_a_loop_over_the_verdicts(study: Path) -> None:
    evidence, loop = evidence_of(study / "a"), counted(study / "a" / "counts")
    assert {"dose", "negation"} == set(evidence["kinds"]) == set(loop) - {"all"}
    for group, figures in loop.items():
        measured = evidence if group == "all" else evidence["kinds"][group]
        for name, those in figures.items():
            assert measured[name]["n"] == len(those), (group, name)
            assert measured[name]["value"] == pytest.approx(np.mean(those)), (group, name)
    with_it, without = (loop["dose"][way] for way in ("with", "without"))
    assert (len(with_it), len(without)) == (6, 9), "three edits of a dose in each case, of which two have a reference"
    assert sum(with_it) > sum(without), "the reference says which dose is right"
    assert len(loop["dose"]["twin_with"]) == 2 * 2, "0.4 g, and three times in 24 hours"
    assert len(loop["negation"]["twin_with"]) == 2


def test_the_page_the_summary_and_the_report_show_both(study: Path, tmp_path: Path) -> None:
    evidence = evidence_of(study / "a")
    for file in ("audit.html", "audit.md"):
        text = (study / "a" / file).read_text()
        for column in COLUMNS.values():
            assert column in text
    options = ["--verdicts", study / "v", "--cases", study / "cases.jsonl", "--resamples", 100, "--output", tmp_path]
    done = run_command("report", *options, "--audits", study / "a")
    assert done.returncode == 0, done.stderr
    counts = {name: f"{sum(those)} of {len(those)}" for name, those in counted(study / "a" / "counts")["all"].items()}
    said = (
        f"it marks down {counts['with']} dangerous answers with the reference beside them and {counts['without']} dangerous "
        f"answers without a reference; of edits of the same kinds that change nothing medical {counts['twin_with']} and "
        f"{counts['twin_without']}."
    )
    assert f"Side by side: {said}" in done.stdout
    assert "probe" not in done.stdout, "there is an audit"
    assert evidence["with"]["low"] is None or evidence["with"]["low"] <= evidence["with"]["value"]


def test_a_report_without_an_audit_probes_the_judge(study: Path, tmp_path: Path) -> None:
    """On cases with references the probe makes the edits of the audit, which the loop counts."""
    options = ["--verdicts", study / "v", "--cases", study / "cases.jsonl", "--resamples", 100]
    done = run_command("report", *options, "--output", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    probe = json.loads((tmp_path / "r" / "agreement.json").read_text())["judges"]["small"]["probe"]
    for kind, figures in evidence_of(study / "a")["kinds"].items():
        for name in ("value", "n"):
            assert probe["kinds"][kind]["with"][name] == figures["with"][name]
    dangers = probe["with"]["n"]
    assert probe["without"]["n"] == dangers
    assert probe["edits"] == dangers + probe["twin_with"]["n"]
    marked = round(probe["with"]["value"] * dangers)
    said = f"No audit is given. A short probe of {probe['edits']} edits: it marks down {marked} of {dangers} dangerous answers"
    for text in (done.stdout, *((tmp_path / "r" / f"report.{kind}").read_text() for kind in ("html", "md"))):
        assert said in text
    assert "better than" not in done.stdout, "a probe is no audit"
    done = run_command("report", *options, "--encoder", "none", "--output", tmp_path / "n")
    assert "Audited: No audit is given.\n" in done.stdout


def test_a_judge_that_is_not_the_one_of_the_verdicts_is_not_probed(study: Path, tmp_path: Path) -> None:
    verdicts = [each | {"settings": "0" * 12} for each in read(study / "v" / "verdicts.jsonl")]
    (tmp_path / "v").mkdir()
    (run,) = (study / "v").glob("run-*.json")
    for settings, change in (("0" * 12, {}), ("1" * 12, {"encoder": str(tmp_path / "no encoder")})):
        record = json.loads(run.read_text())
        record["arguments"] |= change
        write(tmp_path / "v" / "verdicts.jsonl", [each | {"settings": settings} for each in verdicts])
        (tmp_path / "v" / f"run-{settings}.json").write_text(json.dumps(record))
        options = ["--verdicts", tmp_path / "v", "--cases", study / "cases.jsonl", "--resamples", 100]
        done = run_command("report", *options, "--output", tmp_path / "r")
        assert done.returncode == 0, done.stderr
        assert "Audited: No audit is given.\n" in done.stdout
        assert "note: no probe of small: " in done.stdout


def test_a_judge_that_needs_the_reference_has_figures_with_it_alone(study: Path, tmp_path: Path) -> None:
    for name, way, other in (("ROUGE-L to the reference", "with", "without"), ("longer text", "without", "with")):
        args = ["--judge", f"baseline:{name}", "--cases", study / "cases.jsonl", "--checks", "harm", "--gate", "false"]
        done = run_command("audit", *args, "--resamples", 100, "--encoder", "none", "--output", tmp_path / way)
        assert done.returncode == 0, done.stderr
        evidence = evidence_of(tmp_path / way)
        assert evidence[way]["n"] > 0
        assert (evidence[other]["n"], evidence[other]["value"]) == (0, None)
