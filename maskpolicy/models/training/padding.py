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

    changed = _unread()  # before the functions are replaced
    before = {name: getattr(masking_utils, name) for name in changed}
    try:
        vars(masking_utils).update(changed)
        yield
    finally:
        vars(masking_utils).update(before)


@cache  # a compiled loss is compiled again for other functions
def _unread() -> dict[str, Callable[..., Any]]:
    """Return what replaces functions of Transformers, by name; a version may lack them."""
    from transformers import masking_utils

    def bidirectional(ignores: Any) -> Callable[..., Any]:
        return lambda mask, *args, **more: mask is None and ignores(None, *args, **more)

    def causal(ignores: Any) -> Callable[..., Any]:
        return lambda mask, *args, **more: ignores(None, *args, **more)

    changes = {
        "_ignore_bidirectional_mask_sdpa": bidirectional,
        "_ignore_causal_mask_sdpa": causal,
    }
    named = vars(masking_utils)
    return {name: change(named[name]) for name, change in changes.items() if name in named}
