"""RoBERTa-style encoders that are built from scratch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from maskpolicy.models.presets import Preset

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_OFFSET = 2  # RoBERTa's positions start at pad_token_id (1) + 1

PRESETS: Mapping[str, Preset] = {
    "mini": Preset(
        vocabulary=2000,
        config={
            "hidden_size": 128,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "intermediate_size": 512,
            "max_position_embeddings": 512 + _OFFSET,
            "type_vocab_size": 1,
            "hidden_act": "relu",  # as in the mini BART
            "initializer_range": 0.06,
            **_NO_DROPOUT,
        },
        positions=512,
        summary="4 layers of width 128, trained from scratch on the embedded world",
        is_small=True,
    ),
    "base": Preset(
        vocabulary=50_265,
        config={
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "max_position_embeddings": 512 + _OFFSET,
            "type_vocab_size": 1,
            "layer_norm_eps": 1e-5,
        },
        positions=512,
        summary="12 layers of width 768, RoBERTa-base's shape, trained from scratch",
    ),
}


def build(
    preset: str,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
    *,
    layers: int | None = None,
    relative_positions: bool = False,
) -> Any:
    """Return an encoder of a preset, its weights drawn from `seed`.

    `layers` replaces the preset's number of layers. `relative_positions` adds a bias for each head
    and distance to the attention.
    """
    import torch
    from transformers import RobertaConfig, RobertaModel

    kinds: Any = (RobertaConfig, RobertaModel)
    if relative_positions:
        from maskpolicy.models.relative_positions import RelativeRobertaConfig, RelativeRobertaModel

        kinds = (RelativeRobertaConfig, RelativeRobertaModel)
    shape = dict(PRESETS[preset].config)
    if layers is not None:
        shape["num_hidden_layers"] = layers
    config = kinds[0](
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        **shape,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return kinds[1](config, add_pooling_layer=False)
