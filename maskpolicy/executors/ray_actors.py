"""The actors on a Ray cluster: workers that compute stages, and a queue for their messages."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from maskpolicy.executors.request import Request
from maskpolicy.executors.store_marker import check_marker

Message: TypeAlias = tuple[str, int, str]
"""Name of the logger, level, message."""
_TIMEOUT = 5.0  # seconds after which `MessageQueue.fetch` returns without a message


class Worker:
    """Computes stages of an experiment: a process on a node, until the run ends."""

    def __init__(self, label: str, queue: Any) -> None:
        """Take the name with which its messages begin, and the actor that collects them."""
        self.label = label
        self.queue = queue
        self.planned: Any = None

    def prepare(self, request: Request, folder: str, marker: str) -> None:
        """Plan the experiment.

        `folder` is the command's working directory, `marker` that in its store (`store_marker`).
        Raises ConfigError if this node plans other stages, or has another store.
        """
        from maskpolicy.executors import stage_worker

        logger = logging.getLogger("maskpolicy")
        logger.handlers = [_QueueHandler(self.queue, self.label)]
        logger.propagate = False
        logger.setLevel(logging.ERROR)  # the command logs the plan
        if Path(folder).is_dir():
            os.chdir(folder)
        self.planned = stage_worker.plan(request)
        check_marker(marker, self.planned.store)
        logger.setLevel(logging.INFO)

    def compute(self) -> None:
        """Compute the stages that this worker can claim, until other workers have all the rest."""
        from maskpolicy.executors import stage_worker
        from maskpolicy.executors.console import WorkerLog

        stage_worker.compute(self.planned, WorkerLog(), wait=False)


class MessageQueue:
    """Keeps the messages of all workers until `ray_pool` fetches them."""

    def __init__(self) -> None:
        """Start without a message."""
        self.messages: list[Message] = []
        self.is_filled = asyncio.Event()

    async def put(self, message: Message) -> None:
        """Add a message."""
        self.messages.append(message)
        self.is_filled.set()

    async def fetch(self) -> list[Message]:
        """Return the messages since the last call; waits a few seconds for the first one."""
        if not self.messages:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.is_filled.wait(), _TIMEOUT)
        self.is_filled.clear()
        messages, self.messages = self.messages, []
        return messages


class _QueueHandler(logging.Handler):
    """Sends log records to the queue, under a worker's label."""

    def __init__(self, queue: Any, label: str) -> None:
        super().__init__()
        self.queue, self.label, self.pid = queue, label, os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        if os.getpid() == self.pid:  # Ray cannot be used in a forked process
            message = f"{self.label}: {record.getMessage()}"
            self.queue.put.remote((record.name, record.levelno, message))
