"""The stage that probes an encoder: which states are read with which labels."""

from types import SimpleNamespace

import numpy as np
import pytest
import small
import torch

from maskpolicy.analyses import representations
from maskpolicy.analyses.representations import probes
from maskpolicy.analyses.representations.probes import PROBES, ProbeParams, probe
from maskpolicy.core.errors import DataError
from maskpolicy.core.files import read_json
from maskpolicy.data import world
from maskpolicy.data.corpus.passages import Document, tokenize
from maskpolicy.data.world.unasked_texts import probed_entries
from maskpolicy.models.scratch import train_tokenizer
from maskpolicy.pipeline.graph.nodes import Local, StageRun

WORLD = world.make({"people": 40, "general_people": 8})


@pytest.fixture(scope="module")
def tokenizer():
    """A tokenizer of the world's words, so that an entry fits into a small model."""
    texts = [entry.text for entry in probed_entries(WORLD, 40, 0)]
    return train_tokenizer(texts, 1500)


@pytest.fixture(scope="module", params=["encoder", "bart"])
def folder(request, tokenizer, tmp_path_factory):
    """A folder of a small model that was not trained."""
    folder = tmp_path_factory.mktemp("model")
    if request.param == "bart":
        model = small.bart(vocab_size=len(tokenizer))
    else:
        model = small.roberta(vocab_size=len(tokenizer))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def probed(folder, out):
    params = ProbeParams(world=WORLD, people=40, seed=0)
    out.mkdir()
    probes.probes(params, {"model": folder, "tokenizer": folder}, out, StageRun(None, Local()))
    return {(row["probe"], row["layer"]): row for row in read_json(out / probes.FILE)}


def test_every_layer_of_an_encoder_is_probed_and_the_input_tells_nothing(folder, tmp_path):
    found = probed(folder, tmp_path / "out")
    layers = len({layer for _, layer in found})
    assert set(found) == {(name, layer) for name in PROBES for layer in range(layers)}
    assert found["person", 0]["classes"] == 40
    assert found["relation", 0]["classes"] == 10
    for name in PROBES.keys() - {"name"}:  # the input layer holds a token and its place
        assert found[name, 0]["accuracy"] < found[name, 0]["floor"] + 0.1
    assert probed(folder, tmp_path / "again") == found


class Bags(torch.nn.Module):
    """An encoder whose one layer adds to each token's vector those of all tokens of the input.

    The vectors are drawn at random and have `rank` dimensions.
    """

    def __init__(self, rank, words):
        super().__init__()
        self.config = small.roberta(vocab_size=words).config
        draw = torch.Generator().manual_seed(0)
        vectors = torch.randn(words, 64, generator=draw)
        vectors[:, rank:] = 0
        self.vectors = torch.nn.Parameter(vectors)

    def get_input_embeddings(self):
        return torch.nn.Embedding.from_pretrained(self.vectors)

    def forward(self, input_ids, attention_mask, **given):
        own = self.vectors[input_ids] * attention_mask[..., None]
        return SimpleNamespace(hidden_states=(own, own + own.sum(1, keepdim=True)))


@pytest.mark.parametrize(("rank", "bounds"), [(64, (0.9, 1.0)), (1, (0.0, 0.2))])
def test_a_layer_that_mixes_tokens_is_read_as_far_as_its_rank_allows(
    tokenizer, tmp_path, monkeypatch, rank, bounds
):
    tokenizer.save_pretrained(tmp_path / "model")
    made = Bags(rank, len(tokenizer))
    monkeypatch.setattr(representations, "load_encoder", lambda folder: made)
    found = probed(tmp_path / "model", tmp_path / "out")
    assert bounds[0] <= found["person", 1]["accuracy"] <= bounds[1]
    assert found["person", 0]["accuracy"] < 0.1
    if rank > 1:  # the other part of the name is read from its neighbours
        assert found["name", 0]["accuracy"] < 0.7 < 0.95 < found["name", 1]["accuracy"]


def test_the_tokens_that_are_read_do_not_say_what_is_asked(tokenizer):
    entries = probed_entries(WORLD, 40, 0)
    documents = [Document(str(number), entry.text) for number, entry in enumerate(entries)]
    passages = list(tokenize(documents, tokenizer))
    owners = np.repeat(np.arange(len(entries)), [len(one.tokens) for one in passages])
    texts = [one.text[a:b] for one in passages for a, b in one.offsets.tolist()]
    for name, chosen, labels, parts in probes._asked(entries, passages):
        assert len(labels) == len(parts) == chosen.sum() > 1000
        assert {*parts} == {"train", "dev", "test"}
        names = sorted({getattr(entry, PROBES[name]) for entry in entries})
        for place, label in zip(np.flatnonzero(chosen)[:2000], labels[:2000], strict=True):
            entry, token = entries[owners[place]], texts[place].strip()
            assert names[label] == getattr(entry, PROBES[name])
            if name in ("name", "relation"):
                assert token in entry.person
            elif name == "person":
                assert token in entry.text[slice(*entry.statement)].replace(entry.value, "", 1)
            else:
                assert token in entry.text.replace(entry.value, "", 1)


def test_a_passage_beyond_the_models_positions_is_refused(tokenizer):
    model = small.roberta(vocab_size=len(tokenizer), max_position_embeddings=12)
    passages = list(tokenize([Document("x", "one " * 40)], tokenizer))
    with pytest.raises(DataError, match="more than the 10 tokens of the model"):
        representations.real_states(model, tokenizer, passages)


DIMENSIONS = 5
CLASSES = 2**DIMENSIONS
EACH = 60  # states of a class


def corners(rank):
    """Return states at the corners of a cube with `rank` dimensions, their labels and parts."""
    rng = np.random.default_rng(0)
    numbers = np.repeat(np.arange(CLASSES), EACH)
    signs = 1.0 - 2 * ((numbers[:, None] >> np.arange(DIMENSIONS)) & 1)
    signs[:, rank:] = 0
    rotation, _ = np.linalg.qr(rng.normal(size=(12, 12)))
    states = np.hstack([signs, np.zeros((len(signs), 12 - DIMENSIONS))]) @ rotation
    states += 7 + 0.05 * rng.normal(size=states.shape)
    parts = np.tile(np.repeat(["train", "dev", "test"], EACH // 3), CLASSES)
    return states.astype(np.float32), numbers, parts


def test_an_encoder_without_the_rank_cannot_separate_the_classes():
    """Corners that differ only in the removed dimensions have the same state."""
    for rank in (5, 4, 2, 0):
        found = probe(*corners(rank))
        chance = 2.0 ** (rank - DIMENSIONS)
        assert found.accuracy == pytest.approx(chance, abs=3 * (chance * (1 - chance) / 640) ** 0.5)
        assert (found.classes, found.tokens, found.train) == (CLASSES, 640, 640)
        assert found.floor == pytest.approx(1 / CLASSES)


def test_the_classifier_is_the_best_one_of_normal_classes():
    """Two normal classes whose means are two deviations apart: one of six is on the wrong side."""
    from scipy.stats import norm

    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 60_000)
    mixed = np.diag([1.0, 8.0, 0.2]) @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    states = (rng.normal(size=(60_000, 3)) + np.outer(labels, [2.0, 0.0, 0.0])) @ mixed
    parts = np.repeat(["train", "dev", "test"], 20_000)
    found = probe(states, labels, parts)
    assert found.accuracy == pytest.approx(norm.cdf(1), abs=0.01)


def test_equal_states_are_read_without_a_division_by_zero():
    labels = np.tile([0, 1, 1], 10)
    parts = np.repeat(["train", "dev", "test"], 10)
    found = probe(np.ones((30, 4), np.float32), labels, parts)
    assert found.accuracy == found.floor


def test_a_class_that_train_lacks_is_left_out():
    labels = np.asarray([0, 1, 0, 1, 0, 2])
    parts = np.asarray(["train", "train", "dev", "dev", "test", "test"])
    states = np.asarray([[0.0], [1.0], [0.1], [0.9], [0.0], [5.0]])
    found = probe(states, labels, parts)
    assert (found.classes, found.tokens) == (2, 1)
    assert probe(states, labels, np.where(parts == "dev", "test", parts)) is None
