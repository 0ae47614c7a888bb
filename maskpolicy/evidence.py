"""Finds answers in documents: the first window of words that holds one."""

from __future__ import annotations

import re
from collections.abc import Iterable

_TOKEN = re.compile(r"[^\W_]+")
_WORD = re.compile(r"\S+")
_ARTICLES = {"a", "an", "the"}


def window(document: str, answers: Iterable[str], words: int = 100) -> str | None:
    """Return the first window of `words` blank-separated words that holds an answer whole.

    Windows overlap by half, so that no answer is cut. Answers are compared as lower-case words
    without punctuation and articles (TriviaQA's normalisation).
    """
    span = occurrence(document, answers)
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


def occurrence(document: str, answers: Iterable[str]) -> tuple[int, int] | None:
    """Return the characters (start, end) of the first occurrence of any answer, or None."""
    tokens = [
        (match[0].lower(), *match.span())
        for match in _TOKEN.finditer(document)
        if match[0].lower() not in _ARTICLES
    ]
    text = "".join(f" {token}" for token, _, _ in tokens) + " "
    hits = []
    for answer in answers:
        wanted = plain(answer)
        at = text.find(f" {wanted} ") if wanted else -1
        if at >= 0:
            hits.append((at, wanted.count(" ")))
    if not hits:
        return None
    at, more = min(hits)
    index = text.count(" ", 0, at)
    return tokens[index][1], tokens[index + more][2]


def plain(text: str) -> str:
    """Return the words of a text in lower case, without punctuation and articles."""
    found = (match[0].lower() for match in _TOKEN.finditer(text))
    return " ".join(word for word in found if word not in _ARTICLES)
