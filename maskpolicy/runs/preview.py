"""Mask one text with a policy, optionally one fitted in a finished run."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maskpolicy.config.experiment import PolicyBlock
from maskpolicy.config.policy_blocks import leaf_blocks
from maskpolicy.corpus.annotation import annotate
from maskpolicy.corpus.passages import Document, tokenize
from maskpolicy.errors import ConfigError, DataError, StoreError, unknown
from maskpolicy.learned.current_model import Current, reannotated
from maskpolicy.masking.denoising import denoising_pair
from maskpolicy.masking.members import Masker
from maskpolicy.masking.selection import unrepeatable
from maskpolicy.plugins import hooks
from maskpolicy.plugins.discovery import changed_since, find_plugin, instance
from maskpolicy.plugins.statistics import Statistics
from maskpolicy.results.cell import Run, read_run
from maskpolicy.stages import feedback
from maskpolicy.stages.leaf_inputs import inputs_of, statistics_keys
from maskpolicy.store.artifacts import available
from maskpolicy.training.specials import Specials
from maskpolicy.types import Json, Passage

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from maskpolicy.store.artifacts import Store

log = logging.getLogger(__name__)
UNLEARNT = "as for a model that has learnt nothing, to which all tokens are equally likely"


@dataclass(frozen=True)
class MaskedText:
    """One text masked by a policy; `spans` are (first character, end, text of the span)."""

    text: str
    spans: tuple[tuple[int, int, str], ...]
    source: str
    target: str  # "" if nothing is masked


@dataclass(frozen=True)
class PolicyOfRun:
    """One row of a finished run: its policy, its tokenizer, and the fitted artifact."""

    policy: Mapping[str, Json]  # name, fields and keys of Denoising
    tokenizer: Path
    label: str
    fitted: Mapping[str, Path]  # of learned policies, by the label of the row or of its member
    trained: str | None  # the key of its intermediate stage


def show(
    text: str,
    block: PolicyBlock,
    tokenizer: PreTrainedTokenizerBase,
    fitted: Mapping[str, Path] | None = None,
    seed: int = 0,
    progress: float = 0.0,
    statistics: Sequence[Statistics | None] = (),
) -> MaskedText:
    """Mask `text` as one passage with the policy of `block` and a seed.

    `fitted` holds the artifacts of learned policies, by the label of the row or of its member.
    `progress` is the share of the training that is done, for a policy that follows it, and
    `statistics` are those that each policy that selects reads. Raises ConfigError for text without
    words.
    """
    if not block.has_stage:
        raise ConfigError(f"policy {block.name}: masks nothing: it has no intermediate stage")
    passage, known = _passage(text, tokenizer), fitted or {}
    leaves = [leaf for leaf, _ in leaf_blocks(block, "policy")]
    read = statistics or [None] * len(leaves)
    views = [
        [_annotated(leaf, passage, known.get(leaf.label), own, len(tokenizer))]
        for leaf, own in zip(leaves, read, strict=True)
    ]
    masker = Masker.of(instance("policy", block.name, block.fields), block.denoising, read)
    found, again = (masker.select(views, [0], seed, [0], progress=progress) for _ in range(2))
    if not np.array_equal(found.spans[0], again.spans[0]):
        raise unrepeatable(masker.policy)
    spans, marks = found.spans[0], Specials.of(tokenizer).marks
    masked = denoising_pair(passage, spans, found.denoisings[0], marks, seed)
    return MaskedText(
        text,
        tuple(_characters(passage, *span) for span in spans.tolist()),
        _written(masked.source, tokenizer),
        _written(masked.target, tokenizer),
    )


def asks_the_model(block: PolicyBlock) -> bool:
    """Return whether a row's policy masks by what the model in training predicts."""
    policy = instance("policy", block.name, block.fields)
    return hooks.REANNOTATE.of(policy) is not None


def _annotated(
    leaf: PolicyBlock,
    passage: Passage,
    fitted: Path | None,
    statistics: Statistics | None,
    vocabulary: int,
) -> Passage:
    """Return the passage with the columns of a policy that selects.

    Those of `reannotate` come from a model that has learnt nothing: all tokens are equally likely.
    """
    policy = instance("policy", leaf.name, leaf.fields)
    if hooks.ANNOTATE.of(policy) is not None:
        columns = {
            name: rows[0]
            for name, rows in annotate(policy, [passage], fitted, statistics=statistics).items()
        }
        passage = replace(passage, columns=columns)
    if hooks.REANNOTATE.of(policy) is None:
        return passage
    feedback.every(leaf)  # refuses what is no number of steps
    found = reannotated(policy, [passage], Current(vocabulary=vocabulary, fitted=fitted))
    columns = {name: rows[0] for name, rows in found.items()}
    return replace(passage, columns={**passage.columns, **columns})


def from_run(folder: Path, name: str, store: Store) -> PolicyOfRun:
    """Return the row of a finished run with this label, or else with this policy.

    Raises ConfigError if there is no such row, and StoreError if its artifacts are missing.
    """
    found = read_run(folder)
    label = _label(found, name)
    cell = next(result for result in found.results if result.policy == label)
    key = cell.stage_key("tokenizer")
    if key is None:
        raise DataError(f"{folder}: row {label!r} has no tokenizer: run its experiment again")
    # a row may have several fitted policies: its own or its members', and those they start from
    end, fitted = f", run {cell.config.get('intermediate_seed', 0)}", {}
    for stage, made in cell.stages.items():
        learned = stage.removeprefix("fit ").removesuffix(end)
        is_member = learned.startswith(f"{cell.trained_as}, member ") and learned.endswith(")")
        if stage == f"fit {learned}{end}" and (learned == cell.trained_as or is_member):
            shown = learned.replace(cell.trained_as, label, 1)
            fitted[shown] = available(store, made, f"the fitted policy of {shown}").path
    tokenizer = available(store, key, f"the tokenizer of {folder}").path
    trained = cell.stage_key("intermediate")
    return PolicyOfRun(cell.config["policy"], tokenizer, label, fitted, trained)


def warn_of_edits(row: PolicyOfRun, store: Store) -> None:
    """Log a warning if the files of a row's policy are not those that its run was computed with."""
    known = store.peek(row.trained) if row.trained else None
    if known is None:
        return
    before = known["record"]["params"].get("code") or {}
    changed = changed_since(find_plugin("policy", row.policy["name"]), before)
    if changed:
        log.warning(
            "%s: %s changed since the run: what is shown may not be what the run masked",
            row.label,
            ", ".join(changed),
        )


def statistics_of_run(row: PolicyOfRun, leaves: int, store: Store) -> list[Statistics | None]:
    """Return the statistics of the corpus that each policy of a row read; None if it read none.

    `leaves` is the number of policies that select. Raises StoreError if its artifacts are missing.
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


def refuse_paths(policy: Mapping[str, Json], given: Collection[str]) -> None:
    """Raise ConfigError for a recorded field that names a file or folder, unless it is `given`.

    A run's folder may come from a stranger, so its paths are not followed. The folder of a spaCy
    pipeline, for example, may contain code.
    """
    for key, value in policy.items():
        for text in _texts(value) if key not in given else ():
            path = Path(text)
            if (os.sep in text and path.exists()) or (path / "meta.json").is_file():
                raise ConfigError(
                    f"{key}: the run names {text!r}, and paths of a run are not followed: "
                    f"if you trust it, add policy.{key}={shlex.quote(text)}"
                )


def _texts(value: Json) -> Iterator[str]:
    """Yield every string in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _label(run: Run, name: str) -> str:
    policies = {result.policy: result.config["policy"]["name"] for result in run.results}
    if name in policies:
        return name
    labels = [label for label, policy in policies.items() if policy == name]
    if len(labels) > 1:
        raise ConfigError(
            f"{run.folder}: {name} has the rows {', '.join(labels)}: name one of these"
        )
    if not labels:
        raise ConfigError(f"{run.folder}: {unknown('row', name, policies)}")
    return labels[0]


def _passage(text: str, tokenizer: PreTrainedTokenizerBase) -> Passage:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ConfigError("--text: has a lone surrogate (not UTF-8?): remove it")
    passage = next(iter(tokenize([Document("text", text)], tokenizer)))
    if not text.strip() or not len(passage.tokens):
        raise ConfigError("--text: has no words: give some text")
    return passage


def _characters(passage: Passage, first: int, end: int) -> tuple[int, int, str]:
    """Return (first character, end, text) of a token span without surrounding whitespace."""
    start, stop = int(passage.offsets[first, 0]), int(passage.offsets[end - 1, 1])
    part = passage.text[start:stop]
    if part.strip():
        start, stop = start + len(part) - len(part.lstrip()), start + len(part.rstrip())
    elif start == stop:  # a token of whitespace, which this tokenizer leaves out of offsets
        start = max(0, start - 1)
    return start, stop, passage.text[start:stop]


def _written(ids: Any, tokenizer: PreTrainedTokenizerBase) -> str:
    text = tokenizer.decode(ids.tolist(), clean_up_tokenization_spaces=False)
    return str(text).strip()
