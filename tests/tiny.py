"""A tiny graph with checkpoints, and a script that runs it, or is killed in it.

python tests/tiny.py everywhere FOLDER
"""

import hashlib
import json
import logging
import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from faults import calls, forks

from maskpolicy.core.errors import StoreError
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Local, Stage, stage
from maskpolicy.pipeline.store.artifacts import Store


@dataclass(frozen=True)
class Nothing:
    """The parameters of a stage that has none."""


@dataclass(frozen=True)
class Walk:
    """How far to walk, and how often to keep the state."""

    seed: int
    steps: int
    every: int


@dataclass(frozen=True)
class Failure:
    """The message of a stage that fails."""

    message: str


@dataclass(frozen=True, kw_only=True)
class TinyLocal(Local):
    """Seconds of a step, and a file outside the store that counts computations by label."""

    pause: float = 0
    warns: bool = False
    count: str | None = None
    label: str = ""


@stage("tiny-walk")
def walk(params: Walk, inputs, out, run):
    """Step through a random walk, with a checkpoint every few steps."""
    count(run)
    done, x, trace = 0, params.seed, []
    for name in sorted(inputs):
        x += json.loads((inputs[name] / "result.json").read_text())["x"]
    saved = run.checkpoints.latest()
    if saved is not None:
        done = saved[0]
        x, trace = json.loads((saved[1] / "state.json").read_text())
    if run.local.warns:
        logging.getLogger("maskpolicy.tiny").warning("walks")
    for step in range(done + 1, params.steps + 1):
        x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
        trace.append(x)
        time.sleep(run.local.pause)
        run.progress(step, params.steps, f"x {x}")
        if str(step) in run.byproducts:
            run.byproducts[str(step)](partial(write, x, list(trace)), {})
        if step % params.every == 0:
            state = json.dumps([x, trace])
            run.checkpoints.save(step, lambda to, s=state: (to / "state.json").write_text(s))
    write(x, trace, out)


def write(x, trace, out):
    """Write the result of a walk."""
    (out / "deep").mkdir()
    (out / "deep" / "trace.json").write_text(json.dumps(trace))
    (out / "result.json").write_text(json.dumps({"x": x}))


@stage("tiny-check", urgent=True)
def check(params: Nothing, inputs, out, run):
    """Write the names of the inputs."""
    count(run)
    (out / "names.json").write_text(json.dumps(sorted(inputs)))


@stage("tiny-fail")
def fail(params: Failure, inputs, out, run):
    """Fail, after having written something."""
    count(run)
    (out / "half.json").write_text("[")
    raise ValueError(params.message)


@dataclass(frozen=True)
class Fate:
    """How many checkpoints a stage keeps, one for each process that it kills, before it is done."""

    checkpoints: int


@stage("tiny-fatal")
def fatal(params: Fate, inputs, out, run):
    """End this process, as the system does when memory runs out."""
    count(run)
    step = run.checkpoints.latest()[0] if run.checkpoints.steps() else 0
    if 0 < params.checkpoints == step:
        write(step, [], out)
        return
    if params.checkpoints:
        run.checkpoints.save(step + 1, lambda to: (to / "state.json").write_text("{}"))
    os.kill(os.getpid(), signal.SIGKILL)


def count(run):
    """Leave a line for each computation, in a file outside the store."""
    if run.local.count:
        with Path(run.local.count).open("a") as file:
            file.write(run.local.label + "\n")


def node(label, seed=0, inputs=None, steps=6, every=2, transient=False, **local):
    """Return one walk."""
    told = TinyLocal(**local, label=label)
    params = Walk(seed, steps, every)
    return Stage("tiny-walk", label, params, inputs or {}, told, "tiny", transient)


def broken(label="broken", inputs=None, **local):
    """Return a stage that always fails."""
    failure = Failure("bad luck\nand more")
    return Stage("tiny-fail", label, failure, inputs or {}, TinyLocal(**local, label=label))


def training(fails=False, **settings):
    """Return a long walk that makes a short one on its way, and a user of each."""
    early = node("early", 1, steps=4, every=1, **settings)
    long = broken("long", **settings) if fails else node("long", 1, steps=40, every=1, **settings)
    long = replace(long, byproducts={"4": early})
    users = (("after early", early), ("after long", long))
    return [node(label, 2, {"x": made}, steps=2, **settings) for label, made in users]


def diamond(**settings):
    """Return four walks: a, then b and c (which is transient), then d."""
    a = node("a", 1, **settings)
    b = node("b", 2, {"a": a}, **settings)
    c = node("c", 3, {"a": a}, transient=True, **settings)
    return [a, b, c, node("d", 4, {"b": b, "c": c}, **settings)]


def line():
    """Return a, then c (transient), then d, with more checkpoints than are kept."""
    a = node("a", 1, steps=3, every=1)
    c = node("c", 3, {"a": a}, steps=3, every=1, transient=True)
    return [a, c, node("d", 4, {"c": c}, steps=3)]


def content(store, stages):
    """Return the bytes of all artifacts of `stages`, manifests left out, as one digest."""
    found = hashlib.sha256()
    for each in stages:
        folder = store.path(each.key)
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name != "MANIFEST.json":
                found.update(str(path.relative_to(store.root)).encode() + b"\0")
                found.update(path.read_bytes() + b"\0")
    return found.hexdigest()


def alone(stages):
    """Return the content of stages that one process computes in a store of its own."""
    with TemporaryDirectory() as folder:
        execute(stages, store := Store(folder))
        return content(store, stages)


def everywhere(place):
    """Kill the run at its 1st, 2nd, .. change of the file system, and resume it each time."""
    folder = Path(place)
    in_child(folder / "reference")  # a process that forks should have no thread of its own
    moment = 0
    while ended_at(folder, moment):
        moment += 1
    print(moment)
    return 0


def ended_at(folder, moment, full=False):
    """Kill the run at a change of the file system, and resume it; return whether that ended it.

    With `full`, the disk is full from that change on instead, until the run is resumed.
    """
    stages, reference, store = line(), Store(folder / "reference"), Store(folder / str(moment))
    if not in_child(store.root, moment, full):
        return False
    held = committed(store, stages)
    in_child(store.root)
    if content(store, stages) != content(reference, stages):
        raise SystemExit(f"moment {moment}: other bytes")
    if not held <= committed(store, stages) | {stages[1].key}:
        raise SystemExit(f"moment {moment}: something committed is lost")
    left = [*store.root.glob("temporary/*"), *store.root.glob("checkpoints/*")]
    if left or list(store.root.glob("quarantine/*")):
        raise SystemExit(f"moment {moment}: leftovers {left}")
    return True


def committed(store, stages):
    """Return the keys that a new process finds and verifies."""
    fresh = Store(store.root)
    return {each.key for each in stages if fresh.get(each.key) is not None}


def in_child(root, moment=None, full=False):
    """Run the line in a forked process with a fault at its n-th change; say whether that ended it.

    The line ends well, or is killed; on a full disk, its errors say so.
    """

    def call():
        calls.no_room_from(moment, root) if full else calls.signal_before(moment)
        try:
            errors = [outcome.error or "" for outcome in execute(line(), Store(root)).values()]
        except StoreError as error:
            errors = [str(error)]
        return 2 if any(error and "no room" not in error for error in errors) else any(errors)

    code = forks.wait(forks.start(call, root.parent / "said"))
    if code not in (0, 1 if full else -signal.SIGKILL):
        raise SystemExit(f"moment {moment}: the child failed")
    return code != 0


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    sys.exit({"everywhere": everywhere}[command](*words))
