"""Loss and gradient of a micro-batch make the host wait for no value, as a GPU needs it."""

from __future__ import annotations

from traceback import extract_stack

import pytest
import small
import torch
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
    """Return what a step waits for, with what depends on values made before, as `Batch.to` does."""
    module.set_attn_implementation("eager")
    prepared = [batch.places, batch.excluded is not None and batch.packing]
    with Waits() as mode:
        value, _ = loss(module.train(), batch)
        value.backward()
    assert prepared and value.isfinite()
    return mode.found


@pytest.mark.parametrize(
    "how",
    [Denoising(), Denoising(target="full"), Denoising(mask_exclusion=1.0)],
    ids=["spans", "full", "excluded"],
)
def test_bart_waits_for_nothing(how):
    policy, specials = instance("policy", "random", {}), Specials.of(small.tokenizer(), 2)
    spec = test_encoders.SPEC
    (batch, *_) = MaskedSteps(small.passages(), policy, how, specials, spec)(0).batches
    assert (batch.excluded is not None) == bool(how.mask_exclusion)
    # the loss reads its smallest likelihood on a CPU alone
    assert waits(text_to_text.token_loss, small.bart(), batch) == ["local_scalar_dense"]


@pytest.mark.parametrize("how", [test_encoders.MLM, test_encoders.MAE], ids=["MLM", "MAE-LM"])
@pytest.mark.parametrize("family", ["bert", "roberta", "deberta-v2", "modernbert"])
def test_encoders_wait_for_nothing(family, how):
    module, (batch, *_) = test_encoders.module_of(family, how), test_encoders.batches(family, how)
    assert waits(encoders.token_loss, module, batch) == []
