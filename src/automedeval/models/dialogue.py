"""Lead many dialogues with one chat at once."""

from collections.abc import Iterator, Sequence
from typing import Any

from automedeval.models.base import Answer, Chat, Dialogue

WINDOW = 64  # cases whose steps a checkpoint answers in the same batches


def conclude(dialogue: Dialogue, answer: Answer) -> Any:
    """Send the answer to the first and only prompt of a dialogue; return what came of it."""
    next(dialogue)
    try:
        dialogue.send(answer)
    except StopIteration as end:
        return end.value
    raise RuntimeError("the dialogue goes on")


def follow_in_rounds(chat: Chat, dialogues: Sequence[tuple[Any, Dialogue]]) -> Iterator[tuple[Any, Any]]:
    """Lead dialogues with a chat that answers in batches: a round takes one prompt of each; yield (key, what it returned).

    A prompt beyond the context window is answered with that error.
    """
    waiting = [(key, dialogue, next(dialogue)) for key, dialogue in dialogues]
    while waiting:
        prompts = [prompt for _, _, prompt in waiting]
        answers = {
            index: Answer(error=f"the prompt is {over} tokens longer than the context window")
            for index, over in enumerate(chat.overflow(prompts))
            if over > 0
        }
        fitting = [index for index in range(len(prompts)) if index not in answers]
        answers |= {fitting[place]: answer for place, answer in chat.answer([prompts[index] for index in fitting])}
        going_on = []
        for index, (key, dialogue, _) in enumerate(waiting):
            try:
                going_on.append((key, dialogue, dialogue.send(answers[index])))
            except StopIteration as end:
                yield key, end.value
        waiting = going_on
