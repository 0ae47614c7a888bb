"""Every mistake in an experiment file is one line that names the key and says what to do.

messages.txt has a case on each line: overrides of a small file, and a part of the message.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import refused

LINES = Path(__file__).with_name("messages.txt").read_text("utf-8").splitlines()
CASES = [line.rsplit(" => ", 1) for line in LINES if not line.startswith("# ")]
MANY = list(range(1001))
LONG = [
    ("baseline=\udcff", "not valid YAML"),
    ("\udcff=1", "lone surrogate"),
    (f"policies.1={{name: regex, pattern: '{'(' * 9000}{')' * 9000}'}}", "pattern: is too large"),
    (f"policies.1={{name: random, grid: {{intermediate.seed: {MANY}}}}}", "makes 1,001 rows"),
    (f"policies.1={{name: random, tune: {{fit.seed: {MANY}}}}}", "makes 1,001 rows"),
    (f"grid={{finetune.eps: {MANY[1:502]}}}", "policies: 1,002 rows or more"),
]


@pytest.mark.parametrize(("overrides", "says"), [*CASES, *LONG], ids=lambda text: text[:60])
def test_a_mistake_is_one_line_with_key_and_suggestion(load, tmp_path, overrides, says):
    message = refused(load, "policies=[none, random]", *overrides.split(" ;; "))
    assert says in message
    assert message.startswith((f"{tmp_path / 'mine.yaml'}: ", "override "))
