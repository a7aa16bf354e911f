"""The arguments of a report: which files are compared, and what is measured."""

import math
from dataclasses import dataclass

from automedeval.records import RecordError, check_least, option
from automedeval.records.arguments import BaselineArguments, comma_list
from automedeval.stats.bootstrap import RESAMPLES

# what would change nothing with --fail_if_worse
NOT_OF_A_GATE = "ratings baseline main_judge worse rounds contrasts teacher_verdicts"


@dataclass
class ReportArguments(BaselineArguments):
    """The files to compare, and the options of the report."""

    cases: list[str] = option(
        "the cases, or the table of answers, that were judged; of two versions judged apart NAME=FILE of each"
    )
    output: str | None = option(
        "folder for agreement.json, report.md and report.html, of --fail_if_worse for gate.json",
        None,
    )
    verdicts: list[str] = option(
        "verdict files, or folders with a verdicts.jsonl; NAME=FILE names its judge NAME (not needed for ratings of "
        "harm)",
        [],
    )
    main_judge: str | None = option(
        "judge, or JUDGE by RUBRIC, whose leaderboard the report shows first, and that every other one is tested against in "
        "the form of the paper's Table 2 (default: the first of --verdicts)",
        None,
    )
    ratings: list[str] = option(
        "people's ratings of the responses, of their harm and of the verdicts, labels of criteria, choices about pairs and "
        "preferences between judges: a file of each kind",
        [],
    )
    worse: list[str] = option(
        "criteria of --ratings on which a higher number is worse: A,B; all others count as better (none: all do)",
        [],
    )
    audits: list[str] = option(
        "results of automedeval audit for these judges: its folders, or their audit.json", []
    )
    raters: str | None = option(
        "crossed: the same persons rated everything; anonymous: an annotator is only a position, the persons "
        "change (default: crossed if all annotators rated everything, else partly crossed: one-way correlations, and answers "
        "are compared by those who rated both)",
        None,
        choices=["crossed", "anonymous"],
    )
    rubric: str | None = option("your own rubric's .yaml file, if verdicts were given by one", None)
    rounds: list[str] = option(
        "names of the judges of introspection rounds 0, 1, 2, …, for a forecast (needs --ratings)",
        [],
    )
    contrasts: list[str] = option(
        "pairs of judges, FIRST=SECOND, whose concordances are compared; p-values are adjusted for their number (Holm)",
        [],
    )
    teacher_verdicts: str | None = option(
        "name of the judge in --verdicts that taught the others, to measure how similar their rationales are to its own",
        None,
    )
    bert_model: str = option(
        "encoder for BERTScore, a folder or Hub id; none: no BERTScore", "roberta-large"
    )
    bart_model: str = option(
        "model for BARTScore, a folder or Hub id; none: no BARTScore", "facebook/bart-large-cnn"
    )
    fail_if_worse: list[str] = option(
        "a gate for builds in place of the report: two models, NEW OLD; exit status 0: NEW is not lower by --by points "
        "or more, 3: lower, 4: too few cases to tell",
        [],
        nargs=2,
    )
    by: float | None = option(
        "with --fail_if_worse: points of the mean expected score by which NEW may be lower", None
    )
    resamples: int = option("resamples of the bootstrap over cases", RESAMPLES)

    def __post_init__(self) -> None:
        for name in ("cases", "verdicts", "ratings", "rounds", "contrasts", "audits", "worse"):
            setattr(self, name, comma_list(getattr(self, name)))
        if not self.verdicts and not self.ratings:
            raise RecordError("--verdicts names no file")
        if wrong := [names for names in self.contrasts if names.count("=") != 1]:
            raise RecordError(f"--contrasts: must be FIRST=SECOND, not {wrong[0]!r}")
        check_least(self, 100, "resamples")
        if len(self.cases) > 1 and not len(self.cases) == len(self.verdicts) == 2:
            raise RecordError(
                "--cases of two versions are two files, and --verdicts names those of each, in the same order"
            )
        if bool(self.fail_if_worse) != (self.by is not None):
            raise RecordError("--fail_if_worse and --by need each other")
        if self.fail_if_worse:
            self._check_gate()
        elif self.output is None:
            raise RecordError("--output is needed; only --fail_if_worse does without")

    def _check_gate(self) -> None:
        if len(set(self.fail_if_worse)) != 2:
            raise RecordError("--fail_if_worse names two models: NEW OLD")
        if self.by is None or not 0 < self.by < math.inf:
            raise RecordError(f"--by must be above 0, not {self.by}")
        for name in NOT_OF_A_GATE.split():
            if getattr(self, name):
                raise RecordError(
                    f"--fail_if_worse compares two by one judge's verdicts alone: no --{name}"
                )
