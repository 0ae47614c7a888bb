"""A linear classifier of representations: linear discriminant analysis with shrinkage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from maskpolicy.world.probed_entries import Part

Floats: TypeAlias = NDArray[np.float64]
SHRINKAGES = (1e-4, 1e-3, 1e-2, 0.1, 0.5)
"""Weights of the scaled identity in the covariance that are tried on dev."""
_LEAST = 1e-12  # variance added to every direction, as a share of the mean one


@dataclass(frozen=True)
class Probed:
    """What a probe reads of representations; accuracies are shares of the test tokens."""

    accuracy: float
    floor: float  # of the class that is most frequent in train
    classes: int
    tokens: int  # in test
    train: int  # tokens
    shrinkage: float


@dataclass(frozen=True, eq=False)
class _Discriminant:
    """Class means and the spectrum of the covariance within classes."""

    means: Floats  # (c, d)
    priors: Floats  # (c,), logarithms
    variances: Floats  # (d,)
    axes: Floats  # (d, d), in columns

    @classmethod
    def of(cls, states: Floats, labels: NDArray[np.int64], classes: int) -> _Discriminant:
        counts = np.bincount(labels, minlength=classes)
        order, starts = np.argsort(labels, kind="stable"), np.cumsum([0, *counts[:-1]])
        means = np.add.reduceat(states[order], starts) / counts[:, None]
        within = states - means[labels]
        variances, axes = np.linalg.eigh(within.T @ within / len(states))
        return cls(means, np.log(counts / len(states)), variances.clip(min=0), axes)

    def classify(self, states: Floats, shrinkage: float) -> NDArray[np.int64]:
        """Return the likeliest class of each state, (n,), under normal classes of one covariance.

        The covariance is (1 - shrinkage) that of the states, plus `shrinkage` times the identity
        scaled to the same trace.
        """
        mean = float(self.variances.mean()) or 1.0
        shrunk = (1 - shrinkage) * self.variances + (shrinkage + _LEAST) * mean
        scaled = self.means @ self.axes / shrunk  # (c, d)
        offsets = self.priors - ((self.means @ self.axes) * scaled).sum(1) / 2
        chosen: NDArray[np.int64] = (states @ self.axes @ scaled.T + offsets).argmax(1)
        return chosen


def probe(
    states: NDArray[np.floating], labels: NDArray[np.int64], parts: NDArray[np.str_]
) -> Probed | None:
    """Return how well a linear classifier reads the labels off the states, or None.

    `states` is (n, d); `labels` and `parts` (n,) are the class and the part (train, dev or test)
    of each token. Classes are those of train: tokens of other classes are left out, and the result
    is None if a part then has no token. The shrinkage is the one of the best accuracy on dev, of
    equal ones the largest. Everything is computed in float64, after centring, in closed form:
    nothing is drawn, and nothing depends on an optimiser.
    """
    names = np.unique(labels[parts == "train"])
    kept = np.isin(labels, names)
    numbers = np.searchsorted(names, labels)
    rows = {part: kept & (parts == part) for part in ("train", "dev", "test")}
    if not all(chosen.any() for chosen in rows.values()):
        return None
    centre = states[rows["train"]].mean(0, dtype=np.float64)
    own: dict[str, Floats] = {part: states[chosen] - centre for part, chosen in rows.items()}
    right = {part: numbers[chosen] for part, chosen in rows.items()}
    made = _Discriminant.of(own["train"], right["train"], len(names))

    def accuracy(part: Part, shrinkage: float) -> float:
        return float((made.classify(own[part], shrinkage) == right[part]).mean())

    best = max(SHRINKAGES, key=lambda shrinkage: (accuracy("dev", shrinkage), shrinkage))
    common = int(np.bincount(right["train"]).argmax())
    return Probed(
        accuracy=accuracy("test", best),
        floor=float((right["test"] == common).mean()),
        classes=len(names),
        tokens=len(right["test"]),
        train=len(right["train"]),
        shrinkage=best,
    )
