"""Hypothesis strategies that several test modules draw from."""

from itertools import pairwise

import numpy as np
import small
from hypothesis import assume
from hypothesis import strategies as st

from maskpolicy.core.types import Denoising, as_spans

DENOISINGS = st.builds(
    Denoising,
    st.sampled_from(["span", "token"]),
    st.sampled_from(["full", "spans"]),
    st.sampled_from(["mask", "none"]),
    st.booleans(),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([0.0, 0.4, 1.0]),
)


@st.composite
def masked_passages(draw, least=0):
    """Draw a passage of distinct ids from 100 on, with sentences, and spans of it."""
    length = draw(st.integers(max(1, least), 40))
    edges = draw(st.lists(st.integers(0, length), max_size=24, unique=True).map(sorted))
    apart = list(zip(edges[::2], edges[1::2], strict=False))
    spans = draw(st.sampled_from([apart, list(pairwise(edges))]))[:12]  # the latter touch
    assume(len(spans) >= least)
    cuts = draw(st.lists(st.integers(1, max(1, length - 1)), max_size=4, unique=True))
    ends = sorted({*cuts, length})
    sentences = list(zip([0, *ends], ends, strict=False))
    return small.ids(np.arange(100, 100 + length), sentences), as_spans(spans)
