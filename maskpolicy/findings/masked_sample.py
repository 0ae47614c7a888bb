"""What the policies of finished runs hide: a sample of passages, drawn once and remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskpolicy import ragged
from maskpolicy.corpus.passages import Passages
from maskpolicy.errors import ConfigError, StoreError
from maskpolicy.findings.cache import derive
from maskpolicy.graph.nodes import params_of, stage, version_of
from maskpolicy.graph.stage_run import StageRun
from maskpolicy.masking import selection
from maskpolicy.plugins.discovery import code_digests, instance, plugin_of_run
from maskpolicy.ragged import Ragged, RaggedWriter
from maskpolicy.results.cell import Run, plugin_files
from maskpolicy.schema import Count, Seed
from maskpolicy.stages.params import IntermediateParams, PolicyParams
from maskpolicy.store.artifacts import Store, available

FILE = "hidden.safetensors"
_BATCH = 1024  # passages that are masked at once


@dataclass(frozen=True)
class Sampling:
    """How much of a corpus an analysis looks at."""

    passages: Count = 2000  # the most that are looked at
    draws: Count = 1  # epochs: what was hidden when a passage was seen first, a second time, ..
    seed: Seed = 0  # which passages

    @property
    def sampling(self) -> Sampling:
        """These settings alone: analyses inherit them."""
        return Sampling(self.passages, self.draws, self.seed)

    def places(self, count: int) -> NDArray[np.int64]:
        """Return the sampled passages of a corpus of `count`, in order, without replacement."""
        size = min(count, self.passages)
        drawn = np.random.default_rng([self.seed, count]).permutation(count)[:size]
        return np.sort(drawn)


@dataclass(frozen=True)
class Staged:
    """One row of a run that has an intermediate stage, as the store knows it."""

    run: Run
    label: str
    number: int  # of the intermediate run
    key: str
    params: IntermediateParams
    inputs: Mapping[str, str]  # keys
    version: int  # of the stage: it stands for what its masking hides
    color: int = 0  # place among the run's policies

    @property
    def corpus(self) -> str:
        """The key of its passages."""
        return self.inputs["corpus"]


def staged(
    runs: Sequence[Run], store: Store, *, every: bool = False
) -> tuple[list[Staged], list[str]]:
    """Return the rows that have an intermediate stage, and a note for each that is not known.

    Of several intermediate runs the first stands for the row, unless `every` asks for all.
    """
    found: list[Staged] = []
    notes: list[str] = []
    for run in runs:
        for color, label in enumerate(run.rows):
            keys = _stages(run, label)
            for number, key in sorted(keys.items())[: None if every else 1]:
                manifest = store.peek(key)
                name = f"{run.name}, {label}" if len(runs) > 1 else label
                if manifest is None:
                    notes.append(f"{name}: {_lacking(store, run, label)}")
                    continue
                record = manifest["record"]
                version = record["version"]
                params, inputs = params_of(record, IntermediateParams), record["inputs"]
                found.append(Staged(run, name, number, key, params, inputs, version, color))
    return found, notes


def _stages(run: Run, label: str) -> dict[int, str]:
    """Return the keys of a row's intermediate stages by the number of the intermediate run."""
    return {
        result.config["intermediate_seed"]: key
        for result in run.results
        if result.policy == label and "intermediate_seed" in result.config
        if (key := result.stage_key("intermediate")) is not None
    }


def _lacking(store: Store, run: Run, label: str) -> str:
    cells = [result for result in run.results if result.policy == label]
    failed = [cell.error for cell in cells if cell.error is not None]
    if len(failed) == len(cells):
        return f"its intermediate stage was not finished: {failed[0]}"
    return (
        f"its intermediate stage is not in the store {store.root}: name the store of that run with "
        "--store, or run its experiment again"
    )


@dataclass(frozen=True, kw_only=True)
class HiddenParams(PolicyParams):
    """What a policy hides in a sample of a corpus."""

    masking: int  # version of the stage "intermediate"
    seed: int
    sampling: Sampling


@stage("hidden")
def hidden(params: HiddenParams, inputs: Mapping[str, Path], out: Path, run: StageRun) -> None:
    """Mask a sample of passages."""
    annotations = [inputs["annotate"]] if "annotate" in inputs else []
    passages = Passages.open(inputs["corpus"], *annotations)
    policy, sampling = instance("policy", params.policy, params.fields), params.sampling
    places = sampling.places(len(passages))
    with RaggedWriter(out / FILE) as file:
        for epoch in range(sampling.draws):
            for start in range(0, len(places), _BATCH):
                at = places[start : start + _BATCH]
                batch = [passages[place] for place in at.tolist()]
                found = selection.select(policy, batch, params.seed, [epoch] * len(batch))
                for place, spans in zip(at, found, strict=True):
                    file.append({"spans": spans.astype(np.int32), "places": place.reshape(1)})


@dataclass(frozen=True, eq=False)
class Sample:
    """What one row hides in its sample: n passages, each as often as there are draws.

    Tokens of all of them are numbered through; t is their number.
    """

    row: Staged
    passages: Passages
    places: NDArray[np.int64]  # (n,) of the corpus
    spans: Ragged  # n arrays of token ranges

    @cached_property
    def tokens(self) -> Ragged:
        """The tokens of the passages."""
        return self.passages.arrays["tokens"].take(self.places)

    @cached_property
    def flat(self) -> NDArray[np.int64]:
        """All spans, shape (s, 2), over the tokens of all passages."""
        begins = np.repeat(self.tokens.bounds[:-1], self.spans.lengths)
        return self.spans.flat.astype(np.int64) + begins[:, None]

    @cached_property
    def owner(self) -> NDArray[np.int64]:
        """The passage, 0 to n - 1, of each span, shape (s,)."""
        return np.repeat(np.arange(len(self.places)), self.spans.lengths)

    @cached_property
    def is_hidden(self) -> NDArray[np.bool_]:
        """Whether a token is hidden, shape (t,)."""
        edges = np.zeros(len(self.tokens.flat) + 1, np.int32)
        np.add.at(edges, self.flat[:, 0], 1)
        np.add.at(edges, self.flat[:, 1], -1)
        return np.cumsum(edges)[:-1] > 0

    def texts(self) -> list[str]:
        """Return the text of each span, outer blanks left out."""
        offsets = self.passages.arrays["offsets"]
        found = []
        for place, spans in zip(self.places.tolist(), self.spans, strict=True):
            if not len(spans):
                continue
            text, chars = self.passages.arrays["texts"].text(place), offsets[place]
            for first, end in spans.tolist():
                found.append(text[chars[first, 0] : chars[end - 1, 1]].strip())
        return found


def sample(row: Staged, sampling: Sampling, store: Store) -> Sample:
    """Return what a row hides in a sample of its corpus, as its training did.

    Raises StoreError when its corpus is not in the store, ConfigError when the file of its policy
    is not the one that it was trained with.
    """
    files, trained = plugin_files(row.run.folder), row.params
    code = code_digests(plugin_of_run("policy", trained.policy, files))
    if code != trained.code:
        raise ConfigError(
            f"policy {trained.policy} was changed since its training: run its experiment again"
        )
    inputs = {name: key for name, key in row.inputs.items() if name in ("corpus", "annotate")}
    if row.version != version_of("intermediate"):
        raise ConfigError(
            f"{row.label}: was trained by a version of maskpolicy that masks otherwise: run its "
            "experiment again"
        )
    params = HiddenParams(
        masking=row.version,
        policy=trained.policy,
        fields=trained.fields,
        code=code,
        seed=trained.spec.seed,
        sampling=sampling,
    )
    made = derive(store, "hidden", row.label, params, inputs)
    arrays = ragged.load(made.path / FILE)
    names = [name for name in ("corpus", "annotate") if name in inputs]
    passages = Passages.open(*(available(store, inputs[name], name).path for name in names))
    return Sample(row, passages, arrays["places"].flat, arrays["spans"])


def samples(
    runs: Sequence[Run], sampling: Sampling, store: Store
) -> tuple[list[Sample], list[str], bool]:
    """Return the sample of every row, notes, and whether a row's artifacts are not in the store."""
    rows, notes = staged(runs, store)
    missing = bool(notes)
    found = []
    for row in rows:
        try:
            found.append(sample(row, sampling, store))
        except (ConfigError, StoreError) as error:  # e.g. a policy whose file was not named
            notes.append(f"{row.label}: {error}")
            missing = True
    return found, notes, missing
