"""Find the words and sentences of a text in the language of its corpus.

English abbreviations are in sentences.txt. spaCy has those of most other languages, and the stop
words that distinguish the end of a sentence from an abbreviation; only they import it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata, resources
from itertools import groupby
from unicodedata import category

from maskpolicy.core.errors import need
from maskpolicy.core.types import Passage

ENGLISH = "en"
_VERSION = 2  # of the rules for sentences, in the keys of corpora of files and of the Hub
_CLOSING = r"(?:[\"'”’»›)\]」』）】]|\s»)*+"
_OPENING = r"[\"'“‘«‹„‚(\[¿¡「『（【—–-]*\s*"
_TIGHT = "。｡！？．।॥။"  # end a sentence even without a blank
_HALF_WIDTH = {"ja": "!?", "zh": "!?"}  # end a sentence even before a character of _ALONE
_MARKS = ".!?…‼‽⁇⁈⁉؟۔։።፧។៕"
_MORE_MARKS = {"el": ";\u037e"}  # a Greek question mark is a semicolon
_BY_BLANKS = {"th": r"(?<=[\u0e00-\u0e7f])\s+(?=[\u0e00-\u0e7f])"}  # Thai has no marks at ends
# Han, kana, Thai, Lao, Burmese and Khmer have no blanks between words: each character is a word,
# with its combining marks
_ALONE = (
    r"\u0e01-\u0e30\u0e32-\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u0eb2-\u0eb3\u0ec0-\u0ec6\u0edc-\u0edf"
    r"\u1000-\u102a\u1780-\u17b3\u3005-\u3007\u3041-\u3096\u3400-\u4dbf\u4e00-\u9fff"
    r"\uf900-\ufaff\U00020000-\U0003ffff"
)
SET_LANGUAGE = "whole clauses are words, as the texts have no blanks between words: set {}, e.g. zh"
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")  # J, U.S, a.m
_WORD_BEFORE = re.compile(r"[^\s\"'“‘«‹„‚(\[—–-]*$")
_FIRST_WORD = re.compile(r"[^\s.,;:!?'’\"”)]+")
_LONGEST = 30  # characters of an abbreviation
_CONTRACTED = re.compile(r"(^won't|^can't|^ain't|^shan't|n't|'(re|s|d|ll|t|ve|m))$")


@dataclass(frozen=True)
class Segmenter:
    """The rules of one language."""

    ends: re.Pattern[str]  # where a sentence may end: mark, blanks or line ends, what follows
    words: re.Pattern[str]
    cuts: re.Pattern[str]  # the words that `corpus.words` counts
    titles: frozenset[str]  # abbreviations, without the last dot, that never end a sentence
    abbreviations: frozenset[str]  # they end a sentence if a starter follows
    before_numbers: frozenset[str]  # abbreviations if a number follows
    starters: frozenset[str]
    has_ordinals: bool  # "3. Mai"

    def sentences(self, text: str) -> list[int]:
        """Return where each sentence begins, in characters; the first one at 0."""
        starts = [0]
        starts += (m.end() for m in self.ends.finditer(text) if self._ends(text, m))
        return starts

    def _ends(self, text: str, match: re.Match[str]) -> bool:
        marks = match["marks"]
        if not marks or "\n" in match[0]:
            return True
        follows = _FIRST_WORD.match(text, match.end() + len(match["opening"]))
        word = follows[0] if follows else ""
        if not word or word[0].islower():
            return not word
        before = _WORD_BEFORE.search(text, max(0, match.start() - _LONGEST), match.start())
        short = before[0] if before and marks == "." else ""
        if short in self.titles:
            return False
        if short in self.before_numbers:
            return not word[0].isdigit()
        is_ordinal = self.has_ordinals and short.isdigit() and len(short) < 3
        if is_ordinal or short in self.abbreviations or _INITIALS.fullmatch(short):
            is_quoted = match["opening"][:1] in tuple('"“„«「')
            is_start = is_quoted or word.lower() in self.starters
            return is_start and (len(word) > 1 or len(short) > 1)
        return True


def word_lists(folder: str, name: str) -> dict[str, frozenset[str]]:
    """Return the lists in a file of a package by name; each name precedes its list in brackets."""
    text = resources.files(folder).joinpath(name).read_text("utf-8")
    lists = re.findall(r"^\[(\w+)\]\n([^\[]*)", text, re.MULTILINE)
    return {name: frozenset(words.split()) for name, words in lists}


@cache
def segmenter(language: str = ENGLISH) -> Segmenter:
    """Return the rules of a language that spaCy knows."""
    marks = _MARKS + _MORE_MARKS.get(language, "")
    tight = f"[{_TIGHT}]++{_CLOSING}(?!と)\\s*"
    if language in _HALF_WIDTH:
        tight += f"|[{_HALF_WIDTH[language]}]++{_CLOSING}(?!と)(?={_OPENING}[{_ALONE}])"
    blanks = f"|{_BY_BLANKS[language]}" if language in _BY_BLANKS else ""
    ends = re.compile(
        rf"(?:(?P<marks>[{marks}]++){_CLOSING}\s+|{tight}|\n+{blanks})"
        rf"(?=(?P<opening>{_OPENING}))"
    )
    lists = word_lists(__package__, "sentences.txt")
    numbered = lists["BEFORE_NUMBERS"]
    if language == ENGLISH:
        titles, short, starters = lists["TITLES"], lists["ABBREVIATIONS"], lists["STARTERS"]
        cuts = re.compile(r"\S+")
        return Segmenter(ends, _words(""), cuts, titles, short, numbered, starters, False)
    from spacy.util import get_lang_class

    defaults = get_lang_class(language).Defaults
    names = {name[:-1] for name in defaults.tokenizer_exceptions if name.endswith(".")}
    names |= lists.get(language, frozenset())  # if spaCy has none
    names |= {name[:1].upper() + name[1:] for name in names}
    return Segmenter(
        ends,
        _words(_ALONE),
        re.compile(rf"[{_ALONE}][{_combining()}]*|[^\s{_ALONE}]+"),
        frozenset(),
        frozenset(names),
        numbered - names,
        frozenset(map(str.lower, defaults.stop_words)),
        language in lists["ORDINALS"],
    )


def joins_words(text: str, language: str) -> bool:
    """Return whether English rules read a text of a script that has no blanks between words."""
    return language == ENGLISH and sum(map(len, _joined().findall(text))) > len(text) / 5


@cache
def _joined() -> re.Pattern[str]:
    return re.compile(f"(?:[{_ALONE}][{_combining()}]*){{8,}}")


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return spaCy's words of a language that have little meaning by themselves; may be empty."""
    spacy_version()
    from spacy.util import get_lang_class

    return frozenset(get_lang_class(language).Defaults.stop_words)


def content_word(word: str, language: str) -> str:
    """Return a word in lower case without a contraction ("'s", "n't"); "" if it is a stop word.

    "" also stands for contractions whose first word has another form ("won't").
    """
    form = _CONTRACTED.sub("", word.lower().replace("’", "'"))
    return "" if form in stop_words(language) else form


def content_words(passage: Passage) -> list[str]:
    """Return the `content_word` of each word of a passage; "" for what has no letter."""
    words = (content_word(word, passage.language) for word in passage.texts(passage.words))
    return [word if any(map(str.isalpha, word)) else "" for word in words]


def spacy_version() -> str:
    """Return the version of spaCy; raises ConfigError if it is not installed."""
    need("spacy", "spacy", "stop words, languages and trained pipelines are spaCy's")
    return metadata.version("spacy")


def rules_version(language: str) -> str:
    """Return the version of a language's rules for sentences and words."""
    if language == ENGLISH:
        return str(_VERSION)
    return f"{_VERSION + 1 + (language in _HALF_WIDTH)}, spacy {spacy_version()}"


@cache
def _combining() -> str:
    """Return all combining marks; patterns with them take a while to compile."""
    return "".join(char for char in map(chr, range(0x300, 0xFE30)) if category(char)[0] == "M")


@cache
def _words(alone: str) -> re.Pattern[str]:
    """Return the pattern of words with their marks, and of punctuation; `alone` are words."""
    combining = _combining()
    inside = f"\\w\u200c\u200d{combining}"
    if not alone:
        return re.compile(rf"[{inside}]+(?:['’.\-][{inside}]+)*|[^\w\s]")
    inside = f"(?:(?![{alone}])[{inside}])"
    return re.compile(rf"[{alone}][{combining}]*|{inside}+(?:['’.\-]{inside}+)*|[^\w\s]")


@cache
def plain_words(language: str) -> re.Pattern[str]:
    """Return the pattern of words that end at any punctuation; English ones end at marks, too."""
    if language == ENGLISH:
        return re.compile(r"[^\W_]+")
    letter, marks = rf"[^\W_{_ALONE}]", f"[\u200c\u200d{_combining()}]"
    return re.compile(rf"[{_ALONE}]{marks}*|{letter}+(?:{marks}+{letter}*)*")


def ngrams(passage: Passage, longest: int, shortest: int = 1) -> Iterator[tuple[int, int, str]]:
    """Yield (number of words, index of the first word, text) of each n-gram of a passage.

    Words are in lower case. Punctuation belongs to no n-gram.
    """
    words = [text.lower() for text in passage.texts(passage.words)]
    for is_run, run in groupby(range(len(words)), lambda at: any(map(str.isalnum, words[at]))):
        places = list(run) if is_run else []
        for length in range(shortest, longest + 1):
            for first in places[: max(0, len(places) - length + 1)]:
                yield length, first, " ".join(words[first : first + length])
