"""RoBERTa-style encoders: build or load one, and pre-train it with MLM or as MAE-LM."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from maskpolicy.config.experiment import RELATIVE
from maskpolicy.errors import ConfigError
from maskpolicy.models.bart import Preset
from maskpolicy.models.loading import load_weights
from maskpolicy.seeding import generator
from maskpolicy.training.batching import IGNORE

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from maskpolicy.training.batching import Batch
    from maskpolicy.types import Denoising

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


def load(name: str, revision: str | None = None) -> Any:
    """Load an encoder from a folder or Hub name in float32, without pooler or heads.

    Raises ConfigError if the model does not exist, is not RoBERTa-style, or lacks weights.
    """
    import torch
    from transformers import AutoConfig, AutoModel

    config = load_weights(AutoConfig, name, revision)
    if config.model_type not in ("roberta", "xlm-roberta", "camembert", RELATIVE):
        raise ConfigError(
            f"model {name}: {config.model_type} is not a RoBERTa-style encoder with learned "
            "positions"
        )
    settings = {"dtype": torch.float32, "output_loading_info": True, "add_pooling_layer": False}
    found, info = load_weights(AutoModel, name, revision, **settings)
    if info["missing_keys"]:
        raise ConfigError(f"model {name}: its weights lack {min(info['missing_keys'])}")
    return found


def training_module(encoder: Any, denoising: Denoising, layers: int, seed: int) -> Any:
    """Return the training module that pre-trains `encoder`, in place, on masked tokens.

    Its head is drawn from `seed`, and so is a decoder of `layers` layers if `denoising` sets
    mask_exclusion or shallow_decoder. Both are discarded after training.
    """
    import torch

    deep = denoising.mask_exclusion > 0 or denoising.shallow_decoder
    drawn = generator(seed, 0, "", "learner").integers(2**63)
    with torch.random.fork_rng():
        torch.manual_seed(int(drawn))  # another stream than the encoder's weights
        decoder = _decoder(encoder.config, layers) if deep else None
        return _training_class()(encoder, decoder)


def token_loss(module: Any, batch: Batch) -> tuple[torch.Tensor, int]:
    """Return the summed cross-entropy of the masked tokens, and their number."""
    from torch.nn.functional import cross_entropy

    labels = batch.labels[batch.labels != IGNORE]
    logits = label_logits(module, batch)
    return cross_entropy(logits.float(), labels, reduction="sum"), len(labels)


def label_logits(module: Any, batch: Batch) -> torch.Tensor:
    """Return the logits of a batch's k labels, (k, v), row by row."""
    found: torch.Tensor = module.logits(module(batch)[batch.labels != IGNORE])
    return found


def _decoder(config: Any, layers: int) -> Any:
    """Return MAE-LM's decoder: bidirectional, no dropout, with its own positions and LayerNorm.

    A RobertaModel that receives embeddings adds positions and normalizes, as the released code of
    Meng et al. 2024 does. Its word embeddings are unused. Positions are drawn at the scale of the
    encoder's outputs, to which they are added: smaller ones have no effect (docs/log.md).
    """
    import torch
    from transformers import RobertaConfig, RobertaModel

    values = config.to_dict() | _NO_DROPOUT
    values.pop("model_type")  # the decoder is a stock RoBERTa for every encoder
    values |= {"num_hidden_layers": layers, "type_vocab_size": 1}
    values |= {"bos_token_id": None, "eos_token_id": None}
    values["vocab_size"] = config.pad_token_id + 1  # unused; RoBERTa requires the padding's row
    made = RobertaModel(RobertaConfig(**values), add_pooling_layer=False)
    made.embeddings.word_embeddings.weight.requires_grad_(False)
    with torch.no_grad():
        made.embeddings.position_embeddings.weight.normal_()
    return made


@cache
def _training_class() -> Any:
    """Return the class of training modules; defining it requires torch."""
    import torch
    from torch import nn
    from torch.nn.functional import gelu, linear

    from maskpolicy.models.exclusion import scattered

    class MaskedEncoder(nn.Module):
        """An encoder, MAE-LM's decoder or None, and RoBERTa's LM head with tied embeddings."""

        def __init__(self, encoder: Any, decoder: Any) -> None:
            super().__init__()
            config = encoder.config
            self.encoder, self.decoder = encoder, decoder
            self.dense = nn.Linear(config.hidden_size, config.hidden_size)
            nn.init.normal_(self.dense.weight, std=config.initializer_range)
            nn.init.zeros_(self.dense.bias)
            self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
            self.bias = nn.Parameter(torch.zeros(config.vocab_size))

        def forward(self, batch: Batch) -> torch.Tensor:
            """Return the last states at all positions of the source, (b, n, d)."""
            seen = batch.seen.long()
            if self.decoder is None:
                out = self.encoder(input_ids=batch.source, attention_mask=seen)
            else:
                states = scattered(self.encoder, batch)
                out = self.decoder(inputs_embeds=states, attention_mask=seen)
            found: torch.Tensor = out.last_hidden_state
            return found

        def logits(self, states: torch.Tensor) -> torch.Tensor:
            """Return the logits, (k, v), of the states of k positions, (k, d)."""
            hidden = self.norm(gelu(self.dense(states)))
            return linear(hidden, self.encoder.embeddings.word_embeddings.weight, self.bias)

        def set_attn_implementation(self, name: str) -> None:
            """Set the attention implementation of encoder and decoder."""
            for part in (self.encoder, self.decoder):
                if part is not None:
                    part.set_attn_implementation(name)

    return MaskedEncoder
