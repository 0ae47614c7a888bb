"""Words and sentences of text in several languages, and of English with abbreviations."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest
import small

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Passage
from maskpolicy.data.corpus.passages import Document, Passages, build_passages, cut_document
from maskpolicy.data.corpus.segmentation import segmenter
from maskpolicy.experiment.definition import CorpusBlock
from maskpolicy.experiment.model_and_corpus import corpus_block, mixed_texts
from maskpolicy.plugins.discovery import instance

# a sentence a line; Universal Declaration of Human Rights, openings of novels, and a few made here
SENTENCES = {
    "ru": """
        Все люди рождаются свободными и равными в своём достоинстве и правах.
        Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему.
        Всё смешалось в доме Облонских.
        А. С. Пушкин родился в Москве в 1799 г. в дворянской семье.
        «Кто там?» — спросил он.
        Никто не ответил!
        Он жил на ул. Мойка, д. 12.
    """,
    "el": """
        Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.
        Πού πας;
        Πάω στο σπίτι μου.
        Ο κ. Παπαδόπουλος ήρθε χθες.
        Ωραία!
        Η Αθήνα είναι η πρωτεύουσα της Ελλάδας.
    """,
    "ar": """
        يولد جميع الناس أحرارا متساوين في الكرامة والحقوق.
        هل قرأت الكتاب؟
        نعم، قرأته أمس.
        ذهب الولد إلى المدرسة.
        ما أجمل هذا اليوم!
        القاهرة عاصمة مصر.
    """,
    "zh": """
        人人生而自由,在尊严和权利上一律平等。
        你去哪里？
        我去学校！
        话说天下大势，分久必合，合久必分。
        他在1934年出生于北京。
        这本书很有意思。
    """,
    "ja": """
        吾輩は猫である。
        名前はまだ無い。
        どこで生れたかとんと見当がつかぬ。
        「もう帰る。」と彼は言った。
        本当ですか？
        国境の長いトンネルを抜けると雪国であった。
    """,
    "th": """
        มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน
        ฉันไปโรงเรียน
        เขาอยู่บ้าน
        กรุงเทพเป็นเมืองหลวงของประเทศไทย
    """,
    "pl": """
        Wszyscy ludzie rodzą się wolni i równi w swojej godności i prawach.
        Prof. Nowak mieszka przy ul. Długiej w Krakowie.
        Świeciło słońce.
        Czy widziałeś np. Wawel?
        Łódź jest dużym miastem!
        Urodził się 3. Maja.
    """,
    "cs": """
        Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv.
        Dr. Novák přišel 3. května.
        Šel domů, např. s Petrem.
        Říkal jsi něco?
        Žádný učený z nebe nespadl.
    """,
    "de": """
        Alle Menschen sind frei und gleich an Würde und Rechten geboren.
        Am 3. Oktober kam Dr. Müller z. B. nach Berlin.
        Er blieb bis ca. 5 Uhr.
        Überall war Ruhe.
        „Wer ist da?“ fragte er.
        Jemand musste Josef K. verleumdet haben.
    """,
    "fr": """
        Tous les êtres humains naissent libres et égaux en dignité et en droits.
        Longtemps, je me suis couché de bonne heure.
        M. Dupont est parti à 8 h du matin.
        Élise dort encore.
        « Viens ! » dit-il.
        Où vas-tu ?
    """,
    "hi": """
        सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।
        राम घर गया।
        सीता कहाँ है?
        डॉ. शर्मा कल आए।
        यह किताब बहुत अच्छी है!
    """,
    "en": """
        Dr. Smith met J. K. Rowling in St. Louis, Mo.
        He paid $3.50.
        “Why?” she said.
        “It is 5 p.m. now.”
        The U.S. Senate met on Jan. 5 at the home of Gen. R. E. Lee.
        He lives in the U.S.
        The end came...
        Or did it?
        No.
        Karl left.
        See No. 5 and Figs. 3 and 4.
        Mr. and Mrs. Bennet of Longbourn, Esq., came with Lt. Col. Fitzwilliam vs. Mr. X.
        It was 1934.
        Élise went home at 3.15.
        “I am no bird; and no net ensnares me.”
        (She was right.)
        Call me Ishmael.
        Some years ago -- never mind how long -- I thought I would sail about.
        “What is his name?”
        “Bingley.”
        “Is he married or single?”
        Apples, pears, etc. are fruit.
        He bought apples, pears, etc.
        They were good!
        Was it I?
        It was he!
        Berg & Co. Ltd. made 1,000,000 of them by 9 a.m.
        “Stop!” cried Mr. Darcy; “stop!”
        She stopped.
    """,
}


def lines(language: str) -> list[str]:
    return [line.strip() for line in SENTENCES[language].strip().splitlines()]


def sentences(text: str, language: str) -> list[str]:
    bounds = [*segmenter(language).sentences(text), len(text)]
    return [text[a:b].strip() for a, b in pairwise(bounds) if a < b]


@pytest.mark.parametrize("language", SENTENCES)
def test_sentences_end_where_a_reader_ends_them(language):
    known = lines(language)
    blank = "" if language in ("zh", "ja") else " "
    assert sentences(blank.join(known), language) == known
    assert sentences("\n".join(known), language) == known


def test_an_abbreviation_ends_a_sentence_only_before_a_word_that_seldom_begins_a_name():
    assert len(sentences("Il part à 8 h. Élise dort.", "fr")) == 1  # as in "M. Dupont"
    assert len(sentences("Il part à 8 h. Elle dort.", "fr")) == 2


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


@pytest.mark.parametrize("language", ["zh", "ja", "th"])
def test_passages_of_text_without_blanks_are_cut_and_keep_all_of_it(language):
    text = "".join(lines(language)).replace(" ", "") * 50
    parts = list(cut_document(Document("d", text, language=language), 100))
    assert "".join(part.text for part in parts) == text
    assert max(len(part.text) for part in parts) <= 250
    assert {part.language for part in parts} == {language}


def test_passages_know_their_language_and_english_ones_store_none():
    def built(language: str) -> tuple[Passage, dict]:
        documents = [Document("d", "Er kam. Überall war Ruhe.", language=language)]
        arrays = build_passages(documents, small.tokenizer(), 9)
        return Passages(arrays)[0], arrays

    german, arrays = built("de")
    assert (german.language, len(german.sentences)) == ("de", 2)
    assert (built("en")[0].language, arrays.keys() - built("en")[1].keys()) == ("en", {"language"})


def test_policies_read_the_words_of_the_language():
    document = Document("d", "猫は好き。犬も好き。鳥。", language="ja")
    passage = Passages(build_passages([document], small.tokenizer(), 99))[0]
    (importance,) = instance("policy", "gap-sentences", {}).annotate([passage])["importance"]
    assert importance[0] > importance[2]
    with pytest.raises(ConfigError, match=r"for English, and .* language is ja: set `pipel"):
        instance("policy", "salient-span", {}).annotate([passage])


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"files": ["a.txt"], "language": "german"}, "corpus.language: .*'german'"),
        ({"name": "world", "language": "de"}, "corpus.language: the world is written in English"),
    ],
)
def test_a_language_that_cannot_be_had(block, said):
    with pytest.raises(ConfigError, match=said):
        corpus_block(block, "corpus", ())


def test_texts_that_are_mixed_in_have_the_language_of_the_corpus_unless_they_state_one():
    mix = {
        "one": {"files": ["a.txt"], "share": 0.1},
        "two": {"files": ["b.txt"], "share": 0.1, "language": "en"},
    }
    found = mixed_texts(CorpusBlock(files=("c.txt",), language="fr", mix=mix))
    assert [text.corpus and text.corpus.language for text in found] == ["fr", "en"]


def test_english_needs_no_spacy():
    code = (
        "import sys; from maskpolicy.data.corpus.segmentation import segmenter; "
        "segmenter().sentences('Dr. A. B came. He left.'); sys.exit('spacy' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
