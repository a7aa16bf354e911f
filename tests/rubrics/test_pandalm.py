"""Choices of real annotators, written in the form of PandaLM's answers, are read as they were meant."""

import json
from pathlib import Path

from automedeval.rubrics import read_rubric
from automedeval.rubrics.grammar import parse_verdict

WORDS = {1: "1", 2: "2", 0: "Tie"}


def test_choices_of_real_annotators_are_read_from_the_form_of_pandalm(human_data: Path) -> None:
    lines = (human_data / "pandalm" / "pandalm_pairs.jsonl").read_text(encoding="utf-8").splitlines()
    pairs, rubric = [json.loads(line) for line in lines], read_rubric("pandalm")
    assert len(pairs) == 999
    read = []
    for pair in pairs:
        # The reference is a response of the pair: lists, single digits and headings among them must not be read.
        rest = f"\n\n### Reason: Response 2 is worse.\n\n### Reference: {pair['responses'][1]['text']}\n"
        answers = [parse_verdict(WORDS[choice] + rest, rubric, truncated=True) for choice in pair["annotators"]]
        assert all(answer.valid for answer in answers)
        read.append([answer.choices["overall"] for answer in answers])
    assert read == [[{1: "a", 2: "b", 0: "tie"}[choice] for choice in pair["annotators"]] for pair in pairs]
