"""The tiny graph on a bucket: run beside others, or killed and stopped at each of its requests.

python tests/tiny_bucket.py run URL CACHE COUNT_FILE SECONDS_PER_STEP
python tests/tiny_bucket.py killed|stopped FOLDER EVERY
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import tiny

from maskpolicy.errors import StoreError
from maskpolicy.graph.execution import execute
from maskpolicy.store.artifacts import Store
from maskpolicy.store.bucket import Bucket, open_bucket
from maskpolicy.store.bucket_store import BucketStore
from maskpolicy.store.claims import LEASE
from maskpolicy.store.opening import open_store

REQUESTS = ("read", "create", "write", "delete", "entries", "entry", "upload", "digest")


def run(url, cache, count_file, pause):
    """Run the diamond as a command would; a StoreError is one line and exit code 2."""
    stages = tiny.diamond(pause=float(pause), count=count_file)
    try:
        outcomes = execute(stages, open_store(url, cache))
    except StoreError as error:
        print(error, file=sys.stderr)
        return 2
    return 1 if any(outcome.error for outcome in outcomes.values()) else 0


def killed(folder, every):
    """Kill the run before and after its requests; another machine resumes it each time."""
    for moment in itertools.count(int(os.environ.get("TINY_FROM", 0)), int(every)):
        there = prepared(folder, moment)
        status = os.waitpid(fork(work, there, "one", LEASE, moment, signal.SIGKILL), 0)[1]
        for host in ("two", "one"):
            ended(fork(work, there, host, LEASE), f"moment {moment}: resumed on {host}")
        ended(fork(check, there), f"moment {moment}: checked")
        if not os.WIFSIGNALED(status):
            print(moment)
            return 0
    return 1


def stopped(folder, every):
    """Stop the run at its requests until another machine has taken over, and let it go on."""
    for moment in itertools.count(int(os.environ.get("TINY_FROM", 0)), int(every)):
        there = prepared(folder, moment)
        first = fork(work, there, "one", 0.1, moment, signal.SIGSTOP)
        if os.WIFEXITED(os.waitpid(first, os.WUNTRACED)[1]):
            print(moment)
            return 0
        ended(fork(work, there, "two", LEASE), f"moment {moment}: taken over")
        before = manifests(there)
        os.kill(first, signal.SIGCONT)
        ended(first, f"moment {moment}: gone on")
        if manifests(there) != before:
            raise SystemExit(f"moment {moment}: an artifact was committed twice")
        ended(fork(check, there), f"moment {moment}: checked")
    return 1


def prepared(folder, moment):
    there = Path(folder) / str(moment)
    (there / "bucket").mkdir(parents=True)
    return there


def work(there, host, lease, moment=None, number=None):
    """Run the line as a machine with a cache of its own; send itself a signal at a moment."""
    if moment is not None:
        watch(moment, number)
    outcomes = execute(tiny.line(), store_of(there, host, lease))
    return any(outcome.error for outcome in outcomes.values())


def store_of(there, host, lease=LEASE):
    return BucketStore(open_bucket(f"file://{there}/bucket"), there / host, lease)


def watch(moment, number):
    """Let the process send itself a signal before or after its n-th request."""
    passed = itertools.count()
    guard = threading.Lock()

    def pause():
        with guard:
            if next(passed) == moment:
                os.kill(os.getpid(), number)

    def watched(request):
        @functools.wraps(request)
        def call(*arguments):
            pause()
            try:
                return request(*arguments)
            finally:
                pause()

        return call

    for name in REQUESTS:
        setattr(Bucket, name, watched(getattr(Bucket, name)))


def check(there):
    """Compare what a third machine fetches with a run in a folder; nothing may be left over."""
    stages = tiny.line()
    kept = [stages[0], stages[2]]  # the other one is dropped
    reference, store = Store(there / "reference"), store_of(there, "three")
    execute(stages, reference)
    execute(stages, store)
    if tiny.content(store, [kept[1]]) != tiny.content(reference, [kept[1]]):
        return "other bytes"
    if store.committed() != {each.key for each in kept} or store.verify(kept[0].key):
        return "not all artifacts, or too many"
    names = [
        each.name
        for folder in ("checkpoints", "quarantine")
        for each in store.bucket.entries(folder)
    ]
    # `store prune` removes what a process wrote after it had lost its claim, and dead claims
    left = [name for name in names if name.endswith(".json")]
    left += [path for name in ("one", "two") for path in (there / name).glob("*temporary/*")]
    return f"leftovers {left}" if left else 0


def manifests(there):
    """Return the manifests that stay in a bucket, which tell when each artifact was committed."""
    first, _, last = tiny.line()
    paths = [there / "bucket" / "artifacts" / f"{each.key}.json" for each in (first, last)]
    return [path.read_bytes() for path in paths]


def fork(call, *arguments):
    """Call a function in a forked process; this one never makes a request of its own."""
    child = os.fork()
    if child:
        return child
    logging.disable()
    try:
        result = call(*arguments)
    except BaseException as error:  # noqa: BLE001 - told by the exit code
        result = repr(error)
    if result:
        print(result, file=sys.stderr)
    sys.stderr.flush()
    os._exit(1 if result else 0)


def ended(child, what):
    """Wait for a process, which must end well."""
    if os.waitpid(child, 0)[1]:
        raise SystemExit(f"{what}: failed")


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    commands: dict[str, Callable[..., int]] = {"run": run, "killed": killed, "stopped": stopped}
    sys.exit(commands[command](*words))
