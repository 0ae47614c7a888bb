"""Find entities and parts of speech with spaCy pipelines, given by name or folder."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.files import file_times, files_below, sha256
from maskpolicy.core.types import Json, Passage
from maskpolicy.data.corpus import entities as rules
from maskpolicy.data.corpus.segmentation import spacy_version

if TYPE_CHECKING:
    from spacy.language import Language

Labelled: TypeAlias = list[tuple[int, int, str]]
"""(start, end, label) of characters [start, end), sorted and disjoint."""

NOTE = (
    "entities come from the built-in rules; for a trained pipeline, `pip install "
    "'maskpolicy[spacy]'`, run `python -m spacy download en_core_web_sm` and set "
    "the policy's `pipeline: en_core_web_sm`"
)
TAGS = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
)  # Universal Dependencies
_FOR_ENTITIES = {"tok2vec", "transformer", "ner"}
_ENTITY_COMPONENTS = {"ner", "beam_ner", "entity_ruler", "span_ruler"}  # names of spaCy's factories
_STOCK = {"tagger", "parser", "senter", "attribute_ruler", "lemmatizer", "morphologizer"}
_CLITIC = re.compile(r"['’]|n['’o]t$")  # the end of "John's", "don't", "cannot"
log = logging.getLogger(__name__)


@lru_cache(maxsize=1)
def log_rules() -> None:
    """Log once that entities come from the built-in rules."""
    log.info(NOTE)


def load_pipeline(pipeline: str) -> Language:
    """Load a spaCy pipeline by name or folder; raises ConfigError if that is impossible.

    A folder is loaded again if its files have changed.
    """
    is_folder = pipeline and Path(pipeline).is_dir()
    return _load(pipeline, file_times(files_below(Path(pipeline))) if is_folder else ())


@lru_cache(maxsize=1)
def _load(pipeline: str, _: tuple[int, ...]) -> Language:
    pipeline_identity(pipeline)
    import spacy

    try:
        return spacy.load(pipeline)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(f"spaCy pipeline {pipeline!r} cannot be loaded: {error}") from error


def pipeline_identity(pipeline: str | None) -> dict[str, Json]:
    """Return a pipeline's name and version (of a folder: its hash) without loading it.

    Include it in the stage key of everything made with the pipeline. Raises ConfigError if the
    pipeline does not exist.
    """
    if pipeline is None:  # the rules do not use spaCy, but keys have its version if it is there
        spacy = spacy_version() if find_spec("spacy") else None
        return {"name": "rules", "version": rules.VERSION, "spacy": spacy}
    spacy = spacy_version()
    if pipeline and Path(pipeline).is_dir():
        return {"name": Path(pipeline).name, "version": _folder(Path(pipeline)), "spacy": spacy}
    try:
        return {"name": pipeline, "version": metadata.version(pipeline), "spacy": spacy}
    except (metadata.PackageNotFoundError, ValueError):
        raise ConfigError(
            f"spaCy pipeline {pipeline!r} is neither installed nor a folder: run "
            f"`python -m spacy download {pipeline}`; salient-span and temporal need none"
        ) from None


def files_of(pipeline: str | None) -> dict[Path, str]:
    """Return the sha256 of each file of a pipeline in a folder; {} for other pipelines."""
    is_folder = pipeline and Path(pipeline).is_dir()
    return {path: sha256(path) for path in files_below(Path(str(pipeline)))} if is_folder else {}


def find_entities(texts: Iterable[str], pipeline: str | None = None) -> Iterator[Labelled]:
    """Yield the entities of each text; without a pipeline, the built-in rules find them.

    A trained pipeline runs only the components for entities.
    """
    if pipeline is None:
        log_rules()
        yield from map(rules.find, texts)
        return
    nlp = load_pipeline(pipeline)
    names = set(nlp.pipe_names)
    idle = names - _FOR_ENTITIES if "ner" in names and names <= _FOR_ENTITIES | _STOCK else set()
    for doc in nlp.pipe(texts, disable=sorted(idle)):
        yield [(entity.start_char, entity.end_char, entity.label_) for entity in doc.ents]


def find_phrases(texts: Iterable[str], pipeline: str) -> Iterator[list[tuple[int, int]]]:
    """Yield the characters (start, end) of each text's noun chunks and entities, unsorted.

    Raises ConfigError if the pipeline has no parser, or its language no noun chunks.
    """
    for doc in load_pipeline(pipeline).pipe(texts):
        if len(doc) and not doc.has_annotation("DEP"):
            raise ConfigError(f"spaCy pipeline {pipeline!r} has no parser: name another")
        try:
            yield [(span.start_char, span.end_char) for span in (*doc.noun_chunks, *doc.ents)]
        except NotImplementedError as error:
            raise ConfigError(
                f"spaCy pipeline {pipeline!r}: its language {doc.lang_!r} has no noun chunks in "
                "spaCy: name a pipeline of another language"
            ) from error


def entity_labels(pipeline: str | None = None) -> frozenset[str]:
    """Return the entity labels that a pipeline can assign; empty if they are unknown."""
    if pipeline is None:
        return frozenset(rules.LABELS)
    nlp = load_pipeline(pipeline)
    if not set(nlp.pipe_factories.values()) <= _ENTITY_COMPONENTS | _FOR_ENTITIES | _STOCK:
        return frozenset()
    factories = nlp.pipe_factories.items()
    finders = [name for name, factory in factories if factory in _ENTITY_COMPONENTS]
    return frozenset(label for name in finders for label in nlp.pipe_labels.get(name, ()))


def tag_words(passages: Iterable[Passage], pipeline: str) -> Iterator[NDArray[np.uint8]]:
    """Yield the index in TAGS of each word of each passage, (w,).

    It is the tag of the pipeline's token that holds the word's last character, or of one before it
    if that is a clitic; a mark within a token ("Mr.") is PUNCT. Raises ConfigError if the pipeline
    has no tagger.
    """
    unknown, mark = TAGS.index("X"), TAGS.index("PUNCT")
    texts = ((passage.text, passage) for passage in passages)
    for doc, passage in load_pipeline(pipeline).pipe(texts, as_tuples=True):
        if len(doc) and not doc.has_annotation("POS"):
            raise ConfigError(f"spaCy pipeline {pipeline!r} has no tagger: name another")
        tokens = [token for token in doc if token.pos and not token.is_space]
        ends = passage.offsets[passage.words[:, 1] - 1, 1] - 1
        starts = np.asarray([token.idx for token in tokens], np.int64)
        first = np.searchsorted(starts, passage.offsets[passage.words[:, 0], 0]).tolist()
        at = (np.searchsorted(starts, ends, side="right") - 1).tolist()
        tags = [TAGS.index(token.pos_) if token.pos_ in TAGS else unknown for token in tokens]
        found = []
        for place, begin, text in zip(at, first, passage.texts(passage.words), strict=True):
            while place > begin and _CLITIC.match(tokens[place].text):
                place -= 1
            token, tag = (tokens[place].text, tags[place]) if place >= 0 else ("", unknown)
            is_part = any(map(str.isalnum, token)) and not any(map(str.isalnum, text))
            found.append(mark if is_part else tag)
        yield np.asarray(found, np.uint8)


def _folder(folder: Path) -> str:
    """Return a hash of all files of a folder, independent of the folder's path."""
    if not (folder / "meta.json").is_file():
        raise ConfigError(f"{folder} is not a spaCy pipeline: it has no meta.json")
    files = files_of(str(folder))
    lines = (f"{path.relative_to(folder).as_posix()} {files[path]}\n" for path in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
