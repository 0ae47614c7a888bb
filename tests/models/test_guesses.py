"""Predictions for each token, checked by hand, and masks that are filled in steps."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import small
import text_to_text
import torch
from torch import nn

from maskpolicy.core.types import Denoising
from maskpolicy.data.corpus.passages import Document, tokenize
from maskpolicy.experiment.budgets import Training
from maskpolicy.models.guesses import Guesser, _rounds, smoothed
from maskpolicy.models.model_kinds import MODEL_KINDS
from maskpolicy.models.training.batching import collate
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.unmasking import unmasked

SPEC = Training(max_source=60, max_target=60, micro_tokens=200, seed=3)
HOWS = (
    Denoising(join="none"),
    Denoising(),
    Denoising(target="full", permute_sentences=True, insert=0.5),
    Denoising(corruption="token", target="full", mask_exclusion=1.0),
)
AT_POSITIONS = Denoising(corruption="token", join="none")


def guesser(kind="seq2seq", denoising=HOWS[0], spec=SPEC):
    made, known = MODEL_KINDS[kind], small.bart() if kind == "seq2seq" else small.roberta()
    module = made.training_module(known, denoising, 1, 0)
    return Guesser(module, made, made.specials(small.tokenizer(), known), spec, denoising)


def by_hand(model, passage, rounds, how=HOWS[0]):
    """Return loss and entropy of each token: one passage and one pass at a time, with Bart."""
    losses, entropies = np.zeros(len(passage.tokens)), np.zeros(len(passage.tokens))
    for (spans,) in rounds:
        made = small.denoising_pair(passage, spans, how, small.tokenizer().mask_token_id)
        source = torch.tensor([[0, *made.source.tolist(), 2]])
        target = [0, *made.target.tolist(), 2]
        decoder = torch.tensor([[model.config.decoder_start_token_id, *target[:-1]]])
        known = model(input_ids=source, decoder_input_ids=decoder).logits[0].log_softmax(-1)
        at = spans[:, 0] if how.target == "full" else np.arange(len(spans))
        for token, place in zip(spans[:, 0].tolist(), (at + 1).tolist(), strict=True):
            assert target[place] == passage.tokens[token]
            losses[token] = -known[place, target[place]]
            entropies[token] = -(known[place].exp() * known[place]).sum()
    return losses, entropies


@pytest.mark.parametrize("target", ["spans", "full"])
def test_loss_and_entropy_equal_those_of_the_masked_tokens_label(target):
    how = Denoising(join="none", target=target)
    passages = list(small.passages())
    made = guesser(denoising=how)
    found = made.guess(passages, 0.3, 5)
    model = small.bart().eval()
    for place, passage in enumerate(passages):
        with torch.no_grad():
            losses, entropies = by_hand(model, passage, _rounds([passage], 4, 3, 5), how)
        assert found.losses[place] == pytest.approx(losses, abs=2e-4)
        assert found.entropies[place] == pytest.approx(entropies, abs=2e-4)
        assert found.losses[place].dtype == found.entropies[place].dtype == np.float32
        best = found.best[place] == passage.tokens
        assert (found.losses[place][best] <= found.entropies[place][best].max(initial=9)).all()


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_every_token_is_masked_once_with_its_share_of_the_others(rate):
    passages = list(small.passages())
    rounds = list(_rounds(passages, math.ceil(1 / rate), 0, 0))
    for place, passage in enumerate(passages):
        masked = [each[place][:, 0] for each in rounds]
        assert sorted(np.concatenate(masked).tolist()) == list(range(len(passage.tokens)))
        sizes = [len(each) for each in masked]
        assert max(sizes) - min(sizes) <= 1
    again = list(_rounds(passages, math.ceil(1 / rate), 0, 1))
    if rate < 1:
        assert any(a.tolist() != b.tolist() for a, b in zip(rounds[0], again[0], strict=True))


@pytest.mark.parametrize("name", ["bart", "mbart", "t5", "t5gemma", "pegasus", "bert2bert"])
def test_every_family_predicts_the_tokens_of_its_own_target(name):
    """The losses are those that Transformers' own forward has at the labels of the tokens."""
    tokenizer, model = text_to_text.tokenizer(name), text_to_text.model(name)
    documents = [Document(f"d{i}", text) for i, text in enumerate(text_to_text.TEXTS[:2])]
    passages = list(tokenize(documents, tokenizer))
    kind, how = MODEL_KINDS["seq2seq"], Denoising(join="mask")
    made = Guesser(model, kind, kind.specials(tokenizer, model), SPEC, how)
    found = made.guess(passages, 0.3, 1)
    flat, expected = np.concatenate(found.losses), np.zeros(sum(map(len, found.losses)))
    for spans in _rounds(passages, 4, SPEC.seed, 1):
        for batch, places in made._batches(passages, spans, 1):
            with torch.no_grad():
                known = model(
                    input_ids=batch.source,
                    attention_mask=batch.seen.long(),
                    decoder_input_ids=batch.decoder,
                ).logits.log_softmax(-1)
            right = batch.labels.clamp(min=0)[..., None]
            losses = -known.gather(2, right)[..., 0].numpy()
            expected[places[places >= 0]] = losses[places >= 0]
    assert flat == pytest.approx(expected, abs=3e-4)
    assert flat.min() > 0


@pytest.mark.parametrize(("target", "most"), [("full", 512), ("spans", 512), ("spans", 9)])
def test_every_token_is_predicted_although_there_are_few_sentinels(target, most):
    tokenizer, model = text_to_text.tokenizer("t5"), text_to_text.model("t5")
    passages = list(tokenize([Document("d", " ".join(text_to_text.TEXTS[:2]))], tokenizer))
    kind, spec = MODEL_KINDS["seq2seq"], replace(SPEC, max_source=512, max_target=most)
    special = kind.specials(tokenizer, model)
    assert len(passages[0].tokens) > 2 * special.most
    made = Guesser(model, kind, special, spec, Denoising(target=target))
    assert made.guess(passages, 1.0, 0).losses[0].min() > 0
    short = small.ids(range(100, 105), name="short")
    seen = list(_rounds([*passages, short], 1, spec.seed, 0, special.most))
    assert max(len(long) for long, _ in seen) <= special.most
    assert [len(one) for _, one in seen] == [5] + [0] * (len(seen) - 1)
    assert sum(len(long) for long, _ in seen) == len(passages[0].tokens)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("most", [3, 60])
def test_every_token_that_training_reads_is_predicted_although_targets_are_short(how, most):
    made = guesser(denoising=how, spec=replace(SPEC, max_target=most))
    found = made.guess([small.ids(range(100, 158))], 1.0, 0)
    read = most - 2 if how.target == "full" else 58
    assert (found.losses[0] > 0).tolist() == [True] * read + [False] * (58 - read)


@pytest.mark.parametrize("exclusion", [0.0, 1.0])
def test_an_encoder_predicts_tokens_at_their_places(exclusion):
    how = replace(AT_POSITIONS, mask_exclusion=exclusion)
    made, passages = guesser("encoder", how), list(small.passages())
    found = made.guess(passages, 0.5, 0)
    module, mask = made.module.eval(), small.tokenizer().mask_token_id
    for place, passage in enumerate(passages):
        for (spans,) in _rounds([passage], 2, 3, 0):
            if exclusion or not len(spans):
                continue
            ids = passage.tokens.copy()
            ids[spans[:, 0]] = mask
            with torch.no_grad():
                source = torch.tensor([[0, *ids.tolist(), 2]])
                states = module.encoder(input_ids=source).last_hidden_state[0, 1:-1]
                known = module.logits(states).log_softmax(-1)
            right = torch.tensor(passage.tokens.tolist())
            losses = -known.gather(1, right[:, None])[:, 0]
            at = spans[:, 0]
            assert found.losses[place][at] == pytest.approx(losses.numpy()[at], abs=2e-4)
    assert min(each.min() for each in found.losses) > 0


@pytest.mark.parametrize("most", [12, 60])
def test_tokens_that_training_cuts_off_have_no_loss(most):
    long = small.ids([5, 6, 7] * 10, name="long")
    found = guesser(spec=replace(SPEC, max_source=12, max_target=most)).guess([long], 1.0, 0)
    assert (found.losses[0] > 0).tolist() == [True] * 10 + [False] * 20
    assert found.best[0].tolist()[10:] == [-1] * 20


@pytest.mark.parametrize("limits", [None, (60, 60)], ids=["plain", "in buckets"])
@pytest.mark.parametrize("kind", ["seq2seq", "encoder"])
def test_smoothed_labels_are_part_token_part_prediction(kind, limits):
    how = AT_POSITIONS if kind == "encoder" else HOWS[0]
    made, other = guesser(kind, how), guesser(kind, how)
    with torch.no_grad():
        for weight in other.module.parameters():
            weight.add_(
                0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
            )
    spans = [passage.words[:2] for passage in small.passages()]
    pairs, special = made._pairs(list(small.passages()), spans, 0), made.specials
    batch = collate(pairs, special.pad, special.start, limits)
    module, reference = made.module.eval(), other.module.eval()
    found, count = smoothed(made.kind, reference, 0.25)(module, batch)
    with torch.no_grad():
        logits = [made.kind.label_logits(each, batch) for each in (module, reference)]
    labels = batch.labels[batch.labels != -100]
    known, guess = (each[: len(labels)] for each in logits)
    soft = 0.25 * guess.softmax(1)
    soft[torch.arange(len(labels)), labels] += 0.75
    expected = torch.nn.functional.cross_entropy(known, soft, reduction="sum")
    assert count == len(batch.places)
    assert (count > len(labels)) == (limits is not None)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    found.backward()
    assert all(weight.grad is None for weight in reference.parameters())
    plain, _ = made.kind.training_loss()(module, batch)
    assert smoothed(made.kind, reference, 0.0)(module, batch)[0].item() == pytest.approx(
        plain.item(), rel=1e-5
    )


SPECIALS = Specials(bos=0, eos=2, pad=1, mask=4, start=None, vocabulary=8, special=(0, 1, 2, 3, 4))


class Known(nn.Module):
    """Predicts token 5 in a quarter of the cases and 6 in the others, but special tokens mostly."""

    def __init__(self):
        super().__init__()
        self.masks: list[int] = []  # of the texts that it has read

    def forward(self, input_ids, attention_mask):
        self.masks.append(int((input_ids == SPECIALS.mask).sum()))
        chances = torch.tensor([9, 9, 9, 9, 9, 0.25, 0.75, 0, 7])  # the last is no token
        return SimpleNamespace(logits=chances.log().expand(*input_ids.shape, -1))


@pytest.mark.parametrize(
    ("steps", "masks"), [(1, [6]), (3, [6, 4, 2]), (4, [6, 4, 2, 1]), (9, [6, 5, 4, 3, 2, 1])]
)
def test_an_equal_share_of_the_masks_is_filled_in_each_step(steps, masks):
    source = np.asarray([0, 7, 4, 4, 4, 7, 4, 4, 4, 2], np.int32)
    model = Known()
    filled = unmasked(model, source, SPECIALS, steps, np.random.default_rng(0))
    assert model.masks == masks
    assert (filled[source != 4] == source[source != 4]).all()
    assert set(filled[source == 4].tolist()) <= {5, 6}


def test_tokens_are_drawn_from_the_models_predictions():
    source = np.full(2000, 4, np.int32)
    filled = unmasked(Known(), source, SPECIALS, 2, np.random.default_rng(0))
    assert np.bincount(filled, minlength=8)[5:].tolist() == pytest.approx([500, 1500, 0], abs=60)
