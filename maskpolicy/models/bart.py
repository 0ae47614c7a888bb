"""BART models that are built from scratch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from maskpolicy.models.presets import Preset

if TYPE_CHECKING:
    from transformers import BartForConditionalGeneration, PreTrainedTokenizerBase

PRESETS: Mapping[str, Preset] = {
    "mini": Preset(
        vocabulary=2000,
        config={
            "d_model": 128,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 512,
            "decoder_ffn_dim": 512,
            "max_position_embeddings": 512,
            "activation_function": "relu",  # on a CPU, gelu's backward in bf16 takes 7% of a step
            "init_std": 0.06,  # at BART's 0.02 it may never learn to copy (docs/log.md)
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "activation_dropout": 0.0,
        },
        positions=512,
        summary="2+2 layers of width 128, trained from scratch on the embedded world",
        is_small=True,
    ),
}


def build(
    preset: str, tokenizer: PreTrainedTokenizerBase, seed: int
) -> BartForConditionalGeneration:
    """Return a BART of a preset, its weights drawn from `seed`."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.eos_token_id,
        forced_eos_token_id=None,
        **PRESETS[preset].config,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = BartForConditionalGeneration(config)
    model.generation_config.forced_bos_token_id = tokenizer.bos_token_id
    return model
