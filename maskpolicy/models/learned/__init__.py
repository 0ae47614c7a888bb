"""Support for learned policies: their fitting data, the span extractor and the meta-learner."""

from typing import TYPE_CHECKING

from maskpolicy.core.lazy import offers

if TYPE_CHECKING:
    from maskpolicy.experiment.budgets import Training
    from maskpolicy.models.families import bounded
    from maskpolicy.models.guesses import Current, Guesses
    from maskpolicy.models.learned import (
        candidates,
        episodes,
        extractor,
        hits,
        innerloop,
        meta,
        tagger,
        windows,
    )
    from maskpolicy.models.learned.fit_tools import Classifier, Context, Contexts, Tools, require
    from maskpolicy.models.training.specials import Specials

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
    "maskpolicy.experiment.budgets": ("Training",),
    "maskpolicy.models.learned": (
        *("candidates", "episodes", "extractor", "hits", "innerloop", "meta"),
        *("tagger", "windows"),
    ),
    "maskpolicy.models.learned.fit_tools": (
        "Classifier",
        "Context",
        "Contexts",
        "Tools",
        "require",
    ),
    "maskpolicy.models.guesses": ("Current", "Guesses"),
    "maskpolicy.models.families": ("bounded",),
    "maskpolicy.models.training.specials": ("Specials",),
}
__getattr__, __dir__ = offers(__name__, _HOMES)
