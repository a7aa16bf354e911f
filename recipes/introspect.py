"""Revise verdicts on which a judge disagrees with the data set: one round of introspection (paper section 3.3, Algorithm 2).

    python recipes/introspect.py --dataset instructions --verdicts verdicts/stage3-train --cases cases.jsonl \\
        --suggester openai:MODEL --store STORE --reviewer openai:MODEL --output instructions-round1
    python recipes/introspect.py --dataset instructions --verdicts V --cases F --jury jury.jsonl --output O
    python recipes/introspect.py --config recipes/runs/automedeval-135m/introspect1.yaml

Writes OUTPUT/{train,test}.parquet with a card, statistics.json, revisions.jsonl, dropped.jsonl and run.json. The partners'
messages and the jury's queue, jury.jsonl, are in OUTPUT.discussion/; the same command again goes on from there. While cases
wait for the jury, nothing is written to OUTPUT, and a line says what is next, unless --waiting says what becomes of their rows.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

import automedeval
from automedeval.dataset.card import card_facts, write_card
from automedeval.dataset.folder import new_dataset, read_dataset
from automedeval.evidence.arguments import KnowledgeArguments
from automedeval.introspection.discussion import EXCHANGES, Partners
from automedeval.introspection.jury import DECIDED, Ruling, read_readings, read_rulings, write_queue
from automedeval.introspection.mistakes import Mistake, Recorded, RoundJudge, find_mistakes, read_judge, read_recorded
from automedeval.introspection.round import STOP, WAITING, Round, decide, refuse_silence
from automedeval.introspection.rule_reviewer import RuleOnRatings
from automedeval.models.arguments import ChatArguments, parse_model
from automedeval.models.replay import RecordedChat
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError, check_least, option, read_cases, verdicts_file
from automedeval.records.arguments import TableArguments, comma_list
from automedeval.records.command_line import parse, run
from automedeval.records.journal import Journal
from automedeval.records.processes import print_notes
from automedeval.records.run_record import record_run
from automedeval.rubrics import rubrics_with


@dataclass
class IntrospectArguments(TableArguments):
    """The judge, the data set, the partners, and the jury."""

    dataset: str = option("folder of a data set of recipes/build_dataset.py, or of an earlier round")
    verdicts: str = option("file or folder of the judge's verdicts on all training cases")
    cases: list[str] = option("case files that hold the training cases")
    output: str = option("folder of the round's data set; an earlier data set there is replaced")
    judge_name: str | None = option("the judge, if --verdicts holds several", None)
    rubrics: list[str] = option("YAML files of your own rubrics", [])
    tolerance: float = option("largest difference of a score, in points, that is no mistake", 0.0)
    suggester: str | None = option(
        "model that suggests and revises: openai:MODEL, recording:FILE, or a checkpoint (default: nobody "
        "discusses, every mistake goes to the jury)",
        None,
    )
    reviewer: str | None = option(
        "model that accepts or objects: as --suggester, or ratings:FILE, a rule on people's ratings", None
    )
    exchanges: int = option("largest number of suggestions, each with a review", EXCHANGES)
    jury: str | None = option("file with the jury's decisions, beside the queue", None)
    readings: bool = option("--jury holds raters' readings of `automedeval prepare`; one of each case decides", False)
    waiting: str = option(
        "if cases wait for the jury: stop, leave_out their rows, or keep_old: keep the rows with the old verdicts",
        STOP,
        choices=list(WAITING),
    )
    wait: bool = option("end with exit status 1 where cases wait for the jury and --waiting is stop", False)
    tokenizer: str | None = option(
        "checkpoint to be trained, whose tokens are counted (default: lengths are not checked)", None
    )
    tokenizer_template: str | None = option(
        "Jinja file with a chat template, for a checkpoint without one; none: its own", None
    )
    max_length: int = option("rows with more tokens are dropped", 2048)
    dry_run: bool = option("count mistakes, tokens and cost; ask no model", False)

    def __post_init__(self) -> None:
        for name in ("cases", "rubrics"):
            setattr(self, name, comma_list(getattr(self, name)))
        check_least(self, 1, "exchanges", "max_length")
        check_least(self, 0, "tolerance")
        if self.readings and not self.jury:
            raise RecordError("--readings needs --jury FILE with the readings")
        if Path(self.output).resolve() == Path(self.dataset).resolve():
            raise RecordError(f"--output {self.output}: a round needs another folder than its data set")
        if bool(self.suggester) != bool(self.reviewer):
            raise RecordError("--suggester and --reviewer must name two models; without both the jury decides alone")


def main() -> None:
    """Find the mistakes, discuss them, take the jury's decisions on the rest, and write the round's data set."""
    args, books, chat_args = parse((IntrospectArguments, KnowledgeArguments, ChatArguments), __doc__)
    if args.suggester:
        books.check()
    dataset = read_dataset(args.dataset)
    rubrics = rubrics_with(args.rubrics)
    wanted = {row["case_id"] for row in dataset.training}
    cases = {case.id: case for path in args.cases for case in read_cases(path, blank=args.blank) if case.id in wanted}
    recorded = read_recorded(dataset.training, cases, rubrics, args.dataset)
    judge = read_judge(str(verdicts_file(args.verdicts)), recorded, args.judge_name)
    mistakes, lines = find_mistakes(recorded, judge, args.tolerance)
    this = Round(dataset, recorded, args.waiting)
    this.report(*lines)
    encoder = PromptEncoder.from_checkpoint(args.tokenizer, args.tokenizer_template) if args.tokenizer else None
    work = Path(f"{args.output.rstrip('/')}.discussion")
    queue, mistakes_by_case = work / "jury.jsonl", {each.case.id: each for each in recorded}
    with Journal(work / "discussion.jsonl") as journal:
        # The jury's decisions are read before any model is asked, so that faulty input fails at once.
        read_jury(args, queue, mistakes_by_case)
        discussions, names = [], {"suggester": "nobody", "reviewer": "nobody"}
        if args.suggester and mistakes:
            about = [dataset.statistics["fingerprint"], judge.name, judge.settings or ""]
            partners = partners_of(args, books, chat_args, about, mistakes)
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
            for chat in {id(each): each for each in (partners.suggester, partners.reviewer)}.values():
                print_notes(chat.notes())
            partners.refuse_unanswered(discussions)
            refuse_silence(discussions, names)
            this.report_discussions(discussions, names)
        elif args.dry_run:
            return
        # They are read again after the discussion: decisions made meanwhile count, and must not be overwritten.
        rulings, filled = read_jury(args, queue, mistakes_by_case)
        discussed, readings = {each.case_id: each for each in discussions}, None
        if args.readings:
            needed = [each.case_id for each in mistakes if each.case_id not in rulings]
            needed = [case_id for case_id in needed if case_id not in discussed or not discussed[case_id].consensus]
            drawn, readings = read_readings(
                args.jury, mistakes_by_case, needed, dataset.statistics["seed"], this.number
            )
            rulings = drawn | rulings
        this.decisions = decide(mistakes, discussed, rulings, journal)
        write_queue(queue, this.waiting, filled)
        this.write_revisions(work)
        this.report_decisions(rulings, readings)
        if this.waiting and args.waiting == STOP:
            print(
                f"{waits(this, queue)}: fill them in there, or decide on the physicians' page (docs/annotation.md) and "
                f"export into {work / DECIDED}; then run the same command again. To go on without the jury: --waiting "
                "leave_out or --waiting keep_old"
            )
            if args.wait:
                raise RecordError(f"{args.output} is not written before the jury has decided")
            return
        names["jury"] = "raters' readings" if args.readings else "the jury"
        write(this, (args, books, chat_args), encoder, judge, names)
    if this.waiting:
        print(f"{waits(this, queue)}; the same command takes their decisions")


def waits(this: Round, queue: Path) -> str:
    """Return how many cases wait for the jury, and where."""
    count = len(this.waiting)
    return f"{count:,} {'case waits' if count == 1 else 'cases wait'} for the jury in {queue}"


def read_jury(
    args: IntrospectArguments, queue: Path, mistakes: dict[str, Recorded]
) -> tuple[dict[str, Ruling], dict[str, dict]]:
    """Return the jury's decisions and their lines, by case id.

    They are read from the queue, the page's export beside it, and the file of --jury; of two on a case the later one counts.
    """
    rulings, filled = read_rulings(queue, mistakes) if queue.exists() else ({}, {})
    files = [file for file in [queue.parent / DECIDED / queue.name] if file.exists()]
    for file in files + [args.jury] * bool(args.jury and not args.readings):
        decisions, more = read_rulings(file, mistakes)
        rulings, filled = rulings | decisions, filled | {case_id: more[case_id] for case_id in decisions}
    return rulings, filled


def partners_of(
    args: IntrospectArguments,
    books: KnowledgeArguments,
    chat_args: ChatArguments,
    about: list[str],
    mistakes: list[Mistake],
) -> Partners:
    """Return both partners, with the suggesting model's reference books."""

    def partner(model: str, role: str) -> Any:
        kind, file = parse_model(model)
        if kind == "recording":
            return RecordedChat(file, "strong", books.knowledge if role == "suggestion" else "none", role)
        if kind == "ratings" and role == "review":
            rule = RuleOnRatings(file)
            rule.check(mistake.recorded.case for mistake in mistakes)
            return rule
        return chat_args.load(model, 0)

    kinds = [parse_model(model)[0] for model in (args.suggester, args.reviewer)]
    recorded = kinds[0] == "recording"
    suggester = partner(args.suggester, "suggestion")
    reviewer = partner(args.reviewer, "review") if recorded or args.reviewer != args.suggester else suggester
    if kinds == ["openai", "openai"]:
        reviewer.budget = suggester.budget  # --max_cost limits both together
    search, store = books.open(chat_args.device)
    return Partners(
        suggester,
        reviewer,
        partner(args.suggester, "revision") if recorded else None,
        search=search,
        questions=books.questions,
        exchanges=args.exchanges,
        shuffle="recording" not in kinds,  # they were made with the responses in the order of the case
        about=[*about, store] if store else about,
    )


def write(
    this: Round,
    groups: tuple[IntrospectArguments, KnowledgeArguments, ChatArguments],
    encoder: PromptEncoder | None,
    judge: RoundJudge,
    partners: dict[str, str],
) -> None:
    """Write the round's folder, and move it to its place."""
    args = groups[0]
    with new_dataset(args.output) as folder:
        splits, written = this.write(folder, encoder, args.max_length)
        if encoder is None:
            this.report("rows: no --tokenizer is given, so no length was checked")
        facts = this.dataset.statistics | card_facts(splits, written) | this.facts(judge, partners)
        facts |= {
            "folder": Path(args.output).name,
            "version": automedeval.__version__,
            "tokenizer": args.tokenizer and Path(args.tokenizer).name,
            "max_length": args.max_length,
        }
        write_card(folder, facts)
        record_run(folder / "run.json", *groups)
    print(f"instructions {facts['fingerprint']}: {args.output}")


if __name__ == "__main__":
    run(main)
