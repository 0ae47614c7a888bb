"""The embedded world: an encyclopaedia of invented subjects, and the tasks over it."""

from typing import TYPE_CHECKING

from maskpolicy.core.lazy import offers

if TYPE_CHECKING:
    from maskpolicy.data.world.create import KINDS_BY_FILE as KINDS_BY_FILE
    from maskpolicy.data.world.create import MARKS as MARKS
    from maskpolicy.data.world.create import figures as figures
    from maskpolicy.data.world.create import write as write
    from maskpolicy.experiment.world_settings import Settings as Settings
    from maskpolicy.experiment.world_settings import make as make

__all__, __getattr__, __dir__ = offers(__name__)
