"""How the world words what it knows and asks, and what its names are put together from."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

import yaml

WORDINGS: Mapping[str, Any] = yaml.safe_load(
    resources.files(__package__).joinpath("wordings.yaml").read_text("utf-8")
)
"""By kind of subjects, by task, and of all: texts with slots."""
