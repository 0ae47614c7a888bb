"""Text-to-text models and tokenizers: build a BART, or load a folder or Hub name of any family."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskpolicy.config.budgets import Training
from maskpolicy.config.experiment import SEQ2SEQ, ModelBlock
from maskpolicy.corpus import passages
from maskpolicy.errors import ConfigError
from maskpolicy.models import decoder_states, families
from maskpolicy.models.loading import load_weights
from maskpolicy.training.batching import IGNORE
from maskpolicy.training.specials import Specials, has_masks

if TYPE_CHECKING:
    import torch
    from transformers import BartForConditionalGeneration, PreTrainedTokenizerBase

    from maskpolicy.training.batching import Batch

log = logging.getLogger(__name__)
SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # BART's order and ids, 0 to 3


@dataclass(frozen=True)
class Preset:
    """The shape of a model that is trained from scratch."""

    vocabulary: int  # size of the byte-level BPE, with special tokens
    config: Mapping[str, Any]  # of BartConfig or RobertaConfig
    positions: int  # most tokens of an input
    summary: str
    is_small: bool = False  # several threads would hardly speed up a step


PRESETS: Mapping[str, Preset] = {
    "mini": Preset(
        vocabulary=2000,
        config={
            "d_model": 128,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 512,
            "decoder_ffn_dim": 512,
            "max_position_embeddings": 512,
            "activation_function": "relu",  # on a CPU, gelu's backward in bf16 takes 7% of a step
            "init_std": 0.06,  # at BART's 0.02 it may never learn to copy (docs/log.md)
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "activation_dropout": 0.0,
        },
        positions=512,
        summary="2+2 layers of width 128, trained from scratch on the embedded world",
        is_small=True,
    ),
}


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerBase:
    """Train a byte-level BPE tokenizer with BART's special tokens.

    The first word of a text gets a leading blank like every other word, so that an answer has the
    same tokens alone as within a sentence.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import BartTokenizer

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    raw.train_from_iterator(training_texts(texts), trainer)
    learned = json.loads(raw.to_str())["model"]
    merges: Any = [tuple(pair) for pair in learned["merges"]]
    return BartTokenizer(vocab=learned["vocab"], merges=merges, add_prefix_space=True)


def training_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts for training a tokenizer, splitting words of megabytes into pieces.

    The time of a merge grows with the length of the words that contain it. So after the first piece
    of a text, pieces that are a single alphanumeric run (as in encoded files) are dropped.
    """
    for text in texts:
        for number, (first, last) in enumerate(passages.pieces(text)):
            piece = text[first:last]
            if number == 0 or not piece.isalnum():
                yield piece


def build(
    preset: str, tokenizer: PreTrainedTokenizerBase, seed: int
) -> BartForConditionalGeneration:
    """Return a BART of a preset, its weights drawn from `seed`."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.eos_token_id,
        forced_eos_token_id=None,
        **PRESETS[preset].config,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = BartForConditionalGeneration(config)
    model.generation_config.forced_bos_token_id = tokenizer.bos_token_id
    return model


def load_tokenizer(name: str, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a folder or Hub name.

    Raises ConfigError if there is none, it is not a fast one, or it lacks a special token.
    """
    from transformers import AutoTokenizer

    tokenizer: PreTrainedTokenizerBase = load_weights(AutoTokenizer, name, revision)
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise ConfigError(f"model {name}: has no tokenizer: save one to the same folder")
    if not tokenizer.is_fast:
        raise ConfigError(f"model {name}: its tokenizer is not a fast one (no character offsets)")
    if not has_masks(tokenizer):
        raise ConfigError(
            f"model {name}: its tokenizer has neither a mask token nor sentinels such as "
            "<extra_id_0>: name another model, or add a mask token to tokenizer and model"
        )
    for token, other in (("pad", "pad"), ("eos", "sep")):
        if all(getattr(tokenizer, f"{each}_token_id") is None for each in (token, other)):
            raise ConfigError(f"model {name}: its tokenizer has no {token} token")
    return tokenizer


def check_vocabulary(tokenizer: Any, model: Any, name: str = "the model") -> None:
    """Raise ConfigError for a tokenizer with more tokens than the model has embeddings."""
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise ConfigError(
            f"{name}: has {rows} embeddings, but its tokenizer {len(tokenizer)} tokens: save its "
            "own tokenizer beside it, or call resize_token_embeddings on the model"
        )


def embeddings(folder: str) -> torch.Tensor:
    """Return the input embeddings of a saved model of any kind, (vocabulary, width) in float32."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

    is_known = type(load_weights(AutoConfig, folder)) in AutoModel._model_mapping
    factory = AutoModel if is_known else AutoModelForSeq2SeqLM  # EncoderDecoderModel has no body
    model = load_weights(factory, folder, None, dtype=torch.float32)
    weight: torch.Tensor = model.get_input_embeddings().weight
    return weight


def load(name: str, revision: str | None = None, **settings: Any) -> Any:
    """Load a text-to-text model from a folder or Hub name in float32.

    `settings` are passed to from_pretrained, e.g. attn_implementation="eager". Raises ConfigError
    if the model does not exist, is not text-to-text, or lacks weights.
    """
    import torch
    from transformers import AutoModelForSeq2SeqLM

    _check_text_to_text(name, revision)
    settings |= {"dtype": torch.float32, "output_loading_info": True}
    found, info = load_weights(AutoModelForSeq2SeqLM, name, revision, **settings)
    if info["missing_keys"]:
        raise ConfigError(f"model {name}: its weights lack {min(info['missing_keys'])}")
    return found


def _check_text_to_text(name: str, revision: str | None) -> None:
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    config = load_weights(AutoConfig, name, revision)
    known = type(config) in AutoModelForSeq2SeqLM._model_mapping
    if not (known and config.is_encoder_decoder):
        raise ConfigError(
            f"model {name}: {config.model_type} is not text-to-text (an encoder needs model.kind: "
            "encoder; `maskpolicy list models` names the families)"
        )


def check_folder(model: ModelBlock) -> None:
    """Raise ConfigError for a local folder whose tokenizer or architecture cannot be used.

    Reads no weights. Presets and names on the Hub are not checked.
    """
    if model.is_scratch or not Path(model.name).is_dir():
        return
    tokenizer = load_tokenizer(model.name)
    if model.kind == SEQ2SEQ:
        _check_text_to_text(model.name, None)
    elif tokenizer.mask_token_id is None:
        raise ConfigError(f"model {model.name}: its tokenizer has no mask token, as an encoder's")


def bounded(spec: Training, model: Any) -> Training:
    """Return `spec` with max_source and max_target limited to the model's positions."""
    return within(spec, families.limits(model.config))


def within(spec: Training, most: tuple[int | None, int | None]) -> Training:
    """Return `spec` with max_source and max_target limited to `most`; None: no limit."""
    source, target = most
    return replace(
        spec,
        max_source=spec.max_source if source is None else min(spec.max_source, source),
        max_target=spec.max_target if target is None else min(spec.max_target, target),
    )


def specials(tokenizer: PreTrainedTokenizerBase, model: Any) -> Specials:
    """Return a tokenizer's special tokens for a text-to-text model, which decides the start.

    T5Gemma's start is the decoder's BOS token. Where the configuration names none, the tokenizer
    decides (see `Specials.of`).
    """
    places = (model.config, model.generation_config)
    found = [getattr(place, "decoder_start_token_id", None) for place in places]
    found.append(getattr(getattr(model.config, "decoder", None), "bos_token_id", None))
    return Specials.of(tokenizer, next((each for each in found if each is not None), None))


def complete_generation(model: Any, specials: Specials) -> None:
    """Set what the model's generation_config lacks: the decoder's start and a language code."""
    config = model.generation_config
    if config.decoder_start_token_id is None:
        config.decoder_start_token_id = specials.start
    before = specials.target_ends[0] if specials.target_ends else ()
    if len(before) == 1 and config.forced_bos_token_id is None:
        config.forced_bos_token_id = before[0]


def set_dropout(model: Any, share: float | None) -> None:
    """Set all dropout probabilities of a model to `share`, without changing its configuration.

    None keeps the model's own.
    """
    import torch

    if share is None:
        return
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = share
        for name in ("dropout", "activation_dropout", "attention_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, share)


def set_attention(module: Any, name: str) -> None:
    """Set the attention implementation; logs a line where a family has only the eager one."""
    if name == "sdpa" and not getattr(module, "_supports_sdpa", True):
        log.warning("attention: %s has no sdpa: eager is used", type(module).__name__)
        name = "eager"
    module.set_attn_implementation(name)


def token_loss(model: Any, batch: Batch) -> tuple[torch.Tensor, int]:
    """Return the summed cross-entropy of a batch's labels and their number.

    The LM head runs on labelled positions only. Excluded tokens are not in the encoder's input.
    """
    from torch.nn.functional import cross_entropy

    from maskpolicy.models import crossentropy

    kept = batch.labels != IGNORE
    labels = batch.labels[kept]
    if families.family_of(model.config).head != "linear":
        found = decoder_states.logits(model, batch, kept).float()
        return cross_entropy(found, labels, reduction="sum"), len(labels)
    states = decoder_states.states(model, batch)[kept]
    weight = model.lm_head.weight
    bias = getattr(model, "final_logits_bias", None)
    bias = None if bias is None else bias[0].to(weight.dtype)
    return crossentropy.summed(states, weight, bias, labels), len(labels)


def label_logits(model: Any, batch: Batch) -> torch.Tensor:
    """Return the logits of a batch's k labels, (k, v), row by row."""
    return decoder_states.logits(model, batch, batch.labels != IGNORE)


def row_losses(model: Any, batch: Batch) -> torch.Tensor:
    """Return the mean cross-entropy of each row's labels, (b,), in at least single precision.

    Every weight is used through its module's own forward, as `higher` requires, and every operation
    supports forward-mode and second derivatives (see `learned.innerloop`).
    """
    import torch
    from torch.nn.functional import cross_entropy

    kept, logits = batch.labels != IGNORE, label_logits(model, batch)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    losses = cross_entropy(logits, batch.labels[kept], reduction="none")
    counts = kept.sum(1)
    rows = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    return losses.new_zeros(len(counts)).index_add(0, rows, losses) / counts
