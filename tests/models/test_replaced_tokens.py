"""Replaced-token detection: the losses are ELECTRA's, and no cut of a step changes the gradient."""

from dataclasses import replace

import encoders as tiny
import numpy as np
import pytest
import small
import torch
from maskpolicy.policies.uniform import Uniform
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining, ElectraModel

from maskpolicy.core.types import Detection
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.policy_blocks import AT_POSITIONS
from maskpolicy.models import encoders
from maskpolicy.models.masked_encoder import _generator
from maskpolicy.models.training.batching import IGNORE, Share
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import MaskedSteps

RTD = replace(AT_POSITIONS, replaced_token_detection=Detection(generator=0.5))
SPEC = Training(batch_size=8, micro_tokens=10**6, max_source=40)


def steps(how=RTD, **spec):
    specials = Specials.of_encoder(small.tokenizer())
    pairs = Specials.at_positions
    return MaskedSteps(small.passages(), Uniform(0.3), how, specials, replace(SPEC, **spec), pairs)


def module_of(family="roberta", how=RTD):
    model = tiny.model(family, vocab_size=len(small.tokenizer()), pad_token_id=1)
    return encoders.training_module(model, how, 1, seed=0).eval()


def filled(module, batch):
    """Return what the encoder reads of a batch, and the batch's loss."""
    read = []
    hook = module.encoder.register_forward_pre_hook(lambda model, args: read.append(args[0]))
    with hook, torch.no_grad():
        loss = encoders.token_loss(module, batch)[0]
    return read[0], loss


@pytest.mark.parametrize("weight", [50.0, 3.0])
def test_the_loss_of_a_step_is_that_of_the_classes_of_transformers(weight):
    how = replace(RTD, replaced_token_detection=Detection(0.5, weight))
    module, step = module_of("electra", how), steps(how)(0)
    (batch,), model = step.batches, module.generator.model
    with torch.no_grad():  # a generator that writes three tokens, and often the right one
        model.generator_lm_head.bias[batch.targets.unique()[:3]] += 40
    generator, detector = (
        ElectraForMaskedLM(model.config),
        ElectraForPreTraining(module.encoder.config),
    )
    generator.load_state_dict(model.state_dict())
    detector.electra.load_state_dict(module.encoder.state_dict())
    detector.discriminator_predictions.load_state_dict(module.head.state_dict())
    read, loss = filled(module, batch)
    is_label, seen = batch.labels != IGNORE, batch.seen.long()
    original = batch.labels.where(is_label, batch.source)
    assert torch.equal(read[~is_label], batch.source[~is_label])
    with torch.no_grad():
        given = {"attention_mask": seen, "input_ids": batch.source, "labels": batch.labels.long()}
        mlm = generator.eval()(**given).loss
        labels = (read != original).long()
        told = detector.eval()(attention_mask=seen, input_ids=read, labels=labels).loss
    assert 0 < labels.sum() < is_label.sum()  # the generator wrote some of the originals
    assert (loss / step.units).item() == pytest.approx((mlm + weight * told).item(), rel=1e-5)


def test_a_token_that_the_generator_writes_as_it_was_is_original():
    module, (batch,) = module_of(), steps()(0).batches
    scores = torch.zeros(len(batch.targets), len(small.tokenizer()))
    right = scores.scatter(1, batch.targets[:, None], 100.0)
    wrong = scores.scatter(1, (batch.targets[:, None] + 1) % 300, 100.0)
    with torch.no_grad():
        module.head.dense_prediction.weight.zero_()
        module.head.dense_prediction.bias.fill_(-2.0)  # "all are original"
        losses = [module.detection_loss(batch, logits).item() for logits in (right, wrong)]
    one = float(batch.detection.max())
    assert losses[0] == pytest.approx(one * int(batch.seen.sum()) * np.log1p(np.exp(-2)))
    assert losses[1] - losses[0] == pytest.approx(one * 2 * len(batch.targets))


def test_replacements_follow_the_generators_softmax_but_are_never_the_padding():
    chances = {5: 0.5, 9: 0.25, 7: 0.125, small.SPECIALS.index("<pad>"): 0.125}
    source = np.full(57, small.SPECIALS.index("<mask>"))
    batch = small.batch([(source, np.full(57, 7), None)])
    draws = (torch.arange(57.0) + 0.5)[None] / 57
    batch = replace(batch, draws=draws, detection=torch.ones_like(draws))
    logits = torch.full((57, len(small.tokenizer())), -torch.inf)
    logits[:, list(chances)] = torch.tensor(list(chances.values())).log()
    module = module_of()
    module.label_logits = lambda batch: logits
    read, _ = filled(module, batch)
    ids, counts = read.unique(return_counts=True)
    shares = [57 * chances[i] / 0.875 for i in ids.tolist()]
    assert ids.tolist() == [5, 7, 9]
    assert all(abs(n - share) < 1 for n, share in zip(counts.tolist(), shares, strict=True))


def gradient(made):
    """Return the gradient of a step that is cut in the way of each of `made`."""
    module, every = module_of(), [steps(0) for steps in made]
    for batch in (batch for step in every for batch in step.batches):
        (encoders.token_loss(module, batch)[0] / sum(step.units for step in every)).backward()
    return torch.cat([p.grad.flatten() for p in module.parameters()])


def test_the_gradient_does_not_depend_on_how_processes_and_micro_batches_cut_a_step():
    made = [replace(steps(micro_tokens=60), share=Share(rank, 3)) for rank in range(3)]
    assert sum(len(each(0).batches) for each in made) > 3
    torch.testing.assert_close(gradient(made), gradient([steps()]), rtol=1e-3, atol=1e-5)


def test_no_gradient_flows_from_the_encoder_to_the_generator():
    module, (batch,) = module_of(), steps()(0).batches
    logits = module.label_logits(batch).detach().requires_grad_()
    module.detection_loss(batch, logits).backward()
    assert logits.grad is None
    named = dict(module.generator.model.named_parameters())
    assert {name for name, p in named.items() if p.grad is not None} == {
        "electra.embeddings.word_embeddings.weight"  # the encoder's
    }


@pytest.mark.parametrize(
    ("width", "layers", "share", "generator"),
    [(768, 12, 1 / 3, (256, 4, 1024, 12, 768)), (1024, 24, 0.25, (256, 4, 1024, 24, 1024))],
    ids=["google/electra-base-generator", "google/electra-large-generator"],
)
def test_a_generator_has_the_sizes_of_the_released_one(width, layers, share, generator):
    heads = width // 64
    shape = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    with torch.device("meta"):
        body = ElectraModel(
            ElectraConfig(**shape, embedding_size=width, intermediate_size=4 * width)
        )
        made = _generator(body, share).config
    keys = ("hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers")
    assert tuple(getattr(made, key) for key in (*keys, "embedding_size")) == generator


@pytest.mark.parametrize(("family", "share"), [("albert", 0.01), ("roberta", 0.3), ("albert", 1.0)])
def test_a_generator_may_have_any_width_and_shares_the_encoders_embeddings(family, share):
    module = module_of(family, replace(RTD, replaced_token_detection=Detection(share)))
    words = module.encoder.get_input_embeddings().weight
    assert module.generator.model.get_input_embeddings().weight is words
    assert module.generator.model.get_output_embeddings().weight is words
    assert filled(module, steps()(0).batches[0])[1].isfinite()
