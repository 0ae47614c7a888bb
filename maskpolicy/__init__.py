"""maskpolicy: experiments with masking policies in intermediate pre-training."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maskpolicy.collator import MaskingCollator

__all__ = ["MaskingCollator", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import the public classes when they are asked for, so that importing maskpolicy is quick."""
    if name == "MaskingCollator":
        from maskpolicy.collator import MaskingCollator

        return MaskingCollator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
