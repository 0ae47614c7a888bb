"""Budgets of the intermediate stage in words or epochs: steps, once the text has been counted."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from maskpolicy.core import schema
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.schema import Count, Positive, at
from maskpolicy.experiment.definition import Experiment
from maskpolicy.plugins.registry import CORPUS

log = logging.getLogger(__name__)

INTERMEDIATE, STEPS = "intermediate", "steps"
CHECKPOINTS, CHECKPOINT_WORDS = "checkpoint_steps", "checkpoint_words"
_TEXT = ("model", CORPUS, "general", "world", "plugins", INTERMEDIATE)  # keys of a file
_UNITS = {"k": 1_000, "M": 1_000_000}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([kM])")


@dataclass(frozen=True)
class TextBudget:
    """The keys of a block `intermediate` that stand for its steps."""

    # words to train on, in place of `steps`: a number, or 500k, 10M; rounded up to whole steps
    words: Count | None = None
    epochs: Positive | None = None  # passes over the corpus, in place of `steps`; rounded up


@dataclass(frozen=True)
class TextSize:
    """The size of a corpus."""

    passages: int
    words: int  # between blanks, as `corpus.words` counts them


Make = Callable[[dict[str, Any]], Experiment]
"""make(keys) -> the experiment of the keys of a file that has neither tasks nor seeds."""
SizeOf = Callable[[Experiment], TextSize]
"""size(experiment) -> the size of the corpus that its only row reads."""


def is_stated(given: Mapping[str, Any]) -> bool:
    """Return whether the keys of a file hold a budget in words or epochs."""
    rows = [block.get(INTERMEDIATE) for block in _blocks(given)]
    return CHECKPOINT_WORDS in given or any(map(_states, [given.get(INTERMEDIATE), *rows]))


def in_steps(given: Mapping[str, Any], where: str, make: Make, size: SizeOf) -> dict[str, Any]:
    """Return the keys of a file with steps in place of its words and epochs.

    A budget of the file counts the file's corpus, that of a row's block the row's. Raises
    ConfigError at `where`. Logs a warning of more words than the corpus has.
    """
    found = deepcopy(dict(given))

    def text(row: Mapping[str, Any]) -> _Text:
        experiment = make(_draft(found, row))
        batch = experiment.budget(INTERMEDIATE, experiment.policies[0]).batch_size
        return _Text(size(experiment), batch)

    if _states(found.get(INTERMEDIATE)) or CHECKPOINT_WORDS in found:
        usual = text({})
        if _states(found.get(INTERMEDIATE)):
            found[INTERMEDIATE] = usual.converted(found[INTERMEDIATE], at(where, INTERMEDIATE))
        if CHECKPOINT_WORDS in found:
            found[CHECKPOINTS] = usual.checkpoints(found, where)
    for number, block in enumerate(_blocks(found)):
        if _states(own := block.get(INTERMEDIATE)):
            place = at(f"{where}policies[{number}]", INTERMEDIATE)
            block[INTERMEDIATE] = text(block).converted(own, place)
    return found


@dataclass(frozen=True)
class _Text:
    """A corpus that is read in steps of `batch` passages."""

    size: TextSize
    batch: int

    def steps(self, words: float) -> int:
        """Return the steps that read a number of words, rounded up."""
        return self._of_epochs(words / self.size.words)

    def _of_epochs(self, epochs: float) -> int:
        return math.ceil(round(epochs * self.size.passages / self.batch, 6))

    def converted(self, block: Mapping[str, Any], place: str) -> dict[str, Any]:
        """Return a block `intermediate` with steps in place of its words or epochs."""
        stated = [key for key in (STEPS, *schema.fields_of(TextBudget)) if key in block]
        if len(stated) > 1:
            raise ConfigError(f"{at(place, stated[1])}: {stated[0]} is given too: keep one of them")
        kept = {key: value for key, value in block.items() if key not in stated}
        given = {key: _number(block[key], at(place, key)) for key in stated}
        asked = TextBudget(**schema.block(TextBudget, given, place))
        if asked.epochs is not None:
            return {**kept, STEPS: self._of_epochs(asked.epochs)}
        if asked.words is None:
            raise schema.wrong(None, "a number of words or epochs", at(place, stated[0]))
        if asked.words > self.size.words:
            times = asked.words / self.size.words
            log.warning(
                "%s: the corpus has %s words, and is read %.1f times",
                at(place, "words"),
                f"{self.size.words:,}",
                times,
            )
        return {**kept, STEPS: self.steps(asked.words)}

    def checkpoints(self, given: dict[str, Any], where: str) -> list[int]:
        """Return the checkpoint_steps of a file; takes its checkpoint_words out."""
        place, values = at(where, CHECKPOINT_WORDS), given.pop(CHECKPOINT_WORDS)
        if CHECKPOINTS in given:
            raise ConfigError(f"{place}: {CHECKPOINTS} is given too: keep one of them")
        if not isinstance(values, list | tuple):
            raise schema.wrong(values, "a list of numbers of words", place)
        numbers = [_number(value, f"{place}[{index}]") for index, value in enumerate(values)]
        return [
            self.steps(schema.check(value, Count, f"{place}[{index}]"))
            for index, value in enumerate(numbers)
        ]


def _draft(given: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a file that decide what a row reads in a step, as an experiment's."""
    own = {key: block for key, block in row.items() if key in (INTERMEDIATE, CORPUS)}
    keys: dict[str, Any] = {
        **{key: given[key] for key in _TEXT if key in given},
        "policies": [{"name": "random", **own}],
        "tasks": [],
        "baseline": "random",
    }
    for block in (keys, keys["policies"][0]):
        if isinstance(budget := block.get(INTERMEDIATE), Mapping):
            budgets = schema.fields_of(TextBudget)
            block[INTERMEDIATE] = {key: budget[key] for key in budget if key not in budgets}
    return deepcopy(keys)


def _blocks(given: Mapping[str, Any]) -> list[Any]:
    """Return the blocks of the rows of a file; {} for a row that is none."""
    rows = given.get("policies")
    rows = rows if isinstance(rows, list | tuple) else []
    return [row if isinstance(row, Mapping) else {} for row in rows]


def _states(block: Any) -> bool:
    return isinstance(block, Mapping) and not schema.fields_of(TextBudget).keys().isdisjoint(block)


def _number(value: Any, where: str) -> Any:
    """Return a number such as 10M, or any other value as it is."""
    if not isinstance(value, str):
        return value
    match = _AMOUNT.fullmatch(value.strip())
    if match is None:
        raise ConfigError(f"{where}: must be a number, or one such as 500k or 10M, not {value!r}")
    return round(float(match[1]) * _UNITS[match[2]])
