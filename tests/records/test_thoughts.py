"""Thoughts of reasoning models in candidates' answers."""

import json
from pathlib import Path

import pytest
from programs import run_command

from automedeval import Case

ANSWER = "No. Skip the missed dose."


@pytest.mark.parametrize(
    "text",
    [
        ANSWER,
        f"<think>\nTwo pills? Wait, no.\n</think>\n\n{ANSWER}",
        f"Two pills? Wait, no.\n</think>\n{ANSWER}",
        f"<THINKING>Two.</THINKING> {ANSWER}",
        f"[THINK]Two.[/THINK]{ANSWER}",
        f"◁think▷Two.◁/think▷{ANSWER}",
        f"<reasoning>Two.</reasoning>\n<answer>{ANSWER}</answer>",
        f"<|begin_of_thought|>Two.<|end_of_thought|>\n<|begin_of_solution|>{ANSWER}<|end_of_solution|>",
        f"<unused94>thought\nTwo.<unused95>{ANSWER}",
        f"<|channel|>analysis<|message|>Two.<|end|><|start|>assistant<|channel|>final<|message|>{ANSWER}<|return|>",
        f"## Thinking\n\nTwo pills?\n\n## Final Response\n\n{ANSWER}",
        "No. <think>Two?</think>Skip the missed dose.",
        f"{ANSWER}\n<think>And if she took two? I should",
        f"<think>a</think><think>b</think>{ANSWER}",
        f"<longcat_think>Two.</longcat_think>{ANSWER}",
        f"<chain_of_thought>Two.</chain_of_thought>{ANSWER}",
        f"&lt;think&gt;Two?&lt;/think&gt;{ANSWER}",
        f"<|inner_prefix|>Two.<|inner_suffix|>{ANSWER}",
        f"<|channel>thought\nTwo.<channel|>{ANSWER}",
        f"<|im_start|>think\nTwo.\n<|im_start|>answer\n{ANSWER}",
        f"analysisTwo pills? No.assistantfinal{ANSWER}",
        f"Thinking...\nTwo?\n...done thinking.\n\n{ANSWER}",
        f'<details type="reasoning" done="true">\n<summary>Thought</summary>\nTwo?</details>\n{ANSWER}',
        f"<Thought>Two.</Thought>\n<Output>{ANSWER}</Output>",
        f"<think>Two.</think><|begin_of_box|>{ANSWER}<|end_of_box|>",
    ],
)
def test_an_answer_is_read_without_its_thoughts(text: str) -> None:
    turns = [{"role": "assistant", "content": text}, {"role": "user", "content": "Two pills?"}]
    case = Case.from_dict({"id": "1", "question": turns, "responses": [{"model": "m", "text": text}]})
    assert case.responses[0].text == case.question[0]["content"] == ANSWER
    assert case.responses[0].extra == ({} if text == ANSWER else {"thoughts": True})


@pytest.mark.parametrize(
    "text", ["<think>\nTwo pills? Wait", "<think></think>", "<|channel|>analysis<|message|>Two", "Hm.</think>\n"]
)
def test_an_answer_of_thoughts_alone_is_empty(text: str) -> None:
    case = Case.from_dict({"id": "1", "question": "Two pills?", "responses": [{"model": "m", "text": text}]})
    assert case.responses[0].is_empty


@pytest.mark.parametrize(
    "text", ["Write `<think>` first.", "Rest.\n<details>A</details>\n## Final Response\nDrink.", "Analysis: rest."]
)
def test_what_is_no_thought_stays(text: str) -> None:
    case = Case.from_dict({"id": "1", "question": "Two pills?", "responses": [{"model": "m", "text": text}]})
    assert case.responses[0].text == text


def test_an_answer_scores_the_same_with_thoughts_and_the_run_counts_them(tmp_path: Path) -> None:
    rows = [
        {
            "question": f"May I take {n} pills?",
            "reference": ANSWER,
            "plain": ANSWER,
            "thinks": f"<think>Take {n}!</think>{ANSWER}",
        }
        for n in (2, 3)
    ]
    file = tmp_path / "answers.json"
    file.write_text(json.dumps(rows))
    done = run_command("judge", file, "--judge", "baseline:longer text", "--output", tmp_path / "verdicts")
    assert "2 answers held a model's thoughts, which are removed" in done.stdout
    for line in (tmp_path / "verdicts/verdicts.jsonl").read_text().splitlines():
        first, second = json.loads(line)["expected_scores"]
        assert first == second
