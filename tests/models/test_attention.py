"""The attention kernel of a training, where flash-attn is installed and where it is not."""

import pytest

from automedeval.models import attention


def test_flash_attention_becomes_sdpa_where_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(attention, "is_flash_attn_2_available", lambda: True)
    assert attention.attention_here("flash_attention_2") == "flash_attention_2"
    monkeypatch.setattr(attention, "is_flash_attn_2_available", lambda: False)
    assert [attention.attention_here(kind) for kind in (None, "eager", "sdpa")] == [None, "eager", "sdpa"]
    assert (capsys.readouterr().err, attention.attention_here("flash_attention_2")) == ("", "sdpa")
    assert capsys.readouterr().err.count("flash-attn is not usable here, so attention is computed by sdpa") == 1
    monkeypatch.setenv("RANK", "1")
    assert attention.attention_here("flash_attention_2") == "sdpa"
    assert capsys.readouterr().err == "", "the first process prints it"
