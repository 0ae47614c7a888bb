"""One process holds a key, on whatever host; who is silent for a lease loses it."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from maskpolicy.errors import ClaimLost, StoreError
from maskpolicy.store.artifacts import Store

KEY, OTHER = "a" * 64, "b" * 64
LEASE = 2.0
HOLD = """
import sys
from maskpolicy.store.artifacts import Store
with Store(sys.argv[1], lease=float(sys.argv[3])).lock(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store", lease=LEASE)


@contextmanager
def another(store, key=KEY, lease=LEASE):
    """Hold a key in another process."""
    command = [sys.executable, "-c", HOLD, store.root, key, str(lease)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()


def claims(store):
    return sorted(path.relative_to(store.root / "locks") for path in store.root.glob("locks/**/*"))


# holding


def test_nobody_holds_a_key_at_first(store):
    assert store.holder(KEY) is None
    assert not store.is_busy(KEY)
    assert not store.root.exists()


def test_the_holder_is_known_to_others_and_to_itself(store):
    before = datetime.now(UTC)
    with store.lock(KEY):
        for each in (store, Store(store.root)):
            holder = each.holder(KEY)
            assert (holder.host, holder.pid) == (platform.node(), os.getpid())
            assert before <= holder.since <= datetime.now(UTC)
        assert Store(store.root).is_busy(KEY)
        assert not store.is_busy(KEY)
        assert store.holder(OTHER) is None
    assert store.holder(KEY) is None


def test_a_key_that_is_held_is_not_held_twice(store):
    with another(store) as process:
        assert store.holder(KEY).pid == process.pid
        with store.try_lock(KEY) as mine, store.try_lock(OTHER) as free:
            assert (mine, free) == (False, True)
        process.communicate()
        with store.try_lock(KEY) as mine:
            assert mine


def test_the_holder_can_take_a_key_again(store):
    with store.lock(KEY), store.try_lock(KEY) as inner:
        assert inner
        with store.lock(KEY):
            pass
        assert Store(store.root).is_busy(KEY)
    assert claims(store) == []


def test_looking_changes_nothing(store):
    with another(store):
        before = claims(store)
        assert store.is_busy(KEY)
        assert store.holder(KEY) is not None
        assert claims(store) == before


def test_a_key_that_is_not_held_changes_nothing(store):
    with pytest.raises(StoreError, match="not held"):
        store.checkpoints(KEY).save(1, lambda to: (to / "state").write_text("1"))
    with pytest.raises(StoreError, match="not a key"):
        store.holder("../elsewhere")


# losing


def test_the_claim_of_a_dead_process_of_this_machine_is_free_at_once(store):
    with another(store, lease=1000) as process:
        process.kill()  # not reaped yet: a zombie is dead too
        while store.holder(KEY) is not None:
            time.sleep(0.001)
        with store.try_lock(KEY) as mine:
            assert mine
    assert claims(store) == []


@pytest.mark.slow
def test_a_holder_keeps_its_claim_for_longer_than_the_lease(store):
    with another(store):
        until = time.monotonic() + 1.5 * LEASE
        while time.monotonic() < until:
            with store.try_lock(KEY) as mine:
                assert not mine
            time.sleep(LEASE / 10)


def test_a_stopped_holder_loses_its_claim_after_its_own_lease(store):
    patient = Store(store.root, lease=1000)  # what counts is the lease that the claim states
    with another(store) as process:
        process.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        with patient.lock(KEY):
            assert time.monotonic() - started >= LEASE
            process.send_signal(signal.SIGCONT)
            process.communicate()  # it releases what it no longer holds
            assert Store(store.root).is_busy(KEY)


def test_who_has_lost_a_key_can_do_nothing_with_it(store):
    with pytest.raises(ClaimLost), store.write(KEY, {}) as out:
        store.checkpoints(KEY).save(1, lambda to: (to / "state").write_text("1"))
        take_away(store)
        with pytest.raises(ClaimLost):
            store.checkpoints(KEY).save(2, lambda to: (to / "state").write_text("2"))
        with pytest.raises(ClaimLost), store.try_lock(KEY):
            pass
        (out / "file").write_text("late")
    assert store.get(KEY) is None
    assert store.checkpoints(KEY).steps() == [1]


def test_an_error_after_the_loss_is_the_loss(store):
    with pytest.raises(ClaimLost), store.write(KEY, {}) as out:
        take_away(store)
        with Store(store.root).lock(KEY):  # which moves the folder away
            (out / "file").write_text("late")


def test_an_error_after_the_loss_of_an_input_is_the_loss(store):
    with pytest.raises(ClaimLost), store.lock(OTHER), store.write(KEY, {}):
        take_away(store, OTHER)
        raise FileNotFoundError("the input")
    assert claims(store) == []


def test_an_error_while_claims_cannot_be_looked_at_is_the_error(store, monkeypatch):
    def holds(claim):
        raise OSError(errno.EIO, "no answer")

    with pytest.raises(ValueError, match="of the stage"), store.write(KEY, {}):
        monkeypatch.setattr(store._locks._claims, "holds", holds)
        raise ValueError("of the stage")


def test_no_error_ends_the_refreshing_of_claims(tmp_path, monkeypatch, caplog):
    store = Store(tmp_path / "store", lease=0.06)
    calls, many = [], threading.Event()

    def refresh(claim):
        calls.append(claim)
        if len(calls) > 2:
            many.set()
        raise ValueError("odd answer")

    monkeypatch.setattr(store._locks._claims, "refresh", refresh)
    with store.lock(KEY):
        assert many.wait(60)
    assert caplog.text.count("a claim could not be refreshed") == 1


def take_away(store, key=KEY):
    """Remove a claim, as another process does that has seen no sign of life."""
    (claim,) = (store.root / "locks" / key).iterdir()
    claim.unlink()


def test_claimed_lists_keys_with_a_claim(store):
    assert store.claimed() == set()
    with store.lock(KEY), another(store, OTHER):
        assert store.claimed() == {KEY, OTHER}
    assert KEY not in store.claimed()


# several keys


def test_several_keys_are_held_all_or_none(store):
    with another(store, OTHER), store.try_lock_all([KEY, OTHER]) as mine:
        assert not mine
        assert not Store(store.root).is_busy(KEY)
    until = time.monotonic() + 60
    while not (free := store.holder(OTHER) is None):
        assert time.monotonic() < until
    with store.lock(KEY), store.try_lock_all([OTHER, KEY, OTHER]) as mine:
        assert mine
        assert all(map(Store(store.root).is_busy, (KEY, OTHER)))
    assert free
    assert claims(store) == []


def test_an_error_among_several_claims_leaves_none_of_them(store, monkeypatch):
    take = store._locks._claims.take

    def refused(key, *rest):
        if key == OTHER:
            raise OSError(errno.EIO, "no answer")
        return take(key, *rest)

    monkeypatch.setattr(store._locks._claims, "take", refused)
    with pytest.raises(StoreError, match="no answer"), store.try_lock_all([KEY, OTHER]):
        pass
    assert claims(store) == []


def test_who_held_a_key_before_is_known_if_it_was_lost(store):
    with another(store) as process:
        process.kill()
        process.wait()
        with store.lock(KEY):
            assert store.former_holder(KEY).pid == process.pid
    with store.lock(KEY):
        assert store.former_holder(KEY) is None


def test_the_last_refresh_is_returned(store):
    assert store.last_refresh(KEY) is None
    before = datetime.now(UTC)
    with store.lock(KEY):
        assert abs((store.last_refresh(KEY) - before).total_seconds()) < 60


# versions that locked files


def test_a_key_that_a_former_version_has_locked_is_one_line(store):
    (store.root / "locks").mkdir(parents=True)
    with (store.root / "locks" / f"{KEY}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="an older version of maskpolicy is at work in it"):
            store.try_lock(KEY).__enter__()
        with store.try_lock(OTHER) as mine:
            assert mine
    with store.try_lock(KEY) as mine:  # the file stays, unlocked
        assert mine
