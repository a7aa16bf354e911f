"""Build the instruction data set: verify the teachers' verdicts, label their quality, and assign them to training stages.

Reads cases, the teachers' verdicts (recipes/distill.py), a plan and, if there are any, physicians' ratings of the verdicts.
Writes OUTPUT/{stage1,stage2,stage3,test}.parquet, a card, statistics.json, dropped.jsonl and run.json.

    python recipes/build_dataset.py --cases cases.jsonl --verdicts strong/verdicts.jsonl weak/verdicts.jsonl \\
        --verdict_ratings verdict_ratings.jsonl --plan recipes/runs/automedeval-13b/plan.yaml \\
        --training recipes/runs/automedeval-13b/sft.yaml --evaluation_cases test.jsonl --output instructions
    python recipes/build_dataset.py --config recipes/runs/automedeval-135m/build_dataset.yaml

The folder is replaced as a whole when everything is written.
"""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import automedeval
from automedeval.models.arguments import EncoderArguments
from automedeval.records import RecordError, option
from automedeval.records.arguments import TableArguments, comma_list
from automedeval.records.command_line import parse, run
from automedeval.records.journal import write_lines
from automedeval.records.run_record import record_run
from automedeval.records.tables.cases import read_cases
from automedeval.rubrics import rubrics_with
from automedeval.study.dataset.builder import InstructionSet
from automedeval.study.dataset.curriculum import read_plan
from automedeval.study.dataset.folder import RowLimit, new_dataset, write_card
from automedeval.study.dataset.quality import QualityClassifier
from automedeval.study.dataset.topics import topics


@dataclass
class BuildDatasetArguments(TableArguments):
    """The input of the data set, and the filters."""

    cases: list[str] = option("case files; NAME=FILE sets the source of its cases")
    verdicts: list[str] = option("the teachers' verdict files")
    plan: str = option("YAML file of the curriculum: teachers, stages, test cases, verification")
    output: str = option("folder of the data set; an earlier data set there is replaced")
    verdict_ratings: str | None = option("physicians' ratings of the verdicts", None)
    training: str | None = option(
        "YAML of recipes/sft.py: rows too long for its max_length are dropped (default: no length is checked)",
        None,
    )
    evaluation_cases: list[str] | None = option(
        "cases that training must not repeat, beside the test split", None
    )
    rubrics: list[str] = option("YAML files of your own rubrics", [])
    licenses: list[str] = option("NAME=LICENCE sets the licence of the cases of a source", [])

    def __post_init__(self) -> None:
        for name in ("cases", "verdicts", "evaluation_cases", "rubrics", "licenses"):
            setattr(self, name, comma_list(getattr(self, name)))
        if wrong := [named for named in self.licenses if not all(named.partition("="))]:
            raise RecordError(f"--licenses: must be NAME=LICENCE, not {wrong[0]!r}")


def main() -> None:
    """Run all steps, write the card, and move the folder to its place."""
    args, encoder_args = parse((BuildDatasetArguments, EncoderArguments), __doc__)
    file, output = Path(args.plan), Path(args.output)
    plan, rubrics = read_plan(file), rubrics_with(args.rubrics)
    licenses = dict(named.split("=", 1) for named in args.licenses)
    limit = RowLimit.read(args.training)
    # --- 1. Join verdicts and cases; leave out what physicians reject, and what no row can be made of ---------------------
    data = InstructionSet(rubrics, plan=plan)
    data.read(args.cases, args.verdicts, licenses, **args.table)
    data.verify(args.verdict_ratings)
    data.find_untrainable(limit)
    # --- 2. Label the quality of every verdict that has none, if the plan asks for it (Appendix B) ------------------------
    quality_by = "physicians' checks, if any, or else the label that came with the verdict"
    quality_report = None
    if data.unlabelled:
        classifier = QualityClassifier(encoder_args.load())
        quality_report = data.fit(classifier)
        data.classify(classifier)
        quality_by += ", or else by the classifier"
    data.report_quality()
    # --- 3. Assign cases to teachers and stages (section 3.2, Table 1) ----------------------------------------------------
    assignment = data.assign()
    # --- 4. Leave out training cases that repeat evaluation cases ---------------------------------------------------------
    files = (read_cases(path, 0, **args.table) for path in args.evaluation_cases)
    data.drop_leaks(assignment, chain.from_iterable(files))
    # --- 5. Write the splits, and the card --------------------------------------------------------------------------------
    with new_dataset(output) as place:
        facts = data.write(assignment, place, limit)
        used = sorted(case_id for case_id, _ in assignment.keys)
        facts |= {
            "title": "AutoMedEval instructions",
            "folder": output.name,
            "version": automedeval.__version__,
            "arithmetic": data.arithmetic,
            "unrated": data.unrated(assignment.keys),
            "quality_by": quality_by,
            "quality_report": quality_report,
            "topics": topics((data.cases[case_id] for case_id in used), seed=plan.seed),
            "rubrics": {
                name: rubrics[name].fingerprint
                for name in sorted({row["rubric"] for row in facts["teachers"]})
            },
            "seed": plan.seed,
            "plan": file.read_text(encoding="utf-8").rstrip(),
        }
        write_lines(place / "dropped.jsonl", data.dropped)
        write_card(place, facts)
        record_run(place / "run.json", args, encoder_args)
    print(f"instructions {facts['fingerprint']}: {output}")


if __name__ == "__main__":
    run(main)
