"""maskpolicy: experiments with masking policies in intermediate pre-training.

What a plugin or a script needs is imported from here; docs/api.md describes it. Each name is loaded
when it is first used, so that importing maskpolicy takes no time.
"""

import os
from typing import TYPE_CHECKING

from maskpolicy.core.lazy import offers
from maskpolicy.core.version import VERSION

if TYPE_CHECKING:
    from maskpolicy.analyses import Findings
    from maskpolicy.app.finished import Runs
    from maskpolicy.app.notebook import board, load, mask, pretrain, run
    from maskpolicy.core.distribution import Distribution
    from maskpolicy.core.errors import (
        ConfigError,
        DataError,
        MaskpolicyError,
        StageError,
        StoreError,
        unknown,
    )
    from maskpolicy.core.schema import (
        Count,
        Positive,
        Range,
        Rate,
        Schedule,
        Seed,
        Share,
        Steps,
        Weight,
        omitted,
    )
    from maskpolicy.core.types import Example, Json, Passage, Spans, as_spans
    from maskpolicy.data.taskfiles.sources import Hub
    from maskpolicy.leaderboard.results.cell import Result, Run
    from maskpolicy.masking.selection import (
        choose,
        draw,
        draw_highest,
        draw_weighted,
        fill,
        scatter,
    )
    from maskpolicy.models.training.collator import MaskingCollator
    from maskpolicy.pipeline.store.artifacts import Store
    from maskpolicy.plugins.discovery import file_of
    from maskpolicy.plugins.registry import analysis, metric, policy, task
    from maskpolicy.plugins.statistics import Statistics

__version__ = VERSION
__all__ = [
    "ConfigError",
    "Count",
    "DataError",
    "Distribution",
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
    "board",
    "choose",
    "draw",
    "draw_highest",
    "draw_weighted",
    "file_of",
    "fill",
    "load",
    "mask",
    "metric",
    "omitted",
    "policy",
    "pretrain",
    "run",
    "scatter",
    "task",
    "unknown",
]
_HOMES = {  # the same names, for the interpreter
    "maskpolicy.analyses": ["Findings"],
    "maskpolicy.app.finished": ["Runs"],
    "maskpolicy.app.notebook": ["board", "load", "mask", "pretrain", "run"],
    "maskpolicy.core.distribution": ["Distribution"],
    "maskpolicy.core.errors": (
        ["ConfigError", "DataError", "MaskpolicyError", "StageError", "StoreError", "unknown"]
    ),
    "maskpolicy.core.schema": (
        [
            "Count",
            "Positive",
            "Range",
            "Rate",
            "Schedule",
            "Seed",
            "Share",
            "Steps",
            "Weight",
            "omitted",
        ]
    ),
    "maskpolicy.core.types": ["Example", "Json", "Passage", "Spans", "as_spans"],
    "maskpolicy.data.taskfiles.sources": ["Hub"],
    "maskpolicy.leaderboard.results.cell": ["Result", "Run"],
    "maskpolicy.masking.selection": (
        ["choose", "draw", "draw_highest", "draw_weighted", "fill", "scatter"]
    ),
    "maskpolicy.models.training.collator": ["MaskingCollator"],
    "maskpolicy.pipeline.store.artifacts": ["Store"],
    "maskpolicy.plugins.discovery": ["file_of"],
    "maskpolicy.plugins.registry": ["analysis", "metric", "policy", "task"],
    "maskpolicy.plugins.statistics": ["Statistics"],
}

# In a checkout, policies/, tasks/ and experiments/ lie beside this folder; in a wheel, inside it.
if not os.path.isdir(os.path.join(__path__[0], "policies")):  # noqa: PTH112, PTH118
    __path__.append(os.path.dirname(__path__[0]))  # noqa: PTH120

__getattr__, __dir__ = offers(__name__, _HOMES)
