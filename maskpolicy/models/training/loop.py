"""The one training loop, signals that end a training, and trackers of its values."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError, MaskpolicyError, StageError, cause
from maskpolicy.experiment.budgets import Training
from maskpolicy.models.training.batching import Loss, Progress, Step
from maskpolicy.models.training.optimization import (
    Keep,
    Optimization,
    Start,
    StepCheckpoints,
    rate,
    shared,
)
from maskpolicy.plugins import discovery

Log: TypeAlias = Callable[[int, Mapping[str, float]], None]
"""log(step, values), of a tracker such as TensorBoard."""
_log = logging.getLogger(__name__)
_REPORT = 25  # steps between two reports of the loss: each report waits for the device
_QUICK, _SHARE = 1.0, 0.02  # checkpoints of more seconds take at most this share of the time
_IN_THREAD = ("cuda",)  # devices that train while a checkpoint is written
WORKERS = {"cuda": 2}  # processes that make data by default, so that a GPU does not wait
_LONG = 10.0  # seconds after which the speed is measured also between two reports of the loss


def train(
    module: Any,
    steps: Callable[[int], Step],
    loss: Loss,
    spec: Training,
    checkpoints: StepCheckpoints,
    progress: Progress,
    *,
    workers: int = 0,
    validate: Callable[[Any], float] | None = None,
    log: Log | None = None,
    until: int = 0,
    keep: Mapping[int, Keep] | None = None,
    name: str = "",
    start: Start = Start(),  # noqa: B008 (it is frozen)
    state: Path | None = None,
) -> dict[str, Any]:
    """Train `module` in place for `spec.steps` optimizer steps.

    `steps(number)` returns the data of one step and must depend on `number` alone. The loss is the
    mean over all units of the step, however they are split into micro-batches or distributed over
    accelerate's processes (only the first process writes checkpoints). With several processes,
    `steps` is a dataclass with a field `share`, and each process makes its own share of each step.
    Training resumes from the newest checkpoint, bit for bit on a CPU. `validate(module)` returns a
    score (higher is better) every `spec.eval_every` steps and after the last one; the best weights
    are restored at the end. `log(done, values)` sends loss, learning rate and dev score to a
    tracker. `keep[done]` receives a copy of the module as if training had ended there. `until`
    stops training before `spec.steps` without changing the learning rate schedule. `name` is the
    training's name in log lines. A training in several parts gives the same bits: each part stops
    at `until` and writes its whole state to the folder `state`, and the next one begins at `start`.
    If memory runs out in a micro-batch, this step and all later ones have micro-batches of half the
    size. If `spec.micro_tokens` is 0, `Optimization.fitting_tokens` chooses it.

    Returns {"steps", "loss", "work"}; after validation also {"best_step", "best_score", "scores"},
    the last as (step, score) pairs; if memory ran out also {"shrunk": {"micro_tokens", "step"}}.
    Raises StageError if the loss or a weight is NaN or infinite, before the weights are kept,
    validated or returned, and if memory runs out even for one example at a time.
    """
    hardware.keep_freed_memory()
    run = Optimization(module, spec, until or spec.steps)
    if spec.precision == "bf16" and run.device.type == "cuda" and not hardware.has_bf16():
        _log.warning("%s: this GPU emulates bf16, which is slow: set precision=fp32", name)
    done = run.restore(checkpoints, start)
    if not run.finished(done):
        if done > start.done and name:
            _log.info("%s: continues after step %d of %d", name, done, run.end)
        watch = _Watch(progress, log, validate, keep or {}, is_part=state is not None)
        progress(done, run.end, "")
        feed = Feed(steps, run, done, workers or _workers(run.device.type), name)
        done = _loop(run, feed, loss, watch, checkpoints)
    if state is not None:
        run.check(done)
        run.snapshot()(state)
    result = run.finish(done)
    hardware.return_freed_memory()
    return result


def _workers(device: str) -> int:
    """Return the processes that make data by default; 0 where they cannot pass on whole steps."""
    count, shared = WORKERS.get(device, 0), hardware.shared_memory()
    if count and shared < _SHARED:
        _log.warning(
            "/dev/shm has %d MiB, so steps are masked in the process that trains, which is slower: "
            "give the container 1 GiB or more (--shm-size)",
            shared >> 20,
        )
        return 0
    return count


def _loop(
    run: Optimization, feed: Feed, loss: Loss, watch: _Watch, checkpoints: StepCheckpoints
) -> int:
    """Run the remaining (number, step) pairs and return the number of steps done.

    A signal that ends the process is handled after the current step and a checkpoint.
    """
    import torch

    saved, pause = time.monotonic(), run.spec.checkpoint_every
    if run.spec.compile is True:
        torch._dynamo.reset()  # it compiles one piece of code eight times at most, for all models
        loss = hardware.compiled(loss)
    run.module.train()
    alone = run.share.ranks == 1  # others would wait for one that ends
    with (
        torch.random.fork_rng(devices=[run.device] if run.device.type == "cuda" else []),
        deferred(alone) as is_ending,
        ThreadPoolExecutor(1) as pool,
    ):
        writer = _Writer(run, checkpoints, pool)
        for number, step in feed:
            while not run.step(number, step, loss):
                step = feed.shrink(number)
            done = number + 1
            watch.tokens += step.tokens
            watch.after(run, done)
            ending, finished = is_ending(), run.finished(done)
            due = time.monotonic() - saved >= pause
            if ending or (due and not finished and not writer.is_busy):
                begun = saved = time.monotonic()
                if run.share.rank == 0 and run.is_sound():
                    writer.save(done)
                    saved = time.monotonic()
                if saved - begun > _QUICK:
                    pause = max(run.spec.checkpoint_every, (saved - begun) / _SHARE)
            if ending or finished:
                break
        writer.wait()
    if not run.finished(done):  # the handler of the signal did not end the process
        raise KeyboardInterrupt
    return done


@dataclass
class _Writer:
    """Saves checkpoints; on a GPU in a thread, from a copy, while the training continues."""

    run: Optimization
    checkpoints: StepCheckpoints
    pool: ThreadPoolExecutor
    last: Future[None] | None = None  # that a thread writes or has written

    @property
    def is_busy(self) -> bool:
        return self.last is not None and not self.last.done()

    def save(self, step: int) -> None:
        """Save a checkpoint, after the one before; raises the error of that one."""
        self.wait()
        in_thread = self.run.device.type in _IN_THREAD
        write = self.run.snapshot(copies=in_thread)
        if in_thread:
            self.last = self.pool.submit(self.checkpoints.save, step, write)
        else:
            self.checkpoints.save(step, write)

    def wait(self) -> None:
        """Wait for the last checkpoint, and raise its error."""
        if self.last is not None:
            self.last.result()


@dataclass
class _Watch:
    """The callbacks of a training (see `train`), each called when it is due."""

    progress: Progress
    log: Log | None
    validate: Callable[[Any], float] | None
    keep: Mapping[int, Keep]
    is_part: bool = False  # the loss is reported as if training did not end here
    loss: str = ""  # the last reported one
    tokens: int = 0  # since the last report
    since: float = field(default_factory=time.monotonic)  # time of the last report
    speed: str = ""  # tokens per second at that time

    def after(self, run: Optimization, done: int) -> None:
        """Call whatever is due after `done` steps; raises StageError (see `train`)."""
        if done % _REPORT == 0 or (done == run.end and not self.is_part):
            loss = run.report(done)
            self.loss = f"loss {loss:.3f}"
            self._measure()
            if self.log:
                self.log(done, {"loss": loss, "lr": rate(run.spec, done - 1)})
        elif time.monotonic() - self.since > _LONG:
            self._measure()
        self.progress(done, run.end, ", ".join(filter(None, (self.loss, self.speed))))
        if done in self.keep:
            loss = run.check(done)
            self.keep[done](run.weights.copied(), dict(run.work), loss)
        every = run.spec.eval_every
        if self.validate and every and (done % every == 0 or done == run.end):
            score = run.validate(done, self.validate)
            run.module.train()
            if self.log:
                self.log(done, {"dev": score})

    def _measure(self) -> None:
        now = time.monotonic()
        if self.tokens and now > self.since:
            self.speed = f"{self.tokens / (now - self.since):.0f} tokens/s"
        self.tokens, self.since = 0, now


class Feed:
    """The remaining (number, step) pairs of a training."""

    def __init__(
        self, steps: Callable[[int], Step], run: Optimization, done: int, workers: int, name: str
    ) -> None:
        """Begin after `done` steps; a resumed training keeps its smaller micro-batches."""
        self._run, self._workers, self._name = run, workers, name
        stated = run.spec.micro_tokens
        self._most = run.shrunk.get("micro_tokens") or stated or run.fitting_tokens()
        self._steps = steps if self._most == stated else _with_micro_tokens(steps, self._most)
        self._data = prefetch(self._own, done, run.end, workers)

    def __iter__(self) -> Iterator[tuple[int, Step]]:
        while (numbered := next(self._data, None)) is not None:  # `shrink` replaces `_data`
            yield numbered

    @property
    def _own(self) -> Callable[[int], Step]:
        """The steps of this process; each of several processes computes a share of every step."""
        share = self._run.share
        return self._steps if share.ranks == 1 else replace(self._steps, share=share)  # type: ignore[type-var]

    def shrink(self, number: int) -> Any:
        """Halve micro_tokens until a step has more micro-batches, and return that step.

        Later steps have the same limit. Raises StageError if the step cannot be divided further.
        """
        before, most = len(self._steps(number).batches), self._most
        while most > 1:
            most //= 2
            steps = _with_micro_tokens(self._steps, most)
            if len(steps(number).batches) > before:
                break
        else:
            raise StageError(
                f"memory ran out in step {number + 1}, whose micro-batches cannot be smaller: "
                "lower max_source, max_target or the size of the model"
            )
        if self._name:
            _log.warning(
                "%s: memory ran out in step %d: it goes on with micro_tokens=%d instead of %d",
                self._name,
                number + 1,
                most,
                self._most,
            )
        self._most, self._steps = most, steps
        self._run.shrunk = {"micro_tokens": most, "step": number + 1}
        self._data.close()  # ends the processes that computed steps ahead
        hardware.return_freed_memory()
        self._data = prefetch(self._own, number, self._run.end, self._workers)
        return next(self._data)[1]


def _with_micro_tokens(steps: Any, most: int) -> Any:
    """Return the same steps with at most `most` padded tokens in a micro-batch."""
    if not hasattr(steps, "spec"):
        return steps  # e.g. a function, whose micro-batches have no such limit
    return replace(steps, spec=replace(steps.spec, micro_tokens=most))


T = TypeVar("T")
_AHEAD = 8  # steps that each worker computes in advance
_SHARED = 2**30  # bytes that the steps of two workers may take


def prefetch(
    made: Callable[[int], T], start: int, end: int, workers: int
) -> Generator[tuple[int, T]]:
    """Yield (number, made(number)) for `start` <= number < `end`, computed in `workers` processes.

    With 0 workers, they are computed in this process, one at a time. Raises the error of `made`;
    in a worker, errors other than MaskpolicyError become a StageError with the same line.
    """
    from torch.utils.data import DataLoader

    numbers = range(start, end)
    if not workers:
        yield from ((number, made(number)) for number in numbers)
        return
    loader: Any = DataLoader(
        numbers,  # type: ignore[arg-type]
        batch_size=None,
        num_workers=workers,
        prefetch_factor=_AHEAD,
        collate_fn=partial(_computed, discovery.Carried(made)),
    )
    for number, item in zip(numbers, loader, strict=True):
        if isinstance(item, MaskpolicyError):
            raise item
        yield number, item


def _computed(made: Callable[[int], T], number: int) -> T | MaskpolicyError:
    """Return made(number) or its error, because the DataLoader would rewrite an error's lines."""
    try:
        return made(number)
    except MaskpolicyError as error:
        return error
    except Exception as error:  # noqa: BLE001 - raised again in the training's process
        return StageError(cause(error))


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_HANDLED = (signal.SIGUSR2,)  # Slurm's notice, if submitit handles it


@contextmanager
def deferred(enabled: bool = True) -> Iterator[Callable[[], bool]]:
    """Defer the first signal that would end this process to the end of the block.

    Yields a function that returns True once a signal has arrived. A second signal acts at once.
    Signals are not deferred outside the main thread, or if `enabled` is False.
    """
    arrived: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (*_ENDING, *_HANDLED) if enabled and is_main else ()
    handlers = [(number, signal.getsignal(number)) for number in numbers]

    def set_handlers(handler: Any = None) -> None:
        for number, before in handlers:
            if callable(before) or (number in _ENDING and before == signal.SIG_DFL):
                signal.signal(number, handler or before)

    def keep(number: int, frame: object) -> None:
        if arrived:
            set_handlers()
            signal.raise_signal(number)
        arrived.append(number)

    set_handlers(keep)
    try:
        yield lambda: bool(arrived)
    finally:
        set_handlers()
        if arrived:
            signal.raise_signal(arrived[0])


def held_out_losses(
    module: Any,
    loss: Loss,
    steps: Callable[[int], Step],
    count: int,
    progress: Progress = lambda done, total, note: None,
) -> tuple[list[float], list[float]]:
    """Return the summed loss and the units of each of the first `count` steps.

    The module must be on the device; it is in evaluation mode afterwards. Each process of a
    training computes a share of the steps.
    """
    import torch

    def measure(number: int) -> tuple[float, float]:
        step = steps(number)
        values = (loss(module, batch.to(hardware.device()))[0] for batch in step.batches)
        total = float(sum(value.item() for value in values))
        progress(number + 1, count, "")
        return total, step.units

    module.eval()
    with torch.no_grad():
        every = shared(range(count), lambda own: list(map(measure, own)))
    return [value for value, _ in every], [units for _, units in every]


def check_installed(name: str | None) -> None:
    """Raise ConfigError if the package of a tracker is not installed; None means no tracker."""
    if name is None:
        return
    from accelerate.tracking import get_available_trackers

    if name not in [tracker.value for tracker in get_available_trackers()]:
        package = name.replace("_", "-")
        raise ConfigError(f"tracker: {name} is not installed: run `pip install {package}`")


@contextmanager
def tracked(
    name: str | None, folder: Path | None, run: str, cpu: bool = False
) -> Iterator[Log | None]:
    """Yield a function that logs the values of one training; None without a tracker or folder.

    The tracker `name` writes below `folder`; `run` names the training (in TensorBoard, a folder of
    its own). Set `cpu` for a training on a CPU: every Accelerator of a process needs the same
    setting. A failure, such as a missing package or a server that is down, gives one warning and
    turns the tracker off.
    """
    if name is None or folder is None:
        yield None
        return
    trackers: list[Any] = []

    def attempt(act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - a tracker must not stop a training
            trackers.clear()
            reason = next(iter(str(error).splitlines()), "")
            _log.warning(
                "tracker %s is off for this stage: %s: %s", name, type(error).__name__, reason
            )

    def log(step: int, values: Mapping[str, float]) -> None:
        for tracker in trackers:
            tracker.log(dict(values), step=step)

    attempt(lambda: trackers.extend(_opened(name, folder, run, cpu)))
    try:
        yield lambda step, values: attempt(lambda: log(step, values))
    finally:
        for tracker in tuple(trackers):
            attempt(tracker.finish)


def _opened(name: str, folder: Path, run: str, cpu: bool) -> list[Any]:
    from accelerate import Accelerator

    folder.mkdir(parents=True, exist_ok=True)
    accelerator = Accelerator(cpu=cpu, log_with=name, project_dir=str(folder))
    if not accelerator.log_with:
        raise RuntimeError(f"its package is not installed: pip install {name}")
    named = {"wandb": {"name": run}} if name == "wandb" else {}
    project = run if name in ("tensorboard", "dvclive") else "maskpolicy"
    accelerator.init_trackers(project, init_kwargs=named)
    return list(accelerator.trackers)
