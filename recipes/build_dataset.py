"""Build the instruction data set: verify the teachers' verdicts, label their quality, and assign them to training stages.

Reads cases, the teachers' verdicts (recipes/distill.py), a plan and, if there are any, physicians' ratings of the verdicts.
Writes OUTPUT/{stage1,stage2,stage3,test}.parquet, a card with topics.svg, statistics.json, dropped.jsonl and run.json.

    python recipes/build_dataset.py --cases cases.jsonl --verdicts strong/verdicts.jsonl weak/verdicts.jsonl \\
        --verdict_ratings verdict_ratings.jsonl --corrupt true --plan recipes/runs/automedeval-13b/plan.yaml \\
        --tokenizer MODEL --evaluation_cases test.jsonl --output instructions
    python recipes/build_dataset.py --config recipes/runs/automedeval-135m/build_dataset.yaml

The folder is replaced as a whole when everything is written.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import automedeval
from automedeval.dataset.builder import InstructionSet
from automedeval.dataset.card import card_facts, write_card
from automedeval.dataset.curriculum import read_plan
from automedeval.dataset.folder import new_dataset
from automedeval.dataset.quality import QualityClassifier
from automedeval.dataset.teacher_verdicts import JudgedCases
from automedeval.dataset.topics import TOPICS
from automedeval.meta_evaluation.charts import svg_file, topic_shares
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError, check_least, option, read_cases
from automedeval.records.arguments import TableArguments, comma_list
from automedeval.records.command_line import parse, run
from automedeval.records.journal import Journal, write_whole
from automedeval.records.run_record import record_run
from automedeval.rubrics import rubrics_with


@dataclass
class BuildDatasetArguments(TableArguments):
    """The input of the data set, and the filters."""

    cases: list[str] = option("case files; NAME=FILE sets the source of its cases")
    verdicts: list[str] = option("the teachers' verdict files")
    plan: str = option("YAML file of the curriculum: teachers, stages, test cases, verification")
    output: str = option("folder of the data set; an earlier data set there is replaced")
    verdict_ratings: str | None = option("physicians' ratings of the verdicts", None)
    labels: str | None = option("people's labels: JSON Lines with case_id, judge, verdict_digest and quality", None)
    corrupt: bool = option("fit the quality classifier on corrupted verdicts", False)
    encoder: str = option("checkpoint that embeds texts for the quality classifier", "models/all-MiniLM-L6-v2")
    encoder_pooling: str | None = option("pooling without modules.json", None, choices=["cls", "mean", "pooler"])
    tokenizer: str | None = option("checkpoint to train; its tokens are counted (default: no length is checked)", None)
    chat_template_path: str | None = option("Jinja file with a chat template (default: the checkpoint's own)", None)
    max_length: int = option("training rows with more tokens are dropped", 2048)
    evaluation_cases: list[str] | None = option("cases that training must not repeat, beside the test split", None)
    on_leak: str = option("stop at training cases that leak, or drop them", "error", choices=["error", "drop"])
    reference_as_response: bool | None = option("require, or refuse, that the reference was one more response", None)
    rubrics: list[str] = option("YAML files of your own rubrics", [])
    licenses: list[str] = option("NAME=LICENCE sets the licence of the cases of a source", [])
    topics: int = option("number of topics on the card; 0: none", TOPICS)
    title: str = option("title of the card", "AutoMedEval instructions")

    def __post_init__(self) -> None:
        for name in ("cases", "verdicts", "evaluation_cases", "rubrics", "licenses"):
            setattr(self, name, comma_list(getattr(self, name)))
        check_least(self, 1, "max_length")
        check_least(self, 0, "topics")
        if wrong := [each for each in self.licenses if not all(each.partition("="))]:
            raise RecordError(f"--licenses: must be NAME=LICENCE, not {wrong[0]!r}")
        if self.labels and self.corrupt:
            raise RecordError("--labels and --corrupt true cannot be combined")


def main() -> None:
    """Run all steps, write the card, and move the folder to its place."""
    (args,) = parse((BuildDatasetArguments,), __doc__)
    plan, rubrics = read_plan(args.plan), rubrics_with(args.rubrics)
    licenses = dict(each.split("=", 1) for each in args.licenses)
    encoder = PromptEncoder.from_checkpoint(args.tokenizer, args.chat_template_path) if args.tokenizer else None
    with new_dataset(args.output) as place:
        scratch = place / "texts.db"
        with Journal(place / "dropped.jsonl") as dropped, JudgedCases(scratch, dropped) as judged:
            # --- 1. Join verdicts and cases; leave out what physicians reject, and what no row can be made of -------------
            data = InstructionSet(judged, plan, rubrics, args.reference_as_response)
            data.report(*judged.read(args.cases, args.verdicts, rubrics, licenses, args.blank))
            verification = data.verify(args.verdict_ratings)
            data.find_untrainable(encoder, args.max_length)
            # --- 2. Label the quality of every verdict (Appendix B) --------------------------------------------------------
            quality_by, quality_report = label_quality(args, data)
            # --- 3. Assign cases to teachers and stages (section 3.2, Table 1) ---------------------------------------------
            assignment = data.assign()
            # --- 4. Leave out training cases that repeat evaluation cases --------------------------------------------------
            evaluation = (case for path in args.evaluation_cases for case in read_cases(path, 0, args.blank))
            data.compare(assignment, evaluation, args.on_leak == "drop")
            # --- 5. Write the splits, and the facts of the card ------------------------------------------------------------
            splits, written = data.write(assignment, place, encoder)
            topics, topic_cases = data.topics(assignment, args.topics)
            facts = card_facts(splits, written) | {
                "title": args.title,
                "folder": Path(args.output).name,
                "version": automedeval.__version__,
                "arithmetic": data.arithmetic,
                "verification": verification and verification.to_dict(),
                "unrated": data.unrated_rows(assignment),
                "quality_by": quality_by,
                "quality_report": quality_report,
                "topics": [topic.to_dict() for topic in topics],
                "topic_cases": topic_cases,
                "tokenizer": args.tokenizer and Path(args.tokenizer).name,
                "max_length": args.max_length,
                "rubrics": {name: rubrics[name].fingerprint for name in sorted({key[4] for key in written})},
                "seed": plan.seed,
                "plan": Path(args.plan).read_text(encoding="utf-8").rstrip(),
            }
        for rest in (scratch, place / ".dropped.jsonl.lock"):
            rest.unlink(missing_ok=True)  # on Windows a lock's file goes with the lock
        if topics:
            rows = [(", ".join(topic.words[:5]), topic.share) for topic in topics]
            write_whole(place / "topics.svg", svg_file(topic_shares, rows))
        write_card(place, facts)
        record_run(place / "run.json", args)
    print(f"instructions {facts['fingerprint']}: {args.output}")


def label_quality(args: BuildDatasetArguments, data: InstructionSet) -> tuple[str, dict[str, Any] | None]:
    """Label the quality of every verdict (Appendix B); return the origin of the labels, and the classifier's report."""
    by, report = "the label that came with the verdict", None
    if args.labels:
        data.report(data.read_labels(args.labels))
        by = "people's labels"
    if args.labels or args.corrupt:
        from automedeval.models.embeddings import Encoder  # torch is loaded by those who need it

        classifier = QualityClassifier(Encoder(args.encoder, pooling=args.encoder_pooling))
        report = data.fit(classifier, spoil=args.corrupt)
        data.classify(classifier)
        by += ", or else by the classifier"
    data.report_quality()
    return by, report


if __name__ == "__main__":
    run(main)
