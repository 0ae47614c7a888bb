"""A task of a Slurm array: a worker that is queued again after preemption and time-out."""

from __future__ import annotations

import logging
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

from maskpolicy.errors import MaskpolicyError, StoreError
from maskpolicy.executors.request import Request
from maskpolicy.executors.store_marker import check_marker

_LINGER = 60.0  # seconds without a stage to compute after which a task ends
_PAUSE = 2.0  # seconds between two attempts to find one


@dataclass(frozen=True)
class Task:
    """Computes the stages of a request that it can claim; submitit pickles and calls it."""

    request: Request
    marker: str | None  # in the store: see `store_marker`
    linger: float = _LINGER

    def __call__(self) -> str:
        """Compute until nothing is left; return an error as one line if this host cannot."""
        from maskpolicy.executors import stage_worker
        from maskpolicy.executors.console import WorkerLog

        logging.basicConfig(stream=sys.stdout, format="%(asctime)s %(message)s")
        logging.getLogger("maskpolicy").setLevel(logging.INFO)
        os.environ.setdefault("TQDM_DISABLE", "1")
        try:
            planned = stage_worker.plan(self.request)
            check_marker(self.marker, planned.store)
        except StoreError:
            raise
        except MaskpolicyError as error:
            return str(error)
        kinds = self.request.kinds or ()
        last = time.monotonic()
        while True:
            tally = stage_worker.compute(planned, WorkerLog(), wait=False)
            if tally.computed:
                last = time.monotonic()
            left = any(name.partition(" ")[0] in kinds for name in tally.left)
            if not left or time.monotonic() - last > self.linger:
                return ""
            time.sleep(_PAUSE)

    def checkpoint(self) -> Any:
        """Return the job that submitit queues after preemption or a time-out: the same task.

        It continues from the checkpoints in the store.
        """
        import submitit

        return submitit.helpers.DelayedSubmission(self)
