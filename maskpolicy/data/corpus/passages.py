"""Split documents into passages, and tokenise them with the bounds of words and sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from errno import EMFILE
from functools import cached_property, partial
from itertools import chain, groupby, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core import ragged
from maskpolicy.core.errors import DataError, StageError
from maskpolicy.core.files import allow_files, read_json
from maskpolicy.core.ragged import Joined, Ragged, RaggedWriter, Rows
from maskpolicy.core.types import Passage, Spans, as_spans, unwritable
from maskpolicy.data.corpus.segmentation import ENGLISH, segmenter
from maskpolicy.experiment.definition import CorpusBlock

if TYPE_CHECKING:
    import tokenizers
    from transformers import PreTrainedTokenizerBase

_BLANK = re.compile(r"\S+")
_REMEMBERED = 50_000  # passages of the largest corpus that is cached in memory
_OPEN = 16_384  # files open at a time: a corpus may have hundreds, and as many for each column
_CHUNK = 1000  # documents tokenised in one call
_PACKED = 100_000  # characters of joined documents, at least
_BORDER = "\n\n"  # between joined documents
_LONGEST = 10_000  # characters of a word; longer ones are split
PASSAGES_FILE = "passages.safetensors"
INDEX_FILE = "index.json"  # of passages in several files
FILES = "files"  # in the index: the files and their numbers of passages
COLUMNS = "columns"  # in the index: the arrays of all files; by default, those of the first
LANGUAGE = "language"  # the array of the languages, which files of English text lack
Row: TypeAlias = dict[str, NDArray[Any]]  # the arrays of one passage, by name
_OF_TOKENS = ("tokens", "offsets", "words", "sentences")  # as in `Passage`
FIXED = frozenset({"ids", "texts", *_OF_TOKENS, LANGUAGE})
"""The arrays of a corpus that are not columns."""


@dataclass(frozen=True)
class Document:
    """One text with the columns of its corpus."""

    id: str
    text: str
    # (n, 2) characters each
    columns: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    language: str = ENGLISH


class Passages(Sequence[Passage]):
    """The passages of a corpus, memory-mapped; annotate stages add `columns`."""

    def __init__(
        self, arrays: Mapping[str, Rows], remembered: int = _REMEMBERED, most: int | None = None
    ) -> None:
        """Read `arrays`; passages stay in memory if there are at most `remembered`.

        Passages have at most `most` tokens each; None: all.
        """
        self.arrays, self.remembered, self.most = arrays, remembered, most
        self.columns = tuple(name for name in arrays if name not in FIXED)
        self._cache: dict[int, Passage] = {}

    @classmethod
    def open(cls, folder: Path, *annotations: Path) -> Passages:
        """Open a corpus artifact with the columns of annotate artifacts, without a copy."""
        arrays: dict[str, Rows] = {}
        for each in (folder, *annotations):
            arrays.update(open_arrays(each))
        return cls(arrays)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each passage, shape (n,), before they are `cut`."""
        return self.arrays["tokens"].lengths

    def cut(self, most: int) -> Passages:
        """Return the passages with at most `most` tokens each; see `first_tokens`."""
        is_longer = bool((self.lengths > most).any())
        return Passages(self.arrays, self.remembered, most) if is_longer else self

    @cached_property
    def _units(self) -> dict[str, str]:
        """By column of numbers, the units it describes: tokens, words, sentences or other spans.

        Both have equal counts in all passages with numbers.
        """
        spans = [name for name in self.columns if _are_spans(self.arrays[name][0])]
        units = {}
        for name in (name for name in self.columns if name not in spans):
            counts = self.arrays[name].lengths
            for unit in ("tokens", "words", "sentences", *reversed(spans)):  # a policy's last
                if (counts == self.arrays[unit].lengths)[counts > 0].all():
                    units[name] = unit
                    break
        return units

    def __len__(self) -> int:
        return len(self.arrays["tokens"])

    def count_words(self) -> int:
        """Return the number of words between blanks; see `cut_document`."""
        texts, languages = self.arrays["texts"], self.arrays.get(LANGUAGE)
        count = 0
        for index in range(len(self)):
            rules = segmenter(ENGLISH if languages is None else languages.text(index))
            count += sum(1 for _ in rules.cuts.finditer(texts.text(index)))
        return count

    @overload
    def __getitem__(self, index: int) -> Passage: ...
    @overload
    def __getitem__(self, index: slice) -> Passages: ...
    def __getitem__(self, index: int | slice) -> Passage | Passages:
        if isinstance(index, slice):
            rows = {name: every[index] for name, every in self.arrays.items()}
            return Passages(rows, self.remembered, self.most)
        if (known := self._cache.get(index)) is not None:
            return known
        if not -len(self) <= index < len(self):
            raise IndexError(f"passage {index} of {len(self)}")
        index %= len(self)
        arrays = self.arrays
        passage = Passage(
            arrays["ids"].text(index),
            arrays["texts"].text(index),
            **{name: arrays[name][index] for name in _OF_TOKENS},
            columns={name: arrays[name][index] for name in self.columns},
            language=arrays[LANGUAGE].text(index) if LANGUAGE in arrays else ENGLISH,
        )
        if self.most is not None:
            passage = first_tokens(passage, self.most, self._units)
        if len(self) <= self.remembered:
            self._cache[index] = passage
        return passage


class Chosen(Sequence[Passage]):
    """Some passages of a corpus, which are read on access."""

    def __init__(self, passages: Passages, items: NDArray[np.int64]) -> None:
        """Choose the passages at the places `items`, (n,), ascending."""
        self.passages, self.items = passages, items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Chosen(self.passages, self.items[index])
        return self.passages[int(self.items[index])]

    def spread(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield `rows`, one of each chosen passage, and empty rows of the other passages."""
        first, is_chosen = next(rows, {}), np.zeros(len(self.passages), np.bool_)
        empty, rows = {name: array[:0] for name, array in first.items()}, chain([first], rows)
        is_chosen[self.items] = True
        for is_next in is_chosen:
            yield next(rows) if is_next else empty


def rows_of(columns: Mapping[str, Sequence[NDArray[Any]]]) -> Iterator[Row]:
    """Yield the columns of each passage."""
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, row, strict=True))


def open_arrays(folder: Path) -> Mapping[str, Rows]:
    """Map the arrays of an artifact, which has one file or several, into memory.

    Raises StageError if the process may not open that many files.
    """
    if not (folder / INDEX_FILE).exists():
        return ragged.load(folder / PASSAGES_FILE)
    index = read_json(folder / INDEX_FILE)
    names = index[FILES]
    allow_files(_OPEN)
    try:
        parts = [ragged.load(folder / name) for name in names]
    except OSError as error:
        if error.errno != EMFILE:
            raise
        raise StageError(
            f"{folder}: this process may not open {len(names)} more files at a time: raise the "
            "limit (ulimit -Hn), or set a larger corpus.shard_mb"
        ) from error
    columns = index.get(COLUMNS, parts[0])
    for part in parts:
        if LANGUAGE in columns and LANGUAGE not in part:
            count = len(part["tokens"])
            text = np.tile(np.frombuffer(ENGLISH.encode(), np.uint8), count)
            part[LANGUAGE] = Ragged.cut(text, np.full(count, len(ENGLISH)))
    return {column: Joined([part[column] for part in parts]) for column in columns}


def passage_rows(
    documents: Iterable[Document],
    tokenizer: PreTrainedTokenizerBase,
    words: int | None,
    tokens: int | None = None,
    progress: Callable[[int, int, str], None] = lambda done, total, note: None,
    is_shard: bool = False,
) -> Iterator[dict[str, NDArray[Any]]]:
    """Split documents into passages of at most `words` or `tokens`; yield the arrays of each.

    With neither, a passage has the default number of words. Raises DataError if a document lacks a
    column of the others, or if there is no text, except in a shard.
    """
    names: set[str] = set()
    done = 0
    cut = partial(cut_document, words=words or CorpusBlock.words)
    if tokens:
        cut = partial(cut_by_tokens, most=tokens, tokenizer=tokenizer)
    stream = (piece for document in documents for piece in cut(document))
    while chunk := list(islice(stream, _CHUNK)):
        for tokenized in tokenize(chunk, tokenizer):
            arrays = _arrays(tokenized)
            names = names or set(arrays)
            for odd in sorted(arrays.keys() ^ names):
                said = f"document {tokenized.id!r}: column {odd!r} is not in every document"
                raise DataError(said)
            yield arrays
        done += len(chunk)
        progress(done, 0, "passages")
    if not done and not is_shard:
        raise DataError("the corpus holds no text: check its files and corpus.column")


def packed(documents: Iterable[Document], most: int = _PACKED) -> Iterator[Document]:
    """Join consecutive documents of a file to documents of at least `most` characters.

    The result has the id of its first document, and the columns of all.
    """
    for _, of_file in groupby(documents, lambda document: document.id.rpartition(":")[0]):
        for first in of_file:
            texts, size = [first.text], len(first.text) + len(_BORDER)
            columns = {name: [*spans] for name, spans in first.columns.items()}
            while size < most and (document := next(of_file, None)):
                for name, spans in document.columns.items():
                    columns[name] += [[size + begin, size + end] for begin, end in spans]
                texts.append(document.text)
                size += len(document.text) + len(_BORDER)
            yield replace(first, text=_BORDER.join(texts), columns=columns)


def build_passages(
    documents: Iterable[Document],
    tokenizer: PreTrainedTokenizerBase,
    words: int,
    most: int | None = None,
) -> Passages:
    """Return the passages of a small corpus in memory, or its first `most`."""
    columns: dict[str, list[NDArray[Any]]] = {}
    for row in islice(passage_rows(documents, tokenizer, words), most):
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return Passages({name: Ragged.of_arrays(values) for name, values in columns.items()})


def write_passages(path: Path, passages: Iterable[Mapping[str, NDArray[Any]]]) -> None:
    """Write the arrays of passages to a file that `Passages` can open, one passage at a time."""
    with RaggedWriter(path) as file:
        for row in passages:
            file.append(row)


def _arrays(passage: Passage) -> dict[str, NDArray[Any]]:
    language = np.frombuffer(passage.language.encode(), np.uint8)
    return {
        "ids": np.frombuffer(passage.id.encode(), np.uint8),
        "texts": np.frombuffer(passage.text.encode(), np.uint8),
        **{name: getattr(passage, name) for name in _OF_TOKENS},
        **({} if passage.language == ENGLISH else {LANGUAGE: language}),
        **passage.columns,
    }


def cut_document(document: Document, words: int) -> Iterator[Document]:
    """Split a document into passages of at most `words` words between blanks.

    In a language other than English, each character of a script without blanks is a word. Columns
    keep the spans within a passage. A word of more than _LONGEST characters, as in encoded files,
    becomes several passages, because steps that mask it whole would take minutes.
    """
    bounds: list[tuple[int, int]] = []
    count = words  # of the last passage; `words`: it is complete
    for match in segmenter(document.language).cuts.finditer(document.text):
        first, last = match.span()
        if last - first > _LONGEST:
            bounds += _parts(first, last)
            count = words
        elif count == words:
            bounds.append((first, last))
            count = 1
        else:
            bounds[-1] = (bounds[-1][0], last)
            count += 1
    yield from [document] if len(bounds) == 1 else _parts_of(document, bounds)


def cut_by_tokens(
    document: Document, most: int, tokenizer: PreTrainedTokenizerBase
) -> Iterator[Document]:
    """Split a document into passages of at most `most` tokens each, without special tokens.

    Passages end between words, and also within words of more than `most` / 2 tokens. A single
    character may have more than `most`.
    """
    text = document.text
    words = [match.span() for match in segmenter(document.language).cuts.finditer(text)]
    [whole] = encode([text], tokenizer)
    if not words or len(whole.ids) <= most:
        yield from [document] if words else []
        return
    begins = np.maximum.accumulate([begin for begin, _ in whole.offsets])
    units: list[tuple[int, int]] = []  # bounds of what is not cut, in characters
    for first, last in words:
        inside = begins[slice(*np.searchsorted(begins, (first, last)))]
        cuts = np.unique([first, *inside]).tolist() if len(inside) > most // 2 else [first]
        units += pairwise([*cuts, last])
    ends = np.searchsorted(begins, [first for first, _ in units[1:]] + [len(text)])
    bounds, at, before = [], 0, 0  # `before`: tokens before the passage
    while at < len(units):
        last = max(at, int(np.searchsorted(ends, before + most, side="right")) - 1)
        # a text may have more tokens alone than within its document
        while last > at:
            [alone] = encode([text[units[at][0] : units[last][1]]], tokenizer)
            if len(alone.ids) <= most:
                break
            last -= 1
        bounds.append((units[at][0], units[last][1]))
        at, before = last + 1, ends[last]
    yield from _parts_of(document, bounds)


def _parts_of(document: Document, bounds: Iterable[tuple[int, int]]) -> Iterator[Document]:
    """Yield the parts of a document with these bounds in characters."""
    for number, (first, last) in enumerate(bounds):
        columns = {
            name: [[a - first, b - first] for a, b in spans if first <= a and b <= last]
            for name, spans in document.columns.items()
        }
        text = document.text[first:last]
        yield Document(f"{document.id}#{number}", text, columns, document.language)


def _parts(first: int, last: int) -> list[tuple[int, int]]:
    """Return the bounds of the parts of a word, at most _LONGEST characters each."""
    return [(begin, min(begin + _LONGEST, last)) for begin in range(first, last, _LONGEST)]


def pieces(text: str) -> list[tuple[int, int]]:
    """Return the bounds, in characters, of the pieces of a text that are encoded separately.

    Only words of more than _LONGEST characters are split, because the time of byte-pair encoding
    grows faster than linearly with the length of a word.
    """
    if len(text) <= _LONGEST:
        return [(0, len(text))]
    parts = (_parts(*match.span()) for match in _BLANK.finditer(text))
    cuts = [begin for found in parts for begin, _ in found[1:]]
    return list(pairwise([0, *cuts, len(text)]))


def tokenize(
    documents: Sequence[Document], tokenizer: PreTrainedTokenizerBase
) -> Iterator[Passage]:
    """Tokenise texts without special tokens; columns of character ranges become token spans.

    `tokenizer` must be a fast tokenizer, which returns character offsets.
    """
    texts = [document.text for document in documents]
    for document, encoding in zip(documents, encode(texts, tokenizer), strict=True):
        characters = chain.from_iterable(encoding.offsets)  # numpy is slower with tuples
        offsets = np.fromiter(characters, np.int32, 2 * len(encoding.ids)).reshape(-1, 2)
        yield passage(document, np.asarray(encoding.ids, np.int32), offsets)


def passage(document: Document, tokens: NDArray[np.int32], offsets: Spans) -> Passage:
    """Return the passage of a text, given its tokens (t,) and their `offsets` (t, 2)."""
    rules, text = segmenter(document.language), document.text
    words = _ranges(offsets, [match.start() for match in rules.words.finditer(text)])
    sentences = _ranges(offsets, rules.sentences(text))
    for array in (tokens, offsets, words, sentences):
        array.flags.writeable = False  # as in the file of a corpus: a policy may be asked again
    plain = Passage(
        document.id, text, tokens, offsets, words, sentences, language=document.language
    )
    columns = {name: unwritable(plain.at(spans)) for name, spans in document.columns.items()}
    return replace(plain, columns=columns)


def first_tokens(passage: Passage, most: int, units: Mapping[str, str] | None = None) -> Passage:
    """Return a passage with its first `most` tokens, their words and sentences, and the whole text.

    Columns of spans lose the spans of other tokens; a span across the border is shortened. `units`
    names the units that a column of numbers describes: "tokens", "words", "sentences" or a column
    of spans. Other columns stay as they are.
    """
    if len(passage.tokens) <= most:
        return passage
    spans = {"tokens": passage.pieces, "words": passage.words, "sentences": passage.sentences}
    spans |= {name: rows for name, rows in passage.columns.items() if _are_spans(rows)}
    columns = dict(passage.columns)
    for name, rows in passage.columns.items():
        unit = spans.get((units or {}).get(name, ""))
        if name in spans:
            columns[name] = _clipped(rows, most)
        elif unit is not None and len(unit) == len(rows):
            columns[name] = unwritable(rows[unit[:, 0] < most])
    return replace(
        passage,
        tokens=passage.tokens[:most],
        offsets=passage.offsets[:most],
        words=_clipped(passage.words, most),
        sentences=_clipped(passage.sentences, most),
        columns=columns,
    )


def _clipped(spans: NDArray[Any], most: int) -> NDArray[Any]:
    return unwritable(np.minimum(spans[spans[:, 0] < most], most))


def _are_spans(rows: NDArray[Any]) -> bool:
    return rows.shape[1:] == (2,) and rows.dtype.kind in "iu"


@dataclass(frozen=True)
class Encoded:
    """The t tokens of a text with their bounds in characters."""

    ids: list[int]  # (t,)
    offsets: list[tuple[int, int]]  # (t, 2)


def encode(
    texts: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> list[tokenizers.Encoding | Encoded]:
    """Return ids and offsets of each text, without truncation and special tokens.

    The `pieces` of a text are encoded separately. Names of special tokens in a text, such as
    `<mask>`, are ordinary text. Offsets begin at a token's first visible character.
    """
    backend = backend_of(tokenizer)
    backend.encode_special_tokens = True
    bounds = [pieces(text) for text in texts]
    parts = [text[a:b] for text, found in zip(texts, bounds, strict=True) for a, b in found]
    encoded = iter(backend.encode_batch(parts, add_special_tokens=False))
    whole = [_joined(found, list(islice(encoded, len(found)))) for found in bounds]
    if type(backend.model).__name__ == "Unigram":
        unknown = tokenizer.unk_token_id
        specials = set(tokenizer.all_special_ids) - {unknown}
        whole = [_ordinary(one, specials, unknown) for one in whole]
    return [_visible(one, text) for one, text in zip(whole, texts, strict=True)]


def backend_of(tokenizer: PreTrainedTokenizerBase) -> tokenizers.Tokenizer:
    """Return the backend of a fast tokenizer, or a copy without its padding and truncation.

    A tokenizer that is saved with either uses it in every call.
    """
    backend: tokenizers.Tokenizer = tokenizer.backend_tokenizer
    if backend.padding is not None or backend.truncation is not None:
        backend = deepcopy(backend)
        backend.no_padding()
        backend.no_truncation()
    return backend


def without_blanks(offsets: Iterable[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """Return the offsets from the first visible character; a token of blanks is empty.

    The blank before a token counts in byte-level tokenizers that do not trim offsets (ModernBERT's)
    or add a blank to a text (only that of the first token), in SentencePiece tokenizers that do not
    split at blanks first (DeBERTa-v2's, Pegasus'), and in added tokens with `lstrip`.
    """
    return [(end - len(text[begin:end].lstrip()), end) for begin, end in offsets]


def _visible(found: tokenizers.Encoding | Encoded, text: str) -> tokenizers.Encoding | Encoded:
    offsets = found.offsets
    if not any(text[begin : begin + 1].isspace() for begin, _ in offsets):
        return found  # needs less memory than its lists
    return Encoded(found.ids, without_blanks(offsets, text))


def _ordinary(
    found: tokenizers.Encoding | Encoded, specials: set[int], unknown: int
) -> tokenizers.Encoding | Encoded:
    """Replace special tokens, which a Unigram model finds by their names in the text."""
    if specials.isdisjoint(found.ids):
        return found
    return Encoded([unknown if each in specials else each for each in found.ids], found.offsets)


def _joined(
    bounds: Sequence[tuple[int, int]], parts: Sequence[tokenizers.Encoding]
) -> tokenizers.Encoding | Encoded:
    if len(parts) == 1:
        return parts[0]
    ids = [each for part in parts for each in part.ids]
    pairs = zip(bounds, parts, strict=True)
    return Encoded(ids, [(a + at, b + at) for (at, _), part in pairs for a, b in part.offsets])


def _ranges(offsets: Spans, starts: Sequence[int]) -> Spans:
    """Group tokens by the last of `starts` at or before their first character: spans (n, 2)."""
    if not len(offsets):
        return as_spans([])
    unit = np.searchsorted(np.asarray(starts), offsets[:, 0], side="right")
    edges = np.flatnonzero(unit[1:] != unit[:-1]) + 1
    found = np.empty((len(edges) + 1, 2), np.int32)
    found[0, 0], found[-1, 1] = 0, len(offsets)
    found[1:, 0] = found[:-1, 1] = edges
    return found
