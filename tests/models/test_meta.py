"""Episodes and their inner steps: gradients, noise, and memory."""

import gc
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import small
import text_to_text
import torch
from refusals import refused

from maskpolicy.core.errors import ConfigError, StageError
from maskpolicy.core.types import Denoising, Example, as_spans
from maskpolicy.data.corpus.passages import Document, tokenize
from maskpolicy.experiment.budgets import Training
from maskpolicy.masking.denoising import denoising_pairs
from maskpolicy.models.learned import meta
from maskpolicy.models.learned.episodes import Episode, EpisodeSteps, Question, temperature, usable
from maskpolicy.models.learned.episodes import questions as asked_about
from maskpolicy.models.learned.fit_tools import Context
from maskpolicy.models.learned.innerloop import BACKENDS, Inner, Lesson, backend
from maskpolicy.models.learned.meta import EpisodeLoss, mean_outer_loss, relaxed
from maskpolicy.models.text_to_text import row_losses
from maskpolicy.models.training.batching import collate
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import ExampleSteps
from tests.models import test_loop

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


def model():
    made = small.bart().double().eval()
    made.set_attn_implementation("eager")
    return made


def made(name="functional", episode=EPISODE, inner=INNER, dtype=torch.float64):
    fixed = model().to(dtype)
    return EpisodeLoss(fixed, score, Denoising(), episode, inner, name, SPECIALS, SPEC)


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


@pytest.mark.parametrize(
    ("draw", "chances"), [("span", [1 / 3] * 3), ("start-end", [3 / 8, 1 / 4, 3 / 8])]
)
def test_a_candidate_is_drawn_whole_or_its_ends_apart(monkeypatch, draw, chances):
    passage = small.passage("Anna ran")
    (a, b), (c, d) = passage.words.tolist()
    spans = as_spans([(a, b), (a, d), (c, d)])  # with equal scores; the last word cannot come first
    episode = replace(EPISODE, draw=draw)
    loss = replace(made(episode=episode), score=lambda *_: [(spans, torch.zeros(3))])
    drawn = Counter()
    outer = lambda model, lesson, w, inner: w.argmax().float()  # noqa: E731
    monkeypatch.setattr(meta, "backend", lambda name: outer)
    made_steps = steps(
        episode, replace(SPEC, steps=600, batch_size=1), [replace(questions()[0], passage=passage)]
    )
    for number in range(600):
        (group,) = made_steps(number).batches
        drawn[int(loss(None, group)[0])] += 1
    assert [drawn[i] / 600 for i in range(3)] == pytest.approx(chances, abs=0.04)


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


@pytest.mark.parametrize(("target", "most"), [("spans", 10), ("full", 6)])
def test_a_context_is_cut_to_what_its_pairs_hold(target, most):
    answers = np.array([[0, 1]], np.int32)
    asked = Context("q", "", "Who?", ("Anna",), small.passage(small.TEXTS[0] * 3), answers)
    ends = SPECIALS.added("max_source")
    spec = replace(SPEC, max_source=10 + ends, max_target=6 + ends)
    how = Denoising(target=target)
    (one,) = asked_about([asked], "triviaqa", small.tokenizer(), SPECIALS, spec, how)
    assert most - 3 < len(one.passage.tokens) <= most
    assert one.passage.text == asked.passage.text[: len(one.passage.text)]


def test_contexts_without_a_word_to_mask_are_left_out():
    empty = replace(questions()[0], passage=small.passage(""))
    assert [one.id for one in usable([empty, questions()[1]], EPISODE)] == ["q1"]
    assert usable([empty], EPISODE) == []
    assert usable(questions()[1:3], replace(EPISODE, query="held-out")) == []


@pytest.mark.parametrize("name", BACKENDS)
def test_an_outer_loss_of_nan_raises_one_line(name):
    loss = made(name, inner=replace(INNER, lr=1e30), dtype=torch.float32)
    line = refused(run, loss, error=StageError)
    assert line.startswith("the outer loss of example 'q")
    assert line.endswith(
        "became nan in outer step 1: lower inner.lr (now 1e+30) or inner.query_lr (now 0.03)"
    )


def run(loss, spec=SPEC, **options):
    module = Words()
    test_loop.run(spec, model=module, steps=steps(loss.episode, spec), loss=loss, **options)
    return module


def test_the_outer_loop_lowers_the_outer_loss():
    loss = made(inner=replace(INNER, lr=0.2), dtype=torch.float32)
    first_choices = steps().first_choices(9)
    before = mean_outer_loss(loss, Words(), first_choices)
    after = mean_outer_loss(loss, run(loss, replace(SPEC, steps=12, lr=0.1)), first_choices)
    assert after < before - 1e-3


@pytest.mark.parametrize("name", BACKENDS)
def test_no_tensor_outlives_an_outer_step(name):
    counts = []

    def count(done, total, note):
        if done in (3, 6):
            gc.collect()
            counts.append(sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects()))

    spec = replace(SPEC, steps=6, batch_size=1)
    run(made(name, dtype=torch.float32), spec, progress=count)
    assert counts[1] <= counts[0]


def test_a_policy_s_first_choice_is_what_it_scores_highest():
    (group,) = steps().first_choices(1)
    loss, module = made(dtype=torch.float32), Words()
    ((spans, scores),) = score(module, group.passages, 3)
    alone = replace(loss, score=lambda *_: [(spans[[scores.argmax()]], torch.zeros(1))])
    assert mean_outer_loss(loss, module, [group]) == mean_outer_loss(alone, module, [group])


BUDGET = Training()
SOFT = torch.tensor([0.1, 0.5, 0.15, 0.25], dtype=torch.float64)
HARD = torch.tensor([0.0, 0.0, 1.0, 0.0], dtype=torch.float64)


def batch(texts, tokenizer, **how):
    special = Specials.of(tokenizer)
    passages = list(tokenize([Document("it", text) for text in texts], tokenizer))
    spans, epochs = [each.words[1:2] for each in passages], [0] * len(passages)
    written = denoising_pairs(passages, spans, Denoising(**how), special, 0, epochs)
    return collate(special.pairs(written, BUDGET), special.pad, special.start)


def lesson(tokenizer=None, **how):
    tokenizer = tokenizer or small.tokenizer()
    candidates = batch(small.TEXTS[:4], tokenizer, **how)
    support, query = batch(small.TEXTS[4:5], tokenizer), batch(small.TEXTS[5:7], tokenizer)
    return Lesson(candidates, support, query)


def gradient_of_w(name, w, inner, given=None, of=None):
    w = w.clone().requires_grad_()
    value = backend(name)(of or model(), given or lesson(), w, inner)
    (found,) = torch.autograd.grad(value, w)
    return value.detach(), found


def differences(w, inner, given):
    """Return central finite differences of the outer loss."""
    outer, fixed, step = backend("functional"), model(), 1e-5
    rows = torch.eye(len(w), dtype=w.dtype) * step
    ends = [[outer(fixed, given, w + sign * row, inner) for sign in (1, -1)] for row in rows]
    return torch.stack([(up - down) / (2 * step) for up, down in ends])


def test_both_back_ends_agree_on_t5():
    made = text_to_text.model("t5").double()
    made.set_attn_implementation("eager")
    given, inner = lesson(text_to_text.tokenizer("t5")), Inner("sgd", 1e-3, 1e-3, 1, 1)
    found = [gradient_of_w(name, SOFT, inner, given, made) for name in BACKENDS]
    assert found[0][1].abs().min() > 0
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-11)


@pytest.mark.parametrize(
    ("inner", "w"),
    [
        (Inner("sgd", 0.05, 0.03, 1, 1), HARD),
        (Inner("sgd", 0.05, 0.03, 3, 2), SOFT),
        (Inner("sgd", 0.05, 0.03, 3, 2), HARD),
        (Inner("adam", 1e-3, 2e-3, 3, 2), SOFT),
        (Inner("adamw", 1e-3, 2e-3, 3, 2), HARD),
    ],
    ids=str,
)
def test_both_back_ends_have_the_same_outer_gradient(inner, w):
    (value, found), (other, expected) = (gradient_of_w(name, w, inner) for name in BACKENDS)
    assert value == pytest.approx(other.item(), rel=1e-10)
    assert expected.abs().min() > 1e-9
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-11)


def test_only_the_functional_back_end_excludes_masks():
    inner, given = Inner("sgd", 0.05, 0.03), lesson(mask_exclusion=1.0)
    assert given.candidates.excluded is not None
    _, found = gradient_of_w("functional", SOFT, inner, given)
    torch.testing.assert_close(found, differences(SOFT, inner, given), rtol=1e-6, atol=1e-9)
    with pytest.raises(ConfigError, match=r"^backend higher: cannot exclude masks"):
        gradient_of_w("higher", SOFT, inner, given)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_value_equals_that_of_torchs_own_optimizers(name, optimizer):
    inner, given, trained = Inner(optimizer, 0.01, 0.02, 2, 2), lesson(), model()
    made = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[optimizer](trained.parameters())
    for batch, lr in [(given.candidates, 0.01)] * 2 + [(given.support, 0.02)] * 2:
        made.param_groups[0]["lr"] = lr
        losses = row_losses(trained, batch)
        made.zero_grad()
        (SOFT @ losses if batch is given.candidates else losses.mean()).backward()
        made.step()
    expected = row_losses(trained, given.query).mean().item()
    near = 1e-9 if optimizer == "sgd" else 1e-4  # `higher` adds Adam's eps before its correction
    for w in (SOFT, SOFT.clone().requires_grad_()):
        assert backend(name)(model(), given, w, inner).item() == pytest.approx(expected, rel=near)


@pytest.mark.parametrize("name", BACKENDS)
def test_the_model_keeps_its_weights_and_has_no_gradient(name):
    fixed = model()
    before = [p.detach().clone() for p in fixed.parameters()]
    backend(name)(fixed, lesson(), SOFT.clone().requires_grad_(), Inner()).backward()
    assert all(torch.equal(a, b) for a, b in zip(before, fixed.parameters(), strict=True))
    assert all(p.grad is None for p in fixed.parameters())


def test_questions_without_an_answer_are_left_out():
    answers = np.array([[0, 1]], np.int32)
    asked = [
        Context(name, "", "Who?", targets, small.passage(small.TEXTS[0]), answers)
        for name, targets in (("none", ()), ("one", ("Anna",)))
    ]
    found = asked_about(asked, "squad_v2", small.tokenizer(), SPECIALS, SPEC, Denoising())
    assert [one.id for one in found] == ["one"]
