"""Schedules: the published formulas, and what a block with one may say."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from maskpolicy import schema
from maskpolicy.config import learned_policies, rates, sweeps
from maskpolicy.config.experiment import PolicyBlock
from maskpolicy.config.policy_blocks import policy_block
from maskpolicy.config.row_blocks import row_blocks
from maskpolicy.errors import ConfigError
from maskpolicy.keys import canonical
from maskpolicy.plugins import discovery, registry
from maskpolicy.schema import Rate, Schedule

SHARES = [0.0, 0.25, 0.5, 0.75, 0.999]


@pytest.mark.parametrize("done", SHARES)
def test_the_published_schedules_are_these_formulas(done):
    p = 0.15
    ankner = Schedule(0.3, 0.15)
    assert ankner.at(done) == pytest.approx(0.3 - 0.15 * done)
    linear, cosine = Schedule(2 * p, 0.0), Schedule(2 * p, 0.0, "cosine")
    assert linear.at(done) == pytest.approx(2 * p * (1 - done))
    assert cosine.at(done) == pytest.approx(p * (1 + math.cos(math.pi * done)))


def test_a_schedule_begins_at_its_start_and_may_rise():
    for shape in ("linear", "cosine"):
        rising = [Schedule(0.1, 0.4, shape).at(done) for done in SHARES]
        assert rising[0] == pytest.approx(0.1)
        assert rising == sorted(rising)
        assert rising[-1] == pytest.approx(0.4, abs=1e-3)


@dataclass(frozen=True)
class Mixed:
    """Numbers, a schedule, and a tuple with one in it."""

    ratio: Any = 0.5
    weights: tuple[Any, ...] = (1.0, 2.0)
    name: str = "x"


def test_every_schedule_of_a_dataclass_becomes_its_number():
    plain = Mixed()
    assert rates.at(plain, 0.5) is plain
    made = Mixed(Schedule(0.0, 1.0), (1.0, Schedule(4.0, 2.0)))
    assert rates.at(made, 0.5) == Mixed(0.5, (1.0, 3.0))
    assert [rates.has_schedule(each) for each in (plain, made, 3)] == [False, True, False]


def labelled(items: list[Any]) -> tuple[PolicyBlock, ...]:
    rows = sweeps.rows(items, "policies")
    return row_blocks(rows, "policies", {}, "", {}, lambda own, place: {})


def block(**fields) -> Any:
    return policy_block({"name": "random", **fields}, "policies[0]", {})


def test_a_block_with_a_number_has_the_key_that_it_always_had():
    assert canonical(block(ratio=0.3).fields) == '{"ratio":0.3}'
    fields = block(ratio={"start": 0.3, "end": 0.15}).fields
    assert fields == {"ratio": {"start": 0.3, "end": 0.15, "shape": "linear"}}
    assert discovery.instance("policy", "random", fields).ratio == Schedule(0.3, 0.15)


def test_rows_with_schedules_are_told_apart():
    rows = [{"name": "random", "ratio": {"start": start, "end": 0.1}} for start in (0.3, 0.2)]
    labels = [row.label for row in labelled(["random", *rows])]
    assert labels[0] == "random"
    assert labels[1:] == [
        f"random ratio.start={s} ratio.end=0.1 ratio.shape=linear" for s in (0.3, 0.2)
    ]


@pytest.mark.parametrize(
    ("ratio", "says"),
    [
        ({"start": 1.5, "end": 0}, "policies[0].ratio.start: must be >= 0 and <= 1, not 1.5"),
        ({"start": 0.3, "end": -0.1}, "policies[0].ratio.end: must be >= 0 and <= 1, not -0.1"),
        ({"start": 0.3}, "policies[0].ratio.end: missing; it has no default"),
        ({"start": 0.3, "end": 0, "shape": "step"}, "policies[0].ratio.shape: unknown value"),
        ({"from": 0.3, "end": 0}, "policies[0].ratio.from: unknown key 'from'"),
        (1.5, "policies[0].ratio: must be >= 0 and <= 1, not 1.5"),
        ("high", "policies[0].ratio: must be a number, not text 'high'"),
    ],
)
def test_a_schedule_that_leaves_its_bounds_is_refused_at_its_place(ratio, says):
    with pytest.raises(ConfigError) as caught:
        block(ratio=ratio)
    assert str(caught.value).startswith(says)


def test_a_field_without_schedules_says_what_it_takes():
    with pytest.raises(ConfigError, match=r"policies\[0\].p: must be a number, not a block"):
        policy_block({"name": "span", "p": {"start": 0.1, "end": 0.2}}, "policies[0]", {})


def _annotation(name: str, field: str) -> object:
    """Return the type of a policy's field; None without such a field."""
    fields = schema.fields_of(registry.entry("policy", name).plugin)
    return fields[field].annotation if field in fields else None


def test_every_policy_with_a_ratio_takes_a_schedule_and_annotates_without_it():
    discovery.load_builtin("policy")
    needed = {"pipeline": "any", "train_on": ["cola"]}
    scheduled = {"start": 0.5, "end": 0.1}
    names = [
        name
        for name in registry.names("policy")
        if _annotation(name, "ratio") == Rate
        and registry.is_builtin(registry.entry("policy", name).plugin)
    ]
    assert len(names) >= 12
    for name in names:
        fields = schema.fields_of(registry.entry("policy", name).plugin)
        required = {key: needed[key] for key, field in fields.items() if field.is_required}
        given = {"name": name, **required, "ratio": scheduled}
        row = policy_block(given, "policies[0]", {})
        policy = discovery.instance("policy", name, row.fields)
        assert rates.at(policy, 0.5).ratio == pytest.approx(0.3)
        if hasattr(policy, "annotate"):
            assert learned_policies.fitted_fields(row).get("ratio") != row.fields["ratio"]


def test_a_field_that_annotate_reads_cannot_follow_a_schedule(tmp_path):
    (tmp_path / "once.py").write_text(
        "from dataclasses import dataclass\n"
        "from maskpolicy import Rate, policy\n"
        '@policy("once")\n'
        "@dataclass(frozen=True)\n"
        "class Once:\n"
        '    """It."""\n'
        "    ratio: Rate = 0.5\n"
        "    def annotate(self, passages, fitted=None):\n"
        "        return {}\n"
        "    def select(self, passage, rng):\n"
        "        return passage.pieces[:0]\n"
    )
    discovery.load_file(tmp_path / "once.py")
    given = {"name": "once", "ratio": {"start": 0.1, "end": 0.2}}
    with pytest.raises(ConfigError, match=r"policies\[0\].ratio: is read before the training"):
        policy_block(given, "policies[0]", {})
