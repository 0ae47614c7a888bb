"""Words and sentences of text in several languages, and of English with abbreviations."""

import subprocess
import sys
from itertools import pairwise

import pytest
import small
import text_to_text
from hypothesis import given
from hypothesis import strategies as st
from languages import SENTENCES

from benchmarks.sentences import counts
from maskpolicy import ConfigError
from maskpolicy.data.corpus import passages as corpora
from maskpolicy.data.corpus import pipeline_identity, stop_words
from maskpolicy.data.corpus.segmentation import rules_version, segmenter
from maskpolicy.experiment.definition import CorpusBlock
from maskpolicy.experiment.model_and_corpus import check_language, mixed_texts
from maskpolicy.plugins.discovery import instance


def sentences(text: str, language: str) -> list[str]:
    bounds = [*segmenter(language).sentences(text), len(text)]
    return [text[a:b].strip() for a, b in pairwise(bounds) if a < b]


@pytest.mark.parametrize("language", SENTENCES)
def test_sentences_end_where_a_reader_ends_them(language):
    known = SENTENCES[language]
    blank = "" if language in ("zh", "ja") else " "
    assert sentences(blank.join(known), language) == known
    assert sentences("\n".join(known), language) == known


HARD = {"hard cases": {"sentences": 75, "whole": 73, "missed": 0, "false": 3}}


def test_hard_cases_of_english_are_found_but_for_three():
    assert counts(segmenter().sentences, None) == HARD


def test_sentences_of_novels_and_news_end_where_a_reader_marked_it(real_data):
    assert counts(segmenter().sentences, real_data / "english") == {
        **HARD,
        "novels": {"sentences": 135, "whole": 130, "missed": 2, "false": 1},
        "news": {"sentences": 137, "whole": 136, "missed": 0, "false": 1},
    }


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("zh", "他在1934年出生。", ["他", "在", "1934", "年", "出", "生", "。"]),
        ("ja", "猫のテキスト", ["猫", "の", "テキスト"]),
        ("th", "ที่นี่", ["ที่", "นี่"]),
        ("hi", "हिन्दी भाषा।", ["हिन्दी", "भाषा", "।"]),
        ("ru", "по-своему, д'Артаньян", ["по-своему", ",", "д'Артаньян"]),
        ("en", "他在1934年", ["他在1934年"]),
    ],
)
def test_characters_of_scripts_without_blanks_are_words(language, text, words):
    assert [match[0] for match in segmenter(language).words.finditer(text)] == words


@pytest.mark.parametrize(
    ("language", "known"),
    [
        # half-width marks before characters without blanks
        *(
            (code, ["本当?", "そうです!", "「何?」と言った。", "OK?No 3.5!"])
            for code in ("zh", "ja")
        ),
        # an abbreviation, before a word that may or may not begin a name
        ("fr", ["Il part à 8 h. Élise dort. ", "Il part à 8 h. ", "Elle dort."]),
    ],
)
def test_hard_cases_of_other_languages(language, known):
    assert sentences("".join(known), language) == [each.strip() for each in known]


@pytest.mark.parametrize("language", ["zh", "ja", "th"])
def test_passages_of_text_without_blanks_are_cut_and_keep_all_of_it(language):
    text = "".join(SENTENCES[language]).replace(" ", "") * 50
    parts = list(corpora.cut_document(corpora.Document("d", text, language=language), 100))
    assert "".join(part.text for part in parts) == text
    assert max(len(part.text) for part in parts) <= 250
    assert {part.language for part in parts} == {language}


@given(
    st.sampled_from(sorted(SENTENCES)),
    st.sampled_from(["bart", "t5", "t5gemma", "bert2bert", "pegasus"]),
    st.integers(2, 40),
    st.randoms(use_true_random=False),
)
def test_passages_of_tokens_keep_all_text_and_are_full(language, name, most, random):
    blank = "" if language in ("zh", "ja", "th") else random.choice([" ", "\n", " \n "])
    text = blank.join(random.sample(SENTENCES[language] * 2, 7))
    tokenizer = text_to_text.tokenizer(name)
    document = corpora.Document("d", text, {"first": [[0, 3]]}, language)
    parts = list(corpora.cut_by_tokens(document, most, tokenizer))
    assert "".join("".join(part.text for part in parts).split()) == "".join(text.split())
    found = list(corpora.tokenize(parts, tokenizer))
    for one in found:
        assert len(one.tokens) <= most or len(one.text) == 1
    assert {part.language for part in parts} == {language}
    assert sum(len(one.columns["first"]) for one in found) == (len(parts[0].text) > 2)
    if most > 20:  # a passage is as long as words allow
        assert all(len(one.tokens) > most // 3 for one in found[:-1])


def test_policies_read_the_words_of_the_language():
    document = corpora.Document("d", "猫は好き。犬も好き。鳥。", language="ja")
    passage = corpora.build_passages([document], small.tokenizer(), 99)[0]
    (importance,) = instance("policy", "gap-sentences", {}).annotate([passage])["importance"]
    assert importance[0] > importance[2]
    with pytest.raises(ConfigError, match=r"for English, and .* language is ja: set `pipel"):
        instance("policy", "salient-span", {}).annotate([passage])


def test_texts_that_are_mixed_in_are_read_like_the_corpus_unless_they_state_one():
    mix = {
        "one": {"files": ["a.txt"], "share": 0.1},
        "two": {"files": ["b.txt"], "share": 0.1, "language": "en", "pack": False},
    }
    found = mixed_texts(CorpusBlock(files=("c.txt",), language="fr", pack=True, mix=mix))
    facts = [(text.corpus.language, text.corpus.pack) for text in found if text.corpus]
    assert facts == [("fr", True), ("en", False)]


def test_english_needs_no_spacy():
    code = (
        "import sys; sys.modules['spacy'] = None; from maskpolicy.data import corpus; "
        "from maskpolicy.data.corpus.segmentation import segmenter; "
        "segmenter().sentences('Dr. A. B came. He left.'); "
        "sys.exit(corpus.pipeline_identity(None)['spacy'] is not None)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "needs_it",
    [
        *(lambda: pipeline_identity("en_core_web_sm"), lambda: stop_words("la")),
        *(lambda: check_language("ja", "language"), lambda: rules_version("ja")),
        lambda: instance("policy", "keywords", {}).depends(),
    ],
)
def test_what_needs_spacy_names_the_extra(needs_it, monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(ConfigError, match=r"pip install 'maskpolicy\[spacy\]'$"):
        needs_it()


@pytest.mark.parametrize(("language", "text"), [("th", "ที่นี่อยู่กร่ำ"), ("xx", "ព្រះរាជា")])
def test_a_passage_never_begins_with_a_mark_of_the_character_before_it(language, text):
    parts = list(corpora.cut_document(corpora.Document("d", text, language=language), 1))
    words = [match[0] for match in segmenter(language).words.finditer(text)]
    assert [part.text for part in parts] == words
