"""The Python interface: run experiments, load runs, mask a text, pre-train on your own text."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import time
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import numpy as np

from maskpolicy.app import own_text, packing, preview
from maskpolicy.app.arguments import ExperimentOptions, RunStoreOptions
from maskpolicy.app.file_to_folder import compute, failed_cells, fit_machine, prepare, write
from maskpolicy.app.finished import Runs, in_python
from maskpolicy.app.progress import RunProgress
from maskpolicy.core import schema
from maskpolicy.core.errors import ConfigError, StageError
from maskpolicy.core.keys import digest
from maskpolicy.core.schema import Count, Positive, Range, Steps
from maskpolicy.core.types import Json
from maskpolicy.experiment import policy_blocks
from maskpolicy.experiment.definition import ENCODER
from maskpolicy.experiment.model_and_corpus import check_language
from maskpolicy.experiment.verbatim import WrittenExperiment
from maskpolicy.leaderboard.given_scores import build_board
from maskpolicy.leaderboard.results.cell import named_apart, read_run
from maskpolicy.leaderboard.score_files import named
from maskpolicy.models.training.collator import fast_copy, suggested_kind
from maskpolicy.models.training.specials import check_tokens
from maskpolicy.pipeline.executors.engines import Executor, check_jobs, threads_kept
from maskpolicy.pipeline.executors.local import one_early
from maskpolicy.pipeline.graph.events import Listener, silent
from maskpolicy.pipeline.graph.nodes import Stage
from maskpolicy.pipeline.store import DEFAULT
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.opening import open_store, stated_place
from maskpolicy.plugins import discovery

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_Progress = Annotated[float, Range(ge=0, lt=1)]  # the share of a training that is done
_NAMELESS = "experiment"  # begins the name of an experiment from a dict without a name
_NO_BARS = "TQDM_DISABLE"


@contextmanager
def _bars_of_libraries_hidden() -> Iterator[None]:
    """Hide progress bars of other libraries, as commands do, and their advice on ipywidgets."""
    with warnings.catch_warnings(), suppress(ImportError):
        warnings.simplefilter("ignore")  # in a notebook without ipywidgets, its first import warns
        importlib.import_module("tqdm.auto")  # now, because it keeps the variable for good
    from transformers.utils import logging

    before, had_bars = os.environ.get(_NO_BARS), logging.is_progress_bar_enabled()
    os.environ.setdefault(_NO_BARS, "1")
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if before is None:
            del os.environ[_NO_BARS]
        if had_bars:
            logging.enable_progress_bar()


@in_python
def run(
    experiment: str | Path | Mapping[str, Json],
    *overrides: str,
    out: str | Path | None = None,
    store: str | Path | None = None,
    cache: str | Path | None = None,
    plugins: str | Path | Sequence[str | Path] = (),
    only: str | Sequence[str] = (),
    jobs: int | None = None,
    threads: int | None = None,
    progress: bool = True,
) -> Runs:
    """Run an experiment as `maskpolicy run` does, and return its results.

    `experiment` is a file, the name of an experiment that comes with maskpolicy, or the keys of a
    file as a dict. The results of a dict go to runs/NAME if it has a key "name", else to
    runs/experiment-DIGITS, where the digits depend on its keys. Write `overrides` as on the
    command line, "intermediate.steps=400". The defaults of `store` and `cache` are those of the
    command, also $MASKPOLICY_STORE and $MASKPOLICY_CACHE. `jobs` is the number of stages at a
    time. The default is what suits the machine in a notebook, and 1 in a script, where more need
    `if __name__ == "__main__":`. The same call continues where it stopped. Raises ConfigError,
    DataError or StoreError before any work, and StageError at the end if a stage failed (`load`
    reads the other results).
    """
    started = time.monotonic()
    _check_arguments(overrides, jobs, threads)
    store = _place(store)
    if jobs is None and hasattr(sys.modules.get("__main__"), "__file__"):
        jobs = 1  # a script: a new process would import it, and so start the experiment again
    with threads_kept(), _bars_of_libraries_hidden(), one_early(jobs) as early:
        folder, place = (None if path is None else Path(path) for path in (out, cache))
        files, cells = list(map(Path, _texts(plugins, "plugins"))), list(_texts(only, "only"))
        file, written = _of_keys(experiment, overrides, files)
        asked = ExperimentOptions(file, list(overrides), str(store), place, files, cells)
        prepared = prepare(asked, folder, written=written)
        jobs, threads = fit_machine(prepared, jobs, threads)
        bars = _bars(progress, prepared.part.targets, prepared.store, jobs)
        outcomes = compute(prepared, Executor(early=early), bars, jobs=jobs, threads=threads)
        finished, _ = write(prepared, outcomes, time.monotonic() - started, jobs)
    failed = next((each for each in outcomes.values() if each.exception is not None), None)
    if failed is not None:
        line = failed_cells(prepared, finished) or f"{failed.stage.name}: {failed.error}"
        raise StageError(line) from failed.exception
    return load(prepared.folder, store=store, cache=cache)


@in_python
def board(
    frame: Any,
    *,
    baseline: str | int | None = None,
    columns: Mapping[str, str] | None = None,
    metric: str | None = None,
    scale: float = 1.0,
    shared: bool = False,
) -> Runs:
    """Return the leaderboard of a pandas or polars frame with scores of single examples.

    The frame has the columns system, task, example, score and optionally seed, run and group;
    `columns` maps these names to others. The other arguments are the options of `maskpolicy board`.
    Raises DataError for rows that cannot be used, and ConfigError for an unknown baseline.
    """

    def no_store() -> NoReturn:
        raise ConfigError("given scores have no store, so there are neither masks nor analyses")

    frame = frame.collect() if hasattr(frame, "collect") else frame  # a polars LazyFrame
    pandas_frame = frame.to_pandas() if hasattr(frame, "to_pandas") else frame
    if not hasattr(pandas_frame, "columns"):
        raise ConfigError(
            f"frame: must be a pandas or polars frame, not {type(frame).__name__}: read a file "
            "with pandas first, or use the command `maskpolicy board FILE`"
        )
    schema.check(scale, Positive, "scale")
    table = named(
        pandas_frame, schema.check(columns or {}, dict[str, Any], "columns"), metric=metric
    )
    base = None if baseline is None else str(baseline)
    leaderboard = build_board(table, title="a frame", baseline=base, scale=scale, shared=shared)
    runs = Runs(leaderboard.runs, no_store)
    vars(runs)["board"] = leaderboard  # the property would need results
    return runs


@in_python
def load(
    *folders: str | Path,
    store: str | Path | None = None,
    cache: str | Path | None = None,
    baseline: str | None = None,
    mixed: bool = False,
) -> Runs:
    """Read finished runs, joined into one leaderboard if there are several.

    A run is the folder that `run` wrote, a zip file of `maskpolicy pack`, or
    "hf://datasets/OWNER/NAME". A zip file has no store, and is unpacked for as long as the result
    is in use. Masks and analyses need the `store` (default: $MASKPOLICY_STORE, or the one that the
    folders name); they raise ConfigError if that lies elsewhere and you do not pass it. `baseline`
    and `mixed` are options of `maskpolicy leaderboard`. Raises DataError for a folder without
    results, and ConfigError for runs that cannot be compared.
    """
    if not folders or not all(isinstance(folder, str | Path) for folder in folders):
        raise ConfigError("load: name one or more folders that `run` wrote, one after the other")
    # absolute, because a notebook may change its working directory
    places = [f if str(f).startswith(packing.HUB) else Path(f).absolute() for f in folders]
    with ExitStack() as unpacked:
        opened = unpacked.enter_context(packing.opened(places))
        runs = named_apart([read_run(folder) for folder in opened.folders])
        place = stated_place() if store is None else str(store)
        options = RunStoreOptions(place, None if cache is None else Path(cache))
        loaded = Runs(runs, lambda: options.open_writable(opened.kept), baseline, mixed, opened)
        _ = loaded.board  # raises an error for runs that cannot be compared
        if store is not None:
            _ = loaded.store
        weakref.finalize(loaded, unpacked.pop_all().close)
    return loaded


@in_python
def mask(
    text: str,
    policy: str | Mapping[str, Json],
    *,
    tokenizer: str | Path | PreTrainedTokenizerBase = "mini",
    seed: int = 0,
    progress: float = 0.0,
    language: str = "en",
    store: str | Path | None = None,
    **settings: Json,
) -> preview.MaskedText:
    """Mask a text with a policy and return spans (first character, end, text), source and target.

    `settings` are the policy's fields and the keys of the denoising objective, as in an experiment
    file; `policy` may also be a block of a file. `tokenizer` is a tokenizer of Transformers, or the
    name of a model; the `store` (see `run`) keeps the trained tokenizer of `mini`. A policy that
    reads statistics uses those of the embedded world's corpus, and needs the name of a model.
    `language` is the code of the text's language. As in training, tokens beyond 512 or the model's
    positions are cut. Raises ConfigError, also for a policy that must be fitted: use `maskpolicy
    show --run` for it.
    """
    if not isinstance(tokenizer, str | Path) and not callable(tokenizer):
        what = type(tokenizer).__name__
        raise ConfigError(f"tokenizer: must be a name or a tokenizer of Transformers, not {what}")
    for name, number, allowed in (("seed", seed, Steps), ("progress", progress, _Progress)):
        schema.check(number, allowed, name)
    if "name" in settings:
        raise ConfigError("name: cannot be set here: `policy` names the policy")
    check_language(language, "language")
    artifacts = open_store(_place(store))
    discovery.load_files(fresh=True)
    keys = {**policy_blocks.named(policy, "policy"), **settings}
    if isinstance(tokenizer, str | Path):
        tokenizer = str(tokenizer)
        block = policy_blocks.policy_block(keys, "policy", {}, preview.kind_of(tokenizer))
        masking = preview.Masking.of(block, tokenizer, artifacts, language)
    else:
        tokenizer, kind = fast_copy(tokenizer, "tokenizer:"), suggested_kind(None, tokenizer)
        check_tokens(tokenizer, "tokenizer: it", is_encoder=kind == ENCODER)
        block = policy_blocks.policy_block(keys, "policy", {}, kind)
        masking = preview.Masking(block, tokenizer, preview.Reading.of(tokenizer, language))
    return masking(text, seed, progress)


@in_python
@threads_kept()
@_bars_of_libraries_hidden()
def pretrain(
    model: str | Path,
    policy: str | Mapping[str, Json],
    corpus: str | Path | Sequence[str | Path],
    out: str | Path,
    *overrides: str,
    validation: str | Path | Sequence[str | Path] = (),
    store: str | Path | None = None,
    cache: str | Path | None = None,
    plugins: str | Path | Sequence[str | Path] = (),
    workers: int = 1,
    progress: bool = True,
) -> Path:
    """Continue pre-training on your text as `maskpolicy pretrain` does, and return the folder.

    `corpus` and `validation` are each a file, a pattern or several of them; `store` and `cache`
    are those of `run`. Write `overrides` as for the command: "intermediate.steps=400",
    "policy.spans=2"; `policy` may also be a block, as for `mask`. The same call continues where it
    stopped. Raises ConfigError, DataError or StoreError before any work, or the error of the stage
    that failed.
    """
    _check_arguments(overrides)
    schema.check(workers, Count, "workers")
    files, texts = list(map(Path, _texts(plugins, "plugins"))), _texts(corpus, "corpus")
    held_out = _texts(validation, "validation")
    block = policy_blocks.named(policy, "policy")
    own = [
        f"policy.{key}={json.dumps(value, default=_plain, ensure_ascii=False)}"
        for key, value in block.items()
        if key != "name"
    ]
    keys = (*own, *overrides)
    asked = own_text.Request(str(model), block["name"], texts, Path(out), keys, files, held_out)
    prepared = own_text.prepare(asked, open_store(_place(store), cache))
    bars = _bars(progress, prepared.targets, prepared.store, failures=False)
    for outcome in own_text.compute(prepared, workers, bars):
        if outcome.exception is not None:
            raise outcome.exception
    own_text.export(prepared)
    return prepared.out


def _check_arguments(
    overrides: Sequence[str], jobs: int | None = None, threads: int | None = None
) -> None:
    """Raise ConfigError for arguments of a wrong kind or size."""
    if not all(isinstance(each, str) for each in overrides):
        raise ConfigError("overrides: must be texts such as 'intermediate.steps=400'")
    for name, count in (("jobs", jobs), ("threads", threads)):
        schema.check(count, Count | None, name)
    if jobs is not None:
        check_jobs(jobs)


def _bars(
    shown: bool, targets: Sequence[Stage], store: Store, jobs: int = 1, *, failures: bool = True
) -> AbstractContextManager[Listener]:
    """Return a run's progress bars on the standard error; nothing is printed unless `shown`."""
    from rich.console import Console

    if not shown:
        return nullcontext(silent)
    return RunProgress(Console(stderr=True), targets, store, jobs, failures=failures)


def _place(store: str | Path | None) -> str | Path:
    """Return the store of a call: `store`, or else $MASKPOLICY_STORE, or else DEFAULT."""
    return (stated_place() or DEFAULT) if store is None else store


def _texts(texts: str | Path | Sequence[str | Path], name: str) -> tuple[str, ...]:
    """Return a path or text, or several, as a tuple of texts; raises ConfigError for others."""
    paths = (texts,) if isinstance(texts, str | Path) else texts
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            how = "write them to a file first, e.g. with to_json" if name == "corpus" else ""
            raise schema.wrong(path, f"a path{how and f' ({how})'}", name)
    return tuple(map(str, paths))


def _of_keys(
    experiment: str | Path | Mapping[str, Json], overrides: Sequence[str], plugins: Sequence[Path]
) -> tuple[Path, WrittenExperiment | None]:
    """Return the file of an experiment; for a dict of keys, its name in messages, and itself."""
    if isinstance(experiment, str | Path):
        return Path(experiment), None
    if not isinstance(experiment, Mapping):
        kind = type(experiment).__name__
        raise ConfigError(f"experiment: must be a file, a name or a dict of keys, not {kind}")
    keys: dict[str, Any] = json.loads(json.dumps(dict(experiment), default=_plain))
    shown = keys.pop("name", _NAMELESS)
    name = shown if "name" in experiment else f"{_NAMELESS}-{digest(keys)[:8]}"
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ConfigError(
            f"name: {name!r} is not a name for a folder below runs/: use letters, digits, '.', '_' "
            "and '-'"
        )
    text = json.dumps(keys, ensure_ascii=False)  # JSON is YAML
    files = tuple(plugin.resolve() for plugin in plugins)
    return Path(shown), WrittenExperiment(text, name, (Path.cwd(),), tuple(overrides), files)


def _plain(value: Any) -> Any:
    """Return a value that JSON cannot represent as one that it can; raises ConfigError."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Path):
        return str(value)
    raise ConfigError(f"a key holds a {type(value).__name__}: use numbers, texts and lists")
