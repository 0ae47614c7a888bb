"""Damage each file of a finished store; the same command repairs the files that it needs."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from faults import forks
from faults.kills import Wrong

from maskpolicy.pipeline.store.artifacts import Store

DAMAGES = ("delete", "truncate", "flip", "zero", "swap")
_UNVERIFIED = ("locks", "quarantine", "temporary")


def files(store: Path) -> list[Path]:
    """Return the files of a finished store, relative to it."""
    paths = (path.relative_to(store) for path in sorted(store.rglob("*")) if path.is_file())
    return [path for path in paths if path.parts[0] not in _UNVERIFIED]


def damage(path: Path, how: str, other: bytes, rng: random.Random) -> bool:
    """Damage a file in place; returns whether its content has changed."""
    before = path.read_bytes()
    if how == "delete":
        path.unlink()
        return True
    after = {
        "truncate": before[: len(before) // 2],
        "flip": _flipped(before, rng),
        "zero": bytes(len(before)),
        "swap": other,
    }[how]
    path.write_bytes(after)
    return after != before


def _flipped(content: bytes, rng: random.Random) -> bytes:
    if not content:
        return b"\x01"
    place = rng.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]


class Corruption:
    """A finished store, a copy of it, and the results of its command."""

    def __init__(
        self, store: Path, whole: Path, results: Callable[[], object], again: Callable[[], int]
    ) -> None:
        """Take a store, its copy `whole`, and two functions.

        `results()` returns what must not change; `again` gives the command again, and is called in
        a forked process.
        """
        shutil.copytree(store, whole)
        self.store, self.whole, self.results, self.again = store, whole, results, again
        self.expected = results()
        self.files = files(whole)

    def trial(self, index: int, how: str, rng: random.Random) -> Counter[str]:
        """Damage one file, run the command again, compare its results, and restore the store."""
        name = self.files[index]
        other = (self.whole / self.files[(index + 1) % len(self.files)]).read_bytes()
        if not damage(self.store / name, how, other, rng):
            return Counter(trials=1, unchanged=1)
        is_artifact = name.parts[0] == "artifacts"
        noticed = is_artifact and Store(self.store).verify(name.parts[1]) is not None
        if is_artifact and not noticed:
            raise Wrong(f"{how} {name}: not noticed by `store verify`")
        said = self.whole.parent / "corruption.said"
        try:
            if code := forks.wait(forks.start(self.again, said)):
                raise Wrong(f"{how} {name}: exit code {code}: {said.read_text()[-600:]}")
            if self.results() != self.expected:
                raise Wrong(f"{how} {name}: other results")
        finally:
            self._restore()
        return Counter(trials=1, noticed=int(noticed))

    def _restore(self) -> None:
        """Give files that are still damaged, or gone, their content, and empty quarantine/."""
        shutil.rmtree(self.store / "quarantine", ignore_errors=True)
        for name in self.files:
            there, whole = self.store / name, (self.whole / name).read_bytes()
            if not there.exists() or there.read_bytes() != whole:
                there.parent.mkdir(parents=True, exist_ok=True)
                there.write_bytes(whole)
