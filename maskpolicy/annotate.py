"""spaCy pipelines over passages: entities and parts of speech, over processes where asked."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from maskpolicy.errors import ConfigError

if TYPE_CHECKING:
    from spacy.language import Language

Labelled = list[tuple[int, int, str]]
NOTE = (
    "entities come from the built-in rules; for a trained model: "
    "python -m spacy download en_core_web_sm, then pipeline: en_core_web_sm"
)
log = logging.getLogger(__name__)


@lru_cache(maxsize=1)
def load(pipeline: str | None) -> Language:
    """Return the spaCy pipeline of this name or folder; None: the built-in rules."""
    if pipeline is None:
        from maskpolicy import entities

        log.info(NOTE)
        return entities.pipeline()
    import spacy

    try:
        return spacy.load(pipeline)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(f"spaCy pipeline {pipeline!r} cannot be loaded: {error}") from error


def entities(texts: Iterable[str], pipeline: str | None = None) -> Iterator[Labelled]:
    """Yield the entities of each text as sorted (start, end, label), in characters."""
    for doc in load(pipeline).pipe(texts):
        yield [(span.start_char, span.end_char, span.label_) for span in doc.ents]
