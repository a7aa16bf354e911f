"""The rules, on sentences of their own, and that they share nothing with the audit's and the training's patterns."""

import pytest
import yaml
from programs import ROOT

from automedeval.claims.rules import contradiction

SOURCE = ROOT / "src" / "automedeval"


@pytest.mark.parametrize(
    ("statement", "passage", "rule"),
    [
        ("Give 800 mg at a time.", "A single dose is 200 to 400 mg.", "dose"),
        ("You can take up to 10 g a day.", "Adults take no more than 4 g in 24 hours.", "dose"),
        ("Give 500 mg.", "The dose is 10 to 15 mg per kg; she weighs 12 kg.", "dose"),
        ("Take the tablet every day.", "The tablet is taken once a week.", "frequency"),
        ("Use the drops every hour.", "Use the drops four times a day.", "frequency"),
        ("You can safely take aspirin with warfarin.", "Aspirin must not be combined with warfarin.", "advice"),
        ("Keep taking lithium.", "Discontinue lithium immediately.", None),  # "discontinue" alone names no patient
        ("Wait until tomorrow before you call.", "Call an ambulance at once.", "urgency"),
    ],
)
def test_a_contradiction_is_seen(statement: str, passage: str, rule: str | None) -> None:
    assert contradiction(statement, passage) == rule


@pytest.mark.parametrize(
    ("statement", "passage"),
    [
        ("Give 300 mg at a time.", "A single dose is 200 to 400 mg."),
        ("Give 150 mg.", "The dose is 10 to 15 mg per kg; she weighs 12 kg."),
        ("Take 1,000 mg.", "Take 1 g."),
        ("Take 2 tablets.", "Inhale 20 puffs."),
        ("Take 4 g a day in all.", "A single dose is 1 g."),  # a day's amount is no single dose
        ("Take it on one day of the week.", "It is taken weekly."),
        ("Take it once daily.", "Take it every 24 hours."),
        ("Walk on most days.", "Walk 150 minutes weekly."),
        ("Do not wait until tomorrow.", "Call an ambulance at once."),
        ("Make an appointment in the next weeks.", "Call an ambulance at once if you cannot breathe."),
        ("Never combine aspirin and warfarin.", "Aspirin must not be combined with warfarin."),
        ("Take it with food.", "Drink enough water."),
    ],
)
def test_what_agrees_or_cannot_be_compared_is_left_alone(statement: str, passage: str) -> None:
    assert contradiction(statement, passage) is None


def test_sentences_on_other_subjects_are_not_compared_by_amounts() -> None:
    assert contradiction("Take 800 mg ibuprofen.", "Paracetamol is dosed at 1 mg.", near=False) is None


def test_the_patterns_of_audit_training_and_rules_are_different() -> None:
    def texts(node: object) -> set[str]:
        if isinstance(node, dict):
            return {
                text
                for key, each in node.items()
                if key in ("pattern", "contradict", "same", "rules")
                for text in texts(each)
            }
        if isinstance(node, list):
            return {text for each in node for text in texts(each)}
        return {node} if isinstance(node, str) and len(node) > 12 else set()

    def read(path: str) -> object:
        return yaml.safe_load((SOURCE / path).read_text(encoding="utf-8"))

    audit = {each["pattern"] for each in read("audit/templates/harms.yaml")}
    audit |= {pattern for pattern, _ in read("audit/templates/paraphrases.yaml")["rules"]}
    training = texts(read("dataset/templates/contrast.yaml"))
    rules = {text for patterns in read("claims/templates/rules.yaml").values() for text in patterns}
    assert min(map(len, (audit, training, rules))) > 10
    assert not audit & training
    assert not audit & rules
    assert not training & rules
