"""The process that holds a key: its host and number, and whether it is certainly dead."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from maskpolicy import hardware

_STATE, _START = 0, 19  # fields of /proc/PID/stat, counted after the process's name


@dataclass(frozen=True)
class Holder:
    """A process that has claimed a key."""

    host: str
    pid: int
    since: datetime  # by that host's clock, for people only
    lease: float  # seconds without a refresh after which others may take the key
    machine: str  # the boot of the host, and the namespace that `pid` belongs to
    start: str | None  # when the process started: a later one may have the same `pid`

    def is_dead(self) -> bool:
        """Return whether this machine knows that the process has ended."""
        return self.machine == hardware.machine() and not _is_running(self.pid, self.start)

    def encoded(self) -> bytes:
        """Return the content of the file that claims a key."""
        return json.dumps({**asdict(self), "since": self.since.isoformat()}).encode()


def decoded(content: bytes, lease: float) -> Holder:
    """Return the holder that a file names; `lease` is used for a file without content."""
    try:
        fields = json.loads(content)
        return Holder(**{**fields, "since": datetime.fromisoformat(fields["since"])})
    except (ValueError, TypeError, KeyError, RecursionError):  # a crash can empty the file
        return Holder("unknown", 0, datetime.fromtimestamp(0, UTC), lease, "", None)


def this_process(lease: float) -> Holder:
    """Return this process as the holder of a new claim."""
    pid = os.getpid()
    now = datetime.now(UTC)
    return Holder(platform.node(), pid, now, lease, hardware.machine(), _start(pid))


def _is_running(pid: int, start: str | None) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs, and belongs to another user
        return True
    return start is None or _start(pid) in (None, start)


def _start(pid: int) -> str | None:
    """Return when a process started, "ended" for a dead one, or None if that is unknown."""
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = line[line.rindex(b")") + 1 :].split()
    return "ended" if fields[_STATE] in (b"Z", b"X") else fields[_START].decode()
