"""Inner steps of a text-to-text model, and the exact gradient through them, in two backends.

An inner loop starts at the model's weights t_0. It takes `steps` steps on sum_k w_k L_k, where L_k
is the mean loss of row k of `candidates`, then `query_steps` steps on the mean loss of `support`
(together MAML's support set). The outer loss is the mean loss of `query` at the final weights. A
backend computes its derivative with respect to w; the caller chooses w. The model does not change,
and no graph outlives a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from maskpolicy.errors import ConfigError, unknown
from maskpolicy.learned.innerloop import functional, higher
from maskpolicy.learned.innerloop.lesson import Inner, Lesson
from maskpolicy.models.text_to_text_loss import row_losses
from maskpolicy.training.batching import Batch

if TYPE_CHECKING:
    import torch

__all__ = ["BACKENDS", "Inner", "Lesson", "backend"]

BACKENDS: Mapping[str, Callable[..., tuple[torch.Tensor, torch.Tensor | None]]] = {
    "functional": functional.outer,
    "higher": higher.outer,
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
