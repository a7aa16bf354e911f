"""The knowledge completion chain (paper, section 3.1, Algorithm 1): a teacher asks questions, gets passages, and judges.

Each case is one dialogue, and many dialogues run at once. A message of the teacher is

- a question, if it contains `[Question]: …` (or a line `Question: …?`) and no complete verdict after it;
- a verdict, if its last complete score line comes after every complete question;
- neither, which makes the verdict invalid, like a judge's answer that cannot be parsed.

`ended` records why a chain stopped asking; `valid` records whether it then gave a verdict:

- `verdict`: the teacher gave its verdict while it could still ask;
- `out_of_questions`: all rounds of questions were used, and the teacher was asked for its verdict;
- `repeated_question`: it repeated an earlier question, and was asked for its verdict;
- `invalid`: while it could still ask (or, without knowledge, at once) its message was neither question nor verdict.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from automedeval.judges.judge import Judge
from automedeval.judges.requests import Request, plan_requests
from automedeval.models.base import Dialogue, Prompt
from automedeval.records import REFERENCE, Case, RecordError, Response, Verdict, digest
from automedeval.records.thoughts import own_text
from automedeval.rubrics import Rubric
from automedeval.rubrics.prompts import chain_messages, template_fingerprint
from automedeval.rubrics.questions import Search, look_up, questions_of

ENDED = ("verdict", "out_of_questions", "repeated_question", "invalid")


@dataclass
class CompletionChain:
    """A teacher that may ask questions before it judges.

    Args:
        judge: the teacher's chat, of an endpoint or a recording, rubric, seed and name. Its `score_decoding` is "free": the
            scores are read from the teacher's text.
        teacher: "strong" or "weak" (paper: GPT-4, ChatGPT).
        search: questions → passages; None is the paper's ablation, in which the teacher judges without asking.
        questions: T of Algorithm 1, the largest number of rounds of questions.
        reference_as_response: show the reference as one more response.
        shuffle: show the responses in a seeded order; else in the case's order.
        store: fingerprint of the store and the search.
    """

    judge: Judge
    teacher: str
    search: Search | None = None
    questions: int = 3  # Paper: section 3.1 names no number
    reference_as_response: bool = False
    shuffle: bool = True
    store: str = ""

    def __post_init__(self) -> None:
        if self.rubric.grammar != "score_line":
            raise RecordError(f"{self.rubric.name}: a teacher needs a rubric with a score line")
        self.questions = self.questions if self.search else 0
        wording = template_fingerprint("completion_chain")
        settings = [self.judge.fingerprint, wording, self.teacher, self.questions, self.store]
        shown = [self.reference_as_response, self.shuffle, self.judge.seed]
        self.fingerprint = digest(settings + shown)

    @property
    def rubric(self) -> Rubric:
        return self.judge.wording

    def plan(self, case: Case) -> Request:
        """Return the one request that shows the responses of a case, with `reference_as_response` its reference as well.

        RecordError for more responses than the rubric shows at once, or no reference where one is to be shown.
        """
        original = None
        if self.reference_as_response:
            # Paper: the tuple has two responses and the answer, the figures show three doctors, the third a retrieved text.
            if case.reference is None or REFERENCE in case.models:
                raise RecordError(
                    f"case {case.id!r} has no reference, or a response called {REFERENCE!r}: --reference_as_response needs it"
                )
            original = case
            reference = Response(REFERENCE, case.reference)
            case = replace(case, responses=(*case.responses, reference))
        request, *others = plan_requests(case, self.rubric, seed=self.judge.seed)
        if others:
            most = self.rubric.max_responses
            raise RecordError(f"case {case.id!r}: a teacher sees {most} responses at most")
        # Paper: slots are permuted, or the judge learns that a slot is a model.
        slots = request.slots if self.shuffle else tuple(sorted(request.slots))
        return replace(request, slots=slots, original=original)

    def dialogue(self, request: Request) -> Dialogue:
        """Run Algorithm 1 on one case; yield its prompts, receive the answers, and return the verdict.

        The transcript is the last prompt and its answer.
        """
        rubric = self.rubric
        case = request.case
        label = f"{rubric.name}:{rubric.fingerprint}"
        texts = case.texts(request.slots)
        asked: list[tuple[str, Any]] = []
        knowledge = []
        usage = Counter[str]()
        seen = set[str]()
        ended = None
        may_ask = self.questions > 0
        for call in count(1):
            messages = chain_messages(rubric, case.question, texts, case.reference, asked, may_ask)
            answer = yield Prompt(messages, label=label, key=(case.id, call))
            usage.update(answer.usage)
            questions = questions_of(answer, rubric, len(texts))
            if not questions or not may_ask:
                break
            new, passages = look_up(self.search, questions, seen)
            if passages is None:
                ended = "repeated_question"
            else:
                knowledge.append({"query": "\n".join(new), "passages": passages})
                ended = "out_of_questions" if len(knowledge) == self.questions else None
            # Paper: the algorithm drops a case whose questions run out. Here the teacher is asked once more, for its verdict.
            may_ask = ended is None
            asked.append((own_text(answer.text), passages))
        transcript = list(messages)
        if answer.text:
            transcript.append({"role": "assistant", "content": answer.text})
        if questions:
            why = "the teacher asked a question instead of giving its verdict"
            answer = replace(answer, error=why)
        verdict = self.judge.verdict(request, answer)
        ended = ended or ("verdict" if verdict.valid else "invalid")
        return replace(
            verdict,
            usage=dict(usage),
            settings=self.fingerprint,
            teacher=self.teacher,
            knowledge=tuple(knowledge),
            extra={"rounds": call, "ended": ended, "transcript": transcript},
        )

    def verdicts(
        self, requests: Iterable[Request], done: Collection[tuple] = ()
    ) -> Iterator[Verdict]:
        """Judge the requests whose keys are not in `done`; yield their verdicts as they come (see `OpenAIChat.follow`)."""
        missing = (request for request in requests if request.key not in done)
        dialogues = ((request.key, self.dialogue(request)) for request in missing)
        chat: Any = self.judge.chat  # of an endpoint, or a recording
        return (verdict for _, verdict in chat.follow(dialogues))

    def dry_run(self, requests: Iterable[Request], done: Collection[tuple] = ()) -> str:
        """Count what a run would take at least: a chain makes one call, and at most one more than its questions."""
        missing = [request for request in requests if request.key not in done]
        first = [next(self.dialogue(request)) for request in missing]
        tokens = self.judge.chat.estimate(first)
        cases = len(missing)
        calls = f"{cases} to {cases * (self.questions + 1)} calls"
        return f"{cases} cases, {len(done)} judged already, {calls}, about {tokens:,} prompt tokens in the first ones"


def overview(verdicts: Sequence[Verdict], cases: int, new: int) -> str:
    """Summarise the chains of `cases` cases, `new` of them judged in this run: how they ended, calls, questions, tokens."""
    errors = Counter(verdict.error for verdict in verdicts if not verdict.valid)
    ended = Counter(verdict.extra["ended"] for verdict in verdicts)
    calls = sum(verdict.extra["rounds"] for verdict in verdicts)
    asked = sum(len(verdict.knowledge or ()) for verdict in verdicts)
    tokens = Counter[str]()
    for verdict in verdicts:
        tokens.update(verdict.usage)
    missing = cases - len(verdicts)
    invalid = errors.total()
    lines = [
        f"{cases:,} cases → {len(verdicts):,} verdicts ({new:,} new), {missing:,} missing",
        f"  {len(verdicts) - invalid:,} valid, {invalid:,} invalid",
        f"  ended: {', '.join(f'{name} {ended[name]:,}' for name in ENDED)}",
        f"  {calls:,} calls, {asked:,} questions looked up",
        f"  {tokens['prompt_tokens']:,} tokens read, {tokens['completion_tokens']:,} written",
    ]
    lines += [f"  invalid, {count:,}: {error}" for error, count in errors.most_common(8)]
    return "\n".join(lines)
