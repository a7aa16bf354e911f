"""A judge's card: what the program writes into the template, and what it refuses to write."""

import json
import re
from pathlib import Path

import pytest
from doubles.publishable import (
    ABOUT,
    agreement,
    card_of,
    stage_of,
    trained,
    with_rubric,
    written_of,
)
from doubles.tiny_model import build_tiny_model
from factories import change_json, read, read_json, write, write_json
from huggingface_hub import ModelCard
from programs import ROOT, SAMPLE, failed, module_fixture, run_recipe, succeeded
from tables import each_row, holds_all, rows_of

from automedeval.meta_evaluation.report.text import answer, credit_of, main_judge
from automedeval.models.checkpoints import fingerprint
from automedeval.records import RecordError
from automedeval.records.text import cell, span
from automedeval.study.publishing.checks import MODEL, check_card
from automedeval.study.publishing.model_card import fill_card, read_result
from automedeval.study.publishing.paths import short_path

ROWS = rows_of(__file__)

CARD = (ROOT / "model_card.md").read_text(encoding="utf-8")


@module_fixture
def results(tmp_path_factory) -> Path:
    return agreement(tmp_path_factory.mktemp("reports") / "results", ("tiny", "other"))


@pytest.fixture
def checkpoint(tiny_model, tmp_path) -> Path:
    return trained(tiny_model, tmp_path / "judge")


def filled(
    checkpoint: Path, result: dict | None = None, audit: dict | None = None, **about: str | None
) -> str:
    about = {"repo": "org/judge", "license": "llama2", "base_model": "some-org/base"} | about
    return fill_card(
        CARD, checkpoint, fingerprint(checkpoint, []), result=result, audit=audit, **about
    )


def of_weights(file: Path, **checkpoints: Path) -> dict:
    """Return results of which these judges were measured on these checkpoints."""
    result = read_result(file)
    for name, folder in checkpoints.items():
        result["judges"][name]["checkpoint"] = fingerprint(folder, [])
    return result


def part(card: str, heading: str) -> str:
    """Return a section of a card."""
    (text,) = re.findall(rf"(?ms)^#+ {heading}\n\n(.*?)(?=\n#+ |\Z)", card)
    return text


def test_the_figures_of_the_card_are_those_that_were_measured(checkpoint, results):
    result = of_weights(results, tiny=checkpoint)
    card = filled(checkpoint, result)
    check_card(card, MODEL, "card")
    judges = result["judges"]
    ceiling = result["people"]["ceiling"]
    estimates = [judges["tiny"], ceiling, judges["ROUGE-L to the reference"]]
    own, others, baseline = (span(estimate["concordance"]) for estimate in estimates)
    expected = [
        *map(cell, credit_of(result, "tiny")["agreement"]),
        f"| Concordance | {own} | {others} |",
        f"ROUGE-L to the reference {baseline}",
        f"`5e771265abcd`, its weights alone: `{fingerprint(checkpoint, [])}`.",
        *ROWS["of simulated raters"],
    ]
    shown = part(card, "How good it is")
    holds_all(shown, expected)
    data = ModelCard(card).data
    assert (data.base_model, data.license) == ("some-org/base", "llama2")
    assert data.eval_results is None, "nobody rated: the Hub shows no result"


def page_of(result: dict) -> dict[str, str]:
    """Return the facts of a report's page on the judge."""
    result = result | {"main_judge": result["main_judge"] | {"name": "tiny"}}
    return answer(result, main_judge(result))


def test_the_card_has_every_fact_of_the_page_but_those_of_the_ranking(checkpoint, results):
    result = of_weights(results, tiny=checkpoint)
    result["judges"]["tiny"] |= ROWS["figures"]
    page = page_of(result)
    shown = part(filled(checkpoint, result), "How good it is")
    facts = [f"{name} {cell(page[name.removesuffix(':')])}" for name in ROWS["facts"]]
    assert [fact for fact in facts if f"- {fact}\n" not in shown] == []
    assert "A rationale breaks off in 30 of the valid verdicts. Do not trust these" in shown
    assert "12 of 90 answers are not in English" in shown


def test_the_card_believes_a_judge_no_more_than_the_page_does(checkpoint, results):
    result = of_weights(results, tiny=checkpoint)
    result["judges"]["tiny"]["rated_cases"] = 3
    shown = part(filled(checkpoint, result), "How good it is")
    fact = cell(page_of(result)["Can the judge be believed?"])
    assert fact.startswith("Not known yet: few rated cases count.")
    assert "so far 3 count of " in fact
    assert f"- Can the judge be believed? {fact}\n" in shown
    # how much worse is said of enough cases alone
    assert "the best baseline" not in shown


def test_people_are_counted_on_the_card_and_not_named(checkpoint, results):
    result = of_weights(results, tiny=checkpoint)
    harm = ROWS["harm"]
    result["harm"] = harm
    result["people"]["annotators"] = names = harm["people"]["names"]
    card = filled(checkpoint, result)
    assert "- Harm: Moderate or worse by the middle degree of 2 physicians" in card
    holds_all(card, (": larch-7b in 2 of 9 answers.", "are rated by 2 "))
    assert not [name for name in ("simulated", *names) if name in card]


def test_the_hub_shows_agreement_with_people_on_each_criterion(checkpoint, results):
    result = of_weights(results, tiny=checkpoint)
    result["people"]["annotators"] = ["a physician"]
    judges = result["judges"]
    expected = {}
    for criterion in ("safety", "fluency"):
        judges[criterion] = judges["tiny"] | {"criterion": criterion}
        expected[f"Concordance, {criterion}"] = judges["tiny"]["concordance"]["value"]
    del judges["tiny"]
    data = ModelCard(filled(checkpoint, result)).data
    shown = {measured.metric_name: measured.metric_value for measured in data.eval_results}
    assert shown.items() >= expected.items()
    assert (data.eval_results[0].dataset_name, data.model_name) == ("test_cases", "judge")
    judges["safety"]["rubric"] = "automedeval_guided@1"
    record = checkpoint / "training/record.json"
    for trained_for in ([], ["automedeval@1", "automedeval_guided@1"]):  # the first goes out
        change_json(record, rubrics=trained_for)
        card = filled(checkpoint, result)
        assert ModelCard(card).data.eval_results is None
    assert "Judged by automedeval\\_guided@1, **which is not the rubric that it" in card


@each_row("base, revision")
def test_the_hub_knows_an_adapters_base_and_a_license_of_another_name(
    tiny_model, checkpoint, base, revision
):
    adapter = {"base_model_name_or_path": str(tiny_model), "r": 8}
    write_json(checkpoint / "adapter_config.json", adapter)
    written = written_of(checkpoint, license="other:our-own", base_model=base)
    about = ModelCard(written["README.md"].decode()).data
    known = (about.license, about.license_name, about.base_model)
    assert known == ("other", "our-own", "some-org/base")
    published = json.loads(written["adapter_config.json"])
    of_hub = {"base_model_name_or_path": "some-org/base", "revision": revision}
    assert published == adapter | of_hub


def test_figures_of_other_weights_are_refused(checkpoint, results):
    config = read_json(checkpoint / "config.json")
    result = of_weights(results, tiny=checkpoint)
    # one figure in the configuration is enough
    write_json(checkpoint / "config.json", config | {"rms_norm_eps": 0.1})
    with pytest.raises(RecordError, match=r"but {'tiny': '\w+', 'other': None}: report on it"):
        filled(checkpoint, result)
    # nor may the weights of the only judge of a report be unknown
    del result["judges"]["other"], result["judges"]["tiny"]["checkpoint"]
    with pytest.raises(RecordError, match=r"but {'tiny': None}: report on it"):
        filled(checkpoint, result)


def test_what_was_not_measured_is_said(checkpoint):
    card = filled(checkpoint)
    shown = part(card, "How good it is")
    holds_all(shown, ROWS["test_what_was_not_measured_is_said"])
    assert part(card, "Audit").startswith("Not audited: ")
    check_card(card, MODEL, "card")


def test_another_file_than_results_is_refused(tmp_path):
    (tmp_path / "agreement.json").write_text("{}")
    with pytest.raises(RecordError, match=r"not what automedeval report .* 'judges' is missing"):
        read_result(tmp_path / "agreement.json", "judges")


def test_without_ratings_the_card_claims_no_agreement(checkpoint, results):
    result = of_weights(results, tiny=checkpoint)
    del result["people"]
    for judge, record in result["judges"].items():
        kept = [name for name in record if not re.search("accuracy|concordance|earman", name)]
        result["judges"][judge] = {name: record[name] for name in kept}
    shown = part(filled(checkpoint, result), "How good it is")
    assert "Nobody rated these responses here" in shown
    assert "Concordance" not in shown


def test_the_audit_is_shown_line_by_line(checkpoint):
    audit = ROWS["audit"]
    audit["judge"]["checkpoint"] = fingerprint(checkpoint, [])
    card = filled(checkpoint, audit=audit)
    shown = part(card, "Audit")
    holds_all(shown, ROWS["audited"])
    assert "- Audited? On 60 cases." in card


def test_stages_and_device_come_from_the_records(tiny_model, tmp_path):
    history = [vars(stage_of(name)) for name in ("stage1", "stage2")]
    card = filled(trained(tiny_model, tmp_path / "second", history=history))
    for name in ("stage1", "stage2"):
        assert f"| {name} | instructions/tiny, `abcdef012345` | 12 | 3,400 | 560 | 2 |\n" in card
    assert "the rows `0123456789ab` on CPU, 2 cores" in card


@each_row("name, rubric")
def test_the_lines_of_the_card_run(tiny_model, tmp_path, name, rubric, capsys):
    folder = trained(tiny_model, tmp_path / "judge", rubrics=[name])
    with_rubric(folder, rubric)
    (code,) = re.findall(r"(?s)```python\n(.*?)```", filled(folder))
    exec(compile(code.replace("org/judge", str(folder)), "card", "exec"), {})
    assert re.match(r"True \(\d, \d\) \(\d\.\d+, ", capsys.readouterr().out)


@each_row("changes, message")
def test_what_is_not_known_is_asked_for(checkpoint, changes, message):
    with pytest.raises(RecordError, match=re.escape(message)):
        filled(checkpoint, **changes)


def test_only_finished_training_has_a_card(tiny_model, checkpoint):
    with pytest.raises(RecordError, match=r"no training/record\.json"):
        filled(tiny_model)
    record = checkpoint / "training/record.json"
    change_json(record, finished=False)
    with pytest.raises(RecordError, match="its training is not finished"):
        filled(checkpoint)


@each_row("path, end")
def test_of_a_path_its_end_alone_is_told(path, end):
    assert cell(short_path(path)) == end


@pytest.mark.parametrize("kind", ["", "likelihood:"])
def test_a_report_is_published_with_the_weights_that_it_is_about(tiny_model, tmp_path, kind):
    ours = trained(tiny_model, tmp_path / "ours")
    other = trained(build_tiny_model(tmp_path / "seed1", seed=1), tmp_path / "other")
    verdicts = tmp_path / "verdicts"
    report = tmp_path / "report"
    cases = write(tmp_path / "cases.jsonl", read(SAMPLE / "test_cases.jsonl")[:3])
    for folder in (ours, other):
        asked = {"judge": f"{kind}{folder}", "judge_name": folder.name, "max_new_tokens": 4}
        succeeded(run_recipe("judge", **asked, cases=cases, output=verdicts))
    files = {"verdicts": verdicts, "cases": cases, "ratings": SAMPLE / "test_ratings.jsonl"}
    succeeded(run_recipe("report", **files, resamples=100, output=report))
    results = report / "agreement.json"
    for folder in (ours, other):
        card = card_of(folder, agreement=str(results))
        assert f"its weights alone: `{fingerprint(folder, [])}`" in card
        assert f"| measure | {folder.name} | one rater against the others |" in card
    (ours / "generation_config.json").unlink()
    options = ("--repo", "org/judge", *ABOUT, "--agreement", results)
    failed(run_recipe("publish", "model", ours, *options), "no judge was measured on this")
