"""Load saved models and tokenizers without running code that comes with them."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from maskpolicy.core import hub
from maskpolicy.core.errors import ConfigError, MaskpolicyError
from maskpolicy.experiment.definition import RELATIVE
from maskpolicy.models.training.specials import check_tokens

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

_SLOW = "model {}: its tokenizer is not a fast one: choose another model"
_REASONS = (  # a part of Transformers' message, what to do, and what it means
    ("ignore_mismatched_sizes", "", "its config.json states other sizes than its weights have"),
    (
        "`tiktoken` is required",  # Transformers has tried SentencePiece before
        "pip install sentencepiece protobuf",
        "its tokenizer is only a file of SentencePiece",
    ),
    (
        "untagged enum",
        "pip install -U tokenizers transformers",
        "its tokenizer.json is damaged, or of a later version",
    ),
)
_CONFIGS = ("config.json", "tokenizer_config.json")
_CODE = "custom_generate/generate.py"  # Transformers uses it instead of `generate`
_ATTENTION = ("attn_implementation", "_attn_implementation")  # OWNER/NAME is a kernel on the Hub


def load_weights(factory: Any, name: str, revision: str | None = None, **settings: Any) -> Any:
    """Return `factory.from_pretrained(name)` for a class of Transformers, a model in float32.

    No code of the model's author runs: pickled weights are read as plain tensors, and a model with
    custom code raises ConfigError. All other failures raise it, too, with one line. Set
    output_loading_info=True to get the report of missing and unexpected weights.
    """
    if Path(name).is_absolute() and not Path(name).is_dir():
        raise ConfigError(f"model {name}: no such folder")
    is_tokenizer = not hasattr(factory, "_model_mapping")
    if not is_tokenizer:  # which would save these settings
        if Path(name, "adapter_config.json").exists():  # Transformers without peft ignores it
            raise ConfigError(f"model {name}: has an adapter: merge it into the model first")
        settings |= {"weights_only": True, "dtype": "float32"}
        if getattr(load_config(name, revision), "attention_type", "") == "block_sparse":
            # BigBird's first short input would change it for good, and no checkpoint says so
            settings["attention_type"] = "original_full"
    is_local = Path(name).is_dir()
    reach = nullcontext() if is_local else hub.access()
    try:
        with reach, _quiet(hides_bars=is_local):  # those of a download stay
            refuse_code(name, revision)
            if is_relative(name, revision):
                import maskpolicy.models.relative_positions  # noqa: F401 (it registers the class)
            return factory.from_pretrained(
                name, revision=revision, trust_remote_code=False, **settings
            )
    except MaskpolicyError:
        raise
    except pickle.UnpicklingError as error:
        raise ConfigError(
            f"model {name}: its weights are a pickle with more than tensors, or are damaged: "
            "save them again with save_pretrained, which writes safetensors"
        ) from error
    except Exception as error:  # of any class: tokenizers raises Exception itself
        reason = shorten(str(error), 300, placeholder=" ..")
        if "build an AutoTokenizer" in reason or (isinstance(error, ImportError) and is_tokenizer):
            raise ConfigError(_SLOW.format(name)) from error  # Transformers lacks its package
        advice = "give a folder, or a Hub name with a network"
        if is_local:
            advice = "name a folder that holds a model and its tokenizer"
        for sign, known, meaning in _REASONS:
            if sign in reason:
                advice, reason = known or advice, meaning
        raise ConfigError(f"model {name}: cannot be loaded ({advice}): {reason}") from error


def load_config(name: str | Path, revision: str | None = None) -> Any:
    """Return the configuration of a model in a folder or on the Hub; see `load_weights`."""
    from transformers import AutoConfig

    return load_weights(AutoConfig, str(name), revision)


def load_reported(
    factory: Any, name: str, revision: str | None = None, optional: str = " ", **settings: Any
) -> tuple[Any, dict[str, Any]]:
    """Return a model of `load_weights`, and the report of missing and unexpected weights.

    Raises ConfigError if its folder lacks weights whose names do not contain `optional`.
    """
    model, info = load_weights(factory, name, revision, output_loading_info=True, **settings)
    if missing := [key for key in info["missing_keys"] if optional not in key]:
        raise ConfigError(f"model {name}: its weights lack {min(missing)}")
    return model, info


def body_factory(config: Any) -> Any:
    """Return the Auto class that makes a model of a configuration, without its head if it can."""
    from transformers import AutoModel, AutoModelForSeq2SeqLM

    is_known = type(config) in AutoModel._model_mapping
    return AutoModel if is_known else AutoModelForSeq2SeqLM  # EncoderDecoderModel has no body


def input_embeddings(folder: str) -> torch.Tensor:
    """Return the input embeddings of a saved model of any kind, (vocabulary, width) in float32."""
    model = load_weights(body_factory(load_config(folder)), folder)
    return model.get_input_embeddings().weight


def refuse_code(name: str, revision: str | None = None) -> None:
    """Raise ConfigError for a folder or Hub name whose model or tokenizer has custom code.

    `trust_remote_code=False` is not enough: if Transformers knows the model type, it silently uses
    its own class, which is not the author's model.
    """
    code = ""
    for file in _CONFIGS:
        config = read_config(name, revision, file)
        if "auto_map" in config:
            code = f"auto_map in its {file}"
        for key in _ATTENTION:
            if "/" in str(config.get(key)):
                code = f"{key} in its {file}"
    if not code and _file(name, revision, _CODE):
        code = _CODE
    if code:
        raise ConfigError(
            f"model {name}: has custom code ({code}), which maskpolicy never runs: name a "
            "model of Transformers' own classes, or remove the code if the model works without it"
        )


def is_relative(name: str, revision: str | None = None) -> bool:
    """Return True if a model is an encoder of `models.relative_positions`."""
    return model_type(name, revision) == RELATIVE


def model_type(name: str, revision: str | None = None) -> str:
    """Return the model type of a folder or Hub name; "" if it states none."""
    return str(read_config(name, revision, "config.json").get("model_type", ""))


def read_config(name: str, revision: str | None, file: str) -> dict[str, Any]:
    """Return the content of a model's JSON file; {} if it is missing or invalid."""
    path = _file(name, revision, file)
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    except ValueError:  # Transformers reports the error
        return {}
    return content if isinstance(content, dict) else {}


def _file(name: str, revision: str | None, file: str) -> str | None:
    """Return the path of a model's file, downloaded if needed; None if it does not exist."""
    from transformers.utils.hub import cached_file

    return cached_file(
        name,
        file,
        revision=revision,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )


@contextmanager
def _quiet(hides_bars: bool) -> Iterator[None]:
    """Hide Transformers' warnings in the block, and its progress bars, such as that of weights."""
    from transformers.utils import logging as theirs

    log = logging.getLogger("transformers")
    level, had_bars = log.level, theirs.is_progress_bar_enabled()
    log.setLevel(logging.ERROR)
    if hides_bars:
        theirs.disable_progress_bar()
    try:
        yield
    finally:
        log.setLevel(level)
        if hides_bars and had_bars:
            theirs.enable_progress_bar()


log = logging.getLogger(__name__)


def set_dropout(model: Any, share: float | None) -> None:
    """Set all dropout probabilities of a model to `share`, without changing its configuration.

    None keeps the model's own.
    """
    import torch

    if share is None:
        return
    for module in model.modules():
        if isinstance(getattr(module, "out_drop", None), torch.nn.Identity):
            module.out_drop = torch.nn.Dropout()  # of a ModernBERT whose configuration states 0
        if isinstance(module, torch.nn.Dropout):
            module.p = share
        whole = () if share else ("layerdrop",)  # which drops layers, not numbers
        for name in ("dropout", "activation_dropout", "attention_dropout", *whole):
            if type(getattr(module, name, None)) in (int, float):
                setattr(module, name, share)


def set_attention(module: Any, name: str, *, fp32: bool = False) -> None:
    """Set the attention implementation, or the next one that the model and this machine have.

    For a module that holds models, it does so for each. Logs a line for each one that is not used.
    With `fp32`, the module computes in fp32, which FlashAttention cannot: SDPA replaces it.
    """
    from transformers import PreTrainedModel
    from transformers.utils.import_utils import is_flash_attn_2_available

    if fp32 and name == FLASH:
        name = "sdpa"
    if not isinstance(module, PreTrainedModel):
        for part in module.children():
            set_attention(part, name)
        return
    while name in _IMPLEMENTATIONS:
        support, following = _IMPLEMENTATIONS[name]
        is_here = name != FLASH or is_flash_attn_2_available()
        if is_here and getattr(module, support, True):
            break
        who = type(module).__name__ if is_here else "this machine"
        log.warning("attention: %s has no %s: %s is used", who, name, following)
        name = following
    module.set_attn_implementation(name)


FLASH = "flash_attention_2"
_IMPLEMENTATIONS = {  # implementations: the attribute of models that have it, and what replaces it
    FLASH: ("_supports_flash_attn", "sdpa"),
    "flex_attention": ("_supports_flex_attn", "sdpa"),
    "sdpa": ("_supports_sdpa", "eager"),
}


def load_tokenizer(
    name: str, revision: str | None = None, *, as_saved: bool = False
) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a folder or Hub name, without the padding and truncation saved in it.

    `as_saved` keeps these, so the tokenizer can be saved again. Raises ConfigError if there is
    none, it is not a fast one, or it lacks a special token.
    """
    tokenizer: PreTrainedTokenizerBase = load_weights(_loader(name), name, revision)
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise ConfigError(f"model {name}: has no tokenizer: save one to the same folder")
    if not tokenizer.is_fast:
        raise ConfigError(_SLOW.format(name))
    check_tokens(tokenizer, f"model {name}: its tokenizer")
    if not as_saved:
        tokenizer.backend_tokenizer.no_padding()
        tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


def pads_or_truncates(name: str, revision: str | None = None) -> bool:
    """Return True if the tokenizer of a folder or Hub name is saved with padding or truncation."""
    try:
        with nullcontext() if Path(name).is_dir() else hub.access():
            saved = read_config(name, revision, "tokenizer.json")
    except OSError:  # `load_tokenizer` says why it cannot be read
        return False
    return any(saved.get(key) is not None for key in ("padding", "truncation"))


def _loader(name: str) -> Any:
    """Return the class of Transformers that loads a tokenizer.

    AutoTokenizer imports PyTorch, which takes a second. So BART's class loads what it saved to a
    folder without a model, e.g. a tokenizer of `train_tokenizer`.
    """
    import transformers

    trained = transformers.BartTokenizer  # RoBERTa's: Transformers has one class for both
    if not Path(name).is_dir() or (Path(name) / "config.json").exists():
        return transformers.AutoTokenizer
    saved = read_config(name, None, "tokenizer_config.json").get("tokenizer_class")
    return trained if saved == trained.__name__ else transformers.AutoTokenizer
