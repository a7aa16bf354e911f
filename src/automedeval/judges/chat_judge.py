"""Judge by a rubric with any model that answers prompts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from heapq import nlargest
from itertools import chain
from operator import attrgetter
from typing import Any

from automedeval.evidence.run import Evidence
from automedeval.judges.base import BaseJudge, windows_of
from automedeval.judges.requests import Request, plan_requests
from automedeval.metrics.embedding import pieces
from automedeval.models.base import Answer, Chat, Dialogue, Prompt, Results
from automedeval.models.questions import odds_of
from automedeval.records import Case, JsonObject, Verdict, digest, question_text
from automedeval.records.package_data import packaged
from automedeval.records.text import readable
from automedeval.records.types import as_list, by_response
from automedeval.rubrics import Rubric, read_rubric
from automedeval.rubrics.grammar import (
    ParsedAnswer,
    answer_parts,
    parse_verdict,
    reading_from_values,
)
from automedeval.rubrics.prompts import judge_messages, template_fingerprint
from automedeval.rubrics.questions import Search
from automedeval.rubrics.slots import choice_names

QUESTION = packaged("judges", "questions")["value"]
LABEL = f"value@{QUESTION['version']}"
WORDING = QUESTION["wording"].strip()
PASSAGES = 2  # of books, that are shown for the question and for each response


def read_answer(answer: Answer, rubric: Rubric, slots: int) -> ParsedAnswer:
    """Return what an answer says by a rubric of the responses in so many slots, or why it cannot be read."""
    if answer.error:
        return ParsedAnswer(False, answer.error)
    if answer.values is not None:
        return reading_from_values(list(answer.values), rubric, answer.free or None)
    return parse_verdict(answer.text, rubric, slots, truncated=answer.truncated)


@dataclass
class Judge(BaseJudge):
    """Judge by a rubric with a chat; `load_judge` loads one by its name.

    Args:
        rubric: a `Rubric`, a packaged rubric's id or the path of a YAML file.
        rationale: False asks for scores or choices alone.
        score_decoding: "free" parses what the model writes. "constrained" fixes the form of a checkpoint's answer, and chooses
            each score among the allowed values; an endpoint is asked for each value once more, as a typed question, after the
            text that is parsed: its probabilities give expected scores. None: constrained for a checkpoint, else free.
        orders, seed, runs, baseline: see `plan_requests`.
        name: what verdicts record as their judge; by default the chat's name.
        search, store: finds passages of books, and its fingerprint; those nearest to the question and to the responses stand
            in the prompt, and in the verdict's `knowledge`.
    """

    wording: Rubric = field(init=False, repr=False)
    chat: Chat
    rubric: Rubric | str = "automedeval"
    rationale: bool = True
    score_decoding: str | None = None
    orders: str = "1"
    seed: int = 0
    runs: int = 1
    baseline: str | None = None
    name: str | None = None
    search: Search | None = None
    store: str = ""

    def __post_init__(self) -> None:
        self.wording = read_rubric(self.rubric) if isinstance(self.rubric, str) else self.rubric
        self.name = self.name or self.chat.name
        self.rubric_name = self.wording.name
        self.rationale = self.rationale and self.wording.rationale
        self.score_decoding = self.score_decoding or (
            "constrained" if self.chat.constrains else "free"
        )
        self._found = lru_cache(maxsize=4096)(self._look_up)

    @cached_property
    def fingerprint(self) -> str:
        settings: list[Any] = [self.chat.fingerprint, self.wording.fingerprint, self.rationale]
        settings += [self.score_decoding, "error"]  # of prompts that are too long
        if self.search:
            settings += [self.store, template_fingerprint("completion_chain"), PASSAGES]
        if self.asks:
            settings += [LABEL, WORDING]
        return digest(settings)

    @property
    def read_by(self) -> Rubric:
        """Return the rubric by which the answer to a prompt is read."""
        return self.wording

    @property
    def asks(self) -> bool:
        """Return whether an endpoint is asked for each value after its text."""
        return self.score_decoding == "constrained" and not self.chat.constrains

    def plan(self, case: Case) -> list[Request]:
        return list(
            plan_requests(case, self.wording, self.orders, self.seed, self.runs, self.baseline)
        )

    def estimate(self, requests: Sequence[Request]) -> int:
        prompts: list[Prompt] = []
        for request in requests:
            prompts += as_list(self.prompt(request))
        if self.asks:  # the longest questions that may follow each
            longest = Answer("x" * self.chat.max_new_tokens)
            prompts += chain.from_iterable([self._questions(prompt, longest) for prompt in prompts])
        return self.chat.estimate(prompts)

    def _questions(self, prompt: Prompt, answer: Answer) -> list[Prompt]:
        """Return a typed question for each value of an answer."""
        before = [*prompt.messages, {"role": "assistant", "content": answer.text}]
        questions = []
        for slot in prompt.slots:
            text = WORDING.format(slot=slot.name, options=", ".join(slot.values))
            messages = [*before, {"role": "user", "content": text}]
            questions.append(Prompt(messages, label=LABEL, options=slot.values))
        return questions

    def answer(self, prompts: Sequence[Any], wanted: Sequence[bool]) -> Results:
        chat: Any = self.chat
        if self.asks:
            return chat.answer(prompts, wanted, self._with_odds)
        return chat.answer(prompts, wanted)

    def _with_odds(self, prompt: Prompt) -> Dialogue:
        """Ask a prompt, then for each value of its answer; the answer has their probabilities, if all of them are told."""
        answer = yield prompt
        slots = len({slot.name.partition(",")[0] for slot in prompt.slots})
        if not read_answer(answer, self.read_by, slots).valid:
            return answer
        usage = Counter(answer.usage)
        odds = list[dict[str, float]]()
        for question in self._questions(prompt, answer):
            reply = yield question
            usage.update(reply.usage)
            odds.append(odds_of(reply, question.options or ()) or {})
        return replace(answer, probabilities=tuple(odds) if all(odds) else None, usage=dict(usage))

    def prompt(self, request: Request) -> Any:
        return self.render(request, self.wording)

    def render(self, request: Request, rubric: Rubric) -> Prompt:
        """Return the prompt of a request by a rubric."""
        case = request.case
        texts = case.texts(request.slots)
        rationale = self.rationale if request.rationale is None else request.rationale
        passages = None
        if self.search:
            found = chain.from_iterable(self._found_on(request).values())
            passages = list({passage.id: passage for passage in found}.values())
        messages = judge_messages(rubric, case.question, texts, case.reference, rationale, passages)
        constrained = self.score_decoding == "constrained"
        parts = tuple(answer_parts(rubric, len(texts), rationale)) if constrained else None
        return Prompt(
            messages, parts, request.run, f"{self.rubric_name}:{self.wording.fingerprint}"
        )

    def _found_on(self, request: Request) -> dict[str, list[Any]]:
        """Return the passages that books have on the question and on each response that is shown, by "question" and model.

        They do not depend on the order of the responses.
        """
        # Paper: the teacher asks for knowledge (Algorithm 1). A judge is shown it at once, and asks nothing.
        case = request.case
        found = {"question": self._found(question_text(case.question))}
        for index in sorted(request.slots):
            found[case.models[index]] = self._found(case.responses[index].text)
        return found

    def _look_up(self, text: str) -> list[Any]:
        """Return the passages that are nearest to any piece of a text: an encoder reads no more than a piece of it."""
        assert self.search is not None
        hits = chain.from_iterable(self.search(pieces(readable(text))))
        best = {hit.id: hit for hit in sorted(hits, key=attrgetter("score"))}
        return nlargest(PASSAGES, best.values(), key=attrgetter("score"))

    def passages_on(self, request: Request, index: int) -> list[Evidence]:
        found = self._found_on(request)
        passages = found["question"] + found[request.case.models[index]]
        return list(dict.fromkeys(Evidence(passage.text, passage.book) for passage in passages))

    def record(self, request: Request, error: str | None, **values: Any) -> Verdict:
        if self.search:
            values["knowledge"] = tuple(
                {"query": query, "passages": [passage.to_dict() for passage in passages]}
                for query, passages in self._found_on(request).items()
            )
        return super().record(request, error, **values)

    def is_cut_off(self, answer: Answer, reading: ParsedAnswer) -> bool:
        """Return whether the token limit cut off what counts: the scores of a text that was read stand behind its rationale."""
        goes_on = answer.values is not None or self.wording.grammar == "score_first"
        return answer.truncated and (goes_on or not reading.valid)

    def verdict(self, request: Request, answer: Answer) -> Verdict:
        slots = request.slots
        case = request.case
        reading = read_answer(answer, self.wording, len(slots))
        values: JsonObject = {
            "rationale": reading.rationale,
            "usage": answer.usage,
            "raw": answer.text,
            "truncated": self.is_cut_off(answer, reading),
        }
        count = len(case.responses)
        if reading.scores:
            values["scores"] = by_response(reading.scores, slots, count)
            if means := _expected(answer.probabilities, reading):
                values["expected_scores"] = by_response(means, slots, count)
        if reading.criterion_scores:
            values["criterion_scores"] = {
                name: list(by_response(scores, slots, count))
                for name, scores in reading.criterion_scores.items()
            }
        if reading.choices:
            names = {} if self.wording.in_words else choice_names(case.models, slots)
            values["choices"] = {
                name: names.get(choice, choice) for name, choice in reading.choices.items()
            }
        if answer.probabilities:
            rounded = [
                {word: round(chance, 5) for word, chance in odds.items()}
                for odds in answer.probabilities
            ]
            values["extra"] = {"probabilities": rounded}
        return self.record(request, reading.error, **values)


def _expected(
    odds: Sequence[Mapping[str, float]] | None, reading: ParsedAnswer
) -> list[float] | None:
    """Return the probability-weighted mean score of each slot, None without probabilities.

    Where an answer scores several criteria, it is the mean over these; of the scores where there are no probabilities.
    """
    by_criterion = reading.criterion_scores or {}
    by_slot: list[Sequence[float]] = list(zip(*by_criterion.values()))
    if odds:
        means = [_mean(chances) for chances in odds]
        count = len(by_criterion) or 1  # values of a slot, which follow one another
        by_slot = list(windows_of(means, count))
    return [round(sum(values) / len(values), 6) for values in by_slot] or None


def _mean(chances: Mapping[str, float]) -> float:
    return sum(int(word) * chance for word, chance in chances.items()) / sum(chances.values())
