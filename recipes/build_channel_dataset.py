"""Build the channel judge's training data of an instruction data set: one row for each scored response.

    python recipes/build_channel_dataset.py --dataset instructions/feedbackqa --cases cases/feedbackqa/cases.jsonl \\
        --output instructions/feedbackqa-channel

The prompt of a row holds a response with its score, the completion is the question (see recipes/judge.py --judge
channel:CHECKPOINT). Splits keep their names and order, so stages and rounds train on the folder as on the original.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import automedeval
from automedeval.cli import TableArguments, comma_list, parse, record_run, run
from automedeval.dataset.card import card_facts, write_card
from automedeval.dataset.folder import DatasetFolder, read_dataset, write_rows
from automedeval.introspection.mistakes import Recorded, read_recorded
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError, check_least, digest, read_cases
from automedeval.rubrics import packaged_rubrics, read_rubric
from automedeval.rubrics.prompts import channel_fingerprint, channel_texts


@dataclass
class ChannelDatasetArguments(TableArguments):
    """The data set, its cases, and the limit of length."""

    dataset: str = field(metadata={"help": "folder of a data set of recipes/build_dataset.py or recipes/introspect.py"})
    cases: list[str] = field(metadata={"help": "the case files of the data set"})
    output: str = field(metadata={"help": "folder of the new data set; an earlier data set there is replaced"})
    tokenizer: str | None = field(
        default=None,
        metadata={"help": "checkpoint to be trained, whose tokens are counted (default: lengths are not checked)"},
    )
    chat_template_path: str | None = field(
        default=None, metadata={"help": "Jinja file with a chat template, for a checkpoint without one; none: its own"}
    )
    max_length: int = field(default=2048, metadata={"help": "rows with more tokens are dropped"})
    rubrics: list[str] = field(default_factory=list, metadata={"help": "YAML files of your own rubrics"})

    def __post_init__(self) -> None:
        for name in ("cases", "rubrics"):
            setattr(self, name, comma_list(getattr(self, name)))
        check_least(self, 1, "max_length")
        if Path(self.output).resolve() == Path(self.dataset).resolve():
            raise RecordError(f"--output {self.output}: needs a folder of its own")


def main() -> None:
    """Read every split's verdicts, write a row for each response, and count."""
    (args,) = parse((ChannelDatasetArguments,), __doc__)
    dataset = read_dataset(args.dataset)
    rubrics = {rubric.name: rubric for rubric in map(read_rubric, [*packaged_rubrics(), *args.rubrics])}
    wanted = {row["case_id"] for rows in dataset.splits.values() for row in rows}
    cases = {case.id: case for path in args.cases for case in read_cases(path, blank=args.blank) if case.id in wanted}
    encoder = PromptEncoder.from_checkpoint(args.tokenizer, args.chat_template_path) if args.tokenizer else None
    origins, splits, lines = Counter(), {}, []
    with DatasetFolder(args.output) as folder:
        for name, rows in dataset.splits.items():
            recorded = read_recorded(rows, cases, rubrics, f"{args.dataset}, {name}") if rows else []
            if choosing := next((one.rubric.name for one in recorded if one.rubric.scale is None), None):
                raise RecordError(f"{args.dataset}, {name}: {choosing} gives choices, and a channel needs scores")
            made = [row for one in recorded for row in channel_rows(one)]
            written = write_rows(folder.scratch / f"{name}.parquet", made, encoder, args.max_length)
            splits[name] = written.statistics
            origins += written.origins
            over = len(written.rejected)
            lines.append(
                f"{name}: {len(rows):,} verdicts → {len(made):,} responses → {len(made) - over:,} rows, {over:,} rejected "
                f"(more than {args.max_length:,} tokens: {over:,})"
            )
            print(lines[-1])
        facts = dataset.statistics | card_facts(splits, origins)
        # The channel data set of a round follows the channel data set of its stages.
        ties = {key: dataset.statistics[key] for key in ("fingerprint", "follows") if key in dataset.statistics}
        facts |= {key: turned(fingerprint, args.max_length, encoder) for key, fingerprint in ties.items()}
        facts |= {
            "arithmetic": [*dataset.statistics["arithmetic"], *lines],
            "folder": Path(args.output).name,
            "version": automedeval.__version__,
            "tokenizer": args.tokenizer and Path(args.tokenizer).name,
            "max_length": args.max_length,
            "turned": dataset.statistics["fingerprint"],
        }
        write_card(folder.scratch, facts)
        record_run(folder.scratch / "run.json", args)
        folder.publish()
    print(f"instructions {facts['fingerprint']}: {args.output}")


def channel_rows(recorded: Recorded) -> Iterator[dict[str, Any]]:
    """Yield a row for each scored response of a verdict."""
    for index, score in recorded.scores.items():
        response = recorded.case.responses[index]
        prompt, question = channel_texts(recorded.rubric, recorded.case.question, response.text, score)
        yield recorded.row | {
            "prompt": prompt,
            "completion": [{"role": "assistant", "content": question}],
            "order": [0],
            "models": [response.model],
            "prompt_digest": digest(prompt),
        }


def turned(fingerprint: str, max_length: int, encoder: PromptEncoder | None) -> str:
    """Return the fingerprint of the channel data set of a data set with this fingerprint."""
    parts = [fingerprint, channel_fingerprint(), str(max_length)]
    if encoder:  # it decides which rows are too long; its files do not count, because training saves them differently
        counted = [sorted(encoder.tokenizer.get_vocab().items()), encoder.tokenizer.chat_template]
        parts.append(hashlib.sha256(json.dumps(counted).encode()).hexdigest())
    return hashlib.sha256(":".join(parts).encode()).hexdigest()[:12]


if __name__ == "__main__":
    run(main)
