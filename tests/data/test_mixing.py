"""Corpora of several parts: texts that are mixed in, and shards of large files."""

import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import small
from maskpolicy.policies.salient_span import SalientSpan
from pyarrow import parquet

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.files import sha256
from maskpolicy.data.corpus import documents, shards
from maskpolicy.data.corpus import passages as corpora
from maskpolicy.data.corpus.annotation import annotate
from maskpolicy.data.corpus.mixing import TextShare, mix
from maskpolicy.data.corpus.passages import PASSAGES_FILE, Document, Passages
from maskpolicy.data.datafiles.rows import scan
from maskpolicy.experiment.definition import CorpusBlock


def artifact(
    folder: Path, name: str, count: int, language: str = "en", **columns: list[list[int]]
) -> Path:
    """Write a corpus of `count` passages with these columns in each."""
    out = folder / name
    out.mkdir()
    documents = (
        Document(f"{name}-{i}", f"{name} {i}. {small.TEXTS[i % 8]}", columns, language)
        for i in range(count)
    )
    rows = corpora.passage_rows(documents, small.tokenizer(), 100)
    corpora.write_passages(out / PASSAGES_FILE, rows)
    return out


def mixed(folder: Path, corpus: Path, seed: int = 0, **texts: tuple[Path, float]) -> Passages:
    out = folder / f"mixed-{len([*folder.iterdir()])}"
    out.mkdir()
    shares = [TextShare(name, share) for name, (_, share) in sorted(texts.items())]
    mix(corpus, {name: path for name, (path, _) in texts.items()}, shares, seed, out)
    return Passages.open(out)


def test_the_passages_of_the_corpus_come_first_and_unchanged(tmp_path):
    corpus, other = artifact(tmp_path, "own", 8), artifact(tmp_path, "other", 20)
    found, before = mixed(tmp_path, corpus, general=(other, 0.2)), Passages.open(corpus)
    assert len(found) == 10 and corpora.LANGUAGE not in found.arrays  # of English texts
    for index in range(8):
        assert found[index].id == before[index].id
        assert np.array_equal(found[index].tokens, before[index].tokens)
    texts = {passage.text: passage for passage in Passages.open(other)}
    for index in (8, 9):
        drawn = texts[found[index].text]
        assert found[index].id == f"general/{drawn.id}"
        for name in ("tokens", "offsets", "words", "sentences"):
            assert np.array_equal(getattr(found[index], name), getattr(drawn, name))


def test_the_seed_decides_what_is_drawn_and_small_texts_are_drawn_in_whole_epochs(tmp_path):
    corpus, other = artifact(tmp_path, "big", 10), artifact(tmp_path, "much", 40)
    draws = [
        [passage.id for passage in mixed(tmp_path, corpus, seed, wiki=(other, 0.5))][10:]
        for seed in (0, 0, 1)
    ]
    assert draws[0] == draws[1] != draws[2]
    assert len(set(draws[0])) == 10  # without replacement
    corpus, other = artifact(tmp_path, "own", 8), artifact(tmp_path, "other", 3)
    found = [passage.id for passage in mixed(tmp_path, corpus, wiki=(other, 0.5))][8:]
    times = Counter(each.split("/")[1] for each in found)
    assert len(found) == len(set(found)) == 8
    assert sorted(times.values()) == [2, 3, 3]
    assert found[:4] == ["wiki/other-0", "wiki/other-1", "wiki/other-2", "wiki/other-0/2"]


def test_columns_that_a_text_lacks_are_left_out(tmp_path):
    corpus = artifact(tmp_path, "own", 4, gold=[[0, 3]], asked=[[0, 3]])
    other = artifact(tmp_path, "other", 4, asked=[[0, 5]], more=[[0, 1]])
    found = mixed(tmp_path, corpus, wiki=(other, 0.5))
    assert found.columns == ("asked",)
    assert [found[i].texts(found[i].columns["asked"]) for i in (0, 5)] == [["own"], ["other"]]


@pytest.mark.parametrize("languages", [("de", "en", "ja"), ("en", "de", "en"), ("de", "de", "ja")])
def test_each_passage_keeps_its_language(tmp_path, languages):
    paths = [artifact(tmp_path, f"text-{i}", 4, each) for i, each in enumerate(languages)]
    found = mixed(tmp_path, paths[0], one=(paths[1], 0.2), two=(paths[2], 0.4))
    expected = np.repeat(languages, (4, 2, 4)).tolist()
    assert [passage.language for passage in found] == expected
    assert [passage.language for passage in found[3:]] == expected[3:]
    with pytest.raises(ConfigError, match=r"the text's language is (de|ja): set `pipeline`"):
        annotate(SalientSpan(), found)


def test_a_corpus_in_shards_is_mixed_as_one_without(tmp_path):
    parts = [artifact(tmp_path, name, 5) for name in ("a", "b")]
    whole, other = tmp_path / "whole", artifact(tmp_path, "other", 9)
    whole.mkdir()
    shards.merge(parts, whole)
    found = mixed(tmp_path, whole, wiki=(other, 0.2), general=(parts[0], 0.3))
    assert len(found) == 20
    ids = [found[index].id for index in range(20)]
    assert ids[:10] == [f"{name}-{i}" for name in "ab" for i in range(5)]
    assert [each.split("/")[0] for each in ids[10:]] == ["general"] * 6 + ["wiki"] * 4
    assert sorted(path.name for path in (tmp_path / "mixed-4").iterdir()) == [
        *(f"0000{i}.safetensors" for i in range(4)),
        "index.json",
    ]
    linked = (tmp_path / "mixed-4" / "00000.safetensors").stat()
    assert linked.st_ino == (parts[0] / PASSAGES_FILE).stat().st_ino  # nothing is copied
    assert [*corpora.open_arrays(whole)] == [*found.arrays]


def packed_rows(folder: Path) -> list[Path]:
    """A Parquet file whose rows have far more bytes than the file."""
    table = pyarrow.table({"text": [f"{number} word" * 500 for number in range(1200)]})
    parquet.write_table(table, folder / "p.parquet", row_group_size=2)
    return [folder / "p.parquet"]


def packed_files(folder: Path) -> list[Path]:
    """Files that cannot be cut, of which a shard of a 256th of the corpus holds two."""
    files = [folder / f"{number:03d}.txt.gz" for number in range(600)]
    for file in files:
        file.write_bytes(gzip.compress(b"Some words.", mtime=0))
    return files


def cut(files: list[Path], mb: float) -> list[tuple[documents.ShardSource, CorpusBlock]]:
    corpus = CorpusBlock(files=tuple(map(str, files)), shard_mb=mb)
    return shards.shards(corpus, sha256, lambda path, size, unit: scan(path, size, unit)[1])


@pytest.mark.parametrize("make", [packed_rows, packed_files])
def test_a_corpus_has_256_shards_at_most_which_hold_each_document_once(tmp_path, make):
    files = make(tmp_path)
    found = cut(files, 1e-6)
    assert 100 < len(found) <= 256
    texts = [
        (document.id, document.text)
        for source, corpus in found
        for document in documents.read_shard(source, corpus, documents.malformed_rows(corpus))
    ]
    block = CorpusBlock(files=tuple(map(str, files)))
    whole = documents.read(documents.identify(block, sha256), {}, block)
    assert texts == [(document.id, document.text) for document in whole]
