"""The one training loop: means over steps, resumes, signals, memory, weights and trackers."""

import logging
import math
import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import get_args

import forked
import pytest
import small
import torch
from accelerate.tracking import LOGGER_TYPE_TO_CLASS
from refusals import refused

from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError, StageError
from maskpolicy.core.schema import Schedule
from maskpolicy.core.types import Denoising
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import Tracker
from maskpolicy.models import crossentropy
from maskpolicy.models.loading import set_dropout
from maskpolicy.models.text_to_text import token_loss
from maskpolicy.models.training import loop, optimization
from maskpolicy.models.training.batching import Step
from maskpolicy.models.training.loop import (
    check_installed,
    deferred,
    held_out_losses,
    tracked,
    train,
)
from maskpolicy.models.training.optimization import NoCheckpoints, Weights, rate
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import MaskedSteps
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins import discovery
from maskpolicy.plugins.discovery import find_plugin

SPEC = Training(
    steps=6,
    batch_size=4,
    lr=1e-2,
    warmup=2,
    precision="fp32",
    micro_tokens=80,
    checkpoint_every=1e9,
)


class Stop(Exception):
    """The interruption of a run."""


def masked(spec, name="random", ratio=0.3):
    policy = find_plugin("policy", name)
    specials = Specials.of(small.tokenizer())
    how = Denoising(**policy.facts)
    return MaskedSteps(small.passages(), policy.plugin(ratio=ratio), how, specials, spec)


def run(spec, checkpoints=None, model=None, steps=None, loss=token_loss, **options):
    """Train a small BART on masked passages; return it and the result of `train`."""
    model = model or small.bart(dropout=0.2)
    progress = options.pop("progress", lambda done, total, note: None)
    checkpoints = checkpoints or NoCheckpoints()
    done = train(model, steps or masked(spec), loss, spec, checkpoints, progress, **options)
    return model, done


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def stop_after(last, done, total, note):
    if done == last:
        raise Stop


def test_a_step_does_not_depend_on_the_micro_batches():
    # with such an eps, AdamW's first step is about the gradient and not its sign
    spec = replace(SPEC, steps=1, warmup=0, batch_size=8, max_grad_norm=0.0, eps=1.0)
    changes = []
    for budget in (10**6, 1):
        cut = replace(spec, micro_tokens=budget)
        assert (len(masked(cut)(0).batches) == 1) == (budget == 10**6)
        model, _ = run(cut, model=small.bart(), steps=masked(cut))
        changes.append(weights(model) - weights(small.bart()))
    assert changes[0].abs().max() > 1e-3
    torch.testing.assert_close(*changes, rtol=1e-3, atol=1e-6)


def test_the_loss_is_the_mean_over_the_tokens_of_the_step():
    spec = replace(SPEC, steps=1, batch_size=8, micro_tokens=100, lr=1e-9)
    step = masked(spec)(0)
    model = small.bart()
    sums = [token_loss(model.eval(), batch) for batch in step.batches]
    assert step.units == sum(count for _, count in sums)
    _, done = run(spec, model=small.bart())
    assert done["loss"] == pytest.approx(sum(s.item() for s, _ in sums) / step.units, rel=1e-4)


def test_a_step_without_any_target_leaves_no_trace_in_the_loss():
    spec = replace(SPEC, steps=2, weight_decay=0.0)
    _, done = run(spec, steps=masked(spec, ratio=0.0))
    assert done["loss"] == 0.0
    assert done["work"]["passages"] == 8
    assert done["work"]["passages_without_span"] == 8
    assert done["work"]["target_tokens"] == 0


@pytest.fixture
def checkpoints(tmp_path):
    """Return the checkpoints of a stage that this process works on."""
    store = Store(tmp_path / "store")
    with store.lock("0" * 64):
        yield store.checkpoints("0" * 64)


def dev(module):
    """Score by the weights themselves: best in the middle of the training."""
    total = float(module.lm_head.weight.detach().float().abs().sum())
    return -abs(total - 855)


@pytest.mark.parametrize(("precision", "every"), [("fp32", 0), ("bf16", 2)])
def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(precision, every, checkpoints):
    spec = replace(SPEC, steps=30, precision=precision, eval_every=every)
    validate = dev if every else None
    model, done = run(spec, validate=validate)
    hasty = replace(spec, checkpoint_every=1e-9)
    for last in (1, 5, 27):
        with pytest.raises(Stop):
            run(hasty, checkpoints, validate=validate, progress=partial(stop_after, last))
    again, finished = run(hasty, checkpoints, validate=validate)
    assert finished == done
    assert torch.equal(weights(again), weights(model))
    if every:
        assert done["best_step"] == 16  # the last interruption lies behind it


def signal_after(last, done, total, note):
    if done == last:
        signal.raise_signal(signal.SIGINT)


def test_control_c_saves_a_checkpoint_and_changes_no_bit(checkpoints, caplog):
    spec = replace(SPEC, steps=8)
    model, done = run(spec)
    for last in (3, 5):
        with pytest.raises(KeyboardInterrupt):
            run(spec, checkpoints, progress=partial(signal_after, last))
        assert checkpoints.latest()[0] == last
    with caplog.at_level(logging.INFO):
        again, finished = run(spec, checkpoints, name="intermediate random")
    assert caplog.messages == ["intermediate random: continues after step 5 of 8"]
    assert finished == done
    assert torch.equal(weights(again), weights(model))


def test_a_checkpoint_that_another_host_removes_is_read_no_more(checkpoints):
    spec = replace(SPEC, steps=8)
    model, done = run(spec)
    with pytest.raises(KeyboardInterrupt):
        run(spec, checkpoints, progress=partial(signal_after, 5))
    found = [checkpoints.latest()]
    checkpoints.clear()  # between the other's look and its reading
    again, finished = run(spec, SimpleNamespace(latest=lambda: found.pop() if found else None))
    assert finished == done and not found
    assert torch.equal(weights(again), weights(model))


def test_a_schedule_resumes_and_stops_early_with_the_same_bits(checkpoints):
    spec, schedule = replace(SPEC, steps=8), Schedule(0.6, 0.1)
    steps, early = masked(spec, ratio=schedule), []
    whole, _ = run(spec, steps=steps, keep={3: lambda module, *_: early.append(weights(module))})
    stopped, _ = run(spec, steps=steps, until=3)
    assert torch.equal(weights(stopped), early[0])
    hasty = replace(spec, checkpoint_every=1e-9)
    with pytest.raises(Stop):
        run(hasty, checkpoints, steps=steps, progress=partial(stop_after, 5))
    again, _ = run(hasty, checkpoints, steps=masked(spec, ratio=schedule))
    assert torch.equal(weights(again), weights(whole))


def test_the_generator_of_the_caller_is_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run(replace(SPEC, steps=2))
    assert torch.equal(torch.rand(3), expected)


def test_a_finished_training_is_not_trained_again(checkpoints):
    spec = replace(SPEC, steps=3, checkpoint_every=1e-9)
    with pytest.raises(Stop):
        run(replace(spec, steps=4), checkpoints, progress=partial(stop_after, 4))
    seen = []
    _, done = run(spec, checkpoints, progress=lambda number, *_: seen.append(number))
    assert (done["steps"], seen) == (3, [])


def broken(module, batch):
    value, count = token_loss(module, batch)
    return value * math.nan, count


def cliff(module, batch):
    """A loss of 0 whose gradient is not a number."""
    return (0 * module.w).sqrt().sum(), 1


@pytest.mark.parametrize(
    ("loss", "says"), [(broken, "loss became nan"), (cliff, "weights became nan")]
)
@pytest.mark.parametrize("is_kept", [False, True])
def test_nan_stops_the_stage_before_weights_are_kept_or_validated(loss, says, is_kept):
    def never(*given):
        pytest.fail("was called")

    options = {"keep": {1: never}, "validate": never} if is_kept else {}
    spec, step = replace(SPEC, steps=1, eval_every=1), Step([Scale(1.0)], 1)
    if loss is cliff:
        options |= {"model": Line(), "steps": lambda number: step}
    with pytest.raises(StageError, match=rf"the {says} before step 1: lower lr \(now 0.01"):
        run(spec, loss=loss, **options)


@pytest.mark.parametrize(
    ("schedule", "warmup", "steps", "expected"),
    [
        ("linear", 2, 6, [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]),
        ("linear", 0, 2, [1.0, 0.5]),
        ("constant", 2, 4, [0.5, 1.0, 1.0, 1.0]),
        ("cosine", 0, 4, [1.0, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5]),
        ("linear", 4, 4, [0.25, 0.5, 0.75, 1.0]),
        ("linear", 8, 4, [0.125, 0.25, 0.375, 0.5]),
        ("linear", 0, 1, [1.0]),
    ],
)
def test_the_rate_warms_up_and_falls(schedule, warmup, steps, expected):
    spec = Training(steps=steps, lr=1.0, warmup=warmup, schedule=schedule)
    assert [rate(spec, step) for step in range(steps)] == pytest.approx(expected)


def test_patience_ends_a_training_and_the_best_weights_stay():
    scores = iter([0.1, 0.9, 0.3, 0.9, 0.2])
    spec = replace(SPEC, steps=20, eval_every=2, patience=2)
    model, snapshots = small.bart(dropout=0.2), {}
    _, done = run(
        spec,
        model=model,
        validate=lambda module: next(scores),
        progress=lambda number, *_: snapshots.update({number: weights(model)}),
    )
    assert (done["steps"], done["best_step"], done["best_score"]) == (8, 4, 0.9)
    assert done["loss"] > 0
    assert torch.equal(weights(model), snapshots[4])


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_making_a_step_keeps_its_line(workers):
    def steps(number):
        raise ConfigError("policy Mine, passage 'p7': wrong")

    with pytest.raises(ConfigError, match=r"^policy Mine, passage 'p7': wrong$"):
        run(SPEC, steps=steps, workers=workers)


def test_a_gpu_gets_its_steps_from_two_processes_if_they_can_pass_them_on(monkeypatch, caplog):
    monkeypatch.setitem(loop.WORKERS, "cpu", loop.WORKERS["cuda"])
    made_by = set()

    def loss(module, batch):
        made_by.add(batch.scale)
        return 0 * module.w.sum(), 1

    monkeypatch.setattr(hardware, "shared_memory", lambda: 2**40)
    steps = {"steps": lambda number: Step([Scale(os.getpid())], 1)}
    run(SPEC, model=Line(), loss=loss, **steps)
    assert len(made_by - {os.getpid()}) == 2
    made_by.clear()
    monkeypatch.setattr(hardware, "shared_memory", lambda: 64 << 20)  # Docker's default
    run(SPEC, model=Line(), loss=loss, **steps)
    assert made_by == {os.getpid()} and "/dev/shm has 64 MiB" in caplog.text


def test_workers_that_are_not_forked_import_the_plugins(tmp_path, monkeypatch):
    default = multiprocessing.context._default_context
    monkeypatch.setattr(default, "_actual_context", forked.context())
    (tmp_path / "apart.py").write_text(small.POLICY.format(name="apart"))
    policy = discovery.load_file(tmp_path / "apart.py").Mine()
    steps = MaskedSteps(small.passages(), policy, Denoising(), Specials.of(small.tokenizer()), SPEC)
    found = dict(loop.prefetch(steps, 0, 2, 1))
    assert [found[number].work for number in (0, 1)] == [steps(number).work for number in (0, 1)]


def test_progress_comes_with_each_step_and_the_mean_loss_now_and_then():
    seen = []
    run(
        replace(SPEC, steps=27),
        progress=lambda done, total, note: seen.append((done, total, note[:5])),
    )
    assert [done for done, _, _ in seen] == list(range(28))
    assert {total for _, total, _ in seen} == {27}
    assert [note for _, _, note in seen] == [""] * 25 + ["loss "] * 3


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(2, 2))


class Scale:
    """A micro-batch that scales a gradient of ones."""

    def __init__(self, scale):
        self.scale = scale

    def to(self, device):
        return self


def scaled(module, batch):
    return batch.scale * module.w.sum(), 1


def test_clipping_bounds_the_gradient_of_every_step():
    def ends(clip, *scales):
        spec = replace(SPEC, steps=len(scales), max_grad_norm=clip)
        steps = [Step([Scale(scale)], 1) for scale in scales]
        model, _ = run(spec, model=Line(), steps=steps.__getitem__, loss=scaled)
        return model.w.flatten().tolist()

    assert ends(0.5, 1, 100, 3) == pytest.approx(ends(0.5, 9, 1, 700), rel=1e-5)
    assert ends(0.0, 1, 100, 3) != pytest.approx(ends(0.0, 9, 1, 700), rel=1e-2)


@pytest.mark.parametrize(
    ("speed", "every"),
    [(5e9, 6), (0.1e9, 84)],
    ids=lambda value: f"{value / 1e9} GB/s" if value > 1e6 else f"every {value} steps",
)
def test_checkpoints_take_two_percent_of_the_time(speed, every, monkeypatch, tmp_path):
    """The clock charges ten seconds for a step, and 1.67 GB for a checkpoint, as of BART-base."""
    now, saved = [0.0], []

    def save(done, write):
        write(tmp_path)
        now[0] += 1.67e9 * (tmp_path / "state.safetensors").is_file() / speed
        saved.append(done)

    def pass_time(done, total, note):
        now[0] += 10

    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now[0]))
    steps = [Step([Scale(1.0)], 1)] * 180
    checkpoints = SimpleNamespace(latest=lambda: None, save=save)
    spec = replace(SPEC, steps=len(steps), checkpoint_every=55.0)
    run(spec, checkpoints, Line(), steps.__getitem__, scaled, progress=pass_time)
    assert saved == list(range(6, len(steps), every))  # before the first one, no cost is known
    assert 0 < (len(saved) - 1) * 1.67e9 / speed < 0.02 * now[0]


def test_a_compiled_training_compiles_its_loss(monkeypatch):
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    spec = replace(SPEC, steps=2, compile=True)
    steps = [Step([Scale(2.0)], 1)] * 2
    model, _ = run(spec, model=Line(), steps=steps.__getitem__, loss=scaled)
    assert compiled
    torch._dynamo.reset()
    monkeypatch.undo()
    broken = partial(torch.compile, backend=lambda graph, inputs: 1 / 0)
    monkeypatch.setattr(torch, "compile", broken)  # a training goes on without it
    other, _ = run(spec, model=Line(), steps=steps.__getitem__, loss=scaled)
    assert torch.equal(weights(model), weights(other))


MEMORY = Training(steps=4, batch_size=4, warmup=2, precision="fp32", micro_tokens=1000)
MOST = 100  # padded tokens of a micro-batch for which there is memory


def size(batch):
    return batch.source.numel() + batch.labels.numel()


@pytest.mark.parametrize(
    ("error", "is_meant"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), True),
        (RuntimeError("CUDA error: out of memory\nCompile with"), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (ValueError("error: out of memory"), False),
    ],
)
def test_errors_that_mean_too_little_memory(error, is_meant):
    assert hardware.ran_out(error) is is_meant


def ran_out(*given):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


class Scarce(torch.autograd.Function):
    """A number that is passed on; its gradient needs more memory than there is."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        ran_out()


def scarce(module, batch, where="forward", first=0, seen=None):
    """Raise as PyTorch does above a size, from the micro-batch number `first` on."""
    value, count = token_loss(module, batch)
    if seen is not None:
        seen.append(size(batch))
    if size(batch) <= MOST or len(seen or ()) < first:
        return value, count
    if where == "backward":
        return Scarce.apply(value), count
    return ran_out()


def run_scarce(spec, loss, checkpoints=None, dropout=0.2, **options):
    """Train a small BART with dropout; return its weights and the result of `train`."""
    model, done = run(spec, checkpoints, small.bart(dropout=dropout), loss=loss, **options)
    return weights(model), done


@pytest.mark.parametrize(("where", "workers"), [("forward", 1), ("backward", 0)])
def test_after_memory_ran_out_the_bytes_are_those_of_smaller_micro_batches(where, workers, caplog):
    found, done = run_scarce(MEMORY, partial(scarce, where=where), workers=workers, name="general")
    shrunk = done.pop("shrunk")
    assert shrunk["step"] == 1
    line = f"micro_tokens={shrunk['micro_tokens']} instead of"
    assert [line in told for told in caplog.messages][-1:] == [True]
    assert shrunk["micro_tokens"] < MEMORY.micro_tokens
    expected, plain = run_scarce(replace(MEMORY, micro_tokens=shrunk["micro_tokens"]), token_loss)
    assert torch.equal(found, expected)
    assert done == plain


class Late:
    """Checkpoints whose first one is written after further steps, in a folder for each step."""

    def __init__(self, folder, fails=False, until=4):
        self.folder, self.may_write = folder, threading.Event()
        self.fails, self.until = fails, until

    def latest(self):
        return None

    def save(self, step, write):
        if threading.current_thread() is not threading.main_thread():
            assert self.may_write.wait(60)
        if self.fails:
            raise StageError("the disk is full")
        (self.folder / str(step)).mkdir()
        write(self.folder / str(step))

    def go_on(self, done, total, note):
        if done == self.until:
            self.may_write.set()


def test_a_checkpoint_that_is_written_during_later_steps_has_the_same_bytes(monkeypatch, tmp_path):
    spec, saved = replace(SPEC, checkpoint_every=1e-9), {}
    for name in ("at once", "later"):
        (tmp_path / name).mkdir()
        late = Late(tmp_path / name)
        run(spec, late, progress=late.go_on)
        files = [path for path in late.folder.rglob("*") if path.is_file()]
        saved[name] = {str(path.relative_to(late.folder)): path.read_bytes() for path in files}
        monkeypatch.setattr(loop, "_IN_THREAD", ("cpu",))
    assert {"1/state.safetensors", "1/state.json"} <= set(saved["later"]) < set(saved["at once"])
    assert saved["later"].items() <= saved["at once"].items()
    for step in (4, spec.steps):  # the next checkpoint says so, or the end of the training
        late = Late(tmp_path, fails=True, until=step)
        with pytest.raises(StageError, match="the disk is full"):
            run(spec, late, progress=late.go_on)


def test_all_that_is_done_on_a_gpu_together_gives_the_same_training(monkeypatch, checkpoints):
    """Buckets, one graph, the loss in chunks, gaps, bf16, memory's micro_tokens, a thread."""
    spec = replace(SPEC, steps=4, batch_size=8, precision="bf16", lr=1e-3)
    spec = replace(spec, max_source=8, max_target=8)  # few shapes: each is compiled for seconds
    expected, plain = run(spec, model=small.bart(), steps=masked(spec, "original"))
    monkeypatch.setattr(loop, "_IN_THREAD", ("cpu",))
    monkeypatch.setitem(optimization._APART, "cpu", 64)
    monkeypatch.setattr(optimization.Optimization, "fitting_tokens", lambda run: 32)
    monkeypatch.setattr(crossentropy, "in_chunks", lambda states: True)
    monkeypatch.setattr(crossentropy, "_AT_ONCE", 384 * 8)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    there = replace(spec, compile=True, micro_tokens=0, checkpoint_every=1e-9)
    steps = masked(there, "original")
    with pytest.raises(Stop):
        run(there, checkpoints, small.bart(), steps, progress=partial(stop_after, 3))
    assert 0 < checkpoints.latest()[0] < 3
    model, done = run(there, checkpoints, small.bart(), steps)
    assert done["work"] == plain["work"]
    assert done["loss"] == pytest.approx(plain["loss"], rel=1e-2)
    moved = weights(expected) - weights(small.bart())
    assert (weights(model) - weights(expected)).norm() < 0.2 * moved.norm()


def test_earlier_steps_stay_as_they_were_and_later_ones_have_the_same_gradient():
    seen, whole = [], []
    _, expected = run_scarce(MEMORY, partial(scarce, first=10**9, seen=whole), dropout=0.0)
    _, done = run_scarce(MEMORY, partial(scarce, first=3, seen=seen), dropout=0.0)
    assert seen[:3] == whole[:3]
    assert max(seen[3:]) < max(whole)
    assert done.pop("shrunk")["step"] == 3
    assert done.pop("loss") == pytest.approx(expected.pop("loss"), rel=1e-4)  # of all four steps
    assert done == expected


def test_a_resumed_training_keeps_its_smaller_micro_batches(checkpoints):
    """Memory runs out before the interruption alone, and the bytes are those without it."""
    spec = replace(MEMORY, checkpoint_every=1e-9)
    expected, done = run_scarce(MEMORY, partial(scarce, first=3, seen=[]))
    with pytest.raises(Stop):
        stop = partial(stop_after, 4)
        run_scarce(spec, partial(scarce, first=3, seen=[]), checkpoints, progress=stop)
    assert checkpoints.latest()[0] == 3
    found, again = run_scarce(spec, token_loss, checkpoints)
    assert torch.equal(found, expected)
    assert again == done


def kept(module, batch):
    """Return the bytes that a loss keeps for its backward pass, without the weights."""
    weights = {p.untyped_storage().data_ptr() for p in module.parameters()}
    tensors = {}

    def keep(tensor):
        tensors[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        token_loss(module.train(), batch)
    own = (t for place, t in tensors.items() if place not in weights)
    return sum(t.untyped_storage().nbytes() for t in own)


def test_micro_batches_grow_with_the_memory_of_a_gpu_and_fit(monkeypatch):
    model = small.bart(
        **{"d_model": 64, "encoder_layers": 3, "decoder_layers": 3, "encoder_ffn_dim": 256},
        **{"decoder_ffn_dim": 256, "dropout": 0.1, "attn_implementation": "sdpa"},
    )
    rows = [(range(5, 55), range(5, 45), None)] * 40
    batch, gpu = small.batch(rows, 2), SimpleNamespace(type="cuda")
    chosen = []
    for free in (0, 2**30, 2**33, 2**35):
        run = optimization.Optimization(model, replace(SPEC, precision="bf16", micro_tokens=0), 1)
        assert run.fitting_tokens() == 32768
        monkeypatch.setattr(run, "device", gpu)
        monkeypatch.setattr(optimization.hardware, "free_gpu_memory", lambda free=free: free)
        chosen.append(run.fitting_tokens())
        run.weights.release()
    assert chosen == [4096, 32768, 262144, 1048576]
    of_token = kept(model.bfloat16(), batch) / (batch.source.numel() + batch.labels.numel())
    assert 2**35 / 8 < of_token * chosen[-1] < 2**35


def test_a_training_without_micro_tokens_gets_those_that_fit(monkeypatch):
    monkeypatch.setattr(optimization.Optimization, "fitting_tokens", lambda run: 64)
    model, _ = run(replace(SPEC, micro_tokens=0))
    expected, _ = run(replace(SPEC, micro_tokens=64))
    assert len(masked(replace(SPEC, micro_tokens=64))(0).batches) > 1
    assert torch.equal(weights(model), weights(expected))


def test_memory_that_smaller_micro_batches_do_not_save_raises_one_line(monkeypatch):
    said = "memory ran out in step 1, whose micro-batches cannot be"
    refused(run_scarce, MEMORY, ran_out, error=StageError, match=said)
    monkeypatch.setattr(torch.optim.AdamW, "step", ran_out)
    said = "memory ran out for the optimizer in step 1, where"
    refused(run_scarce, MEMORY, token_loss, error=StageError, match=said)


class Ended(Exception):
    """What the handler of a test raises."""


@pytest.fixture
def handled():
    def end(number, frame):
        raise Ended(number)

    numbers = (signal.SIGTERM, signal.SIGUSR2)
    before = {number: signal.signal(number, end) for number in numbers}
    yield end
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_the_first_signal_waits_for_the_end_and_a_second_one_acts_at_once(number, handled):
    reached = []
    for twice in (False, True):
        with pytest.raises(Ended, match=str(int(number))), deferred() as has_come:
            reached.append(has_come())
            signal.raise_signal(number)
            reached.append(has_come())
            if twice:
                signal.raise_signal(number)
                reached.append("not reached")
    assert reached == [False, True] * 2
    assert signal.getsignal(number) is handled


def test_ignored_signals_and_those_of_other_threads_are_not_deferred(handled):
    before, came = signal.signal(signal.SIGHUP, signal.SIG_IGN), []

    def work():
        with deferred() as has_come:
            signal.raise_signal(signal.SIGHUP)
            came.append(has_come())

    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    signal.signal(signal.SIGHUP, before)
    assert came == [False, False]
    with pytest.raises(Ended), deferred(enabled=False):
        signal.raise_signal(signal.SIGTERM)


def test_losses_are_summed_step_by_step_without_dropout():
    model = small.bart()
    set_dropout(model, 0.5)
    steps = masked(replace(SPEC, micro_tokens=40), ratio=0.5)
    assert len(steps(0).batches) > 1
    told = []
    sums, tokens = held_out_losses(
        model.train(), token_loss, steps, 2, lambda *how: told.append(how)
    )
    assert tokens == [steps(0).units, steps(1).units]
    assert told == [(1, 2, ""), (2, 2, "")]
    assert not model.training
    for number in range(2):
        with torch.no_grad():
            expected = sum(token_loss(model, each)[0].item() for each in steps(number).batches)
        assert sums[number] == pytest.approx(expected, rel=1e-6)


class Mixed(torch.nn.Module):
    """A matrix, a vector, a frozen matrix and a buffer."""

    def __init__(self):
        super().__init__()
        self.frozen = torch.nn.Parameter(torch.randn(3, 3), requires_grad=False)
        self.linear = torch.nn.Linear(3, 2)
        self.register_buffer("table", torch.randn(4))
        self.register_buffer("count", torch.tensor(0))


def state(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


@pytest.mark.parametrize("bf16", [False, True])
def test_released_weights_equal_the_master_and_the_others_come_back_unrounded(bf16):
    module = Mixed()
    untrained = {name: state(module)[name] for name in ("frozen", "table", "count")}
    weights = Weights(module, bf16)
    weights.master.add_(torch.linspace(-1e-3, 1e-3, len(weights.master)))  # bf16 rounds it away
    weights.spread()
    weights.release()
    parts = weights.master.split([p.numel() for p in weights.parameters])
    assert {p.dtype for p in module.parameters()} == {torch.float32}
    assert all(p.grad is None for p in module.parameters())
    expected = untrained | dict(zip(weights.names, parts, strict=True))
    before = state(module)
    assert before.keys() == expected.keys()
    assert all(
        torch.equal(value.flatten(), expected[name].flatten()) for name, value in before.items()
    )
    assert all(before[name].dtype == value.dtype for name, value in untrained.items())
    weights.master.zero_()
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


@pytest.mark.parametrize("bf16", [False, True])
def test_gradients_arrive_at_the_master_and_are_forgotten(bf16):
    module = Mixed()
    weights = Weights(module, bf16)
    for _ in range(2):
        for number in range(2):
            inputs = torch.full((3,), (256.0, 1.0)[number], dtype=module.linear.weight.dtype)
            module.linear(inputs).sum().backward()
            weights.collect(is_first=not number)
        assert weights.gradient.tolist() == [257.0] * 6 + [2.0] * 2  # in bf16, 257 would be 256
        weights.spread()


def test_gaps_before_parameters_change_neither_the_steps_nor_a_checkpoint(monkeypatch, checkpoints):
    """On a GPU, all parameters start at 128 bytes; here, the state crosses from and to a GPU."""
    spec, scores = replace(SPEC, eval_every=1), count()
    choose = {"validate": lambda module: next(scores)}
    expected, done = run(spec, **choose)
    spec = replace(spec, checkpoint_every=1e-9)
    for place, last in enumerate((2, 4, 99)):
        monkeypatch.setitem(optimization._APART, "cpu", (64, 1, 64)[place])
        with suppress(Stop):
            model, again = run(spec, checkpoints, progress=partial(stop_after, last), **choose)
    torch.testing.assert_close(weights(model), weights(expected), rtol=1e-4, atol=1e-6)
    assert again["steps"] == again["best_step"] == done["steps"]
    spaced, model = Weights(small.bart(), True), small.bart()
    assert len(spaced.master) > len(Weights(model, False).packed()) == len(spaced.packed())
    starts = {p.data_ptr() - spaced.computed.data_ptr() for p in spaced.parameters}
    starts |= {p.grad.data_ptr() - spaced.collected.data_ptr() for p in spaced.parameters}
    assert all(start % 128 == 0 for start in starts)


def test_vectors_have_no_weight_decay():
    weights = Weights(Mixed(), False)
    assert weights.names == ["linear.weight", "linear.bias"]
    assert (weights.decayed.numel(), weights.plain.numel()) == (6, 2)
    weights.plain.data.fill_(7)
    assert weights.master[6:].tolist() == [7, 7]


def test_trackers_have_the_names_of_accelerate():
    assert sorted(get_args(Tracker)) == sorted(LOGGER_TYPE_TO_CLASS)


def test_a_folder_that_cannot_be_made_gives_one_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with (
        caplog.at_level(logging.WARNING, "maskpolicy"),
        tracked("tensorboard", tmp_path / "file" / "logs", "mine", cpu=True) as log,
    ):
        log(1, {"loss": 1.0})
    assert len(caplog.messages) == 1
    assert "tracker tensorboard is off" in caplog.messages[0]


def test_a_tracker_that_is_not_installed_raises(monkeypatch):
    check_installed(None)
    monkeypatch.setattr("accelerate.tracking.get_available_trackers", lambda: [])
    with pytest.raises(ConfigError, match=r"comet_ml is not installed: run `pip install comet-ml`"):
        check_installed("comet_ml")
