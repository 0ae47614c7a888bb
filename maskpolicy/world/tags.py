"""Gold parts of speech of the world's own text: every word that it can write is known here."""

from __future__ import annotations

from collections.abc import Sequence

_WORDS = {
    "ADJ": "equal favourite first full harder last less more much old other softer",
    "ADP": "as at beside by for from in into near of on through up with",
    "ADV": "ago down here long only so where",
    "AUX": "are do was",
    "CCONJ": "and",
    "DET": "a an the",
    "NOUN": (
        "advice award banks bird birds birth birthplace book choice company craft date days "
        "death discovery drawing employer fields fish flower grave home house kind lessons "
        "letter letters living marriage name nesting page people place river road salt school "
        "steel teacher town tree wedding wheat world writer year youth"
    ),
    "NUM": "one two",
    "PRON": "he her him his it its nobody she that there this what which who",
    "VERB": (
        "awarded became becomes born called came celebrated christened comes describe described "
        "describes died dig discovered drinks earned educated employed fell find found gave "
        "give gives grew had held honoured keep keeps kept known knows learn learned liked "
        "lived lives makes married named nests owed owes read remember remembered says seen "
        "signed sold spent stands stood swim took torn turns went won worked written wrote"
    ),
}
LEXICON = {word: tag for tag, words in _WORDS.items() for word in words.split()}
_POSSESSIVE = ("her", "his", "its")


def tag(words: Sequence[str], is_name: Sequence[bool]) -> list[str]:
    """Return the Universal Dependencies tag of each word of an entry.

    `is_name` says which words lie in a gold entity. A word outside of them that no wording has is
    the common noun of a bird or a salt.
    """
    tags = []
    for place, (word, named) in enumerate(zip(words, is_name, strict=True)):
        small = word.lower()
        before = words[place - 1].lower() if place else ""
        after = words[place + 1].lower() if place + 1 < len(words) else ""
        if not any(char.isalnum() for char in word):
            tags.append("PUNCT")
        elif word.isdecimal():
            tags.append("NUM")
        elif named:
            tags.append("PROPN" if word[0].isupper() else LEXICON.get(small, "PROPN"))
        else:
            tags.append(_in_context(small, before, after))
    return tags


def _in_context(word: str, before: str, after: str) -> str:
    """Return the tag of a word of the wordings; a few depend on their neighbours."""
    if word == "to":
        return "PART" if after in ("describe", "find", "swim") else "ADP"
    if word == "is":
        return "VERB" if before == "there" else "AUX"
    if word == "only" and before in _POSSESSIVE:
        return "ADJ"
    if word == "first" and before == "was":
        return "ADV"
    return LEXICON.get(word, "NOUN")
