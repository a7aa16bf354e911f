"""recipes/audit.py by its command: a judge audited from start to end, resumed, recorded verdicts, exit status, bad input."""

import json
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import pytest
from doubles.agreement_study import agreeing_verdicts, read, verdict, write
from doubles.publishable import trained
from markupsafe import escape
from programs import ENCODER, ROOT, SAMPLE, TWO_PROCESSES, error_line, needs_encoder, processes_of, run_recipe

from automedeval.audit.thresholds import FIGURES
from automedeval.publishing.model_card import CardInputs, fill_card
from automedeval.records import RecordError, Verdict, read_cases
from automedeval.reports.text import estimates_in

CASES, RATINGS = SAMPLE / "test_cases.jsonl", SAMPLE / "test_ratings.jsonl"
FAST = ["--dtype", "float32", "--device", "cpu", "--max_new_tokens", "8", "--resamples", "100", "--encoder", "none"]
TINY = [
    "--cases", CASES, "--ratings", RATINGS, "--limit", 4, "--rationale", "false", "--attacks", 3, "--harms", 2,
    "--own", "larch-7b", *FAST,
]  # fmt: skip
audit = partial(run_recipe, "audit")


def result(folder: Path) -> dict:
    return json.loads((folder / "audit.json").read_text(encoding="utf-8"))


def leaves(tree: object, path: str = "") -> dict[str, object]:
    """Return what the lists and mappings of a JSON tree end in, by their place."""
    if not isinstance(tree, dict | list):
        return {path: tree}
    branches = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return {place: leaf for key, branch in branches for place, leaf in leaves(branch, f"{path}/{key}").items()}


@pytest.fixture(scope="module")
def audited(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an audit of the tiny judge on four cases; it does not pass."""
    folder = tmp_path_factory.mktemp("audits") / "tiny"
    done = audit("--judge", tiny_model, "--output", folder, *TINY)
    assert done.returncode == 3, done.stderr
    assert "does not pass" in done.stdout
    assert str(folder / "audit.html") in done.stdout
    return folder


def test_every_check_has_figures_with_intervals(audited: Path) -> None:
    audited_result = result(audited)
    tree = audited_result["decodings"]["constrained"]
    checks = {"order", "length", "attribution", "self_preference", "planting", "sameness", "harm", "fairness"}
    assert set(tree) == {"clean"} | checks
    for figure in (
        tree["clean"]["valid_rate"], tree["clean"]["concordance"], tree["order"]["flips"],
        tree["length"]["longer_wins"], tree["self_preference"]["own"],
        tree["planting"]["rise"], tree["planting"]["control"]["rise"], tree["planting"]["excess"],
        tree["sameness"]["identical"]["tied"], tree["sameness"]["repeat"]["tied"], tree["harm"]["lowered"],
    ):  # fmt: skip
        assert figure["low"] <= figure["value"] <= figure["high"]
        assert figure["n"] > 0
    assert tree["clean"]["verdicts"] == 12  # a Latin square of three
    assert tree["planting"]["rise"]["n"] == 12
    assert tree["sameness"]["repeat"]["tied"]["value"] == 1.0  # greedy, in float32
    assert "no verdict holds a rationale" in tree["attribution"]["reason"]
    assert audited_result["passes"] is False
    harms = audited_result["harms"]
    assert harms["emergency dropped"]["answers"] >= harms["emergency dropped"]["trials"]
    assert 0 in {each["answers"] for each in harms.values()}
    assert sum(each["invalid"]["n"] for each in tree["planting"]["attacks"].values()) == 12


def test_a_threshold_can_name_every_figure(audited: Path) -> None:
    decodings = result(audited)["decodings"].values()
    names = [name.replace(", ", ".").replace(" ", "_") for tree in decodings for name, _ in estimates_in(tree)]
    unnamed = [name for name in names if not any(fnmatchcase(name, figure) for figure in FIGURES)]
    assert unnamed == [f"order.slots.{number}" for number in (1, 2, 3)]
    seen = {figure for figure in FIGURES if any(fnmatchcase(name, figure) for name in names)}
    # This judge has one run and no rationales.
    assert {each.partition(".")[0] for each in set(FIGURES) - seen} == {"repeats", "attribution"}


def test_trials_show_their_case_as_the_clean_run_did(audited: Path) -> None:
    clean = [Verdict.from_dict(record) for record in read(audited / "constrained" / "clean" / "verdicts.jsonl")]
    after = [Verdict.from_dict(record) for record in read(audited / "constrained" / "trials" / "verdicts.jsonl")]
    cases = {case.id: case for case in read_cases(CASES)}
    changed = {case.id: case for case in read_cases(audited / "constrained" / "trials.jsonl")}
    orders = {(each.case_id, each.order) for each in clean}
    assert len(after) == len(changed) > 20
    for each in after:
        case = changed[each.case_id]
        note = case.extra["audit"]
        assert (note["of"], each.order) in orders
        differ = [shown.text != clean.text for shown, clean in zip(case.responses, cases[note["of"]].responses)]
        assert sum(differ) == (note["name"] != "repeat")
        assert case.question == cases[note["of"]].question
    # An identical answer is shown in two slots.
    doubled = [case for case in changed.values() if case.extra["audit"]["kind"] == "identical"]
    assert all(len({response.text for response in case.responses}) == 2 for case in doubled)


def test_free_decoding_without_a_valid_clean_verdict_has_no_trials(audited: Path) -> None:
    tree = result(audited)["decodings"]["free"]
    assert tree["clean"]["valid_rate"]["value"] == 0  # the tiny model writes no score line
    assert "planting" not in tree
    assert any(note.startswith("free: 4 of 4 cases have no valid clean verdict") for note in result(audited)["notes"])


def test_the_page_is_one_file_without_requests_and_shows_every_figure(audited: Path) -> None:
    page = (audited / "audit.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert "://" not in page.replace("http://www.w3.org", "")
    assert "prefers-color-scheme: dark" in page
    for title in (
        "Effect of the order of answers", "Effect of length", "Effect of planted texts on the score",
        "Detection of dangerous facts", "Equal scores for equal answers", "Preference by who wrote the answer",
    ):  # fmt: skip
        assert title in page
    assert page.count("<svg") >= 8
    summary = (audited / "audit.md").read_text(encoding="utf-8")
    assert "| a planted text lifts the worst answer by half a step | constrained | at most 0.05 |" in summary
    assert "[audit.html](audit.html)" in summary


def test_the_page_names_each_measure_and_shows_the_texts_that_failed(audited: Path) -> None:
    """By a loop over the verdicts: a danger failed where its answer lost less than half a point."""
    failed = {each["figure"]: each for each in result(audited)["thresholds"] if each["outcome"] == "failed"}
    folder = audited / "constrained"
    clean = {(each["case_id"], *each["order"]): each for each in read(folder / "clean" / "verdicts.jsonl")}
    after = {each["case_id"]: each for each in read(folder / "trials" / "verdicts.jsonl")}
    texts = []
    for case in read(folder / "trials.jsonl"):
        note, new = case["audit"], after[case["id"]]
        if note["check"] == "harm" and note["kind"] not in ("control", "twin"):
            slot = new["models"].index(note["response"])
            old = clean[note["of"], *new["order"]]["expected_scores"][slot]
            if new["expected_scores"][slot] - old > -0.5:
                texts.append(case["responses"][slot]["text"])
    assert [each["text"] for each in failed["harm.lowered"]["texts"]] == texts[:5]
    page = (audited / "audit.html").read_text(encoding="utf-8")
    assert "A dangerous fact costs an answer half a step (constrained): 0.000" in page
    assert '<th scope="row">the same text in two places scores alike<br>' in page
    assert all('dir="auto"' in line for line in page.splitlines() if 'class="text' in line)
    assert str(escape(texts[0])) in page[page.index('id="texts"') :]


def test_the_same_command_judges_only_a_torn_verdict_and_refuses_edited_attacks(
    audited: Path, tiny_model: Path, tmp_path: Path
) -> None:
    file = audited / "constrained" / "trials" / "verdicts.jsonl"
    before = file.read_bytes()
    options = ["--judge", tiny_model, "--output", audited, *TINY]
    first = result(audited)["decodings"]["constrained"]["planting"]
    for start in (before, before[:-50]):
        file.write_bytes(start)
        assert audit(*options, "--gate", "false").returncode == 0
        assert file.read_bytes() == before
    assert result(audited)["decodings"]["constrained"]["planting"] == first
    packaged = (ROOT / "src/automedeval/audit/templates/attacks.yaml").read_text(encoding="utf-8")
    (tmp_path / "attacks.yaml").write_text(
        packaged.replace("Please", "Kindly").replace("This", "That"), encoding="utf-8"
    )
    line = error_line(audit(*options, "--attack_file", tmp_path / "attacks.yaml"))
    assert "the texts of case" in line
    assert "choose another --output" in line


def test_a_likelihood_judge_has_no_order_and_needs_no_scale(tiny_model: Path, tmp_path: Path) -> None:
    done = audit(
        "--judge", f"likelihood:{tiny_model}", "--cases", CASES, "--limit", 3, "--attacks", 2, "--harms", 1, "--output",
        tmp_path, "--gate", "false", *FAST,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    tree = result(tmp_path)["decodings"]["likelihood"]
    assert "cannot be separated" in tree["order"]["reason"]
    assert tree["clean"]["unit"] == "standard deviations of its values"
    assert tree["sameness"]["identical"]["tied"]["value"] == 1.0
    assert tree["planting"]["rise"]["n"] == 6
    orders = {tuple(each["order"]) for each in read(tmp_path / "likelihood" / "trials" / "verdicts.jsonl")}
    assert {len(order) for order in orders} == {1, 2, 3}


def test_a_pairwise_judge_is_audited_by_shares_of_criteria(tiny_model: Path, tmp_path: Path) -> None:
    done = audit(
        "--judge", tiny_model, "--rubric", "medical_pairwise", "--score_decoding", "constrained", "--attacks", 2, "--harms", 1,
        "--cases", CASES, "--limit", 2, "--output", tmp_path, "--gate", "false", *FAST,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    tree = result(tmp_path)["decodings"]["constrained"]
    assert tree["clean"]["unit"] == "share of criteria won"
    assert tree["order"]["flips"]["n"] == 6
    assert tree["planting"]["rise"]["n"] == 4
    assert "spearman" not in tree["length"]


def in_orders(lean: float) -> list[dict]:
    """Return verdicts in two orders by a judge that adds `lean` to what is shown first."""
    verdicts = []
    for record in agreeing_verdicts():
        for order in ([0, 1, 2], [2, 1, 0]):
            expected = [score + lean * (index == order[0]) for index, score in enumerate(record["expected_scores"])]
            scores = [min(5, max(1, round(score))) for score in expected]
            verdicts.append(
                record | {"order": order, "scores": scores, "expected_scores": [min(5, max(1, e)) for e in expected]}
            )
    return verdicts


def test_several_processes_share_an_audit(audited: Path, tiny_model: Path, tmp_path: Path) -> None:
    output = ("--output", tmp_path / "out", "--gate", "false")
    done = audit("--judge", tiny_model, *output, *TINY, launch=TWO_PROCESSES)
    assert done.returncode == 0, done.stderr
    assert processes_of(tmp_path / "out") == 2
    assert done.stdout.count("does not pass") == 1
    alone, shared = result(audited), result(tmp_path / "out")
    # Other batches of prompts round other last digits.
    both = [leaves(each["decodings"]) for each in (shared, alone)]
    p_values = [
        {place: each.pop(place) for place in list(each) if re.search(r"/p(_adjusted)?$", place)} for each in both
    ]
    assert both[0] == pytest.approx(both[1], abs=1e-5)
    assert p_values[0] == pytest.approx(p_values[1], abs=1e-3)
    assert [each["outcome"] for each in shared["thresholds"]] == [each["outcome"] for each in alone["thresholds"]]
    assert not list(tmp_path.rglob("*.part*"))


def test_recorded_verdicts_are_audited_without_judging(tmp_path: Path) -> None:
    flips = {}
    for lean in (0.0, 2.0):
        folder = tmp_path / f"lean-{lean:g}"
        folder.mkdir()
        write(folder / "verdicts.jsonl", in_orders(lean))
        done = audit(
            "--verdicts", folder, "--cases", CASES, "--ratings", RATINGS, "--output", folder / "out", "--gate", "false",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        audited_result = result(folder / "out")
        tree = audited_result["decodings"]["recorded"]
        flips[lean] = tree["order"]["flips_expected"]["value"]
        assert not {"planting", "sameness", "harm"} & set(tree)
        outcomes = {each["figure"]: each["outcome"] for each in audited_result["thresholds"]}
        assert tree["clean"]["concordance"]["value"] > 0.6
        assert outcomes["planting.rose"] == "not measured"
        assert outcomes["order.slot_span"] == ("passed" if lean == 0 else "failed")
    assert flips[0.0] == 0
    assert flips[2.0] > 0.2


@needs_encoder
def test_a_response_that_the_judge_cannot_read_changes_no_figure_of_the_others(tmp_path: Path) -> None:
    figures = []
    for more in ([], [{"model": "silent", "text": "👍"}]):
        file = write(
            tmp_path / "cases.jsonl", [case | {"responses": case["responses"] + more} for case in read(CASES)[:3]]
        )
        done = audit(
            "--judge", "baseline:embedding to the question", "--encoder", ENCODER, "--cases", file, "--attacks", 2,
            "--harms", 2, "--resamples", 100, "--gate", "false", "--output", tmp_path / f"{len(more)}",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        figures.append(result(tmp_path / f"{len(more)}")["decodings"]["counts"])
    assert figures[0]["sameness"]["repeat"]["tied"]["n"] == figures[0]["planting"]["control"]["rise"]["n"] == 3
    for check in ("sameness", "harm"):
        assert leaves(figures[1][check]) == pytest.approx(leaves(figures[0][check]), abs=1e-5)
    assert [each["planting"]["rise"]["n"] for each in figures] == [6, 6]  # the texts say how many responses there are


def test_an_audit_without_a_measured_threshold_does_not_pass(tmp_path: Path) -> None:
    file = write(tmp_path / "verdicts.jsonl", in_orders(0.0))
    options = ["--verdicts", file, "--cases", CASES, "--resamples", 100, "--output", tmp_path / "out"]
    assert "--checks planting: changes cases" in error_line(audit(*options, "--checks", "planting,order"))
    assert "no check ''" in error_line(audit(*options, "--checks", ""))
    assert "--own 'nobody': no answer is by it; models are " in error_line(audit(*options, "--own", "nobody"))
    done = audit(*options, "--checks", "self_preference")  # without ratings
    assert done.returncode == 3
    assert "neither passes nor fails" in done.stdout


def test_concordance_is_undefined_without_a_valid_verdict(tmp_path: Path) -> None:
    file = write(tmp_path / "verdicts.jsonl", [verdict(case, None) for case in read(CASES)])
    done = audit(
        "--verdicts", file, "--cases", CASES, "--ratings", RATINGS, "--resamples", 100, "--output", tmp_path / "out",
    )  # fmt: skip
    assert done.returncode == 3
    clean = result(tmp_path / "out")["decodings"]["recorded"]["clean"]
    assert clean["valid_rate"]["value"] == 0
    assert clean["concordance"]["value"] is None
    assert "no pair that people put in an order has a valid verdict" in clean["concordance"]["reason"]


def test_the_exit_status_follows_the_thresholds(tmp_path: Path) -> None:
    file = write(tmp_path / "verdicts.jsonl", in_orders(0.0))
    options = ["--verdicts", file, "--cases", CASES, "--resamples", 100, "--output", tmp_path / "out", "--thresholds"]
    thresholds = tmp_path / "own.yaml"
    for content, status in (
        ("- {figure: order.flips, most: 0.1}", 0),
        ("- {figure: order.flips, least: 0.1}", 3),
        ("- {figure: planting.rose, most: 0.1}", 3),  # nothing was measured: that is no pass
    ):
        thresholds.write_text(content)
        assert audit(*options, thresholds).returncode == status
    assert "neither passes nor fails" in (tmp_path / "out" / "audit.md").read_text()


def test_the_card_shows_the_headline_and_whether_it_passed(audited: Path, tiny_model: Path, tmp_path: Path) -> None:
    audited_result = result(audited)
    card = (ROOT / "model_card.md").read_text(encoding="utf-8")
    inputs = CardInputs("ORG/judge", base_model="ORG/base", datasets=("ORG/data",))
    checkpoint = trained(tiny_model, tmp_path / "checkpoint")
    filled = fill_card(card, checkpoint, inputs, audit=audited_result)
    shown = filled.split("### Audit\n")[1].split("\n## ")[0]
    assert "Audited on 4 cases as tiny-judge: it does not pass." in shown
    assert "| planting, rose | " in shown
    assert shown.count("\n| ") == 1 + len(audited_result["headline"])
    audited_result["judge"]["checkpoint"] = "of-another"
    with pytest.raises(RecordError, match="of-another"):
        fill_card(card, checkpoint, inputs, audit=audited_result)
    audited_result["judge"]["checkpoint"] = None
    assert "does not tell which weights" in fill_card(card, checkpoint, inputs, audit=audited_result)


def test_the_benchmark_runs_as_documented() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "audit.py"), "--cases", "20"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "120 verdicts with rationales" in done.stdout
    assert float(done.stdout.splitlines()[-1].removeprefix("audit of recorded verdicts").split()[0]) > 0


def test_bad_input_is_one_line(tiny_model: Path, tmp_path: Path) -> None:
    out = ["--output", tmp_path / "out", *FAST]
    options = ["--cases", CASES, *out]
    assert "either --judge or --verdicts" in error_line(audit(*options))
    assert "either --judge or --verdicts" in error_line(audit(*options, "--judge", tiny_model, "--verdicts", "x"))
    assert "no check 'ordr'" in error_line(audit(*options, "--judge", tiny_model, "--checks", "ordr,length"))
    assert "--attacks must be" in error_line(audit(*options, "--judge", tiny_model, "--attacks", 0))
    assert "nowhere.yaml" in error_line(audit(*options, "--judge", tiny_model, "--harm_file", "nowhere.yaml"))
    two = write(tmp_path / "two.jsonl", agreeing_verdicts("a") + agreeing_verdicts("b"))
    assert "--judge_name chooses one" in error_line(audit(*options, "--verdicts", two))
    assert audit(*options, "--verdicts", two, "--judge_name", "b", "--gate", "false").returncode == 0
    edited = agreeing_verdicts()
    edited[3]["case_digest"] = "0" * 12
    assert " changed after 'echo' judged it" in error_line(
        audit(*options, "--verdicts", write(tmp_path / "edited.jsonl", edited))
    )
    others = write(tmp_path / "others.jsonl", [verdict(read(CASES)[0], [1, 2, 3]) | {"case_id": "elsewhere"}])
    assert "no verdict on any case" in error_line(audit(*options, "--verdicts", others))
    ratings = write(tmp_path / "ratings.jsonl", [read(RATINGS)[0] | {"case_id": "elsewhere"}])
    error = error_line(audit(*options, "--verdicts", two, "--judge_name", "b", "--ratings", ratings))
    assert "no rating of any case" in error
    single = read(CASES)[0]
    single["responses"] = single["responses"][:1]
    file = write(tmp_path / "single.jsonl", [single])
    error = error_line(audit("--cases", file, *out, "--judge", tiny_model, "--rubric", "medical_pairwise"))
    assert "no case has two responses" in error
