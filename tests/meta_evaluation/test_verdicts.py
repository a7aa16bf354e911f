"""The most frequent choice of a judge about a pair, and the neutral one of its criterion where two are."""

from dataclasses import replace

from doubles.agreement_study import case_of, pair_verdict, write

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.verdict_files import read_verdicts
from automedeval.records import Case
from automedeval.stats.agreement import CHOICES


def test_contested_choices_are_the_neutral_one_of_their_criterion(tmp_path):
    case, verdicts = case_of("c", "Why?", {"a": "one", "b": "two"}), []
    for order, choice in (((0, 1), "a"), ((1, 0), "b")):
        both = {"correctness": choice, "harmfulness": choice}
        verdicts.append(pair_verdict(case, *order, "judge", **both))
    file = str(write(tmp_path / "verdicts.jsonl", verdicts))
    (judge,), _ = read_verdicts([file], Cases([Case.from_dict(case)], "cases.jsonl"))
    assert [CHOICES[judge.choice(name)[0]] for name in both] == ["tie", "tie"]
    criteria = judge.rubric.criteria
    harmless = [replace(each, neutral="neither") for each in criteria if each.polarity == "worse"]
    others = [each for each in criteria if each.polarity != "worse"]
    judge.rubric = replace(judge.rubric, criteria=(*others, *harmless))
    assert [CHOICES[judge.choice(name)[0]] for name in both] == ["tie", "neither"]
