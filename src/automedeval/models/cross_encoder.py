"""The cross-encoder that is trained, and read with where the encoder is no plain BERT (see `PairReader`)."""

import logging
from pathlib import Path
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from sentence_transformers import CrossEncoder

from automedeval.models.checkpoints import loading


def load_cross_encoder(
    base: Path,
    tokens: int,
    adapter: Path | None,
    device: str = "cpu",
    trainable: bool = False,
) -> CrossEncoder:
    """Return the cross-encoder of an encoder's folder, with an adapter of `save_adapter` or with a new head, in float32.

    A `trainable` adapter stays beside the weights; else it is added to them, which is faster. `tokens` are as for
    `PairReader`. RecordError if it is one of another encoder.
    """
    logging.disable(
        logging.WARNING
    )  # both libraries report that the head is new, which it always is
    try:
        model = CrossEncoder(
            str(base),
            num_labels=1,
            max_length=tokens,
            activation_fn=torch.nn.Identity(),
            device=device,
            local_files_only=True,
            model_kwargs={"dtype": torch.float32, "use_safetensors": True},
        )
    finally:
        logging.disable(logging.NOTSET)
    if adapter is not None:
        with loading(str(adapter)):
            model.load_adapter(str(adapter), is_trainable=trainable)
        for layer in model.modules() if not trainable else ():
            if isinstance(layer, LoraLayer):
                layer.merge()
    return model


def save_adapter(model: CrossEncoder, folder: Path) -> None:
    """Write an adapter and the head as safetensors, without a path of this machine; equal ones are written alike."""
    network: Any = model[0].model
    config = network.peft_config["default"]
    config.base_model_name_or_path = None
    config.target_modules = sorted(config.target_modules)
    network.save_pretrained(folder)
