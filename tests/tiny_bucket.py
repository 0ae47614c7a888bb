"""The tiny graph on a bucket, killed at each of its requests.

python tests/tiny_bucket.py killed FOLDER EVERY
"""

import functools
import itertools
import logging
import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path

import s3
import tiny
from faults import forks

from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.bucket import Bucket
from maskpolicy.pipeline.store.opening import open_store
from maskpolicy.pipeline.store.upkeep import prune

REQUESTS = ("read", "write", "delete", "entries", "upload", "download")


def killed(folder, every):
    """Kill the run before and after its requests; another machine resumes it each time."""
    logging.disable()
    with s3.serve() as server:  # for a share of requests that fail; else the bucket is a folder
        os.environ |= server.environment()
        server.spoilt = float(os.environ.get("TINY_SPOILT") or 0)
        return _killed(folder, every, server.url if server.spoilt else "")


def _killed(folder, every, url):
    for moment in itertools.count(int(os.environ.get("TINY_FROM", 0)), int(every)):
        there = Path(folder) / str(moment)
        (there / "bucket").mkdir(parents=True)
        os.environ["TINY_URL"] = url and f"{url}/{moment}"
        said = there / "said"
        code = forks.wait(forks.start(partial(work, there, "one", moment), said))
        for host in ("two", "one"):
            finish(partial(work, there, host), said, f"moment {moment}: resumed on {host}")
        finish(partial(check, there), said, f"moment {moment}: checked")
        if code != -signal.SIGKILL:
            print(moment)
            return 0
    return 1


def work(there, host, moment=None):
    """Run the line as a machine with a cache of its own, which is killed at a moment."""
    if moment is not None:
        kill_at(moment)
    outcomes = execute(tiny.line(), store_of(there, host))
    return any(outcome.error for outcome in outcomes.values())


def store_of(there, host):
    return open_store(os.environ["TINY_URL"] or f"file://{there}/bucket", there / host)


def kill_at(moment):
    """Let the process kill itself before or after its n-th request."""
    passed = itertools.count()
    guard = threading.Lock()

    def pass_by():
        with guard:
            if next(passed) == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    def watched(request):
        @functools.wraps(request)
        def call(*arguments, **named):
            pass_by()
            try:
                return request(*arguments, **named)
            finally:
                pass_by()

        return call

    for name in REQUESTS:
        setattr(Bucket, name, watched(getattr(Bucket, name)))


def check(there):
    """Compare a third machine's artifacts with those of a run in a folder; look for leftovers."""
    stages = tiny.line()
    kept = [stages[0], stages[2]]  # the other one is dropped
    reference, store = Store(there / "reference"), store_of(there, "three")
    execute(stages, reference)
    execute(stages, store)
    if tiny.content(store, [kept[1]]) != tiny.content(reference, [kept[1]]):
        raise SystemExit("other bytes")
    if store.committed() != {each.key for each in kept} or store.verify(kept[0].key):
        raise SystemExit("not all artifacts, or too many")
    bucket = store.mirror.bucket
    left = [entry.name for name in ("checkpoints", "quarantine") for entry in bucket.entries(name)]
    left = [name for name in left if name.endswith(".json")]  # `store prune` removes other files
    for name in ("one", "two"):
        cache = store_of(there, name)
        prune(cache)
        left += cache.root.glob("temporary/*")
    if left:
        raise SystemExit(f"leftovers {left}")


def finish(call, said, what):
    """Call a function in a forked process, which must end well."""
    if forks.wait(forks.start(call, said)):
        raise SystemExit(f"{what}: failed: {said.read_text()[-600:]}")


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    sys.exit({"killed": killed}[command](*words))
