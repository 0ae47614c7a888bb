"""The linear classifier on constructed states whose right answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from maskpolicy.findings.representations.linear_probe import SHRINKAGES, probe

DIMENSIONS = 5
CLASSES = 2**DIMENSIONS
EACH = 60  # states of a class


def corners(rank, noise=0.05, seed=0):
    """Return states at the corners of a cube, its first `rank` sides alone, labels and parts."""
    rng = np.random.default_rng(seed)
    numbers = np.repeat(np.arange(CLASSES), EACH)
    signs = 1.0 - 2 * ((numbers[:, None] >> np.arange(DIMENSIONS)) & 1)
    signs[:, rank:] = 0
    rotation, _ = np.linalg.qr(rng.normal(size=(12, 12)))
    states = np.hstack([signs, np.zeros((len(signs), 12 - DIMENSIONS))]) @ rotation
    states += 7 + noise * rng.normal(size=states.shape)
    parts = np.tile(np.repeat(["train", "dev", "test"], EACH // 3), CLASSES)
    return states.astype(np.float32), numbers, parts


def test_an_encoder_without_the_rank_cannot_separate_the_classes():
    """Of 32 corners, those that agree in the sides that are left look alike."""
    for rank in (5, 4, 2, 0):
        found = probe(*corners(rank))
        chance = 2.0 ** (rank - DIMENSIONS)
        assert found.accuracy == pytest.approx(chance, abs=3 * (chance * (1 - chance) / 640) ** 0.5)
        assert (found.classes, found.tokens, found.train) == (CLASSES, 640, 640)
        assert found.floor == pytest.approx(1 / CLASSES)


def test_the_classifier_is_the_best_one_of_normal_classes():
    """Two normal classes whose means are two deviations apart: one of six is on the wrong side."""
    from scipy.stats import norm

    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 60_000)
    mixed = np.diag([1.0, 8.0, 0.2]) @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    states = (rng.normal(size=(60_000, 3)) + np.outer(labels, [2.0, 0.0, 0.0])) @ mixed
    parts = np.repeat(["train", "dev", "test"], 20_000)
    found = probe(states, labels, parts)
    assert found.accuracy == pytest.approx(norm.cdf(1), abs=0.01)


def test_states_that_do_not_depend_on_the_label_are_read_as_the_floor():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 0, 0, 1], 1500)
    rng.shuffle(labels)
    parts = np.repeat(["train", "dev", "test"], 2000)
    found = probe(rng.normal(size=(6000, 8)), labels, parts)
    assert found.floor == pytest.approx(0.75, abs=0.03)
    assert found.accuracy == pytest.approx(found.floor, abs=0.02)


def test_more_noise_than_states_asks_for_shrinkage():
    rng = np.random.default_rng(0)
    labels = np.tile([0, 1], 90)
    states = rng.normal(size=(180, 50)) + (labels == 0)[:, None] * 0.5
    parts = np.repeat(["train", "dev", "test"], 60)
    assert probe(states, labels, parts).shrinkage > SHRINKAGES[0]


def test_equal_states_are_read_without_a_division_by_zero():
    labels = np.tile([0, 1, 1], 10)
    parts = np.repeat(["train", "dev", "test"], 10)
    found = probe(np.ones((30, 4), np.float32), labels, parts)
    assert found.accuracy == found.floor


def test_a_class_that_train_lacks_is_left_out():
    labels = np.asarray([0, 1, 0, 1, 0, 2])
    parts = np.asarray(["train", "train", "dev", "dev", "test", "test"])
    states = np.asarray([[0.0], [1.0], [0.1], [0.9], [0.0], [5.0]])
    found = probe(states, labels, parts)
    assert (found.classes, found.tokens) == (2, 1)
    assert probe(states, labels, np.where(parts == "dev", "test", parts)) is None
