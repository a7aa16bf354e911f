"""What a GPU would feel: forward passes, waits of the host for the device, bytes of the cache, in CUDA's way of decoding.

The model has the 40 layers of a 13B and a tiny width, and runs on the CPU; `device.switches` is told that it is a GPU.
"""

from pathlib import Path

import pytest
from doubles.host_waits import HostWaits
from doubles.tiny_model import build_tiny_model
from programs import SAMPLE

from automedeval import Judge, read_cases
from automedeval.models import decoding, device
from automedeval.models.base import Answer, Free, Prompt, Slot
from automedeval.models.local import LocalChat

LAYERS, TOKENS, ROWS = 40, 44, 4
ASKED = (Free(stop="\nScore"), "\nScore: ", Slot("score", ("1", "2", "3", "4", "5")))


@pytest.fixture(scope="module")
def deep(tmp_path_factory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("deep"), num_hidden_layers=LAYERS, num_key_value_heads=4)


@pytest.fixture
def as_cuda(monkeypatch) -> None:
    monkeypatch.setitem(device._SWITCHES, "cpu", device._SWITCHES["cuda"])


def chat_of(folder: Path, **options) -> LocalChat:
    return LocalChat(str(folder), **{"dtype": "float32", "device": "cpu", "max_new_tokens": TOKENS} | options)


def prompts(count: int = ROWS, parts: tuple | None = ASKED) -> list[Prompt]:
    return [
        Prompt([{"role": "user", "content": f"How good is answer {'very ' * number}{number}?"}], parts)
        for number in range(count)
    ]


def answers(chat: LocalChat, asked: list[Prompt]) -> list[Answer]:
    return [answer for _, answer in sorted(chat.answer(asked), key=lambda pair: pair[0])]


class Passes:
    """Count the forward passes of a chat's network, and the tokens that they take."""

    def __init__(self, chat: LocalChat) -> None:
        self.widths: list[int] = []
        chat.network.register_forward_pre_hook(
            lambda _, args, given: self.widths.append(given["input_ids"].shape[1]), with_kwargs=True
        )


def test_forward_passes_are_those_of_the_longest_text(deep, as_cuda):
    chat = chat_of(deep)
    passes = Passes(chat)
    found = answers(chat, prompts())
    assert any(answer.truncated for answer in found)
    # the shared beginning and the prompts once; a token each; at most a look too late; the score
    steps = sum(width == 1 for width in passes.widths)
    assert TOKENS - 1 <= steps <= TOKENS + chat_ahead()
    assert len(passes.widths) - steps <= 4


def chat_ahead() -> int:
    return device.switches("cpu").ahead


def test_the_host_waits_less_than_once_for_a_token_of_a_batch(deep, as_cuda):
    chat = chat_of(deep)
    answers(chat, prompts(2))  # what is computed once for a chat
    with HostWaits() as waits:
        found = answers(chat, prompts())
    steps = max(answer.usage["completion_tokens"] for answer in found)
    assert steps >= 40
    assert waits.total / steps < 1, (waits.reads, waits.writes)
    assert waits.reads["tolist"] <= steps / chat_ahead() + 4
    assert waits.total / sum(answer.usage["completion_tokens"] for answer in found) < 0.3


def test_the_cpus_way_waits_more_often(deep):
    chat = chat_of(deep)
    answers(chat, prompts(2))
    with HostWaits() as waits:
        answers(chat, prompts())
    assert waits.total > 3 * TOKENS


def test_scores_alone_take_two_passes_and_a_few_waits(deep, as_cuda):
    chat = chat_of(deep)
    passes = Passes(chat)
    with HostWaits() as waits:
        answers(chat, prompts(parts=ASKED[1:]))
    assert len(passes.widths) == 2  # the shared beginning, and the rest of all prompts
    assert waits.total <= 15, (waits.reads, waits.writes)


def test_the_cache_holds_two_numbers_for_each_layer_and_width(deep, as_cuda, monkeypatch):
    made: list[decoding.Rows] = []

    class Kept(decoding.Rows):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            made.append(self)

    monkeypatch.setattr("automedeval.models.local.Rows", Kept)
    chat = chat_of(deep)
    answers(chat, prompts())
    (rows,) = made
    layers = rows.cache.layers
    assert len(layers) == LAYERS
    capacity = layers[0].capacity
    kept = sum(each.nbytes for layer in layers for each in (layer.keys, layer.values))
    assert kept == ROWS * capacity * 2 * LAYERS * 32 * 4  # rows, tokens, keys and values, layers, width, float32
    longest = max(len(ids) for ids in chat.encoder.encode([prompt.messages for prompt in prompts()]))
    assert capacity <= longest + TOKENS + len("\nScore: 5") + 64


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_both_ways_write_the_same(deep, monkeypatch, temperature):
    one = answers(chat_of(deep, temperature=temperature), prompts())
    monkeypatch.setitem(device._SWITCHES, "cpu", device._SWITCHES["cuda"])
    other = answers(chat_of(deep, temperature=temperature), prompts())
    assert [answer.free for answer in other] == [answer.free for answer in one]
    assert [answer.usage for answer in other] == [answer.usage for answer in one]
    if not temperature:  # what is drawn after the end of a text moves the generator of the score
        assert [answer.values for answer in other] == [answer.values for answer in one]
    for ours, theirs in zip(one, other):
        for word, chance in ours.probabilities[0].items():
            assert theirs.probabilities[0][word] == pytest.approx(chance, abs=1e-4)


def test_texts_that_end_anywhere_in_a_look_are_the_same(tiny_model, monkeypatch):
    """The verdicts of a judge whose texts end by themselves, at different tokens, and of one prompt alone."""
    cases = list(read_cases(SAMPLE / "test_cases.jsonl"))[:6]
    ends = build_ends(tiny_model)
    found = []
    for ahead in (1, 3, 8):
        monkeypatch.setitem(device._SWITCHES, "cpu", device.Switches(grouped_attention=True, ahead=ahead))
        chat = chat_of(tiny_model, max_new_tokens=30)
        chat._ends = ends
        found.append([(one.rationale, one.scores, one.usage) for one in Judge(chat)(cases)])
    assert found[1] == found[0]
    assert found[2] == found[0]
    assert len({len(rationale) for rationale, *_ in found[0]}) > 2


def build_ends(folder: Path) -> set[int]:
    """Return tokens that the tiny model writes now and then, as those that end a text."""
    return set(range(3, 800, 9))
