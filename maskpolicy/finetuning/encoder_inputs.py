"""What an encoder reads of an example: one text or two, and batches of them for answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.errors import ConfigError
from maskpolicy.models.loading import load_weights
from maskpolicy.models.roberta import load
from maskpolicy.ragged import Ragged
from maskpolicy.training.batching import Batch, Pairs, collate
from maskpolicy.training.specials import Specials

Progress = Callable[[int, int, str], None]
BATCH = 64
BETWEEN = 4  # special tokens around two texts


def joined(
    first: NDArray[np.int32], second: NDArray[np.int32], marks: Specials
) -> NDArray[np.int32]:
    """Return <s> first </s></s> second </s>, as RoBERTa reads two texts."""
    parts = ([marks.bos], first, [marks.eos, marks.eos], second, [marks.eos])
    return np.concatenate(parts).astype(np.int32)


def cut(
    first: NDArray[np.int32], second: NDArray[np.int32], room: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return two texts of at most `room` tokens together: the longer one is cut first."""
    half = room // 2
    if len(first) + len(second) > room:
        short = min(len(first), len(second), half)
        rest = room - short
        if len(first) <= len(second):
            first, second = first[:short], second[:rest]
        else:
            first, second = first[:rest], second[:short]
    return first, second


def batches(
    sources: Ragged,
    marks: Specials,
    device: Any,
    progress: Progress | None = None,
) -> Iterator[tuple[list[int], Batch]]:
    """Yield (indices, batch) over sources of like length, on `device`."""
    order = np.argsort(sources.lengths, kind="stable")
    for begin in range(0, len(order), BATCH):
        chosen = order[begin : begin + BATCH]
        nothing = Ragged(np.zeros(0, np.int32), np.zeros(len(chosen) + 1, np.int64))
        made = collate(Pairs(sources.take(chosen), nothing), marks.pad, None)
        yield chosen.tolist(), made.to(device)
        if progress:
            progress(min(begin + BATCH, len(order)), len(order), "")


def with_head(factory: Any, folder: Path, seed: int, **settings: Any) -> Any:
    """Return the encoder of a folder with a fresh head, whose weights are drawn from `seed`.

    `settings` go to the configuration, e.g. num_labels.
    """
    import torch

    encoder = load(str(folder))
    for name, value in settings.items():
        setattr(encoder.config, name, value)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = factory.from_config(encoder.config)
    model.base_model.load_state_dict(encoder.state_dict())
    return model


def tuned(factory: Any, folder: Path) -> Any:
    """Return a fine-tuned model, head and all; raises ConfigError where weights are missing."""
    import torch

    settings = {"dtype": torch.float32, "output_loading_info": True}
    found, info = load_weights(factory, str(folder), None, **settings)
    if info["missing_keys"]:
        raise ConfigError(f"model {folder}: its weights lack {min(info['missing_keys'])}")
    return found
