"""The rules: names are runs of capitalised words, numbers and dates match regular expressions."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from importlib import resources
from itertools import zip_longest
from types import SimpleNamespace
from typing import NamedTuple

from maskpolicy.data.corpus.segmentation import word_lists

lexicon = SimpleNamespace(
    # ordinary words that often start a sentence: alone they are not names
    COMMON=frozenset(
        resources.files(__package__).joinpath("common.txt").read_text("utf-8").split()
    ),
    **word_lists(__package__, "words.txt"),
)
_UPPER = "".join(c for c in map(chr, range(0x41, 0x590)) if c.isupper())
_ABBREVIATED = "|".join(
    w.capitalize() for w in sorted(lexicon.ABBREVIATIONS, key=len, reverse=True)
)
TOKEN = re.compile(
    rf"""(?<![\w@#])(?:
      (?:[{_UPPER}]\.)+                                                    # J. (R. R.), U.S.
    | (?:{_ABBREVIATED})\.                                                 # Dr., St.
    | (?:[ODLdl]|Mac)['’][{_UPPER}]\w+(?:-[{_UPPER}]\w*)*                  # O'Brien, d'Arc
    | (?:[aei]l-|[a-z](?=[{_UPPER}][a-z]))?[{_UPPER}]\w*(?:&[{_UPPER}]\w*)*
      (?:['’](?![sS]\b)\w+)?
      (?:[-–‑](?:(?:upon|on|sur|le|la|de|in|en|al|el)-)*(?:[{_UPPER}]\w*|\d+\b))*
    )""",
    re.VERBOSE,
)
START = re.compile(
    r"""(?:\A|[.!?…]["'”’)\]]*\s+|[:;—–]\s+|\n\s*|(?:(?<=\s)|(?<=\())["'“‘(\[])\s*["'“‘(\[*]*"""
)
LONGEST = 20  # maximum number of capitalised words in a name
_CONTRACTION = re.compile(r"n?['’](?:t|m|re|ve|ll|d|em)$", re.IGNORECASE)
_CONTRACTED = lexicon.FUNCTION | {"ca", "wo", "let", "y", "ai", "sha", "need"}
_PARTICLES = "|".join(sorted(lexicon.PARTICLES))
_BETWEEN = re.compile(rf"(?:\s(?:{_PARTICLES}))+\s|(?:\s[A-Z][a-z]+)+\s")  # van der; Without
_OF = re.compile(rf" of (?:the )?[{_UPPER}]")
_OWNED = re.compile(rf"['’]s [{_UPPER}]")
_BEFORE = re.compile(r"(?<!\w)(?:(?:de|von|van|du|di|da|della|bin)\s(?:(?:la|der|den|las)\s)?)\Z")
_SUFFIX = re.compile(
    r"\w{3,}(?:ing|ly|[ts]ions?|ments?|ness|it(?:y|ies)|isms?|olog(?:y|ies|ists?)|ical|ional|"
    r"[st]ive|ious|ous|able|ful|less|ship|wards|phic)\Z"
)
_VERBAL = re.compile(r"ed (?:by|in|at|to|on|from|with|as|over|for|of|the|an?|into|under|after)\b")
_PLURAL_VERB = re.compile(r" (?:are|were|have)\b")
_LOWER = re.compile(r"\b[^\W\d_A-Z]{3,}\b")
_WORD = re.compile(r"[^\W\d_]\w*")
_ORDINAL = re.compile(r"\b\d+(?:st|nd|rd|th) \Z")
_NUMBER = re.compile(r" \d+\b")
_ROMAN = re.compile(r"[IVX]+\Z")


@dataclass(slots=True)
class Token:
    """One capitalised word at characters [start, end)."""

    start: int
    end: int
    text: str
    low: str  # in lower case, without dots
    first: bool  # starts a sentence or a quotation, or is part of a headline


class NameContext(NamedTuple):
    """A text with the words that help to recognise names at the start of sentences."""

    text: str
    named: set[str]  # words with a capital inside a sentence
    ordinary: set[str]  # words in lower case


def find_names(text: str) -> list[tuple[int, int, str]]:
    """Return the names of `text` as (start, end, "NAME"), sorted and disjoint."""
    spans: list[tuple[int, int]] = []
    run: list[Token] = []
    for token in _candidates(text):
        if run and not _joins(text[run[-1].end : token.start], run, token):
            spans += _spans(text, run)
            run = []
        run.append(token)
    return [(start, end, "NAME") for start, end in spans + _spans(text, run)]


def _candidates(text: str) -> list[Token]:
    """Return the capitalised words that may be part of a name."""
    tokens = _tokens(text)
    named = {token.low for token in tokens if not token.first}
    context = NameContext(text, named, set(_LOWER.findall(text)))
    kept: list[Token] = []
    for token, after in zip_longest(tokens, tokens[1:]):
        surname = token.low in lexicon.SURNAMES and kept and kept[-1].end == token.start - 1
        if (surname and not token.first) or _may(token, after, context):
            kept.append(token)
    return kept


def _tokens(text: str) -> list[Token]:
    starts = {match.end() for match in START.finditer(text)}
    tokens: list[Token] = []
    for match in TOKEN.finditer(text):
        start, end = match.span()
        after_dot = bool(tokens) and tokens[-1].text[-1] == "." and tokens[-1].end == start - 1
        low = match[0].lower().replace(".", "").replace("’", "'")
        tokens.append(Token(start, end, match[0], low, start in starts and not after_dot))
    if len(tokens) > 3:
        _mark_headlines(text, tokens)
    return tokens


def _mark_headlines(text: str, tokens: list[Token]) -> None:
    """Mark every word of a headline as a first word."""
    if len(tokens) * 3 < text.count(" ") and "\n" not in text:
        return
    end, rest = 0, deque(tokens)
    for line in text.split("\n"):
        end += len(line) + 1
        own = []
        while rest and rest[0].start < end:
            own.append(rest.popleft())
        if len(own) > 3 and _headline(line):
            for token in own:
                token.first = True


def _headline(line: str) -> bool:
    """Return whether a line is mostly in capitals, or capitalises all but function words."""
    found = _WORD.findall(line)
    if sum(word.isupper() and len(word) > 1 for word in found) * 10 >= len(found) * 7:
        return True
    return line[-1] not in ".!?" and all(w[0].isupper() or w in lexicon.FUNCTION for w in found)


def _may(token: Token, after: Token | None, context: NameContext) -> bool:
    """Return whether a capitalised word may be part of a name."""
    low, text = token.low, context.text
    contraction = _CONTRACTION.search(low)
    if low in lexicon.NOT_NAMES or (contraction and low[: contraction.start()] in _CONTRACTED):
        return False
    follows = (
        after is not None
        and text[token.end : after.start] == " "
        and after.low not in lexicon.FUNCTION
        and after.low not in lexicon.NOT_NAMES
        and not (after.first and _common(after, context))
    )
    if low in lexicon.FUNCTION:  # All Blacks, U.S., WHO; not In London, The Hague
        capitals = low in lexicon.ACRONYMS and token.text.isupper()
        return "." in token.text or (
            not token.first and (capitals or (follows and low not in lexicon.ARTICLES))
        )
    if not token.first or (low in lexicon.OWNERS and _OWNED.match(text, token.end)):
        return True
    if follows:
        return low not in lexicon.DEMOTED and not (low in lexicon.COMMON and low[-3:] == "ing")
    if low in lexicon.OF_HEADS and _OF.match(text, token.end):
        return True
    return low in context.named or not _common(token, context)


def _common(token: Token, context: NameContext) -> bool:
    """Return whether a word is ordinary and has a capital only because of its position."""
    low, text = token.low, context.text
    if low in lexicon.COMMON or low in lexicon.DEMOTED or low in lexicon.ROLES:
        return True
    if low in lexicon.GIVEN:
        return False
    return bool(
        low in context.ordinary
        or (text[token.end : token.end + 1] == "-" and low in lexicon.PREFIXES)
        or _SUFFIX.match(low)
        or _VERBAL.match(text, token.end - 2)
        or (low[-1] == "s" and _PLURAL_VERB.match(text, token.end))
    )


def _joins(gap: str, run: list[Token], token: Token) -> bool:
    """Return whether `token` continues the name in `run` across the characters `gap`."""
    if len(run) == LONGEST:
        return False
    last, heads = run[-1], {one.low for one in run}
    if gap in (" ", " & "):
        dotted = last.text[-1] == "." and len(last.text) > 1
        same_headline = last.first and token.first and last.text[-1] not in ".!?"
        return not token.first or dotted or same_headline
    if gap in (", ", "\N{NO-BREAK SPACE}"):
        return gap != ", " or token.low in lexicon.TAILS
    if gap.lower() in (" of ", " of the "):
        alone = len(run) == 1 and not last.text.isupper() and last.low not in lexicon.NATIONALITIES
        roman = bool(_ROMAN.match(last.text))
        return not heads <= lexicon.ROLES - lexicon.OF_HEADS and (
            last.low in lexicon.OF_HEADS or alone or roman or run[0].low in ("st", "saint")
        )
    if gap in (" and ", " for ", " for the ", " on "):
        pair = f"{last.low}+{token.low}" in lexicon.PAIRS
        return pair or (bool(heads & lexicon.ORG_HEADS) and (gap != " and " or len(run) > 1))
    if gap in ("'s ", "’s ", "' ", "’ "):
        return token.low in lexicon.POSSESSIVE_HEADS or last.low in lexicon.OWNERS
    if gap == " the ":
        return token.low in lexicon.EPITHETS
    return gap == " upon " or _BETWEEN.fullmatch(gap) is not None


def _empty(token: Token) -> bool:
    """Return whether a word alone is not a name: an office, a title or a single letter."""
    titles = (lexicon.ROLES, lexicon.OFFICES, lexicon.TAILS)
    return any(token.low in words for words in titles) or len(token.text.rstrip(".")) < 2


def _spans(text: str, run: list[Token]) -> list[tuple[int, int]]:
    """Return the character ranges of the names in one run of tokens."""
    if len(run) > 1 and run[0].low in lexicon.NATIONALITIES and run[1].low in lexicon.ROLES:
        return [(run[0].start, run[0].end), *_spans(text, run[1:])]
    while run and run[-1].low in lexicon.ABBREVIATIONS and run[-1].text[-1] == ".":
        run = run[:-1]
    if all(_empty(token) for token in run):
        return []
    start, end = run[0].start, run[-1].end
    if run[-1].low in lexicon.NUMBERED and (number := _NUMBER.match(text, end)):
        end = number.end()
    if run[0].low in lexicon.COUNTED and (
        ordinal := _ORDINAL.search(text, max(0, start - 7), start)
    ):
        start = ordinal.start()
    if before := _BEFORE.search(text[max(0, start - 12) : start]):
        start -= len(before[0])
    return [(start, end)]


_ONES = "one|two|three|four|five|six|seven|eight|nine"
_TEENS = (
    "ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen|"
    "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
)
_SCALES = "hundred|thousand|million|billion|trillion|dozen"
_NAMED = rf"(?:{_TEENS}|{_ONES}|{_SCALES})"
_ORDINALS = (
    r"(?:(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)-)?"
    r"(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth)|tenth|eleventh|twelfth|"
    r"thirteenth|fourteenth|fifteenth|sixteenth|seventeenth|eighteenth|nineteenth|twentieth|"
    r"thirtieth|fortieth|fiftieth|hundredth|thousandth"
)
_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December|"
    r"(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\b\.?)"
)
_CAPITALS = "JANUARY|FEBRUARY|MARCH|APRIL|MAY|JUNE|JULY|AUGUST|SEPTEMBER|OCTOBER|NOVEMBER|DECEMBER"
_AFTER = (  # marks March and May as months; lookbehinds need a fixed width
    r"(?:(?<=\b(?:in|of|by)\s)|(?<=\b(?:last|next|this|from|late|till)\s)|"
    r"(?<=\b(?:since|until|early)\s)|(?<=\bduring\s))"
)
_WEEKDAY = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_DAY = r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?"
_DAYS = rf"{_DAY}(?:\s?[-–/]\s?{_DAY}|\s(?:and|to)\s{_DAY})?"
_ERA = r"(?:\s?(?:BCE|BC|CE|AD|B\.C\.E?\.?|A\.D\.))"
_YEAR = r"(?:1\d{3}|20\d\d)"
_CENTURY = r"[-\s]centur(?:y|ies)"

# the possible beginnings of dates and numbers: most words are skipped at once
_DATE_BEGINS = (
    r"(?=\d|[ACDEFJMNOSTW]|sp|su|au|fa|wi|mid-|pre-|post-|f[io]|s[ei]|t[ehw]|e[il]|ni|hu)"
)
_NUMBER_BEGINS = (
    r"(?=[-−+\d$€£¥]|[A-Z]{1,3}[$€£¥]|an?\s|qu|bi|do|e[il]|f[io]|h[au]|mi|ni|on|s[ei]|t[ehrw])"
)

DATE = re.compile(
    rf"""\b{_DATE_BEGINS}(?:
      (?:{_WEEKDAY},?\s)?(?:
          {_DAYS}\s(?:of\s)?{_MONTH}(?:,?\s\d{{4}}\b{_ERA}?)?      # 12 March 1871, 3rd of May
        | {_MONTH}\s{_DAYS}\b(?!\s(?:{_SCALES}))(?:,?\s\d{{4}}\b)?  # March 12, 1871; May 3
        | {_MONTH},?\s(?:of\s)?\d{{4}}\b                            # March 1871
      )
    | {_DAYS}\s(?:{_CAPITALS})(?:,?\s\d{{4}}\b)?
    | {_WEEKDAY}(?:\s(?:morning|afternoon|evening|night))?
    | (?:January|February|April|June|July|August|September|October|November|December)
      (?!\s[A-Z]|['’]s)
    | {_AFTER}(?:March|May)(?!\s[A-Z])                          # in May, but not Theresa May
    | (?:spring|summer|autumn|fall|winter|Christmas|Easter)\s(?:of\s)?{_YEAR}
    | \d{{4}}-\d\d-\d\d | \d\d?/\d\d?/\d{{4}}
    | (?:(?:mid|pre|post)-)?{_YEAR}(?:s\b|\s?[-–/]\s?(?:{_YEAR}|\d\d)\b{_ERA}? )
    | (?:AD|A\.D\.)\s\d{{1,4}} | \d{{1,4}}(?:[-–]\d{{1,4}})?{_ERA}
    | (?:mid-)?(?:\d{{1,2}}(?:st|nd|rd|th)|{_ORDINALS})
      (?:\s?(?:and|to|or|-|–)\s?(?:\d{{1,2}}(?:st|nd|rd|th)|{_ORDINALS}))?{_CENTURY}{_ERA}?
    | {_YEAR}(?![\d,.]*\d|-)
    | (?P<TIME>\d{{1,2}}[:.]\d\d\s?(?:[ap]\.m\.|[ap]m\b) | \d{{1,2}}\s?(?:[ap]\.m\.|[ap]m\b)
      | (?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?)
    )(?!\w)
    | (?<!\w)['’]\d0s\b""",
    re.VERBOSE,
)

_UNIT = (
    r"(?:per\scent|percent(?:age\spoints)?|%|°\s?[CF]|"
    r"(?:square|cubic|nautical|metric)[-\s](?:\w+)|"
    r"(?:kilo|centi|milli|nano|micro)?met(?:re|er)s?|km²|km2|km/h|km|cm|mm|m²|m|miles?|mi|"
    r"feet|foot|ft|inch(?:es)?|yards?|acres?|hectares?|light[-\s]years?|fathoms?|leagues?|"
    r"(?:kilo)?grams?|(?:kilo)?grammes?|kg|g|mg|tonnes?|tons?|pounds?|lbs?|ounces?|oz|stone|"
    r"(?:milli)?lit(?:re|er)s?|gallons?|pints?|barrels?|bushels?|"
    r"dollars?|euros?|cents?|pence|yen|rupees?|francs?|marks|rubles|roubles|shillings?|guineas?|"
    r"degrees?(?:\s(?:Celsius|Fahrenheit|centigrade|north|south|east|west))?|kelvins?|K|"
    r"mph|knots|(?:kilo|mega|giga|tera)?(?:watts?|hertz|bytes?|volts?|tons?)|[kMGT]?eV|[kMG]Wh?|[kMG]Hz|"
    r"[kMGT]B|horsepower|hp|"
    r"years?(?:-old)?|months?|weeks?|days?|nights?|hours?|minutes?|seconds?|decades?|centuries|century|"
    r"milliseconds)"
)
_TIME = r"(?:second|minute|hour|day|week|month|year)"
_PER = rf"(?:\sper\s(?:{_TIME}|square\s\w+)|\san\shour)"
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_MONEY = r"(?:[A-Z]{0,3}[$€£¥])"
_WORDS = (
    rf"(?:(?:an?\s)?(?:half|quarter)(?:\sa|\sof\sa)\s)?{_NAMED}(?:(?:[-\s]|\sand\s){_NAMED}){{0,9}}"
)

NUMBER = re.compile(
    rf"""(?<![\w.]){_NUMBER_BEGINS}(?:
        (?:\d+\s)?\d{{1,2}}/\d{{1,2}}(?!/)
      | {_MONEY}\s?{_DIGITS}(?:\s?[-–]\s?{_MONEY}?{_DIGITS})?(?:\s?(?:{_SCALES}|bn|tn|m|k)\b)?
      | (?:[-−+])?{_DIGITS}(?:\s?[-–]\s?{_DIGITS}|\sto\s{_DIGITS}(?=\s(?:{_SCALES}|{_UNIT})\b))*
        (?:\s(?:{_SCALES})\b)*(?:[-\s]?{_UNIT}(?!\w){_PER}?)?
      | \d+(?:st|nd|rd|th)
      | (?:{_ORDINALS})(?![-\w])
      | half\sa(?:\s(?:{_SCALES}))?(?:\s{_UNIT}(?!\w))?(?<!\sa)
      | (?:two|three)-(?:thirds|quarters|fifths)
      | (?:an?\s)?(?:{_SCALES})(?:\s{_UNIT}(?!\w){_PER}?)?(?![-\w])
      | {_WORDS}(?:\sto\s{_WORDS})?(?:[-\s]{_UNIT}(?!\w){_PER}?)?(?![-\w])
    )(?!\w)""",
    re.VERBOSE | re.IGNORECASE,
)
_NOT_NUMBERS = {"one", "first", "second"}  # mostly pronouns and adverbs


def find_numbers(text: str) -> list[tuple[int, int, str]]:
    """Return dates and times of day (DATE, TIME), then numbers (NUMBER); they may overlap."""
    found = [(*match.span(), match.lastgroup or "DATE") for match in DATE.finditer(text)]
    return found + [
        (*match.span(), "NUMBER")
        for match in NUMBER.finditer(text)
        if match[0].lower() not in _NOT_NUMBERS
    ]
