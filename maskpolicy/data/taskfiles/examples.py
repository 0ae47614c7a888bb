"""Read the examples of a task's split: map rows, carve dev from train, look up contexts."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import count, dropwhile, islice
from math import isfinite
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar

from maskpolicy.core.errors import DataError, MaskpolicyError, listed
from maskpolicy.core.files import json_lines
from maskpolicy.core.metrics import METRICS
from maskpolicy.core.types import Example
from maskpolicy.data.datafiles import fields
from maskpolicy.data.datafiles.fields import alike
from maskpolicy.data.datafiles.rows import Malformed, Row
from maskpolicy.data.taskfiles import sources
from maskpolicy.experiment.definition import WORLD, TaskBlock
from maskpolicy.experiment.task_kinds import LABEL, PAIRS, SPAN, TAGS, TASK_KINDS, TEXT
from maskpolicy.plugins import hooks, registry

T = TypeVar("T")
_log = logging.getLogger(__name__)
_NAMED = 10  # repeated ids that a message names


@dataclass(frozen=True)
class Split:
    """The examples of one split, and the numbers of those left out."""

    examples: list[Example]
    unlabelled: int = 0  # rows (or examples) without any answer
    malformed: int = 0  # rows skipped by on_error: skip
    repeated: tuple[str, ...] = ()  # a message for each example with the id of an earlier one


@dataclass
class Reading:
    """The examples of a split that were read so far, each with its row."""

    task: sources.Task
    source: sources.SplitSource
    malformed: Malformed
    kept: list[tuple[Row, Example]] = field(default_factory=list)
    unlabelled: int = 0
    repeated: list[str] = field(default_factory=list)

    def each(self, change: Callable[[Row, Example], T]) -> list[T]:
        """Return change(row, example) for each example; rows whose call fails are malformed."""
        results = []
        for row, example in self.kept:
            try:
                with _plugin_errors_as_data_errors(self.task):
                    results.append(change(row, example))
            except DataError as error:
                self.malformed.add(row, str(error))
        return results


def read_split(block: TaskBlock, split: str, folder: Path, contexts: bool = True) -> Split:
    """Read train, dev or test of a task in file order, from files in `folder` or the Hub.

    With `contexts=False`, contexts outside the rows are read only if the block has `context: true`
    or the task's kind always reads them. Raises DataError for a missing file, a malformed row
    (unless the block has `on_error: skip`) and a split without examples.
    """
    reading = opened(block, split, folder)
    if contexts or block.context or TASK_KINDS[reading.task.facts.kind].reads_context:
        look_up(reading)
    examples = [example for _, example in reading.kept]
    if block.context:
        examples = _with_context(examples, reading.source)
    if reading.source.side == "dev":  # carved from train, where its rows are counted
        return Split(examples)
    _log_rows(reading)
    return Split(examples, reading.unlabelled, reading.malformed.count, tuple(reading.repeated))


def opened(block: TaskBlock, split: str, folder: Path) -> Reading:
    """Read the pairs (row, example) of a split without contexts; raises as `read_split` does.

    Two examples with the same id are an error in a user's task. In official files both stay, and
    `repeated` names the second one.
    """
    task = sources.task(block)
    source = sources.source_of(task, block, split, folder)
    setting = f"on_error: skip in the block of task {task.name!r}"
    reading = Reading(task, source, Malformed(setting, block.on_error == "skip"))
    _map(reading)
    if source.side == "dev" and "dev" not in task.facts.files:
        _warn_of_dev(source)
    if not reading.kept:
        more = ": set more subjects in the block `world`" if block.data == WORLD else ""
        raise DataError(
            f"{source.name}: no usable row ({_counts(reading)}): task {block.name!r} needs rows "
            f"with answers{more}"
        )
    if task.facts.linked:
        texts = ((one.source, one.context) for _, one in reading.kept)
        groups = connected([[alike(text) for text in both if text is not None] for both in texts])
        pairs = zip(reading.kept, groups, strict=True)
        reading.kept = [(row, replace(one, group=group)) for (row, one), group in pairs]
    if source.side != "all":
        sizes, share = Counter(one.group for _, one in reading.kept), task.facts.dev_share
        most = share * sizes.total()
        # a linked group may be large; it stays in train
        stay = {group for group in sizes if sizes[group] > most} if task.facts.linked else ()
        dev, is_dev = carve(sizes, share, stay), source.side == "dev"
        reading.kept = [(row, one) for row, one in reading.kept if (one.group in dev) == is_dev]
    if not reading.kept:
        raise DataError(
            f"{source.name}: all usable rows are of one group, and a {split} split is carved from "
            f"train by whole groups: add rows of another group for task {block.name!r}"
        )
    if most := block.limit.group:
        numbers = defaultdict[str, Iterator[int]](count)
        reading.kept = [pair for pair in reading.kept if next(numbers[pair[1].group]) < most]
    if most := getattr(block.limit, split):
        places = first([one.group for _, one in reading.kept], most)
        reading.kept = [reading.kept[place] for place in places]
    return reading


def files(block: TaskBlock, split: str, folder: Path, contexts: bool = True) -> list[Path]:
    """Return the files that `read_split` reads, whose digests are in the key; none for the Hub."""
    if block.data == "hub":
        return []
    task = sources.task(block)
    source = sources.find_split(task, split, folder)
    companions = hooks.EVIDENCE_FILES.of(task.plugin)
    contexts = contexts or block.context or TASK_KINDS[task.facts.kind].reads_context
    if companions is None or not contexts:
        return list(source.files)
    reading = Reading(task, source, Malformed("", skip=True))
    _map(reading)
    rows = [row.value for row, _ in reading.kept]
    with _plugin_errors_as_data_errors(task):
        found = companions(rows, source.beside, source.official)
        if isinstance(found, str):
            raise DataError(f"task {task.name!r}: evidence_files gave a text, not a list of paths")
        return [*source.files, *dict.fromkeys(map(Path, found))]


def write_rows(path: Path, examples: Iterable[Example]) -> None:
    """Write examples as JSON Lines with all their fields, but without empty short answers."""
    rows = [asdict(example) for example in examples]
    for row in rows:
        if not row["short_answers"]:
            del row["short_answers"]
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_rows(path: Path) -> list[Example]:
    """Return the examples that `write_rows` wrote."""
    rows = list(json_lines(path))
    for row in rows:
        row |= {"targets": tuple(row["targets"]), "choices": tuple(row["choices"])}
        row["short_answers"] = tuple(row.get("short_answers", ()))
    return [Example(**row) for row in rows]


def lines(block: TaskBlock, split: str, folder: Path, limit: int | None = None) -> Iterator[str]:
    """Yield a split, as experiments use it, as JSON Lines (the output of `maskpolicy examples`)."""
    for example in islice(read_split(block, split, folder).examples, limit):
        shown = ["id", "group", "source", "targets", "context"]
        shown += [] if example.source else ["choices"]
        yield json.dumps({name: getattr(example, name) for name in shown}, ensure_ascii=False)


def _map(reading: Reading) -> None:
    """Read the rows of the source into `kept`."""
    places: dict[str, str] = {}  # of ids
    is_own = not registry.is_builtin(type(reading.task.plugin))
    for row in reading.source.rows:
        try:
            mapped = _mapped(reading.task, row, reading.source.official)
            labelled = [one for one in mapped if one.targets or not one.answerable]
            for one in mapped if is_own else labelled:
                if one.id in places:
                    twice = f"id {one.id!r} is that of {places[one.id]} too"
                    if is_own:
                        raise DataError(f"{twice}: give each example of a split an id of its own")
                    reading.repeated.append(f"{row.place}: {twice}")
                places.setdefault(one.id, row.place)
        except DataError as error:
            reading.malformed.add(row, str(error))
        else:
            reading.unlabelled += len(mapped) - len(labelled) or not mapped
            reading.kept += [(row, example) for example in labelled]


def look_up(reading: Reading) -> None:
    """Add the contexts from outside the rows, if the task has any."""
    evidence = hooks.EVIDENCE.of(reading.task.plugin)
    if evidence is None:
        return
    rows = [row.value for row, _ in reading.kept]
    with _plugin_errors_as_data_errors(reading.task):
        find = evidence(rows, reading.source.beside, reading.source.official)

    def with_context(row: Row, example: Example) -> tuple[Row, Example]:
        context = find(row.value, example)
        fields.check(context or "", "the context")
        return row, replace(example, context=context)

    reading.kept = reading.each(with_context)


def _with_context(examples: list[Example], source: sources.SplitSource) -> list[Example]:
    """Append each context to its source (`context: true`); raises DataError if there is none.

    Lines of the source that begin the context are not repeated.
    """
    if not any(example.context for example in examples):
        advice = "put the task's evidence or knowledge source beside the file"
        if not source.files:
            advice = "name a folder of official files as data (triviaqa: or omit documents: false)"
        raise DataError(f"{source.name}: context: true, but no example has a context: {advice}")
    joined = []
    for one in examples:
        lines = one.source.split("\n")
        more = one.context.split("\n") if one.context else []
        text = "\n".join([*lines, *dropwhile(lines.__contains__, more)])
        joined.append(replace(one, source=text))
    return joined


def _log_rows(reading: Reading) -> None:
    name = reading.source.name
    if reading.unlabelled:
        is_builtin = registry.is_builtin(type(reading.task.plugin))
        own = "two different texts" if reading.task.facts.kind == PAIRS else "an answer"
        lack = own if is_builtin else "an example of the task"
        _log.info("%s: %d rows without %s left out", name, reading.unlabelled, lack)
    if reading.repeated:
        number, shown = len(reading.repeated), listed(reading.repeated, "; ", _NAMED)
        _log.warning(
            "%s: %d rows have the id of an earlier row, and are kept: %s", name, number, shown
        )
    reading.malformed.warn(name)


def _warn_of_dev(source: sources.SplitSource) -> None:
    """Warn of a file that looks like the dev split of a task whose dev is carved from train."""
    for train in source.files:
        for name in ("dev", "valid", "validation"):
            other = train.with_name(train.name.replace("train", name, 1))
            if other != train and other.is_file():
                _log.warning("%s: is not read: a part of %s is dev", other, train.name)


def _counts(reading: Reading) -> str:
    malformed = reading.malformed
    if not reading.unlabelled and not malformed.count:
        return "there is no row at all"
    first = f": {malformed.first[0]}" if malformed.count else ""
    return f"{reading.unlabelled} without an answer, {malformed.count} malformed{first}"


def _mapped(task: sources.Task, row: Row, official: str) -> list[Example]:
    """Return the examples of one row, with ids, groups and distinct targets without outer blanks.

    Missing ids begin with `official`, the split's official name. Raises DataError.
    """
    if row.error:
        raise DataError(row.error)
    with _plugin_errors_as_data_errors(task):
        mapped = task.plugin.example({"file": row.file, **row.value} if row.file else row.value)
    if mapped is None:
        return []
    examples = mapped if isinstance(mapped, list) else [mapped]
    for example in examples:
        if fault := _fault(example):
            raise DataError(f"task {task.name!r}: {fault}")
        if hooks.CHOOSE.of(task.plugin) == "likelihood" and not example.choices:
            raise DataError(
                f"task {task.name!r}: the Example has no choices, but choose: likelihood "
                "needs them: give choices=(..), or leave choose out"
            )
    whole = [_whole(example, f"{row.file or official}-{row.number}") for example in examples]
    for one in whole:
        if misfit := _misfit(one, task, official):
            raise DataError(f"task {task.name!r}: {misfit}")
    return whole


@contextmanager
def _plugin_errors_as_data_errors(task: sources.Task) -> Iterator[None]:
    """Turn an exception of a task's code into a DataError with the task and the line."""
    try:
        yield
    except MaskpolicyError:
        raise
    except KeyError as error:
        raise DataError(f"key {error} is missing") from error
    except Exception as error:
        raise DataError(
            f"task {task.name!r} failed: {registry.cause_in(task.plugin, error)}"
        ) from error


def _fault(example: Any) -> str:
    """Return what is wrong with the types of an Example, or ""."""
    if not isinstance(example, Example):
        what = f"example gave {type(example).__name__}: it must return a "
        return f"{what}maskpolicy.core.types.Example, a list of them, or None"
    may_lack = {name: getattr(example, name) for name in ("id", "group", "context")}
    texts = {"source": example.source}
    texts |= {name: "" if value is None else value for name, value in may_lack.items()}
    for name in ("targets", "choices", "short_answers"):
        values = getattr(example, name)
        if not isinstance(values, (tuple, list)):
            what = f"{name} of its Example must be a tuple of texts, not {values!r:.60}"
            return f"{what}: put it in a tuple, ({name[:-1]},)"
        texts |= {f"{name}[{index}]": value for index, value in enumerate(values)}
    if not isinstance(example.slices, Mapping):
        return "slices of its Example must be a dict of texts"
    texts |= {f"slices[{name!r}]": value for name, value in example.slices.items()}
    for name, value in texts.items():
        if not isinstance(value, str):
            return f"{name} of its Example must be text, not {value!r:.60}: use str(...)"
    if not isinstance(example.start, Integral | None):
        return f"start of its Example must be a whole number, not {example.start!r:.60}"
    return ""


def _misfit(example: Example, task: sources.Task, official: str) -> str:
    """Return why an example of an official split does not fit its task, or ""."""
    choices, targets, kind = example.choices, example.targets, task.facts.kind
    if not example.answerable and (targets or kind != SPAN or not task.facts.unanswerable):
        return (
            "answerable=False is for an Example without targets, of a task that states "
            'kind="span" and unanswerable=True'
        )
    if len(targets) > 1 and kind not in (TEXT, SPAN):
        return f"has {len(targets)} targets, and an example of a {kind} task has one: give one"
    if kind == TAGS and targets:
        words, tags = len(example.source.split(" ")), len(targets[0].split())
        return "" if words == tags else f"has {words} words and {tags} tags: give each word a tag"
    if kind == SPAN and targets:
        said, at = targets[0], example.start
        if at is None:  # which only training needs
            lacks = f"has no start, the character of its context at which {said!r} begins: give one"
            return lacks if official == "train" else ""
        is_there = at >= 0 and (example.context or "").startswith(said, at)
        return "" if is_there else f"{said!r} does not start at character {at} of its context"
    if kind == LABEL and targets and not choices:
        metric = METRICS.get(task.own_metric)
        if not _is_number(targets[0]):
            what = f"its target {targets[0]!r:.60} is not a number"
            return f"has no choices, and {what}: list all labels"
        if metric is not None and not metric.numbers and isinstance(metric.version, int):
            what = f"so its target is a number, which {task.own_metric} does not compare"
            return f"its Example has no choices, {what}: give all labels as choices"
    most = {PAIRS: 2, LABEL: len(choices)}.get(kind)
    if not most or len({*choices, *targets}) == len(choices) == most:
        return ""
    what = "two texts" if kind == PAIRS else "all labels"
    return (
        f"choices of its Example must be {what}, each once and one of them the target, not "
        f"{choices!r:.60}"
    )


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        return isfinite(float(text))
    return False


def _whole(example: Example, default: str) -> Example:
    identity = example.id or default
    targets = fields.distinct(example.targets)
    texts = (identity, example.source, *targets, *example.choices, *example.short_answers)
    others = (example.context or "", example.group or "", *example.slices.values())
    for value in (*texts, *others):
        fields.check(value, f"the text {value[:20]!r}")
    choices = tuple(choice.strip() for choice in example.choices)
    group = example.group or identity
    own = {name: getattr(example, name) for name in Example.__dataclass_fields__}  # of a subclass
    return replace(
        Example(**own),
        id=identity,
        group=group,
        targets=targets,
        choices=choices,
        slices=dict(example.slices),
        start=None if example.start is None else int(example.start),  # of NumPy
        answerable=bool(example.answerable),
    )


SEED, LIMIT_SEED = 0, 1


def connected(links: Sequence[Sequence[str]]) -> list[str]:
    """Return the group of each of `links`, a list of one or more texts.

    Links that share a text, directly or through others, have the same group. Its name is its first
    text in alphabetical order.
    """
    from scipy.cluster.hierarchy import DisjointSet

    groups = DisjointSet(text for texts in links for text in texts)
    for texts in links:
        for other in texts[1:]:
            groups.merge(texts[0], other)
    names = {text: min(group) for group in groups.subsets() for text in group}
    return [names[texts[0]] for texts in links]


def carve(groups: Iterable[str], share: float, stay: Collection[str]) -> set[str]:
    """Return the groups of dev: those whose seeded hash is below `share`.

    So a group is on the same side in every file. With two groups or more, each side has at least
    one. Groups in `stay` remain in train unless there are no others.
    """
    ranks = {group: _rank(group, SEED) for group in groups}
    if len(ranks) < 2:
        return set()
    free = [group for group in ranks if group not in stay] or list(ranks)
    ordered = sorted(free, key=ranks.__getitem__)
    below = sum(ranks[group] < share for group in free)
    return set(ordered[: min(max(below, 1), len(ranks) - 1)])


def first(groups: Sequence[str], count: int) -> list[int]:
    """Return the places of `count` examples, in order: whole groups, and the first of one more.

    A seeded hash orders the groups, so a larger `count` only adds examples.
    """
    ranks = {group: _rank(group, LIMIT_SEED) for group in groups}
    places = sorted(range(len(groups)), key=lambda place: (ranks[groups[place]], groups[place]))
    return sorted(places[:count])


def _rank(group: str, seed: int) -> float:
    digest = hashlib.sha256(f"{seed}:{group}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64
