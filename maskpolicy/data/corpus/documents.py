"""Read the documents of a corpus from the embedded world, from files or from a Hub dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

from maskpolicy.core import hub
from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.core.files import files_below, json_lines
from maskpolicy.core.schema import omitted
from maskpolicy.data.corpus.passages import FIXED, Document
from maskpolicy.data.corpus.segmentation import ENGLISH, rules_version
from maskpolicy.data.datafiles import fields, readers
from maskpolicy.data.datafiles.rows import WHOLE, Layout, Malformed, Part, Row
from maskpolicy.experiment.definition import WORLD, CorpusBlock, OnError
from maskpolicy.experiment.world_settings import GOLD, WITH_ERRORS

WorldText: TypeAlias = Literal["general", "intermediate", "situations"]


@dataclass(frozen=True, kw_only=True)
class WorldSource:
    """A corpus of the embedded world, as keys of stages hold it."""

    name: Literal["world"] = "world"
    part: WorldText = "intermediate"
    words: int | None = omitted(None)  # per passage; None: passages are whole documents
    tokens: int | None = omitted(None)  # per passage, instead of words
    limit: int


@dataclass(frozen=True, kw_only=True)
class _Texts:
    """The texts of rows and the size of passages, as keys of stages hold them."""

    column: str
    columns: tuple[str, ...]
    words: int | None = omitted(None)
    tokens: int | None = omitted(None)
    pack: bool = omitted(False)
    language: str = omitted(ENGLISH)
    rules: str = ""  # version of the rules for words and sentences


@dataclass(frozen=True, kw_only=True)
class _Rows(_Texts):
    """The same of a whole corpus."""

    on_error: OnError
    limit: int


@dataclass(frozen=True, kw_only=True)
class FileSource(_Rows):
    """A corpus of files, as keys of stages hold it."""

    files: tuple[tuple[str, str], ...]  # (name, sha256) of each file
    headings: Literal[False] | None = omitted(None)  # False: drop WikiText headings


@dataclass(frozen=True, kw_only=True)
class HubSource(_Rows):
    """A dataset of the Hub, or a local folder in the same layout, as keys of stages hold it."""

    hub: str  # "": a folder of `files`
    revision: str | None  # commit hash
    files: tuple[tuple[str, str], ...] | None = omitted(None)
    subset: str | None
    split: str
    headings: Literal[False] = False


Source: TypeAlias = WorldSource | FileSource | HubSource


@dataclass(frozen=True, kw_only=True)
class FilePart:
    """A file, or a part of one, in a shard, as keys of stages hold it."""

    name: str
    sha256: str  # of the whole file
    prefix: str  # of the ids of its documents
    part: Part


@dataclass(frozen=True, kw_only=True)
class ShardSource(_Texts):
    """A shard of a corpus of files, as keys of stages hold it."""

    files: tuple[FilePart, ...]


def identify(corpus: CorpusBlock, digest: Callable[[Path], str], where: str = "") -> Source:
    """Return everything that a corpus's passages depend on, with digests instead of paths.

    Names of files stay, because they determine the formats and begin the ids of documents. The
    revision of a Hub dataset becomes a commit; its errors name `where`, the key of the experiment.
    Raises ConfigError or DataError if the corpus cannot be read.
    """
    if corpus.name == WORLD:
        return WorldSource(**corpus.passage_size, limit=corpus.limit)
    for name in corpus.columns:
        if name in FIXED or name == corpus.column:
            raise ConfigError(
                f"{where or 'corpus'}.columns: {name!r} is a reserved name: rename that column"
            )
    if corpus.hub is None:
        paths = [Path(path) for path in corpus.files]
        prefixes(corpus)
        has_lines = any(readers.has_lines(path.name) for path in paths)
        known = tuple((path.name, digest(path)) for path in paths)
        if all(path.is_file() and not path.stat().st_size for path in paths):
            raise no_text(corpus)
        headings: Literal[False] | None = False if has_lines else None
        return FileSource(files=known, headings=headings, **_settings(_Rows, corpus))
    folder = Path(corpus.hub)
    files = revision = None
    if folder.is_dir():
        paths = files_below(folder)
        files = tuple((path.relative_to(folder).as_posix(), digest(path)) for path in paths)
    else:
        revision = hub.commit("dataset", corpus.hub, corpus.revision, where)
    return HubSource(
        hub="" if files is not None else corpus.hub,
        revision=revision,
        files=files,
        subset=corpus.subset,
        split=corpus.split,
        **_settings(_Rows, corpus),
    )


def shard(corpus: CorpusBlock, files: Iterable[FilePart]) -> ShardSource:
    """Return the shard of a corpus with these files or parts of files."""
    return ShardSource(files=tuple(files), **_settings(_Texts, corpus))


def _settings(kind: type[_Texts], corpus: CorpusBlock) -> dict[str, Any]:
    """Return the fields of `kind` for a corpus."""
    names = (field.name for field in dataclass_fields(kind) if field.name != "rules")
    own = {name: getattr(corpus, name) for name in names}
    return {**own, **corpus.passage_size, "rules": rules_version(corpus.language)}


def digests(source: Source | ShardSource, corpus: CorpusBlock) -> dict[Path, str]:
    """Return the files of a corpus or a shard, with their digests in the source's key."""
    if isinstance(source, WorldSource):
        return {}
    if isinstance(source, HubSource):
        return {Path(str(corpus.hub)) / name: digest for name, digest in source.files or ()}
    known = [part.sha256 if isinstance(part, FilePart) else part[1] for part in source.files]
    return dict(zip(map(Path, corpus.files), known, strict=True))


def read(
    source: Source,
    inputs: Mapping[str, Path],
    corpus: CorpusBlock | None = None,
    malformed: Malformed | None = None,
) -> Iterator[Document]:
    """Yield the documents of a corpus.

    `corpus` names the files; documents of the world are in the folder `inputs["world"]`. Rows
    without text are skipped. `malformed` raises DataError for malformed rows or skips them; by
    default it follows the corpus block. Raises DataError if the corpus has no text.
    """
    if isinstance(source, WorldSource):
        found = world(inputs["world"] / f"{source.part}.jsonl")
        yield from islice(found, source.limit or None)
        return
    corpus = located(corpus)
    malformed = malformed or malformed_rows(source)
    number = 0
    try:
        for document in islice(read_shard(source, corpus, malformed), source.limit or None):
            number += 1
            yield document
    finally:
        malformed.warn("corpus")
    if not number:
        raise no_text(corpus, malformed)


def located(corpus: CorpusBlock | None) -> CorpusBlock:
    """Return the block with the files of a corpus; raises DataError for None."""
    if corpus is None:
        raise DataError("corpus: the location of its files is unknown: run its experiment again")
    return corpus


def malformed_rows(source: Source | CorpusBlock) -> Malformed:
    """Return the handling of malformed rows of a corpus."""
    is_skipped = not isinstance(source, WorldSource) and source.on_error == "skip"
    return Malformed("corpus.on_error: skip", is_skipped)


def no_text(corpus: CorpusBlock, malformed: Malformed | None = None) -> DataError:
    """Return the error for a corpus without text."""
    bad = ""
    if malformed is not None and malformed.count:
        bad = f" ({malformed.count} malformed, {malformed.first[0]})"
    name = corpus.hub or ", ".join(corpus.files)
    if not corpus.hub and all(map(readers.is_plain, corpus.files)):
        return DataError(f"{name}: the corpus holds no text{bad}: name files with text")
    return DataError(
        f"{name}: the corpus holds no text in {corpus.column!r}{bad}: name another key "
        "(corpus.column=KEY), or files with text"
    )


def world(path: Path) -> Iterator[Document]:
    """Yield the documents of a corpus of the embedded world, with their gold columns."""
    for row in json_lines(path):
        known = GOLD | ({WITH_ERRORS: WITH_ERRORS} if WITH_ERRORS in row else {})
        columns = {name: [span[:2] for span in row[key]] for name, key in known.items()}
        yield Document(row["id"], row["text"], columns)


def read_shard(
    source: FileSource | HubSource | ShardSource, corpus: CorpusBlock, malformed: Malformed
) -> Iterator[Document]:
    """Yield the documents of a shard, which may be empty; `corpus.files` are its files.

    Raises DataError for a malformed row, as `read` does.
    """
    for prefix, rows in _sources(source, corpus):
        for row in rows:
            try:
                document = _document(row, prefix, source.column, source.columns)
            except DataError as error:
                malformed.add(row, str(error))
            else:
                if document is not None:
                    yield replace(document, language=source.language)


def _sources(
    source: FileSource | HubSource | ShardSource, corpus: CorpusBlock
) -> Iterator[tuple[str, Iterator[Row]]]:
    """Yield (prefix of the document ids, rows) of each file or part, or of the Hub dataset.

    Rows of Parquet and of the Hub may be single lines, as in WikiText; its headings are dropped.
    """
    keys = [source.column, *source.columns]

    def without_headings(rows: Iterator[Row]) -> Iterator[Row]:
        return (row for row in rows if not readers.is_heading((row.value or {}).get(source.column)))

    if isinstance(source, HubSource):
        place = (source.subset, source.split, source.revision, corpus.stream)
        yield source.split, without_headings(readers.hub_rows(str(corpus.hub), keys, *place))
        return
    if isinstance(source, ShardSource):
        wanted = [(each.prefix, each.part) for each in source.files]
    else:
        wanted = [(prefix, WHOLE) for prefix in prefixes(corpus)]
    for path, (prefix, part) in zip(map(Path, corpus.files), wanted, strict=True):
        rows = readers.rows(path, Layout(keys=keys, part=part))
        yield prefix, without_headings(rows) if readers.has_lines(path.name) else rows


def prefixes(corpus: CorpusBlock) -> list[str]:
    """Return the prefix of each file's document ids: its name without extensions.

    If several files have this name, their index comes first. Raises ConfigError for an unknown
    format.
    """
    stems = [readers.stem(Path(path).name) for path in corpus.files]
    return [
        f"{index}/{stem}" if stems.count(stem) > 1 else stem for index, stem in enumerate(stems)
    ]


def _document(row: Row, prefix: str, column: str, columns: Sequence[str]) -> Document | None:
    """Return a row's document, or None if it has no text; DataError does not name the row."""
    if row.error:
        raise DataError(row.error)
    if column not in row.value:
        known = ", ".join(map(str, row.value)) or "none"
        raise DataError(f"has no key {column!r} (it has {known}): set corpus.column to the text's")
    if not fields.optional(row.value, column):
        return None
    text = row.value[column]
    fields.check(text, f"key {column!r}")
    spans = {name: fields.spans(row.value, name, len(text)) for name in columns}
    return Document(f"{prefix}:{row.number}", text, spans)
