"""How many tokens the positions of a model allow, and trainings with lengths within that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from maskpolicy.config.budgets import Training
from maskpolicy.models.families import BASE, family_of


def limits(config: Any) -> tuple[int | None, int | None]:
    """Return the most tokens of a source and of a target for a model of this configuration.

    None means that the positions set no limit, as T5's relative ones: then the settings max_source
    and max_target alone bound the texts.
    """
    if not config.is_encoder_decoder:
        return _of_encoder(config), _of_encoder(config)
    keys = family_of(config).limits
    if not keys:
        return None, None
    both = getattr(config, "encoder", config), getattr(config, "decoder", config)
    found = [getattr(part, key, None) for part, key in zip(both, keys, strict=True)]
    return found[0], found[1]


def _of_encoder(config: Any) -> int | None:
    most: int | None = getattr(config, BASE[0], None)
    row = family_of(config, "encoder")
    # relatives of RoBERTa that have no row count from the padding on, whose id is 1
    after_padding = row.after_padding or (not row.types and config.pad_token_id == 1)
    return most - config.pad_token_id - 1 if most is not None and after_padding else most


def bounded(spec: Training, model: Any) -> Training:
    """Return `spec` with max_source and max_target limited to the model's positions."""
    return within(spec, limits(model.config))


def within(spec: Training, most: tuple[int | None, int | None]) -> Training:
    """Return `spec` with max_source and max_target limited to `most`; None: no limit."""
    source, target = most
    return replace(
        spec,
        max_source=spec.max_source if source is None else min(spec.max_source, source),
        max_target=spec.max_target if target is None else min(spec.max_target, target),
    )
