"""What a person reads of an error: one line, with a name where it is not ours."""

from __future__ import annotations

import pytest

from maskpolicy.errors import DataError, StageError, cause


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (DataError("one.txt, line 3: empty"), "one.txt, line 3: empty"),
        (StageError("  first\nsecond"), "first"),
        (StageError(""), "StageError"),
        (KeyError("entities"), "KeyError: 'entities'"),
        (ValueError("bad\nworse"), "ValueError: bad"),
        (SystemExit(), "SystemExit"),
    ],
)
def test_the_cause_is_one_line_and_ours_stand_alone(error, line):
    assert cause(error) == line
