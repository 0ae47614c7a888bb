"""maskpolicy: experiments with masking policies in intermediate pre-training.

What a plugin or a script needs is imported from here; docs/api.md describes it. Each name is loaded
when it is first used, so that importing maskpolicy takes no time.
"""

import os
from typing import TYPE_CHECKING

from maskpolicy.lazy import offers
from maskpolicy.version import VERSION

if TYPE_CHECKING:
    from maskpolicy.errors import (
        ConfigError,
        DataError,
        MaskpolicyError,
        StageError,
        StoreError,
        unknown,
    )
    from maskpolicy.findings import Findings
    from maskpolicy.formats.sources import Hub
    from maskpolicy.masking.placement import scatter
    from maskpolicy.masking.random_draws import choose, draw, draw_highest, draw_weighted, fill
    from maskpolicy.plugins.discovery import file_of
    from maskpolicy.plugins.registry import analysis, policy, task
    from maskpolicy.plugins.scoring import metric
    from maskpolicy.plugins.statistics import Statistics
    from maskpolicy.results.cell import Result, Run
    from maskpolicy.runs.finished import Runs
    from maskpolicy.runs.notebook import load, mask, pretrain, run
    from maskpolicy.schema import Count, Positive, Range, Rate, Schedule, Seed, Share, Steps, Weight
    from maskpolicy.store.artifacts import Store
    from maskpolicy.training.collator import MaskingCollator
    from maskpolicy.types import Example, Json, Passage, Spans, as_spans

__version__ = VERSION
__all__ = [
    "ConfigError",
    "Count",
    "DataError",
    "Example",
    "Findings",
    "Hub",
    "Json",
    "MaskingCollator",
    "MaskpolicyError",
    "Passage",
    "Positive",
    "Range",
    "Rate",
    "Result",
    "Run",
    "Runs",
    "Schedule",
    "Seed",
    "Share",
    "Spans",
    "StageError",
    "Statistics",
    "Steps",
    "Store",
    "StoreError",
    "Weight",
    "__version__",
    "analysis",
    "as_spans",
    "choose",
    "draw",
    "draw_highest",
    "draw_weighted",
    "file_of",
    "fill",
    "load",
    "mask",
    "metric",
    "policy",
    "pretrain",
    "run",
    "scatter",
    "task",
    "unknown",
]
_HOMES = {  # the same names, for the interpreter
    "maskpolicy.errors": (
        *("ConfigError", "DataError", "MaskpolicyError", "StageError", "StoreError", "unknown"),
    ),
    "maskpolicy.findings": ("Findings",),
    "maskpolicy.formats.sources": ("Hub",),
    "maskpolicy.masking.placement": ("scatter",),
    "maskpolicy.masking.random_draws": ("choose", "draw", "draw_highest", "draw_weighted", "fill"),
    "maskpolicy.plugins.discovery": ("file_of",),
    "maskpolicy.plugins.registry": ("analysis", "policy", "task"),
    "maskpolicy.plugins.scoring": ("metric",),
    "maskpolicy.results.cell": ("Result", "Run"),
    "maskpolicy.runs.finished": ("Runs",),
    "maskpolicy.runs.notebook": ("load", "mask", "pretrain", "run"),
    "maskpolicy.schema": (
        *("Count", "Positive", "Range", "Rate", "Schedule", "Seed", "Share", "Steps", "Weight"),
    ),
    "maskpolicy.plugins.statistics": ("Statistics",),
    "maskpolicy.store.artifacts": ("Store",),
    "maskpolicy.training.collator": ("MaskingCollator",),
    "maskpolicy.types": ("Example", "Json", "Passage", "Spans", "as_spans"),
}

# In a checkout, policies/, tasks/ and experiments/ lie beside this folder; in a wheel, inside it.
if not os.path.isdir(os.path.join(__path__[0], "policies")):  # noqa: PTH112, PTH118
    __path__.append(os.path.dirname(__path__[0]))  # noqa: PTH120

__getattr__, __dir__ = offers(__name__, _HOMES)
