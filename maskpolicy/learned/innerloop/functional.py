"""The backend `functional`: SGD's gradient by forward mode, Adam's by double backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from maskpolicy.learned.innerloop.lesson import BETAS, DECAY, EPS, Inner, Lesson
from maskpolicy.training.batching import Batch

if TYPE_CHECKING:
    import torch

Tensors: TypeAlias = "list[torch.Tensor]"
Loss: TypeAlias = "Callable[[Tensors], torch.Tensor]"
"""Maps a model's parameters, in order, to a scalar loss."""


def outer(
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

    def losses(weights: Sequence[torch.Tensor], batch: Batch) -> torch.Tensor:
        named = dict(zip(names, weights, strict=True))
        found: torch.Tensor = functional_call(rows, named, (batch,))
        return found

    if inner.optimizer == "sgd":
        return _exact(losses, start, lesson, w, inner, differentiate)
    return _unrolled(losses, start, lesson, w, inner, differentiate)


def _exact(
    losses: Any, start: Tensors, lesson: Lesson, w: torch.Tensor, inner: Inner, differentiate: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The inner loop with SGD; see `outer`."""
    import torch
    from torch.func import jvp

    used = w != 0  # candidates of weight 0 do not contribute to the step
    given: dict[str, Any] = vars(lesson.candidates)
    rows: dict[str, Any] = {name: v if v is None else v[used] for name, v in given.items()}
    chosen = Batch(**rows)

    def of_masked(weights: Tensors) -> torch.Tensor:
        loss: torch.Tensor = w[used] @ losses(weights, chosen)
        return loss

    def of_support(weights: Tensors) -> torch.Tensor:
        loss: torch.Tensor = losses(weights, lesson.support).mean()
        return loss

    # no gradient is pulled back through the first step
    curved = [differentiate and number > 0 for number in range(inner.steps)]
    masked = _descents(of_masked, start, inner.lr, curved)
    curved = [differentiate] * inner.query_steps
    support = _descents(of_support, masked[-1].after, inner.query_lr, curved)
    at = support[-1].after
    value = losses(at, lesson.query).mean()
    if not differentiate:
        return value.detach(), None
    v = list(torch.autograd.grad(value, at, materialize_grads=True))
    for step in reversed(support):
        v = step.pull(v)
    gradient = torch.zeros_like(w)
    for number, step in reversed(list(enumerate(masked))):
        before = tuple(t.detach() for t in step.at)
        along = jvp(lambda *t: losses(t, lesson.candidates), before, tuple(v))[1]
        gradient -= inner.lr * along.to(w.dtype)
        v = step.pull(v) if number else v
    return value.detach(), gradient


class _Descent:
    """One SGD step from the weights `at` to `after`; `pull` takes a gradient back through it."""

    def __init__(self, loss: Loss, at: Tensors, lr: float, curved: bool) -> None:
        import torch

        self.at, self.lr = at, lr
        gradient = torch.autograd.grad(loss(at), at, create_graph=curved, materialize_grads=True)
        self.gradient = gradient if curved else ()
        pairs = zip(at, gradient, strict=True)
        self.after = [(t - lr * g).detach().requires_grad_() for t, g in pairs]

    def pull(self, v: Tensors) -> Tensors:
        """Return v - lr H v, with H the Hessian of the loss before the step; call it only once."""
        import torch

        parts = [(g * u).sum() for g, u in zip(self.gradient, v, strict=True)]
        product = torch.stack(parts).sum()
        turned = torch.autograd.grad(product, self.at, materialize_grads=True)
        return [u - self.lr * h for u, h in zip(v, turned, strict=True)]


def _descents(loss: Loss, at: Tensors, lr: float, curved: Sequence[bool]) -> list[_Descent]:
    """Return consecutive steps from the weights `at`; `curved` marks the steps to pull through."""
    steps: list[_Descent] = []
    for each in curved:
        steps.append(_Descent(loss, at, lr, each))
        at = steps[-1].after
    return steps


def _unrolled(
    losses: Any, start: Tensors, lesson: Lesson, w: torch.Tensor, inner: Inner, differentiate: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The inner loop with Adam, by double backward."""
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
