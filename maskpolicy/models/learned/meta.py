"""The loss of an episode: how well a model answers a question after learning what a policy masked.

Ye et al. 2021, Figure 2: (a) mask a span of the context with the current policy and take a step on
that masked-LM loss; (b) take a step on (q, a). The loss on (q, a) after both steps trains the
policy. Losses are relaxed, not texts: the policy scores K candidate spans, each is masked as usual
and has its own loss L_k, and step (a) is on sum_k w_k L_k with w a Gumbel-softmax of the scores.
The shared loop (maskpolicy.models.training) trains the policy; its units are episodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from maskpolicy.core.errors import StageError
from maskpolicy.core.types import Denoising, Passage, Spans
from maskpolicy.experiment.budgets import Training
from maskpolicy.masking.denoising import denoising_pairs
from maskpolicy.models.learned.episodes import Episode, Episodes
from maskpolicy.models.learned.innerloop import Inner, Lesson, backend
from maskpolicy.models.training.batching import Batch, collate
from maskpolicy.models.training.specials import Specials

if TYPE_CHECKING:
    import torch

Score: TypeAlias = "Callable[[Any, Sequence[Passage], int], list[tuple[Spans, torch.Tensor]]]"
"""(policy network, passages, k) -> per passage, n <= k candidates (n, 2) and their scores (n,)."""


@dataclass(frozen=True, eq=False)
class EpisodeLoss:
    """loss(policy network, episodes) -> (sum of outer losses, episodes), for the training loop."""

    model: Any  # in evaluation mode, with eager attention; never modified
    score: Score
    denoising: Denoising
    episode: Episode
    inner: Inner
    backend: str
    specials: Specials
    spec: Training

    def __call__(self, module: Any, episodes: Episodes) -> tuple[torch.Tensor, int]:
        """Raise StageError with the example if scores or the outer loss are not finite."""
        import torch

        scored = self.score(module, episodes.passages, self.episode.candidates)
        spans = [spans for spans, _ in scored]
        self._check_scored(spans, episodes)
        w = torch.cat([self._weights(*one, i, episodes) for i, one in enumerate(scored)])
        candidates = self._candidates(episodes, spans).to(w.device)
        lesson = Lesson(candidates, episodes.support, episodes.query)
        count = len(episodes.passages)
        outer = backend(self.backend)(self.model, lesson, w / count, self.inner)
        if not math.isfinite(outer.item()):
            raise StageError(
                f"the outer loss of example {episodes.ids[0]!r} became {outer.item()} "
                f"{_moment(episodes)}: lower inner.lr (now {self.inner.lr}) or inner.query_lr (now "
                f"{self.inner.query_lr})"
            )
        return outer * count, count

    def _check_scored(self, spans: Sequence[Spans], episodes: Episodes) -> None:
        """Raise StageError for a passage without candidates: it has words, but NaN scores."""
        for name, candidates in zip(episodes.ids, spans, strict=True):
            if not len(candidates):
                raise StageError(
                    f"the policy's scores of example {name!r} became nan {_moment(episodes)}: "
                    f"lower outer.lr (now {self.spec.lr})"
                )

    def _weights(
        self, spans: Spans, scores: torch.Tensor, index: int, episodes: Episodes
    ) -> torch.Tensor:
        if episodes.noise is None:
            return relaxed(scores.detach(), 0.0, 1.0, hard=True)
        noise = episodes.noise[index].to(scores.dtype)
        if self.episode.draw == "start-end":  # as scores are: that of the first plus of the last
            noise = noise[0, spans[:, 0]] + noise[1, spans[:, 1] - 1]
        return relaxed(scores, noise[: len(scores)], episodes.temperature, self.episode.hard)

    def _candidates(self, episodes: Episodes, spans: Sequence[Spans]) -> Batch:
        """Mask every candidate of every passage as in pre-training, one row per candidate."""
        owners = [p for p, own in zip(episodes.passages, spans, strict=True) for _ in own]
        single = [own[i : i + 1] for own in spans for i in range(len(own))]
        steps = [episodes.step] * len(single)
        seed, specials = self.spec.seed, self.specials
        written = denoising_pairs(owners, single, self.denoising, specials, seed, steps)
        return collate(specials.pairs(written, self.spec), specials.pad, specials.start)


def _moment(episodes: Episodes) -> str:
    return "on dev" if episodes.noise is None else f"in outer step {episodes.step + 1}"


def relaxed(
    scores: torch.Tensor, noise: torch.Tensor | float, temperature: float, hard: bool
) -> torch.Tensor:
    """Return the Gumbel-softmax of `scores` (n,); `hard`: one-hot, with the soft one's gradient.

    Maddison et al. 2017; Jang et al. 2017, section 2.2 (straight-through).
    """
    soft = ((scores + noise) / temperature).softmax(-1)
    if not hard:
        return soft
    chosen = soft.new_zeros(len(soft)).index_fill(0, soft.argmax().reshape(1), 1.0)
    return chosen + (soft - soft.detach())


def mean_outer_loss(loss: EpisodeLoss, module: Any, episodes: Sequence[Episodes]) -> float:
    """Return the mean outer loss per episode over groups of `episodes` without noise."""
    device = next(module.parameters()).device
    module.eval()
    values, counts = zip(*(loss(module, group.to(device)) for group in episodes), strict=True)
    return float(sum(value.item() for value in values) / sum(counts))
