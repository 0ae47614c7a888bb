"""maskpolicy: experiments with masking policies in intermediate pre-training.

What a plugin or a script needs is imported from here; docs/api.md describes it. Each name is loaded
when it is first used, so that importing maskpolicy takes no time.
"""

import os
from typing import TYPE_CHECKING

from maskpolicy.core.lazy import offers
from maskpolicy.core.version import VERSION

if TYPE_CHECKING:
    from maskpolicy.analyses import Findings as Findings
    from maskpolicy.app.finished import Runs as Runs
    from maskpolicy.app.notebook import board as board
    from maskpolicy.app.notebook import load as load
    from maskpolicy.app.notebook import mask as mask
    from maskpolicy.app.notebook import pretrain as pretrain
    from maskpolicy.app.notebook import run as run
    from maskpolicy.core.distribution import Distribution as Distribution
    from maskpolicy.core.errors import ConfigError as ConfigError
    from maskpolicy.core.errors import DataError as DataError
    from maskpolicy.core.errors import MaskpolicyError as MaskpolicyError
    from maskpolicy.core.errors import StageError as StageError
    from maskpolicy.core.errors import StoreError as StoreError
    from maskpolicy.core.errors import unknown as unknown
    from maskpolicy.core.schema import Count as Count
    from maskpolicy.core.schema import Positive as Positive
    from maskpolicy.core.schema import Range as Range
    from maskpolicy.core.schema import Rate as Rate
    from maskpolicy.core.schema import Schedule as Schedule
    from maskpolicy.core.schema import Seed as Seed
    from maskpolicy.core.schema import Share as Share
    from maskpolicy.core.schema import Steps as Steps
    from maskpolicy.core.schema import Weight as Weight
    from maskpolicy.core.schema import omitted as omitted
    from maskpolicy.core.types import Example as Example
    from maskpolicy.core.types import Json as Json
    from maskpolicy.core.types import Passage as Passage
    from maskpolicy.core.types import Spans as Spans
    from maskpolicy.core.types import as_spans as as_spans
    from maskpolicy.data.taskfiles.sources import Hub as Hub
    from maskpolicy.leaderboard.results.cell import Result as Result
    from maskpolicy.leaderboard.results.cell import Run as Run
    from maskpolicy.masking.selection import choose as choose
    from maskpolicy.masking.selection import draw as draw
    from maskpolicy.masking.selection import draw_highest as draw_highest
    from maskpolicy.masking.selection import draw_weighted as draw_weighted
    from maskpolicy.masking.selection import fill as fill
    from maskpolicy.masking.selection import scatter as scatter
    from maskpolicy.models.training.collator import MaskingCollator as MaskingCollator
    from maskpolicy.pipeline.store.artifacts import Store as Store
    from maskpolicy.plugins.discovery import file_of as file_of
    from maskpolicy.plugins.registry import analysis as analysis
    from maskpolicy.plugins.registry import metric as metric
    from maskpolicy.plugins.registry import policy as policy
    from maskpolicy.plugins.registry import task as task
    from maskpolicy.plugins.statistics import Statistics as Statistics

__version__ = VERSION

# In a checkout, policies/, tasks/ and experiments/ lie beside this folder; in a wheel, inside it.
if not os.path.isdir(os.path.join(__path__[0], "policies")):  # noqa: PTH112, PTH118
    __path__.append(os.path.dirname(__path__[0]))  # noqa: PTH120

__all__, __getattr__, __dir__ = offers(__name__)
__all__ += ["__version__"]
