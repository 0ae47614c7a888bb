"""A masking policy as the `data_collator` of a plain Transformers Trainer."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from hashlib import blake2b
from importlib.util import find_spec
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core import schema
from maskpolicy.core.errors import ConfigError, DataError, unknown
from maskpolicy.core.schema import Count, Steps
from maskpolicy.core.types import Corruption, Join, Passage, Policy, Spans, Target, as_spans
from maskpolicy.data.corpus import annotation, sums
from maskpolicy.data.corpus.passages import (
    Document,
    encode,
    first_tokens,
    passage,
    tokenize,
    without_blanks,
)
from maskpolicy.data.corpus.segmentation import ENGLISH, SET_LANGUAGE, joins_words
from maskpolicy.data.datafiles import fields
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import ENCODER, SEQ2SEQ, ModelKind, PolicyBlock
from maskpolicy.experiment.model_and_corpus import check_language
from maskpolicy.experiment.policy_blocks import instance_block, policy_block
from maskpolicy.masking.denoising import DenoisingPairs, mixed_pairs
from maskpolicy.masking.selection import Masker, check_repeats
from maskpolicy.models.families import limits, within
from maskpolicy.models.training.batching import IGNORE, shifted
from maskpolicy.models.training.specials import (
    Specials,
    added_by_user,
    check_tokens,
    check_vocabulary,
    decoder_start,
)
from maskpolicy.plugins import discovery, hooks, registry
from maskpolicy.plugins.registry import policy_name
from maskpolicy.plugins.statistics import Statistics

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, TrainerCallback

_WHERE = "MaskingCollator: "
_ROLES = ("bos", "eos", "pad", "cls", "sep", "mask")  # of special tokens, besides unknown words
log = logging.getLogger(__name__)


class MaskingCollator:
    """Masks rows with a policy, dynamically in each step, as maskpolicy's own training does.

    A row holds {"text"}, {"input_ids"} or both; ids are used unchanged, and decoded if the row has
    neither a text that begins with them nor "offset_mapping". The collator removes special tokens
    from the ids, so they are never masked, and adds the model's own, such as <s> and </s>, to each
    pair. Sentinels (T5) serve as masks; if there are too few, some spans stay visible.

    Give the Trainer callbacks=[collator.callback()]. It sets remove_unused_columns=False, so that
    the Trainer does not drop "text", and tells the collator the step. Masks then depend only on
    `seed`, the text (or the row's "id") and the step, for any number of processes and DataLoader
    workers, and after a resume. Evaluation masks a text in the same way each time, with schedules
    at their start; so would a second Trainer, which needs a collator of its own. In your own loop,
    use `for_steps`. Without either, masks depend on the number of rows so far, and each DataLoader
    worker has its own seed.

    `policy` is a name, a block such as {"name": "random", "ratio": 0.3}, or an instance. `model`
    (or its configuration) and `kind` say what a batch holds: pairs for a text-to-text model
    ("seq2seq"), or labels at the masked positions for masked language modelling ("encoder"). If
    you omit both, the configuration beside the tokenizer decides, or else the tokenizer: one with
    [CLS] and [SEP] but without a token for the end of a text, such as BERT's, belongs to an
    encoder. `target` to `replacement` are fields of `types.Denoising`; None means the policy's
    registered default, or Denoising's default for an instance. `columns` names keys of the rows
    that hold lists of [start, end] character offsets in "text". `language` is the code of the
    texts' language (de, ja, ..), which decides where words and sentences end. `fitted` is the
    folder of a learned policy. `decoder_start` is the model's decoder_start_token_id (None: that of
    `model`, or as `Specials.of` says). `max_source` and `max_target` count tokens with special
    tokens, and cannot exceed the positions of `model`. The collator cuts a text to them before it
    masks it; spans that do not fit into the target stay visible, so source and target together hold
    the whole text that is left. It caches tokens and annotations of the latest `cache` texts. A
    policy that reads statistics of a corpus needs `statistics`: the texts to count, or the folder
    of an artifact (`count`, `condense`). A policy that compares two corpora needs `contrast`, a
    list of general texts. Batches hold PyTorch tensors, or NumPy arrays with return_tensors="np" or
    without PyTorch. The tokenizer must be a fast one with a mask token or sentinels; it is copied.
    Raises ConfigError if the policy, its objective, the language or the tokenizer cannot be used.
    """

    def __init__(
        self,
        policy: str | Mapping[str, Any] | Policy,
        tokenizer: PreTrainedTokenizerBase,
        *,
        model: Any = None,
        kind: ModelKind | None = None,
        target: Target | None = None,
        corruption: Corruption | None = None,
        join: Join | None = None,
        permute_sentences: bool | None = None,
        insert: float | None = None,
        replacement: Mapping[str, float] | None = None,
        columns: Sequence[str] = (),
        language: str = ENGLISH,
        fitted: str | Path | None = None,
        seed: int = 0,
        decoder_start: int | None = None,
        max_source: int = 512,
        max_target: int = 512,
        cache: int = 10_000,
        statistics: str | Path | Sequence[str] | None = None,
        contrast: Sequence[str] = (),
        return_tensors: Literal["pt", "np"] | None = None,
    ) -> None:
        """Check the arguments and open what the policy reads; raises ConfigError as above."""
        stated = {
            "target": target,
            "corruption": corruption,
            "join": join,
            "permute_sentences": permute_sentences,
            "insert": insert,
            "replacement": replacement,
        }
        asked = {key: value for key, value in stated.items() if value is not None}
        _check_number("max_source", max_source, Steps)
        _check_number("max_target", max_target, Steps)
        _check_number("seed", seed, int)
        if return_tensors not in (None, "pt", "np"):
            raise ConfigError(f"{_WHERE}return_tensors: must be 'pt' or 'np', not {return_tensors}")
        self.tokenizer = fast_copy(tokenizer, f"{_WHERE}the tokenizer")
        if added := added_by_user(self.tokenizer):
            log.warning(
                "%sthe tokenizer's special tokens %s are ordinary text in 'text', and are removed "
                "from 'input_ids': add them with add_tokens if texts have them",
                *(_WHERE, ", ".join(added)),
            )
        self.kind = kind or suggested_kind(model, tokenizer)
        self.specials = _specials(self.kind, self.tokenizer, model, decoder_start)
        block = _block(policy, asked, self.kind)
        self.policy, self.denoising = block.policy, block.denoising
        check_language(language, f"{_WHERE}language")
        self.columns = (columns,) if isinstance(columns, str) else tuple(columns)
        self.language, self.seed, self.cache = language, int(seed), cache
        self.fitted = None if fitted is None else Path(fitted)
        if model is not None:
            _check_model(model, self.tokenizer)
        lengths = Training(max_source=max_source, max_target=max_target)
        self.spec = _within_model(lengths, model, tokenizer, self.kind)
        if problem := self.specials.without_room(self.spec):
            raise ConfigError(f"{_WHERE}{problem}")
        self.return_tensors = return_tensors or ("pt" if find_spec("torch") else "np")
        leaves = Masker.of(self.policy, self.denoising).leaves
        for leaf in leaves:
            _check_leaf(leaf, fitted)
        _check_folders([leaf.policy for leaf in leaves], fitted, statistics)
        if self.fitted is not None and not self.fitted.is_dir():
            raise ConfigError(f"{_WHERE}fitted: {fitted}: no such folder")
        read = [self._statistics(leaf.policy, statistics, contrast) for leaf in leaves]
        self.masker = Masker.of(self.policy, self.denoising, read)
        self._room = self.specials.kept(self.spec, (leaf.denoising for leaf in leaves))
        self.has_callback = self._repeats = self._has_looked = False
        self._size = len(self.tokenizer)
        others = {getattr(tokenizer, f"{name}_token_id") for name in _ROLES}
        self._removed = sorted({*tokenizer.all_special_ids} - ({tokenizer.unk_token_id} - others))
        self._cached: dict[str, list[Passage]] = {}  # with the columns of each leaf
        self._rows = 0

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return a batch: input_ids, attention_mask and labels, each (rows, tokens).

        For an encoder, labels are -100 where nothing is masked, and there are token_type_ids if the
        tokenizer has them. For a text-to-text model, there are decoder_input_ids.

        A row in which nothing is masked stays in the batch. All its labels are -100, so it adds no
        loss, as in maskpolicy's own training. If all labels are -100, the model's mean loss is NaN
        and all gradients are 0. The Trainer excludes such a loss from its logged mean
        (logging_nan_inf_filter), but `evaluate` reports NaN: remove such texts from the evaluation
        set. Raises ValueError for an empty batch, DataError for an invalid row, and ConfigError if
        the policy depends on the progress of the training and that is unknown.
        """
        if self.has_callback:  # the training calls `for_steps`: this is an evaluation
            return self._batch(rows, self.seed, [0] * len(rows), 0.0)
        if self.masker.follows_progress:
            why = "the policy follows the training's progress, which is unknown: give the Trainer"
            raise ConfigError(f"{_WHERE}{why} callbacks=[collator.callback()], or call for_steps")
        worker = _worker()
        seed = self.seed if worker is None else (self.seed << 64) + worker.seed
        turns = range(self._rows, self._rows + len(rows))
        self._rows += len(rows)
        return self._batch(rows, seed, turns, 0.0)

    def callback(self) -> TrainerCallback:
        """Return the Trainer's callback, which tells the collator the step of each batch.

        It raises ConfigError at the start of a training whose settings hide the step of a batch.
        """
        from maskpolicy.models.training.trainer_callback import MaskingCallback

        return MaskingCallback(self)

    def for_steps(self, first: int, steps: int, batches: int = 1) -> StepCollator:
        """Return the collator of a DataLoader whose first batch belongs to the step `first`.

        `steps` is the length of the whole training and `batches` the number of batches of a step.
        The DataLoader must give batches in order, and start new workers for each epoch.
        """
        _check_number("first", first, Steps)
        _check_number("steps", steps, Count)
        _check_number("batches", batches, Count)
        return StepCollator(self, first, steps, batches)

    def _batch(
        self, rows: Sequence[Mapping[str, Any]], seed: int, turns: Sequence[int], progress: float
    ) -> dict[str, Any]:
        if not rows:
            raise ValueError("MaskingCollator: a batch needs at least one row")
        for row in rows:
            if not isinstance(row, Mapping):
                raise DataError(f"a row must be a dict such as {{'text': ..}}, not {row!r:.60}")
        views = self._views(rows)
        asked = views, range(len(rows)), seed, turns
        selected = self.masker.select(*asked, progress=progress)
        if not self._repeats:
            check_repeats(self.policy, selected, self.masker.select(*asked, progress=progress))
            self._repeats = True
        target_room = self.specials.target_room(self.spec)
        pairs = mixed_pairs(selected, self.specials, seed, turns, self._room, target_room)
        arrays = self._arrays(pairs)
        if self.return_tensors == "np":
            return arrays
        import torch

        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def _arrays(self, written: DenoisingPairs) -> dict[str, NDArray[np.int64]]:
        """Return a batch as `__call__` does."""
        specials, is_encoder = self.specials, self.kind == ENCODER
        pairs = (specials.at_positions if is_encoder else specials.pairs)(written, self.spec)
        arrays = {"input_ids": pairs.sources.padded(specials.pad)}
        if is_encoder and "token_type_ids" in self.tokenizer.model_input_names:
            arrays["token_type_ids"] = np.zeros_like(arrays["input_ids"])
        arrays["attention_mask"] = pairs.sources.inside.astype(np.int64)
        labels = pairs.targets.padded(IGNORE)
        # a loss without any label still needs a column
        width = arrays["input_ids"].shape[1] if is_encoder else max(1, labels.shape[1])
        labels = np.pad(labels, ((0, 0), (0, width - labels.shape[1])), constant_values=IGNORE)
        if specials.start is not None:
            arrays["decoder_input_ids"] = shifted(labels, specials.pad, specials.start)
        return {**arrays, "labels": labels}

    def _views(self, rows: Sequence[Mapping[str, Any]]) -> list[list[Passage]]:
        """Return the rows as passages with the columns of each leaf; cache the latest."""
        keys = [self._key(row) for row in rows]
        new = {key: row for key, row in zip(keys, rows, strict=True) if key not in self._cached}
        passages = [self._passage(key, row) for key, row in new.items()]
        worker = _worker()
        if not self._has_looked and (worker is None or worker.id == 0):
            self._has_looked = True
            if any(joins_words(one.text, self.language) for one in passages):
                log.warning("%s%s", _WHERE, SET_LANGUAGE.format("language"))
        leaves = [self._annotated(leaf, passages) for leaf in self.masker.leaves]
        self._cached.update(zip(new, map(list, zip(*leaves, strict=True)), strict=True))
        views = zip(*(self._cached[key] for key in keys), strict=True)
        for key in list(islice(self._cached, max(0, len(self._cached) - self.cache))):
            del self._cached[key]
        return list(map(list, views))

    def _statistics(
        self, policy: Any, given: str | Path | Sequence[str] | None, contrast: Sequence[str]
    ) -> Statistics | None:
        if not hooks.masks_by_statistics(policy):
            return None
        if given is None:
            needs = f"{policy_name(policy)} needs the statistics of a corpus: set statistics"
            raise ConfigError(f"{_WHERE}{needs}, a list of texts to count")
        if isinstance(given, str | Path):
            return Statistics.open(Path(given))

        def passages(name: str, texts: Sequence[str]) -> list[Passage]:
            if isinstance(texts, str | Path):
                raise schema.wrong(texts, "a list of texts", f"{_WHERE}{name}")
            known = schema.check(list(texts), list[str], f"{_WHERE}{name}")
            read = [Document(str(i), text, {}, self.language) for i, text in enumerate(known)]
            return list(tokenize(read, self.tokenizer))

        counted = passages("statistics", given)
        return sums.statistics_of(policy, counted, passages("contrast", contrast))

    def _annotated(self, leaf: Masker, passages: list[Passage]) -> list[Passage]:
        # as in `documents`, no policy sees a text without tokens
        places = [i for i, one in enumerate(passages) if len(one.tokens)]
        if not places or hooks.ANNOTATE.of(leaf.policy) is None:
            return passages
        some = [passages[i] for i in places]
        new = annotation.annotate(leaf.policy, some, self.fitted, statistics=leaf.statistics)
        columns = [{name: column[0][:0] for name, column in new.items()}] * len(passages)
        for number, place in enumerate(places):
            columns[place] = {name: column[number] for name, column in new.items()}
        both = zip(passages, columns, strict=True)
        return [replace(one, columns={**one.columns, **own}) for one, own in both]

    def _key(self, row: Mapping[str, Any]) -> str:
        arrays = (row.get(name) for name in ("input_ids", "offset_mapping"))
        content = [None if value is None else np.asarray(value).tolist() for value in arrays]
        content += [fields.plain(row.get(name)) for name in self.columns]
        text = repr((row.get("id"), row.get("text"), content))
        return blake2b(text.encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()

    def _passage(self, key: str, row: Mapping[str, Any]) -> Passage:
        """Return one row as a passage, truncated before masking to the length of a source."""
        text, tokens, offsets = self._tokens(row)
        missing = [name for name in self.columns if name not in row or row.get("text") is None]
        if missing:
            raise DataError(f"a row lacks column {missing[0]!r}, or the 'text' of its offsets")
        columns = {name: fields.spans(row, name, len(text)) for name in self.columns}
        own = row.get("id")
        document = Document(str(key if own is None else own), text, columns, self.language)
        return first_tokens(passage(document, tokens, offsets), self._room)

    def _tokens(self, row: Mapping[str, Any]) -> tuple[str, NDArray[np.int32], Spans]:
        """Return the text of a row, its ids (t,) and offsets (t, 2), without special tokens."""
        text, ids = row.get("text"), row.get("input_ids")
        if ids is None and "text" not in row:
            raise DataError(
                f"a row has neither 'text' nor 'input_ids' but {sorted(row) or 'nothing'}: give "
                "the Trainer remove_unused_columns=False, or rename the column of texts to 'text'"
            )
        if ids is not None and (text is None or isinstance(text, str)):
            return self._of_ids(self._ids(ids), row.get("offset_mapping"), text)
        if not isinstance(text, str):
            raise DataError(f"a row's 'text' must be text, not {text!r:.60}")
        fields.check(text, "a row's 'text'")
        encoding = encode([text], self.tokenizer)[0]
        return text, np.asarray(encoding.ids, np.int32), as_spans(encoding.offsets)

    def _of_ids(
        self, ids: NDArray[np.int32], offsets: Any, text: str | None
    ) -> tuple[str, NDArray[np.int32], Spans]:
        """Return what `_tokens` does for a row with ids, and with offsets and text or without."""
        plain = ~np.isin(ids, self._removed)
        own = as_spans([] if offsets is None else np.asarray(offsets))
        if offsets is not None and len(own) != len(ids):
            raise DataError(f"a row has {len(ids)} input_ids, but {len(own)} offsets")
        if text is None or offsets is None:
            return self._decoded(ids[plain], text)
        in_text = own[plain | (own[:, 0] < own[:, 1])]  # of removed tokens, too
        if not _are_of(text, in_text):
            return self._decoded(ids[plain], text)
        return text, ids[plain], as_spans(without_blanks(own[plain].tolist(), text))

    def _ids(self, given: Any) -> NDArray[np.int32]:
        """Return a row's ids as an array (t,); raises DataError unless all are tokens."""
        ids = np.asarray(given)
        is_right = ids.ndim == 1 and (ids.dtype.kind in "iu" or not len(ids))
        if not is_right or (len(ids) and not 0 <= ids.min() <= ids.max() < self._size):
            raise DataError(f"a row's 'input_ids' must be ids of the tokenizer, not {given!r:.60}")
        return ids.astype(np.int32)

    def _decoded(
        self, ids: NDArray[np.int32], text: str | None
    ) -> tuple[str, NDArray[np.int32], Spans]:
        """Return the text of ids, (t,), with them and their offsets, (t, 2).

        It is `text` if that begins with these ids, as the text of truncated ids does.
        """
        decode = self.tokenizer.backend_tokenizer.decode_batch
        given = [] if text is None else [text]
        for own in given + decode([ids.tolist()], skip_special_tokens=False):
            [encoding] = encode([own], self.tokenizer)
            if encoding.ids[: len(ids)] == ids.tolist():
                return own, ids, as_spans(encoding.offsets[: len(ids)])
            if given and self.columns:
                raise DataError(
                    "a row's 'input_ids' are not those of its 'text', which its columns refer to: "
                    "give 'offset_mapping', too"
                )
        ids = ids[: self._room]  # of a text that would be split otherwise, such as a part of a word
        begun = decode([ids[:end].tolist() for end in range(len(ids) + 1)], False)
        ends = np.maximum.accumulate([len(part) for part in begun]).tolist()
        return begun[-1], ids, as_spans(without_blanks(pairwise(ends), begun[-1]))


class StepCollator:
    """A `MaskingCollator` for consecutive batches, from the first batch of a step on.

    It counts its calls, so each DataLoader needs its own. The workers of a DataLoader alternate:
    the first of n reads batches 0, n, 2 n, ..
    """

    def __init__(self, collator: MaskingCollator, first: int, steps: int, batches: int) -> None:
        self.collator, self.first, self.steps, self.batches = collator, first, steps, batches
        self.calls = 0
        if find_spec("torch"):
            import torch

            self.seen = torch.zeros(1, dtype=torch.int64).share_memory_()  # by all workers

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the next batch; see `MaskingCollator.__call__`."""
        worker, number = _worker(), self.calls
        if worker is not None:
            number = number * _reading(worker) + worker.id
            epoch, before = worker.seed - worker.id, self.seen.item()
            if before not in (0, epoch):
                why = "new workers do not know the steps of earlier ones: set the DataLoader's "
                raise ConfigError(f"{_WHERE}{why}collate_fn to for_steps(..) before each epoch")
            self.seen.fill_(epoch)
        self.calls += 1
        step = self.first + number // self.batches
        progress = min(step, self.steps - 1) / self.steps
        return self.collator._batch(rows, self.collator.seed, [step] * len(rows), progress)


def _are_of(text: str, offsets: Spans) -> bool:
    """Return whether offsets (t, 2) are those of one text, not of a pair or of words of a list."""
    begins, moves = offsets[:, 0], np.diff(offsets, axis=0)
    if offsets.max(initial=0) > len(text) or (moves < 0).any():
        return False
    if len(begins) > 1 and (begins == begins[0]).all():  # each word has offsets of its own
        return False
    # tokens may be of the same characters, or share one, as "▁" that SentencePiece writes first
    differ = moves.any(axis=1)
    pairs = [*zip(offsets[:-1][differ, 1].tolist(), begins[1:][differ].tolist(), strict=True)]
    is_covered = not any(map(str.isalnum, "".join(text[end:begin] for end, begin in pairs)))
    return is_covered and all(begin >= end - 1 for end, begin in pairs)


def _check_model(model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise ConfigError if a model, not a configuration, does not fit to tokenizer and labels."""
    if not hasattr(model, "get_input_embeddings"):
        return
    from transformers.models.auto import modeling_auto

    check_vocabulary(tokenizer, model, f"{_WHERE}the model")
    name = type(model).__name__
    causal = {*modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values(), "ElectraForPreTraining"}
    if name in causal - {*modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values()}:
        raise ConfigError(
            f"{_WHERE}{name} has other labels than those of masked tokens: load the model with "
            "AutoModelForMaskedLM or AutoModelForSeq2SeqLM"
        )


def _check_number(name: str, number: Any, allowed: Any) -> None:
    """Raise ConfigError unless an argument is a number of the allowed kind, also NumPy's."""
    known = number.item() if isinstance(number, np.generic) else number
    schema.check(known, allowed, f"{_WHERE}{name}")


def _worker() -> Any:
    """Return PyTorch's description of the DataLoader worker that this process is; None if not."""
    data = sys.modules.get("torch.utils.data")  # a worker has imported it
    return None if data is None else data.get_worker_info()


def _reading(worker: Any) -> int:
    """Return how many workers read: of an IterableDataset, at most as many as it has shards."""
    from torch.utils.data import IterableDataset

    workers, data = worker.num_workers, worker.dataset
    if isinstance(data, IterableDataset):
        data = getattr(data, "dataset", data)  # in a wrapper that shares it among processes
        workers = min(workers, getattr(data, "num_shards", workers))
    return workers


def _block(
    given: str | Mapping[str, Any] | Policy, asked: Mapping[str, Any], kind: ModelKind
) -> PolicyBlock:
    """Return the policy with its denoising objective; ConfigError if one of them is invalid.

    `asked` are keys of the objective, which override those of a block.
    """
    keys = {"name": given} if isinstance(given, str) else given
    if isinstance(keys, Mapping):
        if not isinstance(keys.get("name"), str):
            example = '{"name": "random", "ratio": 0.3}'
            raise ConfigError(f"{_WHERE}a policy's block needs its name, as in {example}")
        discovery.load_files(fresh=True)
        block = policy_block({**keys, **asked}, "MaskingCollator: policy", {}, kind)
        if not block.has_stage:
            raise ConfigError(f"MaskingCollator: policy {block.name}: masks nothing")
        return block
    masks = callable(hooks.SELECT.of(given)) or callable(hooks.CHOOSE_MEMBER.of(given))
    if isinstance(given, type) or not masks:
        raise ConfigError(
            "MaskingCollator: policy must be a name, a block of keys or an instance with a method "
            f"`select`, not {given!r:.60}"
        )
    made = type(given)
    if hooks.SELECT.of(made) is not None:  # unless only the instance has the method
        registry.check_hooks("policy", made, f"MaskingCollator: policy {made.__name__}")
    return instance_block(given, asked, _WHERE, kind)


def _within_model(asked: Training, model: Any, tokenizer: Any, kind: ModelKind) -> Training:
    """Return the lengths that the model, or the configuration beside the tokenizer, can read."""
    if model is not None:
        return within(asked, limits(getattr(model, "config", model)))
    config = config_beside(tokenizer)
    if config is None or suggested_kind(config, tokenizer) != kind:
        return asked
    spec = within(asked, limits(config))
    if spec != asked:
        what = f"{spec.max_source} tokens of the configuration beside the tokenizer"
        log.warning("%stexts are cut to the %s: give model=", _WHERE, what)
    return spec


def _check_leaf(leaf: Masker, fitted: str | Path | None) -> None:
    """Raise ConfigError if a collator cannot mask with a policy and its objective."""
    policy, name = leaf.policy, policy_name(leaf.policy)
    if leaf.denoising.mask_exclusion or leaf.denoising.shallow_decoder:
        why = " with mask_exclusion or shallow_decoder trains as MAE-LM, without <mask> in the "
        why += "encoder, which plain Transformers models cannot do"
    elif leaf.denoising.replaced_token_detection is not None:
        why = " with replaced_token_detection trains a generator, which a collator does not have"
    elif registry.gives_examples(policy):
        why = " decides how many examples a passage gives, and a collator makes one of each row"
    elif leaf.weighs:
        why = " weighs the losses of passages or tokens, which plain Transformers models cannot do"
    elif hooks.REANNOTATE.of(policy) is not None:
        why = " masks by what the model in training predicts, which a collator does not know"
    elif fitted is None and hooks.FIT.of(policy) is not None:
        why = ": learns before it masks: give the folder of what it learned in a run as `fitted`"
        raise ConfigError(f"{_WHERE}{name}{why}")
    else:
        return
    raise ConfigError(f"{_WHERE}{name}{why}: use `maskpolicy pretrain`")


def _check_folders(policies: Sequence[Any], fitted: Any, statistics: Any) -> None:
    """Raise ConfigError for a folder that several members of a mixture would read."""
    readers = (
        ("fitted", fitted, hooks.FIT.of),
        ("statistics", statistics, hooks.masks_by_statistics),
    )
    for key, given, reads in readers:
        names = [policy_name(policy) for policy in policies if reads(policy)]
        if len(names) > 1 and isinstance(given, str | Path):
            why = f"{' and '.join(names)} need a folder each: mask with one of them"
            raise ConfigError(f"{_WHERE}{key}: {why}")


def fast_copy(tokenizer: PreTrainedTokenizerBase, who: str) -> PreTrainedTokenizerBase:
    """Return a copy that neither pads nor truncates.

    Raises ConfigError, which begins with `who`, for a tokenizer without offsets.
    """
    if not getattr(tokenizer, "is_fast", False):
        name = type(tokenizer).__name__
        raise ConfigError(f"{who} must be a fast one (with offsets), not {name}")
    copied = deepcopy(tokenizer)
    copied.backend_tokenizer.no_padding()
    copied.backend_tokenizer.no_truncation()
    return copied


def suggested_kind(model: Any, tokenizer: PreTrainedTokenizerBase) -> ModelKind:
    """Return the kind of a model or its configuration; without one, what the tokenizer suggests."""
    config = getattr(model, "config", model)
    config = config_beside(tokenizer) if config is None else config
    if not hasattr(config, "is_encoder_decoder") and config is not None:
        raise ConfigError(f"{_WHERE}model: must be a model or its config, not {config!r:.60}")
    if config is None:
        ends_texts = tokenizer.eos_token_id is not None or tokenizer.mask_token_id is None
        return "seq2seq" if ends_texts else "encoder"
    return "seq2seq" if config.is_encoder_decoder else "encoder"


def config_beside(tokenizer: PreTrainedTokenizerBase) -> Any:
    """Return the model configuration in the folder of a tokenizer; None if there is none."""
    from transformers import AutoConfig

    if not tokenizer.name_or_path:
        return None
    try:
        return AutoConfig.from_pretrained(tokenizer.name_or_path, local_files_only=True)
    except (OSError, ValueError):
        return None


def _specials(
    kind: ModelKind, tokenizer: PreTrainedTokenizerBase, model: Any, start: int | None
) -> Specials:
    """Return the special tokens for a kind of model; ConfigError for a tokenizer that lacks one."""
    if kind not in (SEQ2SEQ, ENCODER):
        raise ConfigError(f"MaskingCollator: kind: {unknown('value', kind, (SEQ2SEQ, ENCODER))}")
    who = f"{_WHERE}the tokenizer"
    if kind == ENCODER:
        return Specials.of_encoder(tokenizer, who)
    check_tokens(tokenizer, who)
    if start is None and model is not None:
        start = decoder_start(model)
    return Specials.of(tokenizer, start)
