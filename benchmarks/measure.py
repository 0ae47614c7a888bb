"""Interleaved repeats of the same work done in several ways, in one process."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rate:
    """Units per second of one way of doing the work, over its repeats."""

    name: str
    rates: tuple[float, ...]
    note: str = ""

    @property
    def median(self) -> float:
        """The median over repeats."""
        return statistics.median(self.rates)


Once = Callable[[], tuple[float, float, str]]
"""Does the work once: (units, seconds, note)."""


class Clock:
    """Tokens and seconds of the steps after the first `skip`."""

    def __init__(self, skip: int) -> None:
        self.skip = skip
        self.tokens: list[float] = []
        self.times: list[float] = []

    def tick(self) -> None:
        """Note that a step has ended; its tokens are in `tokens`."""
        self.times.append(time.perf_counter())

    def result(self) -> tuple[float, float]:
        """Return tokens and seconds."""
        tokens = sum(self.tokens[self.skip + 1 : len(self.times)])
        return tokens, self.times[-1] - self.times[self.skip]


def interleaved(ways: Mapping[str, Once], repeats: int) -> list[Rate]:
    """Run every way once per repeat, in turn, so that a drifting machine hits all alike."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    notes: dict[str, str] = {}
    for repeat in range(repeats):
        for name, once in ways.items():
            units, seconds, notes[name] = once()
            rates[name].append(units / seconds)
            print(f"{repeat + 1}/{repeats} {name}: {units / seconds:.0f}/s", file=sys.stderr)
    return [Rate(name, tuple(rates[name]), notes[name]) for name in ways]


def table(rates: Sequence[Rate], unit: str, base: str) -> str:
    """Return a Markdown table with the ratio to the way called `base`."""
    reference = next(rate for rate in rates if rate.name == base)
    lines = [f"| | {unit} (median; min to max) | ratio to {base} | |", "|---|---|---|---|"]
    for rate in rates:
        # repeats are interleaved, so ratios are taken repeat by repeat
        ratio = statistics.median(
            one / other for one, other in zip(rate.rates, reference.rates, strict=True)
        )
        low, high = min(rate.rates), max(rate.rates)
        lines.append(
            f"| {rate.name} | {_shown(rate.median)} ({_shown(low)} to {_shown(high)}) "
            f"| {ratio:.2f} | {rate.note} |"
        )
    return "\n".join(lines)


def _shown(rate: float) -> str:
    """Return a rate with three digits or more."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def matrix_peak(precision: str) -> float:
    """Return the measured FLOP/s of a 2048-cubed matrix product, "fp32" or "bf16"."""
    import torch

    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = torch.randn(2048, 2048, dtype=dtype), torch.randn(2048, 2048, dtype=dtype)
    seconds = []
    for _ in range(15):
        started = time.perf_counter()
        left @ right
        seconds.append(time.perf_counter() - started)
    return 2 * 2048**3 / statistics.median(seconds[3:])
