"""Lines in a file, bars on a terminal."""

from __future__ import annotations

import io
import sys
import threading
from types import ModuleType

import pytest
from rich.console import Console

from maskpolicy.app import display
from maskpolicy.app.display import Detail, Display
from maskpolicy.app.meters import Preparation, Tally

PATIENCE = 60  # seconds until a line that never comes fails the test


class Text(io.StringIO):
    """A file that tells when a text has been written to it."""

    def __init__(self, wanted: str) -> None:
        super().__init__()
        self._wanted, self.written = wanted, threading.Event()

    def write(self, text: str) -> int:
        done = super().write(text)
        if self._wanted in self.getvalue():
            self.written.set()
        return done


def test_a_log_file_shows_life_although_nothing_is_reported(monkeypatch):
    monkeypatch.setattr(display, "_INTERVAL", 0.01)
    text = Text("… general: 3 of 12 (25%), loss 2.0\n… run: 1 of 4 stages\n")
    with Display(Console(file=text, width=80), "run", Tally(1, 4, "stages"), "normal") as shown:
        shown.begin("k", "general")
        shown.report("k", 3, 12, "loss 2.0")
        assert text.written.wait(PATIENCE)
    assert text.getvalue().startswith("… general: started\n")


@pytest.mark.parametrize(("detail", "has_bars"), [("normal", True), ("quiet", False)])
def test_a_terminal_gets_bars_with_rate_and_time_left(detail: Detail, has_bars):
    text = Text("12 (25%)")
    console = Console(file=text, width=100, force_terminal=True, force_interactive=True)
    with Display(console, "run", Tally(1, 4, "stages"), detail) as shown:
        shown.begin("k", "general")
        shown.report("k", 3, 12, "loss 2.0")
        if has_bars:
            assert text.written.wait(PATIENCE)
        shown.say("✓ other", "normal")
        shown.end("k")
        shown.end("k")
        shown.report("k", 4, 12, "too late")
    written = text.getvalue()
    assert ("3 of 12 (25%), loss 2.0" in written) is has_bars
    assert ("1 of 4 stages" in written) is has_bars
    assert ("✓ other" in written) is has_bars
    assert "too late" not in written


def test_many_threads_report_at_once():
    console = Console(file=io.StringIO(), force_terminal=True, force_interactive=True)

    def report(name: str) -> None:
        for number in range(50):
            shown.begin(name, name)
            shown.report(name, number, 50, "")
            shown.end(name)

    with Display(console, "run", Tally(1, 4, "stages"), "normal") as shown:
        threads = [threading.Thread(target=report, args=(str(i % 2),)) for i in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(PATIENCE)
            assert not each.is_alive()


class Meanwhile(io.StringIO):
    """A file at whose first text another thread does something, which is given a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.thread: threading.Thread | None = None

    def write(self, text: str) -> int:
        if self.thread is not None and self.thread.ident is None:
            self.thread.start()
            self.thread.join(0.2)
        return super().write(text)


def test_a_part_that_ends_while_its_bar_is_added_has_none():
    text = Meanwhile()
    console = Console(file=text, width=100, force_terminal=True, force_interactive=True)
    with Display(console, "run", Tally(1, 4, "stages"), "normal") as shown:
        text.thread = threading.Thread(target=shown.end, args=("k",))
        shown.begin("k", "general")
        text.thread.join(PATIENCE)
        text.seek(0)
        text.truncate()
        shown.begin("other", "finetune")
        assert "finetune" in text.getvalue()
        assert "general" not in text.getvalue()


def test_a_log_file_shows_life_before_the_first_stage(monkeypatch):
    monkeypatch.setattr(display, "_INTERVAL", 0.01)
    text = Text("… run: reading the files\n")
    with Display(Console(file=text), "run", Preparation("reading the files"), "normal"):
        assert text.written.wait(PATIENCE)


def test_a_notebook_without_widgets_gets_lines(monkeypatch):
    shown = ModuleType("IPython.display")
    said: list[str] = []
    shown.display = lambda given: said.append(given.text)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    console = Console(force_jupyter=True, stderr=True)
    with Display(console, "run", Tally(1, 4, "stages"), "normal") as display_:
        display_.begin("k", "general")
        display_.report("k", 3, 12, "loss 2.0")
        display_.say("✓ general", "normal")
        display_.end("k")
    assert "".join(said) == "… general: started\n✓ general\n"
