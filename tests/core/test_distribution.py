"""Numbers that are drawn for each passage: shares, densities, and the weights of released code."""

from __future__ import annotations

import math

import numpy as np
import pytest
from maskpolicy.policies.uniform import Uniform

from maskpolicy.core import schema
from maskpolicy.core.distribution import Distribution, at_draw, drawn_fields
from maskpolicy.core.errors import ConfigError

EVERY = [
    Distribution("uniform", 0.1, 0.7),
    Distribution("cosine"),
    Distribution("cosine", 0.2, 0.9),
    Distribution("beta", mean=0.3, sd=0.1),
    Distribution("beta", 0.05, 0.5, mean=0.5, sd=0.2),
    Distribution("bell", mean=0.2, sd=0.12),
    Distribution("bell", 0.1, 0.4, mean=0.9, sd=0.3),
]


@pytest.mark.parametrize("given", EVERY, ids=str)
def test_draws_have_the_stated_density(given):
    rng = np.random.default_rng(0)
    drawn = np.asarray([given.draw(rng) for _ in range(20_000)])
    assert drawn.min() >= given.low
    assert drawn.max() <= given.high
    edges = np.linspace(given.low, given.high, 11)
    shares = np.histogram(drawn, edges)[0] / len(drawn)
    fine = np.linspace(given.low, given.high, 10_001)
    middles = (fine[1:] + fine[:-1]) / 2
    mass = np.asarray([given.density(m) for m in middles]) * (fine[1] - fine[0])
    assert mass.sum() == pytest.approx(1, abs=0.01)  # a density that is infinite at an end
    np.testing.assert_allclose(shares, mass.reshape(10, -1).sum(1), atol=0.012)


@pytest.mark.parametrize("u", [0.1, 0.5, 0.9])
def test_weights_are_those_of_released_noise_schedules(u):
    """|alpha'(t)| / (1 - alpha(t)) for t = 1 - u, in DespoinaKK/babylm-diffusion."""
    rate, slope = 1 - math.cos(math.pi / 2 * u), math.pi / 2 * math.sin(math.pi / 2 * u)
    assert 1 / Distribution("cosine").density(rate) / rate == pytest.approx(slope / rate)
    rate = 1 - math.cos(math.pi / 2 * u) ** 2
    slope = math.pi * math.sin(math.pi / 2 * u) * math.cos(math.pi / 2 * u)
    squared = Distribution("beta", mean=0.5, sd=0.5**1.5)
    assert 1 / squared.density(rate) / rate == pytest.approx(slope / rate)
    assert 1 / Distribution("uniform").density(u) / u == pytest.approx(1 / u)


def test_a_bell_differs_from_the_released_one_by_what_is_cut():
    # released at t = 0.5: rate 0.2, slope 0.12 * sqrt(2 pi), weight 1.504; 4.8% of the normal
    # distribution are below 0, where the release has a rate of 1e-8
    weight = 1 / Distribution("bell", mean=0.2, sd=0.12).density(0.2) / 0.2
    assert 0.12 * math.sqrt(2 * math.pi) / 0.2 == pytest.approx(1.504, abs=1e-3)
    assert weight == pytest.approx(1.504 * (1 - 0.0478), abs=1e-3)


def test_a_field_that_holds_one_is_drawn():
    plain, drawn = Uniform(), Uniform(Distribution("uniform", 0.2, 0.3))
    assert drawn_fields(plain) == drawn_fields(3) == []
    assert drawn_fields(drawn) == ["ratio"]
    assert 0.2 < at_draw(drawn, ["ratio"], np.random.default_rng(0)).ratio < 0.3
    given = {"distribution": "beta", "mean": 0.3, "sd": 0.1}
    assert schema.check(given, schema.Rate, "ratio") == Distribution("beta", mean=0.3, sd=0.1)


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ({"distribution": "flat"}, "ratio.distribution: unknown value 'flat'"),
        ({"distribution": "uniform", "low": 0.5, "high": 0.5}, "ratio.low, high: must be 0 <="),
        ({"distribution": "uniform", "high": 1.5}, "not 0 and 1.5"),
        ({"distribution": "cosine", "sd": 0.1}, "cosine has no mean and sd: leave them out"),
        ({"distribution": "bell", "mean": 0.2}, "bell needs a mean from 0 to 1 and an sd above 0"),
        (
            {"distribution": "beta", "mean": 0.5, "sd": 0.6},
            "ratio.sd: must be below 0.5 for a beta",
        ),
        ({"start": 0.1, "end": 0.2, "low": 0.1}, "ratio.low: unknown key"),
    ],
    ids=str,
)
def test_impossible_values_are_named(block, says):
    with pytest.raises(ConfigError) as caught:
        schema.check(block, schema.Rate, "ratio")
    assert says in str(caught.value)
