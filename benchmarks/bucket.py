"""`python -m benchmarks.bucket URL` times a large artifact in a bucket.

It prints the seconds and the peak memory to commit, fetch and verify an artifact of 1 GiB in four
files, and removes the artifact afterwards.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

from benchmarks.measure import one_line_of_error
from maskpolicy.pipeline.store.opening import open_store

KEY = "0" * 64
FILES, MEBIBYTES = 4, 256


@one_line_of_error()
def main(url: str) -> None:
    """Use two caches, as two machines would."""
    with tempfile.TemporaryDirectory() as caches:
        one, two = (open_store(url, Path(caches) / name) for name in ("one", "two"))
        with one.write(KEY, {"kind": "benchmark"}) as out:
            _fill(out)
            started = time.perf_counter()
        _print("commit", started)
        started = time.perf_counter()
        two.get(KEY)
        _print("fetch", started)
        started = time.perf_counter()
        two.verify(KEY)
        _print("verify", started)
        one.drop(KEY)


def _fill(folder: Path) -> None:
    block = os.urandom(1 << 20)
    for number in range(FILES):
        with (folder / f"file-{number}").open("wb") as file:
            for part in range(MEBIBYTES):
                file.write(block[4:] + (number * MEBIBYTES + part).to_bytes(4, "big"))


def _print(what: str, started: float) -> None:
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{what} 1 GiB: {seconds:.1f} s, peak memory {peak} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    main(parser.parse_args().url)
