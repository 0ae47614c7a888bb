"""maskpolicy pretrain: continue pre-training a model on your own text."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskpolicy.cli.arguments import (
    STORE,
    Cache,
    Keys,
    Plugins,
    StorePlace,
    as_typed,
    console,
    end,
    log_to,
    policy_keys,
    repeated,
)
from maskpolicy.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from maskpolicy.config.experiment import Experiment
    from maskpolicy.graph.nodes import Stage
    from maskpolicy.graph.outcomes import Outcome
    from maskpolicy.store.artifacts import Store


def pretrain(
    model: Annotated[
        str, typer.Option(metavar="NAME_OR_DIR", help="mini, a folder, or a name on the Hub.")
    ],
    policy: Annotated[str, typer.Option(metavar="NAME", help="The masking policy.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The Transformers folder to write.")],
    corpus: Annotated[
        list[str], typer.Option(metavar="FILE_OR_GLOB", help="Files of text; repeatable.")
    ],
    keys: Keys = None,
    store: StorePlace = STORE,
    cache: Cache = None,
    plugin: Plugins = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that a stage may start.")] = 1,
) -> None:
    """Continue pre-training on your own text; the same command continues where it stopped."""
    started = time.monotonic()
    from maskpolicy import stages
    from maskpolicy.executors.capacity import set_threads
    from maskpolicy.executors.stage_worker import check_resources
    from maskpolicy.graph import processes
    from maskpolicy.graph.nodes import topological
    from maskpolicy.models.bart import check_folder
    from maskpolicy.publishing import own_text
    from maskpolicy.runs import progress
    from maskpolicy.store.opening import open_store

    notes = console(err=True)
    log_to(notes)
    experiment = _experiment(model, policy, corpus, keys or (), plugin or ())
    texts, files = repeated("--corpus", corpus), repeated("--plugin", plugin)
    named = ("--policy", policy, *(keys or ()))
    command = as_typed("pretrain", "--model", model, *texts, *named, *files, "--out", out)
    out = out.resolve()
    own_text.claim(out)
    artifacts = open_store(store, cache)
    plan = stages.build(experiment, artifacts.hash_file, artifacts.cut_file)
    check_folder(experiment.model)
    stage = plan.pretrained[experiment.policies[0].label, experiment.runs[0]]
    own_text.warn_if_replaced(out, stage)
    order = topological([stage])
    # the tokenizer is exported too, so it is a target even if no stage needs it any more
    targets = [stage, stage.inputs["tokenizer"]]
    check_resources(experiment.resources, order, targets, artifacts)
    set_threads(experiment, None)
    if not processes.is_first():
        processes.follow(order, artifacts, workers)
        return
    logs = out.with_name(f"{out.name}-logs")  # for a tracker, if one is set
    outcomes = _compute(order, targets, artifacts, workers, logs, notes)
    own_text.export(experiment, stage, artifacts, out, command)
    seconds, screen = time.monotonic() - started, console()
    screen.print(progress.to_table(progress.parts(outcomes, seconds), seconds))
    screen.print(f"written to {out}", soft_wrap=True)


def _experiment(
    model: str, policy: str, corpus: Sequence[str], keys: Sequence[str], plugins: Sequence[Path]
) -> Experiment:
    """Return the experiment that the arguments of the command state; raises ConfigError."""
    from maskpolicy.publishing import own_text

    if any("=" not in word and Path(word).is_file() for word in keys):
        raise ConfigError("--corpus: takes one file: quote a pattern, --corpus 'notes/*.txt'")
    block, rest = policy_keys(policy, keys)
    return own_text.experiment(model, corpus, block, rest, plugins)


def _compute(
    order: list[Stage],
    targets: list[Stage],
    store: Store,
    workers: int,
    logs: Path,
    notes: Console,
) -> Collection[Outcome]:
    """Compute the stages and return their outcomes; raises as `end` if one failed."""
    from maskpolicy.graph import processes
    from maskpolicy.graph.execution import execute
    from maskpolicy.runs.progress import ProgressBars

    with ProgressBars(notes, len(order), failures=False) as bars:  # `end` reports failures
        found = execute(order, store, bars, targets=targets, workers=workers, logs=logs)
    processes.dismiss()
    end(found.values())
    return found.values()
