"""Commands in forked processes, which start without seconds of imports."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path


def load() -> None:
    """Import the modules of commands, so that forked processes share them."""
    import accelerate.utils.memory
    import safetensors.torch
    import torch
    import transformers

    import maskpolicy.app.file_to_folder
    import maskpolicy.pipeline.stages
    from maskpolicy.app.commands import app

    assert accelerate and safetensors and transformers and maskpolicy and app
    torch.set_num_threads(1)


def start(call: Callable[[], int], said: Path) -> int:
    """Call a function in a forked process, and return its number; its output goes to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code = 3
    try:
        to = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(to, 1)
        os.dup2(to, 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        os.setsid()  # so that all processes of a command can be killed at once
        code = call() or 0
    except BaseException:  # noqa: BLE001 - the child must not continue as its parent
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def wait(child: int, limit: float = 1200) -> int:
    """Return the exit code of a forked process; -9 if it was killed.

    Raises TimeoutError if it does not end within `limit` seconds, and kills it with its children.
    """
    until = time.monotonic() + limit
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > until:
            kill(child)
            raise TimeoutError(f"process {child} did not end within {limit:g} s")
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(ended[1])


def has_ended(child: int) -> bool:
    """Return whether a forked process has ended; `wait` still returns its exit code."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def until(happened: Callable[[], object], child: int, limit: float = 300) -> bool:
    """Wait until a function returns a true value, or the process ends; return whether it did.

    Raises TimeoutError after `limit` seconds.
    """
    end = time.monotonic() + limit
    while not (found := happened()) and not has_ended(child):
        if time.monotonic() > end:
            raise TimeoutError(f"nothing happened within {limit:g} s")
        time.sleep(0.02)
    return bool(found)


def kill(child: int) -> None:
    """Kill a forked process with all that it has started, and wait for it."""
    family = [child]
    while more := set(children(family)) - set(family):
        family += more
    for process in family:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    with suppress(ChildProcessError):  # waited for a moment ago
        os.waitpid(child, 0)


def children(parents: Sequence[int]) -> list[int]:
    """Return the processes that others have started, without those that have ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) in parents and fields[0] != "Z":
                found.append(int(path.parent.name))
    return sorted(found)


def command(*words: object) -> Callable[[], int]:
    """Return a function that runs a command of maskpolicy, and returns its exit code."""

    def call() -> int:
        from maskpolicy.app.commands import app

        return app([str(word) for word in words], standalone_mode=False) or 0

    return call
