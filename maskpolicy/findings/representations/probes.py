"""A stage that fits linear probes to the states of an encoder on entries of the world."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy import hardware
from maskpolicy.corpus.passages import Document, tokenize
from maskpolicy.findings import representations
from maskpolicy.findings.representations.linear_probe import probe
from maskpolicy.graph.nodes import stage
from maskpolicy.graph.stage_run import StageRun
from maskpolicy.models.tokenizers import check_vocabulary, load_tokenizer
from maskpolicy.types import Json, Passage
from maskpolicy.world.probed_entries import ProbedEntry, probed_entries, shared_values
from maskpolicy.world.settings import Settings

PROBES = {"name": "person", "person": "person", "relation": "relation", "value": "value"}
"""What each probe asks. `name`: whom the entry is about, read off single tokens of the name, parts
of which many people share; `person`: the same, read off the statement's words besides the value;
`relation`: which relation is stated, read off the name; `value`: which value is stated, read off
all words besides the value."""

FILE = "probes.json"


@dataclass(frozen=True, kw_only=True)
class ProbeParams:
    """The entries to read, and the seed of the parts of the probes."""

    world: Settings
    people: int  # the most
    seed: int


@stage("probe", version=2)
def probes(params: ProbeParams, inputs: Mapping[str, Path], out: Path, run: StageRun) -> None:
    """Fit linear probes to the states of every layer of a frozen encoder, without masks.

    Writes an object for each probe and layer: its accuracy on test tokens and what it was fitted
    on.
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


def read(folder: Path) -> Sequence[Json]:
    """Return the objects that the stage wrote."""
    rows: list[Json] = json.loads((folder / FILE).read_text(encoding="utf-8"))
    return rows


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
        # numbers in the order of the labels: texts of all tokens would be sorted for each layer
        labels = np.unique(
            [getattr(entry, PROBES[name]) for entry in entries], return_inverse=True
        )[1]
        parts = np.asarray([getattr(entry, split) for entry in entries])
        yield name, chosen, labels[owners[chosen]], parts[owners[chosen]]


def _inside(passage: Passage, entry: ProbedEntry, name: str) -> NDArray[np.bool_]:
    """Return which tokens overlap a range of an entry's characters, (t,)."""
    start, end = getattr(entry, name)
    inside: NDArray[np.bool_] = (passage.offsets[:, 0] < end) & (passage.offsets[:, 1] > start)
    return inside
