"""maskpolicy: experiments with masking policies in intermediate pre-training."""

__version__ = "0.1.0"
