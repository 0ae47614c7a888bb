"""Minimal pairs: the model should prefer the first of two texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from maskpolicy.core.errors import DataError
from maskpolicy.core.types import Example, Json
from maskpolicy.data.datafiles.fields import optional, text

Scored = Literal["auto", "pll", "within_word_l2r", "enc_dec_mask", "enc_dec_prefix"]
"""How a model scores a text; auto: pll for encoders, enc_dec_mask for text-to-text models."""
FIELDS = {"syntax_semantics": "syntax/semantics"}  # BLiMP spells one field in two ways


def pair(
    row: Json,
    keys: tuple[str, str],
    *,
    group: str = "",
    id: str = "",
    before: str = "",
    slices: Mapping[str, str] | None = None,
) -> Example:
    """Return the example of a row whose `keys` hold the better and the other text.

    The model reads `before` ahead of each and does not score it. Raises DataError for a missing or
    empty text, and for equal ones.
    """
    good, bad = (text(row, key).strip() for key in keys)
    if good == bad:
        raise DataError(f"{keys[0]!r} and {keys[1]!r} are the same text, {good!r:.60}")
    return Example(id, group, before, (good,), choices=(good, bad), slices=dict(slices or {}))


def of_blimp(row: Json) -> Example | None:
    """Return the example of a row of BLiMP; without a UID, its file's name is the paradigm.

    The result is None for equal sentences, as in seven rows of the official files.
    """
    keys = ("sentence_good", "sentence_bad")
    if text(row, keys[0]) == text(row, keys[1]):
        return None
    paradigm = optional(row, "UID") or row["file"]
    field, term = (optional(row, key) or "supplement" for key in ("field", "linguistics_term"))
    name = f"{paradigm}-{row['pairID']}" if row.get("pairID") else ""
    about = {"field": FIELDS.get(field, field), "phenomenon": term}
    return pair(row, keys, group=paradigm, id=name, slices=about)
