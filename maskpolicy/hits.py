"""How often a policy's best spans hold the answer, against other ways of choosing spans."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

from maskpolicy import plugins
from maskpolicy.annotate import annotate
from maskpolicy.evidence import plain
from maskpolicy.fitting import Context, Contexts
from maskpolicy.types import Json, Passage, Spans

TOP = (1, 5, 20)
SALIENT = "salient-span"  # the policy, and its column, that learned ones are compared with
ENTITIES = "entities"
LONGEST = 10  # words of a random span


def report(data: Sequence[Contexts], found: Sequence[Sequence[Spans]]) -> Json:
    """Return for each task how often an answer is among the best 1, 5, 20 spans of its dev.

    `found` holds the spans of each dev context that holds an answer (see `answered`), best first.
    Against it stand as many entities, and as many spans of up to LONGEST words, drawn uniformly
    without replacement, by their exact chances. Shares are of the contexts that hold an answer.
    """
    tasks = {}
    for one, spans in zip(data, found, strict=True):
        contexts = answered(one.dev)
        ranks = [rank(context, each) for context, each in zip(contexts, spans, strict=True)]
        tasks[one.task] = {
            "contexts": len(contexts),
            "without_answer": len(one.dev) - len(contexts),
            "policy": {str(k): _mean([place < k for place in ranks]) for k in TOP},
            SALIENT: _salient(contexts),
            "random": _random(contexts),
        }
    return tasks


def answered(contexts: Sequence[Context]) -> list[Context]:
    """Return the contexts that hold an answer."""
    return [context for context in contexts if len(context.answers)]


def rank(context: Context, spans: Spans) -> float:
    """Return the place, from 0, of the first of `spans` that is an answer; infinity: none is.

    Spans are compared by normalised text with the answers that stand in the context.
    """
    wanted = {_text(context.passage, span) for span in context.answers.tolist()}
    places = (i for i, span in enumerate(spans.tolist()) if _text(context.passage, span) in wanted)
    return next(places, float("inf"))


def _text(passage: Passage, span: Sequence[int]) -> str:
    first, end = span
    return plain(passage.text[passage.offsets[first, 0] : passage.offsets[end - 1, 1]])


def _salient(contexts: Sequence[Context]) -> dict[str, float | None]:
    columns = annotate(plugins.find("policy", SALIENT).plugin(), [c.passage for c in contexts])
    entities = columns.get(ENTITIES, [])
    hits = [
        sum(rank(context, spans[i : i + 1]) == 0 for i in range(len(spans)))
        for context, spans in zip(contexts, entities, strict=True)
    ]
    return _drawn([(len(spans), hit) for spans, hit in zip(entities, hits, strict=True)])


def _random(contexts: Sequence[Context]) -> dict[str, float | None]:
    counts = []
    for context in contexts:
        words = len(context.passage.words)
        spans = sum(max(0, words - more) for more in range(LONGEST))
        counts.append((spans, min(len(context.answers), spans)))
    return _drawn(counts)


def _drawn(counts: Sequence[tuple[int, int]]) -> dict[str, float | None]:
    """Return for k of TOP the mean chance that of n things, `hits` of them hits, k hold a hit."""
    shares = {}
    for k in TOP:
        misses = (comb(n - hits, k) / comb(n, k) if n > k else hits == 0 for n, hits in counts)
        shares[str(k)] = _mean([1 - miss for miss in misses])
    return shares


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
