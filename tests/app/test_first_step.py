"""From `maskpolicy run` to the first step of training, a reader crosses few files."""

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

from pages import DOCS
from small import EXPERIMENT

import maskpolicy
from maskpolicy.models.training.optimization import Optimization

ROOT = Path(maskpolicy.__file__).parent
MOST = 24


@cache
def file_of(code: CodeType) -> str:
    """Return the file of a function that is in a room but `core`, below maskpolicy/, or ""."""
    path = Path(code.co_filename)
    if not path.is_relative_to(ROOT) or path.parent == ROOT:
        return ""
    name = path.relative_to(ROOT).as_posix()
    return "" if name.startswith("core/") else name


def stack(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of our functions, from the innermost one to the first import."""
    while frame is not None and frame.f_code.co_name != "<module>":
        if file_of(frame.f_code):
            yield frame
        frame = frame.f_back


def documented() -> list[str]:
    """Return the files on the way to the first step by docs/development/architecture.md."""
    text = (DOCS / "development" / "architecture.md").read_text(encoding="utf-8")
    (walk,) = [each for each in text.split("\n\n") if each.startswith("From `maskpolicy run` to")]
    return [name for name in re.findall(r"`([\w/]+\.py)`", walk) if not name.startswith("tests/")]


def test_the_first_step_is_few_files_away(call, monkeypatch):
    """Count the files of the functions on the stack, and of those that these have called."""
    called: dict[FrameType, set[str]] = {}
    found: set[str] = set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        if not file_of(frame.f_code) or frame.f_code.co_name == "<module>":
            return
        if event == "call":
            called[frame] = set()
            caller = next(stack(frame.f_back), None)
            if caller in called:
                called[caller].add(file_of(frame.f_code))
        elif event == "return":
            called.pop(frame, None)

    def step(self, *given):
        frames = list(stack(sys._getframe(1)))
        if not any(frame.f_code.co_name == "intermediate" for frame in frames):
            return first(self, *given)
        for frame in frames:
            found.update({file_of(frame.f_code)}, called[frame])
        raise KeyboardInterrupt

    first = Optimization.step
    monkeypatch.setattr(Optimization, "step", step)
    Path("it.yaml").write_text(EXPERIMENT)
    sys.setprofile(watch)
    try:
        assert call("run", "it.yaml", "--jobs", "1", "--store", "store")[0] == 130
    finally:
        sys.setprofile(None)
    assert set(documented()) <= found
    assert len(found) <= MOST, "\n".join(sorted(found))
