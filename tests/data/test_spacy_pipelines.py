"""spaCy pipelines by name or folder, on pipelines that the tests write."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from maskpolicy.core.errors import ConfigError
from maskpolicy.data.corpus import spacy_pipelines as pipelines


@pytest.fixture
def ruler(tmp_path):
    """Return a folder with a pipeline that knows one animal and its part of speech."""
    import spacy

    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "ANIMAL", "pattern": "red fox"}])
    nlp.add_pipe("attribute_ruler").add([[{"LOWER": "fox"}]], {"POS": "NOUN"})
    nlp.to_disk(tmp_path / "animals")
    return str(tmp_path / "animals")


def test_a_folder_gives_its_own_entities(ruler):
    assert list(pipelines.find_entities(["A red fox in Rome.", ""], ruler)) == [
        [(2, 9, "ANIMAL")],
        [],
    ]


def test_the_rules_say_how_to_install_a_trained_pipeline(caplog):
    pipelines.log_rules.cache_clear()
    with caplog.at_level(logging.INFO, "maskpolicy"):
        list(pipelines.find_entities(["Rome."]))
        list(pipelines.find_entities(["Rome."]))
    assert [record.getMessage() for record in caplog.records] == [pipelines.NOTE]
    assert "spacy download" in pipelines.NOTE
    assert "\n" not in pipelines.NOTE


@pytest.mark.parametrize("name", ["en_core_web_absent", "no/such/folder", ""])
def test_an_absent_pipeline_is_one_line_that_says_what_to_do(name):
    for call in (pipelines.pipeline_identity, pipelines.load_pipeline):
        with pytest.raises(ConfigError, match="spacy download") as caught:
            call(name)
        assert "\n" not in str(caught.value)


def test_a_folder_that_is_no_pipeline_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"meta\.json"):
        pipelines.pipeline_identity(str(tmp_path))


def test_identity_follows_the_bytes_of_a_folder_and_not_its_place(ruler, tmp_path):
    before = pipelines.pipeline_identity(ruler)
    moved = tmp_path / "elsewhere" / "animals"
    moved.parent.mkdir()
    (tmp_path / "animals").rename(moved)
    assert pipelines.pipeline_identity(str(moved)) == before
    (moved / "config.cfg").write_text("changed", encoding="utf-8")
    assert pipelines.pipeline_identity(str(moved)) != before


def test_identity_loads_neither_spacy_nor_torch():
    code = (
        "import sys; import maskpolicy.data.corpus.annotation; "
        "from maskpolicy.policies.salient_span import SalientSpan; "
        "SalientSpan().depends(); print({'spacy', 'torch', 'transformers'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
