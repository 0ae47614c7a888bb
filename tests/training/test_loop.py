"""The one loop: the mean over a whole step, and resumes that cannot be told from one run."""

from __future__ import annotations

import gc
import logging
import math
import re
import signal
from dataclasses import replace
from functools import partial

import pytest
import small
import torch

from maskpolicy.config.budgets import Training
from maskpolicy.errors import ConfigError, StageError
from maskpolicy.models.text_to_text_loss import token_loss
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.schema import Schedule
from maskpolicy.store.artifacts import Store
from maskpolicy.training.interfaces import Step
from maskpolicy.training.loop import train
from maskpolicy.training.optimization import rate
from maskpolicy.training.specials import Specials
from maskpolicy.training.steps import MaskedSteps
from maskpolicy.types import Denoising

SPEC = Training(
    steps=6,
    batch_size=4,
    lr=1e-2,
    warmup=2,
    precision="fp32",
    micro_tokens=80,
    checkpoint_every=1e9,
)


class Nothing:
    """Checkpoints of a run that is never interrupted."""

    def save(self, step, write):
        raise AssertionError("no checkpoint is due")

    def latest(self):
        return None


class Stop(Exception):
    """The interruption of a run."""


def masked(spec, name="random", ratio=0.3):
    policy = find_plugin("policy", name)
    specials = Specials.of(small.tokenizer())
    how = Denoising(**policy.facts)
    return MaskedSteps(small.passages(), policy.plugin(ratio=ratio), how, specials, spec)


def run(spec, checkpoints=None, model=None, steps=None, loss=token_loss, **options):
    """Train a small BART on masked passages; returns it and what was done."""
    model = model or small.bart(dropout=0.2)
    progress = options.pop("progress", lambda done, total, note: None)
    done = train(
        model, steps or masked(spec), loss, spec, checkpoints or Nothing(), progress, **options
    )
    return model, done


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def stop_after(last, done, module):
    if done == last:
        raise Stop


@pytest.mark.parametrize("micro_tokens", [1, 100, 300])
def test_the_gradient_does_not_depend_on_the_micro_batches(micro_tokens):
    spec = replace(SPEC, steps=1, schedule="constant", warmup=0, batch_size=8, max_grad_norm=0.0)
    found = []
    for budget in (10**6, micro_tokens):
        cut = replace(spec, micro_tokens=budget)
        gradients = []

        def keep(done, module, gradients=gradients):
            gradients.append(weights(module))

        model = small.bart()
        pairs = masked(cut)(0)
        model.eval()
        for batch in pairs.batches:
            loss, _ = token_loss(model, batch)
            (loss / pairs.units).backward()
        expected = torch.cat([p.grad.flatten() for p in model.parameters()])
        steps, _ = run(cut, model=small.bart(), steps=masked(cut), on_step=keep)
        found.append((len(pairs.batches), expected, weights(steps)))
    assert found[0][0] == 1 < found[1][0]
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-4, atol=1e-6)
    whole = found[0][1].abs() > 1e-5  # AdamW's first step is the sign of the gradient
    torch.testing.assert_close(found[0][2][whole], found[1][2][whole], rtol=1e-3, atol=1e-4)


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


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("every", [0, 2])
def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(precision, every, checkpoints):
    spec = replace(SPEC, steps=30, precision=precision, eval_every=every)
    validate = dev if every else None
    model, done = run(spec, validate=validate)
    hasty = replace(spec, checkpoint_every=1e-9)
    for last in (1, 4, 5, 27):
        with pytest.raises(Stop):
            run(hasty, checkpoints, validate=validate, on_step=partial(stop_after, last))
    again, finished = run(hasty, checkpoints, validate=validate)
    assert finished == done
    assert torch.equal(weights(again), weights(model))
    if every:
        assert done["best_step"] == 16  # the last interruption lies behind it


def signal_after(last, done, module):
    if done == last:
        signal.raise_signal(signal.SIGINT)


def test_control_c_saves_a_checkpoint_and_changes_no_bit(checkpoints, caplog):
    spec = replace(SPEC, steps=8)
    model, done = run(spec)
    for last in (3, 5):
        with pytest.raises(KeyboardInterrupt):
            run(spec, checkpoints, on_step=partial(signal_after, last))
        assert checkpoints.latest()[0] == last
    with caplog.at_level(logging.INFO):
        again, finished = run(spec, checkpoints, name="intermediate random")
    assert caplog.messages == ["intermediate random: continues after step 5 of 8"]
    assert finished == done
    assert torch.equal(weights(again), weights(model))


def test_control_c_in_the_last_step_loses_nothing(checkpoints):
    spec = replace(SPEC, steps=4)
    model, done = run(spec)
    with pytest.raises(KeyboardInterrupt):
        run(spec, checkpoints, on_step=partial(signal_after, 4))
    again, finished = run(spec, checkpoints, on_step=partial(stop_after, 4))  # takes no step
    assert finished == done
    assert torch.equal(weights(again), weights(model))


def test_a_schedule_resumes_and_stops_early_with_the_same_bits(checkpoints):
    spec, schedule = replace(SPEC, steps=8), Schedule(0.6, 0.1)
    steps, early = masked(spec, ratio=schedule), []
    whole, _ = run(spec, steps=steps, keep={3: lambda module, *_: early.append(weights(module))})
    stopped, _ = run(spec, steps=steps, until=3)
    assert torch.equal(weights(stopped), early[0])
    hasty = replace(spec, checkpoint_every=1e-9)
    with pytest.raises(Stop):
        run(hasty, checkpoints, steps=steps, on_step=partial(stop_after, 5))
    again, _ = run(hasty, checkpoints, steps=masked(spec, ratio=schedule))
    assert torch.equal(weights(again), weights(whole))


def test_dropout_is_drawn_anew_in_every_step():
    first, _ = run(SPEC)
    second, _ = run(SPEC)
    still, _ = run(SPEC, model=small.bart(dropout=0.0))
    assert torch.equal(weights(first), weights(second))
    assert not torch.equal(weights(first), weights(still))


def test_another_seed_trains_on_other_masks():
    first, _ = run(SPEC)
    second, _ = run(replace(SPEC, seed=1))
    assert not torch.equal(weights(first), weights(second))


def test_the_generator_of_the_caller_is_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run(replace(SPEC, steps=2))
    assert torch.equal(torch.rand(3), expected)


def test_work_is_counted_once_whatever_is_interrupted(checkpoints):
    _, done = run(SPEC)
    hasty = replace(SPEC, checkpoint_every=1e-9)
    with pytest.raises(Stop):
        run(hasty, checkpoints, on_step=partial(stop_after, 4))
    _, again = run(hasty, checkpoints)
    assert again["work"] == done["work"]
    assert done["work"]["passages"] == 24
    assert done["work"]["hidden_tokens"] > 0


def test_a_finished_training_is_not_trained_again(checkpoints):
    spec = replace(SPEC, steps=3, checkpoint_every=1e-9)
    with pytest.raises(Stop):
        run(replace(spec, steps=4), checkpoints, on_step=partial(stop_after, 4))
    seen = []
    _, done = run(spec, checkpoints, on_step=lambda number, module: seen.append(number))
    assert (done["steps"], seen) == (3, [])


def test_no_steps_leave_the_module_as_it_was():
    model, done = run(replace(SPEC, steps=0))
    assert torch.equal(weights(model), weights(small.bart()))
    assert (done["steps"], done["work"]) == (0, {})
    assert not model.training


def broken(module, batch):
    value, count = token_loss(module, batch)
    return value * math.nan, count


def test_a_loss_that_is_no_number_stops_the_stage():
    with pytest.raises(StageError, match=r"the loss became nan before step 6: lower lr \(now 0.01"):
        run(SPEC, loss=broken)


def test_a_loss_that_is_no_number_is_neither_judged_nor_kept_nor_written():
    spec = replace(SPEC, steps=20, eval_every=2, patience=1, checkpoint_every=1e-9)
    with pytest.raises(StageError, match="the loss became nan before step 2: lower lr"):
        run(spec, loss=broken, validate=lambda module: pytest.fail("was judged"))
    with pytest.raises(StageError, match="the loss became nan before step 1: lower lr"):
        run(spec, loss=broken, keep={1: lambda *_: pytest.fail("was kept")})


def cliff(module, batch):
    """A loss of 0 whose gradient is not a number."""
    return (0 * module.w).sqrt().sum(), 1


@pytest.mark.parametrize("options", [{}, {"keep": {1: lambda *_: pytest.fail("kept")}}])
def test_weights_that_are_no_numbers_stop_the_stage(options):
    spec, step = replace(SPEC, steps=1), Step([Scale(1.0)], 1)
    with pytest.raises(StageError, match="the weights became nan before step 1: lower lr"):
        run(spec, model=Line(), steps=lambda number: step, loss=cliff, **options)


def test_a_passage_may_be_hidden_whole():
    spec = replace(SPEC, steps=2)
    _, done = run(spec, steps=masked(spec, ratio=1.0))
    assert math.isfinite(done["loss"])


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
    snapshots = {}
    model, done = run(
        spec,
        validate=lambda module: next(scores),
        on_step=lambda number, module: snapshots.update({number: weights(module)}),
    )
    assert (done["steps"], done["best_step"], done["best_score"]) == (8, 4, 0.9)
    assert torch.equal(weights(model), snapshots[4])


def test_without_patience_all_steps_are_made_and_the_best_weights_stay():
    scores = iter([0.5, 0.4, 0.3])
    _, done = run(replace(SPEC, eval_every=2), validate=lambda module: next(scores))
    assert (done["steps"], done["best_step"]) == (6, 2)


def test_validation_sees_no_dropout_afterwards_training_does():
    modes = []

    def validate(module):
        module.eval()
        return 0.0

    run(
        replace(SPEC, eval_every=1),
        validate=validate,
        on_step=lambda number, module: modes.append(module.training),
    )
    assert modes == [True] * 6


def test_a_worker_beside_the_training_changes_nothing(tmp_path):
    model, done = run(SPEC)
    beside, same = run(SPEC, workers=1)
    assert same == done
    assert torch.equal(weights(beside), weights(model))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_making_a_step_keeps_its_line(workers):
    def steps(number):
        raise ConfigError("policy Mine, passage 'p7': wrong")

    with pytest.raises(ConfigError, match=r"^policy Mine, passage 'p7': wrong$"):
        run(SPEC, steps=steps, workers=workers)


def test_a_strange_error_in_a_worker_is_one_line():
    def steps(number):
        raise KeyError("entities")

    with pytest.raises(StageError, match=r"^KeyError: 'entities'$"):
        run(SPEC, steps=steps, workers=1)


def test_progress_comes_with_each_step_and_the_mean_loss_now_and_then():
    seen = []
    run(
        replace(SPEC, steps=27),
        progress=lambda done, total, note: seen.append((done, total, note[:5])),
    )
    assert [done for done, _, _ in seen] == list(range(28))
    assert {total for _, total, _ in seen} == {27}
    assert [note for _, _, note in seen] == [""] * 25 + ["loss "] * 3


def test_progress_has_the_tokens_of_a_second():
    seen = []
    run(replace(SPEC, steps=25), progress=lambda done, total, note: seen.append(note))
    assert re.fullmatch(r"loss [0-9.]+, [1-9][0-9]* tokens/s", seen[-1])


def test_memory_does_not_grow_with_the_steps():
    counts = []

    def count(number, module):
        if number in (10, 40):
            gc.collect()
            counts.append(sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects()))

    run(replace(SPEC, steps=40), on_step=count)
    assert counts[1] <= counts[0]


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


def test_a_compiled_training_compiles_its_loss(monkeypatch):
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    spec = replace(SPEC, steps=2, compile=True)
    run(spec, model=Line(), steps=lambda number: Step([Scale(2.0)], 1), loss=scaled)
    assert compiled
