"""Inner steps of a text-to-text model, and the exact gradient through them, in two backends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from maskpolicy.core.errors import ConfigError, unknown
from maskpolicy.core.schema import Count, Positive
from maskpolicy.models.text_to_text import row_losses
from maskpolicy.models.training.batching import Batch

if TYPE_CHECKING:
    import torch

BETAS, EPS, DECAY = (0.9, 0.999), 1e-8, 0.01  # PyTorch's defaults; DECAY: only AdamW


@dataclass(frozen=True)
class Inner:
    """Settings of the inner loop of an episode.

    `query_lr` and `query_steps` are for the question, which belongs to MAML's support set.
    """

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"  # its state is reset for each episode
    lr: Positive = 0.01  # learning rate of the steps on the masked passage
    query_lr: Positive = 0.01  # learning rate of the steps on the question
    steps: Count = 1  # number of steps on the masked passage
    query_steps: Count = 1  # number of steps on the question


@dataclass(frozen=True, eq=False)
class Lesson:
    """The batches of one set of fast weights: two for the inner steps, one for the outer loss.

    The names are MAML's (Finn et al. 2017), whose support set is `candidates` and `support`.
    """

    candidates: Batch  # (r, ..) one row per masked candidate
    support: Batch  # the questions of the inner steps
    query: Batch  # the questions of the outer loss


Tensors: TypeAlias = "list[torch.Tensor]"
Loss: TypeAlias = "Callable[[Tensors], torch.Tensor]"
"""Maps a model's parameters, in order, to a scalar loss."""


def _functional(
    rows: Any, lesson: Lesson, w: torch.Tensor, inner: Inner, differentiate: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the outer loss and its derivative in w (or None), with torch.func.functional_call.

    SGD needs no double backward through the candidates. w enters the masked steps linearly, so
    d outer / d w_k = -lr sum_i <v_i+1, grad L_k(t_i)> with v_i = d outer / d t_i. This is one
    forward-mode product over all candidates per step. v_i = v_i+1 - lr H_i v_i+1 takes one
    Hessian-vector product of the step's loss, which has a single candidate if w is one-hot. Adam
    and AdamW use double backward through all steps.
    """
    from torch.func import functional_call

    names = [name for name, _ in rows.named_parameters()]
    start = [p.detach().requires_grad_() for p in rows.parameters()]

    def losses(weights: Sequence[torch.Tensor], batch: Batch) -> Any:
        return functional_call(rows, dict(zip(names, weights, strict=True)), (batch,))

    compute = _exact if inner.optimizer == "sgd" else _unrolled
    return compute(losses, start, lesson, w, inner, differentiate)


def _exact(
    losses: Any, start: Tensors, lesson: Lesson, w: torch.Tensor, inner: Inner, differentiate: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    import torch
    from torch.func import jvp

    used = w != 0  # candidates of weight 0 do not contribute to the step
    parts = (getattr(lesson.candidates, field.name) for field in fields(Batch))
    rows: Any = (p[used] if isinstance(p, torch.Tensor) else p for p in parts)
    chosen = Batch(*rows)
    stages: list[tuple[Loss, float]] = [
        *[(lambda t: w[used] @ losses(t, chosen), inner.lr)] * inner.steps,
        *[(lambda t: losses(t, lesson.support).mean(), inner.query_lr)] * inner.query_steps,
    ]
    steps: list[tuple[Tensors, float, Tensors]] = []
    at = start
    for loss, lr in stages:
        is_taken_back = differentiate and bool(steps)  # no gradient goes back through the first
        slopes = torch.autograd.grad(
            loss(at), at, create_graph=is_taken_back, materialize_grads=True
        )
        steps.append((at, lr, list(slopes) if is_taken_back else []))
        at = [(t - lr * g).detach().requires_grad_() for t, g in zip(at, slopes, strict=True)]
    value = losses(at, lesson.query).mean()
    if not differentiate:
        return value.detach(), None
    v = list(torch.autograd.grad(value, at, materialize_grads=True))
    gradient = torch.zeros_like(w)
    for number, (at, lr, taken) in reversed(list(enumerate(steps))):
        if number < inner.steps:
            before = tuple(t.detach() for t in at)
            along = jvp(lambda *t: losses(t, lesson.candidates), before, tuple(v))[1]
            gradient -= inner.lr * along.to(w.dtype)
        if number:  # v - lr H v, H the Hessian of the step's loss
            product = torch.stack([(g * u).sum() for g, u in zip(taken, v, strict=True)]).sum()
            turned = torch.autograd.grad(product, at, materialize_grads=True)
            v = [u - lr * h for u, h in zip(v, turned, strict=True)]
    return value.detach(), gradient


def _unrolled(
    losses: Any, start: Tensors, lesson: Lesson, w: torch.Tensor, inner: Inner, differentiate: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    import torch

    w = w.clone().requires_grad_(differentiate)
    weights, adam = start, _Adam(DECAY if inner.optimizer == "adamw" else 0.0)
    stages: list[tuple[Loss, float, int]] = [
        (lambda t: w @ losses(t, lesson.candidates), inner.lr, inner.steps),
        (lambda t: losses(t, lesson.support).mean(), inner.query_lr, inner.query_steps),
    ]
    for loss, lr, count in stages:
        for _ in range(count):
            gradients = torch.autograd.grad(
                loss(weights), weights, create_graph=differentiate, materialize_grads=True
            )
            weights = adam.step(weights, gradients, lr)
            if not differentiate:
                weights = [t.detach().requires_grad_() for t in weights]
    value = losses(weights, lesson.query).mean()
    return value.detach(), torch.autograd.grad(value, w)[0] if differentiate else None


class _Adam:
    """Adam and AdamW as differentiable functions of the weights."""

    def __init__(self, decay: float) -> None:
        self.decay, self.count = decay, 0
        self.first: Tensors = []
        self.second: Tensors = []

    def step(self, weights: Tensors, gradients: Sequence[torch.Tensor], lr: float) -> Tensors:
        """Return the weights after one step."""
        import torch

        self.count += 1
        b1, b2 = BETAS
        first = self.first or [torch.zeros_like(g) for g in gradients]
        second = self.second or [torch.zeros_like(g) for g in gradients]
        self.first = [m * b1 + (1 - b1) * g for m, g in zip(first, gradients, strict=True)]
        self.second = [s * b2 + (1 - b2) * g * g for s, g in zip(second, gradients, strict=True)]
        rate = lr * (1 - b2**self.count) ** 0.5 / (1 - b1**self.count)
        return [
            t * (1 - lr * self.decay) - rate * m / (_root(s) + EPS)
            for t, m, s in zip(weights, self.first, self.second, strict=True)
        ]


def _root(x: torch.Tensor) -> torch.Tensor:
    """Return the square root, with derivative 0 at 0."""
    import torch

    zero = x == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, x).sqrt())


_MOST_PATCHED = 1000  # classes of `higher` above which garbage is collected


def _higher(
    rows: Any, lesson: Lesson, w: torch.Tensor, inner: Inner, differentiate: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the outer loss and its derivative in w (or None) by double backward with `higher`.

    Ye et al. 2021 use this library. Raises ConfigError if candidates exclude masks.
    """
    import higher
    import torch

    if lesson.candidates.excluded is not None:
        raise ConfigError("backend higher: cannot exclude masks (mask_exclusion): use functional")
    w = w.clone().requires_grad_(differentiate)
    optimizer = _optimizer(rows, inner)
    _forget_patches()
    context = higher.innerloop_ctx(rows, optimizer, track_higher_grads=differentiate)
    with context as (fast, optimize):
        for _ in range(inner.steps):
            optimize.step(w @ fast(lesson.candidates), override={"lr": [inner.lr]})
        for _ in range(inner.query_steps):
            optimize.step(fast(lesson.support).mean(), override={"lr": [inner.query_lr]})
        value = fast(lesson.query).mean()
        gradient = torch.autograd.grad(value, w)[0] if differentiate else None
    return value.detach(), gradient


def _forget_patches() -> None:
    """Free the classes that `higher` created in earlier episodes, one for each module of a model.

    They refer to themselves, and Python visits all of them for each new class. The garbage
    collector rarely runs in a process with many objects, so time and memory would grow.
    """
    import gc

    from higher.patch import _MonkeyPatchBase

    if len(_MonkeyPatchBase.__subclasses__()) > _MOST_PATCHED:
        gc.collect()


def _optimizer(rows: Any, inner: Inner) -> Any:
    import torch

    if inner.optimizer == "sgd":
        return torch.optim.SGD(rows.parameters(), lr=inner.lr)
    if inner.optimizer == "adam":
        return torch.optim.Adam(rows.parameters(), lr=inner.lr, betas=BETAS, eps=EPS)
    _register_adamw()
    settings: dict[str, Any] = {"betas": BETAS, "eps": EPS, "weight_decay": DECAY}
    return torch.optim.AdamW(rows.parameters(), lr=inner.lr, **settings)


def _register_adamw() -> None:
    """Register AdamW, which `higher` lacks: Adam after decoupled weight decay."""
    import torch
    from higher.optim import DifferentiableAdam, register_optim

    class DifferentiableAdamW(DifferentiableAdam):
        def _update(self, grouped_grads: Any, **kwargs: Any) -> None:
            decays = [group["weight_decay"] for group in self.param_groups]
            for group, decay in zip(self.param_groups, decays, strict=True):
                group["params"] = [p * (1 - group["lr"] * decay) for p in group["params"]]
                group["weight_decay"] = 0
            super()._update(grouped_grads, **kwargs)
            for group, decay in zip(self.param_groups, decays, strict=True):
                group["weight_decay"] = decay

    register_optim(torch.optim.AdamW, DifferentiableAdamW)


__all__ = ["BACKENDS", "Inner", "Lesson", "backend"]

BACKENDS: Mapping[str, Callable[..., tuple[torch.Tensor, torch.Tensor | None]]] = {
    "functional": _functional,
    "higher": _higher,
}
"""(rows, lesson, w, inner, differentiate) -> the outer loss and its derivative in w, or None.

`rows` is a module that returns the loss of each row of a batch, (b,); w and its derivative are
(r,).
"""


def backend(name: str) -> Callable[[Any, Lesson, torch.Tensor, Inner], torch.Tensor]:
    """Return (model, lesson, w, inner) -> outer loss, a scalar whose backward reaches w (r,).

    `functional` and `higher` return the same. The model should be in evaluation mode and needs
    eager attention. If w requires no gradient, only the value is computed. Raises ConfigError, with
    the choices, for any other name.
    """
    if name not in BACKENDS:
        raise ConfigError(unknown("backend", name, BACKENDS))

    def outer(model: Any, lesson: Lesson, w: torch.Tensor, inner: Inner) -> torch.Tensor:
        value, gradient = BACKENDS[name](_rows(model), lesson, w.detach(), inner, w.requires_grad)
        # equals `value` exactly and has the derivative `gradient`; their own graph is freed
        return value if gradient is None else value + (gradient * (w - w.detach())).sum()

    return outer


def _rows(model: Any) -> Any:
    """Return a module whose forward returns the loss of each row of a batch, (b,)."""
    import torch

    class Rows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, batch: Batch) -> torch.Tensor:
            return row_losses(self.model, batch)

    return Rows().train(model.training)
