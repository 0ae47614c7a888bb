"""The rows of an experiment, with their labels and the settings that replace the file's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from maskpolicy.core import keys, schema
from maskpolicy.core.errors import ConfigError, unknown
from maskpolicy.core.schema import at
from maskpolicy.core.types import Json
from maskpolicy.experiment import budgets, yaml_file
from maskpolicy.experiment.budgets import Own, Training
from maskpolicy.experiment.definition import (
    MAJORITY,
    NONE,
    WORLD,
    CorpusBlock,
    PolicyBlock,
    untuned,
)
from maskpolicy.experiment.learned_policies import is_learned
from maskpolicy.experiment.model_and_corpus import MIX, in_effect, shown
from maskpolicy.experiment.policy_blocks import (
    apart,
    check_distinct,
    named,
    of_kind,
    own_objective,
    policy_block,
    warn_of_equal_settings,
)
from maskpolicy.experiment.sweeps import DEV, ON, TUNE, Row
from maskpolicy.plugins import hooks
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.plugins.registry import CORPUS, ROW_TRAININGS

BLOCKS = (*ROW_TRAININGS, CORPUS)
_OF_STEPS = [f"intermediate.{key}" for key in ("batch_size", "words", "epochs")]
Usual: TypeAlias = Mapping[str, Training | CorpusBlock]
"""The file's budgets and its corpus, by block."""


@dataclass(frozen=True)
class OfFile:
    """What a file states for all its rows."""

    objective: Mapping[str, Any] = field(default_factory=dict)  # keys of Denoising
    kind: str = ""  # of the model
    usual: Usual = field(default_factory=dict)
    of_columns: Collection[str] = ()  # keys of `finetune` that a column sets for itself
    own: Own = lambda blocks, place: {}
    # in_steps(keys of a row, place) -> the keys, with steps instead of words and epochs
    in_steps: Callable[[Mapping[str, Any], str], Mapping[str, Any]] = lambda given, place: given


def row_blocks(rows: Sequence[Row], where: str, of_file: OfFile) -> tuple[PolicyBlock, ...]:
    """Return the rows of an experiment with distinct labels; see `policy_blocks.policy_block`.

    Raises ConfigError, also for two rows with the same settings.
    """
    blocks = [_tuned(row, of_file) if row.tune else _labelled(row, of_file) for row in rows]
    _check_labels(rows, blocks, of_file, where)
    settings = [_settings(block, of_file) for block in blocks]
    first: dict[str, str] = {}
    for row, block, of_row in zip(rows, blocks, settings, strict=True):
        other = block.label
        if "label" not in row.given:
            other = first.setdefault(keys.canonical(of_row), block.label)
        if other != block.label:
            raise ConfigError(
                f"{where}: the rows {other!r} and {block.label!r} have the same settings: drop one"
            )
    warn_of_equal_settings("rows", [block.label for block in blocks], settings, where)
    return tuple(blocks)


def _labelled(row: Row, of_file: OfFile) -> PolicyBlock:
    row = _in_steps(row, of_file)
    block = _block(row, of_file)
    return replace(block, label=_label(block, row, of_file))


def _in_steps(row: Row, of_file: OfFile) -> Row:
    """Return a row with steps instead of words and epochs."""
    try:
        return replace(row, given=of_file.in_steps(row.given, row.place))
    except ConfigError as error:
        raise row.placed(error) from None


def _block(row: Row, of_file: OfFile) -> PolicyBlock:
    """Return a row as a block without its label."""
    given = {key: value for key, value in row.given.items() if key not in BLOCKS}
    place, stated, shared = row.place, _stated(row), {**of_file.objective, **row.shared}
    for key in row.swept:  # the other keys of a block that only a sweep states stay as in the file
        first, dot, _ = key.partition(".")
        own = given.get(first)
        if dot and shared.get(first) and isinstance(own, Mapping) and first not in row.written:
            given[first] = {**keys.plain(shared[first]), **own}
    try:
        block = policy_block(given, place, shared, of_file.kind)
        for stage in stated:
            if stage in ("intermediate", CORPUS) and not block.has_stage:
                raise ConfigError(f"{at(place, stage)}: {NONE} has no stage: leave it out")
            if stage == "fit" and not is_learned(block):
                raise ConfigError(
                    f"{at(place, stage)}: {block.name} is not a learned policy: leave it out"
                )
        return replace(block, trainings=of_file.own(stated, place))
    except ConfigError as error:
        raise row.placed(error) from None


def _stated(row: Row) -> dict[str, Any]:
    """Return the blocks of trainings and of a corpus in a row."""
    stated = {key: row.given[key] for key in BLOCKS if key in row.given}
    return stated | ({CORPUS: {"name": WORLD}} if stated.get(CORPUS) == WORLD else {})


def _tuned(row: Row, of_file: OfFile) -> PolicyBlock:
    """Return a row that chooses among candidates; their labels end with their values."""
    tried = [_block(_in_steps(each, of_file), of_file) for each in row.candidates()]
    row = _in_steps(row, of_file)
    given, mixed = deepcopy({**row.given}), f"{CORPUS}.{MIX}."
    for key in row.tune:
        if key.startswith(mixed):  # the file's other texts stay, and a text of the row has a share
            yaml_file.put(given, key.split("."), deepcopy(row.tune[key][0]), row.place)
    row = replace(row, given=given)
    block = replace(tried[0], trainings=of_file.own(_stated(row), row.place))
    for candidate in tried:
        _check_derived(candidate, block, row)
    label = _label(block, row, of_file)
    if "label" not in row.given:
        label += "".join(f" {key}=tuned" for key in row.own_tune)
    bare = label
    for key in row.tune:
        bare = bare.replace(f" {key}=tuned", "")
    tune = keys.plain({**row.tune, ON: DEV})
    for as_json in (_shown, keys.plain):  # if files of several folders have one name, their paths
        candidates = {}
        for each in tried:
            settings = {**each.fields, **asdict(each.denoising), **as_json(each.trainings)}
            own = apart(bare, settings, [], tuple(row.tune))
            candidates[own] = replace(each, label=own)
        if len(candidates) == len(tried):
            return replace(block, label=label, tune=tune, candidates=tuple(candidates.values()))
    raise ConfigError(f"{row.place}.{TUNE}: a value is given twice: give each once")


def _check_derived(candidate: PolicyBlock, block: PolicyBlock, row: Row) -> None:
    """Raise ConfigError if tuned values decide a setting that a row does not state.

    These are the default warm-up, and steps that stand for words or epochs. A tuned source or size
    of a corpus replaces the file's, as in any row.
    """
    own, usual = (
        untuned({**each.fields, **keys.plain(each.trainings)}, row.tune)
        for each in (candidate, block)
    )
    for place, values in own.items():
        fixed = usual.get(place, {})
        if place != CORPUS and values != fixed and isinstance(values, Mapping):
            key = next(key for key in values if values[key] != fixed.get(key))
            rest = "instead of words and epochs" if key == "steps" else "too"
            raise ConfigError(
                f"{row.place}: {', '.join(row.tune)} is tuned, and {place}.{key} depends on it: "
                f"set {place}.{key} {rest}"
            )


def _check_labels(
    rows: Sequence[Row], blocks: Sequence[PolicyBlock], of_file: OfFile, where: str
) -> None:
    """Raise ConfigError if two rows, or a row and another one's candidate, share a label.

    So do a row and the line of guesses without a model.
    """
    check_distinct([block.label for block in blocks], [row.place for row in rows])
    for row in (row for row, block in zip(rows, blocks, strict=True) if block.label == MAJORITY):
        raise ConfigError(
            f"{at(row.place, 'label')}: {MAJORITY} is the leaderboard's line of guesses without a "
            "model: choose another label"
        )
    first: dict[str, Json] = {}
    for block in (each for row in blocks for each in (*row.candidates, row)):
        settings = _settings(block, of_file)
        if first.setdefault(block.label, settings) != settings:
            raise ConfigError(
                f"{where}: {block.label!r} is the label of a row and of another row's "
                "candidate: give the row another label"
            )


def _settings(block: PolicyBlock, of_file: OfFile) -> Json:
    """Return all settings that distinguish a row, however they are written."""
    changed = {
        f"{stage}.{key}": value
        for stage, values in block.trainings.items()
        for key, value in values.items()
        if (stage == "finetune" and key in of_file.of_columns)
        or in_effect(key, value) != in_effect(key, getattr(of_file.usual[stage], key))
    }
    return keys.plain([block.name, block.fields, asdict(block.denoising), changed, block.tune])


def _label(block: PolicyBlock, row: Row, of_file: OfFile) -> str:
    """Return a row's label: the given one, or its policy and each setting that is not the default.

    Both also name the keys of sweeps, a given label only those of sweeps at the top of the file.
    Tuned settings are left out.
    """
    stated = _stated(row)
    own = _shown({stage: {k: block.trainings[stage][k] for k in stated[stage]} for stage in stated})
    if "label" in row.given:
        values = {**block.fields, **asdict(block.denoising), **own}
        return apart(row.given["label"], values, [], _named_by(row.from_top))
    base = {stage: {k: getattr(of_file.usual[stage], k) for k in own[stage]} for stage in own}
    for key in base.get("finetune", {}).keys() & {*of_file.of_columns}:
        del base["finetune"][key]
    return automatic(block, of_file, own, _shown(base), _named_by(row.swept), tuple(row.tune))


def _named_by(swept: Collection[str]) -> tuple[str, ...]:
    """Return the settings that a label names for keys of sweeps: steps, if they may follow."""
    follow = any(key in _OF_STEPS or key.startswith(f"{CORPUS}.") for key in swept)
    return (*swept, *(["intermediate.steps"] if follow else []))


def _shown(blocks: Mapping[str, Mapping[str, Any]]) -> dict[str, Json]:
    """Return the blocks with their settings as labels show them."""
    return {
        stage: shown(values) if stage == CORPUS else keys.plain(values)
        for stage, values in blocks.items()
    }


def automatic(
    block: PolicyBlock,
    of_file: OfFile,
    own: Mapping[str, Json] | None = None,
    base: Mapping[str, Json] | None = None,
    swept: Sequence[str] = (),
    tuned: Sequence[str] = (),
) -> str:
    """Return the default label of a row: its policy and each setting that is not the default.

    Settings that all rows of a file share, or that the kind of model ignores, are left out. `own`
    are the row's trainings, `base` the file's; the label names all keys in `swept`, and none in
    `tuned`.
    """
    own, base = own or {}, base or {}
    if not block.has_stage:
        return apart(NONE, own, [base], swept)
    entry = find_plugin("policy", block.name)
    known = schema.fields_of(entry.plugin)
    values = {key: each.default for key, each in known.items() if not each.is_required}
    defaults = {key: _like(value, block.fields[key]) for key, value in values.items()}
    if block.members:
        fields, usual = _of_members(block, defaults, of_file)
    else:
        fields = {**block.fields, **asdict(block.denoising)}
        denoising = replace(own_objective(entry, block.policy), **of_file.objective)
        objective = asdict(of_kind(denoising, {}, of_file.kind, "") if of_file.kind else denoising)
        usual = {**defaults, **objective}
    settings = untuned({**fields, **own}, dict.fromkeys(tuned))
    return apart(block.name, settings, [{**usual, **base}], swept)


def _of_members(
    block: PolicyBlock, defaults: dict[str, Json], of_file: OfFile
) -> tuple[dict[str, Json], dict[str, Json]]:
    """Return the fields and defaults of a row that draws members, these as their labels."""
    key = hooks.MEMBERS.name

    def shown(items: Sequence[Any]) -> Json:
        each = (named(item, key) for item in items)
        blocks = [policy_block(given, key, of_file.objective, of_file.kind) for given in each]
        return [automatic(block, of_file) for block in blocks]

    usual = {**defaults, **({key: shown(defaults[key])} if key in defaults else {})}
    return {**block.fields, key: [automatic(each, of_file) for each in block.members]}, usual


def _like(default: Any, value: Json) -> Json:
    """Return a field's default as JSON, for a budget with the warm-up of the steps in `value`."""
    found = keys.plain(default)
    if not (isinstance(found, dict) and isinstance(value, dict)):
        return found
    if {"steps", "warmup"} <= found.keys() & value.keys():
        return {**found, "warmup": budgets.warmup(found["warmup"], value["steps"])}
    return found


def baseline_row(given: str, policies: Sequence[PolicyBlock], where: str) -> str:
    """Return the label of the row labelled `given`, or of the only row of that policy.

    If there are several such rows, or rows whose labels begin with `given`, and they differ only in
    trainings and objective, return `given`: each row is compared with the most similar one of them.
    Raises ConfigError at `where`.
    """
    labels = [block.label for block in policies]
    if given in labels:
        return given
    named = [block for block in policies if block.name == given]
    named = named or [block for block in policies if block.label.startswith(f"{given} ")]
    if len(named) == 1:
        return named[0].label
    if named and all(
        (each.name, each.fields) == (named[0].name, named[0].fields) for each in named
    ):
        return given
    add = "" if named else f"add {given} to policies, or "
    raise ConfigError(
        f"{where}: {unknown('row', given, labels)}; {add}name the row that others are compared "
        "with, baseline: ROW"
    )
