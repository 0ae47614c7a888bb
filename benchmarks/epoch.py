"""`python -m benchmarks.epoch PASSAGES` times the first epoch's order of that many passages.

It prints the CPU seconds, and by how much the peak memory of the process grows.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from benchmarks.measure import at_least
from maskpolicy.models.training.batching import Order

SIZE = 32  # passages of a step


def main(passages: int) -> None:
    """Draw lengths of up to 200 tokens, and ask for the first step of an epoch."""
    lengths = np.random.default_rng(0).integers(1, 200, passages)
    before, started = _peak(), time.process_time()
    Order(lengths, SIZE, seed=0).step(0)
    seconds = time.process_time() - started
    grown = _peak() - before
    print(
        f"{passages:,} passages: {seconds:.1f} s of CPU, {grown / 1e9:.2f} GB, "
        f"{grown / passages:.0f} bytes a passage"
    )


def _peak() -> int:
    """Return the peak memory of this process in bytes (Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("passages", type=at_least(1))
    main(parser.parse_args().passages)
