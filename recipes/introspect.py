"""Revise the verdicts that a judge did not agree with: one round of introspection (paper section 3.3, Algorithm 2).

    python recipes/introspect.py --dataset instructions --verdicts verdicts/stage3-train --cases cases.jsonl \\
        --suggester openai:MODEL --store STORE --reviewer openai:MODEL --output instructions-round1
    python recipes/introspect.py --dataset instructions --verdicts V --cases F --partners none --jury jury.jsonl --output O
    python recipes/introspect.py --config recipes/runs/automedeval-135m/introspect1.yaml

Writes OUTPUT/{train,test}.parquet with a card, statistics.json, revisions.jsonl, dropped.jsonl and run.json. What the partners
say is appended to OUTPUT.discussion/, with the jury's queue, jury.jsonl; the same command again goes on from there.
"""

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

import automedeval
from automedeval.cli import parse, record_run, run
from automedeval.dataset.card import card_facts, write_card
from automedeval.dataset.folder import DatasetFolder, read_dataset
from automedeval.distillation.arguments import KnowledgeArguments
from automedeval.introspection.discussion import EXCHANGES, Partners
from automedeval.introspection.jury import Ruling, read_readings, read_rulings, write_queue
from automedeval.introspection.mistakes import JudgeOfRound, Mistake, Recorded, find_mistakes, read_judge, read_recorded
from automedeval.introspection.round import Round, decide, refuse_silence
from automedeval.introspection.rule_reviewer import RuleOnRatings
from automedeval.models.arguments import ChatArguments
from automedeval.models.replay import RecordedChat
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError, read_cases
from automedeval.records.journal import Journal
from automedeval.rubrics import packaged_rubrics, read_rubric


@dataclass
class IntrospectArguments:
    """Whose mistakes on which data set, who discusses them, and what becomes of them."""

    dataset: str = field(metadata={"help": "folder of recipes/build_dataset.py, or of a former round"})
    verdicts: str = field(metadata={"help": "the judge's verdicts on all training cases: a file, or its folder"})
    cases: list[str] = field(metadata={"help": "case files that hold the training cases"})
    output: str = field(metadata={"help": "folder of the round's data set; an earlier one is replaced"})
    judge_name: str | None = field(default=None, metadata={"help": "whose verdicts, if there are several judges'"})
    rubrics: list[str] = field(default_factory=list, metadata={"help": "your own rubrics' .yaml files"})
    tolerance: float = field(default=0.0, metadata={"help": "points by which a score may differ and be no mistake"})
    partners: str = field(
        default="both",
        metadata={"help": "both models discuss, or none: every mistake goes to the jury", "choices": ["both", "none"]},
    )
    suggester: str | None = field(
        default=None, metadata={"help": "suggests and rewrites: openai:MODEL, recording:FILE, or a checkpoint"}
    )
    reviewer: str | None = field(
        default=None, metadata={"help": "accepts or objects: as --suggester, or ratings:FILE, a plain rule on ratings"}
    )
    exchanges: int = field(default=EXCHANGES, metadata={"help": "most suggestions, each with its review"})
    shuffle: bool = field(
        default=True, metadata={"help": "show responses in the rows' slots; a recording needs false: the file's order"}
    )
    discussion: str | None = field(default=None, metadata={"help": "work folder, by default OUTPUT.discussion"})
    jury: str | None = field(default=None, metadata={"help": "decisions, in the place of the queue's own file"})
    readings: bool = field(default=False, metadata={"help": "--jury holds raters' readings kept aside: they decide"})
    train_on: str = field(
        default="all", metadata={"help": "all rows, or the revised ones alone", "choices": ["all", "revised"]}
    )
    tokenizer: str | None = field(default=None, metadata={"help": "checkpoint that is to be trained, to count tokens"})
    tokenizer_template: str | None = field(
        default=None, metadata={"help": "Jinja file, if that checkpoint has no chat template"}
    )
    max_length: int = field(default=2048, metadata={"help": "longer rows, in tokens, are dropped"})
    seed: int = field(default=0, metadata={"help": "of the partners' sampling"})
    dry_run: bool = field(default=False, metadata={"help": "count mistakes, tokens and cost; ask nothing"})

    def __post_init__(self) -> None:
        for name in ("cases", "rubrics"):
            values = [part.strip() for given in getattr(self, name) for part in given.split(",")]
            setattr(self, name, [value for value in values if value])
        for name in ("exchanges", "max_length"):
            if getattr(self, name) < 1:
                raise RecordError(f"--{name} must be at least 1, not {getattr(self, name)}")
        if not self.tolerance >= 0:
            raise RecordError(f"--tolerance must be at least 0, not {self.tolerance}")
        if self.readings and not self.jury:
            raise RecordError("--readings needs --jury FILE, the readings")
        if Path(self.output).resolve() == Path(self.dataset).resolve():
            raise RecordError(f"--output {self.output}: a round needs a folder of its own")
        if self.partners == "none":
            return
        if not (self.suggester and self.reviewer):
            raise RecordError("--suggester and --reviewer name two models (--partners none goes without)")
        if self.shuffle and "recording" in (self.suggester.partition(":")[0], self.reviewer.partition(":")[0]):
            raise RecordError("a recording speaks of the responses in the file's order: --shuffle false")


def main() -> None:
    """Find the mistakes, have them discussed, let the jury decide the rest, and write the round's data set."""
    args, books, chat_args = parse((IntrospectArguments, KnowledgeArguments, ChatArguments), __doc__)
    if args.partners == "both":
        books.check()
    dataset = read_dataset(args.dataset)
    rubrics = {rubric.name: rubric for rubric in map(read_rubric, [*packaged_rubrics(), *args.rubrics])}
    wanted = {row["case_id"] for row in dataset.training}
    cases = {case.id: case for path in args.cases for case in read_cases(path) if case.id in wanted}
    recorded = read_recorded(dataset.training, cases, rubrics, args.dataset)
    verdicts = Path(args.verdicts) / "verdicts.jsonl" if Path(args.verdicts).is_dir() else args.verdicts
    judge = read_judge(str(verdicts), recorded, args.judge_name)
    mistakes, lines = find_mistakes(recorded, judge, args.tolerance)
    this = Round(dataset, recorded)
    this.tell(*lines)
    encoder = PromptEncoder.from_checkpoint(args.tokenizer, args.tokenizer_template) if args.tokenizer else None
    work = Path(args.discussion or f"{args.output.rstrip('/')}.discussion")
    queue, known = work / "jury.jsonl", {each.case.id: each for each in recorded}
    with ExitStack() as opened, Journal(work / "discussion.jsonl") as journal:
        # The jury's answers are read before anything is asked: bad input is told at once, not after an hour.
        read_jury(args, queue, this, known)
        discussions, names = [], {"suggester": "nobody", "reviewer": "nobody"}
        if args.partners == "both" and mistakes:
            about = [dataset.statistics["fingerprint"], judge.name, judge.settings or ""]
            partners = partners_of(args, books, chat_args, about, mistakes, opened)
            names = {"suggester": partners.suggester.name, "reviewer": partners.reviewer.name}
            discussions = partners.open(mistakes, journal)
            if args.dry_run:
                tokens, cost = partners.suggester.estimate(partners.first_prompts(discussions))
                print(f"about {tokens:,} prompt tokens in the first suggestions, which cost at most {cost:.2f}")
                return
            record_run(work / "run.json", args, books, chat_args)
            with tqdm(unit="message", desc="discussion") as bar:
                for _ in partners.lead(discussions, journal):
                    bar.update()
            partners.refuse_unanswered(discussions)
            refuse_silence(discussions, names)
            this.tell_discussions(discussions, names)
        elif args.dry_run:
            return
        # They are read again after the discussion: what was filled in meanwhile decides too, and must not be written over.
        rulings, filled = read_jury(args, queue, this, known)
        said, readings = {each.case_id: each for each in discussions}, None
        if args.readings:
            needed = [each.case_id for each in mistakes if each.case_id not in rulings]
            needed = [case_id for case_id in needed if case_id not in said or not said[case_id].consensus]
            drawn, readings = read_readings(args.jury, known, needed, dataset.statistics["seed"], this.number)
            rulings = drawn | rulings
        this.decisions = decide(mistakes, said, rulings, journal)
        undecided = [each.mistake for each in this.decisions if each.by is None]
        write_queue(queue, undecided, filled)
        this.tell_decisions(rulings, readings)
        names["jury"] = "raters' readings" if args.readings else "the jury"
        write(this, (args, books, chat_args), encoder, judge, names)
    if undecided:
        print(f"jury: {len(undecided):,} cases wait in {queue}; the same command takes the answers up")


def read_jury(
    args: IntrospectArguments, queue: Path, this: Round, known: dict[str, Recorded]
) -> tuple[dict[str, Ruling], dict[str, dict]]:
    """Return what the jury has decided so far, in the queue and in --jury's file, and the lines that say so."""
    seed = this.dataset.statistics["seed"]
    rulings, filled = read_rulings(queue, known, seed) if queue.exists() else ({}, {})
    if args.jury and not args.readings:
        given, more = read_rulings(args.jury, known, seed)
        rulings, filled = rulings | given, filled | {case_id: more[case_id] for case_id in given}
    return rulings, filled


def partners_of(
    args: IntrospectArguments,
    books: KnowledgeArguments,
    chat_args: ChatArguments,
    about: list[str],
    mistakes: list[Mistake],
    opened: ExitStack,
) -> Partners:
    """Return both partners, with the books that the suggesting one may ask, which are closed with `opened`."""

    def partner(model: str, role: str) -> Any:
        kind, _, file = model.partition(":")
        if kind == "recording":
            return RecordedChat(file, "strong", books.knowledge if role == "suggestion" else "none", role)
        if kind == "ratings" and role == "review":
            rule = RuleOnRatings(file)
            rule.check(mistake.recorded.case for mistake in mistakes)
            return rule
        return chat_args.load(model, args.seed)

    recorded = args.suggester.startswith("recording:")
    suggester = partner(args.suggester, "suggestion")
    reviewer = partner(args.reviewer, "review") if recorded or args.reviewer != args.suggester else suggester
    if args.suggester.startswith("openai:") and args.reviewer.startswith("openai:"):
        reviewer.budget = suggester.budget  # --max_cost is what both may spend together
    search, store = books.open(chat_args.device, opened)
    return Partners(
        suggester,
        reviewer,
        partner(args.suggester, "revision") if recorded else None,
        search=search,
        questions=books.questions,
        exchanges=args.exchanges,
        shuffle=args.shuffle,
        about=[*about, store] if store else about,
    )


def write(
    this: Round,
    groups: tuple[IntrospectArguments, KnowledgeArguments, ChatArguments],
    encoder: PromptEncoder | None,
    judge: JudgeOfRound,
    partners: dict[str, str],
) -> None:
    """Write the round's folder, and put it in its place."""
    args = groups[0]
    with DatasetFolder(args.output) as folder:
        splits, written = this.write(folder.scratch, args.train_on, encoder, args.max_length)
        if encoder is None:
            this.tell("rows: no --tokenizer is given, so no length was checked")
        facts = this.dataset.statistics | card_facts(splits, written) | this.facts(judge, partners)
        facts |= {
            "folder": Path(args.output).name,
            "version": automedeval.__version__,
            "tokenizer": args.tokenizer and Path(args.tokenizer).name,
            "max_length": args.max_length,
        }
        write_card(folder.scratch, facts)
        record_run(folder.scratch / "run.json", *groups)
        folder.publish()
    print(f"instructions {facts['fingerprint']}: {args.output}")


if __name__ == "__main__":
    run(main)
