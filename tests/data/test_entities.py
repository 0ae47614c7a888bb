"""Entities: by the built-in rules on labelled sentences, and by spaCy pipelines."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import small
import spacy_rules
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from official import rows_of
from refusals import refused

from maskpolicy.data.corpus import entities
from maskpolicy.data.corpus import spacy_pipelines as pipelines
from maskpolicy.data.corpus.entities.rules import lexicon
from maskpolicy.data.corpus.passages import Document, tokenize


@pytest.fixture
def ruler(tmp_path):
    """Return a folder with a pipeline that knows one animal and its part of speech."""
    tags = [({"LOWER": "fox"}, "NOUN")]
    return spacy_rules.pipeline(tmp_path / "animals", {"red fox": "ANIMAL"}, tags)


def test_a_folder_gives_its_own_entities_and_is_loaded_again_when_edited(ruler, tmp_path):
    found = list(pipelines.find_entities(["A red fox in Rome.", ""], ruler))
    assert found == [[(2, 9, "ANIMAL")], []]
    shutil.rmtree(ruler)
    spacy_rules.pipeline(tmp_path / "animals", {"fox": "ANIMAL"})
    assert list(pipelines.find_entities(["A red fox."], ruler)) == [[(6, 9, "ANIMAL")]]


def test_a_word_has_the_tag_of_its_last_token_that_is_no_clitic(tmp_path):
    tags = [({"LOWER": {"REGEX": "['’]|not"}}, "PART"), ({"LOWER": {"IN": ["the", "-"]}}, "DET")]
    tags += [({"LOWER": {"IN": ["do", "ca", "can"]}}, "AUX"), ({"LOWER": "art"}, "NOUN")]
    text = small.words("art's Art’s Don't don’t can't cannot the-art the-art's 's not")
    found = next(pipelines.tag_words([text], spacy_rules.pipeline(tmp_path, tags=tags)))
    wanted = ["NOUN"] * 2 + ["AUX"] * 4 + ["NOUN"] * 2 + ["PART"] * 2
    assert [pipelines.TAGS[tag] for tag in found.tolist()] == wanted


@pytest.mark.parametrize("name", ["en_core_web_absent", "no/such/folder", "", "."])
def test_an_absent_pipeline_is_one_line_that_says_what_to_do(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = "meta.json" if name == "." else "spacy download"
    for call in (pipelines.pipeline_identity, pipelines.load_pipeline):
        assert said in refused(call, name)


def test_identity_follows_the_bytes_of_a_folder_and_its_links_and_not_its_place(ruler, tmp_path):
    before = pipelines.pipeline_identity(ruler)
    moved = tmp_path / "elsewhere" / "animals"
    moved.parent.mkdir()
    (tmp_path / "animals").rename(moved)
    component = next(path for path in moved.iterdir() if path.is_dir())
    linked = component.rename(tmp_path / "linked")
    component.symlink_to(linked)
    assert pipelines.pipeline_identity(str(moved)) == before
    for path in (linked / "added", moved / "config.cfg"):
        path.write_text("changed", encoding="utf-8")
        after = pipelines.pipeline_identity(str(moved))
        assert after != before
        before = after


SENTENCES = Path(__file__).parents[1] / "fixtures" / "entities.jsonl"
GOLDEN = "dd8798887ad9acb2"
PIECES = st.sampled_from(
    [
        *(3 * [" "]),
        *(", ", ". ", "\n", '"', "'s ", "-", "(", ") ", "\x00", "\u00a0", "日本", "😀"),
        *("Dr.", "J.", "St.", "U.S.", "Inc.", "The", "Ada", "King", "of", "de la", "and", "NASA"),
        *("I", "don't", "I'm", "Ünal", "x", "May", "12", "March", "1871", "3.5", "$", "%", "'60s"),
        *("million", "km/h.", "19th", "century", "five", "a.m.", "1990s", "20-year-old", "BC"),
        *("one", "half a"),
    ]
)
MIXED = st.lists(PIECES, max_size=30).map("".join) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=80
)


def labelled_rows(half: str | None = None) -> list[dict]:
    """Return the labelled sentences, of one half or all."""
    return [row for row in rows_of(SENTENCES) if half in (None, row["half"])]


def texts_of(text: str) -> list[str]:
    """Return what the rules find in `text`, as texts."""
    return [text[start:end] for start, end, _ in entities.find(text)]


def measure(labelled: list[dict]) -> tuple[float, float]:
    """Return precision and recall of the rules with exact bounds, micro-averaged."""
    right = found = gold = 0
    for row in labelled:
        mine = {(start, end) for start, end, _ in entities.find(row["text"])}
        theirs = {(start, end) for start, end, _ in row["entities"]}
        right, found, gold = right + len(mine & theirs), found + len(mine), gold + len(theirs)
    return right / found, right / gold


@pytest.mark.parametrize("half", ["development", "held-out"])
def test_real_english(half):
    labelled = labelled_rows(half)
    assert len(labelled) == 100
    precision, recall = measure(labelled)
    assert precision >= 0.80 and recall >= 0.75


def test_a_function_word_that_begins_a_sentence_is_no_entity():
    for word in map(str.capitalize, lexicon.FUNCTION):
        assert texts_of(f"{word} nothing was said. {word} she went.") == []
        assert texts_of(f"They left. {word} Ada Byron came.") == ["Ada Byron"]


@pytest.mark.parametrize(
    "span",
    [
        *("Dr. Jane Smith", "J. R. R. Tolkien", "George W. Bush", "St. Petersburg"),
        *("Jean-Paul Sartre", "University of Oxford", "Bank of England", "New York Times"),
        *("Charles de Gaulle", "U.S.", "Ludwig van Beethoven", "Marks and Spencer"),
        *("Procter & Gamble", "Doctors Without Borders", "Second World War"),
        *("William the Conqueror", "Henry VIII", "Apollo 11", "COVID-19"),
        *("Department of Health and Human Services", "Theresa May", "O'Brien", "São Paulo"),
        *("French", "12 March 1871", "March 12, 1871", "Tuesday, 4 June 2019", "3rd of May"),
        *("1990s", "1066", "19th century", "twenty-first century", "1914–18", "44 BC"),
        *("9:30 a.m.", "summer of 1969", "3.5 million tonnes", "$4.2 billion", "20 per cent"),
        *("five kilometres", "98.6 °F", "3-1", "twenty-five", "1,234,567", "two-thirds", "43rd"),
        *("60 miles an hour", "half a million"),
    ],
)
def test_one_span(span):
    assert texts_of(f"We know that the {span} was there.") == [span]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I think I'm late, and I don't mind.", []),
        ("London's mayor met Smith's wife.", ["London", "Smith"]),
        ("“However,” he said, “we won't go to Rome.”", ["Rome"]),
        ("The President met Minister Ono.", ["Minister Ono"]),
        ("French President Macron spoke English.", ["French", "President Macron", "English"]),
        ("Heavy rain fell. Researchers were glad.", []),
        ("Hill was late. Later Mary saw Hill.", ["Hill", "Mary", "Hill"]),
        ("She may go in May; March on!", ["May"]),
        ("STOCKS FALL AS CHINA RAISES RATES", ["CHINA"]),
        ("One of them came first, and one left.", []),
        ("Alice and Bob saw France, Spain and Peru.", ["Alice", "Bob", "France", "Spain", "Peru"]),
        ("From 1925 to 1959 it cost £5.", ["1925", "1959", "£5"]),
        ("", []),
        ("no names at all", []),
    ],
)
def test_hard_cases(text, found):
    assert texts_of(text) == found


def test_a_time_of_day_is_no_date():
    text = "At 9:30 a.m. on 4 May 1999, at 17:05 and at 5 pm; then in 1854, and on Monday evening."
    found = [(text[start:end], label) for start, end, label in entities.find(text)]
    times = [("9:30 a.m.", "TIME"), ("17:05", "TIME"), ("5 pm", "TIME")]
    dates = [("4 May 1999", "DATE"), ("1854", "DATE"), ("Monday evening", "DATE")]
    assert sorted(found) == sorted(times + dates)


@given(text=MIXED)
@limits(max_examples=300)
def test_entities_are_sorted_disjoint_and_without_outer_blanks(text):
    at = 0
    for start, end, label in entities.find(text):
        assert at <= start < end <= len(text)
        assert text[start:end].strip() == text[start:end]
        assert label in entities.LABELS
        at = end


def test_version_stands_for_what_is_found():
    found = json.dumps([entities.find(row["text"]) for row in labelled_rows()])
    digest = hashlib.sha256(found.encode()).hexdigest()[:16]
    assert (entities.VERSION, digest) == (2, GOLDEN), "the rules changed: raise entities.VERSION"


def test_the_last_word_of_a_line_has_the_tag_of_its_word(tmp_path):
    rules = [({"IS_SPACE": True}, "SPACE"), ({"TEXT": {"REGEX": "[a-z]"}}, "NOUN")]
    (text,) = tokenize([Document("d", "one two \n  red fox\n")], small.tokenizer())
    found = next(pipelines.tag_words([text], spacy_rules.pipeline(tmp_path, tags=rules)))
    assert [pipelines.TAGS[tag] for tag in found.tolist()] == ["NOUN"] * 4


def test_a_mark_within_a_token_is_punctuation(tmp_path):
    names = spacy_rules.pipeline(tmp_path, tags=[({"TEXT": {"REGEX": "[a-z]"}}, "PROPN")])
    (text,) = tokenize([Document("d", "Mr. Finn of the U.S.A. went.")], small.tokenizer())
    tags = [pipelines.TAGS[tag] for tag in next(pipelines.tag_words([text], names)).tolist()]
    found = dict(zip(text.texts(text.words), tags, strict=True))
    assert (found["Mr"], found["Finn"], found["."]) == ("PROPN", "PROPN", "PUNCT")
