"""Documents to passages: bounds that cover every token, columns that move with the text."""

import tracemalloc

import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.core.errors import DataError
from maskpolicy.data.corpus import passages as corpus

PIECES = (
    *("Anna", "Zürich", "don't", "x-ray", "3.14", "naïve", "e\u0301te\u0301s", "हिन्दी", "日本語"),
    *("🙂", "👩\u200d👧", "🇩🇪", "ﬁ", "ß", "\u200b", "\xa0", "…", "“Q”", "(a)", ".", "!?", "--"),
    *small.SPECIALS,
)
BLANKS = (" ", "  ", "\n", "\n\n", "\t", "")
TEXT = st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(BLANKS)), max_size=12).map(
    lambda pairs: "".join(piece + blank for piece, blank in pairs)
)
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(TEXT | ANY)
def test_tokens_are_in_one_word_and_sentence_and_only_blanks_in_no_token(text):
    passage = small.passage(text)
    for ranges in (passage.words, passage.sentences):
        covered = [token for a, b in ranges.tolist() for token in range(a, b)]
        assert covered == list(range(len(passage.tokens)))
        assert (ranges[:, 0] < ranges[:, 1]).all()
    starts, ends = passage.offsets.T
    assert (np.diff(starts) >= 0).all() and (starts <= ends).all()
    assert ((starts >= 0) & (ends <= len(text))).all()
    covered = {place for a, b in passage.offsets.tolist() for place in range(a, b)}
    assert all(char.isspace() for place, char in enumerate(text) if place not in covered)
    assert not set(passage.tokens.tolist()) & set(small.tokenizer().all_special_ids)
    assert small.tokenizer().decode(passage.tokens).strip() == text.strip()


@given(TEXT | ANY, st.integers(1, 4), st.data())
def test_cutting_keeps_words_in_order_and_the_text_of_every_column_that_fits(text, words, data):
    span = st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).map(sorted)
    spans = [span for span in data.draw(st.lists(span, max_size=4)) if span[0] < span[1]]
    pieces = list(corpus.cut_document(corpus.Document("d", text, {"c": spans}), words))
    assert [word for piece in pieces for word in piece.text.split()] == text.split()
    assert all(0 < len(piece.text.split()) <= words for piece in pieces)
    assert len({piece.id for piece in pieces}) == len(pieces)
    kept = [piece.text[a:b] for piece in pieces for a, b in piece.columns["c"]]
    wanted = [text[a:b] for a, b in spans]
    assert all(kept.count(one) <= wanted.count(one) for one in kept)
    if len(pieces) == 1 and pieces[0].text == text:
        assert sorted(kept) == sorted(wanted)
    assert all(0 <= a < b <= len(p.text) for p in pieces for a, b in p.columns["c"])


@given(st.lists(TEXT, max_size=6), st.integers(1, 60))
def test_packed_documents_have_the_words_and_columns_of_all(texts, most):
    texts = [text for text in texts if text.strip()]
    documents = [
        corpus.Document(f"{'ab'[n // 4]}:{n}", text, {"c": [[0, len(text)]]})
        for n, text in enumerate(texts)
    ]
    made = list(corpus.packed(documents, most))
    found = [document.text[a:b] for document in made for a, b in document.columns["c"]]
    assert found == texts
    assert " ".join(document.text for document in made).split() == " ".join(texts).split()
    # files stay apart, and what is joined ends with the document that completes it
    files = [document.id[0] for document in made]
    full = [len(document.text) >= most - 2 for document in made]
    assert all(full[n] or files[n + 1] != files[n] for n in range(len(made) - 1))


def test_a_column_that_some_document_lacks_names_both():
    documents = [corpus.Document("a", "one", {"c": []}), corpus.Document("b", "two")]
    with pytest.raises(DataError, match="document 'b': column 'c'"):
        corpus.build_passages(documents, small.tokenizer(), words=9)


@given(st.lists(TEXT.filter(str.strip), min_size=1, max_size=4))
def test_mapped_passages_equal_what_was_built(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("corpus")
    documents = [
        corpus.Document(f"d{index}", text, {"all": [[0, len(text)]], "none": []})
        for index, text in enumerate(texts)
    ]
    corpus.write_passages(
        folder / corpus.PASSAGES_FILE, corpus.passage_rows(documents, small.tokenizer(), words=50)
    )
    opened = corpus.Passages.open(folder)
    assert set(opened.columns) == {"all", "none"}
    for mapped, document in zip(opened, documents, strict=True):
        (made,) = corpus.tokenize([document], small.tokenizer())
        assert (mapped.id, mapped.text) == (document.id, document.text)
        for name in ("tokens", "offsets", "words", "sentences"):
            assert getattr(mapped, name).tolist() == getattr(made, name).tolist()
        for name in ("all", "none"):
            assert mapped.columns[name].tolist() == made.columns[name].tolist()
            assert mapped.columns[name].shape[1] == 2


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tmp_path):
    def peak(count):
        """Return the most bytes that Python and numpy held while so many passages were written."""
        documents = (corpus.Document(f"d{n}", f"{n} {small.TEXTS[0]}") for n in range(count))
        rows = corpus.passage_rows(documents, small.tokenizer(), words=100)
        tracemalloc.start()
        try:
            corpus.write_passages(tmp_path / corpus.PASSAGES_FILE, rows)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(2000) < 1.1 * peak(500)


@given(st.lists(st.integers(1, 18), max_size=8), st.integers(1, 4))
def test_no_character_of_a_word_is_lost_by_cutting(lengths, words):
    text = " ".join("x" * length for length in lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "_LONGEST", 7)
        found = list(corpus.cut_document(corpus.Document("d", text), words))
    assert "".join(each.text for each in found).count("x") == sum(lengths)
    assert all(len(part) <= 7 for each in found for part in each.text.split())
    assert all(len(each.text.split()) <= words for each in found)


def covered(text, found):
    """Return the characters of a text that no token stands for."""
    left = list(text)
    for begin, end in found.offsets:
        left[begin:end] = " " * (end - begin)
    return "".join(left).strip()


@given(st.text("ab .-", max_size=60))
def test_texts_without_a_long_word_are_one_piece(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "_LONGEST", 5)
        found = corpus.pieces(text)
        is_long = any(len(word) > 5 for word in text.split())
        assert (len(found) > 1) == is_long
        assert "".join(text[a:b] for a, b in found) == text
        assert all(len(part) <= 5 for a, b in found for part in text[a:b].split())
        inside = corpus.encode([text], small.tokenizer())[0]
    whole = corpus.encode([text], small.tokenizer())[0]
    assert covered(text, inside) == covered(text, whole)
    if not is_long:
        assert (inside.ids, inside.offsets) == (whole.ids, whole.offsets)


def test_a_policy_cannot_change_a_passage_for_its_later_calls():
    text, spans = "Anna Kovar was born in Rome.", [[0, 10], [23, 27]]
    document = corpus.Document("d", text, {"names": spans})
    [passage] = corpus.tokenize([document], small.tokenizer())
    cut = corpus.first_tokens(passage, 5)
    arrays = [passage.pieces, cut.tokens, cut.words, cut.sentences, *cut.columns.values()]
    arrays += [passage.tokens, passage.words, passage.sentences, *passage.columns.values()]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            np.random.default_rng(0).shuffle(array)
