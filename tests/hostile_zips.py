"""Zip files that no `pack` wrote."""

import zipfile
from pathlib import Path

from maskpolicy.pipeline.store import manifest


def bare(path: Path) -> None:
    """A zip of a run without a manifest."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("it/results/none--zsre--0.json", "{}")


def damaged(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as file:
        file.writestr("it/results/none--zsre--0.json", "{}" * 500)
    content = bytearray(path.read_bytes())
    content[60:90] = b"\xff" * 30
    path.write_bytes(content)


def outside(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("it/results/../../../../it.json", "{}")


def huge(path: Path) -> None:
    """A zip whose list says that it has eight gigabytes."""
    bare(path)
    content = path.read_bytes()
    at = content.index(b"PK\x01\x02") + 24
    path.write_bytes(content[:at] + b"\xff" * 4 + content[at + 4 :])


def deep(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("it/results/none--zsre--0.json", "[" * 100_000)
        file.writestr(f"it/{manifest.NAME}", "[" * 100_000)
        file.writestr("it/stages.json", '{"a": ' * 100_000)


HOSTILE = (bare, damaged, outside, huge, deep)
