"""On a GPU, the host waits for no value in a micro-batch, and a loss compiles as a whole."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import small
import torch
from torch._dynamo.testing import CompileCounter
from torch.nn.functional import cross_entropy, linear
from torch.utils._python_dispatch import TorchDispatchMode

from maskpolicy.core.types import Denoising
from maskpolicy.models import crossentropy, encoders, text_to_text
from maskpolicy.models.finetuning import TASK_HEADS
from maskpolicy.models.loading import set_attention
from maskpolicy.models.training.batching import IGNORE, bucket
from maskpolicy.models.training.optimization import Optimization
from maskpolicy.models.training.padding import masks_have_padding
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import MaskedSteps
from maskpolicy.plugins.discovery import instance
from tests.models import test_classifier, test_encoders
from tests.models.test_finetuning import asked

WAITING = ("local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "unique2")


class Waits(TorchDispatchMode):
    """Lists the operations that need a value, for which a host waits on a GPU; counts launches."""

    def __init__(self):
        super().__init__()
        self.found, self.launched = [], 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation.overloadpacket.__name__.strip("_")
        aliases = (value.alias_info for value in operation._schema.returns)
        is_view = any(alias is not None and not alias.is_write for alias in aliases)
        self.launched += not (is_view or name.startswith(("empty", "local_scalar")))
        if name in ("index", "index_put"):
            places = [each for each in args[1] if each is not None]
            is_waiting = any(each.dtype == torch.bool for each in places)
        else:
            is_waiting = name in WAITING
        if is_waiting:
            self.found.append(name)
        return operation(*args, **(kwargs or {}))


def waits(loss, module, steps, most):
    """Return what waits for values in a step of one micro-batch, which launches at most so much."""
    spec = replace(steps.spec, precision="fp32", micro_tokens=10**6)
    run = Optimization(deepcopy(module).train(), spec, 1)
    set_attention(run.module, "sdpa")
    step = replace(steps, spec=spec)(0)
    (batch,) = step.batches
    step = replace(step, batches=[batch.to(run.device)])  # there a value costs no wait
    with Waits() as mode:
        assert run.step(0, step, loss)
    assert run.is_sound()
    assert 0.9 * most < mode.launched <= most
    return mode.found


def graphs(loss, module, batches):
    """Return the number of graphs of a compiled loss without graph breaks; check its values."""
    torch._dynamo.reset()
    counted = CompileCounter()
    compiled = torch.compile(loss, backend=counted, fullgraph=True)
    set_attention(module, "sdpa")
    for batch in batches:
        moved = batch.to(torch.device("cpu"))
        value, _ = compiled(module, moved)
        value.backward()
        torch.testing.assert_close(value, loss(module, moved)[0])
    return counted.frame_count


STEPS = 12  # in which shapes repeat


def gradient(loss, module, steps):
    """Return loss and gradient of the mean over the units of each step, without dropout."""
    module.eval().zero_grad()
    total = 0.0
    for number in range(STEPS):
        step = steps(number)
        for batch in step.batches:
            value = loss(module, batch)[0] / step.units
            value.backward()
            total += value.item()
    return total, [p.grad.clone() for p in module.parameters() if p.grad is not None]


def in_shapes(steps):
    """Return the batches of several steps, and their shapes."""
    batches = [batch for number in range(STEPS) for batch in steps(number).batches]
    return batches, {(b.source.shape, b.labels.shape, len(b.places)) for b in batches}


def check(loss, module, steps, launched, *waiting):
    """Check that a step waits for nothing, and that padding to buckets changes rounding alone."""
    plain = replace(steps, spec=replace(steps.spec, compile=False))
    assert waits(loss, module, plain, launched) == list(waiting)
    batches, shapes = in_shapes(steps)
    assert 4 <= len(shapes) < len(batches)
    assert all(size == bucket(size, 1) for shape, *_ in shapes for size in shape)
    # padding alone is ignored: rows without a label, and labels of a place without one
    labels = [sum(int((b.labels != IGNORE).sum()) for b in s(1).batches) for s in (plain, steps)]
    assert labels[0] == labels[1] == plain(1).work["target_tokens"]
    torch.testing.assert_close(
        gradient(loss, module, steps), gradient(loss, module, plain), rtol=1e-4, atol=1e-5
    )


def of_bart(how=Denoising(), policy="random", **spec):  # noqa: B008
    """Return loss, model and steps of a small BART that is compiled."""
    made, specials = instance("policy", policy, {}), Specials.of(small.tokenizer(), 2)
    spec = replace(test_encoders.SPEC, compile=True, max_target=40, **spec)
    steps = MaskedSteps(small.passages(), made, how, specials, spec)
    return text_to_text.token_loss, small.bart(), steps


def of_encoder(family, how):
    """Return loss, model and steps of a small encoder that is compiled."""
    steps = test_encoders.steps(family, how)
    module = test_encoders.module_of(family, how)
    return encoders.token_loss, module, replace(steps, spec=replace(steps.spec, compile=True))


@pytest.mark.parametrize(
    ("how", "policy", "launched"),
    [
        (Denoising(), "random", 251),
        (Denoising(target="full"), "random", 251),
        (Denoising(mask_exclusion=1.0), "random", 277),
        (Denoising(loss_weight="likelihood"), "diffusion", 254),
    ],
    ids=["spans", "full", "excluded", "diffusion"],
)
def test_bart_never_waits(how, policy, launched):
    # the loss reads on a CPU alone whether a place is padding, and its smallest likelihood
    check(*of_bart(how, policy), launched, *["local_scalar_dense"] * 2)


@pytest.mark.parametrize(
    ("family", "how", "launched"),
    [
        ("roberta", test_encoders.MLM, 204),
        ("roberta", test_encoders.MAE, 293),
        ("modernbert", test_encoders.MAE, 370),
        ("roberta", test_encoders.RTD, 390),
    ],
    ids=["MLM", "MAE-LM", "ModernBERT as MAE-LM", "ELECTRA"],
)
def test_encoders_never_wait(family, how, launched):
    check(*of_encoder(family, how), launched)


@pytest.mark.parametrize(
    ("family", "how"),
    [
        ("bart", Denoising(mask_exclusion=1.0, loss_weight="likelihood")),
        ("roberta", test_encoders.MAE),
        ("modernbert", test_encoders.MAE),
        ("roberta", test_encoders.RTD),
    ],
    ids=["BART", "MAE-LM", "ModernBERT as MAE-LM", "ELECTRA"],
)
def test_a_loss_compiles_as_a_whole_also_for_sizes_that_vary(family, how):
    is_bart = family == "bart"
    loss, module, steps = of_bart(how, "diffusion") if is_bart else of_encoder(family, how)
    assert 2 <= graphs(loss, module, in_shapes(steps)[0]) <= 4  # the first is for its shape alone


def test_all_steps_of_one_shape_share_a_graph():
    loss, model, steps = of_bart(precision="fp32", micro_tokens=10**6)
    run = Optimization(model, steps.spec, 3)
    run.module.set_attn_implementation("sdpa")
    torch._dynamo.reset()
    counted = CompileCounter()
    compiled = torch.compile(loss, backend=counted)
    assert all(run.step(0, steps(0), compiled) for _ in range(3))
    assert counted.frame_count == 1
    batch = steps(0).batches[0]
    assert batch.mask is not None
    value = loss(run.module.eval(), batch)[0]
    with masks_have_padding():
        assert torch.equal(loss(run.module, batch)[0], value)


@pytest.mark.parametrize(
    ("task", "examples", "launched"),
    [("label", test_classifier.EXAMPLES, 289), ("span", [asked(), asked(answer="")], 279)],
)
def test_fine_tuning_never_waits(task, examples, launched, tmp_path):
    folder, head = small.saved(tmp_path, small.roberta()), TASK_HEADS[task]
    module = head.start(folder, examples, 0)
    steps = head.steps(module, small.tokenizer(), examples, test_classifier.SPEC, None)
    assert waits(head.loss, module, steps, launched) == []


class Sizes(TorchDispatchMode):
    """Keeps the most elements of a tensor, and the number of products of matrices."""

    most = products = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        found = operation(*args, **(kwargs or {}))
        self.products += operation.overloadpacket.__name__ in ("mm", "addmm")
        if isinstance(found, torch.Tensor):
            self.most = max(self.most, found.numel())
        return found


@pytest.mark.parametrize("has_bias", [True, False])
def test_a_loss_in_chunks_is_pytorchs_and_never_holds_all_logits(monkeypatch, has_bias):
    rows, words, width = 100, 321, 16
    monkeypatch.setattr(crossentropy, "_AT_ONCE", 384 * 30)  # of a vocabulary of 384 in a product
    states, weight = torch.randn(rows, width), torch.randn(words, width)
    bias = torch.randn(words) if has_bias else None
    labels, scales = torch.randint(0, words, (rows,)), torch.rand(rows)
    labels[::7] = IGNORE
    given: Any = [
        each if each is None else each.requires_grad_() for each in (states, weight, bias)
    ]
    expected = cross_entropy(linear(*given), labels, reduction="none") @ scales
    (3 * expected).backward()
    gradients = [each if each is None else each.grad.clone() for each in given]
    for each in filter(lambda each: each is not None, given):
        each.grad = None
    monkeypatch.setattr(crossentropy, "in_chunks", lambda states: True)
    args: Any = (*given, labels, scales)
    found = crossentropy.summed(*args)
    (3 * found).backward()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close([each if each is None else each.grad for each in given], gradients)
    torch.library.opcheck(crossentropy._operator, (*args, True))
    with torch.no_grad(), Sizes() as sizes, Waits() as waiting:
        crossentropy.chunked(*args, has_gradient=True)
    assert (sizes.most, sizes.products, waiting.found) == (384 * 30, 3 * 4, [])


def test_a_model_with_a_loss_in_chunks_compiles_to_the_same_gradient(monkeypatch):
    loss, module, steps = of_encoder("roberta", test_encoders.MLM)
    expected = gradient(loss, module, steps)
    monkeypatch.setattr(crossentropy, "_AT_ONCE", 384 * 8)
    monkeypatch.setattr(crossentropy, "in_chunks", lambda states: True)
    torch.testing.assert_close(gradient(loss, module, steps), expected, rtol=1e-4, atol=1e-5)
    assert graphs(loss, module, steps(0).batches) == 1


class Masks(TorchDispatchMode):
    """Lists whether each attention that is computed by one kernel has a mask."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if "scaled_dot_product" in str(operation) and "backward" not in str(operation):
            self.found.append((kwargs or {}).get("attn_mask") is not None)
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("lengths", [(9, 9), (9, 7)], ids=["no padding", "padding"])
def test_attention_has_a_mask_only_where_a_row_is_padded(lengths):
    rows = [(list(range(5, 5 + n)), list(range(6, 6 + n)), None) for n in lengths]
    module, is_padded = small.bart().eval(), len(set(lengths)) > 1
    module.set_attn_implementation("sdpa")
    batch = small.batch(rows, 2).to(torch.device("cpu"))
    with Masks() as mode:
        text_to_text.token_loss(module, batch)
    # of the encoder, and the decoder's to itself (causal) and to the encoder
    assert mode.found == [is_padded, False, is_padded]


def test_a_bucket_wastes_at_most_a_quarter():
    assert all(rows <= bucket(rows, 1) <= 1.25 * rows for rows in range(1, 2000))
    assert len({bucket(size) for size in range(65, 513)}) == 12
