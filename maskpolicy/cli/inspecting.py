"""maskpolicy world, examples and doctor: write the world, print examples, check the set-up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from maskpolicy.cli import keeping
from maskpolicy.cli.arguments import (
    STORE,
    AsJson,
    Cache,
    Plugins,
    StorePlace,
    TaskKeys,
    WorldKeys,
    console,
    log_to,
    size_text,
)
from maskpolicy.errors import ConfigError, DataError, StoreError
from maskpolicy.types import Json

if TYPE_CHECKING:
    from maskpolicy.config.experiment import TaskBlock

SAMPLE = 1000  # documents on which the share of spans that answer questions is measured


def world(
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to write into.")],
    keys: WorldKeys = None,
    as_json: AsJson = False,
) -> None:
    """Write the embedded world: corpora, and the tasks in their official formats.

    Prints the majority score of each task, that of a guess without a model, in percent.
    """
    from maskpolicy import schema
    from maskpolicy import world as embedded
    from maskpolicy.config import yaml_file
    from maskpolicy.files import claim_folder
    from maskpolicy.world.settings import SUBJECT_KINDS

    every = {"kinds": list(SUBJECT_KINDS)}  # so that all tasks are written
    given = yaml_file.assignments(keys or ())
    block = given.pop("world", {})  # as in an experiment: world.people=8
    if not isinstance(block, dict):
        raise schema.wrong(block, "a block of keys", "world")
    settings = embedded.make(every | given | block)
    claim_folder(out, embedded.MARKS)
    try:
        embedded.write(settings, out)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StoreError(f"{out}: cannot be written: {reason}; choose another --out") from error
    figures = embedded.figures(out)
    for task, numbers in figures["tasks"].items():
        numbers |= _guessed(task, out / "tasks")
    figures["salient-span"] = {"intermediate": _askable(out / "intermediate.jsonl")}
    if as_json:
        typer.echo(json.dumps(figures, indent=1))
        return
    screen = console()
    for part, rows in figures.items():
        for name, numbers in rows.items():
            shown = ", ".join(f"{key.replace('_', ' ')} {_number(n)}" for key, n in numbers.items())
            screen.print(f"{part} {name}: {shown}", soft_wrap=True)
    screen.print(f"written to {out}", soft_wrap=True)


def examples(
    task: str,
    data: Annotated[str, typer.Option(metavar="DIR", help="Folder of its files, hub or world.")],
    keys: TaskKeys = None,
    split: Annotated[str, typer.Option(metavar="train|dev|test")] = "test",
    limit: Annotated[int | None, typer.Option(min=0, help="Print at most so many.")] = None,
    plugin: Plugins = None,
) -> None:
    """Print a split of a task as experiments use it, one JSON object per line."""
    from maskpolicy import schema
    from maskpolicy.config import yaml_file
    from maskpolicy.config.experiment import HUB, WORLD
    from maskpolicy.config.task_blocks import data_source, task_block
    from maskpolicy.formats import examples as splits
    from maskpolicy.plugins import discovery

    log_to(console(err=True))  # the log says which rows are left out
    discovery.load_files(plugin or (), fresh=True)
    given = yaml_file.assignments(keys or ())
    own = given.pop("task", {})  # as policy.KEY of other commands: task.words=20
    if not isinstance(own, dict):
        raise schema.wrong(own, "a block of keys", "task")
    whole = {"name": task, **given, **own, "data": HUB}
    block = task_block(whole, "examples", ())  # its errors come before those of --data
    source = data_source(data, "--data", (), [WORLD, HUB])
    with TemporaryDirectory() as folder:
        if source == WORLD:
            source = _written_world(block, Path(folder))
        block = replace(block, data=source)
        for line in splits.lines(block, split, Path(source), limit):
            typer.echo(line)


def _written_world(task: TaskBlock, folder: Path) -> str:
    """Write the embedded world with all its tasks, and return the folder of the tasks.

    Raises ConfigError if `task` is not one of them.
    """
    from maskpolicy import world as embedded
    from maskpolicy.formats import sources
    from maskpolicy.world.settings import SUBJECT_KINDS

    paths = {path.as_posix() for path in sources.paths(sources.task(task))}
    if not paths & embedded.kinds_by_file().keys():
        raise ConfigError(
            f"--data world: the embedded world has no files of task {task.name!r}: name their "
            "folder, or hub"
        )
    embedded.write(embedded.make({"kinds": list(SUBJECT_KINDS)}), folder)
    return str(folder / "tasks")


def doctor(
    store: StorePlace = STORE,
    cache: Cache = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all files of the store again.")
    ] = False,
    prune: Annotated[bool, typer.Option("--prune", help="Delete what no command needs.")] = False,
    older: Annotated[
        float | None,
        typer.Option(min=0, metavar="DAYS", help="Also delete what no run has used for so long."),
    ] = None,
) -> None:
    """Print versions, hardware, chosen precision and attention, pipelines and the store's size."""
    if older is not None and not prune:
        raise ConfigError("--older: needs --prune: give both")
    from spacy.util import get_installed_models

    from maskpolicy import hardware
    from maskpolicy.config.budgets import Training, resolve_auto
    from maskpolicy.store import manifest, pruning
    from maskpolicy.store.opening import open_store

    screen = console()
    around = manifest.surroundings()
    chosen = resolve_auto(Training())
    artifacts = open_store(store, cache)
    rows = [
        ("versions", ", ".join(f"{name} {number}" for name, number in around["versions"].items())),
        ("commit", around["commit"] or "no checkout"),
        ("hardware", hardware.describe()),
        ("precision", chosen.precision),
        ("attention", chosen.attention),
        ("spaCy", ", ".join(get_installed_models()) or "no trained pipeline: the built-in rules"),
    ]
    if prune:
        freed = pruning.prune(artifacts, older)
        rows.append(("freed", f"{size_text(sum(freed.values()))} of {artifacts.place}"))
    sizes = artifacts.size()
    parts = ", ".join(f"{name} {size_text(size)}" for name, size in sizes.items() if size)
    rows.append(("store", f"{artifacts.place}: {size_text(sum(sizes.values()))}"))
    rows += [("", parts)] if parts else []
    for name, value in rows:
        screen.print(f"{name:<10} {value}", soft_wrap=True)
    if verify:
        keeping.verify(store, cache)


def _guessed(task: str, folder: Path) -> dict[str, Json]:
    """Return the majority score on a task, or {} if it is too small for a dev split."""
    from maskpolicy import majority
    from maskpolicy.config.experiment import TaskBlock
    from maskpolicy.formats import examples, sources

    block = TaskBlock(task, task, data=str(folder))
    resolved = sources.task(block)
    facts = resolved.facts
    try:
        train, dev, test = (
            examples.read_examples(block, split, folder, contexts=False) for split in sources.SPLITS
        )
    except DataError:
        return {}
    material = majority.Material(train, resolved.metric.name, facts.keep, facts.unanswerable)
    found = majority.best(material, dev, test, facts.kind)
    return {"majority": round(100 * found.score, 1), "rule": found.rule}


def _askable(corpus: Path) -> Json:
    """Return the share of salient-span's distinct mentions that are answers of a question."""
    from maskpolicy.plugins import discovery

    policy = discovery.instance("policy", "salient-span", {})
    with corpus.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line, _ in zip(lines, range(SAMPLE), strict=False)]
    mentions = asked = 0
    for row, found in zip(rows, policy.entities([row["text"] for row in rows]), strict=True):
        wanted = {row["text"][start:end] for start, end, _ in row["asked"]}
        drawn = {row["text"][start:end] for start, end, _ in found}
        mentions += len(drawn)
        asked += len(drawn & wanted)
    share = asked / mentions if mentions else 0.0
    return {"documents": len(rows), "mentions": mentions, "asked_share": share}


def _number(value: float | str) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
