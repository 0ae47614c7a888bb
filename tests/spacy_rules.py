"""spaCy pipelines without a trained part: they tag words and find entities by rules."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def pipeline(
    folder: Path,
    entities: Mapping[str, str] | None = None,
    tags: Iterable[tuple[Mapping[str, Any], str]] = (),
) -> str:
    """Save a pipeline; `entities` have labels by text, `tags` are of patterns of a token."""
    import spacy

    nlp = spacy.blank("en")
    if entities:
        patterns = [{"label": label, "pattern": text} for text, label in entities.items()]
        nlp.add_pipe("entity_ruler").add_patterns(patterns)
    if tags:
        rules = nlp.add_pipe("attribute_ruler")
        for pattern, tag in tags:
            rules.add([[pattern]], {"POS": tag})
    nlp.to_disk(folder)
    return str(folder)
