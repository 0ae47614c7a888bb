"""Stages, what they compute, and who runs them: the graph, the store, the engines."""
