"""The embedded world: an encyclopaedia of invented subjects, and the tasks over it."""

from typing import TYPE_CHECKING

from maskpolicy.core.lazy import offers

if TYPE_CHECKING:
    from maskpolicy.data.world.create import KINDS_BY_FILE, MARKS, figures, write
    from maskpolicy.experiment.world_settings import Settings, make

__all__ = ["KINDS_BY_FILE", "MARKS", "Settings", "figures", "make", "write"]
_HOMES = {
    "maskpolicy.data.world.create": ("KINDS_BY_FILE", "MARKS", "figures", "write"),
    "maskpolicy.experiment.world_settings": ("Settings", "make"),
}
__getattr__, __dir__ = offers(__name__, _HOMES)
