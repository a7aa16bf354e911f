"""Load a judge of any kind: by its name, by what is on this machine, or by a file of settings."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from automedeval.evidence.arguments import EvidenceArguments
from automedeval.judges.base import BaseJudge
from automedeval.judges.baseline import BaselineJudge
from automedeval.judges.chat_judge import Judge
from automedeval.judges.checklist import ChecklistJudge
from automedeval.judges.likelihood import LikelihoodJudge
from automedeval.judges.requests import Planner, plan_apart, plan_requests
from automedeval.judges.small import PACKAGED as SMALL
from automedeval.judges.small import load_small_judge
from automedeval.metrics.embedding import EMBEDDINGS
from automedeval.metrics.lexical import Collection
from automedeval.models.arguments import ChatArguments, EncoderArguments, checked_model, parse_model
from automedeval.records import Case, JsonObject, RecordError, option
from automedeval.records.command_line import parse
from automedeval.rubrics import Rubric, read_rubric
from automedeval.rubrics.published import PACKAGED, rubric_of

CRITERIA = (
    "--judge MODEL or openai:MODEL with --rubric checklist"  # what reads the criteria of a case
)
# The kinds of judges, see `parse_model`, that see each response once, by itself, and those of them that read no passages of a
# store. Any other kind is a language model: it reads any rubric, in every order and as often as wanted.
_APART = ("small", "likelihood", "baseline")
_WITHOUT_BOOKS = ("likelihood", "baseline")
GUIDED = "automedeval_guided"  # shows the reference
VARIABLE = "AUTOMEDEVAL_JUDGE"


def load_judge(
    spec: str,
    rubric: Rubric | str | None = None,
    chat: ChatArguments | Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    cases: Iterable[Case] | None = None,
    encoder: EncoderArguments | str | None = None,
    **options: Any,
) -> BaseJudge:
    """Load the judge that a name stands for.

        judge = load_judge("models/SmolLM2-135M-Instruct", chat={"max_new_tokens": 160})
        judge = load_judge("openai:MODEL", "medical_pairwise", {"base_url": "http://localhost:8000/v1"}, orders="all")
        for verdict in judge(cases): ...

    RecordError: the model cannot be loaded, the judge cannot do what the options ask for, or a fault of `judge_rubric`.

    Args:
        spec: `MODEL` (a checkpoint's folder or Hub id), `openai:MODEL` or `decision:MODEL` is a `Judge`, with a rubric of the
            mode checklist a `ChecklistJudge`. `likelihood:MODEL` is a `LikelihoodJudge`, `small` (the packaged one) or
            `small:FOLDER` a `SmallJudge`, `baseline:NAME` a `BaselineJudge`.
        rubric: a `Rubric`, a packaged rubric's id or a YAML file; see `judge_rubric`. Likelihoods and baselines use none.
        chat: how the model is loaded and asked: `ChatArguments`, or a dict of its fields.
        seed: of the orders, and of sampling.
        cases: a list, of which a baseline takes the frequency of words; None takes the cases that are judged together. The
            default rubric of a language model depends on them, see `judge_rubric`.
        encoder: of a small judge, or of a baseline that compares embeddings: `EncoderArguments`, a folder or Hub id.
        options: the other arguments of `Judge`, as far as they apply.
    """
    if unknown := options.keys() - {argument.name for argument in fields(Judge)}:
        raise TypeError(f"load_judge() has no argument {min(unknown)!r}")
    rubric = judge_rubric(spec, rubric, cases)
    planner(spec, rubric, **options)
    chat = chat if isinstance(chat, ChatArguments) else ChatArguments(**(chat or {}))
    encoder = encoder if isinstance(encoder, EncoderArguments) else EncoderArguments(encoder)
    kind, model = parse_model(spec)
    name = options.get("name")
    if kind == "small":
        folder = Path(model) if model else SMALL
        books = {key: options.get(key) for key in ("search", "store")}
        return load_small_judge(folder, rubric, encoder, chat.device, name=name, **books)
    if kind == "likelihood":
        return LikelihoodJudge(chat.load(model, seed), name=name)
    if kind == "baseline":
        collection = None if cases is None else Collection.of(cases)
        network = encoder.load(chat.device) if model in EMBEDDINGS else None
        return BaselineJudge(model, collection, encoder=network, name=name)
    language_model = chat.load(spec, seed)
    if not language_model.writes:
        options["rationale"] = False
    judge = ChecklistJudge if rubric.mode == "checklist" else Judge
    return judge(language_model, rubric, seed=seed, **options)


def judge_rubric(
    spec: str, rubric: Rubric | str | None = None, cases: Iterable[Case] | None = None
) -> Rubric:
    """Return the rubric by which the judge of a name judges: the given one, else its own (`rubric_of`), else a default.

    The default is `automedeval`, and of a language model `automedeval_guided` where `cases` are given that all have references.

    RecordError: a fault of `rubric_of`, no such checkpoint, or no such rubric.
    """
    rubric = read_rubric(rubric) if isinstance(rubric, str) else rubric
    kind, model = checked_model(spec)
    own = rubric_of(model, rubric) if kind == "checkpoint" else rubric
    if own is not None:
        return own
    if kind in _APART or cases is None:
        return read_rubric(PACKAGED)
    return read_rubric(GUIDED if all(case.reference for case in cases) else PACKAGED)


def planner(spec: str, rubric: Rubric, **options: Any) -> Planner:
    """Return the `plan` of the judge that `load_judge` would make, without its model; RecordError: it cannot do the options.

    They are those of `plan_requests`; `load_judge`, which needs no plan, has all of its own checked.
    """
    kind = parse_model(spec)[0]
    is_checklist = rubric.mode == "checklist"
    is_apart = kind in _APART
    fault = None
    if options.get("search") and kind in _WITHOUT_BOOKS:
        fault = "reads no books: no --evidence"
    elif is_checklist and is_apart:
        fault = f"reads no criteria; a language model does, by {CRITERIA}"
    elif kind == "small" and not rubric.scale:
        fault = f"reads a scale, and --rubric {rubric.id} gives choices"
    elif is_checklist or is_apart:
        if options.get("orders", "1") != "1" or options.get("baseline"):
            fault = "sees each response by itself: no --orders and no --baseline"
        elif not is_checklist and options.get("runs", 1) > 1:
            fault = "says the same each time: no --runs"
    if fault:
        raise RecordError(f"--judge {spec}: {fault}")
    return plan_apart if is_apart else partial(plan_requests, rubric=rubric, **options)


def references_note(judge: BaseJudge, cases: Iterable[Case]) -> list[str]:
    """Return a line if cases have references, and the judge does not read them."""
    if judge.reads_reference or not any(case.reference for case in cases):
        return []
    hint = isinstance(judge, Judge) and judge.wording.id == PACKAGED
    shows = f"; --rubric {GUIDED} shows it to the model" if hint else ""
    return [f"reference: not read by this judge{shows}"]


def default_judge() -> str:
    """Return the name of the judge where none is given: what AUTOMEDEVAL_JUDGE says, else the small one."""
    return os.environ.get(VARIABLE) or "small"


@dataclass(kw_only=True)
class AskingArguments:
    """By which rubric a judge judges, and what it writes: the base of the arguments of programs that ask one."""

    rubric: str | None = option(
        "a packaged rubric, or the path of your own .yaml; default: the one that the judge was trained for, "
        "else automedeval, or automedeval_guided to judge cases that all have references",
        None,
    )
    rationale: bool = option("false asks for scores or choices alone", True)
    score_decoding: str | None = option(
        "constrained, by default of a checkpoint: it chooses each score among the allowed values, the likeliest one or "
        "with --temperature a sampled one, and an endpoint is asked for each value once more, which gives expected "
        "scores; free, by default of an endpoint: scores are parsed from the text that the judge writes",
        None,
        choices=["constrained", "free"],
    )
    judge_name: str | None = option("name that verdicts record; default: the model's", None)


@dataclass
class JudgeSettings(EvidenceArguments):
    """Which judge gives the scores, and how."""

    judge: str = option("the judge, named as for automedeval judge", "small")
    rubric: str | None = option(
        "a rubric with a scale, packaged or a .yaml; default: as for automedeval judge", None
    )
    rationale: bool = option("ask the judge for a rationale as well; slower", False)


def load_by_settings(values: JsonObject) -> BaseJudge:
    """Load the judge that settings name: those of `JudgeSettings`, `ChatArguments` and `EncoderArguments`.

    `config` names a YAML file of them, whose values the others override. RecordError if the judge or its books cannot be
    loaded, or it gives no scores.
    """
    words = [f"--{name}={value}" for name, value in values.items() if value is not None]
    kinds = (JudgeSettings, EncoderArguments, ChatArguments)
    settings, encoder, chat = parse(kinds, __doc__, words)
    judge = load_judge(
        settings.judge, settings.rubric, chat, encoder=encoder, rationale=settings.rationale,
        **settings.books(encoder, chat.device),
    )  # fmt: skip
    if judge.wording and judge.wording.scale is None:
        raise RecordError(
            f"judge {settings.judge}: the rubric {judge.rubric_name} gives choices, and scores are needed"
        )
    return judge
