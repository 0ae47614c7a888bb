"""Find answers in documents: all places of an answer, and the first window of words with one."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
    words = words_of(document, language)
    places = Answers(answers, language).places(words)
    return [(words[first][1], words[end - 1][2]) for first, end in sorted(places)]


class Answers:
    """Answers that are looked for in texts, each as a sequence of whole words."""

    def __init__(self, texts: Iterable[str], language: str = "xx") -> None:
        found = {tuple(plain(text, language).split()) for text in texts}
        self._by_first: dict[str, set[tuple[str, ...]]] = {}
        for answer in found - {()}:
            self._by_first.setdefault(answer[0], set()).add(answer)

    def __bool__(self) -> bool:
        """Return whether there is any answer."""
        return bool(self._by_first)

    def places(self, words: list[Word]) -> set[tuple[int, int]]:
        """Return the places of an answer, as ranges of `words`."""
        plain = [word for word, *_ in words]
        return {
            (i, i + len(answer))
            for i, word in enumerate(plain)
            for answer in self._by_first.get(word, ())
            if tuple(plain[i : i + len(answer)]) == answer
        }


def words_within(words: list[Word], start: int, end: int) -> tuple[int, int] | None:
    """Return the range of the words that lie in text[start:end], or None if there are none.

    None too if the range cuts a word.
    """
    inside = [i for i, (_, first, last) in enumerate(words) if first < end and last > start]
    if not inside:
        return None
    whole = words[inside[0]][1] >= start and words[inside[-1]][2] <= end
    return (inside[0], inside[-1] + 1) if whole else None


def plain(text: str, language: str) -> str:
    """Return the words of a text in lower case, without punctuation and articles."""
    return " ".join(word for word, *_ in words_of(text, language))


def words_of(text: str, language: str = "xx") -> list[Word]:
    """Return the words of a text without its articles; punctuation belongs to none."""
    found = ((match[0].lower(), *match.span()) for match in plain_words(language).finditer(text))
    return [each for each in found if each[0] not in _ARTICLES]
