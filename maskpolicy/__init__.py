"""maskpolicy: experiments with masking policies in intermediate pre-training."""

import os
from typing import TYPE_CHECKING

from maskpolicy.version import VERSION

if TYPE_CHECKING:
    from maskpolicy.training.collator import MaskingCollator

__all__ = ["MaskingCollator", "__version__"]
__version__ = VERSION

# In a checkout, policies/, tasks/ and experiments/ lie beside this folder; in a wheel, inside it.
if not os.path.isdir(os.path.join(__path__[0], "policies")):  # noqa: PTH112, PTH118
    __path__.append(os.path.dirname(__path__[0]))  # noqa: PTH120


def __getattr__(name: str) -> object:
    """Import public classes on first use, so that `import maskpolicy` is fast."""
    if name == "MaskingCollator":
        from maskpolicy.training.collator import MaskingCollator

        return MaskingCollator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
