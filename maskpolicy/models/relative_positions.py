"""RoBERTa with relative and absolute positions (the released code of Meng et al. 2024).

Importing this module registers the classes with Transformers' AutoConfig and AutoModel classes.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, RobertaConfig, RobertaModel

from maskpolicy.experiment.definition import RELATIVE

BINS = 64  # BINS - 1 of them are used: BINS // 2 on either side, which share that of distance 0
FARTHEST = 128  # tokens; on each side, all farther ones share a bin


def bins(distances: Tensor) -> Tensor:
    """Return the bin, 0 to BINS - 2, of each signed distance between tokens.

    Each distance up to 15 tokens has its own bin; farther ones share bins of increasing width. Bins
    are rounded up as in the released code; T5 rounds down.
    """
    near = distances.abs()
    side = BINS // 2
    exact = side // 2
    scale = (side - 1 - exact) / math.log((FARTHEST - 1) / exact)
    far = exact + torch.ceil(torch.log(near.clamp(min=1) / exact) * scale).long()
    places = torch.where(near < exact, near, far.clamp(max=side - 1))
    return places * distances.sign() + side - 1


class RelativeRobertaConfig(RobertaConfig):
    """RoBERTa's configuration with a model type of its own, as a stock RobertaModel has no bias."""

    model_type = RELATIVE


class RelativeRobertaModel(RobertaModel):
    """A RobertaModel whose attention has a learned bias for each head and bin of distances.

    All layers share the bias. Distances are between `position_ids` if given, else between indices.
    """

    config: RelativeRobertaConfig
    config_class = RelativeRobertaConfig
    _supports_flash_attn = _supports_flex_attn = False  # they have no bias for each head

    def __init__(self, config: RelativeRobertaConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config, add_pooling_layer=add_pooling_layer)
        self.relative_bias = nn.Embedding(BINS, config.num_attention_heads)
        nn.init.normal_(self.relative_bias.weight, std=config.initializer_range)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **more: Any,
    ) -> Any:
        """Return the output of RobertaModel for inputs (b, n), or `inputs_embeds` (b, n, d).

        Raises ValueError for an attention mask that does not have two dimensions.
        """
        given: Any = inputs_embeds if input_ids is None else input_ids
        if attention_mask is not None and attention_mask.dim() != 2:
            raise ValueError("attention_mask must have two dimensions: (batch, tokens)")
        places = position_ids
        if places is None:
            places = torch.arange(given.shape[1], device=given.device)[None]
        bias = self.relative_bias(bins(places[:, None, :] - places[:, :, None]))
        # (b or 1, heads, n, n); CUDA's fused kernels need the last stride to be 1
        bias = bias.permute(0, 3, 1, 2).contiguous()
        if attention_mask is not None:
            hidden = ~attention_mask.bool()[:, None, None, :]
            bias = bias.masked_fill(hidden, torch.finfo(bias.dtype).min)
        return super().forward(
            input_ids=input_ids,
            attention_mask=bias,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **more,
        )


def _with_head(stock: Any) -> Any:
    """Return a class of Transformers with a head, and with relative positions in its body."""

    def __init__(self: Any, config: RelativeRobertaConfig) -> None:
        stock.__init__(self, config)
        self.roberta = RelativeRobertaModel(config, add_pooling_layer=False)

    own = {"__init__": __init__, "config_class": RelativeRobertaConfig}
    own |= {"_supports_flash_attn": False, "_supports_flex_attn": False}
    return type(f"Relative{stock.__name__}", (stock,), own)


AutoConfig.register(RelativeRobertaConfig.model_type, RelativeRobertaConfig, exist_ok=True)
AutoModel.register(RelativeRobertaConfig, RelativeRobertaModel, exist_ok=True)
for _head in ("MaskedLM", "SequenceClassification", "QuestionAnswering", "TokenClassification"):
    _auto, _stock = (
        getattr(transformers, f"{_name}For{_head}") for _name in ("AutoModel", "Roberta")
    )
    _auto.register(RelativeRobertaConfig, _with_head(_stock), exist_ok=True)
