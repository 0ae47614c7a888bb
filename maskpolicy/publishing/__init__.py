"""Export of models as Transformers folders with model cards, and `pretrain` on your own text.

What a run leaves in its folder is listed in `runs.contents`.
"""
