"""The most frequent choice of a judge about a pair, and the neutral one of its criterion where two are."""

from dataclasses import replace

from doubles.agreement_study import case_of

from automedeval import Case, Verdict, read_rubric
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.table import VerdictTable
from automedeval.stats.agreement import CHOICES

NAMES = ("correctness", "harmfulness")


def test_contested_choices_are_the_neutral_one_of_their_criterion():
    cases = Cases([Case.from_dict(case_of("c", "Why?", {"a": "one", "b": "two"}))], "cases.jsonl")
    rubric = read_rubric("medical_pairwise")
    verdicts = []
    for order, choice in (((0, 1), "a"), ((1, 0), "b")):
        choices = dict.fromkeys(NAMES, choice)
        about = ("c", "judge", rubric.name, order, ("a", "b"))
        verdicts.append(Verdict(*about, valid=True, choices=choices))
    criteria = {criterion.name: criterion for criterion in rubric.criteria}
    criteria["harmfulness"] = replace(criteria["harmfulness"], neutral="neither")
    other = replace(rubric, criteria=tuple(criteria.values()))
    for by, wanted in ((rubric, ["tie", "tie"]), (other, ["tie", "neither"])):
        judge = VerdictTable(cases, verdicts, by)
        assert [CHOICES[judge.choice(name)[0]] for name in NAMES] == wanted
