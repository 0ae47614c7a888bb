"""Read a corpus, cut it into tokenised passages, and annotate them with columns.

Downstream tasks are in `taskfiles`.
"""

from typing import TYPE_CHECKING

from maskpolicy.core.lazy import offers

if TYPE_CHECKING:
    from maskpolicy.data.corpus.segmentation import stop_words
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
    "stop_words",
    "tag_words",
]
_HOMES = {
    "maskpolicy.data.corpus.segmentation": ["stop_words"],
    "maskpolicy.data.corpus.spacy_pipelines": [name for name in __all__ if name != "stop_words"],
}
__getattr__, __dir__ = offers(__name__, _HOMES)
