"""Turn an instruction data set round: from each verdict, one row per response that asks for the question behind its score.

    python recipes/build_channel_dataset.py --dataset instructions/feedbackqa --cases cases/feedbackqa/cases.jsonl \\
        --output instructions/feedbackqa-channel

The rows teach the channel judge (recipes/judge.py --judge channel:CHECKPOINT). Splits, and their order, stay as they
are: stages and rounds train on such a folder as on the one that it was made from.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import automedeval
from automedeval.cli import parse, record_run, run
from automedeval.dataset.card import card_facts, write_card
from automedeval.dataset.folder import DatasetFolder, SplitWriter, read_dataset
from automedeval.introspection.mistakes import Recorded, read_recorded
from automedeval.models.tokenization import PromptEncoder, row_lengths
from automedeval.records import REFERENCE, RecordError, read_cases
from automedeval.rubrics import packaged_rubrics, read_rubric
from automedeval.rubrics.prompts import channel_fingerprint, channel_texts


@dataclass
class ChannelDatasetArguments:
    """What is turned round."""

    dataset: str = field(
        metadata={"help": "folder of recipes/build_dataset.py, or of a round of recipes/introspect.py"}
    )
    cases: list[str] = field(metadata={"help": "the case files that it was made of"})
    output: str = field(metadata={"help": "folder of the new data set; an earlier one is replaced"})
    tokenizer: str | None = field(default=None, metadata={"help": "checkpoint that is to be trained, to count tokens"})
    chat_template_path: str | None = field(
        default=None, metadata={"help": "Jinja file, if the checkpoint has no template"}
    )
    max_length: int = field(default=2048, metadata={"help": "longer rows, in tokens, are dropped"})
    rubrics: list[str] = field(default_factory=list, metadata={"help": "your own rubrics' .yaml files"})

    def __post_init__(self) -> None:
        for name in ("cases", "rubrics"):
            values = [part.strip() for given in getattr(self, name) for part in given.split(",")]
            setattr(self, name, [value for value in values if value])
        if self.max_length < 1:
            raise RecordError(f"--max_length must be at least 1, not {self.max_length}")
        if Path(self.output).resolve() == Path(self.dataset).resolve():
            raise RecordError(f"--output {self.output}: needs a folder of its own")


def main() -> None:
    """Read every split's verdicts, write a row for each response, and count."""
    (args,) = parse((ChannelDatasetArguments,), __doc__)
    dataset = read_dataset(args.dataset)
    rubrics = {rubric.name: rubric for rubric in map(read_rubric, [*packaged_rubrics(), *args.rubrics])}
    wanted = {row["case_id"] for rows in dataset.splits.values() for row in rows}
    cases = {case.id: case for path in args.cases for case in read_cases(path) if case.id in wanted}
    encoder = PromptEncoder.from_checkpoint(args.tokenizer, args.chat_template_path) if args.tokenizer else None
    written, splits, lines = Counter(), {}, []
    with DatasetFolder(args.output) as folder:
        for name, rows in dataset.splits.items():
            recorded = read_recorded(rows, cases, rubrics, f"{args.dataset}, {name}") if rows else []
            if choosing := next((one.rubric.name for one in recorded if one.rubric.scale is None), None):
                raise RecordError(f"{args.dataset}, {name}: {choosing} gives choices, and a channel needs scores")
            made = [row for one in recorded for row in channel_rows(one)]
            with SplitWriter(folder.scratch / f"{name}.parquet") as writer:
                for row, tokens in zip(made, row_lengths(made, encoder)):
                    if tokens is None or tokens <= args.max_length:
                        writer.write(row, tokens)
                        told = [row[column] or "not stated" for column in ("source", "license")]
                        written[*told, row["teacher"], row["judge"], row["rubric"], row["models"] == [REFERENCE]] += 1
            splits[name] = writer.statistics()
            over = len(made) - writer.rows
            lines.append(
                f"{name}: {len(rows):,} verdicts → {len(made):,} responses → {writer.rows:,} rows, {over:,} rejected "
                f"(more than {args.max_length:,} tokens: {over:,})"
            )
            print(lines[-1])
        facts = dataset.statistics | card_facts(splits, written)
        # A round follows the stages that were turned round in the same way, as it does before either is.
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
    """Yield the rows of one verdict: for each response its score and text as the prompt, the question as the completion."""
    if recorded.rubric.scale is None:
        raise RecordError(
            f"case {recorded.case.id!r}: {recorded.rubric.name} gives choices, and a channel needs scores"
        )
    for index, score in recorded.scores.items():
        response = recorded.case.responses[index]
        prompt, question = channel_texts(recorded.rubric, recorded.case.question, response.text, score)
        yield recorded.row | {
            "prompt": prompt,
            "completion": [{"role": "assistant", "content": question}],
            "order": [0],
            "models": [response.model],
            "prompt_digest": hashlib.sha256(json.dumps(prompt).encode()).hexdigest()[:12],
        }


def turned(fingerprint: str, max_length: int, encoder: PromptEncoder | None) -> str:
    """Return the fingerprint of what a data set with this fingerprint turns into, where `encoder` counts the tokens."""
    parts = [fingerprint, channel_fingerprint(), str(max_length)]
    if encoder:  # it decides which rows are too long; not by its files, which training saves otherwise
        counted = [sorted(encoder.tokenizer.get_vocab().items()), encoder.tokenizer.chat_template]
        parts.append(hashlib.sha256(json.dumps(counted).encode()).hexdigest())
    return hashlib.sha256(":".join(parts).encode()).hexdigest()[:12]


if __name__ == "__main__":
    run(main)
