"""A training that several processes compute together, and ways for it to fail."""

import json
import math
import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

from maskpolicy.core.errors import DataError, StageError
from maskpolicy.models.training.loop import held_out_losses
from maskpolicy.pipeline.graph.nodes import Local, stage


@dataclass(frozen=True, kw_only=True)
class GroupLocal(Local):
    """A fault: `how` at step `at` of process 1, once; a folder of `notes` remembers it."""

    how: str = ""
    at: int = 0
    notes: str = ""


def _fail(local, notes):
    if not (notes / "failed").exists():
        (notes / "failed").touch()
        if local.how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if local.how == "wrong":
            raise DataError("row 7 of it.jsonl has no answer")
        if local.how == "waits":
            time.sleep(600)


@dataclass(frozen=True)
class Loop:
    """A training: how many steps, and after how many of them it is validated (0: never)."""

    steps: int
    every: int = 0


@stage("grouped-training")
def train(params: Loop, inputs, out, run):
    """Train a small model; each process keeps its weights and its record in the notes."""
    import small
    import torch
    from safetensors.torch import save_file

    from tests.models import test_loop as alone

    rank, notes = torch.distributed.get_rank(), Path(run.local.notes)
    scores = iter([0.5 + rank, 0.9 - rank, 0.2, 0.1])
    saved = run.checkpoints.latest()
    (notes / f"pid{rank}").write_text(str(os.getpid()))
    with (notes / "starts").open("a") as file:
        file.write(f"{rank}: {saved[0] if saved else 0}\n")

    def fail(where):
        if rank == 1 and run.local.how == where:
            raise StageError("the outer loss of example 'q7' became nan")

    def loss(module, batch):
        fail("loss")
        value, units = alone.token_loss(module, batch)
        return (value * math.nan if run.local.how == "diverges" else value), units

    def validate(module):
        fail("validate")
        own = []

        def note(done, *_):
            own.append(done)
            fail("share")

        _, units = held_out_losses(module, alone.token_loss, alone.masked(spec), 3, note)
        (notes / f"validated{rank}").write_text(json.dumps([own, units]))
        return next(scores)

    def progress(done, total, note):
        if rank == 1 and done == run.local.at:
            _fail(run.local, notes)

    about = {"steps": params.steps, "batch_size": 8, "eval_every": params.every}
    spec = replace(alone.SPEC, checkpoint_every=1e-9, **about)
    options = {"loss": loss, "validate": validate if params.every else None, "progress": progress}
    options["keep"] = {int(name): print for name in run.byproducts}
    try:
        model, done = alone.run(spec, run.checkpoints, small.bart(dropout=0.2), **options)
    except StageError as error:
        (notes / f"raised{rank}").write_text(str(error))
        raise
    save_file({"w": alone.weights(model)}, notes / f"{rank}.safetensors")
    (notes / f"{rank}.json").write_text(json.dumps(done))
    (out / "done.json").write_text(json.dumps(done))
    run.facts["threads"] = torch.get_num_threads()
