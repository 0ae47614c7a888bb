"""The blocks `model`, `corpus` and `world` of an experiment file, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskpolicy import keys, schema
from maskpolicy.config import yaml_file
from maskpolicy.config.experiment import ENCODER, SCRATCH, SEQ2SEQ, WORLD, CorpusBlock, ModelBlock
from maskpolicy.errors import ConfigError, unknown
from maskpolicy.schema import at
from maskpolicy.types import Json

# models on the Hub that people name without their owner: the kind, and how the names begin
_OWNERS = {
    "google-bert": (ENCODER, ("bert-",)),
    "FacebookAI": (ENCODER, ("roberta-", "xlm-roberta-")),
    "albert": (ENCODER, ("albert-",)),
    "distilbert": (ENCODER, ("distilbert-", "distilroberta-")),
    "microsoft": (ENCODER, ("deberta-",)),
    "google": (ENCODER, ("electra-",)),
    "answerdotai": (ENCODER, ("ModernBERT-",)),
    "facebook": (SEQ2SEQ, ("bart-", "mbart-")),
    "google-t5": (SEQ2SEQ, ("t5-",)),
}
_DECODERS = ("gpt", "llama", "opt-", "pythia", "mistral", "qwen", "bloom", "gemma", "phi-")


def model_block(given: Any, where: str, folders: Sequence[Path]) -> ModelBlock:
    """Return the model; its name is a preset, a folder or a Hub name. Raises ConfigError."""
    block = {"name": given} if isinstance(given, str) else given
    model = ModelBlock(**schema.block(ModelBlock, block, where))
    _check_encoder(model, where)
    if model.is_scratch:
        return model
    found = yaml_file.locate(model.name, folders) if model.name else None
    if found is not None and found.is_dir():
        return replace(model, name=str(found))
    if model.name.startswith((".", "/", "~")) or model.name.count("/") > 1:
        raise ConfigError(f"{where}: there is no folder {model.name!r}: name one, or a Hub model")
    example = "facebook/bart-base" if model.kind == SEQ2SEQ else "FacebookAI/roberta-base"
    if "/" not in model.name:
        if (pointer := _full_name(model)) is not None:
            raise ConfigError(f"{where}: {pointer}")
        others = set(SCRATCH[ENCODER]) - set(SCRATCH[model.kind])
        more = f", {min(others)} (of kind: {ENCODER} only)" if others else ""
        known = unknown("model", model.name, SCRATCH[model.kind])
        raise ConfigError(
            f"{where}: {known}{more}, a folder (none is there) or a Hub name such as {example}"
        )
    return model


def _full_name(model: ModelBlock) -> str | None:
    """Return what to write for a known model's name without its owner on the Hub, or None."""
    name = model.name
    if name.lower().startswith(_DECODERS):
        return (
            f"{name} is a decoder alone, which has no masks: choose a text-to-text model such as "
            "facebook/bart-base, or an encoder such as FacebookAI/roberta-base with kind: encoder"
        )
    for owner, (kind, starts) in _OWNERS.items():
        if name.startswith(starts):
            full = f"{owner}/{name}"
            same = kind == model.kind == SEQ2SEQ
            block = full if same else f"{{kind: {kind}, name: {full}}}"
            return f"a model of the Hub is named with its owner: write model: {block}"
    return None


def _check_encoder(model: ModelBlock, where: str) -> None:
    """Raise ConfigError if a block sets a key of encoders that its model does not take."""
    for key in ("layers", "relative_positions"):
        if getattr(model, key) and not (model.kind == ENCODER and model.is_scratch):
            raise ConfigError(
                f"{at(where, key)}: is for an encoder built from scratch "
                f"({', '.join(SCRATCH[ENCODER])}) only: leave it out"
            )
    if model.head != ModelBlock.head and (model.kind == SEQ2SEQ or model.is_scratch):
        raise ConfigError(
            f"{at(where, 'head')}: is for an encoder of a folder or Hub name only: leave it out"
        )
    if model.kind == SEQ2SEQ and model.decoder_layers != ModelBlock.decoder_layers:
        raise ConfigError(f"{at(where, 'decoder_layers')}: is for kind: {ENCODER} only")


def corpus_block(given: Any, where: str, folders: Sequence[Path]) -> CorpusBlock:
    """Return the corpus with its patterns expanded; its text is the world's, files' or the Hub's.

    Raises ConfigError unless the block names exactly one of these.
    """
    if isinstance(given, str) and (Path(given).suffix or "*" in given):
        raise ConfigError(f"{where}: is a block for files: write {{files: [{given}]}}")
    if isinstance(given, str) and given != WORLD:
        found = yaml_file.locate(given, folders) if given else None
        if found is not None and found.is_dir():
            files = str(Path(given) / "*.txt")
            raise ConfigError(f"{where}: {given} is a folder: write {{files: [{files}]}}")
        if "/" in given and found is None:
            raise ConfigError(
                f"{where}: {given!r} is no folder: write {{files: [..]}} for files, or "
                f"{{hub: {given}}} for a data set of the Hub"
            )
        raise ConfigError(
            f"{where}: {unknown('corpus', given, [WORLD])}, {{files: [..]}} or {{hub: ..}}"
        )
    if isinstance(given, list):
        error = schema.wrong(given, "a name or a block of keys", where)
        raise ConfigError(f"{error}: write {{files: [{', '.join(map(str, given))}]}}")
    block = {"name": given} if isinstance(given, str) else given
    values = schema.block(CorpusBlock, block, where)
    if values["name"] == WORLD and values["columns"]:
        raise ConfigError(
            f"{where}.columns: is for rows of files and of the Hub; the world always has its "
            "columns: leave it out"
        )
    if values["mix"]:
        raise ConfigError(f"{where}.mix: is for the corpus of the intermediate stage: leave it out")
    sources = [key for key in ("name", "files", "hub") if values[key]]
    if len(sources) != 1:
        raise ConfigError(f"{where}: give one of name, files and hub, not {len(sources)}")
    only_hub = {key for key in ("subset", "revision", "stream") if values[key]}
    if only_hub and not values["hub"]:
        raise ConfigError(f"{where}.{min(only_hub)}: is for a Hub dataset (hub: NAME) only")
    values["files"] = _files(values["files"], f"{where}.files", folders)
    return CorpusBlock(**values)


def _files(patterns: Sequence[str], where: str, folders: Sequence[Path]) -> tuple[str, ...]:
    """Return the paths that match the patterns, each once.

    Raises ConfigError for a pattern that no file matches.
    """
    found: list[str] = []
    for index, pattern in enumerate(patterns):
        files = yaml_file.matches(pattern, folders)
        if not files:
            raise ConfigError(f"{where}[{index}]: {_no_file(pattern, folders)}")
        found += map(str, files)
    return tuple(dict.fromkeys(found))


def _no_file(pattern: str, folders: Sequence[Path]) -> str:
    """Return why a path or pattern matches no file, and what to write instead."""
    found = yaml_file.locate(pattern, folders)
    if found is None:
        return f"no such file {pattern!r}"
    if not found.is_dir():
        return f"{pattern!r} is not a regular file, but is read twice: write it to a file first"
    return f"{pattern!r} is a folder: name its files, e.g. {str(Path(pattern) / '*.txt')!r}"


def world_block(given: Mapping[str, Any], where: str) -> dict[str, Json]:
    """Return all settings of the embedded world; raises ConfigError."""
    from maskpolicy.world.settings import make

    try:
        settings = make(given)
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from error
    return keys.to_json(settings)
