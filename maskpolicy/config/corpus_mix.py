"""Texts that are mixed into a corpus: `corpus.mix`, and the corpus of a row alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

from maskpolicy import keys, schema
from maskpolicy.config.experiment import WORLD, CorpusBlock, ModelBlock
from maskpolicy.config.model_and_corpus import corpus_block
from maskpolicy.errors import ConfigError, unknown
from maskpolicy.schema import Range, at
from maskpolicy.types import Json

WORLD_TEXTS = ("general", "situations")  # that can be mixed into a corpus by their names
MIX, SHARE = "mix", "share"
_SOURCES = ("name", "files", "hub")
_OF_HUB = ("subset", "split", "revision", "stream")
_NAME = re.compile(r"[\w-]+")
_Share = Annotated[float, Range(ge=0, lt=1)]
_USUAL = 0.2  # the share in messages about a text that has none


@dataclass(frozen=True)
class MixedText:
    """A text of `corpus.mix`: the share of the passages that come from it."""

    name: str
    share: float  # above 0
    corpus: CorpusBlock | None  # None: the text of the world that has this name


def mixed_texts(corpus: CorpusBlock) -> list[MixedText]:
    """Return the texts that are mixed into a corpus, in the order of their names."""
    found = []
    for name, value in sorted((corpus.mix or {}).items()):
        block = value if isinstance(value, Mapping) else {SHARE: value}
        share = share_of(value)
        rest = {key: each for key, each in block.items() if key != SHARE}
        values = {"words": corpus.words, **_tuples(rest)}
        if share:
            found.append(MixedText(name, share, CorpusBlock(**values) if rest else None))
    return found


def with_mix(given: Any, where: str, folders: Sequence[Path]) -> CorpusBlock:
    """Return the corpus of a block that may have the key `mix`; see `corpus_block`."""
    if not isinstance(given, Mapping) or given.get(MIX) is None:
        return corpus_block(given, where, folders)
    made = corpus_block({key: value for key, value in given.items() if key != MIX}, where, folders)
    place = at(where, MIX)
    if not isinstance(given[MIX], Mapping):
        error = schema.wrong(given[MIX], "a block with a share for each text", place)
        raise ConfigError(f"{error}: write e.g. {{general: {_USUAL}}}")
    mix = {name: _text(name, value, at(place, name), folders) for name, value in given[MIX].items()}
    total = sum(map(share_of, mix.values()))
    if total >= 1:
        raise ConfigError(f"{place}: the shares add up to {total:g}: leave some to the corpus")
    return replace(made, mix=mix)


def _text(name: str, value: Any, where: str, folders: Sequence[Path]) -> Json:
    """Return one text of `mix`, checked: a share, or a block of a share and a corpus."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: a text is called by letters, digits, - and _: rename it")
    if name in WORLD_TEXTS:
        if isinstance(value, Mapping):
            usual = value.get(SHARE, _USUAL)
            raise ConfigError(f"{where}: must be a share alone: write {name}: {usual}")
        return _checked_share(value, where)
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: {_no_block(name, value)}")
    known = {*schema.fields_of(CorpusBlock), SHARE}
    for key in value:
        if key not in known:
            said = unknown("key", str(key), known - {MIX}, (), schema.LIST_OF_KEYS)
            raise ConfigError(f"{at(where, key)}: {said}")
    if SHARE not in value:
        raise ConfigError(f"{at(where, SHARE)}: missing: write e.g. {SHARE}: {_USUAL}")
    share = _checked_share(value[SHARE], at(where, SHARE))
    rest = {key: each for key, each in value.items() if key != SHARE}
    if not any(rest.get(key) for key in _SOURCES):
        block = f"{name}: {{files: [..], share: {share:g}}}"
        raise ConfigError(f"{where}: {name} has no text: write corpus: {{mix: {{{block}}}}}")
    made = corpus_block(rest, where, folders)
    if made.name == WORLD:
        names = " or ".join(f"{each}: {share:g}" for each in WORLD_TEXTS)
        raise ConfigError(f"{where}: texts of the world are mixed in by name: write {names}")
    stated = {*rest, "files"} if made.files else {*rest}
    return {SHARE: share, **{key: keys.plain(getattr(made, key)) for key in sorted(stated)}}


def share_of(text: Any) -> float:
    """Return the share of a text of `mix`, which is a share alone or a block that has one."""
    return float(text[SHARE] if isinstance(text, Mapping) else text)


def _checked_share(value: Any, where: str) -> float:
    if value == 1 and not isinstance(value, bool):
        raise ConfigError(f"{where}: must be below 1, not 1: leave a share to the corpus itself")
    share: float = schema.check(value, _Share, where)
    return share


def _no_block(name: str, value: Any) -> str:
    """Return what is wrong with a text that must be a block, and what to write instead."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (
            f"{unknown('text', name, WORLD_TEXTS)}; a text of your own is a block: write "
            f"{{files: [..], share: {value:g}}}"
        )
    files = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    listed = ", ".join(map(str, files)) or ".."
    return f"must be a block of a text and its share: write {{files: [{listed}], share: {_USUAL}}}"


def _tuples(block: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(each) if isinstance(each, list) else each for key, each in block.items()}


def check_mix(corpus: CorpusBlock, model: ModelBlock, world: Mapping[str, Any], where: str) -> None:
    """Raise ConfigError for a text that is mixed in by name, and that the world does not have."""
    for text in mixed_texts(corpus):
        place = f"{at(where, MIX)}.{text.name}"
        if text.corpus is not None:
            continue
        if corpus.name != WORLD and not model.is_scratch:
            raise ConfigError(
                f"{place}: is text of the embedded world, which neither this model nor this corpus "
                f"is made of: name files, e.g. mix: {{wiki: {{files: [wiki.txt], share: "
                f"{text.share:g}}}}}"
            )
        if text.name == "situations" and not world.get("situations"):
            raise ConfigError(f"{place}: this world has none: set world.situations, e.g. to 0.33")


def row_corpus(
    given: Any, usual: CorpusBlock, where: str, folders: Sequence[Path]
) -> dict[str, Any]:
    """Return what a row's block `corpus` has in place of the file's settings, `usual`.

    A row that names another source (name, files or hub) takes it in place of the file's, without
    the keys of a Hub dataset, and in the world without `columns`. All other keys stay the file's
    unless the row states them; the texts of `mix` one by one. Raises ConfigError at `where`.
    """
    if not isinstance(given, Mapping):
        corpus_block(given, where, folders)  # which says what is wrong with anything but `world`
        given = {"name": WORLD}
    stated = schema.with_new_names(CorpusBlock, given, where)
    base = {each.name: getattr(usual, each.name) for each in fields(CorpusBlock)}
    if any(stated.get(key) for key in _SOURCES):
        dropped = (*_SOURCES, *_OF_HUB, *(["columns"] if stated.get("name") else []))
        base = {key: value for key, value in base.items() if key not in dropped}
    merged = {**base, **stated}
    if isinstance(stated.get(MIX), Mapping):
        merged[MIX] = _merged(usual.mix or {}, stated[MIX])
    made = with_mix(merged, where, folders)
    return {
        each.name: getattr(made, each.name)
        for each in fields(CorpusBlock)
        if each.name in stated or getattr(made, each.name) != getattr(usual, each.name)
    }


def _merged(usual: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(usual)
    for name, value in stated.items():
        known = both.get(name)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            value = {**known, **value}
        both[name] = value
    return both


def unmixed(corpus: CorpusBlock) -> CorpusBlock:
    """Return a corpus without the texts that are mixed into it."""
    return replace(corpus, mix=None)


def in_effect(key: str, value: Any) -> Any:
    """Return a setting of a corpus as it matters: without texts that have a share of 0."""
    if key != MIX:
        return value
    return {name: each for name, each in (value or {}).items() if share_of(each)}


def shown(settings: Mapping[str, Any]) -> dict[str, Json]:
    """Return settings of a corpus for people: its source, and files by their names."""
    found: dict[str, Json] = {}
    for key, value in keys.plain(settings).items():
        if key in _SOURCES and not value:
            continue
        if key == "files":
            found[key] = [Path(path).name for path in value]
        elif key == MIX:
            texts = (value or {}).items()
            found[key] = {n: shown(v) if isinstance(v, dict) else v for n, v in texts}
        else:
            found[key] = value
    return found


def in_words(settings: Mapping[str, Json], world: str = "the embedded world") -> str:
    """Return a corpus in words: where its text is from, and the shares of what is mixed in."""
    source = ", ".join(Path(name).name for name in settings.get("files") or ())
    if settings.get("name") == WORLD:
        source = world
    elif settings.get("hub"):
        source = str(settings["hub"])
    mixed = in_effect(MIX, settings.get(MIX)).items()
    return ", ".join([source, *(f"{100 * share_of(each):g}% from {name}" for name, each in mixed)])


def with_details(corpus: CorpusBlock) -> str:
    """Return a corpus in words, with each setting that is not the default."""
    settings, usual = keys.plain(vars(corpus)), keys.plain(vars(CorpusBlock()))
    changed = [
        f"{key} {value if isinstance(value, str) else keys.canonical(value)}"
        for key, value in settings.items()
        if key not in (*_SOURCES, MIX) and value != usual[key]
    ]
    return ", ".join([in_words(settings), *changed])
