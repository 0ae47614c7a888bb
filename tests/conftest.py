"""What several test modules share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def real_data() -> Path:
    """Return the folder of real samples in the official formats, or skip."""
    folder = os.environ.get("MASKPOLICY_REAL_DATA")
    if not folder:
        pytest.skip("MASKPOLICY_REAL_DATA names no folder of real samples")
    return Path(folder)
