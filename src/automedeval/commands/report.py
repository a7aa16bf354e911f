"""Compare candidates by judges' verdicts, and compare the verdicts with people's ratings.

    automedeval report --verdicts verdicts --cases cases.jsonl --ratings ratings.jsonl --output report
    automedeval report --verdicts small=v1.jsonl large=v2.jsonl --cases cases.jsonl --output report
    automedeval report --verdicts r0=v0.jsonl r1=v1.jsonl r2=v2.jsonl --rounds r0,r1,r2 \\
      --cases cases.jsonl --ratings ratings.jsonl --output report
    automedeval report --verdicts verdicts --cases cases.jsonl --criterion_labels labels.jsonl --output report
    automedeval report --verdicts verdicts --cases cases.jsonl --ratings ratings.jsonl --compare_to mine \\
      --teacher_verdicts gpt-4 --output report

Writes OUTPUT/agreement.json, OUTPUT/report.md and OUTPUT/report.html, a page that loads nothing from the network. Without
--ratings the candidates are compared by the judges alone. --rounds adds a forecast for further rounds of introspection, and
--compare_to tests every other judge against one, in the form of the paper's Table 2. Judges of criteria get criteria.json,
criteria.md and criteria.html instead, with a certificate beside physicians where there are --criterion_labels.
"""

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from automedeval.cli import TableArguments, comma_list, describe_result, parse
from automedeval.meta_evaluation.agreement.baselines import measure_baselines
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.evaluate import meta_evaluate
from automedeval.meta_evaluation.agreement.judge_facts import audits_of, next_steps
from automedeval.meta_evaluation.agreement.main_judge import choose
from automedeval.meta_evaluation.agreement.paper_table import paper_table
from automedeval.meta_evaluation.agreement.ratings import (
    Preferences,
    gather_preferences,
    read_choices,
    read_ratings,
    read_verdict_ratings,
)
from automedeval.meta_evaluation.agreement.rationale_similarity import compare_rationales, read_teacher
from automedeval.meta_evaluation.agreement.runs import (
    check_names,
    follow_rounds,
    lines_over_runs,
    repeated,
    trainings_of,
)
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts, read_verdicts, rows_of
from automedeval.meta_evaluation.criteria import report as criteria_report
from automedeval.meta_evaluation.criteria.report import MEANS
from automedeval.meta_evaluation.report import page as report
from automedeval.meta_evaluation.report.text import summary
from automedeval.metrics.embedding import NAMES
from automedeval.models.arguments import EncoderArguments
from automedeval.records import Preference, RecordError, check_least, digest, read_placed
from automedeval.records.journal import write_json, write_whole
from automedeval.records.language import english_only
from automedeval.reports.facts import LEAST_RATED
from automedeval.reports.text import printable
from automedeval.stats.bootstrap import RESAMPLES, estimate, plain


@dataclass
class MetaEvaluateArguments(TableArguments):
    """The files to compare, and the options of the report."""

    verdicts: list[str] = field(
        metadata={"help": "verdict files, or folders with a verdicts.jsonl; NAME=FILE names its judge NAME"}
    )
    cases: str = field(metadata={"help": "the cases, or the table of answers, that were judged"})
    output: str = field(metadata={"help": "folder for agreement.json, report.md and report.html"})
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
    audits: list[str] = field(
        default_factory=list,
        metadata={"help": "what automedeval audit found of these judges: its folders, or their audit.json"},
    )
    criterion_labels: str | None = field(
        default=None, metadata={"help": "physicians' labels of the criteria of cases, to certify judges of criteria"}
    )
    mean: str = field(
        default=MEANS[0],
        metadata={
            "help": "judges of criteria: the mean of scores in the sentences: clipped to [0, 1] (HealthBench), of scores each "
            "clipped, not clipped, or less a penalty for length and then clipped (HealthBench Professional)",
            "choices": list(MEANS),
        },
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
    series: bool = field(
        default=False, metadata={"help": "draw curves over the files, for example rounds or checkpoints"}
    )
    rounds: list[str] = field(
        default_factory=list,
        metadata={"help": "names of the judges of introspection rounds 0, 1, 2, …, for a forecast (needs --ratings)"},
    )
    paper_table: bool = field(
        default=False, metadata={"help": "also show the paper's own Table 2 and rounds, labelled as the paper's"}
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
    html_cases: int = field(default=300, metadata={"help": "largest number of cases with their texts on the page"})
    resamples: int = field(default=RESAMPLES, metadata={"help": "resamples of the bootstrap over cases"})

    def __post_init__(self) -> None:
        for name in ("verdicts", "rounds", "judges", "audits"):
            setattr(self, name, comma_list(getattr(self, name)))
        if not self.verdicts:
            raise RecordError("--verdicts names no file")
        if self.rounds and not self.ratings:
            raise RecordError("--rounds needs --ratings: a round is measured by its agreement with people")
        if self.compare_to is not None and not self.ratings:
            raise RecordError("--compare_to needs --ratings: a judge is tested by its agreement with people")
        check_least(self, 1, "limit")
        check_least(self, 0, "html_cases")
        check_least(self, 100, "resamples")


def main() -> None:
    """Read the files, compute the figures, and write three files."""
    args, encoder_args = parse(
        (MetaEvaluateArguments, EncoderArguments), __doc__, first=("verdicts", "cases", "ratings")
    )
    cases = Cases.read(args.cases, args.limit, args.blank)
    if args.criterion_labels or criteria_report.has_checklists(args.verdicts):
        return report_criteria(args, encoder_args, cases)
    judges, notes = read_verdicts(args.verdicts, cases, args.rubric, frozenset({*NAMES, "people"}))
    teacher = None
    if args.teacher_verdicts:
        teacher, more = read_teacher(args.teacher_verdicts, cases, judges)
        notes += more
    judges = chosen(judges, args.judges)
    notes += [note for judge in judges for note in judge.notes()]
    rows = rows_of(judges)
    lines = list(trainings_of({row.name: (row.judge.name, row.criterion) for row in rows}))
    if args.baselines and args.ratings:
        notes += english_only(cases.records, "baselines that count words or compare embeddings")
    check_names("--rounds", args.rounds, lines)
    check_names("--compare_to", [args.compare_to] if args.compare_to is not None else [], lines)
    people = choices = verdict_ratings = None
    if args.ratings:
        people = read_ratings(args.ratings, cases, args.raters)
        notes = people.notes + notes
    if args.choices:
        choices, more = read_choices(args.choices, cases)
        notes += more
    if args.verdict_ratings:
        judged = (verdict for judge in judges for verdict in judge.verdicts)
        verdict_ratings, more = read_verdict_ratings(args.verdict_ratings, cases, judged)
        notes += more
    preferences: Preferences = {}
    if args.preferences:
        preferences, more = gather_preferences(read_placed(args.preferences, Preference), cases, args.preferences)
        notes += more
    encoder, baselines = None, []
    if args.baselines and people is not None:
        encoder = encoder_args.load_if_there(notes)
        baselines = measure_baselines(cases, encoder, notes)
    by_people = (people, choices, verdict_ratings, preferences)
    main_judge = choose(cases, rows, people, args.main_judge)
    result = meta_evaluate(cases, [*judges, *baselines], *by_people, args.resamples, main=main_judge)
    rationales = None
    if teacher is not None:
        found = similarity(args, cases, judges, teacher)
        result["similarity"] = estimate(found, len(cases), args.resamples)
        rationales = (found["judges"], result["similarity"]["judges"])
    if people is not None:
        result["over_runs"] = lines_over_runs(result["judges"])
        options = (args.compare_to, rationales, args.resamples)
        result["table2"] = paper_table(cases, rows, people, result["over_runs"], *options)
    if args.rounds:
        result["rounds"] = follow_rounds(result["over_runs"], args.rounds)
    for name, audit in audits_of(args.audits, rows).items():
        result["judges"][name]["audit"] = audit
    result = plain(result) | {
        "next_steps": next_steps(
            main_judge.row.judge, people is not None, "audit" in result["judges"][main_judge.row.name]
        ),
        "notes": notes,
        "settings": describe_result(
            "report", resamples=args.resamples, encoder=encoder and f"{encoder.name} ({encoder.fingerprint})"
        ),
    }
    folder = Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    shown = report.pick_cases(result, cases, args.html_cases)
    records = report.case_records(result, cases, judges, people, shown, main_judge.row)
    title = "Report: " + Path(args.cases).stem
    rate = [] if args.ratings or args.choices else rating_commands(args, cases, folder)
    texts = report.render(result, title, records, args.series, args.paper_table, rate)
    for name, text in texts.items():
        write_whole(folder / name, text)
    write_json(folder / "agreement.json", result)
    lines = ["", *summary(result), *(f"  {command}" for command in rate), "", *(f"note: {note}" for note in notes)]
    print("\n".join(map(printable, lines)))
    print(f"report: {folder / 'report.html'}")
    print("Not for clinical use.")


def rating_commands(args: MetaEvaluateArguments, cases: Cases, folder: Path) -> list[str]:
    """Write a study of `LEAST_RATED` of the cases for the physicians' page, and return the commands that rate them.

    The name of a study has a digest of its cases. So a study that is there already is of these cases, and is kept: it may have
    been edited, and people may have begun to rate.
    """
    shown = [[case.id, case.digest] for case in cases.records]
    study = folder / f"rate-{digest([args.cases, args.limit, shown])}.yaml"
    if not study.exists():
        given = {
            "title": Path(args.cases).stem,
            "cases": args.cases,
            **{name: value for name in ("blank", "limit") if (value := getattr(args, name))},
            "rate": {"raters": 1, "draw": min(LEAST_RATED, len(cases)), "roles": ["attending"]},
            "annotators": [{"name": "physician-1", "role": "attending"}],
            "database": str(study.with_suffix(".sqlite")),
        }
        comment = (
            "# Rate a random draw of the cases: automedeval annotate --study THIS FILE\n"
            "# More annotators with an `overlap` also show how far people agree with each other.\n"
        )
        write_whole(study, comment + yaml.safe_dump(given, sort_keys=False, allow_unicode=True))
    annotate = shlex.join(["automedeval", "annotate", "--study", str(study)])
    ratings = study.with_suffix("")
    again = [*sys.argv[1:], "--ratings", str(ratings / "ratings.jsonl")]
    return [annotate, f"{annotate} --export {shlex.quote(str(ratings))}", shlex.join(["automedeval", "report", *again])]


def report_criteria(args: MetaEvaluateArguments, encoder_args: EncoderArguments, cases: Cases) -> None:
    """Write criteria.json, criteria.html and criteria.md of judges of criteria, certified where there are labels."""
    notes: list[str] = []
    encoder = encoder_args.load_if_there(notes) if args.criterion_labels and args.baselines else None
    options = (cases, args.verdicts, args.criterion_labels, encoder, args.resamples, 0, args.audits)
    result = criteria_report.criteria_result(*options) | {"notes": notes, "mean": args.mean}
    result["settings"] = describe_result("report", resamples=args.resamples)
    folder = Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    texts = criteria_report.render_criteria(result, cases, args.verdicts, result["settings"], args.html_cases)
    for name, text in texts.items():
        write_whole(folder / name, text)
    write_json(folder / "criteria.json", result)
    print("\n".join(map(printable, ["", *criteria_report.sentences(result), *(f"note: {note}" for note in notes)])))
    print(f"report: {folder / 'criteria.html'}")


def chosen(judges: list[JudgeVerdicts], wanted: list[str]) -> list[JudgeVerdicts]:
    """Return the judges of these names and their further trainings, all of them if there are no names."""
    names = [judge.name for judge in judges]
    check_names("--judges", wanted, names)
    several = repeated(names)
    keep = {run for name in wanted or names for run in several.get(name, [name])}
    return [judge for judge in judges if judge.name in keep]


def similarity(
    args: MetaEvaluateArguments, cases: Cases, judges: list[JudgeVerdicts], teacher: JudgeVerdicts
) -> dict[str, Any]:
    """Compare the judges' rationales with the teacher's."""
    try:  # loads torch, and the library that only metrics need
        from automedeval.metrics.rationale_score.rationale_score import rationale_score
    except ImportError as error:
        raise RecordError(f"--teacher_verdicts: {error}; install automedeval[metric]") from None
    models = {"bert_model": args.bert_model, "bart_model": args.bart_model}
    options: dict[str, Any] = {name: None if value == "none" else value for name, value in models.items()}
    options["bert_num_layers"] = args.bert_num_layers
    return compare_rationales(cases, judges, teacher, rationale_score, **options)
