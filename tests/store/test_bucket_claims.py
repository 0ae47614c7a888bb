"""In a bucket too, one process holds a key, whatever the order of its requests."""

from __future__ import annotations

import time
from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from turns import Turns

from maskpolicy.errors import ClaimLost
from maskpolicy.store.bucket import Bucket, open_bucket
from maskpolicy.store.bucket_claims import BucketClaims
from maskpolicy.store.claims import Locks
from maskpolicy.store.disk import Disk
from maskpolicy.store.holders import this_process

KEY = "a" * 64
LEASE = 0.5
LONG = 3.0  # of claims that must be kept: longer than a busy machine stops a process


@pytest.fixture
def bucket():
    return open_bucket(f"memory://{uuid4().hex}")


def locks(bucket, folder, lease=LEASE):
    return Locks(Disk(folder), BucketClaims(bucket), lease)


def names(bucket):
    return [entry.name for entry in bucket.entries("claims")]


def test_one_of_two_holds_a_key(bucket, tmp_path):
    one, two = locks(bucket, tmp_path / "1"), locks(bucket, tmp_path / "2")
    assert one.holder(KEY) is None
    with one.hold(KEY, wait=False) as mine, two.hold(KEY, wait=False) as other:
        assert (mine, other) == (True, False)
        assert two.holder(KEY).pid == one.holder(KEY).pid
        assert two.is_busy(KEY)
        assert not one.is_busy(KEY)
        one.check(KEY)
        assert two.claimed() == {KEY}
    assert names(bucket) == []
    assert two.claimed() == set()
    with two.hold(KEY, wait=False) as mine:
        assert mine


def test_a_holder_keeps_its_claim_for_longer_than_the_lease(bucket, tmp_path):
    one, two = (locks(bucket, tmp_path / name, LONG) for name in "12")
    with one.hold(KEY, wait=True):
        until = time.monotonic() + 1.5 * LONG
        while time.monotonic() < until:
            with two.hold(KEY, wait=False) as mine:
                assert not mine
            time.sleep(LONG / 10)


def test_who_gives_no_sign_of_life_loses_its_claim(bucket, tmp_path):
    claims = BucketClaims(bucket)
    lost = claims.take(KEY, replace(this_process(LEASE), machine="far"), None)
    started = time.monotonic()
    with locks(bucket, tmp_path).hold(KEY, wait=True):
        assert time.monotonic() - started >= LEASE
        assert not claims.holds(lost)
        claims.end(lost)
        assert claims.read(KEY).claim.number == 2
    assert names(bucket) == []


def test_several_keys_are_held_all_or_none(bucket, tmp_path):
    keys = [f"{number:064x}" for number in range(40)]
    one, two = (locks(bucket, tmp_path / name, LONG) for name in "12")
    with one.hold(keys[7], wait=True), two.hold_all(keys) as mine:
        assert not mine
        assert two.claimed() == {keys[7]}
    with two.hold_all(keys) as mine:
        assert mine
        until = time.monotonic() + 1.5 * LONG
        while time.monotonic() < until:  # all of them are refreshed
            assert all(map(one.is_busy, keys))
            two.check_all()
    assert not any(map(one.holder, keys))  # a refresh that comes late is no claim


def test_a_lost_claim_is_told_to_who_checks_it(bucket, tmp_path):
    one = locks(bucket, tmp_path)
    with one.hold(KEY, wait=True):
        found = BucketClaims(bucket).read(KEY)
        assert BucketClaims(bucket).take(KEY, this_process(LEASE), found)
        with pytest.raises(ClaimLost, match="another process has taken over"):
            one.check(KEY)


def test_the_claim_of_a_dead_process_of_this_machine_is_free_at_once(bucket, tmp_path):
    dead = replace(this_process(1000), pid=2**22 + 1)  # above the kernel's largest
    assert BucketClaims(bucket).take(KEY, dead, None)
    assert locks(bucket, tmp_path).holder(KEY) is None
    with locks(bucket, tmp_path).hold(KEY, wait=False) as mine:
        assert mine


def test_a_former_holder_ends_no_claim_of_others(bucket):
    claims = BucketClaims(bucket)
    lost = claims.take(KEY, this_process(LEASE), None)
    taken = claims.take(KEY, this_process(LEASE), claims.read(KEY))
    claims.end(taken)
    new = claims.take(KEY, this_process(LEASE), None)
    assert (lost.number, new.number) == (1, 1)
    claims.end(lost)
    assert not claims.holds(lost)
    assert claims.holds(new)


def test_signs_of_life_that_come_late_are_no_claim(bucket):
    claims = BucketClaims(bucket)
    lost = claims.take(KEY, this_process(LEASE), None)
    claims.end(lost)
    claims.refresh(lost)
    assert claims.read(KEY) is None
    assert claims.take(KEY, this_process(LEASE), None)


def test_who_was_taken_over_holds_nothing_when_the_other_ends_meanwhile(bucket, monkeypatch):
    claims = BucketClaims(bucket)
    first = claims.take(KEY, this_process(LEASE), None)
    second = claims.take(KEY, this_process(LEASE), claims.read(KEY))
    requests = []

    def between(request):
        def ask(self, name):
            if requests:
                monkeypatch.undo()
                claims.end(second)
            requests.append(name)
            return request(self, name)

        return ask

    monkeypatch.setattr(Bucket, "read", between(Bucket.read))
    monkeypatch.setattr(Bucket, "entry", between(Bucket.entry))
    assert not claims.holds(first)


# every order of requests


@settings(max_examples=150)
@example([1, 2, 0, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 2, 0], True)  # a name that is used again
@given(st.lists(st.integers(0, 2), min_size=10, max_size=60), st.booleans())
def test_in_any_order_of_requests_one_process_holds_a_key(order, is_dead_claim_there):
    bucket = open_bucket(f"memory://{uuid4().hex}")
    dead = BucketClaims(bucket).take(KEY, this_process(LEASE), None)
    if not is_dead_claim_there:
        BucketClaims(bucket).end(dead)
    holding, most = set(), [0]

    def work(mine):
        claims = BucketClaims(mine)
        claims._is_prepared = True
        for _ in range(2):
            found = claims.read(KEY)
            if found is not None and found.claim != dead:
                continue  # another process's
            claim = claims.take(KEY, this_process(LEASE), found)
            if claim is None:
                continue
            holding.add(mine.who)
            most[0] = max(most[0], len(holding))
            claims.refresh(claim)
            holding.discard(mine.who)
            claims.end(claim)

    Turns(bucket, order).run(work, work, work)
    assert most[0] <= 1
