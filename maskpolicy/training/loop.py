"""The training loop of general and intermediate stages, fine-tuning, and learned policies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskpolicy import hardware
from maskpolicy.config.budgets import Training
from maskpolicy.training.feed import Feed
from maskpolicy.training.interfaces import Keep, Loss, Progress, Start, Step, StepCheckpoints
from maskpolicy.training.optimization import Optimization, rate
from maskpolicy.training.signals import deferred
from maskpolicy.training.tracking import Log

_log = logging.getLogger(__name__)
_REPORT = 25  # steps between two reports of the loss: each report waits for the device
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
    validate_last: bool = False,
    on_step: Callable[[int, Any], None] | None = None,
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
    accelerate's processes (only the first process writes checkpoints).
    Training resumes from the newest checkpoint, bit for bit on a CPU. `validate(module)` returns a
    score (higher is better) every `spec.eval_every` steps, and with `validate_last` after the last
    one; the best weights are restored at the end. `log(done, values)` sends loss, learning rate and
    dev score to a tracker. `on_step(done, module)` is called after each step. `keep[done]` receives
    a copy of the module as if training had ended there. `until` stops training before `spec.steps`
    without changing the learning rate schedule. `name` is that of the training in log lines. A
    training may be cut into parts with the bits of one: a part that is not the last one stops at
    `until` and writes its whole state to the folder `state`, and the next one begins at `start`.
    If memory runs out in a micro-batch, the step is repeated with micro-batches of half the size,
    and so are all steps after it.
    Returns {"steps", "loss", "work"}; after validation also {"best_step", "best_score", "scores"},
    the last as (step, score) pairs; if memory ran out also {"shrunk": {"micro_tokens", "step"}}.
    Raises StageError for a NaN or infinite loss or weight, before the weights are kept, validated
    or returned, and for a step that memory does not allow even one example at a time.
    """
    hardware.keep_freed_memory()
    run = Optimization(module, spec, until or spec.steps)
    done = run.restore(checkpoints, start)
    if not run.finished(done):
        if done > start.done and name:
            _log.info("%s: continues after step %d of %d", name, done, run.end)
        watch = _Watch(
            progress, log, on_step, validate, keep or {}, validate_last, is_part=state is not None
        )
        watch.begin(run, done)
        feed = Feed(steps, run, done, workers, name)
        done = _loop(run, feed, loss, watch, checkpoints)
    if state is not None:
        run.check(done)
        run.save(state)
    found = run.finish(done)
    hardware.return_freed_memory()
    return found


def _loop(
    run: Optimization,
    feed: Feed,
    loss: Loss,
    watch: _Watch,
    checkpoints: StepCheckpoints,
) -> int:
    """Run the remaining (number, step) pairs and return the number of steps done.

    A signal that ends the process is handled after the current step and a checkpoint.
    """
    import torch

    clock = _Clock(run.spec.checkpoint_every)
    loss = torch.compile(loss) if run.spec.compile else loss
    run.module.train()
    alone = run.accelerator.num_processes == 1  # others would wait for one that ends
    with torch.random.fork_rng(devices=run.random_devices), deferred(alone) as is_ending:
        for number, step in feed:
            while not run.step(number, step, loss):
                step = feed.shrink(number)
            done = number + 1
            watch.tokens += step.tokens
            watch.after(run, done)
            ending, finished = is_ending(), run.finished(done)
            due = ending or (clock.due() and not finished)
            if due and run.is_first and run.is_sound():
                checkpoints.save(done, run.save)
            if ending or finished:
                break
    if not run.finished(done):  # the handler of the signal did not end the process
        raise KeyboardInterrupt
    return done


@dataclass
class _Watch:
    """The callbacks of a training (see `train`), each called when it is due."""

    progress: Progress
    log: Log | None
    on_step: Callable[[int, Any], None] | None
    validate: Callable[[Any], float] | None
    keep: Mapping[int, Keep]
    validate_last: bool = False
    is_part: bool = False  # the loss is reported as if training did not end here
    loss: str = ""  # the last reported one
    tokens: int = 0  # since the last report
    since: float = 0.0  # time of the last report
    speed: str = ""  # tokens per second at that time

    def begin(self, run: Optimization, done: int) -> None:
        """Report the step at which training starts."""
        self.since = time.monotonic()
        self.progress(done, run.end, "")

    def after(self, run: Optimization, done: int) -> None:
        """Call whatever is due after `done` steps; raises StageError (see `train`)."""
        if self.on_step:
            self.on_step(done, run.module)
        if done % _REPORT == 0 or (done == run.end and not self.is_part):
            loss = run.report(done)
            self.loss = f"loss {loss:.3f}"
            self._measure()
            self._log(done, {"loss": loss, "lr": rate(run.spec, done - 1)})
        elif time.monotonic() - self.since > _LONG:
            self._measure()
        self.progress(done, run.end, ", ".join(filter(None, (self.loss, self.speed))))
        if done in self.keep:
            loss = run.check(done)
            self.keep[done](run.weights.copied(), dict(run.work), loss)
        every = run.spec.eval_every
        is_due = every and (done % every == 0 or (self.validate_last and done == run.end))
        if self.validate and is_due:
            score = run.validate(done, self.validate)
            run.module.train()
            self._log(done, {"dev": score})

    def _measure(self) -> None:
        """Take the speed since the last report."""
        now = time.monotonic()
        if self.tokens and now > self.since:
            self.speed = f"{self.tokens / (now - self.since):.0f} tokens/s"
        self.tokens, self.since = 0, now

    def _log(self, done: int, values: dict[str, float]) -> None:
        if self.log:
            self.log(done, values)


class _Clock:
    """Decides when the next checkpoint is due."""

    def __init__(self, every: float) -> None:
        self.every, self.last = every, time.monotonic()

    def due(self) -> bool:
        """Return True if `every` seconds have passed since it last returned True."""
        if time.monotonic() - self.last < self.every:
            return False
        self.last = time.monotonic()
        return True
