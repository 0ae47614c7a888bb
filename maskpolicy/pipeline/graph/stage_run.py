"""What a stage function gets for one run: local paths, checkpoints, progress, the training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from maskpolicy.core.files import slug
from maskpolicy.core.schema import omitted
from maskpolicy.core.types import Json
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import CorpusBlock
from maskpolicy.pipeline.store.checkpoints import Checkpoints

if TYPE_CHECKING:
    from maskpolicy.models.training.batching import Loss, Step

Commit: TypeAlias = Callable[[Callable[[Path], None], Mapping[str, Json]], None]
"""commit(write, facts): call write(folder), and commit the files that it puts into the folder.

The manifest records `facts`, like those of `StageRun`.
"""


@dataclass(frozen=True, kw_only=True)
class Local:
    """Paths and settings of this machine, which are not in the key.

    A manifest keeps those that are not at their defaults.
    """

    plugins: tuple[str, ...] = omitted(())  # the experiment's files of plugins
    tracker: str | None = omitted(None)  # writes the curves of trainings
    processes: int = omitted(1)  # that compute a training together
    checkpoint_every: float = omitted(Training.checkpoint_every)  # seconds
    folder: str | None = omitted(None)  # of a model, or of a task's files; None: the Hub's
    revision: str | None = omitted(None)  # of a Hub model or dataset, as asked for
    corpus: CorpusBlock | None = omitted(None)  # where the documents of a corpus are
    pipeline: str | None = omitted(None)  # a spaCy pipeline's name or folder


@dataclass(frozen=True)
class StageRun:
    """What a stage function gets besides params and inputs; nothing here may change its result."""

    checkpoints: Checkpoints
    local: Local = field(default_factory=Local)
    workers: int = 1  # processes that it may start
    facts: dict[str, Json] = field(default_factory=dict)  # for the stage to add to the manifest
    advance: Callable[[int, int, str], None] = lambda done, total, note: None
    byproducts: Mapping[str, Commit] = field(default_factory=dict)  # the wanted ones, by name
    name: str = ""  # of the stage
    logs: Path | None = None  # a folder for files that only people read

    def progress(self, done: int, total: int, note: str = "") -> None:
        """Report that `done` of `total` units are finished."""
        self.advance(done, total, note)

    def train(
        self,
        module: Any,
        steps: Callable[[int], Step],
        loss: Loss,
        spec: Training,
        *,
        workers: int = 0,
        **more: Any,
    ) -> dict[str, Any]:
        """Train `module` in place and return the result of `training.loop.train`.

        The loop gets the stage's checkpoints, progress and tracker. Threads, loss and smaller
        micro-batches than asked for are recorded in `facts`.
        """
        import torch

        from maskpolicy.core import hardware
        from maskpolicy.models.training.loop import tracked, train

        self.facts["threads"] = torch.get_num_threads()
        on_cpu = hardware.device().type == "cpu"
        with tracked(self.local.tracker, self.logs, slug(self.name), on_cpu) as log:
            done = train(
                module,
                steps,
                loss,
                spec,
                self.checkpoints,
                self.progress,
                workers=workers,
                log=log,
                name=self.name,
                **more,
            )
        self.facts["loss"] = done["loss"]
        if "shrunk" in done:
            self.facts["shrunk"] = done["shrunk"]
        return done
