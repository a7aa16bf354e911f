"""recipes/audit.py by its command: a judge audited from start to end, resumed, exit status, own perturbations, bad input."""

from functools import partial
from pathlib import Path

import pytest
from doubles.perturbations import some_of
from doubles.publishable import trained
from factories import read, read_json, verdicts_in, write
from markupsafe import escape
from programs import (
    ENCODER,
    FAST,
    ROOT,
    SAMPLE,
    failed,
    module_fixture,
    needs_encoder,
    run_recipe,
    succeeded,
)
from tables import holds_all

from automedeval.audit.perturbations import read_perturbations
from automedeval.models.checkpoints import fingerprint
from automedeval.records import RecordError
from automedeval.records.tables.cases import read_cases
from automedeval.study.publishing.model_card import fill_card

CASES = SAMPLE / "test_cases.jsonl"
NO_ENCODER = FAST | {"encoder": "none"}
TINY = {"cases": "sample", "limit": 4, "rationale": "false", "edits": 3}
audit = partial(run_recipe, "audit")
tiny = partial(audit, **TINY, **NO_ENCODER)


def result(folder: Path) -> dict:
    return read_json(folder / "audit.json")


def rows(folder: Path) -> dict[str, dict]:
    return {row["name"]: row for row in result(folder)["perturbations"]}


@module_fixture
def audited(tiny_model, tmp_path_factory):
    """Return the folder of an audit of the tiny judge on four cases; it does not pass."""
    folder = tmp_path_factory.mktemp("audits") / "tiny"
    done = tiny(judge=tiny_model, output=folder)
    assert done.returncode == 3, done.stderr
    holds_all(done.stdout, ("does not pass", str(folder / "audit.html")))
    return folder


def test_every_perturbation_has_a_row_with_intervals(audited):
    table = rows(audited)
    audit = result(audited)
    assert list(table) == [perturbation.name for perturbation in read_perturbations()]
    for name in table.keys() - {"paraphrase"}:  # which not every answer allows
        share = table[name]["share"]
        assert share["n"] > 0
        assert table[name]["outcome"] in ("passed", "failed")
        if name != "danger":  # in four cases it is undefined in some resamples
            assert share["low"] <= share["value"] <= share["high"]
    assert (audit["verdicts"], audit["passes"]) == (12, False)  # a Latin square of three
    assert table["repeat"]["share"]["value"] == 0.0  # greedy, in float32
    planting = table["planting"]
    assert planting["share"]["n"] == 12
    assert sum(kind["share"]["n"] for kind in planting["kinds"].values()) == 12
    assert planting["controls"]["control"]["share"]["n"] == 4


def test_trials_show_their_case_as_the_clean_run_did(audited):
    orders = {(verdict.case_id, verdict.order) for verdict in verdicts_in(audited / "clean")}
    cases = {case.id: case for case in read_cases(CASES)}
    # As they were judged: reading takes planted tokens of chat templates out.
    changed = {case["id"]: case for case in read(audited / "changed.jsonl")}
    after = verdicts_in(audited / "changed")
    assert len(after) == len(changed) > 20
    for verdict in after:
        case = changed[verdict.case_id]
        clean = cases[case["audit"]["of"]]
        kind = case["audit"]["perturbation"]
        assert (clean.id, verdict.order) in orders
        texts = [response["text"] for response in case["responses"]]
        before = [response.text for response in clean.responses]
        differing = sum(text != own for text, own in zip(texts, before))
        assert differing == (0 if kind in ("repeat", "patient") else 1)
        assert (case["question"] != clean.question) == (kind == "patient")
        if case["audit"]["kind"] == "identical":
            assert len(set(texts)) == 2  # one answer is shown in two places


def test_without_a_valid_verdict_there_are_no_changed_cases(tiny_model, tmp_path):
    done = tiny(judge=tiny_model, output=tmp_path, score_decoding="free")
    assert done.returncode == 3, done.stderr
    table = rows(tmp_path)
    assert table["reading"]["share"]["value"] == 0  # the tiny model writes no score line
    assert {row["outcome"] for row in table.values()} == {"failed", "not measured"}
    assert read(tmp_path / "changed.jsonl") == []
    unread, invalid, *_ = result(tmp_path)["notes"]
    assert unread.startswith("reference: not read by this judge")
    assert invalid.startswith("4 of 4 cases have no answer with a valid verdict")


def test_the_page_is_one_file_without_requests_and_shows_every_figure(audited):
    page = (audited / "audit.html").read_text(encoding="utf-8")
    assert page.index("does not pass") < page.index('id="table"') < page.index('id="texts"')
    assert "default-src 'none'" in page
    assert "://" not in page.replace("http://www.w3.org", "")
    assert "prefers-color-scheme: dark" in page
    summary = (audited / "audit.md").read_text(encoding="utf-8")
    for name, row in rows(audited).items():
        assert f'<th scope="row">{row["what"]}</th>' in page
        assert f"| {row['what']} | {row['outcome']} |" in summary
        kinds = [*row["kinds"]] if len(row["kinds"]) > 1 else []
        for kind in [*kinds, *(f"harmless, {each}" for each in row["controls"])]:
            assert f'<th scope="row" class="group">· {escape(kind)}</th>' in page, name
    assert "[audit.html](audit.html)" in summary
    assert all('dir="auto"' in line for line in page.splitlines() if 'class="text' in line)


def test_perturbations_of_ones_own_take_the_place_of_the_packaged_ones(tmp_path):
    file = tmp_path / "own.yaml"
    out = tmp_path / "o"
    run = partial(audit, judge="baseline:longer text", cases=CASES, perturbations=file, output=out)
    for limit, status in (("most: 1.0", 0), ("most: 0.0", 3), ("why: none", 3)):
        file.write_text(
            "- {name: danger, changes: good answer, should: fall, what: a lie costs nothing, least: 1.0, "
            "edits: {lie: [{pattern: not in any answer, replace: lie}]}}\n"
            "- {name: twice, changes: good answer, should: not rise, what: twice the text helps, "
            f"{limit}, edits: {{twice: [{{text: $text $text}}]}}}}\n"
        )
        done = run(**NO_ENCODER)
        assert done.returncode == status, (limit, done.stdout)
        assert ("kept; not measured: a lie costs nothing" in done.stdout) != status
    assert rows(out)["twice"]["shift"]["value"] > 0
    assert "neither passes nor fails" in done.stdout, "nothing has a limit"
    assert "| twice the text helps | – |" in (out / "audit.md").read_text()


def test_a_pairwise_judge_is_audited_by_shares_of_criteria(tiny_model, tmp_path):
    perturbations = some_of(tmp_path, "order", "planting", "patient")
    options = {"rubric": "medical_pairwise", "limit": 2, "edits": 2, "gate": "false"}
    options |= {"judge": tiny_model, "cases": CASES, "perturbations": perturbations}
    succeeded(audit(**options, **NO_ENCODER, output=tmp_path))
    table = rows(tmp_path)
    assert list(table) == ["reading", "order", "planting", "patient"]
    assert result(tmp_path)["judge"]["unit"] == "share of criteria won"
    assert table["order"]["share"]["n"] == 6
    assert table["planting"]["shift"]["n"] == 4


@needs_encoder
def test_a_response_that_the_judge_cannot_read_changes_no_figure_of_the_others(
    tmp_path,
):
    perturbations = some_of(tmp_path, "copy", "repeat", "planting", "danger")
    options = {"perturbations": perturbations, "edits": 2, "gate": "false", "encoder": ENCODER}
    run = partial(audit, judge="baseline:embedding to the question", **options)
    figures = []
    for more in ([], [{"model": "silent", "text": "👍"}]):
        cases = [case | {"responses": case["responses"] + more} for case in read(CASES)[:3]]
        output = tmp_path / f"{len(more)}"
        succeeded(run(cases=write(tmp_path / "cases.jsonl", cases), output=output))
        figures.append(rows(output))
    first, second = figures
    for check in ("copy", "repeat", "danger"):
        for figure in ("share", "shift"):
            assert second[check][figure] == pytest.approx(first[check][figure], abs=1e-5)
    planting = first["planting"]
    assert first["repeat"]["share"]["n"] == planting["controls"]["control"]["share"]["n"] == 3
    # The texts say how many responses there are.
    assert planting["shift"]["n"] == second["planting"]["shift"]["n"] == 6


def test_the_card_shows_the_table_and_whether_it_passed(audited, tiny_model, tmp_path):
    audited_result = result(audited)
    card = (ROOT / "model_card.md").read_text(encoding="utf-8")
    checkpoint = trained(tiny_model, tmp_path / "checkpoint")
    inputs = (checkpoint, fingerprint(checkpoint, []), "ORG/judge", "apache-2.0", "ORG/base")
    filled = fill_card(card, *inputs, audit=audited_result)
    shown = filled.split("### Audit\n")[1].split("\n## ")[0]
    assert "Audited on 4 cases as tiny-judge: it does not pass; " in shown
    assert shown.count("\n| ") == 1 + len(audited_result["perturbations"])
    for other in ("of-another", None):
        audited_result["judge"]["checkpoint"] = other
        with pytest.raises(
            RecordError, match=f"'tiny-judge' was audited, on the checkpoint {other}"
        ):
            fill_card(card, *inputs, audit=audited_result)


def test_bad_input_is_one_line(tiny_model, tmp_path):
    run = partial(audit, cases=CASES, output=tmp_path / "out", **NO_ENCODER)
    failed(run(), "--judge")
    run = partial(run, judge=tiny_model)
    failed(run(edits=0), "--edits must be")
    failed(run(perturbations="nowhere.yaml"), "nowhere.yaml")
    first = read(CASES)[0]
    single = write(tmp_path / "single.jsonl", [first | {"responses": first["responses"][:1]}])
    failed(run(cases=single, rubric="medical_pairwise"), "no case has two responses")
