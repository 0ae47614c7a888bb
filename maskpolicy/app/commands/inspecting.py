"""maskpolicy world, examples and doctor: write the world, print examples, show the set-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from typer import Argument, Option

from maskpolicy.app.arguments import AsJson, Plugins, StoreOptions
from maskpolicy.app.commands import keeping
from maskpolicy.app.printed import console, log_to, print_json, size_text
from maskpolicy.core import hardware, markdown, schema
from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.core.files import claim_folder, json_lines, writing_to
from maskpolicy.core.types import Json
from maskpolicy.data import world as embedded
from maskpolicy.experiment import yaml_file
from maskpolicy.experiment.budgets import Training, resolve_auto
from maskpolicy.experiment.definition import HUB, WORLD, TaskBlock
from maskpolicy.experiment.world_settings import SUBJECT_KINDS
from maskpolicy.plugins import discovery

SAMPLE = 1000  # documents in which `_askable` counts mentions


def world(
    *,
    out: Annotated[Path, Option(metavar="DIR", help="The folder to write into.")],
    keys: Annotated[
        list[str] | None,
        Argument(metavar="[KEY=VALUE]...", help="Settings of the world, e.g. people=60."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the embedded world: corpora, and the tasks in their official formats.

    Prints the majority score of each task in percent: the best score without a model.
    """
    every = {"kinds": list(SUBJECT_KINDS)}  # so that all tasks are written
    settings = embedded.make(every | _fields(keys, "world"))
    claim_folder(out, embedded.MARKS)
    with writing_to(out):
        embedded.write(settings, out)
    figures = embedded.figures(out)
    for task, numbers in figures["tasks"].items():
        numbers |= _guessed(task, out / "tasks")
    figures["salient-span"] = {"intermediate": _askable(out / "intermediate.jsonl")}
    if as_json:
        print_json(figures)
        return
    screen = console()
    for part, rows in figures.items():
        for name, numbers in rows.items():
            pairs = (f"{markdown.title(key)} {markdown.shown(n)}" for key, n in numbers.items())
            screen.print(f"{part} {name}: {', '.join(pairs)}", soft_wrap=True)
    screen.print(f"written to {out}", soft_wrap=True)


def examples(
    *,
    task: str,
    data: Annotated[str, Option(metavar="DIR", help="Folder of its files, hub or world.")],
    keys: Annotated[
        list[str] | None,
        Argument(metavar="[KEY=VALUE]...", help="Fields of the task, e.g. task.prefix=x."),
    ] = None,
    split: Annotated[str, Option(metavar="train|dev|test")] = "test",
    limit: Annotated[int | None, Option(min=0, help="The most examples to print.")] = None,
    plugin: Plugins = None,
) -> None:
    """Print a split of a task as experiments use it, one JSON object per line."""
    from maskpolicy.data.taskfiles import examples as splits
    from maskpolicy.experiment.task_blocks import data_source, task_block

    log_to(console(err=True))  # the log says which rows are left out
    discovery.load_files(plugin or (), fresh=True)
    fields = _fields(keys, "task")
    for key in {"name", "data"} & fields.keys():
        raise ConfigError(f"task.{key}: cannot be set here: write `examples TASK --data DIR`")
    whole = {"name": task, **fields, "data": HUB}
    block = task_block(whole, "examples", ())  # its errors come before those of --data
    source = data_source(data, "--data", (), [WORLD, HUB])
    with TemporaryDirectory() as folder:
        if source == WORLD:
            source = _written_world(block, Path(folder))
        block = replace(block, data=source)
        for line in splits.lines(block, split, Path(source), limit):
            typer.echo(line)


def _fields(words: Sequence[str] | None, block: str) -> dict[str, Json]:
    """Return the fields that KEY=VALUE words set, or BLOCK.KEY=VALUE words as in experiments."""
    fields = yaml_file.assignments(words or ())
    own = fields.pop(block, {})
    if not isinstance(own, dict):
        raise schema.wrong(own, "a block of keys", block)
    return fields | own


def _written_world(task: TaskBlock, folder: Path) -> str:
    """Write the embedded world with all its tasks, and return the folder of the tasks.

    Raises ConfigError if `task` is not one of them.
    """
    from maskpolicy.data.taskfiles import sources

    named = sources.task(task)
    paths = {path.as_posix() for path in sources.paths(named)}
    if not paths & embedded.KINDS_BY_FILE.keys():
        raise ConfigError(
            f"--data world: the embedded world has no files of task {named.words}: name their "
            "folder, or hub"
        )
    embedded.write(embedded.make({"kinds": list(SUBJECT_KINDS)}), folder)
    return str(folder / "tasks")


def doctor(
    *,
    place: StoreOptions,
    verify: Annotated[bool, Option("--verify", help="Read all files of the store again.")] = False,
    prune: Annotated[bool, Option("--prune", help="Delete what no command needs.")] = False,
    older: Annotated[
        float | None,
        Option(min=0, metavar="DAYS", help="Also delete what no run has used for DAYS days."),
    ] = None,
) -> None:
    """Print versions, hardware, chosen precision and attention, pipelines and the store's size."""
    if older is not None and not prune:
        raise ConfigError("--older: needs --prune: give both")
    from maskpolicy.pipeline.store import manifest, upkeep

    screen = console()
    if prune:
        keeping.prune(place.store, place.cache, older)
    around = manifest.surroundings()
    chosen = resolve_auto(Training())
    artifacts = place.open()
    rows = [
        ("versions", ", ".join(f"{name} {number}" for name, number in around["versions"].items())),
        ("commit", around["commit"] or "no checkout"),
        ("hardware", hardware.describe()),
        ("precision", chosen.precision),
        ("attention", chosen.attention),
        ("spaCy", ", ".join(_pipelines()) or "no trained pipeline: the built-in rules"),
    ]
    sizes = upkeep.size(artifacts)
    parts = ", ".join(f"{name} {size_text(size)}" for name, size in sizes.items() if size)
    rows.append(("store", f"{artifacts.place}: {size_text(sum(sizes.values()))}"))
    rows += [("", parts)] if parts else []
    for name, value in rows:
        screen.print(f"{name:<10} {value}", soft_wrap=True)
    if verify:
        keeping.verify(place.store, place.cache)


def _pipelines() -> list[str]:
    """Return the trained spaCy pipelines that are installed."""
    if find_spec("spacy") is None:
        return []
    from spacy.util import get_installed_models

    return get_installed_models()


def _guessed(task: str, folder: Path) -> dict[str, Json]:
    """Return the majority score on a task, or {} if it is too small for a dev split."""
    from maskpolicy.data import majority
    from maskpolicy.data.taskfiles import examples, sources

    block = TaskBlock(task, task, data=str(folder))
    resolved = sources.task(block)
    facts = resolved.facts
    try:
        train, dev, test = (
            examples.read_split(block, split, folder, contexts=False).examples
            for split in sources.SPLITS
        )
    except DataError:
        return {}
    material = majority.Material(train, resolved.metric.name, facts.keep, facts.unanswerable)
    guess = majority.best(material, dev, test, facts.kind)
    return {"majority": round(100 * guess.score, 1), "rule": guess.rule}


def _askable(corpus: Path) -> Json:
    """Return the share of salient-span's distinct mentions that answer a question."""
    policy = discovery.instance("policy", "salient-span", {})
    rows = list(islice(json_lines(corpus), SAMPLE))
    mentions = asked = 0
    for row, spans in zip(rows, policy.entities([row["text"] for row in rows]), strict=True):
        answers = {row["text"][start:end] for start, end, _ in row["asked"]}
        mentioned = {row["text"][start:end] for start, end, _ in spans}
        mentions += len(mentioned)
        asked += len(mentioned & answers)
    share = asked / mentions if mentions else 0.0
    return {"documents": len(rows), "mentions": mentions, "asked_share": share}
