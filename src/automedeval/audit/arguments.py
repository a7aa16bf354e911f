"""The arguments of an audit: which judge, on which cases, by which perturbations."""

from collections.abc import Sequence
from dataclasses import dataclass

from automedeval.audit.perturbations import CRITERIA, READ, SCORES, Perturbation, read_perturbations
from automedeval.records import RecordError, check_least, option
from automedeval.records.arguments import TableArguments
from automedeval.stats.bootstrap import RESAMPLES


@dataclass
class AuditArguments(TableArguments):
    """Which judge is audited, on which cases, by which perturbations."""

    judge: str = option("the judge, named as for automedeval judge")
    cases: str = option("cases, or a table of answers: .jsonl, .csv, .json, .xlsx, .parquet, or a Hub dataset id")
    output: str = option("folder for audit.json, audit.md, audit.html and the verdicts")
    rubric: str | None = option(
        "a packaged rubric, or the path of your own .yaml; default: the one that the judge was published with, "
        "else automedeval",
        None,
    )
    rationale: bool = option("false asks for scores or choices alone", True)
    score_decoding: str | None = option("as in automedeval judge", None, choices=["constrained", "free"])
    criteria_at_once: int = option("checklist: the number of criteria in one prompt", 1)
    perturbations: str | None = option("your own perturbations, a .yaml file in place of the packaged ones", None)
    checks: list[str] | None = option("the names of some perturbations, for instance order,danger; default: all", None)
    edits: int | None = option(
        "most planted texts, and most dangers, per case, drawn by --seed and dealt in turn; default: all", None
    )
    gate: bool = option("false: exit status 0 even if the judge does not pass", True)
    judge_name: str | None = option("name that verdicts record", None)
    limit: int | None = option("audit only so many cases, the first ones", None)
    on_overlong: str = option("as in automedeval judge", "skip", choices=["error", "skip"])
    resamples: int = option("number of bootstrap samples of the cases", RESAMPLES)
    seed: int = option("seed of orders, of edits, and of the bootstrap", 0)

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
