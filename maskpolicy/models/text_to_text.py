"""Text-to-text models of any family: loaded, with their special tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from maskpolicy.errors import ConfigError
from maskpolicy.models.loading import load_weights
from maskpolicy.training.specials import Specials

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_KEPT = (  # of a generation_config
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
    *("forced_bos_token_id", "forced_eos_token_id", "max_new_tokens"),
)


def load(name: str, revision: str | None = None, **settings: Any) -> Any:
    """Load a text-to-text model from a folder or Hub name in float32.

    `settings` are passed to from_pretrained, e.g. attn_implementation="eager". Raises ConfigError
    if the model does not exist, is not text-to-text, or lacks weights.
    """
    import torch
    from transformers import AutoModelForSeq2SeqLM

    check_architecture(name, revision)
    settings |= {"dtype": torch.float32, "output_loading_info": True}
    found, info = load_weights(AutoModelForSeq2SeqLM, name, revision, **settings)
    if info["missing_keys"]:
        raise ConfigError(f"model {name}: its weights lack {min(info['missing_keys'])}")
    return found


def check_architecture(name: str, revision: str | None = None) -> None:
    """Raise ConfigError unless a model is text-to-text by its configuration; reads no weights."""
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    config = load_weights(AutoConfig, name, revision)
    known = type(config) in AutoModelForSeq2SeqLM._model_mapping
    if not (known and config.is_encoder_decoder):
        raise ConfigError(
            f"model {name}: {config.model_type} is not text-to-text (an encoder needs model.kind: "
            "encoder; `maskpolicy list models` names the families)"
        )


def specials(tokenizer: PreTrainedTokenizerBase, model: Any) -> Specials:
    """Return a tokenizer's special tokens for a text-to-text model, which decides the start.

    T5Gemma's start is the decoder's BOS token. Where the configuration names none, the tokenizer
    decides (see `Specials.of`).
    """
    places = (model.config, model.generation_config)
    found = [getattr(place, "decoder_start_token_id", None) for place in places]
    found.append(getattr(getattr(model.config, "decoder", None), "bos_token_id", None))
    return Specials.of(tokenizer, next((each for each in found if each is not None), None))


def complete_generation(model: Any, specials: Specials) -> None:
    """Set what the model's generation_config lacks: the decoder's start and a language code."""
    config = model.generation_config
    if config.decoder_start_token_id is None:
        config.decoder_start_token_id = specials.start
    before = specials.target_ends[0] if specials.target_ends else ()
    if len(before) == 1 and config.forced_bos_token_id is None:
        config.forced_bos_token_id = before[0]


@contextmanager
def greedy_generation(model: Any) -> Iterator[None]:
    """Let `generate` be greedy in the block, with the special tokens and max_new_tokens as set.

    Published models come with settings for summaries, e.g. facebook/bart-base with
    no_repeat_ngram_size 3 and four beams, under which some answers cannot be generated.
    """
    from transformers import GenerationConfig

    before = model.generation_config
    model.generation_config = GenerationConfig(**{name: getattr(before, name) for name in _KEPT})
    try:
        yield
    finally:
        model.generation_config = before
