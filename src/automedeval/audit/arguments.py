"""The arguments of an audit: which judge, on which cases, by which perturbations."""

from dataclasses import dataclass

from automedeval.records import check_least, option
from automedeval.records.arguments import TableArguments


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
    perturbations: str | None = option("your own perturbations, a .yaml file in place of the packaged ones", None)
    edits: int | None = option(
        "most planted texts, and most dangers, per case, drawn by --seed and dealt in turn; default: all", None
    )
    gate: bool = option("false: exit status 0 even if the judge does not pass", True)
    judge_name: str | None = option("name that verdicts record", None)
    limit: int | None = option("audit only so many cases, the first ones", None)
    on_overlong: str = option("as in automedeval judge", "skip", choices=["error", "skip"])
    seed: int = option("seed of orders, of edits, and of the bootstrap", 0)

    def __post_init__(self) -> None:
        check_least(self, 1, "limit", "edits")
