"""Words and offsets by WordPiece, SentencePiece and byte-level tokenizers, found a second way."""

from bisect import bisect_right
from functools import cache
from operator import itemgetter
from unicodedata import category

import encoders as tiny
import pytest
import small
import text_to_text
from tokenizers import AddedToken
from tokenizers.pre_tokenizers import Metaspace

from maskpolicy.data.corpus.passages import Document, cut_document, tokenize

TEXT_TO_TEXT = ("t5", "mbart", "mbart50", "pegasus", "nllb", "t5gemma")
KINDS = (
    *("bert", "cased", "mpnet", "albert", "xlm-roberta", "camembert", "deberta-v2", "modernbert"),
    *("roberta", "own", "bert+added", "t5+unsplit", *TEXT_TO_TEXT),
)
WORDPIECE = ("bert", "cased", "mpnet")
HARD = (
    "Café ZÜRICH naïve, the Oder's two  mills\nNew line: 3.14 (a) x-ray!",
    "  two  blanks \t and\n\n a tab 🙂 日本語 हिन्दी ﬁne “Q” …  ",
    " Berliners and two blanks, Rome's mills",
    "Rome",
    "",
)


def tokenizer(kind):
    if kind == "own":  # adds a blank to each text
        return small.tokenizer()
    made = (text_to_text if kind in TEXT_TO_TEXT else tiny).tokenizer(kind.partition("+")[0])
    if kind == "t5+unsplit":  # a piece may end in the blank before the next word
        made.backend_tokenizer.pre_tokenizer = Metaspace(split=False)
    if kind == "bert+added":
        made.add_tokens([AddedToken("mills", lstrip=True), " blanks"])
    return made


def passages(kind, text):
    return next(tokenize([Document("it", text)], tokenizer(kind)))


@cache
def words_of(text):
    """Return the characters of each word, character by character: letters, or one other sign."""
    found, at = [], 0
    while at < len(text):
        end = at + 1
        if is_letter(text[at]):
            while end < len(text) and (is_letter(text[end]) or is_inside(text, end)):
                end += 1
        if not text[at].isspace():
            found.append((at, end))
        at = end
    return found


def is_letter(char):
    return char.isalnum() or char in "_\u200c\u200d" or category(char).startswith("M")


def is_inside(text, at):
    return text[at] in "'’.-" and at + 1 < len(text) and is_letter(text[at + 1])


def check(kind, text):
    """Compare the words of a passage with those of `words_of`, token by token."""
    passage, words = passages(kind, text), words_of(text)
    owners, previous = [], None
    for begin, end in passage.offsets.tolist():
        visible = [at for at in range(begin, end) if not text[at].isspace()]
        assert not visible or begin == visible[0]
        if visible:
            previous = bisect_right(words, visible[0], key=itemgetter(0)) - 1
        owners.append(previous if visible else None)
    grouped = [
        {each for each in owners[a:b] if each is not None} for a, b in passage.words.tolist()
    ]
    assert all(len(group) <= 1 for group in grouped)
    numbers = [number for group in grouped for number in group]
    assert numbers == sorted(set(numbers))
    if kind in WORDPIECE:
        surfaces = [
            (int(passage.offsets[a, 0]), int(passage.offsets[b - 1, 1])) for a, b in passage.words
        ]
        assert surfaces == [word for word in words if word[0] in dict(surfaces)]
    return passage, words


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_belong_to_the_word_of_their_first_visible_character(kind):
    for text in (*HARD, *small.TEXTS):
        check(kind, text)


@pytest.fixture(scope="module")
def real_texts(real_data):
    """Return real text in parts of at most 100 words."""
    text = next((real_data / "wikitext2").glob("*.raw")).read_text(encoding="utf-8")[:10_000]
    lines = (line for line in text.split("\n \n") if line.strip())
    return [part.text for line in lines for part in cut_document(Document("", line), 100)]


@pytest.mark.parametrize("kind", KINDS)
def test_words_of_real_text_are_those_that_a_reader_finds(kind, real_texts):
    count = 0
    for text in real_texts:
        passage, words = check(kind, text)
        assert len(passage.words) <= len(words)
        if kind in WORDPIECE:
            assert len(passage.words) == len(words)
        count += len(words)
    assert count > 1_200


@pytest.mark.parametrize("kind", TEXT_TO_TEXT)
def test_a_piece_stands_for_the_characters_of_its_offsets(kind, real_texts):
    made = tokenizer(kind)
    for text in real_texts[:24]:
        passage, covered = passages(kind, text), set()
        for token, (begin, end) in zip(passage.tokens, passage.offsets.tolist(), strict=True):
            piece = made.convert_ids_to_tokens(int(token)).replace("▁", "")
            characters = text[begin:end].strip()
            covered |= set(range(begin, end))
            if int(token) != made.unk_token_id and piece and not piece.startswith("<0x"):
                assert piece == "".join(characters.split())
        assert covered >= {at for at, char in enumerate(text) if not char.isspace()}


@pytest.mark.parametrize("kind", TEXT_TO_TEXT)
def test_special_tokens_in_a_text_are_ordinary_text(kind):
    made = tokenizer(kind)
    names = (made.mask_token or "<extra_id_0>", made.eos_token, made.pad_token)
    passage = passages(kind, f"Anna {names[0]} met {names[1]}, then {names[2]}.")
    special = set(made.all_special_ids) - {made.unk_token_id}
    assert not special & set(passage.tokens.tolist())
