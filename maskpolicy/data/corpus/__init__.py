"""Read a corpus, cut it into tokenised passages, and annotate them with columns.

Downstream tasks are in `taskfiles`.
"""

from typing import TYPE_CHECKING

from maskpolicy.core.lazy import offers

if TYPE_CHECKING:
    from maskpolicy.data.corpus.segmentation import spacy_version, stop_words
    from maskpolicy.data.corpus.spacy_pipelines import (
        TAGS,
        Labelled,
        entity_labels,
        find_entities,
        find_phrases,
        pipeline_identity,
        tag_words,
    )

__all__ = [
    "TAGS",
    "Labelled",
    "entity_labels",
    "find_entities",
    "find_phrases",
    "pipeline_identity",
    "spacy_version",
    "stop_words",
    "tag_words",
]
_RULES = ["spacy_version", "stop_words"]
_HOMES = {
    "maskpolicy.data.corpus.segmentation": _RULES,
    "maskpolicy.data.corpus.spacy_pipelines": [name for name in __all__ if name not in _RULES],
}
__getattr__, __dir__ = offers(__name__, _HOMES)
