"""Propose what a good answer to each question must say and must not say, for physicians to approve.

    automedeval draft-criteria cases.csv --books guidelines
    automedeval draft-criteria cases.csv --approvals export/criterion_approvals.jsonl
    automedeval draft-criteria cases.csv --books guidelines --drafter openai:MODEL --base_url http://localhost:8000/v1

Without a model, each statement of the case's trusted answer is a thing to say. A chat (--drafter) reads the passages that are
nearest to the question, and cites one for each criterion. A question without a near passage gets no criterion.
Writes OUTPUT/drafts.jsonl as it goes; the same command again drafts only what is missing. A draft is no criterion yet: two
physicians approve it on the page of `automedeval annotate`. With their answers (--approvals) it writes OUTPUT/cases.jsonl: the
cases with the approved criteria.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from automedeval.cli import TableArguments, comma_list, parse, print_notes, record_run
from automedeval.dataset.criteria_approvals import approve, read_drafts
from automedeval.dataset.criteria_drafts import REFERENCE, Drafter
from automedeval.knowledge.arguments import KnowledgeArguments
from automedeval.models.arguments import ChatArguments, EncoderArguments
from automedeval.records import Case, CriteriaDraft, RecordError, check_between, check_least, named_file, read_cases
from automedeval.records.journal import arithmetic, write_lines
from automedeval.records.log import Log
from automedeval.records.readers import read_records
from automedeval.reports.text import shown
from automedeval.stats.bootstrap import plain


@dataclass
class DraftArguments(TableArguments):
    """The cases, the books, and who drafts."""

    cases: str = field(metadata={"help": "cases, or a table with the columns question and reference"})
    books: str | None = field(
        default=None,
        metadata={"help": "guidelines: a store of recipes/build_store.py, or a folder (.pdf, .md, .txt, .jsonl)"},
    )
    drafter: str = field(
        default=REFERENCE,
        metadata={"help": "reference: the statements of the trusted answer; or a chat: a checkpoint or openai:MODEL"},
    )
    output: str | None = field(default=None, metadata={"help": "folder (default: drafts/FILE)"})
    passages: int = field(default=4, metadata={"help": "most passages for a question"})
    near: float = field(default=0.4, metadata={"help": "least cosine of a passage that is used"})
    most: int = field(default=8, metadata={"help": "most criteria of a case"})
    approvals: list[str] = field(
        default_factory=list,
        metadata={
            "help": "criterion_approvals.jsonl of `automedeval annotate --export`, of several rounds in their order: write the "
            "cases with what was approved of OUTPUT/drafts.jsonl"
        },
    )
    dry_run: bool = field(default=False, metadata={"help": "count cases, prompts, tokens and cost; ask nothing"})

    def __post_init__(self) -> None:
        self.approvals = comma_list(self.approvals)
        check_least(self, 1, "passages", "most")
        check_between(self, -1, 1, "near")
        if self.drafter != REFERENCE and not self.books:
            raise RecordError(
                f"--drafter {self.drafter} needs --books: a chat drafts from passages, not from what it knows"
            )


def main() -> None:
    """Draft what is missing, or write the cases with what was approved; print how many criteria there are."""
    first = ("cases", "books", "drafter", "output", "approvals")
    args, encoder_args, chat_args = parse((DraftArguments, EncoderArguments, ChatArguments), __doc__, first=first)
    cases, source = list(read_cases(args.cases, least_responses=0, blank=args.blank)), Path(named_file(args.cases)[1])
    output = Path(args.output or f"drafts/{source.stem}")
    if args.approvals:
        if source.resolve() == (output / "cases.jsonl").resolve():
            raise RecordError(f"{source} would be overwritten: name the cases that criteria were drafted for")
        return write_approved(cases, output, args.approvals)
    if args.drafter == REFERENCE and not any((case.reference or "").strip() for case in cases):
        raise RecordError(
            f"{args.cases}: no case has a trusted answer (reference); --drafter names a chat that reads --books"
        )
    if args.dry_run:  # no server is asked, and no weights are read
        chat_args.offline, chat_args.loads = True, False
    chat = None if args.drafter == REFERENCE else chat_args.load(args.drafter)
    search, store = None, ""
    if args.books:
        from automedeval.knowledge.store import store_of  # qdrant is slow to import

        place = store_of(args.books, output, encoder_args.load(chat_args.device))
        knowledge = KnowledgeArguments(store=place, encoder=encoder_args.place, passages=args.passages)
        search, store = knowledge.open(chat_args.device)
    drafter = Drafter(chat, search, store, args.near, args.most)
    if args.dry_run:
        return print(drafter.dry_run(cases))
    output.mkdir(parents=True, exist_ok=True)
    places = {case.id: place for place, case in enumerate(cases)}
    path = output / "drafts.jsonl"
    with Log(
        path, CriteriaDraft, (chat.name if chat else REFERENCE,), drafter.fingerprint, renamed_by="--drafter"
    ) as log:
        record_run(output / "run.json", args, encoder_args, chat_args)
        done = log.done({case.id: case.asked_digest for case in cases})
        if chat:
            chat.accepted = any(draft.criteria for draft in log.records())
        log.fill(drafter.drafts(cases, done), len(cases) - len(done), unit="case")
        # An endpoint answers in any order: the file has that of the cases.
        records = sorted(read_records(path, CriteriaDraft), key=lambda each: places.get(each.case_id, len(places)))
        write_lines(path, (each.to_dict() for each in records))
    print_drafts(len(cases), [each for each in log.records() if each.case_id in places])
    print(f"for physicians to approve: {path}")
    print_notes(chat.notes() if chat else [])
    if failures := getattr(chat, "failures", ()):
        raise RecordError(
            f"{len(failures)} requests not answered, the last: {failures[-1]}; the same command asks again"
        )


def print_drafts(cases: int, drafts: Sequence[CriteriaDraft]) -> None:
    """Print how many criteria were drafted, and what was left out, each with its count."""
    criteria = [each for draft in drafts for each in draft.criteria]
    negative = sum(each["points"] < 0 for each in criteria)
    cited = len({each["citation"]["passage"] for each in criteria} - {None})
    print(
        f"{cases:,} cases → {len(criteria):,} drafted criteria: {len(criteria) - negative:,} to say, {negative:,} not to say; "
        f"{cited:,} passages cited"
    )
    for reason, count in Counter(draft.reason for draft in drafts if draft.reason).most_common():
        print(f"cases without a criterion, {count:,}: {reason}")
    for reason, count in Counter(why for draft in drafts for why in draft.invalid).most_common(8):
        print(f"left out, {count:,}: {reason}")


def write_approved(cases: list[Case], output: Path, paths: list[str]) -> None:
    """Write the cases with their approved criteria, and the new wordings for a next round; print how many there are."""
    approved = approve(cases, read_drafts(str(output / "drafts.jsonl"), {case.id: case for case in cases}), paths)
    print(arithmetic("drafted criteria", approved.drafted, approved.left_out, "approved by two physicians", "left out"))
    for what, measures in plain(approved.agreement).items():
        figures = ", ".join(f"{name} {shown(value)}" for name, value in measures.items())
        print(f"agreement on {what}: {figures or 'not known'}")
    if approved.wordings:  # a file for each round: the study of a round goes on reading its own
        path = output / f"round-{len(paths) + 1}.jsonl"
        write_lines(path, (each.to_dict() for each in approved.wordings))
        print(
            f"new wordings, for another round: {path}, {sum(len(each.criteria) for each in approved.wordings):,} criteria"
        )
    if not approved.cases:
        raise RecordError(
            f"{', '.join(paths)}: no criterion is approved by two physicians, so that no case can be judged by any"
        )
    write_lines(output / "cases.jsonl", (each.to_dict() for each in approved.cases))
    count = len(approved.cases)
    print(f"cases: {output / 'cases.jsonl'}, {count:,}; left out without a criterion: {len(cases) - count:,}")
