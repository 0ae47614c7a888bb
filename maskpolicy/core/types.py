"""Small types that all parts of maskpolicy share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.schema import Positive, Range, Share, omitted

if TYPE_CHECKING:
    from collections.abc import Iterable

Spans: TypeAlias = NDArray[np.int32]
"""(n, 2) half-open ranges, sorted, disjoint and non-empty; of tokens unless stated otherwise."""

Json: TypeAlias = Any
"""What json.dumps accepts: None, bool, int, float, str, lists and string-keyed dicts of these."""


_PAIRS = "pairs of whole numbers (first, end)"


def unwritable(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view of an array by which nobody can change it."""
    view = array.view()
    view.flags.writeable = False
    return view


def as_spans(ranges: Iterable[Sequence[int]] | NDArray[Any]) -> Spans:
    """Return `ranges` as an int32 array of shape (n, 2), (0, 2) if there are none.

    Raises ConfigError for other shapes, and for numbers that are not whole.
    """
    try:
        found = np.asarray(ranges if hasattr(ranges, "__array__") else list(ranges))  # or of pandas
    except ValueError as error:  # of different lengths
        raise ConfigError(f"as_spans: must get {_PAIRS}: {error}") from None
    if not found.size:
        return np.zeros((0, 2), np.int32)
    if found.shape[1:] != (2,) or found.dtype.kind not in "iu":
        what = f"a {found.dtype} array of shape {found.shape}"
        raise ConfigError(f"as_spans: must get {_PAIRS}, not {what}")
    return found.astype(np.int32, copy=False)


@dataclass(frozen=True, eq=False)
class Passage:
    """One passage of a corpus, tokenised without special tokens.

    Shapes: t tokens, w words, s sentences. `pieces`, `words` and `sentences` are ranges of token
    indices; `columns` holds the arrays of the corpus and of a policy's `annotate`, e.g. "entities"
    (n, 2).
    """

    id: str  # unique in the corpus; with seed and epoch it seeds the masks
    text: str
    tokens: NDArray[np.int32]  # (t,) vocabulary ids
    offsets: NDArray[np.int32]  # (t, 2) characters of text
    words: Spans  # (w, 2)
    sentences: Spans  # (s, 2)
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    language: str = "en"  # the code of the corpus's `language`

    @cached_property
    def pieces(self) -> Spans:
        """Each token as a range of its own, shape (t, 2)."""
        start = np.arange(len(self.tokens), dtype=np.int32)
        return unwritable(np.stack([start, start + 1], axis=1))

    def characters(self, units: Spans) -> list[tuple[int, int]]:
        """Return (first character, end) of each range of tokens, (n, 2), without blanks around it.

        A range of blanks alone keeps them, or has the last one if the tokenizer's offsets lack it.
        """
        starts, ends = self.offsets[units[:, 0], 0], self.offsets[units[:, 1] - 1, 1]
        found = []
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            part = self.text[start:end]
            if part.strip():
                start, end = start + len(part) - len(part.lstrip()), start + len(part.rstrip())
            elif start == end:
                start = max(0, start - 1)
            found.append((start, end))
        return found

    def texts(self, units: Spans) -> list[str]:
        """Return the text of each range of tokens, (n, 2), without the blanks around it."""
        return [self.text[a:b].strip() for a, b in self.characters(units)]

    def at(self, characters: Iterable[Sequence[int]] | NDArray[Any]) -> Spans:
        """Return the token spans of character ranges, widened to whole words.

        `characters`: (n, 2) half-open ranges of `text`, in any order. Ranges that overlap the same
        word become one span; empty ones and those that overlap no word are dropped.
        """
        ranges = as_spans(characters)
        ranges = ranges[ranges[:, 0] < ranges[:, 1]]
        if not len(ranges) or not len(self.words):
            return as_spans([])
        starts = self.offsets[self.words[:, 0], 0]
        ends = self.offsets[self.words[:, 1] - 1, 1]
        first = np.searchsorted(ends, ranges[:, 0], side="right")
        last = np.searchsorted(starts, ranges[:, 1], side="left") - 1
        spans: list[list[int]] = []
        for a, b in sorted(zip(first.tolist(), last.tolist(), strict=True)):
            if a > b:
                continue
            if spans and a <= spans[-1][1]:
                spans[-1][1] = max(spans[-1][1], b)
            else:
                spans.append([a, b])
        return as_spans([(self.words[a, 0], self.words[b, 1]) for a, b in spans])


Corruption: TypeAlias = Literal["span", "token", "delete"]
Target: TypeAlias = Literal["full", "spans"]
Join: TypeAlias = Literal["mask", "none"]
LossWeight: TypeAlias = Literal["equal", "rate", "likelihood"]


@dataclass(frozen=True)
class Replacement:
    """The shares of the masked spans by what stands in their place; they add up to 1."""

    mask: Share = 0.0  # <mask>
    random: Share = 0.0  # random tokens of the vocabulary instead of the masks
    keep: Share = 0.0  # the text itself, which is predicted all the same


@dataclass(frozen=True)
class Detection:
    """Replaced-token detection: a generator fills the masks, an encoder finds its errors."""

    generator: Annotated[float, Range(gt=0, le=1)] = 0.25  # its width, as a share of the encoder's
    weight: Positive = 50.0  # of the encoder's mean loss; the generator's has weight 1


@dataclass(frozen=True)
class Denoising:
    """The denoising objective: how masked spans appear in the source, and what the target is."""

    # one <mask> for each span, or one for each token; delete: none (BART; with target: full)
    corruption: Corruption = "span"
    target: Target = "spans"  # predict only the masked spans, or the full text
    join: Join = "mask"  # what separates the spans of a "spans" target
    permute_sentences: bool = False  # shuffle the sentences of the source (BART)
    insert: Share = 0.0  # extra masks, as a share of the masked spans (BART's zero-length spans)
    mask_exclusion: Share = 0.0  # share of <mask> tokens the encoder does not see (MAE-LM: 1.0)
    shallow_decoder: bool = False  # for encoders: use MAE-LM's decoder even if no mask is excluded
    # what stands in place of a span: {mask: 0.8, random: 0.1, keep: 0.1} in BERT; null: <mask>
    replacement: Replacement | None = omitted(None)
    # weight of a passage whose rate r is drawn with density p: rate: 1 / r, likelihood: 1 / (r p),
    # as in masked diffusion; the mean is then over all tokens of the passages
    loss_weight: LossWeight = omitted("equal")
    # for encoders, ELECTRA: {generator: 0.25, weight: 50}: a generator of this share of the width
    # fills the masks, and the encoder tells which tokens it replaced
    replaced_token_detection: Detection | None = omitted(None)


@dataclass(frozen=True)
class Example:
    """One question of a downstream task."""

    id: str
    group: str  # paragraph, document or dialogue; a group is never divided between splits
    source: str
    targets: tuple[str, ...]  # every acceptable answer; the first is trained on
    context: str | None = None  # the paragraph c of (s, t), or the second text of a label task
    choices: tuple[str, ...] = ()  # of a multiple-choice task, or the labels of classification
    start: int | None = None  # span tasks: the character of context where the first target begins
    answerable: bool = True  # span tasks: False if the context holds no answer
    slices: Mapping[str, str] = field(default_factory=dict)  # values by which an analysis splits
    # short forms of the targets, for metrics that look for one in a prediction
    short_answers: tuple[str, ...] = ()


class Policy(Protocol):
    """The method that a masking policy must have; `plugins.hooks` lists the optional ones."""

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Return the token spans of `passage` to mask: sorted, disjoint, non-empty, in range."""
