"""The attention kernel of a checkpoint, where flash-attn is installed and where it is not."""

from pathlib import Path

import pytest

from automedeval.models import attention
from automedeval.models.base import Prompt
from automedeval.models.local import LocalChat

PROMPT = Prompt([{"role": "user", "content": "Judge."}])


def answer(chat: LocalChat) -> str:
    ((_, found),) = chat.answer([PROMPT])
    return found.text


def test_a_checkpoint_is_loaded_with_sdpa_where_flash_attn_is_missing(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(attention, "is_flash_attn_2_available", lambda: False)
    options = {"device": "cpu", "dtype": "float32", "max_new_tokens": 8}
    flash, plain = (
        LocalChat(str(tiny_model), attn_implementation=kind, **options) for kind in ("flash_attention_2", "sdpa")
    )
    assert capsys.readouterr().err.count("flash-attn is not usable here, so attention is computed by sdpa") == 1
    assert answer(flash) == answer(plain)
    assert flash.fingerprint == plain.fingerprint


def test_what_is_installed_is_used(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(attention, "is_flash_attn_2_available", lambda: True)
    assert attention.attention_here("flash_attention_2") == "flash_attention_2"
    monkeypatch.setattr(attention, "is_flash_attn_2_available", lambda: False)
    assert [attention.attention_here(kind) for kind in (None, "eager", "sdpa")] == [None, "eager", "sdpa"]
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("RANK", "1")
    assert attention.attention_here("flash_attention_2") == "sdpa"
    assert capsys.readouterr().err == "", "the first process has said it"
