"""Compute one stage in a group of processes of this machine, as torchrun would.

This process starts and ends them, but is not a member of their process group (torch.distributed).
It holds the claim on the stage, and commits the files that the members write. So the stage
continues after the loss of any member, and only one process changes the store.
"""

from __future__ import annotations

import logging
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any

from maskpolicy.errors import StageError
from maskpolicy.graph import group_member
from maskpolicy.graph.group_member import Assignment
from maskpolicy.graph.nodes import Stage, module_of
from maskpolicy.graph.stage_run import StageRun
from maskpolicy.plugins import isolation

_TRIES = 3  # attempts without a new checkpoint after which the stage fails
_GRACE = 5.0  # seconds in which members end, or report their errors after one has failed
_log = logging.getLogger(__name__)


def compute_together(stage: Stage, inputs: Mapping[str, Path], out: Path, run: StageRun) -> None:
    """Compute a stage as `nodes.compute` does, in `stage.local.processes` processes.

    If a member is killed, all of them start again from the newest checkpoint. Raises what the stage
    function raises, and StageError if members are killed three times without a new checkpoint.
    """
    tries, before = 0, -1
    while True:
        checkpoint = run.checkpoints.latest()
        step = checkpoint[0] if checkpoint else 0
        tries, before = (1, step) if step > before else (tries + 1, before)
        try:
            with _members(stage, inputs, out, run, checkpoint) as members:
                _serve_all(members, run)
            return
        except _MemberDied as death:
            if tries == _TRIES:
                kind = stage.kind.partition("-")[0]
                raise StageError(
                    f"{death}, {_TRIES} times in a row: if memory ran out, lower "
                    f"resources.{kind} or {kind}.micro_tokens"
                ) from None
            again = "all start again from the newest checkpoint"
            _log.warning("%s: %s: %s", stage.name, death, again)
            _empty(out)


class _MemberDied(Exception):
    """A member ended without a message, e.g. because it was killed."""


class _Member:
    """One process of the group, and this process's end of the pipe to it."""

    def __init__(self, assignment: Assignment, rank: int, count: int) -> None:
        spawn = get_context("spawn")
        self.name = f"process {rank} of {count}"
        self.pipe, other = spawn.Pipe()
        arguments = (assignment, rank, count, other)
        self.process = spawn.Process(target=group_member.join, args=arguments)
        self.process.start()
        other.close()  # so that the pipe closes when the process ends

    def receive(self) -> tuple[Any, ...]:
        """Return the next message; raises _MemberDied if the process ended without one."""
        try:
            message: tuple[Any, ...] = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(_GRACE)
            code = self.process.exitcode
            how = signal.Signals(-code).name if code and code < 0 else f"exit code {code}"
            raise _MemberDied(f"{self.name} was ended ({how})") from None
        return message

    def send(self, answer: Any) -> None:
        """Send an answer; if the process has ended, `receive` raises the error."""
        with suppress(OSError):
            self.pipe.send(answer)

    def end(self) -> None:
        """Kill the process if it still runs."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


@contextmanager
def _members(
    stage: Stage,
    inputs: Mapping[str, Path],
    out: Path,
    run: StageRun,
    checkpoint: tuple[int, Path] | None,
) -> Iterator[list[_Member]]:
    """Start the members, yield them, and kill them when the block ends."""
    import torch
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    count = stage.local.processes
    rendezvous = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    assignment = Assignment(
        module=module_of(stage.kind),
        kind=stage.kind,
        params=stage.keyed,
        inputs=inputs,
        out=out,
        local=replace(stage.local, processes=1),
        workers=run.workers,
        name=run.name,
        logs=run.logs,
        byproducts=tuple(run.byproducts),
        checkpoint=checkpoint,
        plugins=isolation.state(),
        threads=max(1, torch.get_num_threads() // count),
        port=rendezvous.port,
    )
    members: list[_Member] = []
    try:
        for rank in range(count):
            members.append(_Member(assignment, rank, count))
        yield members
    finally:
        for member in members:
            member.end()


def _serve_all(members: list[_Member], run: StageRun) -> None:
    """Answer the members' messages until all are done.

    Raises _MemberDied, or the error of the stage function.
    """
    busy = list(members)
    while busy:
        for member in _with_messages(busy):
            what, *about = member.receive()
            if what == "done":
                run.facts.update(*about)
                busy.remove(member)
            elif what == "failed":
                _raise(members, member, *about)
            else:
                _serve(member, run, what, about)
    for member in members:
        member.send("all are done")
    for member in members:
        member.process.join(_GRACE)


def _with_messages(members: list[_Member], timeout: float | None = None) -> list[_Member]:
    """Wait until members have sent a message or ended, and return them; none after a timeout."""
    ready = connection.wait([member.pipe for member in members], timeout)
    return [member for member in members if member.pipe in ready]


def _serve(member: _Member, run: StageRun, what: str, about: list[Any]) -> None:
    """Carry out one request of a member: report something, or commit files that it writes."""
    if what == "advance":
        run.advance(*about)
    elif what == "log":
        name, level, message = about
        logging.getLogger(name).log(level, "%s", message)
    elif what == "save":
        run.checkpoints.save(about[0], partial(_let_write, member, run))
        member.send(None)
    else:
        name, facts = about
        run.byproducts[name](partial(_let_write, member, run), facts)
        member.send(None)


def _let_write(member: _Member, run: StageRun, folder: Path) -> None:
    """Let a member write files into a folder, and return when it has."""
    member.send(folder)
    while (message := member.receive())[0] != "written":
        what, *about = message
        if what == "failed":
            raise about[0]
        _serve(member, run, what, about)


def _raise(members: list[_Member], failed: _Member, error: Exception, is_cause: bool) -> None:
    """Raise the error that made the group fail, or _MemberDied if a member was killed.

    When a member fails or dies, the communication of the others fails too. Their errors
    (`is_cause` is False) are raised only if no other one arrives within _GRACE seconds.
    """
    silent = [member for member in members if member is not failed]
    until = time.monotonic() + _GRACE
    while silent and not is_cause and (left := until - time.monotonic()) > 0:
        for member in _with_messages(silent, left):
            what, *about = member.receive()
            if what == "failed" and about[1]:
                error, is_cause = about
            if what in ("failed", "done"):
                silent.remove(member)
    raise error


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
