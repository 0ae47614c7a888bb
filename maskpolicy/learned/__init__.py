"""Support for learned policies: their fitting data, the span extractor and the meta-learner."""

from typing import TYPE_CHECKING

from maskpolicy.lazy import offers

if TYPE_CHECKING:
    from maskpolicy.config.budgets import Training
    from maskpolicy.learned import (
        candidates,
        episodes,
        extractor,
        hits,
        innerloop,
        meta,
        tagger,
        windows,
    )
    from maskpolicy.learned.classifier import Classifier
    from maskpolicy.learned.current_model import Current
    from maskpolicy.learned.fit_tools import Context, Contexts, Tools, require
    from maskpolicy.models.guesses import Guesses
    from maskpolicy.models.position_limits import bounded
    from maskpolicy.training.specials import Specials

__all__ = [
    "Classifier",
    "Context",
    "Contexts",
    "Current",
    "Guesses",
    "Specials",
    "Tools",
    "Training",
    "bounded",
    "candidates",
    "episodes",
    "extractor",
    "hits",
    "innerloop",
    "meta",
    "require",
    "tagger",
    "windows",
]
_HOMES = {
    "maskpolicy.config.budgets": ("Training",),
    "maskpolicy.learned": (
        *("candidates", "episodes", "extractor", "hits", "innerloop", "meta"),
        *("tagger", "windows"),
    ),
    "maskpolicy.learned.classifier": ("Classifier",),
    "maskpolicy.learned.current_model": ("Current",),
    "maskpolicy.learned.fit_tools": ("Context", "Contexts", "Tools", "require"),
    "maskpolicy.models.guesses": ("Guesses",),
    "maskpolicy.models.position_limits": ("bounded",),
    "maskpolicy.training.specials": ("Specials",),
}
__getattr__, __dir__ = offers(__name__, _HOMES)
