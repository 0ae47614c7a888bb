"""Rates and times left, by a clock that the test moves."""

from __future__ import annotations

import pytest
from tiny import node

from maskpolicy.app.meters import Forecast, Meter, Tally, duration, forecast
from maskpolicy.pipeline.graph.costs import Costs, known_costs
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.planning import missing
from maskpolicy.pipeline.store.artifacts import Store


def test_a_duration_has_one_unit():
    assert [duration(s) for s in (0.4, 89, 95, 5000, 5500)] == [
        *("0 s", "89 s", "2 min", "83 min", "1.5 h"),
    ]


def test_a_meter_tells_share_rate_time_left_and_note():
    meter = Meter(0.0)
    for second in range(11):
        meter.report(10 * second, 400, "loss 2.0", float(second))
    assert meter.words(10.0) == "100 of 400 (25%), 10/s, 30 s left, loss 2.0"
    assert meter.left(15.0) == 25  # time goes on between reports


def test_a_resumed_stage_has_the_rate_of_what_it_does_now():
    meter = Meter(0.0)
    meter.report(300, 400, "", 1.0)
    meter.report(310, 400, "", 11.0)
    assert (meter.rate, meter.left(11.0)) == (1.0, 90.0)


def test_the_rate_is_that_of_the_last_minute():
    meter = Meter(0.0)
    for second in range(100):
        meter.report(second, 1000, "", float(second))
    for second in range(100, 170):
        meter.report(99 + 5 * (second - 99), 1000, "", float(second))
    assert meter.rate == 5


def test_a_later_part_of_a_stage_counts_from_its_own_begin():
    meter = Meter(0.0)
    meter.report(90, 100, "", 1.0)
    meter.report(10, 50, "", 2.0)
    meter.report(20, 50, "", 4.0)
    assert meter.words(4.0) == "20 of 50 (40%), 5/s, 6 s left"


def test_without_a_total_there_is_a_rate_and_without_reports_the_time_spent():
    meter = Meter(0.0)
    assert meter.words(12.0) == "12 s"
    meter.report(0, 0, "passages", 12.0)
    meter.report(64, 0, "passages", 14.0)
    assert meter.words(14.0) == "64, 32/s, passages"


def run_of(*seconds: float, workers: int = 1) -> tuple[Forecast, Costs, list[object]]:
    """Return the forecast of a chain of two stages and a stage beside it."""
    a, c = node("a", 1), node("c", 3)
    order = [a, node("b", 2, {"a": a}), c]
    costs = Costs()
    for each in seconds:
        costs.learn("tiny-walk", a.keyed, each)
    return Forecast(order, {one.key for one in order}, costs, workers), costs, order


def test_the_time_left_of_a_run_is_that_of_its_open_stages():
    ahead, _, (a, _, _) = run_of(10.0, 30.0)
    assert ahead.words({}, 0.0) == "0 of 3 stages, about 60 s left"
    ahead.finish(a, 20.0, computed=True)
    assert ahead.words({}, 0.0) == "1 of 3 stages, about 40 s left"
    assert ahead.share({}, 0.0) == pytest.approx(1 / 3)


def test_a_path_is_not_shared_among_workers():
    ahead, _, _ = run_of(20.0, workers=8)
    assert ahead.left({}, 0.0)[0] == 40


def test_a_stage_under_way_counts_by_its_own_rate():
    ahead, _, (a, _, _) = run_of(20.0)
    meter = Meter(0.0)
    meter.report(0, 10, "", 0.0)
    meter.report(5, 10, "", 50.0)
    assert ahead.left({a.key: meter}, 50.0)[0] == 20 + 20 + 50
    assert ahead.left({a.key: Meter(40.0)}, 50.0)[0] == 20 + 20 + 10


def test_nothing_is_estimated_from_nothing():
    ahead, costs, (a, _, _) = run_of()
    assert ahead.words({}, 0.0) == "0 of 3 stages"
    assert ahead.share({}, 0.0) == 0
    ahead.finish(a, 7.0, computed=True)  # what is measured now
    assert ahead.words({}, 0.0) == "1 of 3 stages, about 14 s left"
    assert costs.measured([a]) == 1


def test_what_the_store_has_counts_as_done(tmp_path):
    store, (a, b) = Store(tmp_path), (node("a", 1), node("b", 2))
    execute([a], store)
    ahead = forecast([a, b], store)
    assert ahead.done == 1
    assert "about" in ahead.words({}, 0.0)  # as long as `a` took
    assert not known_costs([a, b], missing([a, b], store), store).unknown([b])


def test_a_count_tells_its_share():
    assert Tally(4, 16, "analyses").words({}, 0.0) == "4 of 16 analyses"
    assert Tally(4, 16, "analyses").share({}, 0.0) == 0.25
