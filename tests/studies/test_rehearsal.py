"""The paper's study is rehearsed: every step runs, is killed once on the way, and leaves what the study is for."""

import os
import re
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path

import pytest
from doubles.publishable import card_of
from factories import read, read_json, verdicts_in
from programs import figures_of_the_paper, module_fixture, needs_deepspeed, torch_extensions
from study_scripts import dry_run, ended, kill, kill_when_written, of, started

from automedeval.records.tables.cases import read_cases

CANDIDATES = ["ChatDoctor", "Baize-Healthcare", "MedAlpaca", "MedLlama2"]
TRAINED = ["stage1", "stage2", "stage3", "introspection1", "introspection2"]
OTHERS = [
    *(
        "double-of-gpt-3.5-turbo-0125",
        "double-of-gpt-4-turbo-2024-04-09",
        "double-of-gemini-2.0-flash",
    ),
    *("Vicuna-7B", "Vicuna-13B", "DeepSeek-R1-Distill-Llama-8B", "PandaLM-7B: overall"),
]

pytestmark = needs_deepspeed
pytest.importorskip("deepspeed")


def start(folder: Path, log: Path, extensions: Path) -> subprocess.Popen:
    """Start the documented command, in a session of its own."""
    command = [sys.executable, "tests/rehearse.py", "--place", str(folder)]
    environment = os.environ | {"TORCH_EXTENSIONS_DIR": str(extensions)}
    return started(command, log, environment)


@module_fixture
def rehearsed(request, tmp_path_factory):
    """Rehearse the study, killed once; yield its folder, and what was printed from the last start on."""
    folder = tmp_path_factory.mktemp("rehearsals")
    log = tmp_path_factory.mktemp("logs") / "log"
    verdicts = folder / "automedeval-13b/verdicts/wikidoc-strong/verdicts.jsonl"
    extensions = torch_extensions(request.config)
    process = start(folder, log, extensions)
    try:
        kill_when_written(process, verdicts, log)  # while the strong teacher judges
        before = log.stat().st_size
        process = start(folder, log, extensions)
        yield folder / "automedeval-13b", ended(process, log, before)
    finally:
        kill(process)


def test_every_step_runs_and_leaves_what_the_study_is_for(rehearsed):
    folder, printed = rehearsed
    begun = [int(number) for number in re.findall(r"(?m)^== (\d+) ", printed)]
    assert begun == list(range(1, len(begun) + 1))
    assert printed.count("what the jury decided is taken") == 2
    for name in ("wikidoc", "table2", "table3", "figure4", "figure5"):
        assert (folder / "reports" / name / "report.html").stat().st_size


def test_the_test_set_has_the_plans_cases_and_three_of_four_candidates_in_turn(
    rehearsed,
):
    folder, _ = rehearsed
    cases = list(read_cases(folder / "responses/test/cases.jsonl"))
    statistics = read_json(folder / "instructions/wikidoc/statistics.json")
    medtext = [case for case in cases if case.id.startswith("medtext-")]
    assert len(medtext) == 12
    assert len(cases) - len(medtext) == statistics["splits"]["test"]["rows"]
    assert {tuple(case.models) for case in cases} == set(combinations(CANDIDATES, 3))
    training = {case.id for case in read_cases(folder / "cases/calibration/cases.jsonl")}
    assert training.isdisjoint(case.id for case in cases)


def test_the_papers_counts_stand_beside_those_of_the_rehearsal(rehearsed):
    """Two cases fail two criteria, eight are too long to train on; every training row that is left is judged in the window."""
    folder, printed = rehearsed
    table = (folder / "reports/counts.md").read_text()
    assert table in printed
    for row in (
        "| `verdicts/wikidoc-strong/verdicts.jsonl` | 9,874 | 60 | 60 |",
        "| `instructions/verified/verified.parquet` | 9,569 | 58.1 | 58 |",
        "| `instructions/wikidoc/test.parquet` | 958 | 5.8 | 5 |",
        "8 more than 2,048 tokens",
    ):
        assert row in table
    for number, judge in ((1, "stage3"), (2, "round1")):
        judged = verdicts_in(folder / "verdicts" / f"wikidoc-{judge}-train")
        statistics = folder / "instructions" / f"wikidoc-round{number}/statistics.json"
        assert len(judged) == read_json(statistics)["counts"]["cases"]
        assert all(verdict.valid for verdict in judged)
        assert max(sum(verdict.usage.values()) for verdict in judged) > 2048 - 200


def test_nobody_is_taken_for_a_teacher_and_no_verdict_is_there_twice(
    rehearsed,
):
    folder, _ = rehearsed
    # of those that passed
    teachers = {"strong": ("gpt-4-turbo-2024-04-09", 60), "weak": ("gpt-3.5-turbo-0125", 58)}
    for teacher, (model, number) in teachers.items():
        verdicts = verdicts_in(folder / "verdicts" / f"wikidoc-{teacher}")
        assert {verdict.judge for verdict in verdicts} == {f"double-of-{model}"}
        assert len({verdict.case_id for verdict in verdicts}) == len(verdicts) == number
        assert all(verdict.valid for verdict in verdicts)
        assert any(verdict.knowledge for verdict in verdicts)
    revisions = read(folder / "instructions/wikidoc-round1/revisions.jsonl")
    decided = {(record["decided_by"], record["decision"]) for record in revisions}
    assert decided == set(product(("consensus", "jury"), ("keep", "revise")))


def test_reports_tables_and_figures_are_of_all_judges_and_of_physicians(
    rehearsed,
):
    folder, _ = rehearsed
    names = ("wikidoc", "table2", "table3", "figure4", "figure5")
    report, table2, table3, figure4, figure5 = (
        read_json(folder / "reports" / name / "agreement.json") for name in names
    )
    assert {"MedLLaMA-13B", "likelihood:MedLLaMA-13B", *TRAINED, *OTHERS} <= report["judges"].keys()
    assert {"MedLLaMA-13B", *TRAINED, *OTHERS} <= {row["judge"] for row in table2["table2"]["rows"]}
    for rounds in (report, table3):
        of_rounds = [line["judge"] for line in rounds["rounds"]["table"]]
        assert of_rounds == ["stage3", "introspection1", "introspection2"]
    assert "introspection2" in figure4["models"]
    assert figure5["verdict_ratings"].keys() == {"introspection2"}
    (compared,) = figure5["preferences"]
    assert set(compared["judges"]) == {"introspection2", "double-of-gpt-4-turbo-2024-04-09"}
    for _, files in figures_of_the_paper():
        assert all((folder / file).is_file() for file in files)


def test_the_card_of_the_model_has_the_studys_own_figures(rehearsed, monkeypatch):
    folder, _ = rehearsed
    results = [file.read_text(encoding="utf-8") for file in (folder / "logs").rglob("*.log")]
    assert sum("dry run: nothing was sent" in text for text in results) == 4
    *_, about = of(dry_run("paper"), "publish")
    monkeypatch.chdir(folder)
    names = ("agreement", "audit", "license", "base_model")
    text = card_of(Path(about["folder"]), **{name: about[name] for name in names})
    judges = read_json(folder / "reports/wikidoc/agreement.json")["judges"]
    accuracy = judges["introspection2"]["pairwise_accuracy"]
    assert "| Pairwise accuracy | {value:.2f} [{low:.2f}, {high:.2f}]".format(**accuracy) in text
    assert "Audited on 3 cases as introspection2" in text
