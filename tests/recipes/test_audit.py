"""recipes/audit.py by its command: a judge audited from start to end, resumed, exit status, own perturbations, bad input."""

import json
from functools import partial
from pathlib import Path

import pytest
from doubles.agreement_study import read, write
from doubles.perturbations import some_of
from doubles.publishable import trained
from markupsafe import escape
from programs import ENCODER, ROOT, SAMPLE, error_line, flags, needs_encoder, run_recipe, succeeded

from automedeval.audit.perturbations import read_perturbations
from automedeval.models.checkpoints import fingerprint
from automedeval.publishing.model_card import fill_card
from automedeval.records import RecordError, Verdict, read_cases

CASES = SAMPLE / "test_cases.jsonl"
FAST = ["--dtype", "float32", "--device", "cpu", "--max_new_tokens", "8", "--encoder", "none"]
TINY = ["--cases", CASES, "--limit", 4, "--rationale", "false", "--edits", 3, *FAST]
audit = partial(run_recipe, "audit")


def result(folder: Path) -> dict:
    return json.loads((folder / "audit.json").read_text(encoding="utf-8"))


def rows(folder: Path) -> dict[str, dict]:
    return {row["name"]: row for row in result(folder)["perturbations"]}


def leaves(tree: object, path: str = "") -> dict[str, object]:
    """Return what the lists and mappings of a JSON tree end in, by their place."""
    if not isinstance(tree, dict | list):
        return {path: tree}
    branches = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return {
        place: leaf
        for key, branch in branches
        for place, leaf in leaves(branch, f"{path}/{key}").items()
    }


@pytest.fixture(scope="module")
def audited(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an audit of the tiny judge on four cases; it does not pass."""
    folder = tmp_path_factory.mktemp("audits") / "tiny"
    done = audit("--judge", tiny_model, "--output", folder, *TINY)
    assert done.returncode == 3, done.stderr
    assert "does not pass" in done.stdout
    assert str(folder / "audit.html") in done.stdout
    return folder


def test_every_perturbation_has_a_row_with_intervals(audited: Path) -> None:
    table = rows(audited)
    assert list(table) == [each.name for each in read_perturbations()]
    for name in (
        "reading",
        "order",
        "length",
        "copy",
        "repeat",
        "planting",
        "danger",
        "patient",
        "writer",
    ):
        share = table[name]["share"]
        assert share["n"] > 0
        if name != "danger":  # in four cases it is undefined in some resamples
            assert share["low"] <= share["value"] <= share["high"]
        assert table[name]["outcome"] in ("passed", "failed")
    assert result(audited)["verdicts"] == 12  # a Latin square of three
    assert table["planting"]["share"]["n"] == 12
    assert table["repeat"]["share"]["value"] == 0.0  # greedy, in float32
    assert result(audited)["passes"] is False
    assert sum(each["share"]["n"] for each in table["planting"]["kinds"].values()) == 12
    assert table["planting"]["controls"]["control"]["share"]["n"] == 4


def test_trials_show_their_case_as_the_clean_run_did(audited: Path) -> None:
    clean = [Verdict.from_dict(record) for record in read(audited / "clean" / "verdicts.jsonl")]
    after = [Verdict.from_dict(record) for record in read(audited / "changed" / "verdicts.jsonl")]
    cases = {case.id: case for case in read_cases(CASES)}
    changed = {case.id: case for case in read_cases(audited / "changed.jsonl")}
    # As they were judged: reading takes planted tokens of chat templates out.
    texts = {
        case["id"]: [each["text"] for each in case["responses"]]
        for case in read(audited / "changed.jsonl")
    }
    orders = {(each.case_id, each.order) for each in clean}
    assert len(after) == len(changed) > 20
    for each in after:
        case = changed[each.case_id]
        note = case.extra["audit"]
        assert (note["of"], each.order) in orders
        differ = [
            shown != clean.text for shown, clean in zip(texts[case.id], cases[note["of"]].responses)
        ]
        asked = note["perturbation"] == "patient"
        assert sum(differ) == (note["perturbation"] != "repeat" and not asked)
        assert (case.question != cases[note["of"]].question) == asked
    # An identical answer is shown in two places.
    doubled = [case for case in changed.values() if case.extra["audit"]["kind"] == "identical"]
    assert all(len({response.text for response in case.responses}) == 2 for case in doubled)


def test_without_a_valid_verdict_there_are_no_changed_cases(
    tiny_model: Path, tmp_path: Path
) -> None:
    done = audit("--judge", tiny_model, "--output", tmp_path, "--score_decoding", "free", *TINY)
    assert done.returncode == 3, done.stderr
    table = rows(tmp_path)
    assert table["reading"]["share"]["value"] == 0  # the tiny model writes no score line
    assert {row["outcome"] for row in table.values()} == {"failed", "not measured"}
    assert read(tmp_path / "changed.jsonl") == []
    unread, invalid, *_ = result(tmp_path)["notes"]
    assert unread.startswith("reference: not read by this judge")
    assert invalid.startswith("4 of 4 cases have no answer with a valid verdict")


def test_the_page_is_one_file_without_requests_and_shows_every_figure(audited: Path) -> None:
    page = (audited / "audit.html").read_text(encoding="utf-8")
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


def test_perturbations_of_ones_own_take_the_place_of_the_packaged_ones(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    options = [
        *flags(judge="baseline:longer text", cases=CASES, perturbations=file),
        *FAST,
        "--output",
        tmp_path / "o",
    ]
    for limit, status in (("most: 1.0", 0), ("most: 0.0", 3), ("why: none", 3)):
        file.write_text(
            f"- {{name: twice, changes: good answer, should: not rise, {limit}, what: twice the text helps,\n"
            "   edits: [{kind: twice, text: $text $text}]}\n"
        )
        done = audit(*options)
        assert done.returncode == status, (limit, done.stdout)
        assert list(rows(tmp_path / "o")) == ["twice"]
    assert rows(tmp_path / "o")["twice"]["shift"]["value"] > 0
    assert "neither passes nor fails" in done.stdout, "nothing has a limit"
    assert "| twice the text helps | – |" in (tmp_path / "o" / "audit.md").read_text()


def test_a_pairwise_judge_is_audited_by_shares_of_criteria(
    tiny_model: Path, tmp_path: Path
) -> None:
    perturbations = some_of(tmp_path, "order", "planting", "patient")
    options = flags(
        judge=tiny_model, rubric="medical_pairwise", cases=CASES, limit=2, edits=2, output=tmp_path
    )
    succeeded(audit(*options, "--perturbations", perturbations, "--gate", "false", *FAST))
    table = rows(tmp_path)
    assert list(table) == ["reading", "order", "planting", "patient"]
    assert result(tmp_path)["judge"]["unit"] == "share of criteria won"
    assert table["order"]["share"]["n"] == 6
    assert table["planting"]["shift"]["n"] == 4


@needs_encoder
def test_a_response_that_the_judge_cannot_read_changes_no_figure_of_the_others(
    tmp_path: Path,
) -> None:
    figures = []
    for more in ([], [{"model": "silent", "text": "👍"}]):
        cases = [case | {"responses": case["responses"] + more} for case in read(CASES)[:3]]
        files = {
            "cases": write(tmp_path / "cases.jsonl", cases),
            "output": tmp_path / f"{len(more)}",
        }
        files["perturbations"] = some_of(tmp_path, "copy", "repeat", "planting", "danger")
        judge = {"judge": "baseline:embedding to the question", "encoder": ENCODER}
        succeeded(audit(*flags(**judge, **files, edits=2, gate="false")))
        figures.append(rows(files["output"]))
    assert (
        figures[0]["repeat"]["share"]["n"]
        == figures[0]["planting"]["controls"]["control"]["share"]["n"]
        == 3
    )
    for check in ("copy", "repeat", "danger"):
        both = [leaves(each[check] | {"texts": None}) for each in figures]
        assert both[1] == pytest.approx(both[0], abs=1e-5)
    assert [each["planting"]["shift"]["n"] for each in figures] == [
        6,
        6,
    ]  # the texts say how many responses there are


def test_the_card_shows_the_table_and_whether_it_passed(
    audited: Path, tiny_model: Path, tmp_path: Path
) -> None:
    audited_result = result(audited)
    card = (ROOT / "model_card.md").read_text(encoding="utf-8")
    checkpoint = trained(tiny_model, tmp_path / "checkpoint")
    inputs = (fingerprint(checkpoint, []), "ORG/judge", "apache-2.0", "ORG/base")
    filled = fill_card(card, checkpoint, *inputs, audit=audited_result)
    shown = filled.split("### Audit\n")[1].split("\n## ")[0]
    assert "Audited on 4 cases as tiny-judge: it does not pass; " in shown
    assert shown.count("\n| ") == 1 + len(audited_result["perturbations"])
    audited_result["judge"]["checkpoint"] = "of-another"
    with pytest.raises(RecordError, match="of-another"):
        fill_card(card, checkpoint, *inputs, audit=audited_result)
    audited_result["judge"]["checkpoint"] = None
    assert "does not tell which weights" in fill_card(
        card, checkpoint, *inputs, audit=audited_result
    )


def test_bad_input_is_one_line(tiny_model: Path, tmp_path: Path) -> None:
    out = ["--output", tmp_path / "out", *FAST]
    options = ["--judge", tiny_model, "--cases", CASES, *out]
    assert "--judge" in error_line(audit(*options[2:]))
    assert "--edits must be" in error_line(audit(*options, "--edits", 0))
    assert "nowhere.yaml" in error_line(audit(*options, "--perturbations", "nowhere.yaml"))
    file = write(
        tmp_path / "single.jsonl", [read(CASES)[0] | {"responses": read(CASES)[0]["responses"][:1]}]
    )
    error = error_line(
        audit("--cases", file, *out, "--judge", tiny_model, "--rubric", "medical_pairwise")
    )
    assert "no case has two responses" in error
