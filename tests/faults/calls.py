"""Changes of the file system by this process: signals before the n-th, and a record of flushes."""

import errno
import fcntl
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from maskpolicy.pipeline.store.disk import Disk

_CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.link"}


def is_change(event: str, arguments: tuple) -> bool:
    """Say whether an audit event is an open for writing, a rename, a new or a removed entry."""
    if event == "open":
        return bool(isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR))
    return event in _CHANGES


def signal_before(moment: int | None, number: int = signal.SIGKILL) -> Callable[[], int]:
    """Send this process a signal before its change number `moment`, counted from 0; None: never.

    Returns a function that tells how many changes there were.
    """
    count = 0

    def watch(event, arguments):
        nonlocal count
        if is_change(event, arguments):
            count += 1
            if moment is not None and count == moment + 1:
                os.kill(os.getpid(), number)

    sys.addaudithook(watch)
    return lambda: count


def as_host(hours: int, call: Callable[[], int], has_locks: bool = False) -> int:
    """Call a function as on another host, whose clock is ahead, and which shares no locks."""
    clock, clock_ns, modules = time.time, time.time_ns, list(sys.modules.values())

    class Shifted(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(hours=hours)

    for module in modules:
        if module.__name__.startswith("maskpolicy.") and hasattr(module, "datetime"):
            module.datetime = Shifted
    time.time = lambda: clock() + 3600 * hours
    time.time_ns = lambda: clock_ns() + round(3600e9 * hours)
    Disk.HOST = str(hours) * 8
    if not has_locks:
        fcntl.flock = no_locks
    return call()


def no_locks(*_: object) -> None:
    """Raise the error of a file system without locks."""
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def no_room_from(moment: int, folder: Path) -> None:
    """Let each change below a folder fail from number `moment` on, as on a full disk."""
    count = 0

    def watch(event, arguments):
        nonlocal count
        if is_change(event, arguments) and str(arguments[0]).startswith(str(folder)):
            count += 1
            if count > moment and event not in ("os.remove", "os.rmdir"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), arguments[0])

    sys.addaudithook(watch)


def record_flushes(to: Path) -> None:
    """Append the inode of each file that this process flushes to disk to a file."""
    record, flush = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_APPEND), os.fsync

    def recorded(handle):
        flush(handle)
        os.write(record, b"%d\n" % os.fstat(handle).st_ino)

    os.fsync = recorded


def lose(folder: Path, record: Path | None, rng: random.Random) -> int:
    """Empty files below a folder, as a loss of power may do; returns how many there were.

    These are all that were never flushed, by a record of flushes. Without a record the disk has
    dropped flushes too: any third of the files is lost.
    """
    flushed = set(map(int, record.read_text().split())) if record and record.exists() else set()
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]
    lost = [
        path
        for path in files
        if (path.stat().st_ino not in flushed if record else rng.random() < 1 / 3)
    ]
    for path in lost:
        path.write_bytes(b"")
    return len(lost)
