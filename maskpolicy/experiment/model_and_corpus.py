"""The blocks `model`, `corpus` and `world` of an experiment file, and a row's corpus, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from maskpolicy.core import hub, keys, schema
from maskpolicy.core.errors import ConfigError, need, unknown
from maskpolicy.core.files import read_json
from maskpolicy.core.schema import Range, at
from maskpolicy.core.types import Json
from maskpolicy.experiment import yaml_file
from maskpolicy.experiment.definition import (
    ARCHITECTURES,
    CONFIG_FILE,
    ENCODER,
    PRESETS,
    SCRATCH,
    SEQ2SEQ,
    SIZES,
    WIDTH,
    WORLD,
    CorpusBlock,
    ModelBlock,
    ModelKind,
    PolicyBlock,
)
from maskpolicy.experiment.policy_blocks import leaf_blocks
from maskpolicy.plugins import hooks

WORLD_TEXTS = ("general", "situations")  # of the world, which `mix` names without a block
MIX, SHARE = "mix", "share"
_SOURCES = ("name", "files", "hub")
_OF_HUB = ("subset", "split", "revision", "stream")
_NOT_OF_WORLD = {
    "column": "is for rows of files and of the Hub",
    "columns": "is for rows of files and of the Hub; the world always has its columns",
    "pack": "is for files and the Hub",
    "language": "the world is written in English",
}
_NAME = re.compile(r"[\w-]+")
_Share = Annotated[float, Range(ge=0, lt=1)]
_USUAL = 0.2  # the share that messages suggest
OF_WORLD = CorpusBlock(name="world")  # all corpora of the world have the same columns
_NAMED = 4  # the most files in the words for a corpus
# the beginnings of names of models on the Hub that people write without the owner
_OWNERS = {
    "google-bert": ("bert-",),
    "FacebookAI": ("roberta-", "xlm-roberta-"),
    "albert": ("albert-",),
    "distilbert": ("distilbert-", "distilroberta-"),
    "microsoft": ("deberta-",),
    "google": ("electra-",),
    "answerdotai": ("ModernBERT-",),
    "facebook": ("bart-", "mbart-"),
    "google-t5": ("t5-",),
}
ALGORITHMS = ("bpe", "wordpiece", "unigram")  # by which a tokenizer is trained
_LEAST_VOCABULARY = 400
_MOST_WEIGHTS, _MOST_LAYERS = 2e10, 1000
_DECODERS = ("gpt", "llama", "opt-", "pythia", "mistral", "qwen", "bloom", "gemma", "phi-")


def model_block(given: Any, where: str, folders: Sequence[Path]) -> ModelBlock:
    """Return the model; its name is a preset, a folder or a Hub name. Raises ConfigError."""
    block = {"name": given} if isinstance(given, str) else given
    is_named = isinstance(block, Mapping) and "architecture" in block
    if is_named:
        if "name" in block:
            raise ConfigError(f"{where}: `architecture` is another word for `name`: give one")
        block = {"name" if key == "architecture" else key: each for key, each in block.items()}
    model = ModelBlock(**schema.block(ModelBlock, block, where))
    found = _file_or_folder(model.name, is_named, folders)
    if found is not None and (found.is_dir() or model.name.endswith(CONFIG_FILE)):
        model = replace(model, name=str(found))
    elif model.name.endswith(CONFIG_FILE):
        raise ConfigError(f"{where}: there is no file {model.name!r}")
    if model.tokenizer and model.tokenizer not in ALGORITHMS:
        folder = yaml_file.locate(model.tokenizer, folders)
        model = replace(model, tokenizer=str(folder or model.tokenizer))
    if "kind" not in block:
        model = replace(model, kind=_kind(model))
    _check_sizes(model, where)
    if not model.is_scratch and not (found is not None and found.is_dir()):
        _check_hub_name(model, where)
    return model


def _file_or_folder(name: str, is_architecture: bool, folders: Sequence[Path]) -> Path | None:
    """Return the file or folder that the name of a model means, or None."""
    if not name or name in PRESETS[ENCODER] + PRESETS[SEQ2SEQ]:
        return None
    found = yaml_file.locate(name, folders)
    if name in ARCHITECTURES[SEQ2SEQ] + ARCHITECTURES[ENCODER]:
        is_model = found is not None and (found / "config.json").is_file()
        return None if is_architecture or not is_model else found
    return found


def _check_hub_name(model: ModelBlock, where: str) -> None:
    """Raise ConfigError if the name of a model cannot be one of the Hub."""
    name = model.name
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ConfigError(f"{where}: there is no folder {name!r}: name one, or a Hub model")
    if "/" in name:
        return
    if name.lower().startswith(_DECODERS):
        raise ConfigError(
            f"{where}: {name} is a decoder alone, which has no masks: choose a text-to-text model "
            "such as facebook/bart-base, or an encoder such as FacebookAI/roberta-base"
        )
    for owner, starts in _OWNERS.items():
        if name.startswith(starts):
            raise ConfigError(
                f"{where}: a model of the Hub is named with its owner: write model: {owner}/{name}"
            )
    others = sorted(set(SCRATCH[ENCODER]) - set(SCRATCH[model.kind]))
    more = f", {', '.join(others)} (of kind: {ENCODER} only)" if others else ""
    example = "facebook/bart-base" if model.kind == SEQ2SEQ else "FacebookAI/roberta-base"
    raise ConfigError(
        f"{where}: {unknown('model', name, SCRATCH[model.kind])}{more}, a folder (none is there) "
        f"or a Hub name such as {example}"
    )


def _kind(model: ModelBlock) -> ModelKind:
    """Return the kind of a folder's or Hub name's model, by its config.json."""
    name = model.name
    if name in ARCHITECTURES[ENCODER]:
        return "encoder"
    if name in SCRATCH[SEQ2SEQ] or "/" not in name:
        return model.kind
    config = read_json(Path(name), "correct it") if name.endswith(CONFIG_FILE) else None
    if not isinstance(config, dict) or not config:
        config = hub.model_config(name, model.revision)
    is_text = config.get("model_type") in (None, *ARCHITECTURES[SEQ2SEQ])  # by default
    return "seq2seq" if config.get("is_encoder_decoder", is_text) else "encoder"


def _check_sizes(model: ModelBlock, where: str) -> None:
    """Raise ConfigError for a key of other models, or a wrong size."""
    of_preset = model.kind == ENCODER and model.is_preset
    is_own = model.is_scratch and not model.is_preset
    takes_sizes = is_own and not model.name.endswith(CONFIG_FILE)
    architectures = ", ".join(each for kind in (SEQ2SEQ, ENCODER) for each in ARCHITECTURES[kind])
    own = f"a model of sizes of your own ({architectures})"
    from_scratch = f"a preset of kind: {ENCODER} ({', '.join(PRESETS[ENCODER])})"
    is_hub = not model.is_scratch and not Path(model.name).is_absolute()
    takers = (
        ("revision", is_hub, "a model of the Hub"),
        ("relative_positions", of_preset, from_scratch),
        *((key, takes_sizes or (key == "layers" and of_preset), own) for key in SIZES),
        *((key, is_own, own) for key in ("vocabulary", "tokenizer")),
        *((key, model.kind == ENCODER, f"kind: {ENCODER}") for key in ("head", "decoder_layers")),
    )
    for key, takes, what in takers:
        if not takes and getattr(model, key) != getattr(ModelBlock, key):
            raise ConfigError(f"{at(where, key)}: is for {what} only: leave it out")
    check_weights(max(model.layers or 0, model.decoder_layers), 1, 1, 1, where)
    if is_own:
        _check_own(model, where)


def _check_own(model: ModelBlock, where: str) -> None:
    """Raise ConfigError for sizes or a tokenizer that cannot be built."""
    width, heads = model.width or WIDTH, model.attention_heads
    if width % heads:
        raise ConfigError(
            f"{at(where, 'heads')}: {heads} heads cannot divide a width of {width}: set "
            f"width to a multiple of {heads}"
        )
    if model.name == "modernbert" and width // heads % 2:
        raise ConfigError(
            f"{at(where, 'width')}: rotary positions need an even width of each head: set width "
            "to an even multiple of heads"
        )
    vocabulary = model.vocabulary or _LEAST_VOCABULARY
    check_weights(model.layers or 1, width, model.feed_forward or 4 * width, vocabulary, where)
    if vocabulary < _LEAST_VOCABULARY:
        raise ConfigError(
            f"{at(where, 'vocabulary')}: must be at least {_LEAST_VOCABULARY}, for special "
            f"tokens, and single bytes or characters, not {vocabulary}"
        )
    if not model.tokenizer or model.tokenizer in ALGORITHMS:
        return
    if not Path(model.tokenizer).is_dir():
        raise ConfigError(
            f"{at(where, 'tokenizer')}: there is no folder {model.tokenizer!r}: name one, or "
            f"{', '.join(ALGORITHMS)}"
        )
    if model.vocabulary:
        raise ConfigError(f"{at(where, 'vocabulary')}: the tokenizer has one: leave it out")


def check_weights(layers: int, width: int, inner: int, vectors: int, where: str) -> None:
    """Raise ConfigError for a model with more layers or weights than memory can hold.

    `inner` is the width of the feed-forward layers, `vectors` the number of embeddings.
    """
    if layers > _MOST_LAYERS:
        raise ConfigError(f"{where}: {layers} layers are too many: at most {_MOST_LAYERS}")
    weights = width * vectors + layers * width * (4 * width + 2 * inner)
    if weights > _MOST_WEIGHTS:
        raise ConfigError(
            f"{where}: would have {weights / 1e9:.3g} billion weights: lower its layers, width, "
            f"feed_forward or vocabulary (at most {_MOST_WEIGHTS / 1e9:g} billion)"
        )


def corpus_block(given: Any, where: str, folders: Sequence[Path]) -> CorpusBlock:
    """Return the corpus with its patterns expanded; its text is the world's, files' or the Hub's.

    Raises ConfigError unless the block names exactly one of these.
    """
    if isinstance(given, list) or (isinstance(given, str) and given != WORLD):
        names = ", ".join(map(str, given)) if isinstance(given, list) else given
        if names == WORLD:
            raise ConfigError(f"{where}: is a list: write {WORLD}")
        folder = yaml_file.locate(names, folders) if names else None
        files = str(folder / "*.txt") if folder is not None and folder.is_dir() else names
        said = unknown("corpus", names, [WORLD])
        raise ConfigError(f"{where}: {said}, {{files: [{files}]}} or {{hub: {names}}}")
    values = schema.block(CorpusBlock, {"name": given} if isinstance(given, str) else given, where)
    if values["name"] == WORLD:
        for key, said in _NOT_OF_WORLD.items():
            if values[key] != getattr(CorpusBlock, key):
                raise ConfigError(f"{where}.{key}: {said}: leave it out")
    check_language(values["language"], f"{where}.language")
    if values["tokens"] and values["words"] != CorpusBlock.words:
        raise ConfigError(f"{where}.tokens: passages have words or tokens: leave one of them out")
    if values["mix"]:
        raise ConfigError(f"{where}.mix: is for the corpus of the intermediate stage: leave it out")
    sources = [key for key in _SOURCES if values[key]]
    if len(sources) != 1:
        raise ConfigError(f"{where}: give exactly one of name, files and hub")
    only_hub = [key for key in _OF_HUB if values[key] != getattr(CorpusBlock, key)]
    if only_hub and not values["hub"]:
        raise ConfigError(f"{where}.{only_hub[0]}: is for a Hub dataset (hub: NAME) only")
    values["files"] = _files(values["files"], f"{where}.files", folders)
    return CorpusBlock(**values)


def check_language(language: str, where: str) -> None:
    """Raise ConfigError at `where` for a language that is not known."""
    schema.check(language, str, where)
    if language == CorpusBlock.language:
        return
    need("spacy", "spacy", f"{where}: abbreviations of languages other than English are spaCy's")
    folder = Path(str(getattr(find_spec("spacy"), "origin", ""))).parent / "lang"
    known = sorted(path.parent.name for path in folder.glob("*/__init__.py"))
    if language not in known:
        raise ConfigError(f"{where}: {unknown('language', language, known)}")


def _files(patterns: Sequence[str], where: str, folders: Sequence[Path]) -> tuple[str, ...]:
    """Return the paths that match the patterns, each once; raises ConfigError if none does."""
    found: list[str] = []
    for index, pattern in enumerate(patterns):
        files = yaml_file.matches(pattern, folders)
        if not files:
            said = f"no such file {pattern!r}"
            if (path := yaml_file.locate(pattern, folders)) is not None:
                said = f"{pattern!r} is not a regular file: write its text to a file first"
                if path.is_dir():
                    example = str(Path(pattern) / "*.txt")
                    said = f"{pattern!r} is a folder: name its files, e.g. {example!r}"
            raise ConfigError(f"{where}[{index}]: {said}")
        found += map(str, files)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, kw_only=True)
class OwnText(CorpusBlock):
    """The block of the user's own text in `corpus.mix`."""

    share: _Share


@dataclass(frozen=True)
class MixedText:
    """A text of `corpus.mix`, and the share of the passages that come from it."""

    name: str
    share: float  # above 0
    corpus: CorpusBlock | None  # None: the text of the world with this name


def mixed_texts(corpus: CorpusBlock) -> list[MixedText]:
    """Return the texts that are mixed into a corpus, sorted by name."""
    found = []
    for name, value in sorted(in_effect(MIX, corpus.mix).items()):
        block = value if isinstance(value, Mapping) else {}
        rest = {key: tuple(v) if isinstance(v, list) else v for key, v in block.items()}
        rest.pop(SHARE, None)
        usual: dict[str, Any] = {"language": corpus.language, "pack": corpus.pack}
        rest = {key: v for key, v in rest.items() if v is not None}
        if not {"words", "tokens"} & {*rest}:
            usual |= {"words": corpus.words, "tokens": corpus.tokens}
        found.append(
            MixedText(name, share_of(value), CorpusBlock(**usual | rest) if rest else None)
        )
    return found


def with_mix(given: Any, where: str, folders: Sequence[Path]) -> CorpusBlock:
    """Return the corpus of a block that may have `mix`; see `corpus_block`."""
    if not isinstance(given, Mapping) or given.get(MIX) is None:
        return corpus_block(given, where, folders)
    made = corpus_block({key: value for key, value in given.items() if key != MIX}, where, folders)
    place = at(where, MIX)
    if not isinstance(given[MIX], Mapping):
        raise schema.wrong(given[MIX], f"a block of shares, such as {{general: {_USUAL}}}", place)
    mix = {name: _text(name, value, at(place, name), folders) for name, value in given[MIX].items()}
    total = sum(map(share_of, mix.values()))
    if total >= 1:
        raise ConfigError(f"{place}: the shares add up to {total:g}: leave some to the corpus")
    return replace(made, mix=mix)


def _text(name: str, value: Any, where: str, folders: Sequence[Path]) -> Json:
    """Return one checked text of `mix`: a share, or a block of a share and a corpus."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: a text's name has letters, digits, - and _: rename it")
    if name in WORLD_TEXTS:
        if isinstance(value, Mapping):
            usual = value.get(SHARE, _USUAL)
            raise ConfigError(f"{where}: must be just a share: write {name}: {usual}")
        return schema.check(value, _Share, where)
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{where}: {unknown('text', name, WORLD_TEXTS)}; a text of your own is a block: write "
            f"{{files: [..], share: {_USUAL}}}"
        )
    share = schema.block(OwnText, value, where)[SHARE]
    rest = {key: each for key, each in value.items() if key != SHARE}
    made = corpus_block(rest, where, folders)
    if made.name == WORLD:
        names = " or ".join(f"{each}: {share:g}" for each in WORLD_TEXTS)
        raise ConfigError(f"{where}: texts of the world are mixed in by name: write {names}")
    stated = {*rest, "files"} if made.files else {*rest}
    return {SHARE: share, **{key: keys.plain(getattr(made, key)) for key in sorted(stated)}}


def share_of(text: Any) -> float:
    """Return the share of a text of `mix`, which is a share or a block with one."""
    return float(text[SHARE] if isinstance(text, Mapping) else text)


def check_mix(corpus: CorpusBlock, reads_world: bool, world: Mapping[str, Any], where: str) -> None:
    """Raise ConfigError for a text of the world in `mix` that the world does not have.

    It may be there if the corpus is the world, or if the general stage reads it.
    """
    for text in (text for text in mixed_texts(corpus) if text.corpus is None):
        place = f"{at(where, MIX)}.{text.name}"
        if corpus.name != WORLD and not reads_world:
            raise ConfigError(
                f"{place}: is text of the embedded world, and neither this model nor this corpus "
                f"uses the world: name files, e.g. mix: {{wiki: {{files: [wiki.txt], share: "
                f"{text.share:g}}}}}"
            )
        if text.name == "situations" and not world.get("situations"):
            raise ConfigError(f"{place}: this world has none: set world.situations, e.g. to 0.33")


def row_corpus(
    given: Any, usual: CorpusBlock, where: str, folders: Sequence[Path]
) -> dict[str, Any]:
    """Return the settings in a row's block `corpus` that replace the file's, `usual`.

    Another source (name, files or hub) replaces the file's source with its keys of a Hub dataset,
    and the world also replaces the keys that it cannot have. All other keys, and each text
    of `mix`, stay as in the file unless the row states them. The same holds within a text of `mix`.
    Raises ConfigError at `where`.
    """
    if not isinstance(given, Mapping):
        corpus_block(given, where, folders)  # raises an error for any other name
        given = {"name": WORLD}
    merged = _merged(vars(usual), given)
    if isinstance(given.get(MIX), Mapping):
        texts = usual.mix or {}
        merged[MIX] = texts | {
            name: _merged(texts[name], text)
            if isinstance(text, Mapping) and isinstance(texts.get(name), Mapping)
            else text
            for name, text in given[MIX].items()
        }
    made = with_mix(merged, where, folders)
    return {k: v for k, v in vars(made).items() if k in given or v != getattr(usual, k)}


def _merged(usual: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a corpus or a mixed text, with those that a row states instead."""
    sizes = {"words": "tokens", "tokens": "words"}
    dropped = {other for size, other in sizes.items() if stated.get(size)}
    if any(stated.get(key) for key in _SOURCES):
        dropped |= {*_SOURCES, *_OF_HUB, *(_NOT_OF_WORLD if stated.get("name") else ())}
    return {key: value for key, value in usual.items() if key not in dropped} | {**stated}


def in_effect(key: str, value: Any) -> Any:
    """Return a setting of a corpus; `mix` without texts whose share is 0."""
    if key != MIX:
        return value
    return {name: each for name, each in (value or {}).items() if share_of(each)}


def shown(settings: Mapping[str, Any]) -> dict[str, Json]:
    """Return settings of a corpus as labels show them: one source, and files by their names."""
    found: dict[str, Json] = keys.plain(settings)
    if found.get("files"):
        found["files"] = [Path(path).name for path in found["files"]]
    if MIX in found:
        texts = (found[MIX] or {}).items()
        found[MIX] = {name: shown(v) if isinstance(v, dict) else v for name, v in texts}
    return {key: value for key, value in found.items() if value or key not in _SOURCES}


def in_words(settings: Mapping[str, Json], world: str = "the embedded world") -> str:
    """Return words for a corpus: the source of its text, and the shares of mixed texts."""
    names = [Path(name).name for name in settings.get("files") or ()]
    if len(names) > _NAMED:
        names = [names[0], "..", f"{names[-1]} ({len(names)} files)"]
    source = ", ".join(names)
    if settings.get("name") == WORLD:
        source = world
    elif settings.get("hub"):
        source = str(settings["hub"])
    mixed = in_effect(MIX, settings.get(MIX)).items()
    return ", ".join([source, *(f"{100 * share_of(each):g}% from {name}" for name, each in mixed)])


def with_details(corpus: CorpusBlock) -> str:
    """Return words for a corpus, with each setting that is not the default."""
    settings, usual = keys.plain(vars(corpus)), keys.plain(vars(CorpusBlock()))
    changed = [
        f"{key} {value if isinstance(value, str) else keys.canonical(value)}"
        for key, value in settings.items()
        if key not in (*_SOURCES, MIX) and value != usual[key]
    ]
    return ", ".join([in_words(settings), *changed])


def check_columns(
    block: PolicyBlock, corpus: CorpusBlock, world: Mapping[str, Any], where: str
) -> None:
    """Raise ConfigError if a policy of the row at `where` reads a column that its corpus lacks.

    The hook `corpus_columns` must be a list of names.
    """
    for leaf, place in leaf_blocks(block, where):
        names = hooks.CORPUS_COLUMNS.of(leaf.policy)
        hook = f"policy {leaf.name}: {hooks.CORPUS_COLUMNS.name}"
        for name in schema.check(names, tuple[str, ...], hook):
            if lacking := _lacking(name, corpus, world):
                naming = (  # the field that names the column
                    at(place, key)
                    for key, value in leaf.fields.items()
                    if value == name or (isinstance(value, list) and name in value)
                )
                raise ConfigError(f"{next(naming, place)}: {lacking}")


def _lacking(name: str, corpus: CorpusBlock, world: Mapping[str, Any]) -> str:
    """Return why a corpus lacks a column, and what to do; "" if it has the column."""
    from maskpolicy.experiment.world_settings import WITH_ERRORS, make

    def lacks(what: str, text: CorpusBlock) -> str:
        known = make(world).columns if text.name == WORLD else text.columns
        listed = ", ".join(known) or "none"
        return "" if name in known else f"{what} has no column {name!r} (it has {listed})"

    if said := lacks("the world" if corpus.name == WORLD else "the corpus", corpus):
        if corpus.name != WORLD:
            return f"{said}: name it in corpus.columns, if its rows have it"
        return f"{said}: set world.entity_errors" if name == WITH_ERRORS else said
    for text in mixed_texts(corpus):
        if said := lacks(f"corpus.{MIX}.{text.name}", text.corpus or OF_WORLD):
            return f"{said}, so that the mixed corpus has none: add it, or leave the text out"
    return ""
