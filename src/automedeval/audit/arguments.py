"""The arguments of an audit: which judge, on which cases, by which perturbations."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from automedeval.audit.perturbations import CRITERIA, READ, SCORES, Perturbation, read_perturbations
from automedeval.cli import TableArguments
from automedeval.records import RecordError, check_least
from automedeval.stats.bootstrap import RESAMPLES


@dataclass
class AuditArguments(TableArguments):
    """Which judge is audited, on which cases, by which perturbations."""

    judge: str = field(metadata={"help": "the judge, named as for automedeval judge"})
    cases: str = field(
        metadata={"help": "cases, or a table of answers: .jsonl, .csv, .json, .xlsx, .parquet, or a Hub dataset id"}
    )
    output: str = field(metadata={"help": "folder for audit.json, audit.md, audit.html and the verdicts"})
    rubric: str | None = field(
        default=None,
        metadata={
            "help": "a packaged rubric, or the path of your own .yaml; default: the one that the judge was published with, "
            "else automedeval"
        },
    )
    rationale: bool = field(default=True, metadata={"help": "false asks for scores or choices alone"})
    score_decoding: str = field(
        default="auto", metadata={"help": "as in automedeval judge", "choices": ["auto", "constrained", "free"]}
    )
    criteria_at_once: int = field(default=1, metadata={"help": "checklist: the number of criteria in one prompt"})
    perturbations: str | None = field(
        default=None, metadata={"help": "your own perturbations, a .yaml file in place of the packaged ones"}
    )
    checks: list[str] | None = field(
        default=None, metadata={"help": "the names of some perturbations, for instance order,danger; default: all"}
    )
    edits: int | None = field(
        default=None,
        metadata={
            "help": "most planted texts, and most dangers, per case, drawn by --seed and dealt in turn; default: all"
        },
    )
    gate: bool = field(default=True, metadata={"help": "false: exit status 0 even if the judge does not pass"})
    judge_name: str | None = field(default=None, metadata={"help": "name that verdicts record"})
    limit: int | None = field(default=None, metadata={"help": "audit only so many cases, the first ones"})
    on_overlong: str = field(
        default="skip", metadata={"help": "as in automedeval judge", "choices": ["error", "skip", "clip"]}
    )
    resamples: int = field(default=RESAMPLES, metadata={"help": "number of bootstrap samples of the cases"})
    seed: int = field(default=0, metadata={"help": "seed of orders, of edits, and of the bootstrap"})

    def __post_init__(self) -> None:
        check_least(self, 1, "limit", "edits", "criteria_at_once")
        check_least(self, 100, "resamples")

    def chosen(self, checklist: bool) -> Sequence[Perturbation]:
        """Return the perturbations of `checks`, and whether verdicts can be read; RecordError for a name that is unknown."""
        each = read_perturbations(self.perturbations, CRITERIA if checklist else SCORES)
        if self.checks is None:
            return each
        names = [name.strip() for some in self.checks for name in some.split(",")]
        if unknown := sorted(set(names) - {one.name for one in each}):
            raise RecordError(f"--checks: no check {unknown[0]!r}; there are {', '.join(one.name for one in each)}")
        return [one for one in each if one.name in names or one.should == READ]
