"""Numbers that are drawn for each passage, such as the rate of masked diffusion."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass, replace
from statistics import NormalDist
from typing import Any, Literal, TypeVar, cast

import numpy as np

from maskpolicy.core.errors import ConfigError

T = TypeVar("T")
_TINY = 1e-12  # at the ends, quantiles and densities may be infinite


@dataclass(frozen=True)
class Distribution:
    """A number between `low` and `high` that is drawn for each passage in each epoch.

    uniform: all are equally likely (the linear noise schedule of masked diffusion). cosine: 1 -
    cos(pi u / 2) for a uniform u (its cosine schedule). beta: a beta distribution with this mean
    and standard deviation, stretched from [0, 1] to [low, high]; with mean 0.5 and sd 0.5 ** 1.5 it
    is the squared cosine schedule. bell: a normal distribution with this mean and standard
    deviation, cut to [low, high]. Raises ConfigError for impossible, missing or unused values.
    """

    distribution: Literal["uniform", "cosine", "beta", "bell"]
    low: float = 0.0
    high: float = 1.0
    mean: float | None = None  # of beta and bell
    sd: float | None = None  # of beta and bell

    def __post_init__(self) -> None:
        """Check the values together."""
        if not 0 <= self.low < self.high <= 1:
            raise ConfigError(
                f"low, high: must be 0 <= low < high <= 1, not {self.low:g} and {self.high:g}"
            )
        given, kind = (self.mean, self.sd), self.distribution
        if kind in ("uniform", "cosine"):
            if given != (None, None):
                raise ConfigError(f"distribution: {kind} has no mean and sd: leave them out")
            return
        if None in given or not 0 <= self._mean <= 1 or self._sd <= 0:
            raise ConfigError(f"distribution: {kind} needs a mean from 0 to 1 and an sd above 0")
        if kind == "beta" and self._strength <= 0:
            most = math.sqrt(self._mean * (1 - self._mean))
            raise ConfigError(
                f"sd: must be below {most:.3g} for a beta distribution with mean {self._mean:g}"
            )
        if kind == "bell" and self._below(self.high) - self._below(self.low) < _TINY:
            raise ConfigError(
                f"mean, sd: the bell has no probability between {self.low:g} and {self.high:g}"
            )

    def draw(self, rng: np.random.Generator) -> float:
        """Draw the number."""
        if self.distribution == "beta":
            a = self._mean * self._strength
            share = float(rng.beta(a, self._strength - a))
            return self.low + (self.high - self.low) * share
        first, last = self._below(self.low), self._below(self.high)
        place = first + (last - first) * rng.random()  # a quantile before the cut
        if self.distribution == "cosine":
            return 1 - math.cos(math.pi / 2 * place)
        if self.distribution == "bell":
            place = min(max(place, _TINY), 1 - _TINY)
            return min(max(NormalDist(self._mean, self._sd).inv_cdf(place), self.low), self.high)
        return place

    def density(self, number: float) -> float:
        """Return the probability density at a number between `low` and `high`."""
        if self.distribution == "beta":
            a = self._mean * self._strength
            b, width = self._strength - a, self.high - self.low
            share = min(max((number - self.low) / width, _TINY), 1 - _TINY)
            scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
            powers = (a - 1) * math.log(share) + (b - 1) * math.log1p(-share)
            return math.exp(scale + powers) / width
        uncut = 1.0
        if self.distribution == "cosine":
            uncut = 2 / math.pi / math.sqrt(1 - (1 - number) ** 2)
        elif self.distribution == "bell":
            uncut = NormalDist(self._mean, self._sd).pdf(number)
        return uncut / (self._below(self.high) - self._below(self.low))

    def _below(self, number: float) -> float:
        """Return the probability of a smaller number before the distribution is cut."""
        if self.distribution == "cosine":
            return math.acos(1 - number) * 2 / math.pi
        if self.distribution == "bell":
            return NormalDist(self._mean, self._sd).cdf(number)
        return number

    @property
    def _mean(self) -> float:
        return self.mean or 0.0

    @property
    def _sd(self) -> float:
        return self.sd or 0.0

    @property
    def _strength(self) -> float:
        """The sum of the two parameters of the beta distribution."""
        return self._mean * (1 - self._mean) / self._sd**2 - 1


def drawn_fields(instance: object) -> list[str]:
    """Return the names of a dataclass's fields that hold a distribution."""
    known = fields(instance) if is_dataclass(instance) else ()
    return [each.name for each in known if isinstance(getattr(instance, each.name), Distribution)]


def at_draw(value: T, names: list[str], rng: np.random.Generator) -> T:
    """Return a dataclass with a drawn number for each field in `names`, its `drawn_fields`."""
    now: Any = value
    return cast(T, replace(now, **{name: getattr(now, name).draw(rng) for name in names}))
