"""Take a reasoning model's thoughts out of its answer: a patient does not read them."""

import re
from typing import Any

_TAGS = r"(?:\w{1,20}[:_])?(?:think(?:ing)?(?:_\w+)?|thoughts?)|reasoning(?:_content)?|reflection|scratchpad|inner_monologue"
# Where thoughts begin and end: DeepSeek and Qwen, Mistral, Kimi, OpenThoughts, Cohere, MedGemma, gpt-oss, HuatuoGPT-o1,
# Apertus, Gemma 4, s1, Open WebUI, ollama.
_OPEN = (
    rf"(?<!`)(?:<|&lt;)(?:{_TAGS})(?: [^<>\n]{{0,80}})?(?:>|&gt;)|\[THINK\]|◁think▷|<unused94>|"
    r"<\|begin_of_thought\|>|<\|START_THINKING\|>|<\|inner_prefix\|>|<\|channel>thought\b|<\|im_start\|>think\b|"
    r"<details type=.reasoning.[^<>\n]{0,80}>|\AThinking\.\.\.\n|\Aanalysis(?=[\s\S]+assistantfinal)|"
    r"(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary)\b[^<\n]{0,40}(?:<\|message\|>)?|\A\s*## Thinking[ \t]*\n"
)
_CLOSE = (
    rf"(?:<|&lt;)/(?:{_TAGS})(?:>|&gt;)|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|<\|END_THINKING\|>|<unused95>|"
    r"<\|inner_suffix\|>|<channel\|>|<\|im_start\|>answer\b|(?P<pair></details>|^## Final Response[ \t]*$)|"
    r"^\.\.\.done thinking\.[ \t]*$|assistantfinal|(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>"
)
_MARK = re.compile(rf"(?P<open>{_OPEN})|(?:{_CLOSE})", re.I | re.M)
# What such models write around the answer that follows.
_AROUND = re.compile(
    r"</?(?:answer|final_answer|solution|response|output)>|<\|(?:begin|end)_of_(?:box|solution)\|>|"
    r"<\|(?:START|END)_RESPONSE\|>|<\|(?:end|return)\|>",
    re.I,
)


def without_thoughts(text: str) -> str:
    """Return an answer without thoughts, the same text if it has none; nothing of it if it is one unfinished thought.

    Some chat templates open the thought in the prompt, so that the text has only the end of it.
    """
    seen = text.casefold()
    if not any(sign in seen for sign in ("<", "&lt;", "think", "assistantfinal")):  # every mark that counts has one
        return text
    kept: list[str] = []
    position, inside = 0, False
    for mark in _MARK.finditer(text):
        if mark["pair"] and not inside:
            continue  # of a part that a reader may open, or a heading of the answer
        if mark["open"] is None:
            kept = kept if inside else []
            inside, position = False, mark.end()
        elif not inside:
            kept.append(text[position : mark.start()])
            inside = True
    if not (kept or position):
        return text
    return _AROUND.sub("", "".join(kept + [text[position:]] * (not inside))).strip()


def count_thoughts(case: Any) -> int:
    """Return how many answers of a case held thoughts when it was read."""
    return sum("thoughts" in response.extra for response in case.responses)


def note_on_thoughts(count: int) -> list[str]:
    """Return a line that tells of so many answers, none of 0."""
    return [f"{count:,} answers held a model's thoughts, which are removed"] if count else []
