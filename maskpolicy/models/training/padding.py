"""Attention masks of a training, which Transformers need not read from a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def masks_have_padding() -> Iterator[None]:
    """Let Transformers take each attention mask that it is given as one with padding.

    Otherwise it reads all values of a mask, to leave out one without padding, and the host waits
    for the GPU three times in a micro-batch of BART. `Batch.mask` has left it out already. The mask
    that BART makes for its decoder is of ones: a training gives a decoder no other one.
    """
    from transformers import masking_utils as masks

    before = masks._ignore_bidirectional_mask_sdpa, masks._ignore_causal_mask_sdpa
    reads_bidirectional, reads_causal = before

    def bidirectional(padding_mask: Any, *args: Any, **more: Any) -> Any:
        return padding_mask is None and reads_bidirectional(None, *args, **more)

    def causal(padding_mask: Any, *args: Any, **more: Any) -> Any:
        return reads_causal(None, *args, **more)

    masks._ignore_bidirectional_mask_sdpa, masks._ignore_causal_mask_sdpa = bidirectional, causal
    try:
        yield
    finally:
        masks._ignore_bidirectional_mask_sdpa, masks._ignore_causal_mask_sdpa = before
