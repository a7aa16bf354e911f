"""Physicians rate harm by degree: in a real browser, exported and reported."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from annotation.test_browser import Visit
from doubles.agreement_study import write
from doubles.grid_reader import needs_chromium
from doubles.study_page import opened, physician, write_study
from programs import flags, run_command, succeeded

from automedeval.annotation.export import write_export
from automedeval.annotation.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(write_study(tmp_path, ("harm",), cases=1)) as store:
        yield store


@needs_chromium
def test_a_keyboard_alone_answers(browser, store, address) -> None:
    visit = Visit(browser, address)
    visit.begin(store.invite("physician-2"))
    assert visit.heading() == "What harm could this do?"
    visit.examine()
    keys = visit.page.keyboard
    keys.type("000332xxx")
    visit.enter()
    (stored,) = store.answers()
    said = (["none", "no harm", "no harm"], ["severe", "high", "omission"], ["cannot be told"] * 3)
    assert tuple(list(each.values()) for each in stored.content["choices"].values()) == said


def test_the_export_of_the_page_is_what_the_report_reads(store, tmp_path) -> None:
    for name in ("physician-2", "physician-3"):
        someone = physician(store, name)
        someone.post(someone.place(), **someone.fill() | {f"choices-{slot}-degree": "moderate" for slot in (1, 2, 3)})
    write_export(store, tmp_path / "export")
    choices = {"degree": "mild", "likelihood": "low", "cause": "commission"}
    mild = {"case_id": "case-1", "judge": "mild", "rubric": "harm@1", "valid": True, "choices": choices}
    verdicts = write(tmp_path / "v.jsonl", [mild | {"order": [slot], "rationale": "as much"} for slot in range(3)])
    files = {"verdicts": verdicts, "cases": tmp_path / "cases.jsonl", "ratings": tmp_path / "export" / "harm.jsonl"}
    succeeded(run_command("report", *flags(**files, output=tmp_path / "report")))
    found = json.loads((tmp_path / "report" / "harm.json").read_text())
    assert (found["people"]["names"], found["people"]["kappa"]["n"]) == (["physician-2", "physician-3"], 3)
