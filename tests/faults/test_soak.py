"""The command of the campaign, at a tiny size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_small_campaign_writes_its_figures_into_a_page(tmp_path):
    page = tmp_path / "page.md"
    begin, end = "<!-- written by make soak -->", "<!-- end of what make soak writes -->"
    page.write_text(f"# It\n\n{begin}\nold\n{end}\nend\n")
    done = subprocess.run(
        [sys.executable, "-m", "faults.soak", "--kills", "2", "--files", "20", "--write", page],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert text.startswith(f"# It\n\n{begin}\n\n`make soak` on ")
    assert text.endswith(f"{end}\nend\n")
    assert "old" not in text
    assert "| mutated experiment files | 7 |" in text
    assert "| run killed before a change of the file system | 1 | " in text
