"""The episode: its gradient, its noise, and what it leaves behind."""

from __future__ import annotations

import ctypes
import gc
from dataclasses import replace

import pytest
import small
import torch

from maskpolicy.config.budgets import Training
from maskpolicy.errors import ConfigError, StageError
from maskpolicy.learned.episodes import Episode, EpisodeSteps, Question, temperature, usable
from maskpolicy.learned.innerloop import BACKENDS, Inner, Lesson, backend, higher
from maskpolicy.learned.meta import EpisodeLoss, mean_outer_loss, relaxed
from maskpolicy.training.loop import train
from maskpolicy.training.specials import Specials
from maskpolicy.training.steps import ExampleSteps
from maskpolicy.types import Denoising, Example

SPECIALS = Specials.of(small.tokenizer())
SPEC = Training(steps=4, batch_size=2, lr=1e-2, warmup=0, precision="fp32", checkpoint_every=1e9)
EPISODE = Episode(candidates=3)
INNER = Inner("sgd", 0.05, 0.03)


class Words(torch.nn.Module):
    """A policy network: the score of a word is the sum of its tokens' weights."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(len(small.tokenizer()), 1)
        torch.nn.init.normal_(self.table.weight, generator=torch.Generator().manual_seed(0))


def score(module, passages, k):
    found = []
    for passage in passages:
        weights = module.table(torch.from_numpy(passage.tokens).long())[:, 0]
        spans = passage.words[:k]
        found.append((spans, torch.stack([weights[a:b].sum() for a, b in spans.tolist()])))
    return found


def questions():
    """Return four questions, two of them about the same text."""
    texts = [*small.TEXTS[:3], small.TEXTS[0]]
    examples = [Example(f"q{i}", "", f"Who? {i}", (f"Anna {i}",)) for i in range(4)]
    pairs = ExampleSteps.of(examples, small.tokenizer(), SPECIALS, SPEC).pairs
    return [
        Question(example.id, small.passage(text), pair)
        for example, text, pair in zip(examples, texts, pairs, strict=True)
    ]


def steps(episode=EPISODE, spec=SPEC, asked=None):
    return EpisodeSteps(asked or questions(), episode, SPECIALS, spec)


def made(name="functional", episode=EPISODE, inner=INNER, dtype=torch.float64, how=None):
    model = small.bart().to(dtype).eval()
    model.set_attn_implementation("eager")
    return EpisodeLoss(model, score, how or Denoising(), episode, inner, name, SPECIALS, SPEC)


def gradient(loss, module, episodes):
    total = torch.zeros(())
    for group in episodes:
        value, count = loss(module, group)
        assert count == len(group.passages)
        total = total + value
    module.zero_grad()
    total.backward()
    return module.table.weight.grad[:, 0].clone()


@pytest.mark.parametrize("sharing", [1, 2])
@pytest.mark.parametrize("hard", [True, False])
def test_both_back_ends_have_the_same_gradient_of_the_policy(hard, sharing):
    episode = replace(EPISODE, hard=hard, sharing=sharing)
    groups = steps(episode)(0).batches
    assert len(groups) == 2 // sharing
    found = [gradient(made(name, episode), Words().double(), groups) for name in BACKENDS]
    assert found[0].abs().max() > 1e-5
    torch.testing.assert_close(*found, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("name", BACKENDS)
def test_without_hard_the_gradient_is_that_of_central_differences(name):
    episode = replace(EPISODE, hard=False)
    groups, module = steps(episode)(0).batches, Words().double()
    loss = made(name, episode)
    found = gradient(loss, module, groups)
    weights = module.table.weight.data[:, 0]
    checked = found.abs().argsort(descending=True)[:4].tolist()
    for place in checked:
        ends = []
        for step in (1e-4, -1e-4):
            weights[place] += step
            ends.append(sum(loss(module, group)[0].item() for group in groups))
            weights[place] -= step
        assert found[place].item() == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-5)


def test_with_hard_the_gradient_is_that_of_w_times_that_of_the_softmax():
    (group,) = steps(EPISODE, replace(SPEC, batch_size=1))(1).batches
    module, loss = Words().double(), made()
    found = gradient(loss, module, [group])

    ((spans, scores),) = score(module, group.passages, 3)
    noisy = (scores + group.noise[0]) / group.temperature
    one_hot = torch.eye(3, dtype=torch.float64)[noisy.argmax()]
    candidates = loss._candidates(group, [spans])
    lesson = Lesson(candidates, group.support, group.query)
    value = loss(module, group)[0].item()
    outer = backend("functional")
    assert value == pytest.approx(outer(loss.model, lesson, one_hot, INNER).item())
    per_w = []
    for row in torch.eye(3, dtype=torch.float64) * 1e-5:
        up, down = (outer(loss.model, lesson, one_hot + s * row, INNER) for s in (1, -1))
        per_w.append((up - down) / 2e-5)
    module.zero_grad()
    (torch.stack(per_w) @ noisy.softmax(0)).backward()
    expected = module.table.weight.grad[:, 0]
    assert expected.abs().max() > 1e-5
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-10)


def test_hard_weights_are_one_hot_to_the_last_bit():
    scores = torch.tensor([0.3, 1.7, -0.2, 1.1], requires_grad=True)
    soft, hard = (relaxed(scores, 0.0, 0.7, hard) for hard in (False, True))
    assert hard.tolist() == [0.0, 1.0, 0.0, 0.0]
    direction = torch.arange(4.0)
    a, b = (torch.autograd.grad(w @ direction, scores)[0] for w in (soft, hard))
    assert torch.equal(a, b)
    assert a.abs().min() > 0


def test_noise_depends_on_seed_step_and_id_alone():
    def noises(spec, asked, numbers):
        found = {}
        for number in numbers:
            for group in steps(spec=spec, asked=asked)(number).batches:
                found[number, group.ids[0]] = group.noise[0].tolist()
        return found

    whole = noises(replace(SPEC, batch_size=4), questions(), [0, 1])
    other = noises(replace(SPEC, batch_size=3), questions()[::-1], [0, 1])
    assert len(whole) == 8
    assert len({tuple(noise) for noise in whole.values()}) == 8
    assert all(whole[key] == noise for key, noise in other.items())
    seeded = noises(replace(SPEC, batch_size=4, seed=1), questions(), [0])
    assert all(whole[key] != noise for key, noise in seeded.items())


def test_the_temperature_falls_exponentially():
    episode = Episode(temperature=2.0, cooled=0.5)
    assert [temperature(episode, step, 3) for step in range(3)] == pytest.approx([2.0, 1.0, 0.5])
    assert temperature(episode, 0, 1) == 2.0


def test_a_held_out_query_is_another_one_about_the_same_context():
    episode = replace(EPISODE, query="held-out")
    asked = usable(questions(), episode)
    assert [one.id for one in asked] == ["q0", "q3"]
    for number in range(4):
        for group in steps(episode, asked=asked)(number).batches:
            assert not torch.equal(group.support.labels, group.query.labels)
    same = steps(EPISODE, asked=asked)(0).batches[0]
    assert torch.equal(same.support.labels, same.query.labels)


def test_contexts_without_anything_to_hide_are_left_out():
    empty = replace(questions()[0], passage=small.passage(""))
    assert [one.id for one in usable([empty, questions()[1]], EPISODE)] == ["q1"]
    assert usable([empty], EPISODE) == []
    assert usable(questions()[1:3], replace(EPISODE, query="held-out")) == []


def test_a_question_of_two_columns_is_not_another_one():
    held_out = replace(EPISODE, query="held-out")
    first, _, _, second = questions()
    assert usable([first, first], held_out) == []
    assert usable([first, first, second], held_out) == [first, first, second]


@pytest.mark.parametrize("name", BACKENDS)
def test_an_outer_loss_that_is_no_number_is_one_line(name):
    loss = made(name, inner=replace(INNER, lr=1e30), dtype=torch.float32)
    with pytest.raises(StageError) as error:
        run(loss)
    assert str(error.value).startswith("the outer loss of example 'q")
    assert str(error.value).endswith(
        "became nan in outer step 1: lower inner.lr (now 1e+30) or inner.query_lr (now 0.03)"
    )


def test_an_unknown_back_end_is_one_line():
    with pytest.raises(ConfigError, match=r"^unknown backend 'jax': choose from functional, high"):
        run(made("jax"))


class Nothing:
    """Checkpoints of a run that is never interrupted."""

    def save(self, step, write):
        raise AssertionError("no checkpoint is due")

    def latest(self):
        return None


def run(loss, spec=SPEC, **options):
    module = Words()
    made = steps(loss.episode, spec)
    train(module, made, loss, spec, Nothing(), lambda done, total, note: None, **options)
    return module


def test_the_outer_loop_lowers_the_outer_loss():
    loss = made(inner=replace(INNER, lr=0.2), dtype=torch.float32)
    first_choices = steps().first_choices(9)
    before = mean_outer_loss(loss, Words(), first_choices)
    after = mean_outer_loss(loss, run(loss, replace(SPEC, steps=30, lr=0.1)), first_choices)
    assert after < before - 1e-3


class Heap(ctypes.Structure):
    """struct mallinfo2 of glibc: what malloc has given out, which is not fooled by reuse."""

    _fields_ = (
        ("before", ctypes.c_size_t * 4),
        ("hblkhd", ctypes.c_size_t),
        ("between", ctypes.c_size_t * 2),
        ("uordblks", ctypes.c_size_t),
        ("after", ctypes.c_size_t * 2),
    )


def used():
    """Return how many tensors live, and how many bytes malloc has given out."""
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = Heap
    gc.collect()
    tensors = sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())
    heap = ask()
    return tensors, heap.uordblks + heap.hblkhd


def growth(loss, steps):
    """Return by how many tensors and bytes a step memory grows, after a fifth of the steps."""
    seen = []

    def count(done, module):
        if done in (steps // 5, steps):
            seen.append(used())

    run(loss, replace(SPEC, steps=steps, batch_size=1), on_step=count)
    (few, before), (many, after) = seen
    return (many - few) / (steps - steps // 5), (after - before) / (steps - steps // 5)


FLAT = 1000  # bytes for each step


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKENDS)
def test_memory_is_flat_over_500_outer_steps(name):
    tensors, size = growth(made(name, dtype=torch.float32), 500)
    assert tensors == 0
    assert size < FLAT


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKENDS)
def test_memory_would_not_be_flat_if_the_graph_of_each_outer_loss_were_kept(name):
    loss, kept = made(name, dtype=torch.float32), []

    def leaky(module, episodes):
        value, count = loss(module, episodes)
        kept.append(value)
        return value, count

    leaky.episode = loss.episode
    tensors, size = growth(leaky, 30)
    assert tensors >= 1
    assert size > 2 * FLAT


@pytest.mark.slow
def test_what_higher_makes_for_an_episode_does_not_wait_for_the_collector():
    from higher.patch import _MonkeyPatchBase

    loss, counts = made("higher", dtype=torch.float32), []
    gc.disable()
    try:
        spec = replace(SPEC, steps=60, batch_size=1)
        run(
            loss,
            spec,
            on_step=lambda *_: counts.append(len(_MonkeyPatchBase.__subclasses__())),
        )
    finally:
        gc.enable()
    each = counts[1] - counts[0]
    assert each > 0
    assert max(counts) <= higher._MOST_PATCHED + each < 60 * each


def test_first_choices_have_no_noise_and_keep_what_they_hold_out():
    episode = replace(EPISODE, query="held-out")
    groups = steps(episode, asked=usable(questions(), episode)).first_choices(1)
    assert len(groups) == 1
    assert groups[0].noise is None
    assert not torch.equal(groups[0].support.labels, groups[0].query.labels)
    loss, module = made(dtype=torch.float32), Words()
    first, again = (mean_outer_loss(loss, module, steps().first_choices(9)) for _ in range(2))
    assert first == again


def test_a_policy_s_first_choice_is_what_it_scores_highest():
    (group,) = steps().first_choices(1)
    loss, module = made(dtype=torch.float32), Words()
    ((spans, scores),) = score(module, group.passages, 3)
    alone = replace(loss, score=lambda *_: [(spans[[scores.argmax()]], torch.zeros(1))])
    assert mean_outer_loss(loss, module, [group]) == mean_outer_loss(alone, module, [group])
