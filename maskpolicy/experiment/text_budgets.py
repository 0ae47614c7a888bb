"""Budgets in words and epochs: they become steps once texts and train examples are counted."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol

from maskpolicy.core import schema
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.schema import Count, Positive, at
from maskpolicy.experiment.budgets import blocks_of_columns
from maskpolicy.experiment.definition import Experiment, TaskBlock
from maskpolicy.experiment.task_kinds import SPAN, is_zero_shot, kind_of
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.plugins.registry import CORPUS

log = logging.getLogger(__name__)

ROWS = "policies"
INTERMEDIATE, FINETUNE = "intermediate", "finetune"
STEPS, EPOCHS, BATCH, SOURCE = "steps", "epochs", "batch_size", "max_source"
CHECKPOINTS, CHECKPOINT_WORDS = "checkpoint_steps", "checkpoint_words"
_TEXT = ("model", CORPUS, "general", "world", "plugins", INTERMEDIATE)  # decide a step's words
_TASKS = ("data", "tasks", FINETUNE)  # decide the words of a step of fine-tuning
_UNITS = {"k": 1_000, "M": 1_000_000}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([kM])")


@dataclass(frozen=True)
class TextBudget:
    """The keys of a block `intermediate` that may replace its steps."""

    # words to train on, instead of `steps`: a number, or 500k, 10M; rounded up to whole steps
    words: Count | None = None
    epochs: Positive | None = None  # passes over the corpus, instead of `steps`; rounded up


@dataclass(frozen=True)
class TuningBudget:
    """The key of a block `finetune` that may replace its steps."""

    # passes over a task's train examples, instead of `steps`; rounded up
    epochs: Positive | None = None


@dataclass(frozen=True)
class TextSize:
    """The size of a corpus."""

    passages: int
    words: int  # between blanks, as `corpus.words` counts them


class Counter(Protocol):
    """Counts the words, passages and examples that trainings read."""

    def text(self, experiment: Experiment) -> TextSize:
        """Return the size of the corpus that the first row reads."""

    def examples(self, experiment: Experiment, task: TaskBlock) -> int:
        """Return the number of train examples of a task."""


Make = Callable[[dict[str, Any]], Experiment]
"""make(keys) -> the experiment of a file's keys, which may lack seeds and tasks."""


@dataclass(frozen=True)
class TextBudgets:
    """The budgets in words and epochs of a file, which become steps.

    The file's budget refers to the file's corpus, a row's budget to the row's corpus, and both to
    the row's batch size; epochs of fine-tuning become steps of each task.
    """

    given: Mapping[str, Any]  # the keys of the file
    where: str
    make: Make
    counter: Counter | None = None  # None: no budget may be in words or epochs

    def of_file(self) -> dict[str, Any]:
        """Return the keys of the file with steps instead of its own words and epochs.

        Raises ConfigError. Logs a warning if a budget has more words than its corpus.
        """
        found, where = deepcopy(dict(self.given)), self.where
        block, has_checkpoints = found.get(INTERMEDIATE), found.get(CHECKPOINT_WORDS)
        if _stated(block, TextBudget) or has_checkpoints:
            usual = self._text({})
            if _stated(block, TextBudget):
                found[INTERMEDIATE] = usual.converted(found[INTERMEDIATE], at(where, INTERMEDIATE))
            if has_checkpoints:
                found[CHECKPOINTS] = usual.checkpoints(found, where)
        return self._with_tuning(found) if self.tunes_by_epochs and "tasks" in found else found

    def of_row(self, row: Mapping[str, Any], place: str) -> Mapping[str, Any]:
        """Return the keys of a row with steps instead of words and epochs.

        Raises ConfigError for a batch size, a corpus or a max_source that other budgets of the file
        do not know.
        """
        own: Any = row.get(INTERMEDIATE)
        usual = _stated(self.given.get(INTERMEDIATE), TextBudget)
        has_batch = isinstance(own, Mapping) and BATCH in own
        if self.given.get(CHECKPOINT_WORDS) and (has_batch or CORPUS in row):
            key = at(at(place, INTERMEDIATE), BATCH) if has_batch else at(place, CORPUS)
            raise ConfigError(
                f"{key}: {CHECKPOINT_WORDS} are counted with the file's batch size and corpus: "
                f"give {CHECKPOINTS}"
            )
        if self.tunes_by_epochs:
            counted = (BATCH, SOURCE) if self._counts_windows() else (BATCH,)
            if key := _key_of_steps(row.get(FINETUNE), TuningBudget, counted):
                raise ConfigError(
                    f"{at(at(place, FINETUNE), key)}: epochs become the steps of each task with "
                    f"the {key} of the file or the task: give {FINETUNE}.{STEPS}"
                )
        if usual and _key_of_steps(own, TextBudget):  # the budget is that of the file's corpus
            own = {**own, **usual}
            text = self._text({INTERMEDIATE: own}, place)
            steps = text.converted(own, self.where, is_new=False)
        elif _stated(own, TextBudget):
            steps = self._text(row, place).converted(own, at(place, INTERMEDIATE))
        else:
            return row
        return {**row, INTERMEDIATE: steps}

    def _with_tuning(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return the keys of a file with steps for each task instead of epochs of fine-tuning."""
        where, counter = self.where, self._known_counter()
        experiment = self.make(_draft(found, {}, with_tasks=True))
        usual, plain = _epochs(found.get(FINETUNE), at(where, FINETUNE))
        tasks = found["tasks"] if isinstance(found["tasks"], list | tuple) else [found["tasks"]]
        made: list[Any] = []
        for number, (task, item) in enumerate(zip(experiment.tasks, tasks, strict=True)):
            item = dict(item) if isinstance(item, Mapping) else {"name": item}
            own, rest = _epochs(item.get(FINETUNE), at(f"{where}tasks[{number}]", FINETUNE))
            epochs = own or (None if STEPS in rest else usual)
            if epochs and not is_zero_shot(task):
                batch = experiment.budget(FINETUNE, experiment.policies[0], task).batch_size
                steps = _rounded_up(epochs * counter.examples(experiment, task) / batch)
                item[FINETUNE] = {**rest, STEPS: steps}
            made.append(item)
        return {**found, "tasks": made, **({FINETUNE: plain} if FINETUNE in found else {})}

    @property
    def tunes_by_epochs(self) -> bool:
        """Whether a budget of fine-tuning is in epochs."""
        blocks = (self.given, *blocks_of_columns(self.given))
        return any(_stated(block.get(FINETUNE), TuningBudget) for block in blocks)

    @property
    def tunes_all_by_epochs(self) -> bool:
        """Whether the file's budget of fine-tuning is in epochs, not only a task's."""
        return bool(_stated(self.given.get(FINETUNE), TuningBudget))

    def _counts_windows(self) -> bool:
        """Return whether epochs become the steps of a span task, whose windows are counted."""
        usual, tasks = _stated(self.given.get(FINETUNE), TuningBudget), self.given.get("tasks")
        for item in tasks if isinstance(tasks, list | tuple) else [tasks]:
            task: Mapping[str, Any] = item if isinstance(item, Mapping) else {"name": item}
            own = task.get(FINETUNE) or {}
            has_epochs = _stated(own, TuningBudget) or (usual and STEPS not in own)
            if has_epochs and kind_of(find_plugin("task", task["name"])) == SPAN:
                return True
        return False

    def _text(self, row: Mapping[str, Any], place: str = "") -> _Text:
        """Return the text of a row, or of the file; an error names the row's `place`."""
        counter = self._known_counter()
        try:
            experiment = self.make(_draft(self.given, row))
        except ConfigError as error:
            if not place:
                raise
            raise ConfigError(str(error).replace(f"{self.where}{ROWS}[0]", place, 1)) from error
        batch = experiment.budget(INTERMEDIATE, experiment.policies[0]).batch_size
        return _Text(counter.text(experiment), batch)

    def _known_counter(self) -> Counter:
        if self.counter is None:
            raise ConfigError(
                f"{self.where}words and epochs become steps in commands, which count the texts: "
                "give steps"
            )
        return self.counter


def without_null(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a file without budgets in words and epochs that are null, or empty."""
    found = deepcopy(dict(given))
    rows = found.get(ROWS)
    for block in (found, *blocks_of_columns(found), *(rows if isinstance(rows, list) else ())):
        for training, budget in ((INTERMEDIATE, TextBudget), (FINETUNE, TuningBudget)):
            own = block.get(training) if isinstance(block, dict) else None
            if isinstance(own, dict):
                empty = {key for key in schema.fields_of(budget) if own.get(key, 0) is None}
                block[training] = {key: own[key] for key in own if key not in empty}
    if not found.get(CHECKPOINTS, True):
        del found[CHECKPOINTS]
    return found


def _epochs(block: Any, place: str) -> tuple[float | None, dict[str, Any]]:
    """Return the epochs of a block `finetune`, and its other keys."""
    if not _stated(block, TuningBudget):
        return None, dict(block) if isinstance(block, Mapping) else {}
    if STEPS in block:
        raise ConfigError(f"{at(place, EPOCHS)}: {STEPS} is given too: keep one of them")
    rest = {key: value for key, value in block.items() if key != EPOCHS}
    asked = schema.block(TuningBudget, {EPOCHS: block[EPOCHS]}, place)
    return asked[EPOCHS], rest


@dataclass(frozen=True)
class _Text:
    """The size of a corpus, and the passages of a step."""

    size: TextSize
    batch: int

    def steps(self, words: float) -> int:
        """Return the steps for a number of words, rounded up."""
        return _rounded_up(words / self.size.words * self.size.passages / self.batch)

    def converted(
        self, block: Mapping[str, Any], place: str, *, is_new: bool = True
    ) -> dict[str, Any]:
        """Return a block `intermediate` with steps instead of its words or epochs.

        Logs a warning if a budget that `is_new` has more words than the corpus.
        """
        stated = [key for key in (STEPS, *schema.fields_of(TextBudget)) if key in block]
        if len(stated) > 1:
            raise ConfigError(f"{at(place, stated[1])}: {stated[0]} is given too: keep one of them")
        kept = {key: value for key, value in block.items() if key not in stated}
        given = {key: block[key] for key in stated}
        if "words" in given:
            given["words"] = _number(given["words"], at(place, "words"))
        asked = TextBudget(**schema.block(TextBudget, given, place))
        if asked.epochs is not None:
            return {**kept, STEPS: self.steps(asked.epochs * self.size.words)}
        if asked.words is None:
            raise schema.wrong(None, "a number of words or epochs", at(place, stated[0]))
        if is_new and asked.words > (own := self.size.words):
            told = "%s: the corpus has %s words, and is read %.1f times"
            log.warning(told, at(place, "words"), f"{own:,}", asked.words / own)
        return {**kept, STEPS: self.steps(asked.words)}

    def checkpoints(self, given: Mapping[str, Any], where: str) -> list[int]:
        """Return the checkpoint_words of a file as checkpoint_steps."""
        place, values = at(where, CHECKPOINT_WORDS), given[CHECKPOINT_WORDS]
        if CHECKPOINTS in given:
            raise ConfigError(f"{place}: {CHECKPOINTS} is given too: keep one of them")
        if not isinstance(values, list | tuple):
            raise schema.wrong(values, "a list of numbers of words", place)
        places = [f"{place}[{index}]" for index in range(len(values))]
        return [
            self.steps(schema.check(_number(value, where), Count, where))
            for value, where in zip(values, places, strict=True)
        ]


def _draft(
    given: Mapping[str, Any], row: Mapping[str, Any], *, with_tasks: bool = False
) -> dict[str, Any]:
    """Return the keys of a file that decide the text and the batch of a row's steps."""
    own = {key: block for key, block in row.items() if key in (INTERMEDIATE, CORPUS)}
    names = (*_TEXT, *(_TASKS if with_tasks else ()))
    keys: dict[str, Any] = {
        "tasks": [],
        **{key: given[key] for key in names if key in given},
        ROWS: [{"name": "random", **own}],
        "baseline": "random",
    }
    keys = deepcopy(keys)
    for block in (keys, *keys[ROWS], *blocks_of_columns(keys)):
        for training, budget in ((INTERMEDIATE, TextBudget), (FINETUNE, TuningBudget)):
            if isinstance(block.get(training), Mapping):
                for key in (*schema.fields_of(budget), "warmup"):  # may suit those steps alone
                    block[training].pop(key, None)
    return keys


def _rounded_up(steps: float) -> int:
    return math.ceil(round(steps, 6))


def _stated(block: Any, budget: type) -> dict[str, Any]:
    """Return the keys of a block that may replace its steps."""
    block = block if isinstance(block, Mapping) else {}
    return {key: block[key] for key in schema.fields_of(budget) if key in block}


def _key_of_steps(block: Any, budget: type, counted: Sequence[str] = (BATCH,)) -> str:
    """Return the first key of `counted` in a row's block that has no steps, words or epochs."""
    block = block if isinstance(block, Mapping) else {}
    has_own = STEPS in block or _stated(block, budget)
    return "" if has_own else next((key for key in counted if key in block), "")


def _number(value: Any, where: str) -> Any:
    """Return the number that a text such as 10M stands for; other values stay as they are."""
    if not isinstance(value, str):
        return value
    match = _AMOUNT.fullmatch(value.strip())
    if match is None:
        raise ConfigError(f"{where}: must be a number, or one such as 500k or 10M, not {value!r}")
    return round(float(match[1]) * _UNITS[match[2]])
