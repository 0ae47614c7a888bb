"""Policies that are learned: what they are fitted on, the span extractor, and the meta-learner."""
