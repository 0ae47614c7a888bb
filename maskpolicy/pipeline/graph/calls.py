"""A stage as a call that can be sent to another process, and its computation there."""

from __future__ import annotations

import logging
import os
import pickle
import platform
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError, MaskpolicyError, StageError, StoreError, cause
from maskpolicy.core.types import Json
from maskpolicy.core.version import VERSION
from maskpolicy.pipeline.graph import nodes
from maskpolicy.pipeline.graph.nodes import Commit, Local, Stage, StageRun, params_from, stage_kind
from maskpolicy.pipeline.graph.processes import Process, Report
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.opening import open_store
from maskpolicy.plugins import changed_files, discovery, isolation

BUILTIN_FACT = "builtin"  # digests of the code of the built-in plugins that a stage names
KILLED = "its process was killed"
_GRACE = 5.0  # seconds in which members of a group report their errors after one has failed
_TIMEOUT = timedelta(minutes=30)  # to wait for a member, e.g. while the first one writes files


class Lost(BrokenProcessPool):
    """A stage's process ended without an answer; pools raise BrokenProcessPool, its base class."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """All that another process, on this or another machine, needs to compute a stage."""

    key: str
    name: str
    record: Mapping[str, Json]  # for the manifest: kind, version, params, inputs, ..
    module: str  # its import registers the stage function
    local: Local
    files: Mapping[Path, str] = field(default_factory=dict)  # data files: sha256
    byproducts: Mapping[str, Call] = field(default_factory=dict)  # the wanted ones, by name
    store: str  # a folder or a URL
    cache: str | None = None
    run: str = ""  # the name of the run in the store
    workers: int = 1  # processes that the stage may start
    threads: int | None = None  # of the process that computes it; None: unchanged
    logs: Path | None = None  # a folder for the files of trackers
    folder: str = ""  # the working directory of the command
    version: str = VERSION
    plugins: isolation.State | None = None
    gpus: int = 0  # that Ray or Slurm gives the stage

    @property
    def kind(self) -> str:
        """The kind of the stage."""
        return str(self.record["kind"])


@dataclass(frozen=True)
class Answer:
    """The result of a call: the seconds of a committed artifact, an error, or neither."""

    seconds: float = 0.0
    error: Exception | None = None  # of the stage function
    is_busy: bool = False  # another command of this host computes the stage
    lost: tuple[str, ...] = ()  # names of inputs that the store lacks


def call_of(stage: Stage, store: Store, byproducts: Mapping[str, Stage], **about: Any) -> Call:
    """Return the call of a stage; `about` has the fields that all calls of a run share."""
    return Call(
        key=stage.key,
        name=stage.name,
        record=stage.record(),
        module=stage_kind(stage.kind).function.__module__,
        local=stage.local,
        files=stage.files,
        byproducts={name: call_of(each, store, {}, **about) for name, each in byproducts.items()},
        store=store.place,
        cache=store.cache,
        **about,
    )


def answer(call: Call, store: Store, report: Report) -> Answer:
    """Compute a stage in this process and commit its artifact, unless another process does.

    If the stage function raises, the answer has the error. Raises StoreError if the store cannot be
    used.
    """
    with store.lock(call.key) as is_mine:
        if not is_mine:
            return Answer(is_busy=True)
        if (artifact := store.get(call.key)) is not None:
            return Answer(artifact.manifest["seconds"])
        inputs = {name: str(key) for name, key in call.record["inputs"].items()}
        needed = nodes.needed_names(call.kind, inputs, store)
        lost = tuple(name for name in needed if store.get(inputs[name]) is None)
        if lost:
            return Answer(lost=lost)
        paths = {name: store.path(key) for name, key in inputs.items()}
        computed = _compute(call, store, paths, report)
        if computed.error is not None:  # another host may have dropped an input meanwhile
            lost = tuple(name for name in needed if not store.path(inputs[name]).exists())
        return Answer(lost=lost) if lost else computed


def _compute(call: Call, store: Store, inputs: Mapping[str, Path], report: Report) -> Answer:
    hardware.use_expandable_segments()
    record = {**call.record, "facts": {}}
    run = _stage_run(call, store, report, record["facts"])
    params = params_from(call.kind, call.record["params"])
    clear, digest = run.checkpoints.clear, store.hash_file
    damaged = f"quarantine/{call.key}-*"
    before = {*store.root.glob(damaged)}
    try:
        with (
            store.write(call.key, record, run.checkpoints) as out,
            changed_files.guarded(params, clear, call.files, digest),
        ):
            if call.local.processes > 1:
                run.facts.update(_together(call, out, run))
            else:
                stage_kind(call.kind).function(params, inputs, out, run)
            isolation.name_unkeyed(call.files)
            if code := changed_files.builtin_code(params):
                run.facts[BUILTIN_FACT] = code
    except (StoreError, Lost):
        raise
    except Exception as error:  # noqa: BLE001 - only what depends on this stage fails
        return Answer(run.checkpoints.seconds, _portable(error))
    artifact = store.get(call.key)
    if artifact is None:
        if {*store.root.glob(damaged)} == before:
            return Answer(is_busy=True)  # a host without shared locks has used and dropped it
        raise StoreError(
            f"store {store.place}: {call.name} was damaged while it was written: check the disk"
        )
    return Answer(artifact.manifest["seconds"])


def _stage_run(call: Call, store: Store, report: Report, facts: dict[str, Json]) -> StageRun:
    return StageRun(
        checkpoints=store.checkpoints(call.key),
        local=call.local,
        workers=call.workers,
        facts=facts,
        advance=report,
        name=call.name,
        logs=call.logs,
        byproducts={name: _committer(each, store) for name, each in call.byproducts.items()},
    )


def _committer(call: Call, store: Store) -> Commit:
    """Return a function that commits a by-product, unless it exists or is being computed.

    It does not wait for the by-product's lock, because this process holds the stage's lock: two
    processes might wait for each other forever.
    """

    def commit(write: Callable[[Path], None], facts: Mapping[str, Json]) -> None:
        with store.lock(call.key) as is_mine:
            if is_mine and store.get(call.key) is None:
                changed_files.compare(params_from(call.kind, call.record["params"]))
                with store.write(call.key, {**call.record, "facts": dict(facts)}) as out:
                    write(out)

    return commit


def _portable(error: Exception) -> Exception:
    """Return the error, or a StageError with its text if it cannot be pickled as it is."""
    with suppress(Exception):  # an error's class may do anything
        if cause(pickle.loads(pickle.dumps(error))) == cause(error):
            return error
    return StageError(cause(error))


# In another process


def answer_elsewhere(call: Call, report: Report) -> Answer:
    """Prepare a new process, and compute a stage in it as `answer` does.

    Raises ConfigError if this host has another version of maskpolicy, another store, or no GPU that
    PyTorch can use.
    """
    store = _arrive(call)
    if call.gpus > hardware.gpus():
        raise ConfigError(
            f"{platform.node()}: PyTorch finds {hardware.gpus()} of the {call.gpus} GPUs of "
            f"{call.name}: install a CUDA build of PyTorch that fits the driver there"
        )
    if not store.knows_run(call.run):
        if store.root.is_dir():  # the command may have failed to note its run on a full disk
            with store.disk.temporary(call.key, ours=True) as folder:
                (folder / "probe").write_bytes(b"room")
        raise ConfigError(
            f"the store {store.place} is another one on {platform.node()}: put it on a file system "
            "that all hosts share, or in a bucket (--store s3://..)"
        )
    return answer(call, store, report)


def _arrive(call: Call) -> Store:
    """Prepare this process for a stage, and open the store."""
    if call.version != VERSION:
        raise ConfigError(
            f"{platform.node()} has maskpolicy {VERSION}, and the command {call.version}: install "
            "the same version on all hosts"
        )
    if call.folder and Path(call.folder).is_dir():
        os.chdir(call.folder)
    if call.plugins is not None:
        isolation.take(call.plugins)
        discovery.load_files(call.plugins.roots)
    import_module(call.module)
    if call.threads is not None:
        os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(call.threads))
        if "torch" in sys.modules or call.threads > 1:
            import torch

            torch.set_num_threads(call.threads)
    return _opened(call.store, call.cache)


@cache
def _opened(place: str, folder: str | None) -> Store:
    return open_store(place, folder, is_known=True)


# In several processes of one machine


def _together(call: Call, out: Path, run: StageRun) -> dict[str, Json]:
    """Compute a stage in `call.local.processes` processes, and return its facts.

    Raises what the stage function raises, and Lost if a member was killed.
    """
    import torch
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    count = call.local.processes
    rendezvous = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    threads = call.threads or torch.get_num_threads()
    own = replace(call, local=replace(call.local, processes=1), threads=max(1, threads // count))
    run.checkpoints.latest()  # removes damaged ones, and reads the seconds of earlier attempts
    if hardware.is_cuda():
        torch.cuda.init()  # the manifest names the GPU of a process that has used one
        torch.cuda.empty_cache()  # of an earlier stage; the first member needs it
    with ExitStack() as members:
        futures: list[Future[dict[str, Json]]] = []
        for rank in range(count):
            told = (lambda *about: None) if rank else run.advance  # only the first member reports
            process = members.enter_context(Process(imports=False))
            task = partial(_member, own, out, rank, count, rendezvous.port, _TIMEOUT)
            futures.append(process.submit(task, told))
        wait(futures, return_when=FIRST_EXCEPTION)
        errors = [
            error
            for future in wait(futures, timeout=_GRACE).done
            if (error := future.exception()) is not None
        ]
        if errors:  # if one member fails, communication fails in the others
            causes = MaskpolicyError, BrokenProcessPool, BaseException
            error = next(error for kind in causes for error in errors if isinstance(error, kind))
            raise Lost(KILLED) if isinstance(error, BrokenProcessPool) else error
        return futures[0].result()


def _member(
    call: Call, out: Path, rank: int, count: int, port: int, timeout: timedelta, report: Report
) -> Any:
    """Compute a stage as member `rank` of `count`; the first one writes files and returns facts."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    os.environ |= {name: str(number) for name, number in place.items()}
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)  # also where the host has no address
    store = _arrive(call)
    hardware.use_expandable_segments()
    import torch
    from accelerate import PartialState
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    torch.set_num_threads(call.threads or 1)
    PartialState(
        cpu=hardware.device().type == "cpu",
        store=TCPStore("127.0.0.1", port, is_master=False),
        rank=rank,
        world_size=count,
        timeout=timeout,
    )
    inputs = {name: store.path(str(key)) for name, key in call.record["inputs"].items()}
    run = _stage_run(call, store, report, {})
    if rank:
        logging.getLogger("maskpolicy").setLevel(logging.ERROR)
        unkept = dict.fromkeys(run.byproducts, lambda write, facts: None)  # all check the weights
        run = StageRun(run.checkpoints, call.local, call.workers, byproducts=unkept)
    with TemporaryDirectory() as nowhere:
        own = Path(nowhere) if rank else out
        params = params_from(call.kind, call.record["params"])
        stage_kind(call.kind).function(params, inputs, own, run)
    torch.distributed.barrier()  # others may still communicate with this process
    with suppress(Exception):
        torch.distributed.destroy_process_group()
    return run.facts
