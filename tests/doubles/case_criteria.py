"""A rubric as a prompt of a case has it: a checklist with two criteria of the case, any other as its file has it."""

from pathlib import Path

from automedeval.records import CaseCriterion
from automedeval.rubrics import Rubric
from automedeval.rubrics import read_rubric as read

CRITERIA = (CaseCriterion("Names the dose.", 5), CaseCriterion("Says that it is harmless.", -2.5))


def read_rubric(name: str | Path) -> Rubric:
    """Return `automedeval.read_rubric(name)`, a checklist with two criteria."""
    rubric = read(name)
    return rubric.about(CRITERIA) if rubric.mode == "checklist" else rubric
