"""A signal waits for the end of a step; a second one, and signals that nobody handles, do not."""

from __future__ import annotations

import signal
import threading

import pytest

from maskpolicy.training.signals import deferred


class Ended(Exception):
    """What the handler of a test raises."""


@pytest.fixture(autouse=True)
def handled():
    def end(number, frame):
        raise Ended(number)

    numbers = (signal.SIGTERM, signal.SIGUSR2)
    before = {number: signal.signal(number, end) for number in numbers}
    yield end
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_the_first_signal_waits_for_the_end(number, handled):
    reached = []
    with pytest.raises(Ended, match=str(int(number))), deferred() as has_come:
        reached.append(has_come())
        signal.raise_signal(number)
        reached.append(has_come())
    assert reached == [False, True]
    assert signal.getsignal(number) is handled


def test_control_c_waits_too():
    reached = []
    with pytest.raises(KeyboardInterrupt), deferred():
        signal.raise_signal(signal.SIGINT)
        reached.append("the end of the step")
    assert reached


def test_a_second_signal_acts_at_once():
    reached = []
    with pytest.raises(Ended), deferred():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        reached.append("not reached")
    assert not reached


def test_nothing_is_kept_without_a_signal_or_where_it_is_not_wanted(handled):
    with deferred() as has_come:
        assert not has_come()
    with pytest.raises(Ended), deferred(enabled=False):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is handled


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with deferred() as has_come:
            signal.raise_signal(signal.SIGHUP)
            assert not has_come()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_have_no_handlers():
    found = []

    def work():
        with deferred() as has_come:
            found.append(has_come())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]
