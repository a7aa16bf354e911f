"""Check a base model before a study is trained on it: everything that a later step needs of it.

A base needs an architecture that transformers knows as a causal language model; all of its weights in safetensors; a context
window of `max_length` tokens; a tokenizer whose tokens all have a row in the embeddings, that has an end-of-sequence token, and
that gives score lines and the signs of medical texts back unchanged; and a chat template, its own or a Jinja file, that begins
an answered prompt as it begins the prompt, and ends an answer with a token that ends generation. A padding token is not needed:
without one, training pads with the end-of-sequence token.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from automedeval.models.checkpoints import check_architecture, checkpoint_folder
from automedeval.models.tokenization import PromptEncoder, load_tokenizer, read_template
from automedeval.records import RecordError

SIGNS = "38.5 °C, 5 µg, ≥ 2 × 10⁹/l, β-blocker, naïve, “yes” – no"  # what medical answers hold beside ASCII
CHOICES = '{"rationale": "Step 1.", "choices": {"correctness": "A", "safety": "tie"}}'
TEXTS = [*(f"Step 1.\nScore: Doctor 1: {score} points." for score in range(1, 6)), CHOICES, SIGNS]
_SHOWN = 80  # characters of a text in a fault


def base_faults(model: str, chat_template_path: str | None = None, max_length: int = 2048) -> list[str]:
    """Return what a base model lacks, each in one line; an empty list if a study can be trained on it.

    No weights are read, only their names and shapes. `max_length` is the longest training row, in tokens. RecordError if there
    is no such checkpoint or template file.
    """
    from transformers import AutoConfig  # slow to import

    folder = checkpoint_folder(model)
    template = read_template(chat_template_path)
    try:
        check_architecture(folder)
        config = AutoConfig.from_pretrained(folder)
    except (RecordError, OSError, ValueError) as error:
        return [_line(error)]
    faults = list(_weight_faults(folder, config))
    window = getattr(config.get_text_config(), "max_position_embeddings", None)
    if window is not None and window < max_length:
        faults.append(f"its context window has {window:,} tokens, and the longest row {max_length:,}")
    return [*faults, *_tokenizer_faults(folder, config, template)]


def _weight_faults(folder: Path, config: Any) -> Iterator[str]:
    """Yield what is wrong with a checkpoint's weights: not a causal model's, not in safetensors, not all there."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM

    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        yield f"its architecture {config.model_type!r} is no causal language model"
    elif not any((folder / f"model.safetensors{end}").exists() for end in ("", ".index.json")):
        yield "no weights in safetensors; recipes/convert_checkpoint.py makes them of pytorch_model*.bin"
    else:
        options: dict[str, Any] = {"device_map": "meta", "use_safetensors": True, "ignore_mismatched_sizes": True}
        try:
            # With `output_loading_info` this is a pair, which its annotation does not say.
            loaded: Any = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **options)
        except Exception as error:  # noqa: BLE001  a bad checkpoint makes transformers and safetensors raise a dozen kinds
            yield f"its weights cannot be loaded: {_line(error)}"
            return
        if missing := sorted(loaded[1]["missing_keys"]):
            yield f"{len(missing):,} of its weights are missing, {missing[0]} for one"
        if other := sorted(loaded[1]["mismatched_keys"]):
            yield f"{len(other):,} of its weights have another shape than config.json says, {other[0][0]} for one"


def _tokenizer_faults(folder: Path, config: Any, template: str | None) -> Iterator[str]:
    """Yield what is wrong with a checkpoint's tokenizer and chat template; `template` replaces its own."""
    from transformers import GenerationConfig

    try:
        tokenizer = load_tokenizer(folder)
    except RecordError as error:
        yield str(error).removeprefix(f"{folder}: ")
        return
    tokenizer.chat_template = template or tokenizer.chat_template
    rows = config.get_text_config().vocab_size
    if beyond := sorted(token for token, number in tokenizer.get_vocab().items() if number >= rows):
        yield f"its token {beyond[0]!r} has no row in the embeddings, which have {rows:,}"
    yield from round_trip_faults(tokenizer)
    if tokenizer.eos_token_id is None:
        yield "its tokenizer has no end-of-sequence token, with which answers end"
    if tokenizer.chat_template is None:
        yield "no chat template; name a Jinja file with --chat_template_path"
        return
    try:
        ends = GenerationConfig.from_pretrained(folder).eos_token_id
    except OSError:
        ends = config.get_text_config().eos_token_id
    ends = {*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id} - {None}
    messages = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "Is it right?"}]
    try:
        ((prompt, answer),) = PromptEncoder(tokenizer).encode_answered([(messages, "Yes.")])
    except RecordError as error:
        yield _line(error)
    else:
        if not prompt or not answer:
            yield "its chat template renders no prompt, or no answer"
        elif not ends & set(answer):
            yield "its chat template ends an answer with no end-of-sequence token, so the judge would not stop"


def round_trip_faults(tokenizer: Any) -> list[str]:
    """Return which texts a tokenizer changes: answers by a rubric with scores and with choices, or medical signs."""
    for text in TEXTS:
        ids = tokenizer(text, add_special_tokens=False).input_ids
        back = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        if back.strip() != text.strip():
            return [f"its tokenizer gives {text[-_SHOWN:]!r} back as {back[-_SHOWN:]!r}"]
    return []


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
