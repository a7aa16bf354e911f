"""The arguments of a report: which files are compared, and what is measured."""

from dataclasses import dataclass, field

from automedeval.cli import TableArguments, comma_list
from automedeval.records import RecordError, check_least
from automedeval.stats.bootstrap import RESAMPLES


@dataclass
class ReportArguments(TableArguments):
    """The files to compare, and the options of the report."""

    cases: str = field(metadata={"help": "the cases, or the table of answers, that were judged"})
    output: str = field(metadata={"help": "folder for agreement.json, report.md and report.html"})
    verdicts: list[str] = field(
        default_factory=list,
        metadata={
            "help": "verdict files, or folders with a verdicts.jsonl; NAME=FILE names its judge NAME (not needed with "
            "--harm_ratings)"
        },
    )
    judges: list[str] = field(
        default_factory=list,
        metadata={
            "help": "compare only these of the judges in --verdicts: A,B,C; A stands for its trainings A-run2, A-run3, … too "
            "(default: all)"
        },
    )
    compare_to: str | None = field(
        default=None,
        metadata={
            "help": "name of the judge that every other one is tested against, in the form of the paper's Table 2 (needs "
            "--ratings)"
        },
    )
    main_judge: str | None = field(
        default=None,
        metadata={
            "help": "name of the judge whose leaderboard the report shows first (default: with 30 rated cases the one that "
            "agrees best with people, chosen by cross-fitting; else the first of --verdicts)"
        },
    )
    ratings: str | None = field(default=None, metadata={"help": "people's ratings of the responses"})
    choices: str | None = field(default=None, metadata={"help": "people's choices about pairs of responses"})
    verdict_ratings: str | None = field(default=None, metadata={"help": "people's ratings of the verdicts"})
    preferences: str | None = field(
        default=None, metadata={"help": "people's preferences between two judges' verdicts"}
    )
    harm_ratings: str | None = field(
        default=None, metadata={"help": "physicians' ratings of the harm of the responses, by a rubric in words"}
    )
    audits: list[str] = field(
        default_factory=list,
        metadata={"help": "results of automedeval audit for these judges: its folders, or their audit.json"},
    )
    criterion_labels: str | None = field(
        default=None, metadata={"help": "physicians' labels of the criteria of cases, to certify judges of criteria"}
    )
    raters: str | None = field(
        default=None,
        metadata={
            "help": "crossed: the same persons rated everything; anonymous: an annotator is only a position, the persons "
            "change (default: crossed if all annotators rated everything)",
            "choices": ["crossed", "anonymous"],
        },
    )
    rubric: str | None = field(
        default=None, metadata={"help": "your own rubric's .yaml file, if verdicts were given by one"}
    )
    limit: int | None = field(default=None, metadata={"help": "number of cases to read (default: all)"})
    baselines: bool = field(
        default=True,
        metadata={
            "help": "compare with baselines: longer text, BM25, ROUGE-L, random scores, embeddings (see --encoder)"
        },
    )
    rounds: list[str] = field(
        default_factory=list,
        metadata={"help": "names of the judges of introspection rounds 0, 1, 2, …, for a forecast (needs --ratings)"},
    )
    teacher_verdicts: str | None = field(
        default=None,
        metadata={
            "help": "a teacher's verdicts on these cases, to measure how similar the judges' rationales are to the teacher's: "
            "the name of a judge in --verdicts, or a file or folder"
        },
    )
    bert_model: str = field(
        default="roberta-large", metadata={"help": "encoder for BERTScore, a folder or Hub id; none: no BERTScore"}
    )
    bert_num_layers: int | None = field(
        default=None,
        metadata={"help": "layer for BERTScore (default: that of the package bert-score for this encoder)"},
    )
    bart_model: str = field(
        default="facebook/bart-large-cnn",
        metadata={"help": "model for BARTScore, a folder or Hub id; none: no BARTScore"},
    )
    resamples: int = field(default=RESAMPLES, metadata={"help": "resamples of the bootstrap over cases"})

    def __post_init__(self) -> None:
        for name in ("verdicts", "rounds", "judges", "audits"):
            setattr(self, name, comma_list(getattr(self, name)))
        if not self.verdicts and not self.harm_ratings:
            raise RecordError("--verdicts names no file")
        if self.rounds and not self.ratings:
            raise RecordError("--rounds needs --ratings: a round is measured by its agreement with people")
        if self.compare_to is not None and not self.ratings:
            raise RecordError("--compare_to needs --ratings: a judge is tested by its agreement with people")
        check_least(self, 1, "limit")
        check_least(self, 100, "resamples")
