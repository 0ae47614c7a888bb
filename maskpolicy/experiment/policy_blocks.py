"""Parse the blocks of policies, in rows and in the general stage, and label blocks."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

from maskpolicy.core import keys, schema
from maskpolicy.core.distribution import Distribution, drawn_fields
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.schema import NameOrKeys, Schedule, at
from maskpolicy.core.types import Denoising, Detection, Json, Replacement
from maskpolicy.experiment import budgets
from maskpolicy.experiment.definition import (
    ENCODER,
    NONE,
    SCRATCH,
    ModelBlock,
    PolicyBlock,
    resolved_member,
)
from maskpolicy.experiment.pointers import pointer
from maskpolicy.plugins import discovery, hooks
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.plugins.registry import (
    DENOISING_KEYS,
    ROW_KEYS,
    Registered,
    depends,
    gives_examples,
    is_builtin,
    policy_name,
)

AT_POSITIONS = Denoising(corruption="token", target="spans", join="none")
"""The denoising objective of an encoder: it predicts each masked token at its own position."""

GENERAL_POLICY = "original"
_RTD = "replaced_token_detection"
_FREE = ("mask_exclusion", "shallow_decoder", "replacement", "loss_weight", _RTD)
log = logging.getLogger(__name__)


def denoising_block(given: Mapping[str, Any], where: str, defaults: Mapping[str, Any]) -> Denoising:
    """Return the denoising objective with the keys `given`, and `defaults` for the others."""
    values = schema.block(Denoising, given, where, defaults)
    for key, kind in (("replacement", Replacement), (_RTD, Detection)):
        if isinstance(values[key], Mapping):  # a default, as JSON
            values[key] = schema.check(values[key], kind, at(where, key))
    shares, place = values["replacement"], at(where, "replacement")
    if shares is None:
        return Denoising(**values)
    total = shares.mask + shares.random + shares.keep
    if not math.isclose(total, 1):
        raise ConfigError(
            f"{place}: mask, random and keep add up to {total:.10g}: their sum must be 1, as in "
            "{mask: 0.8, random: 0.1, keep: 0.1}"
        )
    if shares.keep == 1:
        raise ConfigError(f"{place}: keep: 1 leaves every token as it is: lower it")
    return Denoising(**values)


def _check_objective(denoising: Denoising, policy: Any, where: str) -> None:
    """Raise ConfigError for keys of an objective that exclude each other.

    A weight that depends on a drawn rate needs a policy with one such rate.
    """
    masks = denoising.replacement is None or denoising.replacement.mask > 0
    if denoising.corruption == "delete":
        masks = False
        if denoising.target != "full":
            raise ConfigError(
                f"{at(where, 'corruption')}: delete does not show where text is missing, so only "
                "the full text can be predicted: set target: full"
            )
        if denoising.replacement is not None:
            raise ConfigError(
                f"{at(where, 'replacement')}: is for spans that are replaced, not deleted: leave "
                "it out"
            )
    if denoising.mask_exclusion and not masks:
        raise ConfigError(
            f"{at(where, 'mask_exclusion')}: the source has no <mask> that could be excluded: "
            "leave it out"
        )
    if denoising.loss_weight != "equal" and len(drawn_fields(policy)) != 1:
        raise ConfigError(
            f"{at(where, 'loss_weight')}: {denoising.loss_weight} is for a policy with one rate "
            "that is drawn for each passage: set e.g. ratio: {distribution: uniform}"
        )
    if denoising.replaced_token_detection is not None:
        _check_detection(denoising, policy, at(where, _RTD))


def _check_detection(denoising: Denoising, policy: Any, place: str) -> None:
    """Raise ConfigError for what replaced-token detection, set at `place`, excludes."""
    if denoising.mask_exclusion or denoising.shallow_decoder:
        raise ConfigError(
            f"{place}: its encoder reads no <mask>: leave mask_exclusion and shallow_decoder out"
        )
    weighed = {
        "set loss_weight: equal": denoising.loss_weight != "equal",
        "set smoothing: 0": hooks.SMOOTHING.of(policy) > 0,
        "name a policy without `weigh`": hooks.WEIGH.of(policy) is not None,
    }
    for advice in (words for words, is_set in weighed.items() if is_set):
        raise ConfigError(f"{place}: all tokens have one label and equal weights: {advice}")


def policy_block(
    given: Mapping[str, Any], where: str, shared: Mapping[str, Any], kind: str = ""
) -> PolicyBlock:
    """Return one row from its keys.

    Missing keys of Denoising come from `shared`, then from the policy's own defaults. The model's
    `kind` decides which of them are allowed ("": all). Raises ConfigError at `where`.
    """
    name = given["name"]
    for key in ROW_KEYS:
        if key in given:
            raise ConfigError(f"{at(where, key)}: is for the rows of an experiment: leave it out")
    others = ("name", "label", *DENOISING_KEYS, *ROW_KEYS)
    own = {key: value for key, value in given.items() if key not in others}
    if name == NONE:
        for key in sorted(set(given) - {"name", "label"}):
            raise ConfigError(f"{at(where, key)}: {NONE} has no stage: leave it out")
        return PolicyBlock(NONE, NONE)
    entry = find_plugin("policy", name, [NONE], where)
    values = schema.block(
        entry.plugin, own, where, others=others, elsewhere=partial(pointer, place="row")
    )
    values = {k: budgets.with_warmup(value, own.get(k, {})) for k, value in values.items()}
    policy = discovery.build(entry, values, where)
    _check_schedules(policy, where)
    asked = {key: given[key] for key in DENOISING_KEYS if key in given}
    members: tuple[PolicyBlock, ...] = ()
    if hooks.CHOOSE_MEMBER.of(policy) is None:
        facts = asdict(own_objective(entry, policy))
        denoising = denoising_block(asked, where, {**facts, **shared})
        if kind:
            denoising = of_kind(denoising, {**shared, **asked}, kind, where)
        _check_objective(denoising, policy, where)
        if hooks.REANNOTATE.of(policy) is not None:
            schema.check(hooks.EVERY.of(policy), schema.Count, at(where, hooks.EVERY.name))
            schema.check(hooks.SMOOTHING.of(policy), schema.Share, at(where, hooks.SMOOTHING.name))
            if gives_examples(policy):
                raise ConfigError(f"{where}: {name}: has `reannotate`: each passage is one example")
    else:
        members = member_blocks(policy, where, shared, kind, asked)
        values[hooks.MEMBERS.name] = tuple(map(resolved_member, members))
        policy = discovery.build(entry, values, where)
        denoising = replace(  # covers the objectives of all members
            members[0].denoising,
            mask_exclusion=max(block.denoising.mask_exclusion for block in members),
            shallow_decoder=any(block.denoising.shallow_decoder for block in members),
        )
    fields = keys.plain({key: getattr(policy, key) for key in values}, where)
    return PolicyBlock(name, name, fields, denoising, policy=policy, members=members)


def own_objective(entry: Registered, policy: Any) -> Denoising:
    """Return the objective that a policy states itself; its loss weight is for a drawn rate."""
    found = denoising_block(entry.facts, entry.where, {})
    return found if drawn_fields(policy) else replace(found, loss_weight="equal")


def instance_block(policy: Any, asked: Mapping[str, Any], where: str, kind: str) -> PolicyBlock:
    """Return an instance of a policy as a row with the keys `asked` of the objective.

    Raises ConfigError at `where` as `policy_block` does, also for a number that is out of range.
    """
    name = type(policy).__name__
    for key, field in schema.fields_of(policy).items():
        if isinstance(value := getattr(policy, key), (int, float)):
            schema.check(value, field.annotation, at(f"{where}{name}", key))
    _check_schedules(policy, f"{where}{name}")
    denoising = of_kind(denoising_block(asked, where, {}), asked, kind, where)
    _check_objective(denoising, policy, where)
    if members := member_blocks(policy, where, {}, kind, asked):
        policy = replace(policy, **{hooks.MEMBERS.name: tuple(map(resolved_member, members))})
    return PolicyBlock(name, name, {}, denoising, policy=policy, members=members)


def member_blocks(
    policy: Any,
    where: str,
    shared: Mapping[str, Any] | None = None,
    kind: str = "",
    asked: Iterable[str] = (),
) -> tuple[PolicyBlock, ...]:
    """Return the members of a policy that draws them, () for any other policy; see `policy_block`.

    Raises ConfigError for a block that cannot be a member, and for keys of the objective that are
    `asked` of the policy itself.
    """
    if hooks.CHOOSE_MEMBER.of(policy) is None:
        return ()
    for key in asked:
        raise ConfigError(
            f"{at(where, key)}: {policy_name(policy).removeprefix('policy ')} draws policies: set "
            f"it in the blocks of its {hooks.MEMBERS.name}"
        )
    members = []
    for i, item in enumerate(hooks.MEMBERS.of(policy)):
        place = f"{at(where, hooks.MEMBERS.name)}[{i}]"
        block = named(item, place)
        if block["name"] == NONE:
            raise ConfigError(f"{at(place, 'name')}: {NONE} masks nothing: leave it out")
        if "label" in block:
            raise ConfigError(
                f"{at(place, 'label')}: a member is not a row of its own: leave it out"
            )
        member = policy_block(block, place, shared or {}, kind)
        if hooks.REANNOTATE.of(member.policy) is not None:
            raise ConfigError(
                f"{place}: {member.name} annotates again during training, which no member of "
                "another policy can: give it a row of its own"
            )
        if gives_examples(member.policy):
            raise ConfigError(
                f"{place}: {member.name} decides how many examples a passage gives, which no "
                "member of another policy can: give it a row of its own"
            )
        members.append(member)
    if not members:
        raise ConfigError(f"{at(where, hooks.MEMBERS.name)}: is empty: name at least one policy")
    if len({member.denoising.replaced_token_detection for member in members}) > 1:
        raise ConfigError(
            f"{at(where, hooks.MEMBERS.name)}: one model is trained with {_RTD} by all of them or "
            "by none: set it at the top of the experiment, or alike in each block"
        )
    return tuple(members)


def leaf_blocks(block: PolicyBlock, where: str) -> Iterator[tuple[PolicyBlock, str]]:
    """Yield the row itself, or else the policies that it draws, each with its place.

    A member has the row's trainings; its label is that of the row and its number from 1.
    """
    if not block.members:
        yield block, where
    for i, member in enumerate(block.members):
        label = f"{block.label}, member {i + 1} ({member.name})"
        drawn = replace(member, label=label, trainings=block.trainings)
        yield from leaf_blocks(drawn, f"{at(where, hooks.MEMBERS.name)}[{i}]")


def member_code(block: PolicyBlock) -> dict[str, dict[str, str]] | None:
    """Return the digests of the code of each policy that a row draws; None if they have none."""
    names = (member.name for member in _drawn(block))
    code = {name: discovery.code_digests(find_plugin("policy", name)) for name in names}
    return {name: digests for name, digests in code.items() if digests} or None


def policy_versions(block: PolicyBlock) -> dict[str, int] | None:
    """Return the versions above 1 of a policy and of those that it draws, or None."""
    versions = {each.name: hooks.VERSION.of(each.policy) for each in (block, *_drawn(block))}
    return {name: version for name, version in versions.items() if version > 1} or None


def policy_depends(block: PolicyBlock) -> Json:
    """Return what `depends` of a row's policy gives if only its training has that in the key.

    For a policy that draws others, theirs follow in a list. None if there is nothing.
    """
    policies = [each.policy for each in (block, *_drawn(block))]
    all_depend = [None if _is_read_before(policy) else depends(policy) for policy in policies]
    return (all_depend if block.members else all_depend[0]) if any(all_depend) else None


def _is_read_before(policy: Any) -> bool:
    """Return whether other methods than `select` read a policy's fields, in stages of their own."""
    annotates = hooks.ANNOTATE.of(policy) or hooks.REANNOTATE.of(policy)
    return annotates is not None or hooks.reads_statistics(policy)


def _drawn(block: PolicyBlock) -> Iterator[PolicyBlock]:
    """Yield the members of a row, and theirs."""
    for member in block.members:
        yield member
        yield from _drawn(member)


def compares_corpora(block: PolicyBlock) -> bool:
    """Return whether a row's policy, or one that it draws, compares two corpora."""
    return any(
        hooks.reads_statistics(leaf.policy) and hooks.CONTRAST in hooks.CONDENSE.extra(leaf.policy)
        for leaf, _ in leaf_blocks(block, block.label)
    )


def _check_schedules(policy: Any, where: str) -> None:
    """Raise ConfigError for a schedule or distribution that is not a number when it is read.

    It is one for `select` alone, in a field or, if it is a schedule, in a tuple.
    """
    read = "before the training" if hooks.REANNOTATE.of(policy) is None else "by reannotate"
    for name in schema.fields_of(type(policy)):
        value = getattr(policy, name)
        by_select = name in hooks.only_select(policy) or not _is_read_before(policy)
        if by_select and schema.is_scheduled(value):
            value = schema.at_progress(value, 0.0)
        is_drawn = by_select and isinstance(value, Distribution)
        if name != hooks.MEMBERS.name and not is_drawn and _follows(value):
            why = "is nested" if by_select else f"is read {read}"
            own = "" if by_select or is_builtin(policy) else ", or name the field in only_select"
            raise ConfigError(
                f"{at(where, name)}: {why}, so it cannot follow a schedule or a distribution: give "
                f"a number{own}"
            )


def _follows(value: Any) -> bool:
    """Return whether a value is or holds a schedule or a distribution."""
    if isinstance(value, Schedule | Distribution):
        return True
    if is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, each.name) for each in fields(value)]
    items = [*value.values()] if isinstance(value, Mapping) else value
    return isinstance(items, list | tuple) and any(map(_follows, items))


def refuse_fields(name: str, given: Iterable[str]) -> None:
    """Raise ConfigError if one of the keys `given` is a field of the policy `name`.

    Commands with a policy by name expect its fields as policy.FIELD=value.
    """
    fields = schema.fields_of(find_plugin("policy", name, [NONE], "policy").plugin)
    for key in given:
        if key in fields:
            raise ConfigError(f"{key}: is a field of the policy {name}: write policy.{key}=..")


def of_kind(denoising: Denoising, asked: Mapping[str, Any], kind: str, where: str) -> Denoising:
    """Return the denoising objective, adapted to a kind of model.

    An encoder predicts tokens at their own positions, so each has its own `<mask>`. Raises
    ConfigError if one of the keys `asked` for is incompatible with that.
    """
    if kind != ENCODER:
        for key in ("shallow_decoder", _RTD):
            if getattr(denoising, key):
                raise ConfigError(
                    f"{at(where, key)}: is for model.kind {ENCODER}: a text-to-text model has a "
                    "decoder of its own"
                )
        return denoising
    fixed = replace(AT_POSITIONS, **{key: getattr(denoising, key) for key in _FREE})
    for key in asked:
        if (value := getattr(denoising, key)) != getattr(fixed, key):
            raise ConfigError(
                f"{at(where, key)}: {value} is not for model.kind {ENCODER}, which predicts tokens "
                f"at their positions: leave it out ({', '.join(_FREE)} can be set)"
            )
    return fixed


@dataclass(frozen=True)
class GeneralKeys:
    """The keys of the block `general` besides those of its budget."""

    # the policy for the general text, with its objective; `mixture` draws one of several
    policy: NameOrKeys = GENERAL_POLICY
    # the general text, written like `corpus`; if omitted: the world's, for presets and `corpus:
    # world`; else `corpus`. An architecture without it has `general.steps` 0 by default
    corpus: NameOrKeys = None


def check_scratch(model: ModelBlock, where: str) -> None:
    """Raise ConfigError if a key of the general stage is set for a model that has none."""
    if not model.is_scratch:
        raise ConfigError(
            f"{where}: only a model built from scratch ({', '.join(SCRATCH[model.kind])}) has a "
            "general stage: leave it out"
        )


def general_policy(
    general: Mapping[str, Any], model: ModelBlock, steps: int, where: str
) -> PolicyBlock | None:
    """Return the policy that the block `general` at `where` names; None for the default one.

    `steps` is the length of the stage. Raises ConfigError for a policy that the stage cannot use.
    """
    if "policy" not in general:
        return None
    place = at(where, "policy")
    check_scratch(model, place)
    if not steps:
        raise ConfigError(f"{place}: general.steps is 0: raise it, or leave `policy` out")
    given = named(general["policy"], place)
    if given["name"] == NONE:
        raise ConfigError(f"{place}: {NONE} masks nothing: set general.steps: 0")
    if "label" in given:
        raise ConfigError(f"{at(place, 'label')}: the general stage is not a row: leave it out")
    block = policy_block(given, place, {}, model.kind)
    for leaf, leaf_place in leaf_blocks(block, place):
        if compares_corpora(leaf):
            why = "compares a corpus with the text that this stage trains on"
        elif hooks.FIT.of(leaf.policy) is not None:
            why = "is learned with the general model, which this stage trains"
        elif hooks.REANNOTATE.of(leaf.policy) is not None:
            why = "asks the model in training, which the general stage does not support"
        else:
            continue
        raise ConfigError(f"{leaf_place}: {leaf.name} {why}: name another policy, such as random")
    usual = policy_block({"name": GENERAL_POLICY}, place, {}, model.kind)
    return None if block == usual else replace(block, label="general stage")


def apart(
    name: str,
    block: Mapping[str, Json],
    others: Sequence[Mapping[str, Json]],
    always: Collection[str] = (),
) -> str:
    """Return a name, followed by each setting that differs in one of `others` or is in `always`.

    `always` may name whole blocks. If `others` has only the defaults, the result does not depend on
    other rows.
    """
    known = [_flat(other) for other in others]
    differing = [
        f"{key}={_shown(value)}"
        for key, value in _flat(block).items()
        if any(key == each or key.startswith(f"{each}.") for each in always)
        or any(key not in other or other[key] != value for other in known)
    ]
    return " ".join([name, *differing])


def is_automatic(label: str, name: str) -> bool:
    """Return whether `apart` may have made a label for a row of the policy `name`."""
    plain, _, settings = label.partition(" ")
    return plain == name and (not settings or "=" in settings.partition(" ")[0])


def check_distinct(labels: Sequence[str], places: Sequence[str]) -> None:
    """Raise ConfigError if two blocks, at `places`, have the same label."""
    first: dict[str, str] = {}
    for label, place in zip(labels, places, strict=True):
        if label in first:
            raise ConfigError(
                f"{place}: has the label {label!r}, as {first[label].rpartition(' ')[2]} has: drop "
                "one of them, or give each a `label` of its own"
            )
        first[label] = place


def warn_of_equal_settings(
    what: str, labels: Sequence[str], settings: Sequence[Json], where: str
) -> None:
    """Log a line for each group of rows, or of columns, that differ only in their labels."""
    groups: dict[str, list[str]] = {}
    for label, each in zip(labels, settings, strict=True):
        groups.setdefault(keys.canonical(each), []).append(repr(label))
    told = "%s: the %s %s and %s differ in their labels alone and will have the same scores"
    for *most, last in groups.values():
        if most:
            log.warning(told, where, what, ", ".join(most), last)


def named(item: Any, where: str) -> Mapping[str, Any]:
    """Return the block of a row or column, its name and label checked."""
    if isinstance(item, str):
        return {"name": item}
    if not isinstance(item, Mapping):
        raise schema.wrong(item, "a name or a block with a name", where)
    if "name" not in item:
        said = "; it has no default"
        if len(item) == 1 and isinstance(value := next(iter(item.values())), Mapping | None):
            name, rest = next(iter(item)), "".join(f", {key}: .." for key in value or ())
            said = f": write {{name: {name}{rest}}}"  # its only key may be the name
        raise ConfigError(f"{where}.name: missing{said}")
    for key in ("name", "label"):
        if key in item:
            schema.check(item[key], str, at(where, key))
            if not item[key].strip():
                raise ConfigError(f"{at(where, key)}: is empty")
            if len(item[key].splitlines()) > 1:
                raise ConfigError(f"{at(where, key)}: has a line break: write one line")
    return item


def _flat(block: Mapping[str, Json], before: str = "") -> dict[str, Json]:
    """Return the settings of a block and its nested blocks; a dot in a key joins the blocks."""
    found: dict[str, Json] = {}
    for key, value in block.items():
        place = f"{before}{key}"
        found |= _flat(value, f"{place}.") if isinstance(value, Mapping) else {place: value}
    return found


def _shown(value: Json) -> str:
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return "+".join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
