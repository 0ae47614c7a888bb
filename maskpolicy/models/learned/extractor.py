"""The network of learned policies: a BiLSTM that scores the start and end of spans to mask."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor, nn

from maskpolicy.core import hardware

_LAYERS = 2
_WEIGHTS, _ABOUT = "extractor.safetensors", "extractor.json"


class Extractor(nn.Module):
    """Score every token as the first and as the last token of a span to mask.

    Two layers of a bidirectional LSTM over frozen token embeddings, and two linear heads (Ye et
    al. 2021, section 3). The scores of a text do not depend on padding.
    """

    embeddings: Tensor

    def __init__(self, embeddings: Tensor, hidden: int, dropout: float) -> None:
        """Round `embeddings`, the model's input embeddings (vocabulary, width), to bf16."""
        super().__init__()
        self.hidden, self.share = hidden, dropout
        self.register_buffer("embeddings", embeddings.detach().bfloat16().float())
        width = embeddings.shape[1]
        widths = [width] + [2 * hidden] * (_LAYERS - 1)
        self.norm = nn.LayerNorm(width)
        self.right = nn.ModuleList(nn.LSTM(w, hidden, batch_first=True) for w in widths)
        self.left = nn.ModuleList(nn.LSTM(w, hidden, batch_first=True) for w in widths)
        self.dropout = nn.Dropout(dropout)
        self.heads = nn.Linear(2 * hidden, 2)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return start and end logits (b, t, 2) of `tokens` (b, t) with `lengths` (b,).

        Logits beyond each text's length are undefined.
        """
        places = torch.arange(tokens.shape[1], device=tokens.device)
        mirror = lengths[:, None] - 1 - places
        mirror = torch.where(mirror < 0, places, mirror)[..., None]  # reverses texts, not padding
        states = self.norm(self.embeddings[tokens])
        for right, left in zip(self.right, self.left, strict=True):
            states = self.dropout(states)
            turned = left(_taken(states, mirror))[0]
            states = torch.cat([right(states)[0], _taken(turned, mirror)], dim=-1)
        return self.heads(self.dropout(states))

    def save(self, folder: Path) -> None:
        """Write the weights, including the embeddings, and the settings to `folder`."""
        from safetensors.torch import save_file

        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        tensors["embeddings"] = tensors["embeddings"].bfloat16()  # exact: already rounded
        save_file(tensors, folder / _WEIGHTS)
        about = {"hidden": self.hidden, "dropout": self.share}
        (folder / _ABOUT).write_text(json.dumps(about), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Extractor:
        """Load an extractor that `save` wrote, in evaluation mode."""
        from safetensors.torch import load_file

        about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        tensors = load_file(folder / _WEIGHTS)
        with torch.random.fork_rng(devices=[]):
            made = cls(tensors["embeddings"], **about)
        made.load_state_dict(tensors)
        return made.eval()


def loaded(folder: Path) -> Extractor:
    """Return a saved extractor on the device; it is loaded once for many calls."""
    return _loaded(folder, (folder / _WEIGHTS).stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _loaded(folder: Path, written: int) -> Extractor:
    return Extractor.load(folder).to(hardware.device())


def _taken(states: Tensor, places: Tensor) -> Tensor:
    return states.gather(1, places.expand(-1, -1, states.shape[-1]))


def build(embeddings: Tensor, seed: int, hidden: int = 128, dropout: float = 0.1) -> Extractor:
    """Return a new extractor with weights drawn from `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Extractor(embeddings, hidden, dropout)


@dataclass(frozen=True, eq=False)
class Texts:
    """Arrays of b texts with t tokens, w words and g gold spans."""

    tokens: Tensor  # (b, t) ids, 0 at padding
    lengths: Tensor  # (b,)
    words: Tensor  # (b, w, 2) first and last token of each word, 0 at padding
    counts: Tensor  # (b,) number of words
    gold: Tensor  # (b, g, 2) first word and number of further words, -1 at padding

    def to(self, device: torch.device) -> Texts:
        """Return the texts on another device."""
        return Texts(**{name: tensor.to(device) for name, tensor in vars(self).items()})


def span_scores(logits: Tensor, texts: Texts, max_words: int) -> Tensor:
    """Return scores (b, w, m) of all spans of up to m = `max_words` words; -inf outside the text.

    [:, i, j] scores the span from word i to word i + j: the start logit of its first token plus the
    end logit of its last.
    """
    starts = logits[..., 0].gather(1, texts.words[..., 0])
    ends = logits[..., 1].gather(1, texts.words[..., 1])
    places = torch.arange(texts.words.shape[1], device=logits.device)
    outside = places >= texts.counts[:, None]
    starts = starts.masked_fill(outside, -torch.inf)
    ends = ends.masked_fill(outside, -torch.inf)
    ends = nn.functional.pad(ends, (0, max_words - 1), value=-torch.inf)
    return starts[..., None] + ends.unfold(1, max_words, 1)


def best(scores: Tensor, k: int, overlap: bool = False) -> tuple[Tensor, Tensor]:
    """Return the k best spans of `scores` (b, w, m), best first; disjoint unless `overlap`.

    Returns spans (b, k, 2), first word and number of further words, and scores (b, k); -inf if a
    text has fewer than k spans.
    """
    words, extent = scores.shape[1:]
    if overlap:
        ordered, places = scores.flatten(1).sort(dim=1, descending=True, stable=True)
        places = places[:, :k]
        return torch.stack([places // extent, places % extent], dim=2), ordered[:, :k]
    left = scores.clone()
    first = torch.arange(words, device=left.device)[:, None]
    last = first + torch.arange(extent, device=left.device)
    spans, values = [], []
    for _ in range(k):
        value, place = left.flatten(1).max(dim=1)
        begin, more = place // extent, place % extent
        spans.append(torch.stack([begin, more], dim=1))
        values.append(value)
        end = begin + more
        taken = (first <= end[:, None, None]) & (last >= begin[:, None, None])
        left.masked_fill_(taken, -torch.inf)
    return torch.stack(spans, dim=1), torch.stack(values, dim=1)


def loss(max_words: int) -> Callable[[Extractor, Texts], tuple[Tensor, int]]:
    """Return the loss over spans: the negative log-probability of the gold spans.

    The probabilities are a softmax over all spans of up to `max_words` words. If an answer occurs
    several times, the probabilities of its occurrences are summed.
    """

    def sums(module: Extractor, texts: Texts) -> tuple[Tensor, int]:
        scores = span_scores(module(texts.tokens, texts.lengths).float(), texts, max_words)
        first, more = texts.gold.clamp(min=0).unbind(-1)
        rows = torch.arange(len(first), device=first.device)[:, None]
        gold = scores[rows, first, more].masked_fill(texts.gold[..., 0] < 0, -torch.inf)
        return (scores.flatten(1).logsumexp(1) - gold.logsumexp(1)).sum(), len(gold)

    return sums


def start_end_loss(module: Extractor, texts: Texts) -> tuple[Tensor, int]:
    """Return the summed start-end loss, and the number of texts (Ye et al. 2021, section 3).

    The loss is the sum of two negative log-probabilities, of the first and of the last tokens of
    the gold spans, each by a softmax over all tokens of a text. If an answer occurs several times,
    the probabilities of its first tokens are summed, and likewise of its last tokens.
    """
    logits = module(texts.tokens, texts.lengths).float()
    outside = torch.arange(logits.shape[1], device=logits.device) >= texts.lengths[:, None]
    logits = logits.masked_fill(outside[..., None], -torch.inf)
    rows, _ = there = (texts.gold[..., 0] >= 0).nonzero(as_tuple=True)
    first, more = texts.gold[there].unbind(-1)
    wanted = torch.zeros_like(logits, dtype=torch.bool)
    wanted[rows, texts.words[rows, first, 0], 0] = True
    wanted[rows, texts.words[rows, first + more, 1], 1] = True
    gold = logits.masked_fill(~wanted, -torch.inf)
    return (logits.logsumexp(1) - gold.logsumexp(1)).sum(), len(logits)
