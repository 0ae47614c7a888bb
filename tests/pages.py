"""The README and the pages of docs/, their blocks of code, and imports of code."""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GENERATED = DOCS / "changelog.md"  # by `make docs`
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(path for path in sorted(DOCS.rglob("*.md")) if path != GENERATED),
]
SMALL = (  # keys that make an experiment of a page small
    *("world.people=8", "world.general_people=4"),
    *(
        f"{name}.{key}"
        for name in ("general", "intermediate", "finetune")
        for key in ("steps=2", "warmup=1", "batch_size=2", "precision=fp32")
    ),
)


@dataclass(frozen=True)
class Block:
    """A block of code; its first line may name a file: # my_policy.py."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        """Return the page and the line, for messages."""
        return f"{self.page.relative_to(ROOT).as_posix()}:{self.line}"

    @property
    def file(self) -> str | None:
        """Return the name of the file that the block shows, or None."""
        named = re.match(r"# (\w+\.(?:py|yaml))\n", self.text)
        return named[1] if named else None

    @property
    def commands(self) -> Iterator[list[str]]:
        """Yield the words of each command of a shell block."""
        for line in re.sub(r"\\\n\s*", "", self.text).splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] not in ("for", "done"):  # the commands of a loop are checked once
                yield words


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of code of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^```(.*)\n((?:(?!```).*\n)*)```$", text, re.MULTILINE):
        yield Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])


def imports(source: str) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of each import that is not relative, also inside functions.

    The name is "" for `import module`.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((str(node.module), alias.name) for alias in node.names)
