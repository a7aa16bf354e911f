"""The knowledge completion chain (paper, section 3.1, Algorithm 1): a teacher asks, the books answer, the teacher judges.

One case is one dialogue: its steps follow one another, and many cases are under way at once. A message of the teacher is

- a question, where it holds `[Question]: …` (or a line `Question: …?`) and no complete verdict after it;
- a verdict, where its last complete score line comes after every complete question;
- neither, which makes the verdict invalid, as a judge's answer that cannot be read.

`ended` says why a chain asked no more; whether it then gave its verdict is what `valid` says:

- `verdict`: the teacher gave its verdict while it was free to ask;
- `out_of_questions`: all questions were used up, and the teacher was told to give its verdict;
- `repeated_question`: it asked again what it had asked before, and was told to give its verdict;
- `invalid`: while it was free to ask (or, without knowledge, from the start), its message was neither.
"""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from automedeval.judges.judge import Judge
from automedeval.judges.requests import Request, plan_requests
from automedeval.models.base import Answer, Dialogue, Prompt, own_text
from automedeval.models.dialogue import WINDOW, follow_in_rounds
from automedeval.records import REFERENCE, Case, RecordError, Response, Verdict
from automedeval.rubrics.grammar import answer_parts, parse_verdict
from automedeval.rubrics.misattribution import misattributions
from automedeval.rubrics.prompts import chain_fingerprint, chain_messages
from automedeval.rubrics.questions import Search, normalised, questions_of

if TYPE_CHECKING:
    from automedeval.distillation.books import Passage


ENDED = ("verdict", "out_of_questions", "repeated_question", "invalid")


@dataclass
class CompletionChain:
    """A teacher that may ask before it judges.

    Args:
        judge: the teacher's chat, rubric, seed and name, and the models whose responses are shown; `on_overlong` does not
            matter here: a prompt that has grown beyond the context window is an invalid verdict. With `score_decoding`
            "constrained", which only checkpoints can, the scores of the last call are chosen among allowed values.
        teacher: "strong" or "weak" (paper: GPT-4, ChatGPT).
        search: questions in, passages out; None is the paper's ablation: the teacher judges without asking.
        questions: T of Algorithm 1, the most rounds of questions.
        reference_as_response: show the reference as one more response.
        shuffle: show the responses in a seeded order; else in the case's.
        store: fingerprint of what is searched, and how.
    """

    judge: Judge
    teacher: str
    search: Search | None = None
    questions: int = 3  # Paper: section 3.1 names no number
    reference_as_response: bool = False
    shuffle: bool = True
    store: str = ""

    def __post_init__(self) -> None:
        if self.judge.rubric.grammar != "score_line":
            raise RecordError(f"{self.judge.rubric.name}: a teacher needs a rubric with a score line")
        self.questions = self.questions if self.search else 0
        settings = [self.judge.fingerprint, chain_fingerprint(), self.teacher, self.questions, self.store]
        settings += [self.reference_as_response, self.shuffle, self.judge.seed, self.judge.models]
        self.fingerprint = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]

    def plan(self, case: Case) -> Request:
        """Return the one request that shows the responses of a case, and its reference among them where that is wanted.

        Raises:
            RecordError: more responses than the rubric shows at once, or no reference where one is to be shown.
        """
        models = self.judge.models
        if self.reference_as_response:
            # Paper: the tuple has two responses and the answer, the figures show three doctors, the third a retrieved text.
            if case.reference is None or REFERENCE in case.models:
                problem = "has no reference" if case.reference is None else f"has a response of {REFERENCE!r} already"
                raise RecordError(f"case {case.id!r} {problem}: --reference_as_response cannot show it")
            models = [*(case.models if models is None else models), REFERENCE]
            case = replace(case, responses=(*case.responses, Response(REFERENCE, case.reference)))
        requests = plan_requests(case, self.judge.rubric, seed=self.judge.seed, models=models)
        if len(requests) != 1:
            shown, most = len(case.models if models is None else models), self.judge.rubric.max_responses
            raise RecordError(
                f"case {case.id!r} has {shown} responses to show, and a teacher sees {most} at most: choose them by --models"
            )
        # Paper: slots are permuted, or the judge learns that a slot is a model.
        return requests[0] if self.shuffle else replace(requests[0], slots=tuple(sorted(requests[0].slots)))

    def dialogue(self, request: Request) -> Dialogue:
        """Follow Algorithm 1 through one case; yield its prompts, and return its verdict.

        Its transcript is what the last prompt held, and the answer to it.
        """
        rubric, case = self.judge.rubric, request.case
        texts = [case.responses[index].text for index in request.slots]
        asked: list[tuple[str, list[Passage] | None]] = []
        knowledge: list[dict[str, Any]] = []
        usage, seen = Counter(), set()
        ended, may_ask = None, self.questions > 0
        constrained = self.judge.score_decoding == "constrained"
        for call in itertools.count(1):
            messages = chain_messages(rubric, case.question, texts, case.reference, asked, may_ask)
            laid_down = constrained and not may_ask
            parts = tuple(answer_parts(rubric, len(texts))) if laid_down else None
            answer = yield Prompt(messages, parts, label=f"{rubric.name}:{rubric.fingerprint}", key=(case.id, call))
            usage.update(answer.usage)
            questions = [] if laid_down else questions_of(answer, rubric, len(texts), may_ask)
            if constrained and may_ask and not questions and not self._judged(answer, len(texts)):
                may_ask = False  # it neither asked nor judged: its verdict is laid down for it
                continue
            if not questions or not may_ask:
                break
            new = [question for question in questions if normalised(question) not in seen]
            seen.update(map(normalised, new))
            if new:
                passages = self._find(new)
                knowledge.append({"query": "\n".join(new), "passages": [_record(passage) for passage in passages]})
            else:
                passages, ended = None, "repeated_question"
            if len(knowledge) == self.questions:
                ended = ended or "out_of_questions"
            # Paper: the algorithm drops a case whose questions run out. Here the teacher is asked once more, for its verdict.
            may_ask = ended is None
            asked.append((own_text(answer.text), passages))
        transcript = [*messages, {"role": "assistant", "content": answer.text}] if answer.text else messages
        if questions:
            answer = replace(answer, error="the teacher asks, although it was told to give its verdict")
        verdict = self.judge.verdict(request, answer, {"settings": self.fingerprint})
        verdict.extra.update(
            case_digest=self._digest(case),
            teacher=self.teacher,
            knowledge=knowledge,
            rounds=call,
            ended=ended or ("verdict" if verdict.valid else "invalid"),
            transcript=transcript,
            # Where a sentence credits a doctor with another's words, physicians look first (paper, section 3.1).
            misattributions=[asdict(mark) for mark in misattributions(case, verdict)] if verdict.rationale else [],
        )
        return replace(verdict, usage=dict(usage))

    def verdicts(self, requests: Iterable[Request], done: Collection[tuple] = ()) -> Iterator[Verdict]:
        """Judge the requests whose keys are not `done`; yield their verdicts as they come.

        An endpoint leads as many dialogues at once as it takes requests. A checkpoint answers the steps of a window of cases
        in batches; a window of which anything is missing is led as a whole, so that batches, and with them the last bits of
        what a network computes, are the same however often a run was interrupted.
        """
        chat = self.judge.chat
        if not chat.constrains:
            missing = ((request.key, self.dialogue(request)) for request in requests if request.key not in done)
            for _, verdict in chat.follow(missing):
                yield verdict
            return
        requests = iter(requests)
        while window := list(itertools.islice(requests, WINDOW)):
            if all(request.key in done for request in window):
                continue
            for key, verdict in follow_in_rounds(chat, [(request.key, self.dialogue(request)) for request in window]):
                if key not in done:
                    yield verdict

    def _judged(self, answer: Answer, slots: int) -> bool:
        text = own_text(answer.text)
        return bool(answer.error) or parse_verdict(text, self.judge.rubric, slots, truncated=answer.truncated).valid

    def _find(self, questions: list[str]) -> "list[Passage]":
        """Return the passages of all questions of a message, none twice."""
        return list({passage.id: passage for found in self.search(questions) for passage in found}.values())

    def _digest(self, case: Case) -> str:
        """Return the digest of the case as its file has it, without the reference among the responses."""
        return replace(case, responses=case.responses[:-1]).digest if self.reference_as_response else case.digest


def _record(passage: "Passage") -> dict[str, Any]:
    names = ("id", "book", "kind", "section", "page")
    # Beyond four digits a score depends on which other questions were embedded in the same batch.
    return {name: getattr(passage, name) for name in names} | {"score": round(passage.score, 4), "text": passage.text}


def overview(verdicts: Iterable[Verdict], cases: int, new: int) -> str:
    """Lay out how the chains of `cases` cases ended, `new` of them in this run: counts, calls, questions and tokens."""
    ended, calls, errors, tokens = Counter(), Counter(), Counter(), Counter()
    valid = questions = passages = marked = 0
    for verdict in verdicts:
        chain = verdict.extra
        ended[chain["ended"]] += 1
        calls[chain["rounds"]] += 1
        tokens.update(verdict.usage)
        valid += verdict.valid
        marked += bool(chain.get("misattributions"))
        questions += len(chain["knowledge"])
        passages += sum(len(found["passages"]) for found in chain["knowledge"])
        if not verdict.valid:
            errors[verdict.error] += 1
    total = ended.total()
    there = ", ".join(f"{name} {ended[name]:,}" for name in ENDED)
    spread = ", ".join(f"{number} call{'s' * (number > 1)}: {count:,}" for number, count in sorted(calls.items()))
    lines = [
        f"{cases:,} cases → {total:,} verdicts ({new:,} new), {cases - total:,} missing",
        f"  {total:,} verdicts → {valid:,} valid, {total - valid:,} invalid; valid rate {valid / total:.3f}"
        if total
        else "",
        f"  ended: {there}",
        f"  {spread}" if spread else "",
        f"  {questions:,} questions asked and {passages:,} passages found",
        f"  {marked:,} rationales seem to credit a doctor with another's words: for physicians to see first"
        if marked
        else "",
        *(f"  invalid, {count:,}: {error}" for error, count in errors.most_common(8)),
        f"  tokens: {tokens['prompt_tokens']:,} read, {tokens['completion_tokens']:,} written",
    ]
    return "\n".join(filter(None, lines))
