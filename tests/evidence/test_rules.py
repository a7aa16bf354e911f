"""The rules on pairs that a person labelled, on texts beside themselves, and beside the patterns of audit and training."""

import json
import os
from pathlib import Path

import pytest
import yaml
from programs import ROOT, SAMPLE
from tables import rows_of

from automedeval.evidence.rules import agreement, contradiction
from automedeval.evidence.run import passages_of
from automedeval.evidence.statements import Evidence
from automedeval.records import read_cases

ROWS = rows_of(__file__)
SOURCE = ROOT / "src" / "automedeval"
PAIRS: dict[str, dict[str, list[list[str]]]] = yaml.safe_load(
    (ROOT / "tests/data/statements.yaml").read_text()
)
GROUPS = [(label, kind) for label, kinds in PAIRS.items() for kind in kinds]
SAME = (
    "number",
    "unit",
    "product",
    "interval",
    "day part",
    "approximate",
)  # each says what the other does


def rule(
    statement: str, *passages: str, near: bool = True, question: str = "", before: str = ""
) -> str | None:
    """The rule that sees a contradiction; the sentence before each passage is the one before it in the list."""
    evidence = [
        Evidence(each, "reference", last) for each, last in zip(passages, [question, *passages])
    ]
    finding = contradiction(
        statement, evidence, range(len(evidence)) if near else (), question, before
    )
    return finding and finding[0]


@pytest.mark.parametrize(("label", "kind"), GROUPS)
def test_every_pair_has_the_label_that_a_person_gave_it(label: str, kind: str) -> None:
    for evidence, statement, *question in PAIRS[label][kind]:
        found = rule(statement, evidence, question="".join(question))
        assert bool(found) == (label == "contradict"), (evidence, statement, found)


def test_no_sentence_contradicts_itself_or_one_that_says_the_same() -> None:
    pairs = [pair for kinds in PAIRS.values() for pairs in kinds.values() for pair in pairs]
    assert [text for pair in pairs for text in pair[:2] if rule(text, text)] == []
    turned = [pair for kind in SAME for pair in PAIRS["agree"][kind] if rule(*pair[:2])]
    assert turned == []


@pytest.mark.parametrize("name", ["train_cases", "test_cases", "two_bots"])
def test_no_answer_of_the_sample_contradicts_itself(name: str) -> None:
    for case in read_cases(SAMPLE / f"{name}.jsonl"):
        for text in [case.reference or "", *(response.text for response in case.responses)]:
            passages = passages_of(text, "itself")
            assert [each.text for each in passages if contradiction(each.text, passages)] == []


def test_no_statement_of_a_physician_contradicts_the_answer_that_it_was_taken_from() -> None:
    if not (data := os.environ.get("AUTOMEDEVAL_DATA")):
        pytest.skip("AUTOMEDEVAL_DATA names no folder")
    cases = [
        json.loads(line)
        for line in (Path(data) / "kqa" / "questions.jsonl").read_text("utf-8").splitlines()
    ]
    statements = [(case, each["criterion"]) for case in cases for each in case["criteria"]]
    assert len(statements) > 1000
    for case, statement in statements:
        passages = passages_of(case["reference"], "reference")
        assert not contradiction(statement, passages, (), case["question"]), statement


@pytest.mark.parametrize(
    ("statement", "passages", "question", "before", "expected"),
    ROWS["test_subject_conditions_and_what_other_passages_allow"],
)
def test_subject_conditions_and_what_other_passages_allow(
    statement: str, passages: list[str], question: str, before: str, expected: str | None
) -> None:
    assert rule(statement, *passages, question=question, before=before) == expected


@pytest.mark.parametrize(
    ("statement", "passages", "question", "agrees"), ROWS["test_what_a_passage_says_or_allows"]
)
def test_what_a_passage_says_or_allows(
    statement: str, passages: list[str], question: str, agrees: bool
) -> None:
    evidence = [Evidence(each, "reference") for each in passages]
    found = [check(statement, evidence, question=question) for check in (contradiction, agreement)]
    assert found == [None, agrees]


def test_of_a_book_only_near_passages_are_read() -> None:
    passage = Evidence("Take aspirin once a day.", "a book", on_question=False)
    assert contradiction("Take aspirin every hour.", [passage]) is None
    assert contradiction("Take aspirin every hour.", [passage], near=(0,)) == ("frequency", passage)


def test_the_patterns_of_audit_training_and_rules_are_different() -> None:
    def texts(node: object) -> set[str]:
        if isinstance(node, dict):
            node = [
                each
                for key, each in node.items()
                if key in ("pattern", "contradict", "same", "rules")
            ]
        if isinstance(node, list):
            return {text for each in node for text in texts(each)}
        return {node} if isinstance(node, str) and len(node) > 12 else set()

    def read(path: str) -> dict:
        return yaml.safe_load((SOURCE / path).read_text(encoding="utf-8"))

    rows = [row for name in ("dangers", "basics") for row in read(f"audit/templates/{name}.yaml")]
    edits = [edit for row in rows for edit in (*row.get("edits", ()), *row.get("controls", ()))]
    audit = {edit["pattern"] for edit in edits if "pattern" in edit}
    audit |= {pattern for edit in edits for pattern, _ in edit.get("rules", ())}
    training = texts(read("dataset/templates/contrast.yaml"))
    english = read("evidence/templates/quantities.yaml").values()
    rules = texts([each if isinstance(each, list) else [each] for each in english])
    assert min(map(len, (audit, training, rules))) > 10
    assert not audit & training
    assert not audit & rules
    assert not training & rules
