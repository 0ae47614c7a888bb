"""Inner steps of a text-to-text model, and the exact gradient through them: two back ends.

An inner loop starts from the model's weights t_0. `steps` times it steps on sum_k w_k L_k, L_k
being the mean loss of the k-th row of `candidates`; then `query_steps` times on that of `query`.
The outer loss is the mean loss of `held` at the weights reached. What is wanted is its derivative
with respect to w; how w came about is the caller's. Nothing of the model changes, and no graph
outlives a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from maskpolicy.batching import Batch
from maskpolicy.errors import ConfigError, unknown
from maskpolicy.model import row_losses
from maskpolicy.schema import Count, Positive

if TYPE_CHECKING:
    import torch

Tensors: TypeAlias = "list[torch.Tensor]"
Loss: TypeAlias = "Callable[[Tensors], torch.Tensor]"
"""From a model's parameters, in their order, to a scalar."""

BETAS, EPS, DECAY = (0.9, 0.999), 1e-8, 0.01  # PyTorch's defaults; decay: of AdamW alone

_MOST_PATCHED = 1000  # classes of `higher` that wait to be freed


@dataclass(frozen=True)
class Inner:
    """The inner loop of an episode; its optimizer starts afresh in every episode."""

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"  # its state starts afresh in each episode
    lr: Positive = 0.01  # of the steps on the masked passage
    query_lr: Positive = 0.01  # of the steps on the query
    steps: Count = 1  # on the masked passage
    query_steps: Count = 1  # on the query


@dataclass(frozen=True, eq=False)
class Lesson:
    """What one set of fast weights learns from, and what it is examined on."""

    candidates: Batch  # (r, ..) one row for each candidate
    query: Batch
    held: Batch


def backend(name: str) -> Callable[[Any, Lesson, torch.Tensor, Inner], torch.Tensor]:
    """Return (model, lesson, w, inner) -> outer loss, a scalar whose backward reaches w, (r,).

    `functional` and `higher` give the same; the model should be in evaluation mode and needs eager
    attention. Where w asks for no gradient, only the value is computed. Raises ConfigError for
    another name, naming the choices.
    """
    if name not in BACKENDS:
        raise ConfigError(unknown("backend", name, BACKENDS))

    def outer(model: Any, lesson: Lesson, w: torch.Tensor, inner: Inner) -> torch.Tensor:
        value, gradient = BACKENDS[name](_rows(model), lesson, w.detach(), inner, w.requires_grad)
        # its value is `value` exactly, its derivative `gradient`: the graph behind them is gone
        return value if gradient is None else value + (gradient * (w - w.detach())).sum()

    return outer


def _rows(model: Any) -> Any:
    """Return a module whose forward gives the loss of each row of a batch, (b,)."""
    import torch

    class Rows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, batch: Batch) -> torch.Tensor:
            return row_losses(self.model, batch)

    return Rows().train(model.training)


def _functional(
    rows: Any, lesson: Lesson, w: torch.Tensor, inner: Inner, differentiate: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Through torch.func.functional_call.

    With SGD, backward over the steps without a double backward through the candidates: w enters the
    masked steps linearly, so d outer / d w_k = -lr sum_i <v_i+1, grad L_k(t_i)>, one forward-mode
    product over all candidates for each step, where v_i = d outer / d t_i and v_i = v_i+1 - lr
    H_i v_i+1 takes one Hessian-vector product of the stepped loss alone: of a single candidate,
    where w is one-hot. With Adam and AdamW, double backward through everything.
    """
    from torch.func import functional_call

    names = [name for name, _ in rows.named_parameters()]
    start = [p.detach().requires_grad_() for p in rows.parameters()]

    def losses(weights: Sequence[torch.Tensor], batch: Batch) -> torch.Tensor:
        return functional_call(rows, dict(zip(names, weights, strict=True)), (batch,))

    if inner.optimizer == "sgd":
        return _exact(losses, start, lesson, w, inner, differentiate)
    return _unrolled(losses, start, lesson, w, inner, differentiate)


def _exact(
    losses: Any, start: Tensors, lesson: Lesson, w: torch.Tensor, inner: Inner, differentiate: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The inner loop with SGD; see `_functional`."""
    import torch
    from torch.func import jvp

    used = w != 0  # one-hot weights: the others add nothing to the step
    given: dict[str, Any] = vars(lesson.candidates)
    rows: dict[str, Any] = {name: v if v is None else v[used] for name, v in given.items()}
    chosen = Batch(**rows)

    def of_masked(weights: Tensors) -> torch.Tensor:
        return w[used] @ losses(weights, chosen)

    def of_query(weights: Tensors) -> torch.Tensor:
        return losses(weights, lesson.query).mean()

    # nothing is pulled back through the first step
    curved = [differentiate and number > 0 for number in range(inner.steps)]
    masked = _descents(of_masked, start, inner.lr, curved)
    curved = [differentiate] * inner.query_steps
    query = _descents(of_query, masked[-1].after, inner.query_lr, curved)
    at = query[-1].after
    value = losses(at, lesson.held).mean()
    if not differentiate:
        return value.detach(), None
    v = list(torch.autograd.grad(value, at, materialize_grads=True))
    for step in reversed(query):
        v = step.pull(v)
    gradient = torch.zeros_like(w)
    for number, step in reversed(list(enumerate(masked))):
        before = tuple(t.detach() for t in step.at)
        along = jvp(lambda *t: losses(t, lesson.candidates), before, tuple(v))[1]
        gradient -= inner.lr * along.to(w.dtype)
        v = step.pull(v) if number else v
    return value.detach(), gradient


class _Descent:
    """One SGD step from the weights `at` to `after`, and what pulls a gradient back through it."""

    def __init__(self, loss: Loss, at: Tensors, lr: float, curved: bool) -> None:
        import torch

        self.at, self.lr = at, lr
        gradient = torch.autograd.grad(loss(at), at, create_graph=curved, materialize_grads=True)
        self.gradient = gradient if curved else ()
        pairs = zip(at, gradient, strict=True)
        self.after = [(t - lr * g).detach().requires_grad_() for t, g in pairs]

    def pull(self, v: Tensors) -> Tensors:
        """Return v - lr H v, H being the Hessian of the loss before the step; once only."""
        import torch

        parts = [(g * u).sum() for g, u in zip(self.gradient, v, strict=True)]
        product = torch.stack(parts).sum()
        turned = torch.autograd.grad(product, self.at, materialize_grads=True)
        return [u - self.lr * h for u, h in zip(v, turned, strict=True)]


def _descents(loss: Loss, at: Tensors, lr: float, curved: Sequence[bool]) -> list[_Descent]:
    """Return one step after the other, from the weights `at`; `curved`: what will be pulled."""
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
    stages = [
        (lambda t: w @ losses(t, lesson.candidates), inner.lr, inner.steps),
        (lambda t: losses(t, lesson.query).mean(), inner.query_lr, inner.query_steps),
    ]
    for loss, lr, count in stages:
        for _ in range(count):
            gradients = torch.autograd.grad(
                loss(weights), weights, create_graph=differentiate, materialize_grads=True
            )
            weights = adam.step(weights, gradients, lr)
            if not differentiate:
                weights = [t.detach().requires_grad_() for t in weights]
    value = losses(weights, lesson.held).mean()
    return value.detach(), torch.autograd.grad(value, w)[0] if differentiate else None


class _Adam:
    """Adam and AdamW as differentiable functions of the weights."""

    def __init__(self, decay: float) -> None:
        self.decay, self.count = decay, 0
        self.first: Tensors = []
        self.second: Tensors = []

    def step(self, weights: Tensors, gradients: Sequence[torch.Tensor], lr: float) -> Tensors:
        """Return the stepped weights."""
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
    """Return the square root, whose derivative at 0 is taken to be 0."""
    import torch

    zero = x == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, x).sqrt())


def _higher(
    rows: Any, lesson: Lesson, w: torch.Tensor, inner: Inner, differentiate: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Through `higher` (Grefenstette et al. 2019), as the paper's authors do: double backward."""
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
            optimize.step(fast(lesson.query).mean(), override={"lr": [inner.query_lr]})
        value = fast(lesson.held).mean()
        gradient = torch.autograd.grad(value, w)[0] if differentiate else None
    return value.detach(), gradient


def _forget_patches() -> None:
    """Free the classes that `higher` made in earlier episodes, one for each module of a model.

    They hold no weights, but refer to themselves, and Python asks all of them about each new one:
    left to its collector, which a process with many objects seldom runs, time and memory grow.
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
    """Tell `higher` of AdamW, which it does not know: Adam after decoupled decay."""
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


BACKENDS: Mapping[str, Callable[..., tuple[torch.Tensor, torch.Tensor | None]]] = {
    "functional": _functional,
    "higher": _higher,
}
