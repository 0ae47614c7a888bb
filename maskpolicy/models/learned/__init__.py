"""Support for learned policies: their fitting data, the span extractor and the meta-learner."""

from typing import TYPE_CHECKING

from maskpolicy.core.lazy import offers

if TYPE_CHECKING:
    from maskpolicy.experiment.budgets import Training as Training
    from maskpolicy.models.families import bounded as bounded
    from maskpolicy.models.guesses import Current as Current
    from maskpolicy.models.guesses import Guesses as Guesses
    from maskpolicy.models.learned import candidates as candidates
    from maskpolicy.models.learned import episodes as episodes
    from maskpolicy.models.learned import extractor as extractor
    from maskpolicy.models.learned import hits as hits
    from maskpolicy.models.learned import innerloop as innerloop
    from maskpolicy.models.learned import meta as meta
    from maskpolicy.models.learned import tagger as tagger
    from maskpolicy.models.learned import windows as windows
    from maskpolicy.models.learned.fit_tools import Classifier as Classifier
    from maskpolicy.models.learned.fit_tools import Context as Context
    from maskpolicy.models.learned.fit_tools import Contexts as Contexts
    from maskpolicy.models.learned.fit_tools import Tools as Tools
    from maskpolicy.models.learned.fit_tools import require as require
    from maskpolicy.models.training.specials import Specials as Specials

__all__, __getattr__, __dir__ = offers(__name__)
