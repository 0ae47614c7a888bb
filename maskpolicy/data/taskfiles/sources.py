"""A task's facts, and the official file or Hub dataset of each of its splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import dropwhile, islice
from pathlib import Path
from typing import Any, Literal, get_args

from maskpolicy.core.errors import ConfigError, DataError, unknown
from maskpolicy.core.metrics import Metric
from maskpolicy.core.schema import SYNONYMS, Share, check, fields_of
from maskpolicy.data.datafiles import readers
from maskpolicy.data.datafiles.rows import Layout, Row, matching, ungzipped
from maskpolicy.experiment.definition import TaskBlock
from maskpolicy.experiment.task_kinds import TEXT, Choose, kind_of
from maskpolicy.plugins import discovery, hooks, registry
from maskpolicy.plugins.discovery import find_metric, find_plugin
from maskpolicy.plugins.registry import Registered

SPLITS = ("train", "dev", "test")
_STATED = {  # examples of the facts without a default
    "group": '"closed-book", or another group of columns',
    "metric": '"exact_match", or another metric',
    "files": '{"train": "train.jsonl", "dev": "dev.jsonl"}',
}
_PACKED = (".bz2", ".xz", ".zip", ".zst")
_HUB_SPLITS = {"train": "train", "dev": "validation", "test": "test"}


@dataclass(frozen=True)
class Hub:
    """A task's dataset on the Hub; `id` and `config` may depend on the edition.

    `bare` is appended to the configuration's name if the task's field `documents` is false.
    """

    id: str | Mapping[str, str]
    config: str | Mapping[str, str] = ""  # "": the dataset's default
    bare: str = ""
    splits: Mapping[str, str] = field(default_factory=dict)  # train, dev, test -> another name


@dataclass(frozen=True)
class TaskFacts:
    """The facts in `@task(name, ...)`; `files` are the official files WITH labels."""

    group: str  # of columns: closed-book | knowledge-intensive | multiple-choice | glue | ..
    metric: str  # a name of maskpolicy.core.metrics, which ranks
    files: Mapping[str, str]  # official split -> file name or *.ending; {edition} is an edition
    folders: tuple[str, ...] = ()  # official sub-folders that may hold the files
    editions: tuple[str, ...] = ()  # releases of the same task, the preferred one first
    others: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # see `names`
    at: str = ""  # the key under which a .json file keeps its rows, as in "data.paragraphs.qas"
    mark: str = ""  # a key that other tasks' rows lack, as in "question.stem"
    kind: str = TEXT  # of the answers, a name of experiment.task_kinds
    unanswerable: bool = False  # span tasks: some contexts hold no answer
    columns: tuple[str, ...] = ()  # names of the columns of a .tsv file without a header
    hub: Hub | None = None
    keep: Literal["start", "end"] = "start"  # text tasks: the side of a long source that stays
    linked: bool = False  # examples that share a text, also through others, form one group
    dev_share: Share = 0.1  # share of train's groups in a dev split that is carved from train
    retrieval: bool = False  # a learned policy's contexts may be retrieved from the corpus
    version: int = 1  # of a built-in task: raise it if an example changes
    besides: tuple[str, ...] = ()  # further metrics, which are reported
    labels: tuple[str, ...] = ()  # of a label task: all labels; metrics must suit them

    def names(self, edition: str) -> dict[str, str]:
        """Return the file names of an edition: `others[edition]`, or `files` with its name."""
        named = self.others.get(edition, self.files)
        return {split: name.format(edition=edition) for split, name in named.items()}

    def rows(self, path: Path) -> Iterator[Row]:
        """Yield the rows of one of its files."""
        at = "" if _is_of_babylm(path, self) else self.at
        layout = Layout(at=at, header=self.columns, quoted=False)
        return readers.rows(path, layout)

    def rows_of(self, paths: Sequence[Path]) -> Iterator[Row]:
        """Yield the rows of several files, each with the name of its file."""
        for path in paths:
            for row in self.rows(path):
                yield replace(row, file=ungzipped(path.name).partition(".")[0])

    def part(self, split: str, edition: str = "") -> tuple[str, str]:
        """Return the official split that holds `split`, and the side of it.

        test is the official test if that has labels, otherwise the official dev. dev is the
        official dev unless that serves as test; otherwise it is carved from train. The side is
        "all", or "train" or "dev" if the split is carved.
        """
        if split not in SPLITS:
            raise ConfigError(unknown("split", split, SPLITS, (SYNONYMS.get(split, ""),)))
        named = self.names(edition)
        official_dev = "test" in named and "dev" in named
        if split == "test":
            return ("test" if "test" in named else "dev"), "all"
        if split == "dev" and official_dev:
            return "dev", "all"
        return "train", "all" if official_dev else split


@dataclass(frozen=True)
class Task:
    """A task with the fields and the edition of its block in an experiment."""

    name: str
    facts: TaskFacts
    plugin: Any
    edition: str = ""  # "": any
    chosen: tuple[str, ...] = ()  # the metrics that the block names

    @property
    def words(self) -> str:
        """The name in quotes for messages, with the edition if the block names one."""
        return f"{self.name!r}" + (f" (edition {self.edition!r})" if self.edition else "")

    @property
    def own_metric(self) -> str:
        """The metric that the task's fields choose (attribute `metric`), else that of its facts."""
        return str(hooks.METRIC.of(self.plugin) or self.facts.metric)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metric that ranks, and those that are reported beside it."""
        names = self.chosen or (self.own_metric, *self.facts.besides)
        return tuple(find_metric(name) for name in names)

    @property
    def metric(self) -> Metric:
        """The metric that ranks."""
        return self.metrics[0]


@dataclass(frozen=True)
class SplitSource:
    """The source of a split: an official file, or a split of a Hub dataset."""

    name: str  # of the file or dataset, for messages
    rows: Iterator[Row]  # read lazily, and only once
    official: str  # the official split that it holds
    side: str  # "all" of it, or one side of the carve: "train" or "dev"
    files: tuple[Path, ...] = ()  # the file or files; none from the Hub
    beside: tuple[Path, ...] = ()  # the folders in which companions of the file may lie


def task(block: TaskBlock) -> Task:
    """Return the task that `block` names, with its fields; raises ConfigError."""
    plugin = discovery.instance("task", block.name, block.fields)
    edition, stated = hooks.EDITION.of(plugin), facts(find_plugin("task", block.name))
    if edition != "auto" and edition not in stated.editions:
        raise ConfigError(f"task {block.name!r}: {unknown('edition', edition, stated.editions)}")
    if (how := hooks.CHOOSE.of(plugin)) not in get_args(Choose):
        raise ConfigError(
            f"task {block.name!r}: choose: {unknown('value', str(how), get_args(Choose))}"
        )
    chosen = "" if edition == "auto" else edition
    return Task(block.name, stated, plugin, chosen, block.metrics)


def facts(entry: Registered) -> TaskFacts:
    """Return the facts of a registered task; raises ConfigError for missing or unknown ones."""
    where = f"{entry.where}: @task({entry.name!r})"
    known_facts = fields_of(TaskFacts)
    for name in entry.facts:
        if name not in known_facts:
            raise ConfigError(f"{where}: {unknown('fact', name, known_facts)}")
    for name, example in _STATED.items():
        if name not in entry.facts:
            raise ConfigError(f"{where}: {name} is missing: state {name}={example}")
    checked = {
        name: check(value, known_facts[name].annotation, f"{where}: {name}")
        for name, value in entry.facts.items()
        if name != "hub"
    }
    stated = TaskFacts(**{**checked, "hub": entry.facts.get("hub"), "kind": kind_of(entry)})
    if not isinstance(stated.hub, Hub | None):
        raise ConfigError(f"{where}: hub: must be a Hub: write Hub({stated.hub!r:.60})")
    known = [each for each in registry.entries() if registry.is_builtin(each.plugin)]
    groups = {each.facts["group"] for each in known if each.kind == "task"}
    near = get_close_matches(str(stated.group), groups, 1, 0.8)
    if near and stated.group not in groups:
        raise ConfigError(
            f"{where}: group {stated.group!r}: did you mean {near[0]!r}, the group of built-in "
            "tasks? Give a group of your own a more different name"
        )
    try:
        for name in (stated.metric, *stated.besides):
            find_metric(str(name))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    if stated.keep != "start" and stated.kind != TEXT:
        raise ConfigError(f"{where}: keep={stated.keep!r} is for text tasks: leave it out")
    try:
        stated.names("")
    except (LookupError, ValueError):
        raise ConfigError(f"{where}: files: only {{edition}} may stand in braces") from None
    strange = sorted(set(stated.files) - set(SPLITS))
    if strange or not {"dev", "test"} & set(stated.files):
        raise ConfigError(
            f"{where}: files must name dev or test, and nothing but {', '.join(SPLITS)}"
        )
    return stated


def paths(task: Task) -> Iterator[Path]:
    """Yield the paths, relative to a folder of data, where `find_split` looks for files."""
    for edition in _editions(task):
        for name in task.facts.names(edition).values():
            yield from (folder / name for folder in _places(task, Path()))


def _places(task: Task, folder: Path) -> tuple[Path, ...]:
    """Return the folders that may hold a task's files."""
    bases, subs = (folder, folder / task.name), ["", *task.facts.folders]
    subs += ["glue_filtered"] if "babylm" in task.facts.editions else []  # of its pipeline
    return tuple(base / sub for base in bases for sub in subs)


def find_split(task: Task, split: str, folder: Path) -> SplitSource:
    """Find the official file of a split in `folder` or official sub-folders.

    The first edition with any file there, of a name that no other edition has, serves all splits:
    they never mix editions. A file whose first row lacks the task's mark belongs to another task
    and is skipped; of the files of a pattern, one with the mark is enough. Gzipped files (NAME.gz)
    are found too. Raises DataError if there is no such file.
    """
    stated = task.facts
    beside = _places(task, folder)
    names: list[str] = []
    foreign: list[Path] = []
    for edition in _editions_there(task, beside):
        every, (official, side) = stated.names(edition), stated.part(split, edition)
        if official not in every:
            raise DataError(
                f"task {task.name!r} has no labelled {official} file (it has {', '.join(every)}"
                f"): leave the task out, or register its file as {official!r}"
            )
        name = every[official]
        names.append(name)
        for paths in (matching(place, name) for place in beside):
            if any(_is_marked(path, stated) for path in paths):
                path = paths[0].parent if "*" in name else paths[0]
                rows = stated.rows_of(paths) if "*" in name else stated.rows(path)
                around = (paths[0].parent, *beside)
                return SplitSource(str(path), rows, official, side, tuple(paths), around)
            foreign += paths
    if foreign:
        error = next((row.error for row in stated.rows(foreign[0])), "")
        raise DataError(
            f"{foreign[0]}: is not a file of task {task.name!r}: "
            f"{error or f'its first row has no key {stated.mark!r}'} (each task's files belong in "
            "a folder of its name)"
        )
    for path in (place / f"{name}{end}" for place in beside for name in names for end in _PACKED):
        if path.is_file():
            raise DataError(f"{path}: unpack it (only .gz is read packed)")
    places = ", ".join(str(place) for place in _places(task, Path()) if len(place.parts) == 1)
    raise DataError(
        f"task {task.name!r}: {folder} has no {' or '.join(dict.fromkeys(names))}, "
        f"neither in itself nor in {places}: put the file there, or name another folder as data"
    )


def _editions(task: Task) -> tuple[str, ...]:
    return (task.edition,) if task.edition else task.facts.editions or ("",)


def _editions_there(task: Task, beside: Sequence[Path]) -> tuple[str, ...]:
    """Return the edition that serves all splits; all editions if no file is of one alone."""
    names = {edition: {*task.facts.names(edition).values()} for edition in _editions(task)}
    for edition, own in names.items():
        others = {name for each in names if each != edition for name in names[each]}
        if any(matching(place, name) for place in beside for name in own - others):
            return (edition,)
    return tuple(names)


def _is_of_babylm(path: Path, stated: TaskFacts) -> bool:
    """Return whether a file is one of BabyLM's pipeline, whose rows are flat."""
    return ungzipped(path.name) in stated.others.get("babylm", {}).values()


def _is_marked(path: Path, stated: TaskFacts) -> bool:
    """Return whether the first readable row has the task's mark.

    JSON Lines without the keys around examples belong to another task.
    """
    if not stated.mark or _is_of_babylm(path, stated):
        return True
    rows = list(islice(dropwhile(lambda row: row.error, stated.rows(path)), 1))
    value = rows[0].value if rows else None
    if value is None and stated.at and ungzipped(path.name).endswith(".jsonl"):
        return False
    for key in stated.mark.split("."):
        if value is not None and (not isinstance(value, dict) or key not in value):
            return False
        value = value and value[key]
    return True


def hub_config(task: Task, where: str = "") -> tuple[str, str]:
    """Return the id and configuration of a task's Hub dataset.

    Raises DataError, at `where` if that is given, for a task that is only read from files.
    """
    stated = task.facts
    if stated.hub is None:
        names = stated.names(_editions(task)[0]).values()
        place = f"{where}: " if where else ""
        save = ""
        if "parquet" in stated.editions:
            split = "datasets.load_dataset(NAME, split='train').to_parquet('train.parquet')"
            save = f"; save a data set of the Hub to such files first: {split}"
        raise DataError(
            f"{place}task {task.name!r} is only read from files, not from the Hub: set data to "
            f"the folder of its files ({', '.join(names)}){save}"
        )
    name, config = (_of_edition(value, task) for value in (stated.hub.id, stated.hub.config))
    return name, config + ("" if hooks.DOCUMENTS.of(task.plugin) else stated.hub.bare)


def hub_splits(task: Task) -> dict[str, str]:
    """Return the Hub's names of splits that differ from the usual ones."""
    named = task.facts.hub.splits if task.facts.hub else {}
    return {split: name.format(edition=_editions(task)[0]) for split, name in named.items()}


def _of_edition(value: str | Mapping[str, str], task: Task) -> str:
    if isinstance(value, str):
        return value
    edition = _editions(task)[0]
    if edition not in value:
        raise DataError(
            f"task {task.name!r}: the Hub has no edition {edition!r} (it has {', '.join(value)})"
        )
    return value[edition]


def source_of(task: Task, block: TaskBlock, split: str, folder: Path) -> SplitSource:
    """Return the source of train, dev or test of a task: the Hub, or a file in `folder`."""
    if block.data != "hub":
        return find_split(task, split, folder)
    dataset, config = hub_config(task)
    splits = _HUB_SPLITS | hub_splits(task)
    official, side = task.facts.part(split, task.edition)
    place = (config or None, splits[official], block.revision)
    instead = "name a folder of official files as data"
    rows = readers.hub_rows(dataset, (), *place, instead=instead)
    return SplitSource(dataset, rows, official, side)
