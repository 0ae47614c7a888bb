"""What several test modules share."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def real_data() -> Path:
    """Return the folder of real samples in the official formats, or skip."""
    folder = os.environ.get("MASKPOLICY_REAL_DATA")
    if not folder:
        pytest.skip("MASKPOLICY_REAL_DATA names no folder of real samples")
    return Path(folder)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail, instead of skipping, a test on real samples where there are some (.ci/run)."""
    report = yield
    wanted = "real_data" in getattr(item, "fixturenames", ())
    if report.skipped and wanted and os.environ.get("MASKPOLICY_REAL_DATA"):
        report.outcome = "failed"
        report.longrepr = f"skipped, although MASKPOLICY_REAL_DATA is set: {report.longrepr}"
    return report
