"""Have two models discuss the verdicts on which a judge disagrees with its data set (paper section 3.3, Algorithm 2).

    python recipes/introspect_discuss.py --dataset instructions --verdicts verdicts/stage3-train --cases cases.jsonl \\
        --suggester openai:MODEL --store STORE --reviewer openai:MODEL --output instructions-round1
    python recipes/introspect_discuss.py --config recipes/runs/automedeval-135m/discuss.yaml

Reads the data set, and the judge's verdicts on all of its training cases. Writes OUTPUT.discussion/: revisions.jsonl with every
mistake and what the partners said and decided, and jury.jsonl with those that wait for the jury. The same command goes on where
it was stopped. recipes/introspect_revise.py takes the decisions, and writes the next data set.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from tqdm import tqdm

from automedeval.evidence.arguments import KnowledgeArguments
from automedeval.models.arguments import ChatArguments, EncoderArguments, parse_model
from automedeval.models.replay import RecordedChat
from automedeval.records import RecordError, option
from automedeval.records.arguments import comma_list
from automedeval.records.command_line import parse, run
from automedeval.records.journal import Journal
from automedeval.records.processes import print_notes
from automedeval.records.run_record import record_run
from automedeval.records.text import several
from automedeval.study.introspection.discussion import ROLES, Discussion, Partners, account
from automedeval.study.introspection.jury import QUEUE, read_jury, write_queue
from automedeval.study.introspection.mistakes import find_mistakes, read_judges
from automedeval.study.introspection.revisions import (
    RoundArguments,
    apply_rulings,
    counts_of,
    mistake_record,
    write_discussion,
)


@dataclass(kw_only=True)
class DiscussArguments(RoundArguments):
    """The judge, and the partners."""

    verdicts: list[str] = option(
        "file or folder of the judge's verdicts on all training cases; several: of judges that each judged the cases they "
        "were not trained on"
    )
    rows: str = option(
        "mistakes are discussed, or all: every row, as a control of looking where the judge differs",
        "mistakes",
        choices=["mistakes", "all"],
    )
    suggester: str | None = option(
        "model that suggests and revises: openai:MODEL or recording:FILE (default: nobody discusses, every mistake goes "
        "to the jury)",
        None,
    )
    reviewer: str | None = option("model that accepts or objects: as --suggester", None)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.verdicts = comma_list(self.verdicts)
        if bool(self.suggester) != bool(self.reviewer):
            raise RecordError(
                "--suggester and --reviewer must name two models; without both the jury decides alone"
            )
        for model in filter(None, (self.suggester, self.reviewer)):
            if parse_model(model)[0] not in ("openai", "recording"):
                raise RecordError(
                    f"{model}: partners are openai:MODEL or recording:FILE; serve a checkpoint as an endpoint"
                )


def main() -> None:
    """Find the mistakes, discuss them, and write what was said and what waits."""
    kinds = (DiscussArguments, KnowledgeArguments, EncoderArguments, ChatArguments)
    args, books, encoder_args, chat_args = parse(kinds, __doc__)
    if args.suggester:
        books.check()
    # --- 1. Find the mistakes ------------------------------------------------------------------
    dataset, recorded = args.read()
    judged = read_judges(args.verdicts, recorded)
    mistakes, lines = find_mistakes(recorded, judged, every=args.rows == "all")
    judges = dict.fromkeys((verdict.judge, verdict.settings or "") for verdict in judged.values())
    judge, settings = ("+".join(parts) for parts in zip(*judges))
    fingerprint = dataset.statistics["fingerprint"]
    print("\n".join(lines))
    # --- 2. Discuss them ------------------------------------------------------------------------
    discussions: dict[str, Discussion] = {}
    names = {"suggester": "nobody", "reviewer": "nobody"}
    with Journal(args.discussion / "discussion.jsonl") as journal:
        if args.suggester and mistakes:
            about = [fingerprint, judge, settings]
            partners = partners_of(args, books, encoder_args, chat_args, about)
            chats = partners.chats
            names = {"suggester": chats["suggestion"].name, "reviewer": chats["review"].name}
            discussions = partners.open(mistakes, journal)
            record_run(args.discussion / "run.json", args, books, encoder_args, chat_args)
            for _ in tqdm(partners.lead(discussions, journal), "discussion", unit="message"):
                pass  # each is in the journal
            for chat in {chat.name: chat for chat in chats.values()}.values():
                print_notes(chat.notes())
            ended = account(discussions.values(), **names)
            print("\n".join(ended))
            lines += ended
    # --- 3. Write what was said, and what waits for the jury ------------------------------------
    records = [mistake_record(mistake, discussions.get(mistake.case_id)) for mistake in mistakes]
    apply_rulings(records, read_jury(args.discussion, recorded))
    about_judge = {"name": judge, "settings": settings or None}
    facts = {"follows": fingerprint, "judge": about_judge, "partners": names, "arithmetic": lines}
    write_discussion(args.discussion, records, facts)
    undecided = [record for record in records if record["decided_by"] != "consensus"]
    write_queue(args.discussion, [recorded[record["case_id"]] for record in undecided])
    waiting = several(counts_of(records)["unresolved"], "mistake")
    print(
        f"{args.discussion / QUEUE}: {waiting} for the jury; next: recipes/introspect_revise.py with the same --output"
    )


def partners_of(
    args: Any, books: Any, encoder_args: Any, chat_args: Any, about: list[str]
) -> Partners:
    """Return both partners, with the suggesting model's reference books."""
    models = dict(zip(ROLES, (args.suggester, args.reviewer, args.suggester)))
    knowledge = {"suggestion": books.knowledge}  # of a recording
    load = cache(chat_args.load)  # one model may have all roles
    chats, are_recorded = {}, False
    for role, model in models.items():
        kind, name = parse_model(model)
        if kind == "recording":
            are_recorded = True
            chats[role] = RecordedChat(name, "strong", knowledge.get(role, "none"), role)
        else:
            chats[role] = load(model)
    search, store = books.open(encoder_args, chat_args.device)
    return Partners(
        chats,
        search,
        books.questions,
        shuffle=not are_recorded,  # recordings have the responses in the order of the case
        about=[*about, store] if store else about,
    )


if __name__ == "__main__":
    run(main)
