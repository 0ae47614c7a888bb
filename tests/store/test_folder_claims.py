"""Processes share a folder without file locks, over two paths, with clocks that differ."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from maskpolicy.graph.execution import execute
from maskpolicy.store.artifacts import Store
from maskpolicy.store.disk import Disk
from maskpolicy.store.folder_claims import FolderClaims
from maskpolicy.store.holders import this_process

KEY = "a" * 64
STEPS = ["read", "take", "break", "end"]
PATIENCE = 600  # seconds until a moment that never comes fails the test


@contextmanager
def started(*arguments, **environment):
    """Start the tiny graph in a process of its own, which is killed at the end of the block."""
    root = str(Path(tiny.__file__).parent.parent)
    with subprocess.Popen(
        [sys.executable, tiny.__file__, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": root} | environment,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def finish(process):
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors


def until(happened):
    """Wait until a function returns something that is true, and return that."""
    end = time.monotonic() + PATIENCE
    while not (found := happened()):
        assert time.monotonic() < end
        time.sleep(0.002)
    return found


def reference(folder, **settings):
    store = Store(folder / "reference")
    execute(tiny.diamond(**settings), store)
    return tiny.content(store, tiny.diamond(**settings))


def assert_done(store, folder):
    """Assert that a store holds what one process computes alone, and nothing else."""
    assert tiny.content(store, tiny.diamond()) == reference(folder)
    for pattern in ("temporary/*", "checkpoints/*/*", "quarantine/*"):
        assert list(store.root.glob(pattern)) == []
    keys = {stage.key for stage in tiny.diamond()}  # a killed run leaves the lock of its list
    assert not keys & {path.name for path in store.root.glob("locks/*")}


# a graph


def test_each_stage_is_computed_once_over_two_paths_without_file_locks(tmp_path):
    (tmp_path / "host").symlink_to(tmp_path / "server", target_is_directory=True)
    (tmp_path / "server").mkdir()
    count = tmp_path / "count"
    with (
        started("run", tmp_path / "server" / "store", count, "0.02", TINY_NO_LOCKS="1") as one,
        started("run", tmp_path / "host" / "store", count, "0.02", TINY_NO_LOCKS="1") as other,
    ):
        finish(one)
        finish(other)
    assert sorted(count.read_text().split()) == ["a", "b", "c", "d"]
    assert_done(Store(tmp_path / "server" / "store"), tmp_path)


@pytest.mark.slow
def test_clocks_that_are_hours_off_change_nothing(tmp_path):
    store, count = Store(tmp_path / "store"), tmp_path / "count"
    lease = {"TINY_LEASE": "4"}
    with (  # each stage takes 6 s
        started("run", store.root, count, "1", TINY_AHEAD="3600", **lease) as one,
        started("run", store.root, count, "1", TINY_AHEAD="-3600", **lease) as other,
    ):
        finish(one)
        finish(other)
    assert sorted(count.read_text().split()) == ["a", "b", "c", "d"]
    assert_done(store, tmp_path)


def test_the_stage_of_a_killed_holder_goes_on_at_once_elsewhere(tmp_path):
    store, count = Store(tmp_path / "store"), tmp_path / "count"
    never = {"TINY_LEASE": "100000"}
    with (
        started("run", store.root, count, "0.2", **never) as one,
        started("run", store.root, count, "0.2", **never) as other,
    ):

        def with_a_checkpoint():
            found = store.root.glob("checkpoints/*/[0-9]*/MANIFEST.json")
            holders = [store.holder(path.parts[-3]) for path in found]
            busy = {holder.pid for holder in holders if holder is not None}
            return next((each for each in (one, other) if each.pid in busy), None)

        holder = until(with_a_checkpoint)
        holder.send_signal(signal.SIGKILL)
        finish(other if holder is one else one)
    assert_done(store, tmp_path)


def test_a_holder_that_was_stopped_for_longer_than_its_lease_goes_on_as_a_guest(tmp_path):
    store, count = Store(tmp_path / "store"), tmp_path / "count"
    short = {"TINY_LEASE": "0.5"}
    with started("run", store.root, count, "0.2", **short) as stopped:
        until(lambda: list(store.root.glob("checkpoints/*/[0-9]*/MANIFEST.json")))
        stopped.send_signal(signal.SIGSTOP)
        with started("run", store.root, count, "0", **short) as other:
            finish(other)
        before = {path: path.read_bytes() for path in store.root.rglob("MANIFEST.json")}
        stopped.send_signal(signal.SIGCONT)
        finish(stopped)
    assert {path: path.read_bytes() for path in store.root.rglob("MANIFEST.json")} == before
    times = Counter(count.read_text().split())
    assert sorted(times) == ["a", "b", "c", "d"]
    assert sorted(times.values()) == [1, 1, 1, 2]  # twice: the one that it was stopped at
    assert_done(store, tmp_path)


@pytest.mark.slow
def test_a_holder_stopped_before_each_change_of_the_file_system_in_turn():
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # fsync costs nothing there
    with (
        tempfile.TemporaryDirectory(dir=fast) as folder,
        started("stopped", folder) as process,
    ):
        output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert int(output) > 100
    assert "taken over by another process" in errors


def test_planning_and_looking_write_nothing(tmp_path):
    code = """
import sys
import tiny
from faults import calls
from maskpolicy.graph.planning import plan
from maskpolicy.store.artifacts import Store

def refuse(event, arguments):
    if calls.is_change(event, arguments) or event == "os.utime":
        raise SystemExit(f"{event} {arguments}")

store, stages = Store(sys.argv[1]), tiny.diamond()
sys.addaudithook(refuse)
assert store.is_busy(stages[0].key)
assert store.holder(stages[0].key).pid == int(sys.argv[2])
assert not store.is_busy(stages[1].key)
print([each.state for each in plan(stages, store)])
"""
    store = Store(tmp_path / "store")
    with store.lock(tiny.diamond()[0].key):
        folders = os.pathsep.join([str(Path(tiny.__file__).parent), *sys.path])
        done = subprocess.run(
            [sys.executable, "-c", code, store.root, str(os.getpid())],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": folders},
        )
    assert done.stderr == ""
    assert "begun" in done.stdout


# claims alone


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(STEPS))))
def test_one_claim_at_most_whatever_processes_do(steps):
    with tempfile.TemporaryDirectory() as folder:
        hosts = [FolderClaims(Disk(Path(folder))) for _ in range(3)]
        seen, claims = [None] * 3, [[] for _ in range(3)]
        for host, step in steps:
            if step == "read":
                seen[host] = hosts[host].read(KEY)
            elif step == "end" and claims[host]:
                hosts[host].end(claims[host].pop())
            elif step in ("take", "break"):  # the latter after a look that may be long ago
                over = seen[host] if step == "break" else None
                was_free = hosts[host].read(KEY) is None
                taken = hosts[host].take(KEY, this_process(1), over)
                assert not (was_free and taken is None)
                claims[host] += [taken] if taken is not None else []
            held = [one for mine in claims for one in mine if hosts[0].holds(one)]
            assert len(held) <= 1
            found = hosts[0].read(KEY)
            assert (None if found is None else found.claim) == (held[0] if held else None)
        assert len(list(Path(folder).glob("locks/*"))) <= 1


@pytest.mark.slow
def test_no_two_processes_are_inside_at_the_same_time(tmp_path):
    code = """
import os
import random
import sys
import time
from pathlib import Path
from maskpolicy.store.artifacts import Store

folder, until = Path(sys.argv[1]), time.monotonic() + float(sys.argv[2])
store = Store(folder / "store", lease=100000)
while time.monotonic() < until:
    with store.lock("a" * 64):
        try:
            (folder / "inside").symlink_to(str(os.getpid()))  # who is inside, in one step
        except FileExistsError:
            (folder / f"found-{(folder / 'inside').readlink()}").touch()
            (folder / "inside").unlink()
            continue
        time.sleep(random.uniform(0, 0.002))
        (folder / "inside").unlink()
        (folder / f"went-{os.getpid()}").touch()
"""
    root = str(Path(tiny.__file__).parent.parent)

    def start():
        return subprocess.Popen(
            [sys.executable, "-c", code, tmp_path, "6"], env=os.environ | {"PYTHONPATH": root}
        )

    running, killed, generator = [start() for _ in range(4)], set(), random.Random(0)
    until(lambda: len(list(tmp_path.glob("went-*"))) >= 2)
    for _ in range(6):
        time.sleep(generator.uniform(0.05, 0.3))
        victim = running.pop(generator.randrange(len(running)))
        victim.kill()
        killed.add(victim.pid)
        running.append(start())
    codes = [each.wait(PATIENCE) for each in running]
    assert codes == [0] * 4
    found = {int(path.name.removeprefix("found-")) for path in tmp_path.glob("found-*")}
    assert found <= killed
    # a process that is killed while it claims the key leaves KEY-TOKEN, until the next prune
    unmade = list((tmp_path / "store" / "locks").iterdir())
    assert len(unmade) <= len(killed)
    assert all(path.name.startswith(f"{KEY}-") for path in unmade)
