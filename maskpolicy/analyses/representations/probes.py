"""A stage that fits linear probes to the states of an encoder on entries of the world."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maskpolicy.analyses import representations
from maskpolicy.analyses.cache import derive, lacking
from maskpolicy.analyses.representations import PretrainedModel, pretrained_models
from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError, StoreError
from maskpolicy.core.files import read_json
from maskpolicy.core.types import Passage
from maskpolicy.data.corpus.passages import Document, tokenize
from maskpolicy.data.world.unasked_texts import Part, ProbedEntry, probed_entries, shared_values
from maskpolicy.experiment.world_settings import Settings
from maskpolicy.leaderboard.results.cell import Result, Run
from maskpolicy.models.loading import load_tokenizer
from maskpolicy.models.training.specials import check_vocabulary
from maskpolicy.pipeline.graph.nodes import Folders, StageRun, params_of, stage
from maskpolicy.pipeline.store.artifacts import Store

PROBES = {"name": "person", "person": "person", "relation": "relation", "value": "value"}
"""What each probe predicts, from the state of one token. `name`: the person whom an entry is about,
from a token of the name, which many people share; `person`: the same, from the words of the
statement except the value; `relation`: the stated relation, from the name; `value`: the stated
value, from all words except the value."""

FILE = "probes.json"


@dataclass(frozen=True, kw_only=True)
class ProbeParams:
    """The entries to read, and the seed of the parts of the probes."""

    world: Settings
    people: int  # at most
    seed: int


@stage("probe", version=3)
def probes(params: ProbeParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Fit linear probes to the states of every layer of a frozen encoder, without masks.

    Writes an object for each probe and layer: its accuracy on test tokens and the size of its data.
    """
    tokenizer = load_tokenizer(str(inputs["tokenizer"]))
    encoder = representations.load_encoder(inputs["model"]).to(hardware.device())
    check_vocabulary(tokenizer, encoder, "model")
    entries = probed_entries(params.world, params.people, params.seed)
    documents = [Document(str(number), entry.text) for number, entry in enumerate(entries)]
    passages = list(tokenize(documents, tokenizer))
    layers = representations.real_states(encoder, tokenizer, passages)
    rows = []
    for name, chosen, labels, parts in _asked(entries, passages):
        for number, states in enumerate(layers):
            found = probe(states[chosen], labels, parts)
            if found is not None:
                rows.append({"probe": name, "layer": number, **asdict(found)})
    (out / FILE).write_text(json.dumps(rows), encoding="utf-8")


def _asked(
    entries: Sequence[ProbedEntry], passages: Sequence[Passage]
) -> Iterator[tuple[str, NDArray[np.bool_], NDArray[np.int64], NDArray[np.str_]]]:
    """Yield each probe: its name, the tokens it reads, (t,), and their classes and parts, (n,)."""
    owners = np.repeat(np.arange(len(entries)), [len(passage.tokens) for passage in passages])
    shared = shared_values(entries)
    at: dict[str, Any] = {
        name: np.concatenate([_inside(*pair, name) for pair in zip(passages, entries, strict=True)])
        for name in ("name", "statement", "stated")
    }
    is_shared = np.asarray([entry.value in shared for entry in entries])[owners]
    places = {
        "name": at["name"],
        "person": at["statement"] & ~at["stated"],
        "relation": at["name"],
        "value": ~at["stated"] & is_shared,
    }
    for name, chosen in places.items():
        split = "by_fact" if PROBES[name] == "person" else "by_person"
        # numbers, because `probe` would sort the texts of all tokens for each layer
        labels = np.unique(
            [getattr(entry, PROBES[name]) for entry in entries], return_inverse=True
        )[1]
        parts = np.asarray([getattr(entry, split) for entry in entries])
        yield name, chosen, labels[owners[chosen]], parts[owners[chosen]]


def _inside(passage: Passage, entry: ProbedEntry, name: str) -> NDArray[np.bool_]:
    """Return which tokens overlap a range of an entry's characters, (t,)."""
    start, end = getattr(entry, name)
    return (passage.offsets[:, 0] < end) & (passage.offsets[:, 1] > start)


Floats: TypeAlias = NDArray[np.float64]
SHRINKAGES = (1e-4, 1e-3, 1e-2, 0.1, 0.5)
"""Weights of the scaled identity in the covariance that are tried on dev."""
_LEAST = 1e-12  # variance added to every direction, as a share of the mean one


@dataclass(frozen=True)
class Probed:
    """How well a probe predicts; accuracies are shares of the test tokens."""

    accuracy: float
    floor: float  # of the class that is most frequent in train
    classes: int
    tokens: int  # in test
    train: int  # tokens
    shrinkage: float


@dataclass(frozen=True, eq=False)
class _Discriminant:
    """Class means and the spectrum of the covariance within classes."""

    means: Floats  # (c, d)
    priors: Floats  # (c,), logarithms
    variances: Floats  # (d,)
    axes: Floats  # (d, d), in columns

    @classmethod
    def of(cls, states: Floats, labels: NDArray[np.int64], classes: int) -> _Discriminant:
        counts = np.bincount(labels, minlength=classes)
        order, starts = np.argsort(labels, kind="stable"), np.cumsum([0, *counts[:-1]])
        means = np.add.reduceat(states[order], starts) / counts[:, None]
        within = states - means[labels]
        variances, axes = np.linalg.eigh(within.T @ within / len(states))
        return cls(means, np.log(counts / len(states)), variances.clip(min=0), axes)

    def classify(self, states: Floats, shrinkage: float) -> NDArray[np.int64]:
        """Return the likeliest class of each state, (n,), under normal classes of one covariance.

        The covariance is (1 - shrinkage) that of the states, plus `shrinkage` times the identity
        scaled to the same trace.
        """
        mean = float(self.variances.mean()) or 1.0
        shrunk = (1 - shrinkage) * self.variances + (shrinkage + _LEAST) * mean
        scaled = self.means @ self.axes / shrunk  # (c, d)
        offsets = self.priors - ((self.means @ self.axes) * scaled).sum(1) / 2
        return (states @ self.axes @ scaled.T + offsets).argmax(1)


def probe(
    states: NDArray[np.floating], labels: NDArray[np.int64], parts: NDArray[np.str_]
) -> Probed | None:
    """Return how well a linear classifier predicts the labels from the states, or None.

    `states` is (n, d); `labels` and `parts` (n,) are the class and the part (train, dev or test)
    of each token. Tokens of classes that train does not have are left out; the result is None if a
    part then has no token. The shrinkage is that with the best accuracy on dev, and the largest of
    equally good ones. The result is a closed form in float64, after centring: it depends on no
    random numbers and no optimiser.
    """
    names = np.unique(labels[parts == "train"])
    kept = np.isin(labels, names)
    numbers = np.searchsorted(names, labels)
    rows = {part: kept & (parts == part) for part in ("train", "dev", "test")}
    if not all(chosen.any() for chosen in rows.values()):
        return None
    centre = states[rows["train"]].mean(0, dtype=np.float64)
    own: dict[str, Floats] = {part: states[chosen] - centre for part, chosen in rows.items()}
    right = {part: numbers[chosen] for part, chosen in rows.items()}
    made = _Discriminant.of(own["train"], right["train"], len(names))

    def accuracy(part: Part, shrinkage: float) -> float:
        return float((made.classify(own[part], shrinkage) == right[part]).mean())

    best = max(SHRINKAGES, key=lambda shrinkage: (accuracy("dev", shrinkage), shrinkage))
    common = int(np.bincount(right["train"]).argmax())
    return Probed(
        accuracy=accuracy("test", best),
        floor=float((right["test"] == common).mean()),
        classes=len(names),
        tokens=len(right["test"]),
        train=len(right["train"]),
        shrinkage=best,
    )


@dataclass(frozen=True, eq=False)
class Accuracy:
    """How well one probe predicts from one layer of a model."""

    model: PretrainedModel
    probe: str
    layer: int
    is_last: bool  # layer of the model
    found: Probed

    @property
    def percent(self) -> float:
        """The accuracy in percent."""
        return 100 * self.found.accuracy


def accuracies(
    runs: Sequence[Run], store: Store, people: int = 300, seed: int = 0
) -> tuple[list[Accuracy], list[str]]:
    """Return the accuracies of each model of each row, and a note for each missing model.

    Reads the entries of at most `people` people; `seed` draws the parts of the probes. Raises
    ConfigError for runs without the embedded world.
    """
    found: list[Accuracy] = []
    notes: list[str] = []
    for run in runs:
        for model in pretrained_models(run):
            try:
                found += _of_model(model, store, people, seed)
            except StoreError as error:
                notes.append(f"{run.name}, {model.policy}, run {model.stage}: {error}")
    return found, notes


def _of_model(model: PretrainedModel, store: Store, people: int, seed: int) -> list[Accuracy]:
    params = ProbeParams(world=_world_of(model.result, store), people=people, seed=seed)
    tokenizer = str(model.result.stage_key("tokenizer"))
    inputs = {"model": model.key, "tokenizer": tokenizer}
    rows = read_json(derive(store, "probe", model.policy, params, inputs).path / FILE)
    last = max((row["layer"] for row in rows), default=0)
    return [
        Accuracy(model, row.pop("probe"), layer, layer == last, Probed(**row))
        for row in rows
        for layer in [row.pop("layer")]
    ]


def _world_of(result: Result, store: Store) -> Settings:
    """Return the settings of a result's world; raises ConfigError and StoreError."""
    key = result.stage_key("world")
    if key is None:
        raise ConfigError("probe: asks for facts of the embedded world and needs corpus: world")
    manifest = store.recall(key)
    if manifest is None:
        raise StoreError(lacking(store, "its world"))
    return params_of(manifest["record"], Settings)
