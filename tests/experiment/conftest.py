"""The file of a policy for the tests of this folder."""

PLUGIN = """
from dataclasses import dataclass
from typing import Any

from maskpolicy import Rate, policy


@policy("{name}", target="full")
@dataclass(frozen=True)
class Mine:
    {fields}

    def annotate(self, passages, fitted=None):
        return {{}}

    def select(self, passage, rng):
        return passage.words[:1]
"""


def plugin(name: str, *fields: str) -> str:
    """Return the file of a policy with these lines in its class."""
    return PLUGIN.format(name=name, fields="\n    ".join(fields))
