"""Show what policies mask in texts, also with what they learned in a finished run."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.app.file_to_folder import computed
from maskpolicy.core.errors import ConfigError, DataError, StoreError, unknown
from maskpolicy.core.seeding import generator
from maskpolicy.core.types import Json, Passage
from maskpolicy.data.corpus.annotation import annotate
from maskpolicy.data.corpus.passages import Document, first_tokens, tokenize
from maskpolicy.data.corpus.segmentation import ENGLISH
from maskpolicy.data.datafiles import fields
from maskpolicy.experiment import yaml_file
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import (
    NONE,
    WORLD,
    Experiment,
    ModelKind,
    PolicyBlock,
    resolved_policy,
)
from maskpolicy.experiment.parse import make_experiment
from maskpolicy.experiment.policy_blocks import leaf_blocks
from maskpolicy.leaderboard.page import templates
from maskpolicy.leaderboard.results.cell import Run, read_run
from maskpolicy.masking.denoising import mixed_pairs
from maskpolicy.masking.selection import Masker, check_repeats
from maskpolicy.models import encoders
from maskpolicy.models.families import limits, within
from maskpolicy.models.guesses import Current, reannotated
from maskpolicy.models.loading import load_tokenizer
from maskpolicy.models.training.collator import config_beside
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.unmasking import unmasked
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.stages.training_text import ROOM_FACT, inputs_of, statistics_keys
from maskpolicy.pipeline.store.artifacts import Store, available
from maskpolicy.plugins import hooks
from maskpolicy.plugins.discovery import changed_since, find_plugin
from maskpolicy.plugins.statistics import Statistics

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


log = logging.getLogger(__name__)
UNLEARNED = "as for a model that has learned nothing, to which all tokens are equally likely"


@dataclass(frozen=True)
class MaskedText:
    """One text masked by a policy; `spans` are (first character, end, text of the span)."""

    text: str
    spans: tuple[tuple[int, int, str], ...]
    source: str
    target: str  # "" if nothing is masked
    unmasked: str | None = None  # the source with its masks filled by a model; None: not asked


@dataclass(frozen=True)
class Preview:
    """One text masked by one row with one seed."""

    row: str  # the policy with its keys
    seed: int
    masked: MaskedText

    def to_json(self) -> dict[str, Json]:
        """Return row, seed, text, spans, source and target."""
        values = {"policy": self.row, "seed": self.seed, **vars(self.masked)}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def parts(self) -> Iterator[tuple[bool, str]]:
        """The parts of the text, each with whether it is masked."""
        end, text = 0, self.masked.text
        for start, stop, _ in sorted(self.masked.spans):
            yield False, text[end:start]
            yield True, text[start:stop]
            end = stop
        yield False, text[end:]


def page(previews: Sequence[Preview]) -> str:
    """Return an HTML page with a table for each text, whose previews must be in a row."""
    texts = [list(each) for _, each in groupby(previews, lambda each: each.masked.text)]
    has_seeds = len({each.seed for each in previews}) > 1
    template = templates("maskpolicy.app").get_template("preview.html")
    return template.render(texts=texts, has_seeds=has_seeds)


@dataclass(frozen=True)
class Reading:
    """The language of a text, and how much of it a training would read."""

    language: str = ENGLISH
    limits: Training = field(default_factory=Training)  # its max_source and max_target cut a text
    room: int | None = None  # the most tokens of a passage, if the training of a run cut some

    @classmethod
    def of(cls, tokenizer: Any, language: str) -> Reading:
        """Return the default limits, lowered to the positions of the tokenizer's model."""
        config = config_beside(tokenizer)
        return cls(language, Training() if config is None else within(Training(), limits(config)))


@dataclass(frozen=True)
class PolicyOfRun:
    """One row of a finished run: its policy, its tokenizer, and its fitted artifacts."""

    policy: Mapping[str, Json]  # name, fields and keys of Denoising
    tokenizer: Path
    label: str
    fitted: Mapping[str, Path]  # of learned policies, by the label of the row or of its member
    trained: str | None  # the key of its intermediate stage
    reading: Reading = field(default_factory=Reading)


@dataclass(frozen=True)
class Masking:
    """Masks a text as a training with one policy does."""

    block: PolicyBlock
    tokenizer: PreTrainedTokenizerBase
    reading: Reading = field(default_factory=Reading)
    statistics: Sequence[Statistics | None] = ()  # that each policy that selects reads
    fitted: Mapping[str, Path] = field(default_factory=dict)  # see `PolicyOfRun`
    # (source, seed) -> the source with its masks filled by a model; None: they stay
    unmask: Callable[[NDArray[np.int32], int], NDArray[np.int32]] | None = None

    @classmethod
    def of(cls, block: PolicyBlock, model: str, artifacts: Store, language: str) -> Masking:
        """Return a masking with the tokenizer of a model and statistics of the embedded world."""
        tokenizer = tokenizer_of(model, artifacts)
        statistics = statistics_of(block, model, None, artifacts)
        return cls(block, tokenizer, Reading.of(tokenizer, language), statistics)

    def __call__(self, text: str, seed: int = 0, progress: float = 0.0) -> MaskedText:
        """Mask `text` as one passage.

        `progress` in [0, 1) is the share of the training that is done, for policies with a
        schedule. Raises ConfigError for text without words.
        """
        block, reading, specials = self.block, self.reading, Specials.of(self.tokenizer)
        if not block.has_stage:
            raise ConfigError(f"policy {block.name}: masks nothing: name another policy")
        leaves = [leaf for leaf, _ in leaf_blocks(block, "policy")]
        most = specials.kept(reading.limits, (leaf.denoising for leaf in leaves))
        most = min(most, reading.room or most)
        passage = _passage(text, self.tokenizer, reading.language, most)
        read = self.statistics or [None] * len(leaves)
        views = [
            [_annotated(leaf, passage, self.fitted.get(leaf.label), own, len(self.tokenizer))]
            for leaf, own in zip(leaves, read, strict=True)
        ]
        masker = Masker.of(block.policy, block.denoising, read)
        drawn, again = (masker.select(views, [0], seed, [0], progress=progress) for _ in range(2))
        check_repeats(masker.policy, drawn, again)
        limits = most, specials.target_room(reading.limits)
        pairs = mixed_pairs(drawn, specials, seed, [0], *limits)
        return MaskedText(
            text,
            tuple((a, b, text[a:b]) for a, b in passage.characters(drawn.spans[0])),
            _written(pairs.sources[0], self.tokenizer),
            _written(pairs.targets[0], self.tokenizer),
            self.unmask and _written(self.unmask(pairs.sources[0], seed), self.tokenizer),
        )

    def filled_by(self, model: str, steps: int) -> Masking:
        """Return the same masking, but let an encoder fill the masks in `steps` steps.

        `model` is its folder or name on the Hub. Raises ConfigError if it has no head.
        """
        specials, loaded = Specials.of_encoder(self.tokenizer), encoders.load(model, head="own")
        before, after = specials.ends()

        def unmask(source: NDArray[np.int32], seed: int) -> NDArray[np.int32]:
            whole = np.concatenate([before, source, after]).astype(np.int32)
            filled = unmasked(loaded, whole, specials, steps, generator(seed, 0, "", "unmask"))
            return filled[len(before) : len(before) + len(source)]

        return replace(self, unmask=unmask)


def _annotated(
    leaf: PolicyBlock,
    passage: Passage,
    fitted: Path | None,
    statistics: Statistics | None,
    vocabulary: int,
) -> Passage:
    """Return the passage with the columns that a policy computes.

    `reannotate` gets the predictions of an untrained model: all tokens are equally likely.
    """
    policy, columns = leaf.policy, dict[str, Any]()
    if hooks.ANNOTATE.of(policy) is not None:
        columns |= annotate(policy, [passage], fitted, statistics=statistics)
        passage = replace(passage, columns={name: rows[0] for name, rows in columns.items()})
    if hooks.REANNOTATE.of(policy) is not None:
        columns |= reannotated(policy, [passage], Current(vocabulary=vocabulary, fitted=fitted))
    return replace(passage, columns={name: rows[0] for name, rows in columns.items()})


def from_run(folder: Path, name: str, store: Store) -> PolicyOfRun:
    """Return the row of a finished run whose label, or else whose policy, is `name`.

    Raises ConfigError if there is no such row, and StoreError if the store lacks its artifacts.
    """
    results = read_run(folder)
    label = _label(results, name)
    cell = next(result for result in results.results if result.policy == label)
    key = cell.stage_key("tokenizer")
    if key is None:
        raise DataError(f"{folder}: row {label!r} has no tokenizer: run its experiment again")
    fitted = {
        shown: available(store, key_of_fit, f"the fitted policy of {shown}").path
        for shown, key_of_fit in cell.fitted().items()
    }
    tokenizer = available(store, key, f"the tokenizer of {folder}").path
    trained = cell.stage_key("intermediate")
    keys = cell.config.get("intermediate") or {}
    limits = Training(**{key: keys[key] for key in ("max_source", "max_target") if key in keys})
    known = store.recall(trained) if trained else None
    room = known["record"]["facts"].get(ROOM_FACT) if known else None
    reading = Reading((cell.config.get("corpus") or {}).get("language", ENGLISH), limits, room)
    return PolicyOfRun(cell.config["policy"], tokenizer, label, fitted, trained, reading)


def warn_of_edits(row: PolicyOfRun, store: Store) -> None:
    """Log a warning if the files of a row's policy, or a member, have changed since its run."""
    manifest = store.peek(row.trained) if row.trained else None
    if manifest is None:
        return
    params = manifest["record"]["params"]
    code = {row.policy["name"]: params.get("code"), **(params.get("member_code") or {})}
    changed = {
        file
        for name, before in code.items()
        for file in changed_since(find_plugin("policy", name), before or {})
    }
    if changed:
        log.warning(
            "%s: %s changed since the run: what is shown may not be what the run masked",
            row.label,
            ", ".join(sorted(changed)),
        )


def tokenizer_of(name: str, artifacts: Store) -> Any:
    """Return a model's tokenizer; the store keeps the trained tokenizer of a preset."""
    experiment = _of_world(name, [NONE])
    if not experiment.model.is_scratch:
        return load_tokenizer(experiment.model.name)
    [made] = computed([stages.tokenizer(experiment, artifacts.hash_file)], artifacts)
    return load_tokenizer(str(made.path))


def kind_of(name: str) -> ModelKind:
    """Return the kind of a model, which decides the form of sources and targets."""
    return _of_world(name, [NONE]).model.kind


def statistics_of(
    block: PolicyBlock, model: str, of_run: PolicyOfRun | None, artifacts: Store
) -> list[Statistics | None]:
    """Return the statistics that each policy of a row, or each member of a mixture, reads.

    They are those of the run, or else of the embedded world's corpus in the model's tokens, which
    the store keeps.
    """
    if not block.has_stage:
        return []
    leaves = [find_plugin("policy", leaf.name) for leaf, _ in leaf_blocks(block, "policy")]
    if not any(hooks.masks_by_statistics(leaf.plugin) for leaf in leaves):
        return [None] * len(leaves)
    if of_run:
        return _statistics_of_run(of_run, len(leaves), artifacts)
    experiment = _of_world(model, [resolved_policy(block)], baseline=block.label)
    counting = stages.statistics(experiment, artifacts.hash_file)
    made = iter(computed([stage for stage in counting if stage is not None], artifacts))
    return [Statistics.open(next(made).path) if stage else None for stage in counting]


def _of_world(model: str, policies: list[Any], **more: Any) -> Experiment:
    """Return an experiment on the embedded world without tasks."""
    keys = {"model": model, "corpus": WORLD, "policies": policies, "tasks": [], **more}
    return make_experiment(keys, "show", "", (), needs=())


def _statistics_of_run(row: PolicyOfRun, leaves: int, store: Store) -> list[Statistics | None]:
    """Return the statistics that each of the `leaves` policies of a row read; None if it read none.

    Raises StoreError if the store lacks them.
    """
    inputs = inputs_of(row.trained, store)
    if not inputs:
        raise StoreError(
            f"store {store.place}: the intermediate stage of {row.label} is not there: name the "
            "store of that run with --store, or run its experiment again"
        )
    what = f"the statistics of {row.label}"
    return [
        Statistics.open(available(store, key, what).path) if key else None
        for key in statistics_keys(inputs, leaves, store)
    ]


def refuse_paths(policy: Mapping[str, Json], set_here: Collection[str]) -> None:
    """Raise ConfigError for a recorded field that names a file or folder, unless it is `set_here`.

    A run's folder may come from a stranger, and files that it names, such as a spaCy pipeline, may
    contain code.
    """
    for key, value in policy.items():
        for text in _texts(value) if key not in set_here else ():
            path = yaml_file.locate(text, ())
            if path is not None and (os.sep in text or (path / "meta.json").is_file()):
                raise ConfigError(
                    f"{key}: the run names {text!r}, and paths of a run are not followed: "
                    f"if you trust it, add policy.{key}={shlex.quote(text)}"
                )


def _texts(value: Json) -> Iterator[str]:
    """Yield every string in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def _label(run: Run, name: str) -> str:
    policies = {result.policy: result.config["policy"]["name"] for result in run.results}
    if name in policies:
        return name
    labels = [label for label, policy in policies.items() if policy == name]
    if len(labels) == 1:
        return labels[0]
    several = f"{name} has the rows {', '.join(labels)}: name one of these"
    raise ConfigError(f"{run.folder}: {several if labels else unknown('row', name, policies)}")


def _passage(text: str, tokenizer: PreTrainedTokenizerBase, language: str, most: int) -> Passage:
    """Return the first `most` tokens of a text.

    Raises ConfigError for one without words, and DataError for one that no corpus may hold.
    """
    fields.check(text, "--text")
    passage = next(iter(tokenize([Document("text", text, {}, language)], tokenizer)))
    if not text.strip() or not len(passage.tokens):
        raise ConfigError("--text: has no words: give some text")
    if len(passage.tokens) > most:
        log.info("of %d tokens, a training reads the first %d", len(passage.tokens), most)
    return first_tokens(passage, most)


def _written(ids: Any, tokenizer: PreTrainedTokenizerBase) -> str:
    text = tokenizer.decode(ids.tolist(), clean_up_tokenization_spaces=False)
    return str(text).strip()
