"""Models as folders for Transformers, with a model card, and continued pre-training."""
