"""hits@k: how often an answer is among the best k spans of a policy, and of baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb

from maskpolicy.core.types import Json, Passage, Spans, as_spans
from maskpolicy.data.corpus.annotation import annotate
from maskpolicy.data.corpus.segmentation import ENGLISH
from maskpolicy.data.taskfiles.evidence import plain
from maskpolicy.models.learned.fit_tools import Context, Contexts
from maskpolicy.plugins import discovery

TOP = (1, 5, 20)
SALIENT = "salient-span"  # baseline policy; ENTITIES is its column
ENTITIES = "entities"
LONGEST = 10  # maximum number of words in a random span


def report(data: Sequence[Contexts], found: Sequence[Sequence[Spans]]) -> Json:
    """Return hits@k and precision@k of each task for k = 1, 5, 20 on the dev contexts.

    `found` has the spans, best first, of each dev context with an answer (see `answered`).
    "hits" is the share of these contexts whose answer is among the k best spans; "precision" is the
    share of these spans that answer any question about the same text. The baselines draw k entities
    or k spans of up to LONGEST words uniformly; their figures are exact expectations. The entities
    of text that is not English are not known: None.
    """
    return {one.name: _of_task(one, spans) for one, spans in zip(data, found, strict=True)}


def _of_task(task: Contexts, found: Sequence[Spans]) -> Json:
    contexts = answered(task.dev)
    asked: dict[str, set[str]] = {}
    for context in contexts:
        asked.setdefault(context.passage.text, set()).update(_answers(context))
    ranks, right = [], []
    for context, spans in zip(contexts, found, strict=True):
        ranks.append(rank(context, spans))
        answers = asked[context.passage.text]
        right.append([_text(context.passage, span) in answers for span in spans.tolist()])
    own = {
        "hits": {str(k): _mean([place < k for place in ranks]) for k in TOP},
        "precision": {str(k): _mean([_mean(one[:k]) or 0.0 for one in right]) for k in TOP},
    }
    return {
        "contexts": len(contexts),
        "without_answer": len(task.dev) - len(contexts),
        "policy": own,
        SALIENT: _salient(contexts, asked),
        "random": _random(contexts, asked),
    }


def answered(contexts: Sequence[Context]) -> list[Context]:
    """Return the contexts that hold an answer."""
    return [context for context in contexts if len(context.answers)]


def rank(context: Context, spans: Spans) -> float:
    """Return the rank, from 0, of the first of `spans` that is an answer; infinity if none is.

    A span is an answer if its normalised text equals that of an answer in the context.
    """
    wanted = _answers(context)
    places = (i for i, span in enumerate(spans.tolist()) if _text(context.passage, span) in wanted)
    return next(places, float("inf"))


def _answers(context: Context) -> set[str]:
    return {_text(context.passage, span) for span in context.answers.tolist()}


def _text(passage: Passage, span: Sequence[int]) -> str:
    return plain(passage.texts(as_spans([span]))[0], passage.language)


def _salient(contexts: Sequence[Context], asked: Mapping[str, set[str]]) -> Json:
    passages = [context.passage for context in contexts]
    if any(passage.language != ENGLISH for passage in passages):
        return None
    columns = annotate(discovery.instance("policy", SALIENT, {}), passages)
    entities = columns.get(ENTITIES, [])
    texts = (
        [_text(passage, span) for span in spans.tolist()]
        for passage, spans in zip(passages, entities, strict=True)
    )
    return _drawn([_counts(*one, asked) for one in zip(contexts, texts, strict=True)])


def _random(contexts: Sequence[Context], asked: Mapping[str, set[str]]) -> Json:
    counts = []
    for context in contexts:
        passage = context.passage
        words = [plain(text, passage.language) for text in passage.texts(passage.words)]
        texts = [
            " ".join(filter(None, words[first : first + more]))
            for more in range(1, LONGEST + 1)
            for first in range(len(words) + 1 - more)
        ]
        counts.append(_counts(context, texts, asked))
    return _drawn(counts)


def _counts(
    context: Context, texts: Sequence[str], asked: Mapping[str, set[str]]
) -> tuple[int, int, int]:
    own, shared = _answers(context), asked[context.passage.text]
    return len(texts), sum(text in own for text in texts), sum(text in shared for text in texts)


def _drawn(counts: Sequence[tuple[int, int, int]]) -> Json:
    """Return the expected figures of spans drawn uniformly without replacement.

    `counts` has three numbers per context: of all spans, of those that answer its question, and of
    those that answer any question about its text.
    """
    hits = {}
    for k in TOP:
        misses = (comb(n - own, k) / comb(n, k) if n > k else own == 0 for n, own, _ in counts)
        hits[str(k)] = _mean([1 - miss for miss in misses])
    precision = _mean([shared / n if n else 0.0 for n, _, shared in counts])
    return {"hits": hits, "precision": {str(k): precision for k in TOP}}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
