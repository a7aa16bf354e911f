"""What became of each mistake of a round: the records in revisions.jsonl, by consensus, by the jury, or by nobody yet.

`introspect_discuss.py` writes them into the folder of the discussion, where the physicians' page reads those that wait for the
jury; `introspect_revise.py` adds the jury's decisions.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from automedeval.records import DECISIONS, JsonObject, RecordError, option, read_json, read_lines
from automedeval.records.arguments import TableArguments, comma_list
from automedeval.records.journal import arithmetic, write_json, write_lines
from automedeval.records.tables.cases import read_cases
from automedeval.rubrics import rubrics_with
from automedeval.rubrics.slots import reordered
from automedeval.study.dataset.folder import Dataset, dataset_folder, read_dataset
from automedeval.study.introspection.discussion import Discussion
from automedeval.study.introspection.jury import Ruling
from automedeval.study.introspection.mistakes import Mistake, Recorded, read_recorded

REVISIONS = "revisions.jsonl"
SUMMARY = "discussion.json"
UNDECIDED = dict.fromkeys(("revised_verdict", "decided_by", "decision", "annotator", "when"))
Record = JsonObject


@dataclass(kw_only=True)
class RoundArguments(TableArguments):
    """The data set that a round of introspection revises, and the round's own."""

    dataset: str = option(
        "data set of recipes/build_dataset.py, or of an earlier round: its folder, or Hub id"
    )
    cases: list[str] = option("case files that hold the training cases")
    output: str = option(
        "folder of the round's data set; OUTPUT.discussion holds the discussion and the jury's queue"
    )
    rubrics: list[str] = option("YAML files of your own rubrics", [])

    def __post_init__(self) -> None:
        self.cases = comma_list(self.cases)
        self.rubrics = comma_list(self.rubrics)
        if Path(self.output).resolve() == Path(self.dataset).resolve():
            raise RecordError(
                f"--output {self.output}: a round needs another folder than its data set"
            )

    @property
    def discussion(self) -> Path:
        """Return the folder of the discussion."""
        return Path(f"{self.output.rstrip('/')}.discussion")

    def read(self) -> tuple[Dataset, dict[str, Recorded]]:
        """Return the data set, and its training rows with their cases, by case id."""
        dataset = read_dataset(dataset_folder(self.dataset))
        files = (read_cases(path, **self.table) for path in self.cases)
        cases = chain.from_iterable(files)
        rubrics = rubrics_with(self.rubrics)
        return dataset, read_recorded(dataset.training, cases, rubrics, self.dataset)


def mistake_record(mistake: Mistake, discussion: Discussion | None) -> Record:
    """Return the record of one mistake: both verdicts, all messages, the suggestion and the revised verdict (Eq. 2)."""
    recorded = mistake.recorded
    judged = mistake.judged.to_dict()
    names = ("judge", "order", "valid", "error", "rationale", "scores", "choices", "raw")
    # Paper: Eq. 2 conditions the revised verdict on the old one and on the suggestion S: three fields here.
    record = {
        "case_id": mistake.case_id,
        "kind": mistake.kind,
        "rubric": recorded.rubric.name,
        "teacher": recorded.row["teacher"],
        "models": recorded.case.models,
        "order": list(recorded.order),
        "old_verdict": recorded.verdict(recorded.row["judge"], recorded.reading),
        "judge_verdict": {name: judged[name] for name in names},
        "shown": None,
        "exchanges": [],
        "suggestion": None,
        "consensus_at": None,
        **UNDECIDED,
    }
    if discussion is None:
        return record
    record |= {"shown": list(discussion.order), "exchanges": discussion.pieces}
    if discussion.agreed_at:
        record["suggestion"] = discussion.suggestion.shown
    if discussion.decision:
        record |= {
            "consensus_at": discussion.agreed_at,
            "decided_by": "consensus",
            "decision": discussion.decision,
            "when": discussion.pieces[-1]["when"],
        }
    if discussion.revised:
        word = recorded.rubric.slot_word
        revised = reordered(discussion.revised, discussion.order, recorded.order, word)
        record["revised_verdict"] = recorded.verdict("consensus", revised)
    return record


def apply_rulings(records: Iterable[Record], rulings: Mapping[str, Ruling]) -> None:
    """Put the jury's decisions, by case id, into the records that no consensus decides."""
    for record in records:
        if record["decided_by"] != "consensus":
            record |= UNDECIDED | rulings.get(record["case_id"], {})


def write_discussion(folder: Path, records: Sequence[Record], facts: JsonObject) -> None:
    """Write the records of all mistakes, and the facts of the discussion."""
    write_lines(folder / REVISIONS, records)
    write_json(folder / SUMMARY, facts)


def read_discussion(folder: Path, dataset: Dataset) -> tuple[list[Record], JsonObject]:
    """Return what `write_discussion` wrote; RecordError for none, or one of another data set."""
    if not (folder / SUMMARY).exists():
        raise RecordError(
            f"{folder} holds no discussion; recipes/introspect_discuss.py with this --output writes it"
        )
    facts = read_json(folder / SUMMARY)
    if facts["follows"] != dataset.statistics["fingerprint"]:
        raise RecordError(
            f"{folder} is on another data set than {dataset.place}: run recipes/introspect_discuss.py again"
        )
    return [record for _, record in read_lines(folder / REVISIONS)], facts


def counts_of(records: Sequence[Record]) -> JsonObject:
    """Return how many mistakes and decisions of each kind there are; `unresolved` are those that wait for the jury."""
    decided = Counter((record["decided_by"], record["decision"]) for record in records)
    counts: JsonObject = {"mistakes": len(records), "unresolved": decided[None, None]}
    for by in ("consensus", "jury"):
        counts[by] = {decision: decided[by, decision] for decision in DECISIONS}
    return counts


def decision_line(records: Sequence[Record]) -> str:
    """Return the line that reports the decisions of the partners and of the jury."""
    decided = [record for record in records if record["decided_by"]]
    kinds = Counter(f"{record['decided_by']}, {record['decision']}" for record in decided)
    return f"decisions: {arithmetic('mistakes', len(records), kinds, 'waiting', 'decided')}"
