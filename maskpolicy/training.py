"""The one training loop: general, intermediate, fine-tuning and learned policies run through it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from maskpolicy import hardware
from maskpolicy.config import Training
from maskpolicy.errors import StageError, cause
from maskpolicy.prefetch import prefetch
from maskpolicy.selection import generator
from maskpolicy.tracking import Log
from maskpolicy.weights import Weights

if TYPE_CHECKING:
    import torch

Loss = Callable[[Any, Any], "tuple[torch.Tensor, int]"]
"""loss(module, micro-batch) -> (sum over its units, number of units); a unit is a token mostly."""

_REPORT = 25  # steps between two looks at the loss: each look waits for the device


@dataclass(frozen=True)
class Step:
    """What one optimizer step learns from: micro-batches, their units, and the work done."""

    batches: Sequence[Any]  # each has .to(device)
    units: int  # over all micro-batches: what the loss is divided by
    work: Mapping[str, int] = field(default_factory=dict)  # e.g. passages, hidden_tokens


class Checkpoints(Protocol):
    """Where a stage under way keeps its state (see store.Checkpoints)."""

    def save(self, step: int, write: Callable[[Path], None]) -> None: ...  # noqa: D102
    def latest(self) -> tuple[int, Path] | None: ...  # noqa: D102


Progress = Callable[[int, int, str], None]
"""progress(done, total, note): told before the first step and after each."""


def train(
    module: Any,
    steps: Callable[[int], Step],
    loss: Loss,
    spec: Training,
    checkpoints: Checkpoints,
    progress: Progress,
    *,
    workers: int = 0,
    validate: Callable[[Any], float] | None = None,
    on_step: Callable[[int, Any], None] | None = None,
    log: Log | None = None,
    until: int = 0,
    keep: Mapping[int, Callable[[Any, Mapping[str, int]], None]] | None = None,
) -> dict[str, Any]:
    """Train `module` in place for `spec.steps` optimizer steps and return what was done.

    `steps(number)` makes the data of one step and must depend on `number` alone; the loss is the
    mean over all units of the step, however it is cut into micro-batches or spread over processes
    (of accelerate; the first one alone writes checkpoints).
    A run resumes from its newest checkpoint, bit for bit on a CPU. `validate` is called every
    `spec.eval_every` steps (higher is better); the best weights are the ones that stay.
    `log(done, values)` hears of loss, learning rate and dev score for a tracker.
    `on_step(done, module)` sees the module after each step; `keep[done](copy, work)` is given a
    copy of it as it would be had the training ended there. `until` ends it before `spec.steps`,
    whose schedule it keeps. Raises StageError when loss or weights stop being numbers, before they
    are kept, judged or returned. Returns {"steps", "loss", "work", ...}.
    """
    run = _Run(module, spec, until or spec.steps)
    done = run.restore(checkpoints)
    if not run.finished(done):
        watch = _Watch(progress, log, on_step, validate, keep or {})
        watch.begin(run, done)
        done = _go_on(run, prefetch(steps, done, run.end, workers), loss, watch, checkpoints)
    return run.finish(done)


def _go_on(
    run: _Run,
    data: Iterable[tuple[int, Step]],
    loss: Loss,
    watch: _Watch,
    checkpoints: Checkpoints,
) -> int:
    """Take the steps that are left, of numbers and their data; return how many are done then."""
    import torch

    clock = _Clock(run.spec.checkpoint_every)
    loss = torch.compile(loss) if run.spec.compile else loss
    run.module.train()
    with torch.random.fork_rng(devices=run.random_devices):
        for number, step in data:
            run.step(number, step, loss)
            done = number + 1
            watch.after(run, done)
            if run.finished(done):
                break
            if run.is_first and clock.due() and run.is_sound():
                checkpoints.save(done, run.save)
    return done


@dataclass
class _Watch:
    """Those who follow a training, and when each of them is told; see `train`."""

    progress: Progress
    log: Log | None
    on_step: Callable[[int, Any], None] | None
    validate: Callable[[Any], float] | None
    keep: Mapping[int, Callable[[Any, Mapping[str, int]], None]]
    note: str = ""  # on progress: the loss when it was last looked at

    def begin(self, run: _Run, done: int) -> None:
        """Tell where the training begins."""
        self.progress(done, run.end, self.note)

    def after(self, run: _Run, done: int) -> None:
        """Tell each of a step what is its due; raises StageError (see `train`)."""
        if self.on_step:
            self.on_step(done, run.module)
        if done % _REPORT == 0 or done == run.end:
            loss = run.look(done)
            self.note = f"loss {loss:.3f}"
            self._log(done, {"loss": loss, "lr": rate(run.spec, done - 1)})
        self.progress(done, run.end, self.note)
        if done in self.keep:
            run.check(done)
            self.keep[done](run.weights.copied(), dict(run.work))
        if self.validate and run.spec.eval_every and done % run.spec.eval_every == 0:
            score = run.judge(done, self.validate)
            run.module.train()
            self._log(done, {"dev": score})

    def _log(self, done: int, values: dict[str, float]) -> None:
        if self.log:
            self.log(done, values)


class _Run:
    """The state of a training under way: weights, optimizer, counts, best weights."""

    def __init__(self, module: Any, spec: Training, end: int) -> None:
        import torch
        from accelerate import Accelerator

        self.spec, self.module, self.end = spec, module, end
        # without `cpu`, accelerate lets the processes of a CPU run side by side, each for itself
        self.accelerator = Accelerator(cpu=hardware.device().type == "cpu")
        self.device = self.accelerator.device
        module.to(self.device)
        self.weights = Weights(module, spec.precision == "bf16")
        groups = [
            {"params": [self.weights.decayed], "weight_decay": spec.weight_decay},
            {"params": [self.weights.plain], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=spec.lr, betas=spec.betas, fused=True)
        self.is_first = self.accelerator.is_main_process
        self.random_devices = [self.device] if self.device.type == "cuda" else []
        self.work: Counter[str] = Counter()
        self.total = torch.zeros((), device=self.device)
        self.seen = self.last = 0.0
        self.best: dict[str, Any] = {"score": -math.inf, "step": 0, "master": None}
        self.failed: str | None = None

    def step(self, number: int, data: Step, loss: Loss) -> None:
        """One optimizer step on the mean loss of the whole step."""
        import torch

        self.work.update(data.work)
        ranks, rank = self.accelerator.num_processes, self.accelerator.process_index
        draws = f"step {rank}" if rank else "step"  # so that no two processes drop the same units
        torch.manual_seed(int(generator(self.spec.seed, number, "", draws).integers(2**63)))
        part = self._gradient(data, loss)
        self.total += self.accelerator.reduce(part, "sum") if ranks > 1 else part
        self.seen += data.units
        self.weights.collect()
        if ranks > 1:
            self.weights.gradient.copy_(self.accelerator.reduce(self.weights.gradient, "sum"))
        if self.spec.clip:
            parts = [self.weights.decayed, self.weights.plain]
            torch.nn.utils.clip_grad_norm_(parts, self.spec.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = rate(self.spec, number)
        self.optimizer.step()
        self.weights.spread()

    def _gradient(self, data: Step, loss: Loss) -> Any:
        """Collect this process's part of the gradient, and return the sum of its losses.

        Of several processes, one that fails goes on until all of them look: to raise at once would
        leave the others waiting for it.
        """
        import torch

        ranks, rank = self.accelerator.num_processes, self.accelerator.process_index
        part = torch.zeros_like(self.total)
        try:
            for batch in data.batches[rank::ranks]:
                value, _ = loss(self.module, batch.to(self.device))
                (value / max(1, data.units)).backward()
                part += value.detach()
        except Exception as error:
            if ranks == 1:
                raise
            self.failed = self.failed or cause(error)
            part.fill_(math.nan)
        return part

    def look(self, done: int) -> float:
        """Return the mean loss since the last look."""
        self.last = self.check(done)
        self.total.zero_()
        self.seen = 0.0
        return self.last

    def check(self, done: int) -> float:
        """Return the mean loss since the last look; all processes call it, and raise together.

        Raises StageError when it or the weights are no numbers, with what a process failed with.
        """
        mean = self.total.item() / max(1.0, self.seen)
        if self.is_sound():
            return mean
        self._raise_first(self._gathered(self.failed))
        what = "weights became nan" if math.isfinite(mean) else f"loss became {mean}"
        raise StageError(
            f"the {what} before step {done}: lower lr (now {self.spec.lr}), "
            "raise warmup, or set precision: fp32"
        )

    def is_sound(self) -> bool:
        """Whether loss and weights are numbers still; waits for the device."""
        return math.isfinite((self.total + self.weights.master.sum()).item())

    def judge(self, done: int, validate: Callable[[Any], float]) -> float:
        """Keep the weights if their score, the first process's, is the best so far; return it."""
        self.check(done)
        own, failed = math.nan, None
        try:
            own = validate(self.module)
        except Exception as error:
            if self.accelerator.num_processes == 1:
                raise
            failed = cause(error)
        self._raise_first(self._gathered(failed))
        score = self._gathered(own)[0]
        if score > self.best["score"]:
            self.best = {"score": score, "step": done, "master": self.weights.master.clone()}
        return score

    def _raise_first(self, failed: Sequence[str | None]) -> None:
        """Raise what the first process that failed did so with, in every process."""
        for line in filter(None, failed):
            raise StageError(line)

    def _gathered(self, value: Any) -> list[Any]:
        """Return the value of each process, the first one's first."""
        if self.accelerator.num_processes == 1:
            return [value]
        from accelerate.utils import gather_object

        return gather_object([value])

    def finished(self, done: int) -> bool:
        """Whether all steps are done, or patience is at its end."""
        waited = done - self.best["step"]
        patience = self.spec.patience * self.spec.eval_every
        stopped = bool(self.best["step"] and patience and waited >= patience)
        return done >= self.end or stopped

    def finish(self, done: int) -> dict[str, Any]:
        """Put the best weights back, if any were kept, and return what was done."""
        result = {"steps": done, "loss": self.last, "work": dict(self.work)}
        if self.best["master"] is not None:
            self.weights.load(self.best["master"])
            result |= {"best_step": self.best["step"], "best_score": self.best["score"]}
        self.weights.release()
        self.module.eval()
        return result

    def save(self, folder: Path) -> None:
        """Write the state to a checkpoint folder."""
        from safetensors.torch import save_file

        tensors = {"master": self.weights.master}
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
        if self.best["master"] is not None:
            tensors["best"] = self.best["master"]
        save_file(tensors, folder / "state.safetensors")
        best = [self.best["score"], self.best["step"]] if self.best["step"] else None
        facts = {
            "work": self.work,
            "last": self.last,
            "seen": self.seen,
            "total": self.total.item(),
            "best": best,
        }
        (folder / "state.json").write_text(json.dumps(facts))

    def restore(self, checkpoints: Checkpoints) -> int:
        """Load the newest checkpoint, if any, and return the steps that it had done."""
        from safetensors.torch import load_file

        found = checkpoints.latest()
        if found is None:
            return 0
        done, folder = found
        place = "cpu" if self.device.type == "cpu" else str(self.device)  # it knows no cpu:0
        tensors = load_file(folder / "state.safetensors", device=place)
        facts = json.loads((folder / "state.json").read_text())
        self.weights.load(tensors.pop("master"))
        if facts["best"]:
            score, step = facts["best"]
            self.best = {"score": score, "step": step, "master": tensors.pop("best")}
        state: dict[int, dict[str, Any]] = {}
        for name, value in tensors.items():
            _, index, key = name.split(".")
            state.setdefault(int(index), {})[key] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        self.work.update(facts["work"])
        self.last, self.seen = facts["last"], facts["seen"]
        self.total.fill_(facts["total"])
        return done


def rate(spec: Training, step: int) -> float:
    """Return the learning rate of a step, counted from 0."""
    if step < spec.warmup:
        return spec.lr * (step + 1) / spec.warmup
    if spec.schedule == "constant":
        return spec.lr
    left = (spec.steps - step) / max(1, spec.steps - spec.warmup)
    if spec.schedule == "cosine":
        return spec.lr * 0.5 * (1 - math.cos(math.pi * left))
    return spec.lr * left


class _Clock:
    """Says when the next checkpoint is due."""

    def __init__(self, every: float) -> None:
        self.every, self.last = every, self._now()

    def due(self) -> bool:
        """Whether `every` seconds have passed since it last was."""
        if self._now() - self.last < self.every:
            return False
        self.last = self._now()
        return True

    @staticmethod
    def _now() -> float:
        import time

        return time.monotonic()
