"""The backend `higher`: the library of Grefenstette et al. 2019, extended by AdamW."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maskpolicy.errors import ConfigError
from maskpolicy.learned.innerloop.lesson import BETAS, DECAY, EPS, Inner, Lesson

if TYPE_CHECKING:
    import torch

_MOST_PATCHED = 1000  # classes of `higher` above which garbage is collected


def outer(
    rows: Any, lesson: Lesson, w: torch.Tensor, inner: Inner, differentiate: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the outer loss and its derivative in w (or None) by double backward with `higher`.

    The authors of Ye et al. 2021 use it too. Raises ConfigError if candidates exclude masks.
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

    They hold no weights but refer to themselves, and Python visits all of them for each new class.
    Its garbage collector runs rarely in a process with many objects, so time and memory would grow.
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
