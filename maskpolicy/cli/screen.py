"""The console of the commands, on which what users and strangers wrote is only text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.segment import Segment

from maskpolicy.config.yaml_file import CONTROLS

if TYPE_CHECKING:
    from rich.console import ConsoleOptions, RenderableType


class Screen(Console):
    """A console that replaces control characters of a text, which could change the terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of a renderable; those that move the cursor stay as they are."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else CONTROLS.sub("\ufffd", text), style, control)
