"""The spans that the policies of finished runs mask in a sample of passages, cached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskpolicy.analyses.cache import derive, lacking
from maskpolicy.core import ragged
from maskpolicy.core.errors import ConfigError, DataError, StoreError
from maskpolicy.core.keys import plain
from maskpolicy.core.ragged import Ragged, RaggedWriter
from maskpolicy.core.schema import Count, Seed, omitted
from maskpolicy.core.types import Denoising, Json, Spans, as_spans
from maskpolicy.data.corpus.passages import PASSAGES_FILE, Passages, open_arrays, write_passages
from maskpolicy.experiment.definition import PolicyBlock
from maskpolicy.experiment.policy_blocks import policy_block, policy_depends, policy_versions
from maskpolicy.leaderboard.results.cell import Run, plugin_files
from maskpolicy.masking.denoising import masked_spans
from maskpolicy.masking.selection import Masker, check_repeats
from maskpolicy.masking.sentinels import Marks
from maskpolicy.models.training.batching import Order
from maskpolicy.models.training.steps import examples_of
from maskpolicy.pipeline.graph.nodes import Folders, StageRun, params_of, stage, version_of
from maskpolicy.pipeline.stages.params import IntermediateParams, PolicyParams, ReaderParams
from maskpolicy.pipeline.stages.preparation import SHARD
from maskpolicy.pipeline.stages.training_text import (
    ANNOTATE,
    FEEDBACK,
    LIMITS_FACT,
    ROOM_FACT,
    open_statistics,
    open_views,
)
from maskpolicy.pipeline.store.artifacts import Store, available
from maskpolicy.plugins.discovery import changed_since, instance, plugin_of_run
from maskpolicy.plugins.hooks import STATISTICS
from maskpolicy.plugins.registry import gives_examples

FILE = "masks.safetensors"
_REPEATED = 32  # passages that are masked twice, to check that the masks are the same
DECIDING_PREFIXES = ("corpus", ANNOTATE, STATISTICS)  # of the inputs that decide what is masked
READS = "reads"  # the field of ReaderParams


@dataclass(frozen=True)
class Sampling:
    """The size of the sample of an analysis; analyses inherit these settings."""

    passages: Count = 2000  # the most in a sample
    draws: Count = 1  # number of epochs whose masks are included
    seed: Seed = 0  # of the choice of passages

    @property
    def sampling(self) -> Sampling:
        """These settings without those of the analysis."""
        return Sampling(self.passages, self.draws, self.seed)

    def places(self, count: int) -> NDArray[np.int64]:
        """Return the sorted indices (n,) of passages drawn from `count`, without replacement."""
        size = min(count, self.passages)
        drawn = np.random.default_rng([self.seed, count]).permutation(count)[:size]
        return np.sort(drawn)


@dataclass(frozen=True)
class IntermediateStage:
    """The intermediate stage of one row of a run, as recorded in the store."""

    run: Run
    label: str
    number: int  # of the intermediate run
    key: str
    params: IntermediateParams
    inputs: Mapping[str, str]  # name -> key
    version: int  # of the stage; changes if masking changes
    facts: Mapping[str, Json]  # that the stage recorded
    color: int = 0  # index among the run's rows

    @property
    def corpus(self) -> str:
        """The key of the stage's passages."""
        return self.inputs["corpus"]

    @property
    def read_by_policy(self) -> dict[str, str]:
        """Name and key of the inputs that decide what is masked."""
        return {
            name: key for name, key in self.inputs.items() if name.startswith(DECIDING_PREFIXES)
        }


def intermediate_stages(
    runs: Sequence[Run], store: Store, *, every: bool = False
) -> tuple[list[IntermediateStage], list[str]]:
    """Return the intermediate stages of all rows, and a note for each that is not in the store.

    They are those of each row's first intermediate run, or with `every` of all its runs.
    """
    found: list[IntermediateStage] = []
    notes: list[str] = []
    for run in runs:
        for color, label in enumerate(run.rows):
            keys = {
                result.config["intermediate_seed"]: key
                for result in run.results
                if result.policy == label and "intermediate_seed" in result.config
                if (key := result.stage_key("intermediate")) is not None
            }
            for number, key in sorted(keys.items())[: None if every else 1]:
                manifest = store.peek(key)
                name = f"{run.name}, {label}" if len(runs) > 1 else label
                if manifest is None:
                    notes.append(f"{name}: {lacking_stage(store, run, label, number)}")
                    continue
                record = manifest["record"]
                version = record["version"]
                params, inputs = params_of(record, IntermediateParams), record["inputs"]
                read = params, inputs, version, record["facts"]
                found.append(IntermediateStage(run, name, number, key, *read, color))
    return found, notes


def rows_of_stages(
    runs: Sequence[Run],
    store: Store,
    rows_of: Callable[[IntermediateStage, Store], Iterable[Json]],
) -> tuple[list[Json], list[str]]:
    """Return the rows of every intermediate stage, and a note for each that lacks something."""
    found, notes = intermediate_stages(runs, store, every=True)
    rows: list[Json] = []
    faults: list[ConfigError] = []  # e.g. of a row with a corpus of its own
    for each in found:
        try:
            rows += rows_of(each, store)
        except (ConfigError, StoreError) as error:
            notes.append(f"{each.label}: {error}")
            faults += [error] if isinstance(error, ConfigError) else []
    if faults and not rows:
        raise faults[0]
    return rows, notes


def lacking_stage(store: Store, run: Run, label: str, number: int | None = None) -> str:
    """Return why a row's intermediate stage is not in the store, or what to do about it.

    `number` is that of the intermediate run (None: of all).
    """
    cells = [
        result
        for result in run.results
        if result.policy == label and number in (None, result.config.get("intermediate_seed"))
    ]
    failed = [cell.error for cell in cells if cell.error is not None]
    if len(failed) == len(cells):
        return f"its intermediate stage did not finish: {failed[0]}"
    return lacking(store, "its intermediate stage")


@dataclass(frozen=True, kw_only=True)
class MaskedParams(PolicyParams):
    """What a policy masks in a sample of a corpus."""

    masking: int  # version of the stage "intermediate"
    seed: int
    sampling: Sampling
    # steps and batch size of the training, for a policy that follows its progress
    pace: tuple[int, int] | None = omitted(None)
    room: int | None = omitted(None)  # the most tokens of a passage that it reads; None: all
    # the objective and `Specials.limits`, if they limit the masked spans
    limits: tuple[Denoising, int, int] | None = omitted(None)


@stage("corpus-sample")
def cut_sample(params: Sampling, inputs: Folders, out: Path, run: StageRun) -> None:
    """Write the passages of a sample as a corpus, for columns that take long to compute."""
    arrays = Passages.open(inputs["corpus"]).arrays
    places = params.places(len(arrays["tokens"])).tolist()
    rows = ({name: array[place] for name, array in arrays.items()} for place in places)
    write_passages(out / PASSAGES_FILE, rows)


@stage("masked-sample", version=3)
def masked(params: MaskedParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Mask a sample of passages, all examples of each passage in an epoch.

    The input "corpus" may be a `corpus-sample` of the input "whole".
    """
    policy, sampling = instance("policy", params.policy, params.fields), params.sampling
    leaves = len(Masker.of(policy, Denoising()).leaves)
    how, target_room, sentinels = params.limits or (Denoising(), None, 0)
    masker = Masker.of(policy, how, open_statistics(inputs, leaves))
    marks = Marks(0, sentinels=tuple(range(sentinels)))
    views = open_views(inputs, leaves)
    whole = Passages.open(inputs["whole"]) if "whole" in inputs else views[0]
    corpus = views[0]
    if params.room is not None:
        views = [view.cut(params.room) for view in views]
    places = own = sampling.places(len(corpus))
    # where each example of the sample is in the order of the training, with the examples' lengths
    items, lengths, scale = sampling.places(len(whole)), whole.lengths, 1.0
    numbers: list[int] | None = None
    if gives_examples(policy):
        counted = np.arange(len(corpus)) if params.pace else places
        examples = examples_of(policy, [views[0][place] for place in counted.tolist()])
        own = counted[examples[:, 0]]
        items, lengths = np.flatnonzero(np.isin(own, places)), corpus.lengths[own]
        own, numbers, scale = own[items], examples[items, 1].tolist(), len(whole) / len(corpus)
    some, first = own[:_REPEATED].tolist(), numbers and numbers[:_REPEATED]
    at_first = views, some, params.seed, [0] * len(some), 0.0, first
    check_repeats(policy, masker.select(*at_first), masker.select(*at_first))
    done, total = 0, sampling.draws * len(own)
    with RaggedWriter(out / FILE) as file:
        for epoch in range(sampling.draws):
            shares = np.zeros(len(own))
            if params.pace is not None:
                steps, size = params.pace
                at = scale * Order(lengths, size, params.seed).steps_of(items, epoch)
                shares = (at % steps) / steps  # what the training never reads is spread over it
            by_place: dict[int, list[Spans]] = {place: [] for place in places.tolist()}
            for i, (place, progress) in enumerate(zip(own.tolist(), shares.tolist(), strict=True)):
                example = numbers and numbers[i : i + 1]
                found = masker.select(views, [place], params.seed, [epoch], progress, example)
                drawn = found.passages, found.spans, found.denoisings[0]
                (spans,), *_ = masked_spans(*drawn, marks, params.seed, [epoch], target_room)
                by_place[place].append(spans)
                done += 1
                run.progress(done, total, "passages")
            for place, of_examples in by_place.items():
                spans = np.concatenate([as_spans([]), *of_examples]).astype(np.int32)
                counts = np.asarray([len(each) for each in of_examples], np.int32)
                file.append({"spans": spans, "counts": counts, "places": np.asarray([place])})


@dataclass(frozen=True, eq=False)
class MaskedSample:
    """The spans that a policy masks in a sample of n passages; each occurs once for each draw.

    A passage has the spans of all its examples in an epoch.

    The t tokens of all passages are numbered consecutively.
    """

    passages: Passages
    places: NDArray[np.int64]  # (n,) indices into `passages`
    spans: Ragged  # n arrays (spans, 2) of token ranges in the passage
    counts: Ragged  # n arrays (examples,) of the number of spans of each example

    @cached_property
    def tokens(self) -> Ragged:
        """The tokens of the n passages that a training reads."""
        tokens, most = self.passages.arrays["tokens"].take(self.places), self.passages.most
        return tokens if most is None else Ragged.of_arrays([row[:most] for row in tokens])

    @cached_property
    def flat(self) -> NDArray[np.int64]:
        """All spans, shape (s, 2), as ranges of consecutively numbered tokens."""
        begins = np.repeat(self.tokens.bounds[:-1], self.spans.lengths)
        return self.spans.flat.astype(np.int64) + begins[:, None]

    @cached_property
    def is_masked(self) -> NDArray[np.bool_]:
        """Whether each token is masked, shape (t,)."""
        edges = np.zeros(len(self.tokens.flat) + 1, np.int32)
        np.add.at(edges, self.flat[:, 0], 1)
        np.add.at(edges, self.flat[:, 1], -1)
        return np.cumsum(edges)[:-1] > 0

    @cached_property
    def in_passage(self) -> NDArray[np.int64]:
        """The index of each token in its passage, shape (t,)."""
        begins = np.repeat(self.tokens.bounds[:-1], self.tokens.lengths)
        return np.arange(len(begins)) - begins

    def in_characters(self) -> Iterator[tuple[str, list[tuple[int, int]]]]:
        """Yield the text of each passage, and its spans as (first character, end) pairs.

        Surrounding whitespace does not belong to a span.
        """
        for place, spans in zip(self.places.tolist(), self.spans, strict=True):
            passage = self.passages[place]
            yield passage.text, passage.characters(spans)

    def texts(self) -> list[str]:
        """Return the text of each span without surrounding whitespace."""
        return [text[a:b].strip() for text, spans in self.in_characters() for a, b in spans]


@dataclass(frozen=True, eq=False)
class Sample(MaskedSample):
    """The spans that one row of a run masks in a sample of its corpus."""

    row: IntermediateStage


def open_masked(corpus: Sequence[Path], folder: Path, room: int | None) -> MaskedSample:
    """Open what a stage `masked-sample` wrote to `folder`.

    `corpus` are the folders of the passages and of their columns; `room` is as in its parameters.
    """
    arrays, passages = ragged.load(folder / FILE), Passages.open(*corpus)
    passages = passages if room is None else passages.cut(room)
    return MaskedSample(passages, arrays["places"].flat, arrays["spans"], arrays["counts"])


def sample(row: IntermediateStage, sampling: Sampling, store: Store) -> Sample:
    """Return the spans that a row masks in a sample of its corpus, the same as in its training.

    Raises StoreError if its corpus is not in the store, and ConfigError if the policy's code or
    the masking has changed since the training.
    """
    unchanged_block(row.params, row.run, "its training")
    if FEEDBACK in row.inputs:
        raise ConfigError(
            "its masks depend on predictions of the model in training, which are deleted after "
            "use: they cannot be sampled"
        )
    if row.version != version_of("intermediate") or LIMITS_FACT not in row.facts:
        raise ConfigError(
            "it was trained by a version of maskpolicy that masks differently: run its experiment "
            "again"
        )
    room = row.facts.get(ROOM_FACT)
    params = masked_params(row.params, sampling, room, row.facts[LIMITS_FACT])
    inputs = _with_columns(row, sampling, store)
    folder = derive(store, "masked-sample", row.label, params, inputs).path
    shown = {k: key for k, key in inputs.items() if not k.startswith((STATISTICS, "whole"))}
    read = [available(store, key, name).path for name, key in shown.items()]
    named = zip(shown, read, strict=True)
    own = [folder for name, folder in named if name.startswith(ANNOTATE)]
    columns = [column for folder in own for column in open_arrays(folder)] if own[1:] else []
    if len({*columns}) < len(columns):  # members with columns of one name
        read = [folder for folder in read if folder not in own]
    return Sample(**vars(open_masked(read, folder, room)), row=row)


def _with_columns(row: IntermediateStage, sampling: Sampling, store: Store) -> dict[str, str]:
    """Return the inputs that decide what a row masks, by name.

    If only the passages that its training read have columns, those of the sample are computed, and
    the corpus is the sample of the input "whole".
    """
    inputs, part = row.read_by_policy, ""
    for name, key in row.read_by_policy.items():
        known = store.peek(key) if name.startswith(ANNOTATE) else None
        if known is None or READS not in known["record"]["params"]:
            continue
        part = derive(store, "corpus-sample", row.label, sampling, {"corpus": row.corpus}).key
        params = replace(params_of(known["record"], ReaderParams), reads=None)
        read = {k: v for k, v in known["record"]["inputs"].items() if not k.startswith(SHARD)}
        inputs[name] = derive(store, "annotate", row.label, params, read | {"corpus": part}).key
    return inputs | {"corpus": part, "whole": row.corpus} if part else inputs


def unchanged_block(params: PolicyParams, run: Run, training: str) -> PolicyBlock:
    """Return the block of the policy that a stage of a finished run trained with.

    Raises ConfigError if its code, that of a member, or what they depend on has changed since
    `training`.
    """
    files = plugin_files(run.folder)
    changed = [
        name
        for name, digests in {params.policy: params.code, **(params.member_code or {})}.items()
        if changed_since(plugin_of_run("policy", name, files), digests or {})
    ]
    block = policy_block({"name": params.policy, **params.fields}, params.policy, {})
    if [params.versions, params.depends] != plain([policy_versions(block), policy_depends(block)]):
        changed.append(params.policy)
    if changed:
        raise ConfigError(
            f"policy {changed[0]} has changed since {training}: run its experiment again"
        )
    return block


def masked_params(
    training: IntermediateParams,
    sampling: Sampling,
    room: int | None,
    limits: tuple[int, int] | None,
) -> MaskedParams:
    """Return the parameters of the stage that masks a sample of the corpus as a training does.

    `room` is the most tokens of a passage that it reads, if some passage has more; for `limits`
    see `Specials.limits`.
    """
    policy, spec = instance("policy", training.policy, training.fields), training.spec
    follows = Masker.of(policy, Denoising()).follows_progress
    return MaskedParams(
        masking=version_of("intermediate"),
        policy=training.policy,
        fields=training.fields,
        code=training.code,
        member_code=training.member_code,
        versions=training.versions,
        depends=training.depends,
        seed=spec.seed,
        sampling=sampling,
        pace=(spec.steps, spec.batch_size) if follows else None,
        room=room,
        limits=limits and (training.how, *limits),
    )


def samples(
    runs: Sequence[Run], sampling: Sampling, store: Store, *, every: bool = False
) -> tuple[list[Sample], list[str], bool]:
    """Return the sample of every row, notes, and whether the sample of any row is missing.

    With `every`, a row has a sample for each of its intermediate runs, labelled "ROW, run 0" etc.
    """
    rows, notes = intermediate_stages(runs, store, every=every)
    missing = bool(notes)
    found = []
    for row in rows:
        if every:
            row = replace(row, label=f"{row.label}, run {row.number}")
        nothing = (
            f"{row.label}: masks nothing in the sample of its corpus: set a larger number of "
            "passages=, or run it on a corpus with more and longer texts"
        )
        try:
            found.append(sample(row, sampling, store))
            if not len(found[-1].flat):
                notes.append(nothing)
        except DataError:  # of `annotate`, whose columns are all empty in the sample
            notes.append(nothing)
            missing = True
        except (ConfigError, StoreError) as error:  # e.g. a policy's file needs --plugin
            notes.append(f"{row.label}: {error}")
            missing = True
    return found, notes, missing


def by_row(found: Sequence[Sample]) -> dict[str, list[Sample]]:
    """Return the samples of each row, by its label.

    If a row has several, one for each intermediate run, the label is "ROW, mean of 5 runs".
    """
    rows: dict[str, list[Sample]] = {}
    for each in found:
        rows.setdefault(each.row.label.removesuffix(f", run {each.row.number}"), []).append(each)
    return {
        f"{label}, mean of {len(own)} runs" if len(own) > 1 else own[0].row.label: own
        for label, own in rows.items()
    }
