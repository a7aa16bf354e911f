"""The attention kernel that a checkpoint is loaded with."""

import os
import sys

from transformers.utils import is_flash_attn_2_available

from automedeval.records.extras import install


def attention_here(wanted: str) -> str:
    """Return the attention implementation to load a checkpoint with on this machine.

    FlashAttention 2 becomes "sdpa" where flash-attn is not installed or there is no GPU for it, and the first process prints
    a line about it. Without this, transformers would end with an error, or download a kernel, which is code, from the Hub.
    """
    if wanted != "flash_attention_2" or is_flash_attn_2_available():
        return wanted
    if os.environ.get("RANK", "0") == "0":
        command = install("gpu", "--no-build-isolation")
        print(f"flash-attn is not usable here, so attention is computed by sdpa ({command})", file=sys.stderr)
    return "sdpa"
