"""Find answers in documents: all places of an answer, and the first window of words with one."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

from maskpolicy.data.corpus.segmentation import ENGLISH, plain_words

_WORD = re.compile(r"\S+")
_ARTICLES = {"a", "an", "the"}

Word = tuple[str, int, int]
"""A word in lower case, its first character and its end."""


def window(document: str, answers: Iterable[str], words: int = 100) -> str | None:
    """Return the first window of `words` blank-separated words with a whole answer, or None.

    Windows overlap by half. Answers are compared as lower-case words without punctuation and
    articles (TriviaQA's normalisation).
    """
    span = occurrence(document, answers, ENGLISH)
    if span is None:
        return None
    ends = [match.span() for match in _WORD.finditer(document)]
    first = sum(end <= span[0] for _, end in ends)
    last = sum(start < span[1] for start, _ in ends)
    step = max(1, words // 2)
    begin = step * max(0, -(-(last - words) // step))
    if begin > first:
        return None
    return document[ends[begin][0] : ends[min(begin + words, len(ends)) - 1][1]]


def occurrence(document: str, answers: Iterable[str], language: str) -> tuple[int, int] | None:
    """Return the characters (start, end) of the first occurrence of any answer, or None."""
    return next(iter(occurrences(document, answers, language)), None)


def occurrences(document: str, answers: Iterable[str], language: str) -> list[tuple[int, int]]:
    """Return the characters (start, end) of all occurrences of all answers, sorted and distinct.

    Different answers may overlap ("Rome" in "City of Rome").
    """
    tokens = words_of(document, language)
    text = "".join(f" {token}" for token, _, _ in tokens) + " "
    starts = list(accumulate((len(token) + 1 for token, _, _ in tokens), initial=0))
    hits = set()
    for wanted in {plain(answer, language) for answer in answers} - {""}:
        at = text.find(f" {wanted} ")
        while at >= 0:
            hits.add((at, wanted.count(" ")))
            at = text.find(f" {wanted} ", at + 1)
    places = ((bisect_left(starts, at), more) for at, more in sorted(hits))
    return [(tokens[index][1], tokens[index + more][2]) for index, more in places]


def plain(text: str, language: str) -> str:
    """Return the words of a text in lower case, without punctuation and articles."""
    return " ".join(word for word, *_ in words_of(text, language))


def words_of(text: str, language: str = "xx") -> list[Word]:
    """Return the words of a text without its articles; punctuation belongs to none."""
    found = ((match[0].lower(), *match.span()) for match in plain_words(language).finditer(text))
    return [each for each in found if each[0] not in _ARTICLES]
