"""What can be guessed without a model: the reference that a score is measured against.

Every rule learns from a task's train split alone. The best one on dev is scored on test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from maskpolicy import metrics
from maskpolicy.majority.rules import RULES, Guess, Material
from maskpolicy.types import Example

__all__ = ["FILE", "LABEL", "RULES", "SENTENCE", "Majority", "Material", "best"]

FILE = "majority.json"  # of the stage that computes it
LABEL = "majority"  # of the line beside the rows of a leaderboard
SENTENCE = (
    "majority: the score of a guess without a model, learnt from the train split alone by a simple "
    "rule that is chosen on dev. A score that is not above this line shows no learning beyond such "
    "a guess; being above it is necessary and not sufficient, and the line is an estimate on the "
    "same test examples"
)


@dataclass(frozen=True)
class Majority:
    """The rule that was chosen, its score on test and the scores of all rules on dev, in 0..1."""

    rule: str
    score: float
    n: int  # test examples
    dev: Mapping[str, float]


def best(
    material: Material, dev: Sequence[Example], test: Sequence[Example], kind: str
) -> Majority:
    """Choose the rule with the highest score on dev, of equal ones the first, and score it on test.

    `kind` is the task's: text, label or span.
    """
    guesses = {rule.name: rule.learn(material) for rule in RULES[kind]}
    usable = {name: guess for name, guess in guesses.items() if guess is not None}
    scores = {name: _score(guess, dev, material.metric) for name, guess in usable.items()}
    chosen = max(scores, key=lambda name: scores[name])
    return Majority(chosen, _score(usable[chosen], test, material.metric), len(test), scores)


def _score(guess: Guess, examples: Sequence[Example], metric: str) -> float:
    references = [metrics.answers(metric, one) for one in examples]
    return metrics.total(metric, [guess(one) for one in examples], references).score
