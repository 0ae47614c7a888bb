"""The state of a training: weights, optimizer steps, validation, saving and restoring."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from maskpolicy.core import hardware
from maskpolicy.core.errors import StageError, cause
from maskpolicy.core.seeding import generator
from maskpolicy.experiment.budgets import Training
from maskpolicy.models.training.batching import WORK, Loss, Share, Step
from maskpolicy.models.training.padding import masks_have_padding

S = TypeVar("S")
T = TypeVar("T")
Keep = Callable[[Any, Mapping[str, int], float], None]
"""keep(module, work, loss): receives a copy of the module in training, and the recent mean loss."""


@dataclass(frozen=True)
class Start:
    """Where a part of a training begins; the default is the beginning of the training."""

    done: int = 0  # steps of the earlier parts
    state: Path | None = None  # folder with the state that the previous part wrote
    work: Mapping[str, int] = field(default_factory=dict)  # done for this part before its steps


class StepCheckpoints(Protocol):
    """Saves and loads the state of a running stage (see store.checkpoints.Checkpoints)."""

    def save(self, step: int, write: Callable[[Path], None]) -> None: ...  # noqa: D102
    def latest(self) -> tuple[int, Path] | None: ...  # noqa: D102


class NoCheckpoints:
    """Those of a training that begins anew if it was stopped."""

    def save(self, step: int, write: Callable[[Path], None]) -> None:
        """Save nothing."""

    def latest(self) -> None:
        """Return None: there is never one."""


@dataclass(frozen=True)
class _Best:
    """The weights with the best validation score so far."""

    score: float = -math.inf
    step: int = 0  # 0: none yet
    weights: Any = None  # without gaps


class Optimization:
    """The state of a training: weights, optimizer, counts, and the best weights so far."""

    def __init__(self, module: Any, spec: Training, end: int) -> None:
        import torch
        from accelerate import Accelerator

        self.spec, self.module, self.end = spec, module, end
        # without `cpu`, accelerate does not connect the processes of a CPU
        accelerator = Accelerator(cpu=hardware.device().type == "cpu")
        self.device = accelerator.device
        module.to(self.device)
        self.weights = Weights(module, in_bf16(module, spec, self.device.type))
        groups = [
            {"params": [self.weights.decayed], "weight_decay": spec.weight_decay},
            {"params": [self.weights.plain], "weight_decay": 0.0},
        ]
        settings: dict[str, Any] = {"lr": spec.lr, "betas": spec.betas, "eps": spec.eps}
        self.optimizer = torch.optim.AdamW(groups, **settings, fused=True)
        self.share = Share(accelerator.process_index, accelerator.num_processes)
        self.work: Counter[str] = Counter()
        self.total = torch.zeros((), device=self.device)
        self.seen = self.last = 0.0
        self.best = _Best()
        self.scores: list[tuple[int, float]] = []  # step and score of each validation
        self.failed: str | None = None
        self.shrunk: dict[str, int] = {}  # micro_tokens and step, once memory has run out

    def step(self, number: int, data: Step, loss: Loss) -> bool:
        """Take one optimizer step on the mean loss over all units of the step.

        `data` is the share of this process. If memory runs out in a micro-batch of any process, the
        state stays as it is, and the result is False.
        """
        import torch

        # processes draw different dropout
        draws = f"step {self.share.rank}" if self.share.rank else "step"
        torch.manual_seed(int(generator(self.spec.seed, number, "", draws).integers(2**63)))
        part = self._gradient(data, loss)
        if self.share.ranks > 1:
            data, part = self._summed(data, part)
        if part is None:
            from accelerate.utils.memory import clear_device_cache

            clear_device_cache(garbage_collection=True)
            self.weights.clear()
            return False
        self.work.update(data.work)
        self.total += part
        self.seen += data.units
        if self.spec.max_grad_norm:
            parts = [self.weights.decayed, self.weights.plain]
            torch.nn.utils.clip_grad_norm_(parts, self.spec.max_grad_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = rate(self.spec, number)
        self._change_weights(number)
        return True

    def _change_weights(self, number: int) -> None:
        """Update the weights; StageError if memory runs out.

        Smaller micro-batches would not help: their activations have been released.
        """
        try:
            self.optimizer.step()
        except Exception as error:
            if not hardware.ran_out(error):
                raise
            raise StageError(
                f"memory ran out for the optimizer in step {number + 1}, where smaller "
                "micro-batches do not help: use a smaller model, or a machine with more memory"
            ) from error
        self.weights.spread()

    def _gradient(self, data: Step, loss: Loss) -> Any:
        """Accumulate this process's part of the gradient, and return the sum of its losses.

        The loss is the mean over the step's units, or their sum if there are several processes.
        Returns None if memory runs out. If one of several processes fails in another way, it
        continues until the next `check`: raising at once would leave the others waiting.
        """
        import torch

        part, ranks = torch.zeros_like(self.total), self.share.ranks
        units = data.units if ranks == 1 else 1  # the units of all are known after the summation
        try:
            for number, batch in enumerate(data.batches):
                with masks_have_padding():
                    value, _ = loss(self.module, batch.to(self.device))
                (value / (units or 1)).backward()
                self.weights.collect(is_first=not number)
                part += value.detach()
            if not data.batches:
                self.weights.clear()
        except Exception as error:
            if hardware.ran_out(error):
                return None
            if ranks == 1:
                raise
            self.failed = self.failed or cause(error)
            part.fill_(math.nan)
        return part

    def _summed(self, data: Step, part: Any) -> tuple[Step, Any]:
        """Return the step of all processes, and its loss or None if memory ran out in one of them.

        One collective operation sums gradient, loss and counts.
        """
        import torch

        figures = self.weights.figures
        figures[0] = 0 if part is None else part
        counts = [data.work.get(name, 0) for name in WORK]
        figures[1:] = figures.new_tensor([part is None, data.units, *counts])
        torch.distributed.all_reduce(self.weights.summed)
        loss, lacking, units, *counts = figures.tolist()
        self.weights.gradient.div_(units or 1)
        named = zip(WORK, counts, strict=True)
        work = {name: int(count) for name, count in named if count or name in data.work}
        return Step([], units, work), None if lacking else self.total.new_tensor(loss)

    def fitting_tokens(self) -> int:
        """Return the padded tokens of a micro-batch that fits into a GPU's free memory.

        It is the largest power of two, but at least 4,096, for which what layers keep for the
        backward pass needs at most 0.8 of the memory that the optimizer's moments leave. A layer
        keeps about 10 numbers for each output of its norms (see tests/models/test_loop.py).
        """
        if self.device.type != "cuda":
            return self.spec.batch_tokens
        named = self.module.named_parameters()
        widths = sum(p.numel() for name, p in named if p.ndim == 1 and name.endswith("weight"))
        of_token = _OF_NORM * widths * (2 if self.weights.bf16 else 4)
        moments = 0 if self.optimizer.state else 8 * len(self.weights.master)  # 0: it has them
        free = hardware.free_gpu_memory() - moments
        tokens = max(4096, int(0.8 * free / max(of_token, 1)))
        return 1 << tokens.bit_length() - 1

    def report(self, done: int) -> float:
        """Return the mean loss since the last report, and start a new mean."""
        self.last = self.check(done)
        self.total.zero_()
        self.seen = 0.0
        return self.last

    def check(self, done: int) -> float:
        """Return the mean loss since the last report, or the reported one if no step followed.

        All processes call it and raise together: StageError if the loss or a weight is NaN or
        infinite, or with the error of the first process that failed.
        """
        mean = self.total.item() / self.seen if self.seen else self.last
        if self.is_sound():
            return mean
        for line in filter(None, together(lambda own: self.failed)):
            raise StageError(line)
        what = "weights became nan" if math.isfinite(mean) else f"loss became {mean}"
        raise StageError(
            f"the {what} before step {done}: lower lr (now {self.spec.lr}), "
            "raise warmup, or set precision: fp32"
        )

    def is_sound(self) -> bool:
        """Return True if loss and weights are finite; waits for the device."""
        return math.isfinite((self.total + self.weights.master.sum()).item())

    def validate(self, done: int, validate: Callable[[Any], float]) -> float:
        """Return the validation score of the first process; the best weights so far are kept.

        Raises StageError as `check` does, or if validation fails in any process.
        """
        self.check(done)
        score = float(together(lambda own: validate(self.module))[0])
        self.scores.append((done, score))
        if score > self.best.score:
            self.best = _Best(score, done, self.weights.packed().clone())
        return score

    def finished(self, done: int) -> bool:
        """Return True if all steps are done, or early stopping ends the training."""
        waited = done - self.best.step
        patience = self.spec.patience * self.spec.eval_every
        stopped = bool(self.best.step and patience and waited >= patience)
        return done >= self.end or stopped

    def finish(self, done: int) -> dict[str, Any]:
        """Restore the best weights, if any were kept, and return the result of `loop.train`."""
        if done < self.end and self.seen:  # early stopping
            self.last = self.total.item() / self.seen
        result = {"steps": done, "loss": self.last, "work": dict(self.work)}
        if self.best.step:
            self.weights.load(self.best.weights)
            result |= {"best_step": self.best.step, "best_score": self.best.score}
            result["scores"] = self.scores
        if self.shrunk:
            result["shrunk"] = self.shrunk
        self.weights.release()
        self.module.eval()
        return result

    def snapshot(self, copies: bool = False) -> Callable[[Path], None]:
        """Return a function that writes this state to the folder of a checkpoint.

        With `copies`, the training may continue before the function is called.
        """
        from safetensors.torch import save_file

        tensors = {"master": self.weights.packed()}
        for index, state in self.optimizer.state_dict()["state"].items():
            for name, value in state.items():
                flat = self.weights.packed(value, index) if value.ndim else value
                tensors[f"optimizer.{index}.{name}"] = flat
        if self.best.step:
            tensors["best"] = self.best.weights
        if copies:
            tensors = {name: tensor.to("cpu", copy=True) for name, tensor in tensors.items()}
        best = [self.best.score, self.best.step] if self.best.step else None
        facts = {
            "work": self.work,
            "last": self.last,
            "seen": self.seen,
            "total": self.total.item(),
            "best": best,
            "scores": self.scores,
        }
        if self.shrunk:
            facts["shrunk"] = self.shrunk
        text = json.dumps(facts)

        def write(folder: Path) -> None:
            save_file(tensors, folder / "state.safetensors")
            (folder / "state.json").write_text(text)

        return write

    def restore(self, checkpoints: StepCheckpoints, start: Start) -> int:
        """Load the newest checkpoint, or else the state at `start`; return the steps done."""
        while (found := checkpoints.latest()) is not None:
            with suppress(FileNotFoundError):  # a host that shares no locks has just removed it
                self._load(found[1])
                return found[0]
        if start.state is not None:
            self._load(start.state)
        self.work.update(start.work)
        return start.done

    def _load(self, folder: Path) -> None:
        from safetensors.torch import load_file

        # safetensors does not know cpu:0
        place = "cpu" if self.device.type == "cpu" else str(self.device)
        tensors = load_file(folder / "state.safetensors", device=place)
        facts = json.loads((folder / "state.json").read_text())
        self.weights.load(tensors.pop("master"))
        if facts["best"]:
            score, step = facts["best"]
            self.best = _Best(score, step, tensors.pop("best"))
        state: dict[int, dict[str, Any]] = {}
        for name, value in tensors.items():
            _, index, key = name.split(".")
            spaced = self.weights.spaced(value, int(index)) if value.ndim else value
            state.setdefault(int(index), {})[key] = spaced
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        self.work.update(facts["work"])
        self.last, self.seen = facts["last"], facts["seen"]
        self.scores = [(step, score) for step, score in facts.get("scores", ())]
        self.shrunk = facts.get("shrunk", {})
        self.total.fill_(facts["total"])


class _SharedError(StageError):
    """An error that all processes of a training raise."""


def together(act: Callable[[slice], T]) -> list[T]:
    """Return what act(own) returns in each process of a training, in order of rank.

    `own` is the share of a process in a list. All processes call it; if some fail, all of them
    raise the error of the first one as StageError.
    """
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return [act(slice(None))]
    answers: list[Any] = [None] * distributed.get_world_size()
    own_error = None
    try:
        own = slice(distributed.get_rank(), None, len(answers))
        answer: tuple[Any, str | None] = (act(own), None)
    except _SharedError:  # of a call in `act`: the others are not here
        raise
    except Exception as error:  # noqa: BLE001 - all processes raise it below
        answer, own_error = (None, cause(error)), error
    distributed.all_gather_object(answers, answer)
    for line in filter(None, (failed for _, failed in answers)):
        raise _SharedError(line) from own_error
    return [value for value, _ in answers]


def shared(items: Sequence[S], compute: Callable[[Sequence[S]], Sequence[T]]) -> list[T]:
    """Return compute(items), a value for each item; each process of a training computes a share."""
    parts = together(lambda own: compute(items[own]) if items[own] else [])
    return [parts[place % len(parts)][place // len(parts)] for place in range(len(items))]


def in_bf16(module: Any, spec: Training, device: str) -> bool:
    """Return whether a module is trained in bf16; cuDNN has LSTMs in single precision only."""
    import torch

    is_recurrent = any(isinstance(part, torch.nn.RNNBase) for part in module.modules())
    return spec.precision == "bf16" and not (is_recurrent and device == "cuda")


def cast(module: Any, dtype: Any) -> None:
    """Convert a module to a dtype; rounded angles would rotate far positions by others."""
    angles = {name: b.clone() for name, b in module.named_buffers() if name.endswith(_ROTARY)}
    module.to(dtype)
    buffers = dict(module.named_buffers())
    for name, whole in angles.items():
        buffers[name].data = whole


def load_trained(module: Any, spec: Training, state: Path | None) -> None:
    """Move a module to the device, with the weights of a saved state (None: its own).

    It computes in the precision of `spec`, as in training.
    """
    from safetensors import safe_open

    module.to(hardware.device())
    weights = Weights(module, in_bf16(module, spec, hardware.device().type))
    if state is not None:
        with safe_open(state / "state.safetensors", framework="pt") as file:
            weights.load(file.get_tensor("master"))


def rate(spec: Training, step: int) -> float:
    """Return the learning rate of a step, counted from 0, under `spec.schedule` with warm-up."""
    if step < spec.warmup:
        return spec.lr * (step + 1) / spec.warmup
    if spec.schedule == "constant":
        return spec.lr
    left = (spec.steps - step) / max(1, spec.steps - spec.warmup)
    if spec.schedule == "cosine":
        return spec.lr * 0.5 * (1 - math.cos(math.pi * left))
    return spec.lr * left


_OF_NORM = 10  # numbers that are kept for the backward pass for each output of a norm
_ROTARY = "inv_freq"  # buffers of rotary positions
_APART = {"cuda": 64}  # a parameter starts at a multiple of so many weights: 128 bytes in bf16


class Weights:
    """Stores a module's parameters and gradients in flat buffers, fp32 or bf16.

    The optimizer updates one fp32 master tensor. In bf16, the module's parameters are views of a
    rounded copy, which one operation per step refreshes, and the gradients of micro-batches are
    summed in fp32. So no operation casts weights, and optimizer and clipping handle two tensors
    instead of hundreds: `decayed`, the matrices, with weight decay, and `plain`, the rest. Gaps
    between the parameters (see _APART) are always 0; what is saved has none.
    """

    def __init__(self, module: Any, bf16: bool) -> None:
        import torch

        self.module, self.bf16 = module, bf16
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        named.sort(key=lambda pair: pair[1].ndim <= 1)  # stable: matrices first
        self.names = [name for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        matrices = sum(parameter.ndim > 1 for parameter in self.parameters)
        sizes = [parameter.numel() for parameter in self.parameters]
        self.sizes = [sizes[:matrices], sizes[matrices:]]  # of `decayed` and of `plain`
        self.apart = _APART.get(next(module.parameters()).device.type, 1)
        self.master = self.spaced(
            torch.cat([p.detach().flatten().float() for p in self.parameters])
        )
        # what several processes sum in each step: the gradient, and behind it loss and counts
        self.summed = self.master.new_zeros(len(self.master) + 3 + len(WORK))
        self.gradient, self.figures = self.summed.split([len(self.master), 3 + len(WORK)])
        others = self._others(module).items()
        self.whole = {name: t.clone() for name, t in others} if bf16 else {}
        if bf16:
            cast(module, torch.bfloat16)
            self.computed = self.master.to(torch.bfloat16)
            self.collected = torch.zeros_like(self.computed)
        else:
            self.computed, self.collected = self.master, self.gradient
        values, gradients = self._parts(self.computed), self._parts(self.collected)
        for parameter, value, gradient in zip(self.parameters, values, gradients, strict=True):
            parameter.data = value.view_as(parameter)
            parameter.grad = gradient.view_as(parameter)
        lengths = [sum(n + -n % self.apart for n in group) for group in self.sizes]
        groups = [torch.nn.Parameter(part) for part in self.master.split(lengths)]
        for group, gradient in zip(groups, self.gradient.split(lengths), strict=True):
            group.grad = gradient
        self.decayed, self.plain = groups

    def _others(self, module: Any) -> dict[str, Any]:
        frozen = {name: p for name, p in module.named_parameters() if not p.requires_grad}
        others = frozen | dict(module.named_buffers())
        return {name: t.detach() for name, t in others.items() if t.is_floating_point()}

    def _sizes(self, group: int | None) -> list[int]:
        return [*self.sizes[0], *self.sizes[1]] if group is None else self.sizes[group]

    def _parts(self, flat: Any, group: int | None = None) -> list[Any]:
        """Return the part of each parameter, or of those of one group, in a tensor with gaps."""
        sizes = self._sizes(group)
        rooms = flat.split([size + -size % self.apart for size in sizes])
        return [room[:size] for room, size in zip(rooms, sizes, strict=True)]

    def packed(self, flat: Any = None, group: int | None = None) -> Any:
        """Return a tensor with gaps, by default the master, without them."""
        import torch

        flat = self.master if flat is None else flat
        return flat if self.apart == 1 else torch.cat(self._parts(flat, group))

    def spaced(self, packed: Any, group: int | None = None) -> Any:
        """Return a tensor without gaps with them."""
        import torch
        from torch.nn.functional import pad

        if self.apart == 1:
            return packed
        parts = packed.split(self._sizes(group))
        return torch.cat([pad(part, (0, -len(part) % self.apart)) for part in parts])

    def collect(self, is_first: bool = True) -> None:
        """Add the module's gradients to the master's; those of the `is_first` replace them."""
        if self.bf16:
            if is_first:
                self.gradient.copy_(self.collected)
            else:
                self.gradient.add_(self.collected)
            self.collected.zero_()

    def clear(self) -> None:
        """Zero all gradients."""
        self.gradient.zero_()
        self.collected.zero_()

    def spread(self) -> None:
        """Copy the updated master to the module, and zero the gradients that add up."""
        if self.bf16:
            self.computed.copy_(self.master)
        else:
            self.gradient.zero_()

    def load(self, packed: Any) -> None:
        """Copy another master, without gaps, into the weights."""
        self.master.copy_(self.spaced(packed))
        self.spread()

    def copied(self) -> Any:
        """Return a copy of the module as after `release`; training can continue."""
        module = deepcopy(self.module)
        self.release(module)
        return module

    def release(self, module: Any = None) -> None:
        """Give the module, or a copy of it, fp32 parameters of its own, equal to the master.

        Frozen parameters and buffers that training did not change get their unrounded values back.
        """
        import torch

        module = (self.module if module is None else module).float()
        named = dict(module.named_parameters())
        with torch.no_grad():
            for name, tensor in self._others(module).items():
                whole = self.whole.get(name)
                if whole is not None and torch.equal(tensor, whole.bfloat16().to(whole.dtype)):
                    tensor.copy_(whole)
            for name, value in zip(self.names, self._parts(self.master), strict=True):
                named[name].data = value.view_as(named[name]).clone()
                named[name].grad = None
