"""Attention masks of a training, which Transformers need not read from a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# functions that read a mask, and whether the masks that a training gives to them are of ones
_OF_ONES = {"_ignore_bidirectional_mask_sdpa": False, "_ignore_causal_mask_sdpa": True}


@contextmanager
def masks_have_padding() -> Iterator[None]:
    """Let Transformers take each attention mask that it is given as one with padding.

    Otherwise it reads all values of a mask, to leave out one without padding, and the host waits
    for the GPU up to three times in a micro-batch of BART. `Batch.mask` has left it out already.
    The mask that BART makes for its decoder is of ones: a training gives a decoder no other one.
    """
    from transformers import masking_utils

    named = vars(masking_utils)
    before = {name: named[name] for name in _OF_ONES if name in named}  # a version may lack them
    try:
        named.update({name: _unread(one, _OF_ONES[name]) for name, one in before.items()})
        yield
    finally:
        named.update(before)


def _unread(ignores: Callable[..., Any], of_ones: bool) -> Callable[..., Any]:
    return lambda mask, *args, **more: (of_ones or mask is None) and ignores(None, *args, **more)
