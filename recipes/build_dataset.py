"""Build the instruction data set: check the teachers' verdicts, tell their quality, and lay them out as a curriculum.

    python recipes/build_dataset.py --cases cases.jsonl --verdicts strong/verdicts.jsonl weak/verdicts.jsonl \\
        --verdict_ratings verdict_ratings.jsonl --corrupt true --plan recipes/runs/automedeval-13b/plan.yaml \\
        --tokenizer MODEL --evaluation_cases test.jsonl --output instructions
    python recipes/build_dataset.py --config recipes/runs/automedeval-135m/build_dataset.yaml

Writes OUTPUT/{stage1,stage2,stage3,test}.parquet with a card, statistics.json, dropped.jsonl, run.json and topics.svg. The
folder appears when all of it is there, in place of an earlier one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import automedeval
from automedeval.cli import parse, record_run, run
from automedeval.dataset.builder import InstructionSet
from automedeval.dataset.card import card_facts, write_card
from automedeval.dataset.curriculum import read_plan
from automedeval.dataset.folder import DatasetFolder
from automedeval.dataset.quality import QualityClassifier
from automedeval.dataset.teacher_verdicts import JudgedCases
from automedeval.dataset.topics import TOPICS
from automedeval.records import Case, RecordError, read_cases
from automedeval.records.journal import Journal, write_whole
from automedeval.reports.charts import topic_shares
from automedeval.rubrics import packaged_rubrics, read_rubric


@dataclass
class BuildDatasetArguments:
    """What the data set is made of, and what is kept of it."""

    cases: list[str] = field(metadata={"help": "case files; NAME=FILE says that its cases come from the source NAME"})
    verdicts: list[str] = field(metadata={"help": "the teachers' verdict files"})
    plan: str = field(metadata={"help": "the curriculum's .yaml: teachers, stages, test cases, verification"})
    output: str = field(metadata={"help": "folder of the data set; an earlier one is replaced"})
    verdict_ratings: str | None = field(default=None, metadata={"help": "physicians' ratings of the verdicts"})
    labels: str | None = field(
        default=None, metadata={"help": "verdicts that people called high or low: lines of case_id, judge, quality"}
    )
    corrupt: bool = field(
        default=False, metadata={"help": "teach the classifier on verdicts that are spoilt on purpose"}
    )
    classifier: str | None = field(
        default=None,
        metadata={"help": "folder of a fitted classifier; --labels or --corrupt fit one and save it there"},
    )
    encoder: str = field(
        default="models/all-MiniLM-L6-v2", metadata={"help": "checkpoint that embeds for the classifier"}
    )
    tokenizer: str | None = field(default=None, metadata={"help": "checkpoint that is to be trained, to count tokens"})
    chat_template_path: str | None = field(
        default=None, metadata={"help": "Jinja file, if the checkpoint has no template"}
    )
    max_length: int = field(default=2048, metadata={"help": "longer rows, in tokens, are dropped"})
    evaluation_cases: list[str] | None = field(
        default=None, metadata={"help": "cases the judge is to be evaluated on; the test split always counts as such"}
    )
    on_leak: str = field(
        default="error",
        metadata={
            "help": "training cases that evaluation cases hold too: refuse or leave out",
            "choices": ["error", "drop"],
        },
    )
    reference_as_response: bool | None = field(
        default=None,
        metadata={"help": "insist that teachers were (or were not) shown the reference as one more response"},
    )
    rubrics: list[str] = field(default_factory=list, metadata={"help": "your own rubrics' .yaml files"})
    licenses: list[str] = field(default_factory=list, metadata={"help": "NAME=LICENCE of the cases of a source"})
    topics: int = field(default=TOPICS, metadata={"help": "how many topics the card shows; 0 models none"})
    title: str = field(default="AutoMedEval instructions", metadata={"help": "what the card is called"})

    def __post_init__(self) -> None:
        for name in ("cases", "verdicts", "evaluation_cases", "rubrics", "licenses"):
            values = [part.strip() for given in getattr(self, name) or () for part in given.split(",")]
            setattr(self, name, [value for value in values if value])
        if self.max_length < 1 or self.topics < 0:
            raise RecordError("--max_length must be at least 1 and --topics at least 0")
        if wrong := [each for each in self.licenses if not all(each.partition("="))]:
            raise RecordError(f"--licenses: must be NAME=LICENCE, not {wrong[0]!r}")
        if self.labels and self.corrupt:
            raise RecordError("--labels and --corrupt true exclude each other: either people or spoilt verdicts teach")


def main() -> None:
    """Filter, label, assign, compare and write; then put the folder in its place."""
    (args,) = parse((BuildDatasetArguments,), __doc__)
    plan = read_plan(args.plan)
    rubrics = {rubric.name: rubric for rubric in map(read_rubric, packaged_rubrics())}
    for rubric in map(read_rubric, args.rubrics):
        if rubrics.setdefault(rubric.name, rubric).fingerprint != rubric.fingerprint:
            raise RecordError(
                f"--rubrics: another rubric is called {rubric.name} too; change the id or raise the version"
            )
    encoder = prompt_encoder(args)
    with DatasetFolder(args.output) as folder:
        scratch, place = folder.scratch / "texts.db", folder.scratch
        with Journal(place / "dropped.jsonl") as dropped, JudgedCases(scratch, dropped) as judged:
            data = InstructionSet(judged, plan)
            licenses = dict(each.split("=", 1) for each in args.licenses)
            data.tell(*judged.read(args.cases, args.verdicts, rubrics, licenses))
            verification, unrated = data.verify(args.verdict_ratings)
            quality_by, quality_report = label_quality(args, data)
            assignment = data.assign()
            data.compare(assignment, evaluation_cases(args), args.on_leak == "drop")
            splits, written = data.write(
                assignment, place, rubrics, encoder, args.max_length, args.reference_as_response
            )
            topics, topic_cases = data.topics(assignment, args.topics)
        for rest in (scratch, place / ".dropped.jsonl.lock"):
            rest.unlink()
        if topics:
            rows = [(", ".join(topic.words[:5]), topic.share) for topic in topics]
            write_whole(place / "topics.svg", topic_shares(rows, "topics"))
        facts = card_facts(splits, written) | {
            "title": args.title,
            "folder": Path(args.output).name,
            "version": automedeval.__version__,
            "arithmetic": data.arithmetic,
            "verification": verification and verification.to_dict(),
            "unrated": unrated,
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
        write_card(place, facts)
        record_run(place / "run.json", args)
        folder.publish()
    print(f"instructions {facts['fingerprint']}: {args.output}")


def evaluation_cases(args: BuildDatasetArguments) -> Iterator[Case]:
    """Yield the cases that the judge is to be evaluated on beside the test split."""
    return (case for path in args.evaluation_cases for case in read_cases(path))


def prompt_encoder(args: BuildDatasetArguments) -> Any:
    """Return what counts a row's tokens as the checkpoint's tokenizer and chat template have them, None without one."""
    if not args.tokenizer:
        return None
    from automedeval.models.tokenization import PromptEncoder

    return PromptEncoder.from_checkpoint(args.tokenizer, args.chat_template_path)


def label_quality(args: BuildDatasetArguments, data: InstructionSet) -> tuple[str, dict[str, Any] | None]:
    """Call every verdict high or low (Appendix B), by a classifier where one is asked for; return who did, and how well."""
    by, report = "the label that came with the verdict", None
    if args.labels:
        data.tell(f"quality: {data.read_labels(args.labels):,} labels by people")
        by = "people's labels"
    if args.labels or args.corrupt or args.classifier:
        from automedeval.models.embeddings import Encoder  # torch is loaded by those who need it

        embed = Encoder(args.encoder)
        if args.labels or args.corrupt:
            classifier = QualityClassifier(embed)
            report = data.fit(classifier, spoil=args.corrupt)
            if args.classifier:
                classifier.save(args.classifier)
        else:
            classifier = QualityClassifier.load(args.classifier, embed)
            report = classifier.report
        data.classify(classifier)
        by += ", or else by the classifier"
    data.tell_quality()
    return by, report


if __name__ == "__main__":
    run(main)
