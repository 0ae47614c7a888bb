"""Attention masks of a training, which Transformers need not read from a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


@contextmanager
def masks_have_padding() -> Iterator[None]:
    """Let Transformers take each attention mask that it is given as one with padding.

    Otherwise it reads all values of a mask, to leave out one without padding, and the host waits
    for the GPU three times in a micro-batch of BART. `Batch.mask` has left it out already. The mask
    that BART makes for its decoder is of ones: a training gives a decoder no other one.
    """
    from transformers import masking_utils

    names = ("_ignore_bidirectional_mask_sdpa", "_ignore_causal_mask_sdpa")
    changed = _unread()  # before the functions are replaced
    before = [getattr(masking_utils, name) for name in names]
    for name, function in zip(names, changed, strict=True):
        setattr(masking_utils, name, function)
    try:
        yield
    finally:
        for name, function in zip(names, before, strict=True):
            setattr(masking_utils, name, function)


@cache  # a compiled loss is compiled again for other functions
def _unread() -> tuple[Callable[..., Any], Callable[..., Any]]:
    from transformers.masking_utils import (
        _ignore_bidirectional_mask_sdpa,
        _ignore_causal_mask_sdpa,
    )

    def bidirectional(padding_mask: Any, *args: Any, **more: Any) -> Any:
        return padding_mask is None and _ignore_bidirectional_mask_sdpa(None, *args, **more)

    def causal(padding_mask: Any, *args: Any, **more: Any) -> Any:
        return _ignore_causal_mask_sdpa(None, *args, **more)

    return bidirectional, causal
