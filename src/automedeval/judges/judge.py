"""Judge cases by a rubric with any model that answers prompts, and load a judge of any kind by its name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from automedeval.judges.base import BaseJudge
from automedeval.judges.baseline import BaselineJudge
from automedeval.judges.chat_judge import ChatJudge, read_answer
from automedeval.judges.checklist import ChecklistJudge
from automedeval.judges.likelihood import LikelihoodJudge
from automedeval.judges.requests import Request, plan_apart, plan_requests
from automedeval.judges.small import PACKAGED as SMALL
from automedeval.judges.small import load_small_judge
from automedeval.metrics.embedding import EMBEDDINGS
from automedeval.metrics.lexical import Collection
from automedeval.models.arguments import ChatArguments, EncoderArguments, checked_model, parse_model
from automedeval.models.base import Answer, Prompt
from automedeval.models.constraints import UNSEEN, slot_odds
from automedeval.records import Case, RecordError, Verdict
from automedeval.records.journal import ALONE, Processes
from automedeval.rubrics import Rubric, read_rubric
from automedeval.rubrics.grammar import ParsedAnswer
from automedeval.rubrics.published import PACKAGED, rubric_of
from automedeval.rubrics.slots import by_response, choice_names

CRITERIA = "--judge MODEL or openai:MODEL with --rubric checklist"  # what reads the criteria of a case
_PLAN = ("orders", "seed", "runs", "baseline", "models")  # the options of `plan_requests`


class Judge(ChatJudge):
    """Judge by a rubric with a chat: `ChatJudge` has the arguments, and `load_judge` loads one by its name."""

    def estimate(self, requests: Sequence[Request]) -> tuple[int, float]:
        return self.chat.estimate([self.prompt(request) for request in requests])

    def prompt(self, request: Request, texts: Sequence[str] | None = None) -> Prompt:
        return self.render(request, self.wording, texts)

    def verdict(self, request: Request, answer: Answer, notes: dict[str, Any] | None = None) -> Verdict:
        slots, case = request.slots, request.case
        reading = read_answer(answer, self.wording, len(slots))
        values: dict[str, Any] = {"scores": None, "expected_scores": None, "choices": None}
        odds, unseen = self._odds(answer, reading)
        extra = dict(notes or {})
        if answer.truncated:
            extra["truncated"] = True
        if unseen > UNSEEN:
            extra["unseen_probability"] = round(unseen, 5)
        if answer.probabilities:
            extra["probabilities"] = [{word: round(p, 5) for word, p in odds.items()} for odds in answer.probabilities]
        if reading.scores:
            values["scores"] = by_response(reading.scores, slots, len(case.responses))
            if means := _expected(odds, reading):
                values["expected_scores"] = by_response(means, slots, len(case.responses))
        if reading.criterion_scores:
            values["criterion_scores"] = {
                name: list(by_response(scores, slots, len(case.responses)))
                for name, scores in reading.criterion_scores.items()
            }
        if reading.choices:
            names = {} if self.wording.in_words else choice_names(case.models, slots)
            values["choices"] = {name: names.get(choice, choice) for name, choice in reading.choices.items()}
        if reading.valid:
            self.chat.accepted = True
        rationale = reading.rationale if reading.valid else None
        values |= {"rationale": rationale, "usage": answer.usage, "raw": answer.text}
        return self.record(request, reading.error, extra, **values)

    def _odds(self, answer: Answer, reading: ParsedAnswer) -> tuple[Sequence[Mapping[str, float]] | None, float]:
        """Return the probability of each value of an answer, and what is unseen of it; None where it is not known.

        Of a text they are those of its scores. They are not known where numbers on the scale begin alike, as 1 and 10, and the
        tokens that tell them apart are not those of the text.
        """
        if answer.probabilities or not reading.spans or reading.scores is None or self.wording.scale is None:
            return answer.probabilities, answer.unseen
        low, high = self.wording.scale
        scale, of_slots = [str(value) for value in range(low, high + 1)], []
        for (start, _), score in zip(reading.spans, reading.scores):
            before = answer.text[:start].rstrip(" \t\r\n")
            odds = slot_odds(answer.tokens, answer.text, before, scale, str(score), None)
            if odds is None or sum(odds.shared.values()) > UNSEEN:
                return None, 0.0
            of_slots.append(odds.whole())
        return [odds.chances for odds in of_slots], max(odds.unseen for odds in of_slots)


def _expected(odds: Sequence[Mapping[str, float]] | None, reading: ParsedAnswer) -> list[float] | None:
    """Return the probability-weighted mean score of each slot, None without probabilities.

    Where an answer scores several criteria, it is the mean over these; of the scores where there are no probabilities.
    """
    if not odds:
        criteria = (reading.criterion_scores or {}).values()
        return [round(sum(scores) / len(scores), 6) for scores in zip(*criteria)] or None
    means = [sum(int(word) * p for word, p in each.items()) / sum(each.values()) for each in odds]
    count = len(reading.criterion_scores or "1")  # values of a slot, which follow one another
    return [round(sum(means[start : start + count]) / count, 6) for start in range(0, len(means), count)]


def load_judge(
    spec: str,
    rubric: Rubric | str | None = None,
    chat: ChatArguments | Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    cases: Iterable[Case] | None = None,
    processes: Processes = ALONE,
    encoder: EncoderArguments | str | None = None,
    **options: Any,
) -> BaseJudge:
    """Load the judge that a name stands for.

        judge = load_judge("models/SmolLM2-135M-Instruct", chat={"max_new_tokens": 160})
        judge = load_judge("openai:MODEL", "medical_pairwise", {"base_url": "http://localhost:8000/v1"}, orders="all")
        for verdict in judge(cases): ...

    RecordError: the model cannot be loaded, the judge cannot do what the options ask for, or its rubric or prompts differ from
    those that it was published with. RubricError: there is no such rubric.

    Args:
        spec: `MODEL` (a checkpoint's folder or Hub id) or `openai:MODEL` is a `Judge`, with a rubric of the mode checklist a
            `ChecklistJudge`. `likelihood:MODEL` is a `LikelihoodJudge`, `small` (the packaged one) or `small:FOLDER` a
            `SmallJudge`, `baseline:NAME` a `BaselineJudge`.
        rubric: a `Rubric`, a packaged rubric's id or a YAML file; see `judge_rubric`. Likelihoods and baselines use none.
        chat: how the model is loaded and asked: `ChatArguments`, or a dict of its fields.
        seed: of the orders, and of sampling.
        cases: what a baseline takes for the frequency of words; None takes the cases that are judged together.
        processes: those that share the endpoint's budget, and the reading of a checkpoint.
        encoder: of a small judge, or of a baseline that compares embeddings: `EncoderArguments`, a checkpoint's folder or Hub
            id.
        options: the other arguments of `Judge` and `ChecklistJudge`; `rationale`, `score_decoding` and `on_overlong` matter
            where they apply. `search` and `store`, the books, are for a small judge as well.
    """
    if unknown := options.keys() - {each.name for each in fields(ChecklistJudge)}:
        raise TypeError(f"load_judge() has no argument {min(unknown)!r}")
    rubric = read_rubric(rubric) if isinstance(rubric, str) else rubric
    planner(spec, rubric or read_rubric(PACKAGED), **options)  # faults of the options before a download
    rubric = judge_rubric(spec, rubric)
    planner(spec, rubric, **options)
    kind, model = parse_model(spec)
    named = {name: options[name] for name in ("models", "name") if name in options}
    books = {name: options[name] for name in ("search", "store") if name in options}
    chat = chat if isinstance(chat, ChatArguments) else ChatArguments(**{"batch_tokens": 0, **(chat or {})})
    encoder = encoder if isinstance(encoder, EncoderArguments) else EncoderArguments(encoder)
    if kind == "baseline":
        network = encoder.load(chat.device) if model in EMBEDDINGS else None
        return BaselineJudge(model, None if cases is None else Collection.of(cases), encoder=network, **named)
    if kind == "small":
        return load_small_judge(Path(model) if model else SMALL, rubric, encoder, chat.device, **named, **books)
    if kind == "likelihood":
        on_overlong = options.get("on_overlong", "error")
        return LikelihoodJudge(chat.load(model, seed, processes), on_overlong=on_overlong, **named)
    at_once = options.pop("criteria_at_once", 1)
    loaded = chat.load(spec, seed, processes)
    if rubric.mode == "checklist":
        return ChecklistJudge(loaded, rubric, seed=seed, criteria_at_once=at_once, **options)
    return Judge(loaded, rubric, seed=seed, **options)


def judge_rubric(spec: str, rubric: Rubric | str | None = None) -> Rubric:
    """Return the rubric by which the judge of a name judges: the given one, else the one that it was published with.

    A checkpoint that was published without a rubric, and an endpoint, judge by `automedeval`. RecordError: there is no such
    checkpoint; its rubric or prompts differ from those that it was published with; or the given rubric has its rubric's id and
    another wording. RubricError: there is no such rubric.
    """
    rubric = read_rubric(rubric) if isinstance(rubric, str) else rubric
    kind, model = checked_model(spec)
    return rubric_of(model, rubric) if kind == "checkpoint" else rubric or read_rubric(PACKAGED)


def planner(spec: str, rubric: Rubric, **options: Any) -> Callable[[Case], list[Request]]:
    """Return the `plan` of the judge that `load_judge` would make, without its model, which may take long to load.

    RecordError if the judge cannot do what the options ask for.
    """
    kind = parse_model(spec)[0]
    plan = {name: value for name, value in options.items() if name in _PLAN}
    one_order = plan.get("orders", "1") == "1" and not plan.get("baseline")
    if rubric.mode == "checklist":
        if not one_order:
            raise RecordError("a checklist shows each response by itself: no --orders and no --baseline")
        if kind not in ("checkpoint", "openai"):
            raise RecordError(
                f"--rubric {rubric.id}: --judge {spec} reads no criteria; a language model does, by {CRITERIA}"
            )
    if options.get("search") and kind not in ("checkpoint", "openai", "small"):
        raise RecordError(f"--judge {spec}: reads no books with this rubric: no --evidence")
    if kind in ("checkpoint", "openai"):
        return partial(plan_requests, rubric=rubric, **plan)
    if not one_order or plan.get("runs", 1) > 1:
        raise RecordError(f"--judge {spec}: sees each response once, by itself: no --orders, --runs or --baseline")
    if kind == "small" and not rubric.scale:
        raise RecordError(f"--rubric {rubric.id}: gives choices, and a small judge reads a scale")
    return partial(plan_apart, models=plan.get("models"))
