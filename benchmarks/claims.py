"""`python -m benchmarks.claims FOLDER` times claims on keys beside flock.

It prints the microseconds to flock a file, to claim and release a key, to look at a free key, and
to check a claim.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from maskpolicy.store.artifacts import Store

KEYS = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(2000)]


def main(base: Path) -> None:
    """Print three rounds, because other processes on the machine disturb single ones."""
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=base) as folder:
        store = Store(Path(folder) / "store")

        def flock(key: str) -> None:
            handle = os.open(Path(folder) / key, os.O_CREAT | os.O_RDWR)
            fcntl.flock(handle, fcntl.LOCK_EX)
            os.close(handle)

        def claim(key: str) -> None:
            with store.lock(key):
                pass

        for _ in range(3):
            with store.lock(KEYS[0]):
                checked = _each(lambda _: store.check_claim(KEYS[0]))
            times = {"flock": _each(flock), "claim": _each(claim)}
            times |= {"look": _each(store.is_busy), "check": checked}
            print(", ".join(f"{name} {each:.0f} us" for name, each in times.items()))


def _each(call: Callable[[str], object]) -> float:
    started = time.perf_counter()
    for key in KEYS:
        call(key)
    return (time.perf_counter() - started) / len(KEYS) * 1e6


if __name__ == "__main__":
    main(Path(sys.argv[1]))
