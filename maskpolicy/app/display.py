"""What is under way: bars on a terminal, and a line every 30 seconds anywhere else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from maskpolicy.app.meters import Meter

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

Detail: TypeAlias = Literal["quiet", "normal", "verbose"]
_DETAILS: tuple[Detail, ...] = ("quiet", "normal", "verbose")
_INTERVAL = 30.0  # seconds between two lines about what is under way
_SCALE = 1000  # of the bar of the whole
_DRAWN = 0.25  # seconds between two moves of that bar


class Whole(Protocol):
    """How far all of the work is."""

    def share(self, busy: Mapping[str, Meter], now: float) -> float:
        """Return the share that is done, from 0 to 1."""
        ...

    def words(self, busy: Mapping[str, Meter], now: float) -> str:
        """Return what is done and the time left as text."""
        ...


class Display:
    """Shows the parts of some work that are under way; any thread may report.

    On a terminal each has a bar, below one of the whole. Elsewhere, as in a log file or a notebook
    without ipywidgets, each has a line when it begins, and one every 30 seconds.
    """

    def __init__(self, console: Console, name: str, whole: Whole, detail: Detail) -> None:
        """Prepare a display of the work `name`; use as a context manager."""
        self._console = console
        self._name = name
        self._whole = whole
        self._detail = detail
        self._changes = threading.Lock()  # held until both a part and its bar have changed
        self._tasks: dict[str, TaskID] = {}
        self._moved = 0.0  # when the bar of the whole was moved last
        # Of the meters. It is never held while a bar changes: Rich draws the bars with a lock of
        # its own, and their words take this one.
        self._lock = threading.Lock()
        self._busy: dict[str, Meter] = {}
        self._names: dict[str, str] = {}
        self._ended = threading.Event()
        self._printer: threading.Thread | None = None
        self._bars: Progress | None = None
        if _has_bars(console) and detail != "quiet":
            self._bars = _bars(console)
            self._all = self._bars.add_task(name, total=_SCALE, words=_Live(self._summary))

    def __enter__(self) -> Display:
        if self._bars is not None:
            self._bars.start()
        elif self._detail != "quiet":
            self._printer = threading.Thread(target=self._print_regularly, daemon=True)
            self._printer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._bars is not None:
            self._bars.stop()
        if self._printer is not None:
            self._printer.join()

    def begin(self, key: str, name: str) -> bool:
        """Show a part; return False if it is shown already."""
        with self._changes:
            if key in self._busy:
                return False
            meter = Meter(time.monotonic())
            with self._lock:
                self._busy[key], self._names[key] = meter, name
            if self._bars is not None:
                words = _Live(partial(self._words, meter))
                self._tasks[key] = self._bars.add_task(name, total=None, words=words)
            self.say(f"… {name}: started", "normal" if self._bars is None else "verbose")
        return True

    def report(self, key: str, done: int, total: int, note: str) -> None:
        """Show that `done` of `total` units of a part are finished; a `total` of 0 is unknown."""
        with self._changes:
            meter = self._busy.get(key)
            if meter is None:
                return
            with self._lock:
                meter.report(done, total, note, time.monotonic())
            if self._bars is not None and key in self._tasks:
                self._bars.update(self._tasks[key], completed=done, total=total or None)
                self._move_whole(self._bars)

    def end(self, key: str) -> None:
        """Show a part no longer."""
        with self._changes:
            with self._lock:
                self._busy.pop(key, None)
            if self._bars is not None and key in self._tasks:
                self._bars.remove_task(self._tasks.pop(key))
                self._move_whole(self._bars)

    def say(self, line: str, detail: Detail) -> None:
        """Print a line, if the display is to have that much detail."""
        if _DETAILS.index(detail) <= _DETAILS.index(self._detail):
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _words(self, meter: Meter) -> str:
        with self._lock:
            return meter.words(time.monotonic())

    def _summary(self) -> str:
        with self._lock:
            return self._whole.words(self._busy, time.monotonic())

    def _move_whole(self, bars: Progress) -> None:
        now = time.monotonic()
        if now - self._moved >= _DRAWN:
            self._moved = now
            with self._lock:
                share = self._whole.share(self._busy, now)
            bars.update(self._all, completed=share * _SCALE)

    def _print_regularly(self) -> None:
        """Print a line for each part under way, and one for the whole, until the end."""
        with suppress(OSError, ValueError):  # the output was closed
            while not self._ended.wait(_INTERVAL):
                with self._lock:
                    now = time.monotonic()
                    lines = [
                        f"… {self._names[key]}: {meter.words(now)}"
                        for key, meter in self._busy.items()
                    ]
                for line in (*lines, f"… {self._name}: {self._summary()}"):
                    self.say(line, "normal")


class _Live:
    """A text that is computed whenever a bar is drawn, so that times go on between reports."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text()


def _has_bars(console: Console) -> bool:
    """Return whether bars can be drawn; in a file, rich would add an empty line for them."""
    if console.is_jupyter and find_spec("ipywidgets") is None:
        return False
    return console.is_interactive


def _bars(console: Console) -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[words]}", style="dim", markup=False),
    )
    return Progress(*columns, console=console, transient=True, refresh_per_second=1 / _DRAWN)
