"""A store for the tests of this folder."""

from __future__ import annotations

import pytest

from maskpolicy.pipeline.store.artifacts import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")
