"""Sentences of twelve languages, in twelve writing systems or with abbreviations of their own.

fixtures/sentences.txt has a sentence a line below each language: Universal Declaration of Human
Rights, openings of novels, and a few made here.
"""

from pathlib import Path

_PARTS = Path(__file__).with_name("fixtures").joinpath("sentences.txt").read_text("utf-8")
SENTENCES = {part[:2]: part[2:].split("\n")[1:] for part in _PARTS.strip("# \n").split("\n\n# ")}
"""By language, its sentences."""
