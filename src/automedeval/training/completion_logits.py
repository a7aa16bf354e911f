"""Compute the output layer at trained positions only, on devices where TRL computes it at all (`sft.py` on a CPU).

TRL's fused output layer leaves out positions without a label where it has Triton. Elsewhere it reads every position, prompts
included, and sets their losses to zero afterwards. Four fifths of a judge's row are prompt, and a small model spends more on
the output layer than on all others. Two hooks and the `shift_labels` that TRL's layer takes spare that; losses, gradients and
the logged measures are the same up to rounding.
"""

from typing import Any

from automedeval.training.stages import UNTRAINED


def read_trained_positions(network: Any, backbone: Any) -> None:
    """Let TRL's output layer read only the positions whose next token is trained on.

    Args:
        network: what the trainer calls: a causal language model that SFTTrainer has fitted with its output layer, or an
            adapter around one.
        backbone: the model's part below the output layer, whose last hidden states are [batch, length, width].
    """
    asked: list[Any] = []  # bool [batch, length - 1], of the pass that runs

    def before(_: Any, given: tuple, named: dict[str, Any]) -> tuple[tuple, dict[str, Any]] | None:
        asked.clear()
        if named.get("labels") is None:  # no loss: generation
            return None
        named = dict(named)
        labels = named.pop("labels")[:, 1:]
        asked.append(labels != UNTRAINED)
        return given, {**named, "shift_labels": labels[asked[0]][None]}  # one row of all that is trained on

    def after(_: Any, given: tuple, output: Any) -> Any:
        if asked:
            output.last_hidden_state = output.last_hidden_state[:, :-1][asked.pop()][None]
        return output

    network.register_forward_pre_hook(before, with_kwargs=True)
    backbone.register_forward_hook(after)
