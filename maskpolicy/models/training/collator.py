"""A masking policy as the `data_collator` of a plain Transformers Trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.core.types import (
    Corruption,
    Denoising,
    Join,
    Passage,
    Policy,
    Spans,
    Target,
    as_spans,
)
from maskpolicy.data.corpus import annotation, sums
from maskpolicy.data.corpus.passages import (
    Document,
    counts_blanks,
    encode,
    first_tokens,
    passage,
    tokenize,
    without_blanks,
)
from maskpolicy.data.datafiles import fields
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.policy_blocks import denoising_block, policy_block
from maskpolicy.masking.denoising import mixed_pairs
from maskpolicy.masking.members import Masker
from maskpolicy.models.training.batching import IGNORE, collate
from maskpolicy.models.training.specials import Specials, has_masks
from maskpolicy.plugins import hooks, registry
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.plugins.plugin_errors import plugin_name
from maskpolicy.plugins.registry import DENOISING_KEYS
from maskpolicy.plugins.statistics import Statistics

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

_WHERE = "MaskingCollator: "


class MaskingCollator:
    """Masks rows with a policy, dynamically on each call, as maskpolicy's own training does.

    A row holds {"text"}, or {"input_ids"}, which are decoded and tokenized again, or {"text",
    "input_ids", "offset_mapping"}, whose ids are used as they are. Special tokens are removed from
    the ids, so that they are never masked, and each pair gets its own, such as <s> and </s>. A
    tokenizer with sentinels (T5) masks with these; spans for which none is left stay visible. Set
    the Trainer's remove_unused_columns=False, or it drops the "text" column.

    Masks depend on `seed`, on the text (or the row's "id"), and on the number of rows before. Equal
    calls in equal order give equal masks, and two policies draw from the same generators. Each
    DataLoader worker adds its own seed, which PyTorch draws anew in each epoch.

    `policy` is a name, a block such as {"name": "random", "ratio": 0.3}, or an instance. `target`
    to `insert` are fields of `types.Denoising`. None means the policy's registered default, or
    Denoising's default for an instance. `columns` names keys of the rows that hold lists of [start,
    end] character offsets in "text". `fitted` is the folder of a learned policy. `decoder_start` is
    the model's decoder_start_token_id (None: as `Specials.of` says). `max_source` and `max_target`
    are in tokens and include special tokens. The tokens and annotations of the latest `cache` texts
    are cached. `total_rows` is the number of rows that the training reads, over all epochs; a
    policy that follows the progress of the training needs it. `statistics`, for a policy that reads
    those of a corpus, are the texts to count, or the folder of an artifact (`count`, `condense`);
    `contrast` are general texts, for a policy that compares the two. The tokenizer must be a fast
    one with a mask token or sentinels; it is copied. Raises ConfigError if the policy or the
    tokenizer cannot be used.
    """

    def __init__(
        self,
        policy: str | Mapping[str, Any] | Policy,
        tokenizer: PreTrainedTokenizerBase,
        *,
        target: Target | None = None,
        corruption: Corruption | None = None,
        join: Join | None = None,
        permute_sentences: bool | None = None,
        insert: float | None = None,
        columns: Sequence[str] = (),
        fitted: str | Path | None = None,
        seed: int = 0,
        decoder_start: int | None = None,
        max_source: int = 512,
        max_target: int = 512,
        cache: int = 10_000,
        total_rows: int | None = None,
        statistics: str | Path | Sequence[str] | None = None,
        contrast: Sequence[str] = (),
    ) -> None:
        """Check the arguments and open what the policy reads; raises ConfigError as above."""
        objective = {
            "target": target,
            "corruption": corruption,
            "join": join,
            "permute_sentences": permute_sentences,
            "insert": insert,
        }
        name, self.policy = _policy(policy)
        block = policy if isinstance(policy, Mapping) else {}
        asked = {key: block[key] for key in DENOISING_KEYS if key in block}
        asked |= {key: value for key, value in objective.items() if value is not None}
        facts = denoising_block(find_plugin("policy", name).facts if name else {}, _WHERE, {})
        self.denoising = denoising_block(asked, _WHERE, asdict(facts))
        self.tokenizer = _checked(tokenizer)
        self.specials = Specials.of(self.tokenizer, decoder_start)
        self.columns, self.seed, self.cache = tuple(columns), seed, cache
        self.fitted = None if fitted is None else Path(fitted)
        self.room = Training(max_source=max_source, max_target=max_target)
        self.total_rows = total_rows
        leaves = _masker(self.policy, self.denoising, asked).leaves
        read = [self._statistics(leaf.policy, statistics, contrast) for leaf in leaves]
        self.masker = Masker.of(self.policy, self.denoising, read)
        if fitted is None and any(hooks.FIT.of(leaf.policy) for leaf in leaves):
            raise ConfigError(
                f"MaskingCollator: {name}: learns before it masks: give the folder of what it "
                "learnt in a run as `fitted`"
            )
        if total_rows is None and self.masker.follows_progress:
            raise ConfigError(
                "MaskingCollator: the policy follows the progress of the training: set total_rows, "
                "the number of rows over all epochs"
            )
        self._taken_out = sorted(set(tokenizer.all_special_ids) - {tokenizer.unk_token_id})
        self._known: dict[str, list[Passage]] = {}  # with the columns of each leaf
        self._rows = 0

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Return input_ids, attention_mask, decoder_input_ids and labels, (rows, tokens) each.

        A row in which nothing is masked stays in the batch. All its labels are -100, so it adds no
        loss, as in maskpolicy's own training. If no row is masked, labels have one column, the
        model's mean loss is NaN, and all gradients are 0. The Trainer excludes such a loss from its
        logged mean (logging_nan_inf_filter), but `evaluate` reports NaN: remove such texts from the
        evaluation set. Raises ValueError for an empty batch and DataError for an invalid row.
        """
        if not rows:
            raise ValueError("MaskingCollator: a batch needs at least one row")
        views = self._views(rows)
        seed, turns = self._seed(), range(self._rows, self._rows + len(rows))
        progress = self._progress()
        self._rows += len(rows)
        found = self.masker.select(views, range(len(rows)), seed, turns, progress=progress)
        every = found.passages, found.spans, found.denoisings
        room = self.specials.room(self.room.max_source)
        written = mixed_pairs(*every, self.specials.marks, seed, turns, room)
        pairs = self.specials.pairs(written, self.room)
        batch = collate(pairs, self.specials.pad, self.specials.start)
        decoder: Any = batch.decoder
        labels = batch.labels
        if not labels.shape[1]:
            decoder = decoder.new_full((len(pairs), 1), self.specials.start)
            labels = labels.new_full((len(pairs), 1), IGNORE)
        return {
            "input_ids": batch.source,
            "attention_mask": batch.seen.long(),
            "decoder_input_ids": decoder,
            "labels": labels,
        }

    def _progress(self) -> float:
        """Return the share of the rows that are done; it stays below 1 for further rows."""
        from torch.utils.data import get_worker_info

        if self.total_rows is None:
            return 0.0
        if get_worker_info() is not None:
            raise ConfigError(
                "MaskingCollator: a DataLoader's worker does not know the progress of the "
                "training: leave total_rows out, or set dataloader_num_workers=0"
            )
        return min(self._rows, self.total_rows - 1) / self.total_rows

    def _seed(self) -> int:
        from torch.utils.data import get_worker_info

        worker = get_worker_info()
        return self.seed if worker is None else (self.seed << 64) + worker.seed

    def _views(self, rows: Sequence[Mapping[str, Any]]) -> list[list[Passage]]:
        """Return the rows as passages with the columns of each leaf; cache the latest."""
        keys = [self._key(row) for row in rows]
        new = {key: row for key, row in zip(keys, rows, strict=True) if key not in self._known}
        made = [self._passage(key, row) for key, row in new.items()]
        leaves = [self._annotated(leaf, made) for leaf in self.masker.leaves]
        self._known.update(zip(new, map(list, zip(*leaves, strict=True)), strict=True))
        found = [self._known[key] for key in keys]
        for key in list(islice(self._known, max(0, len(self._known) - self.cache))):
            del self._known[key]
        return [list(view) for view in zip(*found, strict=True)]

    def _statistics(
        self, policy: Any, given: str | Path | Sequence[str] | None, contrast: Sequence[str]
    ) -> Statistics | None:
        if not hooks.masks_by_statistics(policy):
            return None
        if given is None:
            raise ConfigError(
                f"MaskingCollator: {plugin_name('policy', policy)} needs the statistics of a "
                "corpus: set statistics, a list of texts to count"
            )
        if isinstance(given, str | Path):
            return Statistics.open(Path(given))
        own, other = (
            list(tokenize([Document(str(i), text) for i, text in enumerate(texts)], self.tokenizer))
            for texts in (given, contrast)
        )
        return sums.statistics_of(policy, own, other)

    def _annotated(self, leaf: Masker, made: list[Passage]) -> list[Passage]:
        if not made or hooks.ANNOTATE.of(leaf.policy) is None:
            return made
        columns = annotation.annotate(leaf.policy, made, self.fitted, statistics=leaf.statistics)
        return [
            replace(one, columns={**one.columns, **{name: c[i] for name, c in columns.items()}})
            for i, one in enumerate(made)
        ]

    def _key(self, row: Mapping[str, Any]) -> str:
        arrays = (row.get(name) for name in ("input_ids", "offset_mapping", *self.columns))
        content = [None if value is None else np.asarray(value).tolist() for value in arrays]
        text = repr((row.get("id"), row.get("text"), content))
        return blake2b(text.encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()

    def _passage(self, key: str, row: Mapping[str, Any]) -> Passage:
        """Return one row as a passage, truncated before masking to the length of a source."""
        text, tokens, offsets = self._tokens(row)
        missing = [name for name in self.columns if name not in row or row.get("text") is None]
        if missing:
            raise DataError(f"a row lacks column {missing[0]!r}, or the 'text' of its offsets")
        columns = {name: as_spans(np.asarray(row[name])).tolist() for name in self.columns}
        document = Document(str(row.get("id", key)), text, columns)
        whole = passage(document, tokens, offsets)
        return first_tokens(whole, self.specials.room(self.room.max_source))

    def _tokens(self, row: Mapping[str, Any]) -> tuple[str, NDArray[np.int32], Spans]:
        """Return the text of a row, its ids (t,) and offsets (t, 2), without special tokens."""
        text, ids, offsets = (row.get(key) for key in ("text", "input_ids", "offset_mapping"))
        if ids is not None:
            ids = np.asarray(ids, np.int32)
            plain = ~np.isin(ids, self._taken_out)
            if text is not None and offsets is not None:
                if counts_blanks(self.tokenizer):
                    offsets = without_blanks(offsets, text)
                return text, ids[plain], as_spans(np.asarray(offsets))[plain]
            if text is None:
                text = self.tokenizer.decode(ids[plain], clean_up_tokenization_spaces=False)
        if text is not None and not isinstance(text, str):
            raise DataError(f"a row's 'text' must be text, not {text!r:.60}")
        if text is None:
            raise DataError(
                f"a row has neither 'text' nor 'input_ids' but {sorted(row) or 'nothing'}: give "
                "the Trainer remove_unused_columns=False"
            )
        fields.check(text, "a row's 'text'")
        encoding = encode([text], self.tokenizer)[0]
        return text, np.asarray(encoding.ids, np.int32), as_spans(encoding.offsets)


def _policy(given: str | Mapping[str, Any] | Policy) -> tuple[str, Any]:
    """Return the policy's name ("" for an instance) and the policy; ConfigError if invalid."""
    block = {"name": given} if isinstance(given, str) else given
    if isinstance(block, Mapping):
        if not isinstance(block.get("name"), str):
            raise ConfigError(
                "MaskingCollator: a policy's block needs its name, as in "
                '{"name": "random", "ratio": 0.3}'
            )
        known = policy_block(block, "MaskingCollator: policy", {})
        if not known.has_stage:
            raise ConfigError(f"MaskingCollator: policy {known.name}: masks nothing")
        return known.name, known.policy
    masks = callable(hooks.SELECT.of(given)) or callable(hooks.CHOOSE_MEMBER.of(given))
    if isinstance(given, type) or not masks:
        raise ConfigError(
            "MaskingCollator: policy must be a name, a block of keys or an instance with a method "
            f"`select`, not {given!r:.60}"
        )
    made = type(given)
    if hooks.SELECT.of(made) is not None:  # unless only the instance has the method
        registry.check_hooks("policy", made, f"MaskingCollator: policy {made.__name__}")
    return "", given


def _masker(policy: Any, denoising: Denoising, asked: Mapping[str, Any]) -> Masker:
    """Return the policy with its members; ConfigError for an objective that cannot be had."""
    masker = Masker.of(policy, denoising)
    if masker.members and asked:
        raise ConfigError(
            f"MaskingCollator: {min(asked)}: the policy draws others: set it in their blocks"
        )
    for leaf in masker.leaves:
        if leaf.denoising.mask_exclusion:
            raise ConfigError(
                f"MaskingCollator: {plugin_name('policy', leaf.policy)} removes <mask> from the "
                "encoder's input (mask_exclusion), which plain Transformers models cannot do: use "
                "`maskpolicy pretrain`"
            )
        if hooks.REANNOTATE.of(leaf.policy) is not None:
            raise ConfigError(
                f"MaskingCollator: {plugin_name('policy', leaf.policy)} masks by what the model in "
                "training predicts, which a collator does not know: use `maskpolicy pretrain`"
            )
    return masker


def _checked(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Return a copy that neither pads nor truncates; raise ConfigError for what it lacks."""
    if not getattr(tokenizer, "is_fast", False):
        raise ConfigError(
            "MaskingCollator: the tokenizer must be a fast one (with offsets), "
            f"not {type(tokenizer).__name__}"
        )
    for name in ("eos", "pad"):
        if getattr(tokenizer, f"{name}_token_id") is None:
            raise ConfigError(f"MaskingCollator: the tokenizer has no {name} token: set one")
    if not has_masks(tokenizer):
        raise ConfigError(
            "MaskingCollator: the tokenizer has no mask token and no sentinels: set a mask token"
        )
    copied = deepcopy(tokenizer)
    copied.backend_tokenizer.no_padding()
    copied.backend_tokenizer.no_truncation()
    return copied
