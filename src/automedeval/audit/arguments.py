"""The arguments of an audit: which judge, on which cases, by which checks."""

from dataclasses import dataclass, field

from automedeval.audit import biases, criteria, trials
from automedeval.cli import TableArguments
from automedeval.records import RecordError, check_least
from automedeval.rubrics import Rubric
from automedeval.stats.bootstrap import RESAMPLES

CHECKS = (*biases.CHECKS, *trials.CHECKS, "fairness")
OF_SCORES = ("ratings", "raters", "own", "harms", "harm_file")  # options that a judge of criteria has no use for


@dataclass
class AuditArguments(TableArguments):
    """Which judge is audited, on which cases, by which checks."""

    cases: str = field(
        metadata={"help": "cases, or a table of answers: .jsonl, .csv, .json, .xlsx, .parquet, or a Hub dataset id"}
    )
    output: str = field(metadata={"help": "folder for audit.json, audit.md, audit.html and the verdicts"})
    judge: str | None = field(default=None, metadata={"help": "the judge, named as for automedeval judge"})
    verdicts: str | None = field(
        default=None, metadata={"help": "recorded verdicts (file or folder) instead of --judge"}
    )
    ratings: str | None = field(default=None, metadata={"help": "people's ratings of the responses"})
    raters: str | None = field(
        default=None, metadata={"help": "as in automedeval report", "choices": ["crossed", "anonymous"]}
    )
    rubric: str | None = field(
        default=None,
        metadata={
            "help": "a packaged rubric, or the path of your own .yaml; default: the one that the judge was published with, "
            "else automedeval"
        },
    )
    rationale: bool = field(default=True, metadata={"help": "false asks for scores or choices alone"})
    score_decoding: str = field(
        default="both",
        metadata={
            "help": "as in automedeval judge; both: texts are planted under each of them, if the judge can do both",
            "choices": ["constrained", "free", "both"],
        },
    )
    checks: list[str] | None = field(
        default=None,
        metadata={
            "help": f"some of {', '.join(CHECKS)}; for a checklist of {', '.join(criteria.CHECKS)}; default: all that are "
            "possible"
        },
    )
    criteria_at_once: int = field(
        default=4,
        metadata={"help": "checklist: the number of criteria in one prompt that is audited beside one at a time"},
    )
    attacks: int | None = field(
        default=None, metadata={"help": "number of attacks per case, drawn by --seed; default: all"}
    )
    harms: int | None = field(
        default=None, metadata={"help": "most harms per case, drawn by --seed; default: all that apply"}
    )
    attack_file: str | None = field(default=None, metadata={"help": "your own attacks.yaml"})
    harm_file: str | None = field(default=None, metadata={"help": "your own harms.yaml"})
    thresholds: str | None = field(default=None, metadata={"help": "your own thresholds.yaml"})
    gate: bool = field(default=True, metadata={"help": "false: exit status 0 even if the judge does not pass"})
    own: str | None = field(default=None, metadata={"help": "the candidate that is the same model as the judge"})
    judge_name: str | None = field(
        default=None, metadata={"help": "name that verdicts record; with --verdicts, whose are audited"}
    )
    limit: int | None = field(default=None, metadata={"help": "audit only so many cases, the first ones"})
    on_overlong: str = field(
        default="skip", metadata={"help": "as in automedeval judge", "choices": ["error", "skip", "clip"]}
    )
    resamples: int = field(default=RESAMPLES, metadata={"help": "number of bootstrap samples of the cases"})
    seed: int = field(default=0, metadata={"help": "seed of orders, of attacks and harms, and of the bootstrap"})

    def __post_init__(self) -> None:
        if bool(self.judge) == bool(self.verdicts):
            raise RecordError("give either --judge or --verdicts")
        checks = self.checks and [name.strip() for some in self.checks for name in some.split(",")]
        if unknown := sorted(set(checks or ()) - {*CHECKS, *criteria.CHECKS}):
            raise RecordError(f"--checks: no check {unknown[0]!r}; there are {', '.join(CHECKS)}")
        self.checks = checks
        check_least(self, 1, "limit", "attacks", "harms", "criteria_at_once")
        check_least(self, 100, "resamples")

    def complete(self, rubric: Rubric | None) -> list[str]:
        """Return the checks to make, and put them in where none are given; `rubric` is None with --verdicts.

        RecordError for an option or a check that the kind of the judge has no use for.
        """
        able = biases.CHECKS if rubric is None else criteria.CHECKS if rubric.mode == "checklist" else CHECKS
        if unable := [name for name in self.checks or () if name not in able]:
            why = f"the checks of {'a checklist' if able is criteria.CHECKS else 'this audit'} are {', '.join(able)}"
            if rubric is None and unable[0] in CHECKS:
                why = "changes cases and judges them again, which --verdicts cannot"
            raise RecordError(f"--checks {unable[0]}: {why}")
        useless = [name for name in OF_SCORES if getattr(self, name) is not None]
        if rubric is not None and rubric.mode == "checklist" and useless:
            raise RecordError(f"--{useless[0]} is for scores, and {rubric.name} has criteria")
        self.checks = list(self.checks or able)
        return self.checks
