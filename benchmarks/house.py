"""Lines and files of each room and of the tests, and the budget that `make lint` holds them to.

python -m benchmarks.house prints them, and ends with exit code 1 above the budget of setup.cfg.
"""

from __future__ import annotations

import sys
from collections import Counter
from configparser import ConfigParser
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_PARTS = ("maskpolicy", "tests")


def count(folder: Path) -> tuple[Counter[str], Counter[str]]:
    """Return the lines and the files of Python below a folder, by its sub-folders."""
    lines, files = Counter[str](), Counter[str]()
    for path in folder.rglob("*.py"):
        inside = path.relative_to(folder).parts
        name = inside[0] if len(inside) > 1 else "."
        lines[name] += len(path.read_text(encoding="utf-8").splitlines())
        files[name] += 1
    return lines, files


def main() -> int:
    """Print the figures; return 1 if a part of the repository is above its budget."""
    config = ConfigParser()
    config.read(_ROOT / "setup.cfg", encoding="utf-8")
    is_above = False
    for part in _PARTS:
        lines, files = count(_ROOT / part)
        for name in sorted(lines, key=lambda name: -lines[name]):
            print(f"{part + '/' + name:<24} {lines[name]:>7,} lines {files[name]:>4} files")
        budget = config.getint("house", part)
        is_above |= lines.total() > budget
        print(f"{part:<24} {lines.total():>7,} lines {files.total():>4} files, budget {budget:,}\n")
    return int(is_above)


if __name__ == "__main__":
    sys.exit(main())
