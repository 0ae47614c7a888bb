"""What a run leaves in its folder, models as folders for Transformers, and `pretrain`.

What each cell's file holds is in `results`.
"""
