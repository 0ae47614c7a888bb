"""Interleaved repeats of the same work done in several ways, in one process."""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from maskpolicy.core import hardware
from maskpolicy.core.errors import MaskpolicyError

_BUSY = 0.1  # of a core: more than that in other processes and a figure carries a warning


@dataclass(frozen=True)
class Rate:
    """Units per second of one way of doing the work, over its repeats."""

    name: str
    rates: tuple[float, ...]
    note: str = ""
    others: tuple[float, ...] = ()  # cores that other processes used meanwhile

    @property
    def median(self) -> float:
        """The median over repeats."""
        return statistics.median(self.rates)

    def over(self, other: Rate) -> Rate:
        """Return the ratio to another rate, repeat by repeat."""
        ratios = [one / two for one, two in zip(self.rates, other.rates, strict=True)]
        return Rate(self.name, tuple(ratios))

    def __str__(self) -> str:
        low, high = shown(min(self.rates)), shown(max(self.rates))
        return f"{shown(self.median)} ({low} to {high})"


Once = Callable[[], tuple[float, float, str]]
"""Does the work once: (units, seconds, note)."""


class Clock:
    """Tokens and seconds of the steps after the first `skip`, `steps` in all."""

    def __init__(self, skip: int, steps: int) -> None:
        self.skip, self.steps = skip, steps
        self.tokens: list[float] = []
        self.times: list[float] = []

    def tick(self) -> None:
        """Note that a step has ended; its tokens are in `tokens`.

        The GPU is waited for where the timed steps begin and end, and nowhere else.
        """
        if len(self.times) in (self.skip, self.steps - 1):
            wait()
        self.times.append(time.perf_counter())

    def result(self) -> tuple[float, float]:
        """Return tokens and seconds."""
        tokens = sum(self.tokens[self.skip + 1 : len(self.times)])
        return tokens, self.times[-1] - self.times[self.skip]


def wait() -> None:
    """Wait for the GPU, if there is one."""
    if hardware.is_cuda():
        import torch

        torch.cuda.synchronize()


class Others:
    """The processor time of other processes since it was made, from Linux's counters."""

    def __init__(self) -> None:
        self._begin, self._before = time.perf_counter(), self._used()

    def cores(self) -> float:
        """Return how many cores they used on average; 0 where it cannot be known."""
        used = self._used() - self._before
        return max(0.0, used / max(1e-9, time.perf_counter() - self._begin))

    def _used(self) -> float:
        """Return the processor seconds of all processes but this one and those it has ended."""
        counters = Path("/proc/stat")
        if not counters.is_file():
            return 0.0
        fields = counters.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        user, nice, system, _, _, hard, soft, stolen = map(int, fields[:8])
        busy = (user + nice + system + hard + soft + stolen) / os.sysconf("SC_CLK_TCK")
        own = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return busy - sum(each.ru_utime + each.ru_stime for each in own)


@contextmanager
def one_line_of_error() -> Iterator[None]:
    """End with one line for an error that a user can act on."""
    try:
        yield
    except (MaskpolicyError, OSError) as error:
        raise SystemExit(f"error: {error}") from None


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of an option that is a whole number, `least` or more."""

    def whole(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, {least} or more")
        return int(text)

    return whole


def run(command: Sequence[str], said: Path) -> tuple[float, resource.struct_rusage]:
    """Run a command on one thread; return its seconds and what it used. `said` gets its output."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    began = time.perf_counter()
    with said.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(said.read_text(encoding="utf-8"))
    return time.perf_counter() - began, used


def interleaved(ways: Mapping[str, Once], repeats: int, seconds: float = 0.0) -> list[Rate]:
    """Run every way once per repeat, in turn, so that a drifting machine hits all alike.

    With `seconds`, no repeat begins that would probably end later than that; one is always done.
    """
    rates: dict[str, list[float]] = {name: [] for name in ways}
    others: dict[str, list[float]] = {name: [] for name in ways}
    notes: dict[str, str] = {}
    begin = time.perf_counter()
    for repeat in range(repeats):
        passed = time.perf_counter() - begin
        if seconds and repeat and passed * (repeat + 1) / repeat > seconds:
            break
        for name, once in ways.items():
            watch = Others()
            units, took, notes[name] = once()
            rates[name].append(units / took)
            others[name].append(watch.cores())
            said = f"{repeat + 1}/{repeats} {name}: {shown(units / took)}/s"
            print(f"{said}{disturbance(others[name][-1:])}", file=sys.stderr)
    return [Rate(name, tuple(rates[name]), notes[name], tuple(others[name])) for name in ways]


def disturbance(others: Sequence[float]) -> str:
    """Return a warning, " (...)", if other processes used the processor, else ""."""
    most = max(others, default=0.0)
    return f" (other processes used up to {most:.1f} cores)" if most > _BUSY else ""


def table(rates: Sequence[Rate], unit: str, base: str) -> str:
    """Return a Markdown table with the ratio to the way called `base`."""
    reference = next(rate for rate in rates if rate.name == base)
    lines = [f"| | {unit} (median; min to max) | ratio to {base} | |", "|---|---|---|---|"]
    for rate in rates:
        ratio = rate.over(reference)
        note = f"{rate.note}{disturbance(rate.others)}".strip()
        lines.append(f"| {rate.name} | {rate} | {ratio.median:.2f} | {note} |")
    return "\n".join(lines)


def shown(rate: float) -> str:
    """Return a rate with three digits or more."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def matrix_product(precision: str) -> Once:
    """Return the product of two square matrices, "fp32" or "bf16", as FLOP; larger on a GPU."""
    size = 8192 if hardware.is_cuda() else 2048

    def once() -> tuple[float, float, str]:
        import torch

        kind = torch.bfloat16 if precision == "bf16" else torch.float32
        left, right = (torch.randn(size, size, device=hardware.device(), dtype=kind) for _ in "12")
        seconds = []
        for _ in range(12):
            wait()
            started = time.perf_counter()
            left @ right
            wait()
            seconds.append(time.perf_counter() - started)
        return 2 * size**3, statistics.median(seconds[2:]), ""

    return once
