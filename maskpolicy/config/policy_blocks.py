"""One row of an experiment: a policy's block, checked, becomes a PolicyBlock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from maskpolicy import keys, schema
from maskpolicy.config import budgets
from maskpolicy.config.experiment import (
    ENCODER,
    NONE,
    PolicyBlock,
    resolved_member,
)
from maskpolicy.config.rates import is_scheduled
from maskpolicy.config.row_names import named
from maskpolicy.errors import ConfigError
from maskpolicy.plugins import discovery, hooks
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.plugins.registry import DENOISING_KEYS, ROW_KEYS, Registered
from maskpolicy.schema import at
from maskpolicy.types import Denoising, Json

AT_POSITIONS = Denoising(corruption="token", target="spans", join="none")
"""The denoising objective of an encoder: it predicts each masked token at its own position."""

_FREE = ("mask_exclusion", "shallow_decoder")


def denoising_block(given: Mapping[str, Any], where: str, defaults: Mapping[str, Any]) -> Denoising:
    """Return the denoising objective with the keys `given`, and `defaults` for the others."""
    return Denoising(**schema.block(Denoising, given, where, defaults))


def policy_block(
    given: Mapping[str, Any], where: str, shared: Mapping[str, Any], kind: str = ""
) -> PolicyBlock:
    """Return one row from its keys.

    Keys of Denoising that it lacks come from `shared`, then from the policy's own defaults. The
    model's `kind` decides which of them are allowed ("": all). Raises ConfigError at `where`.
    """
    name = given["name"]
    for key in ROW_KEYS:
        if key in given:
            raise ConfigError(f"{at(where, key)}: is for the rows of an experiment: leave it out")
    others = ("name", "label", *DENOISING_KEYS, *ROW_KEYS)
    own = {key: value for key, value in given.items() if key not in others}
    if name == NONE:
        strange = sorted(set(given) - {"name", "label"})
        if strange:
            raise ConfigError(f"{at(where, strange[0])}: {NONE} has no stage and takes no such key")
        return PolicyBlock(NONE, NONE)
    entry = find_plugin("policy", name, [NONE], where)
    values = schema.block(entry.plugin, own, where, others=others)
    values = {k: budgets.with_warmup(value, own.get(k, {})) for k, value in values.items()}
    made = discovery.build(entry, values, where)
    _check_schedules(made, where)
    if hooks.CHOOSE_MEMBER.of(made) is not None:
        return _mixed(entry, given, keys.plain(values, where), shared, kind, where)
    facts = asdict(denoising_block(entry.facts, entry.where, {}))
    asked = {key: given[key] for key in DENOISING_KEYS if key in given}
    denoising = denoising_block(asked, where, {**facts, **shared})
    if kind:
        denoising = of_kind(denoising, {**shared, **asked}, kind, where)
    return PolicyBlock(name, name, keys.plain(values, where), denoising)


def _mixed(
    entry: Registered,
    given: Mapping[str, Any],
    fields: dict[str, Json],
    shared: Mapping[str, Any],
    kind: str,
    where: str,
) -> PolicyBlock:
    """Return the row of a policy that draws members; its fields hold their blocks, complete.

    The row's own objective only tells what the model must be able to do for any of the members.
    """
    asked = [key for key in DENOISING_KEYS if key in given]
    if asked:
        raise ConfigError(
            f"{at(where, asked[0])}: {entry.name} draws policies: set it in the blocks of its "
            f"{hooks.MEMBERS.name}"
        )
    place = at(where, hooks.MEMBERS.name)
    found = [
        policy_block(_member(item, f"{place}[{i}]"), f"{place}[{i}]", shared, kind)
        for i, item in enumerate(fields[hooks.MEMBERS.name])
    ]
    if not found:
        raise ConfigError(f"{place}: is empty: name at least one policy")
    for i, block in enumerate(found):
        if hooks.REANNOTATE.of(find_plugin("policy", block.name).plugin) is not None:
            raise ConfigError(
                f"{place}[{i}]: {block.name} is annotated again in the course of its training, "
                "which no member of another policy can be: give it a row of its own"
            )
    fields = {**fields, hooks.MEMBERS.name: [resolved_member(block) for block in found]}
    objectives = [block.denoising for block in found]
    denoising = replace(
        objectives[0],
        mask_exclusion=max(each.mask_exclusion for each in objectives),
        shallow_decoder=any(each.shallow_decoder for each in objectives),
    )
    return PolicyBlock(entry.name, entry.name, fields, denoising)


def _member(item: Any, where: str) -> Mapping[str, Any]:
    """Return a member as a block; ConfigError for what only a row can be or have."""
    block = named(item, where)
    if block["name"] == NONE:
        raise ConfigError(f"{at(where, 'name')}: {NONE} masks nothing: leave it out")
    if "label" in block:
        raise ConfigError(f"{at(where, 'label')}: a member is not a row of its own: leave it out")
    return block


def member_blocks(policy: Any, where: str) -> tuple[PolicyBlock, ...]:
    """Return the members of a policy's instance that draws them; () for any other policy."""
    if hooks.CHOOSE_MEMBER.of(policy) is None:
        return ()
    place = at(where, hooks.MEMBERS.name)
    return tuple(
        policy_block(_member(item, f"{place}[{i}]"), f"{place}[{i}]", {})
        for i, item in enumerate(hooks.MEMBERS.of(policy))
    )


def leaf_blocks(block: PolicyBlock, where: str) -> Iterator[tuple[PolicyBlock, str]]:
    """Yield the row itself, or else the policies that it draws from, each with its place.

    A member has the row's trainings; its label is that of the row and its number from 1.
    """
    if not block.has_members:
        yield block, where
        return
    for i, item in enumerate(block.fields[hooks.MEMBERS.name]):
        place = f"{at(where, hooks.MEMBERS.name)}[{i}]"
        member = policy_block(item, place, {})
        label = f"{block.label}, member {i + 1} ({member.name})"
        made = replace(member, label=label, trainings=block.trainings)
        yield from leaf_blocks(made, place)


def member_code(block: PolicyBlock) -> dict[str, dict[str, str]] | None:
    """Return the digests of the code of each policy that a row draws; None if they have none."""
    found = {name: discovery.code_digests(find_plugin("policy", name)) for name in _drawn(block)}
    return {name: code for name, code in found.items() if code} or None


def _drawn(block: PolicyBlock) -> Iterator[str]:
    for item in block.fields[hooks.MEMBERS.name] if block.has_members else ():
        yield item["name"]
        yield from _drawn(policy_block(item, hooks.MEMBERS.name, {}))


def compares_corpora(block: PolicyBlock) -> bool:
    """Return whether a row's policy, or one that it draws, compares the corpus with another one."""
    if not block.has_stage:
        return False
    return any(
        hooks.reads_statistics(plugin) and hooks.CONTRAST in hooks.CONDENSE.extra(plugin)
        for leaf, _ in leaf_blocks(block, block.label)
        for plugin in [find_plugin("policy", leaf.name).plugin]
    )


def _check_schedules(policy: Any, where: str) -> None:
    """Raise ConfigError for a schedule of a field that `select` is not alone to read."""
    readers = (hooks.ANNOTATE.of(policy), hooks.REANNOTATE.of(policy))
    if readers == (None, None) and not hooks.reads_statistics(policy):
        return
    read = "before the training" if hooks.REANNOTATE.of(policy) is None else "by reannotate"
    for name in schema.fields_of(type(policy)):
        if name not in hooks.ONLY_SELECT.of(policy) and is_scheduled(getattr(policy, name)):
            raise ConfigError(
                f"{at(where, name)}: is read {read}, so that it cannot follow a schedule: give a "
                "number"
            )


def refuse_fields(name: str, given: Iterable[str]) -> None:
    """Raise ConfigError if one of the keys `given` is a field of the policy `name`.

    Commands that take a policy by its name expect its fields as policy.FIELD=value.
    """
    known = schema.fields_of(find_plugin("policy", name, [NONE], "policy").plugin)
    for key in given:
        if key in known:
            raise ConfigError(f"{key}: is a field of the policy {name}: write policy.{key}=..")


def of_kind(denoising: Denoising, asked: Mapping[str, Any], kind: str, where: str) -> Denoising:
    """Return the denoising objective, adapted to a kind of model.

    An encoder predicts tokens at their own positions: there is one `<mask>` for each, and no token
    moves. Raises ConfigError if one of the keys `asked` for does not allow that.
    """
    if kind != ENCODER:
        if denoising.shallow_decoder:
            raise ConfigError(
                f"{at(where, 'shallow_decoder')}: is for model.kind {ENCODER}: a text-to-text "
                "model has a decoder of its own"
            )
        return denoising
    fixed = replace(AT_POSITIONS, **{key: getattr(denoising, key) for key in _FREE})
    for key, value in asked.items():
        if value != getattr(fixed, key):
            raise ConfigError(
                f"{at(where, key)}: {value} is not for model.kind {ENCODER}, which predicts tokens "
                f"at their positions: leave it out ({', '.join(_FREE)} can be set)"
            )
    return fixed
