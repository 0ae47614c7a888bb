"""Load saved models and tokenizers without running any code that comes with them."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from maskpolicy import hub
from maskpolicy.config.experiment import RELATIVE
from maskpolicy.errors import ConfigError

if TYPE_CHECKING:
    import torch

_FAILURES = (OSError, ValueError, RuntimeError, AttributeError, KeyError, TypeError)
"""What Transformers raises for folders that lack a file or hold a damaged one."""
_CONFIGS = ("config.json", "tokenizer_config.json")
_CODE = "custom_generate/generate.py"  # Transformers uses it instead of `generate`
_ATTENTION = ("attn_implementation", "_attn_implementation")  # OWNER/NAME is a kernel on the Hub


def load_weights(factory: Any, name: str, revision: str | None = None, **settings: Any) -> Any:
    """Return `factory.from_pretrained(name)` for a class of Transformers.

    No code of the model's author runs: pickled weights are read as plain tensors, and a model that
    needs custom code raises ConfigError, as every other failure does, with one line. Transformers'
    report of missing and unexpected weights is silenced: set output_loading_info=True to get it.
    """
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    if Path(name).is_absolute() and not Path(name).is_dir():
        raise ConfigError(f"model {name}: no such folder")
    if hasattr(factory, "_model_mapping"):  # a tokenizer would save this setting
        settings["weights_only"] = True
    reach = nullcontext() if Path(name).is_dir() else hub.access()
    try:
        with reach, _quiet():
            refuse_code(name, revision)
            if is_relative(name, revision):
                import maskpolicy.models.relative_positions  # noqa: F401 (it registers the class)
            return factory.from_pretrained(
                name, revision=revision, trust_remote_code=False, **settings
            )
    except pickle.UnpicklingError as error:
        raise ConfigError(
            f"model {name}: its weights are a pickle with more than tensors, or are damaged: "
            "save them again with save_pretrained, which writes safetensors"
        ) from error
    except (*_FAILURES, SafetensorError, StrictDataclassError) as error:
        reason = shorten(str(error), 300, placeholder=" ..")
        advice = "give a folder, or a Hub name with a network"
        if Path(name).is_dir():
            advice = "name a folder that holds a model and its tokenizer"
        raise ConfigError(f"model {name}: cannot be loaded ({advice}): {reason}") from error


def input_embeddings(folder: str) -> torch.Tensor:
    """Return the input embeddings of a saved model of any kind, (vocabulary, width) in float32."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

    is_known = type(load_weights(AutoConfig, folder)) in AutoModel._model_mapping
    factory = AutoModel if is_known else AutoModelForSeq2SeqLM  # EncoderDecoderModel has no body
    model = load_weights(factory, folder, None, dtype=torch.float32)
    weight: torch.Tensor = model.get_input_embeddings().weight
    return weight


def refuse_code(name: str, revision: str | None = None) -> None:
    """Raise ConfigError for a folder or Hub name whose model or tokenizer comes with custom code.

    `trust_remote_code=False` is not enough: for a model type that Transformers knows, it would
    silently use its own class, which is not the author's model.
    """
    found = ""
    for file in _CONFIGS:
        config = read_config(name, revision, file)
        if "auto_map" in config:
            found = f"auto_map in its {file}"
        for key in _ATTENTION:
            if "/" in str(config.get(key)):
                found = f"{key} in its {file}"
    if not found and _file(name, revision, _CODE):
        found = _CODE
    if found:
        raise ConfigError(
            f"model {name}: has custom code ({found}), which maskpolicy never runs: name a "
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
        found = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    except ValueError:  # Transformers reports the error
        return {}
    return found if isinstance(found, dict) else {}


def _file(name: str, revision: str | None, file: str) -> str | None:
    """Return the path of a model's file, downloaded if needed; None if it does not exist."""
    from transformers.utils.hub import cached_file

    path: str | None = cached_file(
        name,
        file,
        revision=revision,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return path


@contextmanager
def _quiet() -> Iterator[None]:
    """Let Transformers log only errors."""
    log = logging.getLogger("transformers")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
