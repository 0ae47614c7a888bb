"""The shape of a model that is built from scratch; the tables are in `bart` and `roberta`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Preset:
    """The shape of a model that is trained from scratch."""

    vocabulary: int  # size of the byte-level BPE, with special tokens
    config: Mapping[str, Any]  # of BartConfig or RobertaConfig
    positions: int  # most tokens of an input
    summary: str
    is_small: bool = False  # several threads would hardly speed up a step
