"""Inner steps of a text-to-text model, and the exact gradient through them: two back ends.

An inner loop starts from the model's weights t_0. `steps` times it steps on sum_k w_k L_k, L_k
being the mean loss of the k-th row of `candidates`; then `query_steps` times on that of `query`.
The outer loss is the mean loss of `held` at the weights reached. What is wanted is its derivative
with respect to w; how w came about is the caller's. Nothing of the model changes, and no graph
outlives a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from maskpolicy.errors import ConfigError, unknown
from maskpolicy.learned.innerloop import functional, higher
from maskpolicy.learned.innerloop.lesson import Inner, Lesson
from maskpolicy.models.seq2seq import row_losses
from maskpolicy.training.batching import Batch

if TYPE_CHECKING:
    import torch

__all__ = ["BACKENDS", "Inner", "Lesson", "backend"]

BACKENDS: Mapping[str, Callable[..., tuple[torch.Tensor, torch.Tensor | None]]] = {
    "functional": functional.outer,
    "higher": higher.outer,
}
"""(rows, lesson, w, inner, differentiate) -> the outer loss and, if asked, its derivative in w.

`rows` is a module that gives the loss of each row of a batch, (b,); w and its derivative are (r,).
"""


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
