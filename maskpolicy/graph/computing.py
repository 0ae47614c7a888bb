"""Compute one stage whose claim this process holds; commit its artifact and its by-products."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from maskpolicy.errors import ClaimLost, StoreError, cause
from maskpolicy.graph import processes
from maskpolicy.graph.nodes import Stage, compute, is_shared
from maskpolicy.graph.outcomes import Outcome, Progress
from maskpolicy.graph.process_group import compute_together
from maskpolicy.graph.shared_notes import ProgressNotes, note_failure
from maskpolicy.graph.stage_run import Commit, StageRun
from maskpolicy.plugins import changed_files
from maskpolicy.store.artifacts import Store
from maskpolicy.types import Json


@dataclass(frozen=True)
class Computer:
    """Computes stages in this process, whose claims the caller holds."""

    store: Store
    progress: Progress
    workers: int = 1  # processes that a stage may start
    logs: Path | None = None  # a folder for the files of trackers

    def compute(self, stage: Stage, byproducts: Mapping[str, Stage]) -> Outcome:
        """Compute a stage, and those of its by-products that `byproducts` has, by name.

        If the stage function raises, the outcome holds the error, and a note in the store shows it
        to other processes. Raises StoreError if the store cannot be used, and ClaimLost if another
        process has taken over the stage; neither is a failure of the stage.
        """
        paths = {name: self.store.path(needed.key) for name, needed in stage.inputs.items()}
        record = stage.record() | {"facts": {}}
        started = time.monotonic()
        self.progress.start(stage)
        notes = ProgressNotes(self.store, stage)

        def advance(done: int, total: int, note: str) -> None:
            notes.advance(done, total, note)
            self.progress.advance(done, total, note)

        run = StageRun(
            checkpoints=self.store.checkpoints(stage.key),
            local=stage.local,
            workers=self.workers,
            facts=record["facts"],
            advance=advance,
            name=stage.name,
            logs=self.logs,
            byproducts={name: self._committer(each) for name, each in byproducts.items()},
        )
        try:
            inputs = [needed.key for needed in stage.inputs.values()]
            with self.store.write(stage.key, record) as out, self.store.reading(inputs):
                self._call(stage, paths, out, run)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - only what depends on this stage fails
            note_failure(self.store, stage, error)
            seconds = time.monotonic() - started
            return Outcome(stage, None, cause(error), seconds, exception=error, here=True)
        finally:
            notes.end()
        artifact = self.store.get(stage.key)
        if artifact is None:
            self.store.check_claim(stage.key)  # another process may have used and dropped it
            raise StoreError(
                f"store {self.store.place}: {stage.name} was damaged while it was written: check "
                "the disk"
            )
        return Outcome(stage, artifact.path, seconds=artifact.manifest["seconds"], here=True)

    def _call(self, stage: Stage, inputs: dict[str, Path], out: Path, run: StageRun) -> None:
        discard, digest = run.checkpoints.clear, self.store.hash_file
        with changed_files.guarded(stage.params, discard, stage.files, digest):
            if stage.local.processes > 1:
                compute_together(stage, inputs, out, run)
                return
            if is_shared(stage.kind):
                processes.call(stage.key)
            compute(stage.kind, stage.keyed, inputs, out, run)

    def _committer(self, stage: Stage) -> Commit:
        """Return a function that commits a by-product, unless it is there or its lock is taken.

        It does not wait for the by-product's lock, because this process already holds that of the
        stage: two processes that wait for each other's locks would never go on.
        """

        def commit(write: Callable[[Path], None], facts: Mapping[str, Json]) -> None:
            with suppress(ClaimLost), self.store.try_lock(stage.key) as is_mine:
                if is_mine and self.store.get(stage.key) is None:
                    changed_files.compare(stage.params)
                    record = stage.record() | {"facts": dict(facts)}
                    with self.store.write(stage.key, record) as out:
                        write(out)

        return commit
