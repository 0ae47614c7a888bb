"""Memory runs out in a micro-batch: the step is repeated with smaller ones."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import small
import torch

from maskpolicy.config.budgets import Training
from maskpolicy.errors import StageError
from maskpolicy.models.text_to_text_loss import token_loss
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.store.artifacts import Store
from maskpolicy.training.interfaces import Step
from maskpolicy.training.loop import train
from maskpolicy.training.specials import Specials
from maskpolicy.training.steps import MaskedSteps
from maskpolicy.types import Denoising

SPEC = Training(steps=4, batch_size=4, warmup=2, precision="fp32", micro_tokens=1000)
MOST = 100  # padded tokens of a micro-batch for which there is memory


class Stop(Exception):
    """The interruption of a run."""


def masked(spec):
    """Return steps in which a random policy masks short passages."""
    policy = find_plugin("policy", "random")
    how, specials = Denoising(**policy.facts), Specials.of(small.tokenizer())
    return MaskedSteps(small.passages(), policy.plugin(ratio=0.3), how, specials, spec)


def size(batch):
    return batch.source.numel() + batch.labels.numel()


class Scarce(torch.autograd.Function):
    """A number that is passed on; its gradient needs more memory than there is."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def scarce(module, batch, where="forward", first=0, seen=None):
    """Raise as PyTorch does above a size, from the micro-batch number `first` on."""
    value, count = token_loss(module, batch)
    if seen is not None:
        seen.append(size(batch))
    if size(batch) <= MOST or len(seen or ()) < first:
        return value, count
    if where == "backward":
        return Scarce.apply(value), count
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def run(spec, loss, checkpoints=None, steps=None, dropout=0.2, **options):
    """Train a small BART with dropout; returns its weights and what was done."""

    class Nothing:
        def latest(self):
            return None

    model = small.bart(dropout=dropout)
    steps, kept = steps or masked(spec), checkpoints or Nothing()
    done = train(model, steps, loss, spec, kept, lambda *_: None, **options)
    return torch.cat([p.detach().flatten() for p in model.parameters()]), done


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_the_bytes_are_those_of_smaller_micro_batches_from_that_step_on(where, workers, caplog):
    found, done = run(SPEC, partial(scarce, where=where), workers=workers, name="general")
    shrunk = done.pop("shrunk")
    assert shrunk["step"] == 1
    line = f"micro_tokens={shrunk['micro_tokens']} instead of"
    assert [line in told for told in caplog.messages][-1:] == [True]
    assert shrunk["micro_tokens"] < SPEC.micro_tokens
    expected, plain = run(replace(SPEC, micro_tokens=shrunk["micro_tokens"]), token_loss)
    assert torch.equal(found, expected)
    assert done == plain


def test_earlier_steps_stay_as_they_were_and_later_ones_have_the_same_gradient():
    seen, whole = [], []
    _, expected = run(SPEC, partial(scarce, first=10**9, seen=whole), dropout=0.0)
    _, done = run(SPEC, partial(scarce, first=3, seen=seen), dropout=0.0)
    assert seen[:3] == whole[:3]
    assert max(seen[3:]) < max(whole)
    assert done.pop("shrunk")["step"] == 3
    assert done.pop("loss") == pytest.approx(expected.pop("loss"), rel=1e-4)  # of all four steps
    assert done == expected


def test_a_resumed_training_keeps_what_memory_allowed(tmp_path):
    """Memory runs out before the interruption alone, and the bytes are those without it."""

    def stop_after(last, done, module):
        if done == last:
            raise Stop

    spec = replace(SPEC, checkpoint_every=1e-9)
    expected, done = run(SPEC, partial(scarce, first=3, seen=[]))
    store = Store(tmp_path / "store")
    with store.lock("0" * 64):
        checkpoints = store.checkpoints("0" * 64)
        with pytest.raises(Stop):
            stop = partial(stop_after, 4)
            run(spec, partial(scarce, first=3, seen=[]), checkpoints, on_step=stop)
        assert checkpoints.latest()[0] == 3
        found, again = run(spec, token_loss, checkpoints)
    assert torch.equal(found, expected)
    assert again == done


def test_one_example_that_does_not_fit_is_one_line():
    def never(module, batch):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    with pytest.raises(StageError, match="memory ran out in step 1, whose micro-batches cannot be"):
        run(SPEC, never)


def test_steps_of_a_function_cannot_be_divided():
    step = masked(SPEC)(0)
    with pytest.raises(StageError, match="cannot be smaller"):
        run(SPEC, scarce, steps=lambda number: Step(step.batches, step.units))


def test_memory_that_runs_out_in_the_optimizer_is_one_line(monkeypatch):
    def never(optimizer):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(torch.optim.AdamW, "step", never)
    with pytest.raises(StageError, match="memory ran out for the optimizer in step 1, where") as it:
        run(SPEC, token_loss)
    assert "\n" not in str(it.value)


def test_other_errors_stay_errors():
    def wrong(module, batch):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes"):
        run(SPEC, wrong)


REAL = """
import resource, sys
import torch
from dataclasses import dataclass, replace
from maskpolicy.config.budgets import Training
from maskpolicy.training.batching import Pairs, Pair
from maskpolicy.training.interfaces import Step
from maskpolicy.training.loop import train

@dataclass(frozen=True)
class Rows:
    spec: Training
    def __call__(self, number):
        count = max(1, 64 // self.spec.micro_tokens)
        return Step(list(torch.ones(64, 1 << 20).chunk(count)), 64)

class Wide(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(1))

def loss(module, batch):
    return ((batch * module.w) ** 2).mean(1).sum(), len(batch)

class Nothing:
    def latest(self):
        return None

torch.set_num_threads(1)
spec = Training(steps=1, warmup=0, precision="fp32", micro_tokens=64)
train(Wide(), Rows(replace(spec, micro_tokens=1)), loss, spec, Nothing(), lambda *_: None)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (900 << 20)  # the data of a step are 256 MB
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
done = train(Wide(), Rows(spec), loss, spec, Nothing(), lambda *_: None, name="wide")
print(done["shrunk"], done["loss"])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process")
def test_a_cpu_without_memory_goes_on_with_less():
    done = subprocess.run([sys.executable, "-c", REAL], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "'step': 1} 1.0" in done.stdout
