"""Read a corpus, cut it into tokenised passages, and annotate them with columns.

Downstream tasks are in `formats`.
"""

from typing import TYPE_CHECKING

from maskpolicy.lazy import offers

if TYPE_CHECKING:
    from maskpolicy.corpus.pipelines import (
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
    "tag_words",
]
_HOMES = {"maskpolicy.corpus.pipelines": __all__}
__getattr__, __dir__ = offers(__name__, _HOMES)
