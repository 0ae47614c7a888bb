"""Settings of a loaded model of any kind that a training makes: dropout and attention."""

from __future__ import annotations

import logging
from typing import Any

log = logging.getLogger(__name__)


def set_dropout(model: Any, share: float | None) -> None:
    """Set all dropout probabilities of a model to `share`, without changing its configuration.

    None keeps the model's own.
    """
    import torch

    if share is None:
        return
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = share
        for name in ("dropout", "activation_dropout", "attention_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, share)


def set_attention(module: Any, name: str) -> None:
    """Set the attention implementation; logs a line where a family has only the eager one."""
    if name == "sdpa" and not getattr(module, "_supports_sdpa", True):
        log.warning("attention: %s has no sdpa: eager is used", type(module).__name__)
        name = "eager"
    module.set_attn_implementation(name)
