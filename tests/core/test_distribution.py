"""Distributions, random generators, and settings chosen for the machine."""

import math
import os

import numpy as np
import pytest
import torch

from maskpolicy.core import hardware
from maskpolicy.core.distribution import Distribution
from maskpolicy.experiment.budgets import TRAININGS, Training, resolve_auto, settled

EVERY = [
    Distribution("uniform", 0.1, 0.7),
    Distribution("cosine"),
    Distribution("cosine", 0.2, 0.9),
    Distribution("beta", mean=0.3, sd=0.1),
    Distribution("beta", mean=0.5, sd=0.01),
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


def test_the_density_at_the_ends_is_a_number():
    drawn = Distribution("beta", 0.1, 0.9, mean=0.8, sd=0.3)
    assert all(0 < drawn.density(end) < math.inf for end in (0.1, 0.9))  # both may be drawn


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


@pytest.mark.parametrize(
    ("has_gpu", "has_bf16", "states", "chosen"),
    [
        (False, False, False, ("fp32", "eager", 4096)),
        (False, False, True, ("bf16", "sdpa", 0)),  # a login node
        (True, False, True, ("fp32", "sdpa", 0)),  # a V100
        (True, True, False, ("bf16", "sdpa", 0)),
    ],
)
def test_auto_is_resolved_for_this_machine_or_for_gpus_that_the_file_states(
    monkeypatch, has_gpu, has_bf16, states, chosen
):
    monkeypatch.setattr(hardware, "is_cuda", lambda: has_gpu)
    monkeypatch.setattr(hardware, "has_bf16", lambda: has_bf16)
    found = resolve_auto(Training(), states)
    assert (found.precision, found.attention, found.micro_tokens) == chosen
    assert resolve_auto(found, states) == found
    compiled = {stage for stage in TRAININGS if settled(Training(steps=5000), stage).compile}
    assert compiled == ({"general", "intermediate"} if has_gpu else set())
    assert not settled(Training(steps=4999), "intermediate").compile


def test_gpu_memory_grows_in_place_unless_the_user_set_the_variable(monkeypatch):
    monkeypatch.setattr(hardware, "may_have_gpus", lambda: True)
    for name, given, chosen in (
        ("PYTORCH_ALLOC_CONF", None, "expandable_segments:True"),
        ("PYTORCH_ALLOC_CONF", "backend:native", "backend:native"),
        ("PYTORCH_CUDA_ALLOC_CONF", "backend:native", None),
    ):
        with monkeypatch.context() as here:
            here.delenv("PYTORCH_ALLOC_CONF", raising=False)
            if given:
                here.setenv(name, given)
            hardware.use_expandable_segments()
            assert os.environ.get("PYTORCH_ALLOC_CONF") == chosen
            os.environ.pop("PYTORCH_ALLOC_CONF", None)


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
@pytest.mark.parametrize(
    ("flags", "precision"), [({"avx2"}, "fp32"), ({"avx512_bf16", "avx2"}, "bf16")]
)
def test_a_cpu_computes_in_bf16_where_it_has_units_for_it(monkeypatch, flags, precision):
    monkeypatch.setattr(hardware, "cpu_flags", lambda: flags)
    found = resolve_auto(Training())
    assert (found.precision, found.attention) == (precision, "eager")


def test_cores_memory_and_gpus_of_this_machine(monkeypatch):
    assert 1 <= hardware.cores() <= (os.cpu_count() or 1)
    assert hardware.memory() > 2**28
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert hardware.gpu_names() == ["3", "5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert hardware.gpu_names() == []


def test_a_container_may_have_less_than_its_machine(monkeypatch):
    limits = {"cpu.max": "50000 100000", "memory.max": str(2**28)}
    monkeypatch.setattr(hardware, "_limit", limits.__getitem__)
    assert (hardware.cores(), hardware.memory()) == (1, 2**28)
    monkeypatch.setattr(hardware, "_limit", {"cpu.max": "max 100000", "memory.max": "max"}.get)
    assert hardware.memory() > 2**28
