"""On a GPU, the host waits for no value in a micro-batch, and a loss compiles as a whole."""

from __future__ import annotations

from traceback import extract_stack

import pytest
import small
import torch
from torch._dynamo.testing import CompileCounter
from torch.utils._python_dispatch import TorchDispatchMode

from maskpolicy.core.types import Denoising
from maskpolicy.models import encoders, text_to_text
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import MaskedSteps
from maskpolicy.plugins.discovery import instance
from tests.models import test_encoders

WAITING = ("local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "unique2")


class Waits(TorchDispatchMode):
    """Lists the operations that need a value, for which a host waits on a GPU."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation.overloadpacket.__name__.strip("_")
        if name in ("index", "index_put"):
            places = [each for each in args[1] if each is not None]
            is_waiting = any(each.dtype == torch.bool for each in places)
        else:
            is_waiting = name in WAITING
        # Transformers reads whether anything is padded, to leave out the mask
        if is_waiting and not any("masking_utils" in each.filename for each in extract_stack()):
            self.found.append(name)
        return operation(*args, **(kwargs or {}))


def waits(loss, module, batch):
    """Return the operations of a step that wait for values, after `Batch.to`."""
    module.set_attn_implementation("eager")
    moved = batch.to(torch.device("cpu"))
    with Waits() as mode:
        value, _ = loss(module.train(), moved)
        value.backward()
    assert value.isfinite()
    return mode.found


def graphs(loss, module, batches):
    """Return the number of graphs of a compiled loss without graph breaks; check its values."""
    counted = CompileCounter()
    compiled = torch.compile(loss, backend=counted, fullgraph=True)
    module.set_attn_implementation("sdpa")
    for batch in batches:
        moved = batch.to(torch.device("cpu"))
        value, _ = compiled(module, moved)
        value.backward()
        torch.testing.assert_close(value, loss(module, moved)[0])
    return counted.frame_count


@pytest.mark.parametrize(
    "how",
    [Denoising(), Denoising(target="full"), Denoising(mask_exclusion=1.0)],
    ids=["spans", "full", "excluded"],
)
def test_bart_never_waits_and_compiles_to_few_graphs(how):
    policy, specials = instance("policy", "random", {}), Specials.of(small.tokenizer(), 2)
    steps = MaskedSteps(small.passages(), policy, how, specials, test_encoders.SPEC)
    batches = [batch for number in range(12) for batch in steps(number).batches]
    assert (batches[0].excluded is not None) == bool(how.mask_exclusion)
    # the loss reads its smallest likelihood on a CPU alone
    assert waits(text_to_text.token_loss, small.bart(), batches[0]) == ["local_scalar_dense"]
    assert len({batch.source.shape for batch in batches}) > 3
    assert graphs(text_to_text.token_loss, small.bart(), batches) <= 3


@pytest.mark.parametrize("how", [test_encoders.MLM, test_encoders.MAE], ids=["MLM", "MAE-LM"])
@pytest.mark.parametrize("family", ["roberta", "modernbert"])
def test_encoders_never_wait_and_compile(family, how):
    module, batches = test_encoders.module_of(family, how), test_encoders.batches(family, how)
    assert waits(encoders.token_loss, module, batches[0]) == []
    assert graphs(encoders.token_loss, module.eval(), batches) <= 3
