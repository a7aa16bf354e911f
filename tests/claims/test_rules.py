"""The rules, on sentences of their own, and that they share nothing with the audit's and the training's patterns."""

import pytest
import yaml
from programs import ROOT

from automedeval.claims.rules import contradiction, omitted_help
from automedeval.claims.run import passages_of
from automedeval.claims.statements import Passage

SOURCE = ROOT / "src" / "automedeval"


def rule(statement: str, *passages: str, near: bool = True, question: str = "", before: str = "") -> str | None:
    """The rule that sees a contradiction; the sentence before each passage is the one before it in the list."""
    evidence = [Passage(each, "reference", last) for each, last in zip(passages, [question, *passages])]
    finding = contradiction(statement, evidence, range(len(evidence)) if near else (), question, before)
    return finding and finding[0]


@pytest.mark.parametrize(
    ("statement", "passage", "expected"),
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
def test_a_contradiction_is_seen(statement: str, passage: str, expected: str | None) -> None:
    assert rule(statement, passage) == expected


@pytest.mark.parametrize(
    ("answer", "reference", "omitted"),
    [
        (
            "Rest.",
            "Drink. With chest pain, ring for an ambulance at once.",
            "With chest pain, ring for an ambulance at once.",
        ),
        ("Rest. If it hurts, 911.", "With chest pain, call an ambulance at once.", None),
        ("Go to the ER if it hurts.", "With chest pain, call an ambulance at once.", None),
        ("Rest and drink.", "See your doctor in a few days.", None),  # no help at once
        ("Rest and drink.", "Take the missed tablet the same day.", None),  # at once, but no help
    ],
)
def test_an_omitted_call_for_help_is_seen(answer: str, reference: str, omitted: str | None) -> None:
    passage = omitted_help(answer, passages_of(reference, "reference"))
    assert (passage and passage.text) == omitted


@pytest.mark.parametrize(
    ("statement", "passages", "question", "before", "expected"),
    [
        ("Hold her insulin until she eats.", ["Do not skip it."], "Should she skip her insulin?", "", "advice"),
        ("Pause the hydrocortisone.", ["Never stop hydrocortisone."], "", "", "advice"),
        ("Take the missed tablets together.", ["Do not take the missed tablets."], "", "", "advice"),
        (
            "You may take 12 g a day.",
            ["Drink water.", "Take at most 4 g a day of aspirin."],
            "",
            "Aspirin helps.",
            "dose",
        ),
        ("Keep the appointment on Monday.", ["This cannot wait."], "", "", "urgency"),
        # Not forbidden without a condition, forbidden of something else, or as much as another passage allows.
        ("Take ibuprofen with food.", ["Do not take ibuprofen for more than three days."], "", "", None),
        ("Stop the ibuprofen.", ["Never stop the apixaban."], "", "", None),
        ("Do not pause hydrocortisone.", ["Never stop hydrocortisone."], "", "", None),
        ("Take 1 g of aspirin.", ["Children take 100 mg of aspirin.", "Adults take 1 g of aspirin."], "", "", None),
        ("Not more than 3 g in all.", ["Take 500 mg to 1 g.", "At most 3 g a day."], "", "", None),
        ("Avoid naproxen.", ["Keep taking aspirin."], "", "", None),
        ("You may take ibuprofen with food.", ["Do not take it with alcohol."], "Can I take ibuprofen?", "", None),
        ("Ask whether it is safe to travel.", ["Do not travel."], "", "", None),
        ("You should not stop the aspirin yourself.", ["It is important to keep taking aspirin."], "", "", None),
        ("Aspirin shouldn't be skipped.", ["Aspirin is safe."], "", "", None),
        ("You should not crush aspirin.", ["Aspirin is safe."], "", "", "advice"),
    ],
)
def test_what_is_compared_is_the_same_action_and_subject(
    statement: str, passages: list[str], question: str, before: str, expected: str | None
) -> None:
    assert rule(statement, *passages, question=question, before=before, near="Drink water." not in passages) == expected


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
    assert rule(statement, passage) is None


def test_sentences_on_other_subjects_are_not_compared_by_amounts() -> None:
    assert rule("Take 800 mg ibuprofen.", "Paracetamol is dosed at 1 mg.", near=False) is None


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

    edits = [
        edit
        for name in ("dangers", "basics")
        for row in read(f"audit/templates/{name}.yaml")
        for edit in (*row.get("edits", ()), *row.get("controls", ()))
    ]
    audit = {edit["pattern"] for edit in edits if "pattern" in edit}
    audit |= {pattern for edit in edits for pattern, _ in edit.get("rules", ())}
    training = texts(read("dataset/templates/contrast.yaml"))
    rules = {
        text for name, patterns in read("claims/templates/rules.yaml").items() if name != "actions" for text in patterns
    }
    assert min(map(len, (audit, training, rules))) > 10
    assert not audit & training
    assert not audit & rules
    assert not training & rules
