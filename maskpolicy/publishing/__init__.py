"""The contents of a run's folder, export of models as Transformers folders, and `pretrain`.

The files of single cells are described in `results`.
"""
