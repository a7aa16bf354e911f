"""Compute the output layer only at positions with a label, on devices without Triton (`recipes/sft.py` uses it on a CPU).

With Triton, TRL's fused output layer skips positions without a label. Without it, TRL computes the logits of all positions,
prompts included, and sets their losses to 0. Four fifths of a judge's row are prompt, and in a small model the output layer
takes most of the time. Two hooks and the argument `shift_labels` of TRL's layer avoid that. Losses, gradients and logged
measures are equal up to rounding.
"""

from typing import Any

from automedeval.training.stages import UNTRAINED


def read_trained_positions(network: Any, backbone: Any) -> None:
    """Pass only the positions whose next token has a label to TRL's output layer.

    `network` is what the trainer calls: a causal language model with SFTTrainer's output layer, or an adapter around one;
    `backbone` is the part below the output layer, whose last hidden states are [batch, length, width].
    """
    trained: list[Any] = []  # bool [batch, length - 1], of the current forward pass

    def before(_: Any, positional: tuple, named: dict[str, Any]) -> tuple[tuple, dict[str, Any]] | None:
        trained.clear()
        if named.get("labels") is None:  # no loss: generation
            return None
        named = dict(named)
        labels = named.pop("labels")[:, 1:]
        trained.append(labels != UNTRAINED)
        return positional, {**named, "shift_labels": labels[trained[0]][None]}  # one row of all labels

    def after(_: Any, positional: tuple, output: Any) -> Any:
        if trained:
            output.last_hidden_state = output.last_hidden_state[:, :-1][trained.pop()][None]
        return output

    network.register_forward_pre_hook(before, with_kwargs=True)
    backbone.register_forward_hook(after)
