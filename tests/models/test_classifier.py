"""Classifiers of both kinds of models: probabilities of labels, and gradients in one-hot inputs."""

from __future__ import annotations

from dataclasses import replace

import encoders
import numpy as np
import pytest
import small
import text_to_text
import torch
from torch.nn.functional import cross_entropy

from maskpolicy.core.types import Example, as_spans
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.task_kinds import AnswerParams
from maskpolicy.models.finetuning import TASK_HEADS
from maskpolicy.models.finetuning.encoder_tasks import outputs
from maskpolicy.models.learned import Context
from maskpolicy.models.learned.fit_tools import Classifier, readable
from maskpolicy.models.text_to_text import label_logits
from maskpolicy.models.training.batching import IGNORE

SPEC = Training(batch_size=4, micro_tokens=4096, max_source=64, precision="fp32")
CHOICES = ("no", "yes", "perhaps")
EXAMPLES = [
    Example("a", "a", "Boats go down it.", ("yes",), choices=CHOICES),
    Example("b", "b", "The river Oder.", ("no",), context="He was nine.", choices=CHOICES),
    Example("c", "c", "Boats.", ("yes",), choices=CHOICES),
]


LABEL = ("roberta", "deberta-v2", "modernbert")
TEXT = ("bart", "mbart", "t5", "bert2bert")


@pytest.fixture(params=[*LABEL, *TEXT])
def judge(request, tmp_path):
    """Return a classifier that is an encoder, or a text-to-text model, of several families."""
    kind, families = ("label", encoders) if request.param in LABEL else ("text", text_to_text)
    families.model(request.param).save_pretrained(tmp_path / "model")
    tokenizer = families.tokenizer(request.param)
    tokenizer.save_pretrained(tmp_path / "model")
    model = TASK_HEADS[kind].start(tmp_path / "model", EXAMPLES, 0)
    model.save_pretrained(tmp_path / "tuned")
    found = Classifier.load(tmp_path / "tuned", tokenizer, CHOICES, SPEC)
    assert found.params.head == kind
    return found


def test_probabilities_of_the_labels_add_up_to_one_and_rank_as_answers_do(judge):
    found = judge.log_probabilities(EXAMPLES)
    assert found.shape == (3, 3)
    assert np.exp(found).sum(1) == pytest.approx(np.ones(3))
    assert judge.log_probabilities([]).shape == (0, 3)
    one = judge.log_probabilities(EXAMPLES[1:2])
    assert one[0] == pytest.approx(found[1], abs=1e-5)  # whatever shares its batch
    params = AnswerParams(head=judge.params.head, keep="start", choose="likelihood")
    given = readable(EXAMPLES, judge.params.head)
    answers = judge.head.answer(judge.model, judge.tokenizer, given, params, SPEC)
    if judge.params.head == "label":  # a text's mean over its tokens may rank otherwise
        assert answers == [CHOICES[row.argmax()] for row in found]


def test_a_label_has_the_likelihood_of_its_text(tmp_path):
    small.bart().save_pretrained(tmp_path)
    judge = Classifier.load(tmp_path, small.tokenizer(), CHOICES, SPEC)
    example = EXAMPLES[0]
    scores = []
    for choice in CHOICES:
        batch = judge.steps([replace(example, targets=(choice,))])(0).batches[0]
        total, tokens = judge.head.loss(judge.model, batch)
        copies = len(batch.source)  # of the one example
        assert tokens == copies * (len(small.tokenizer()(choice).input_ids))
        scores.append(-total.item() / copies)
    weights = np.exp(scores)
    assert np.exp(judge.log_probabilities([example]))[0] == pytest.approx(
        weights / weights.sum(), rel=1e-4
    )


def exact_loss(judge, batch):
    """Return a batch's loss in float64, without the rounding of the loss of training."""
    if judge.params.head == "label":
        logits, labels = outputs(judge.model, batch).logits, batch.labels[:, 0]
    else:
        logits, labels = label_logits(judge.model, batch), batch.labels[batch.labels != IGNORE]
    assert logits.dtype == torch.float64
    return cross_entropy(logits, labels, reduction="sum").item()


def test_gradients_are_those_in_the_entries_of_the_tokens_that_are_there(judge):
    batch = judge.steps(EXAMPLES)(0).batches[0]
    found = judge.gradients(batch)
    assert found.shape == tuple(batch.source.shape)
    judge.model.double()
    reader = judge.model.get_encoder() if judge.params.head == "text" else judge.model

    def loss(row, place, entry):
        def scaled(module, given, out):
            done = out.clone()
            done[row, place] *= entry
            return done

        hook = reader.get_input_embeddings().register_forward_hook(scaled)
        with torch.no_grad():
            value = exact_loss(judge, batch)
        hook.remove()
        return value

    for row, place in ((0, 0), (1, 2), (len(found) - 1, 1)):
        slope = (loss(row, place, 1.001) - loss(row, place, 0.999)) / 0.002
        assert found[row, place] == pytest.approx(slope, rel=1e-3, abs=3e-4)


def test_a_shortened_example_has_the_words_that_are_kept():
    first, second = small.words("Boats go down, it!"), small.words("He was nine")
    text = "Boats go down, it!"
    made = Context("i", "g", text, ("yes",), first, as_spans([]), CHOICES, second)
    assert made.words == ["Boats", "go", "down,", "it!", "He", "was", "nine"]
    assert made.example == Example("i", "g", text, ("yes",), context="He was nine", choices=CHOICES)
    kept = np.asarray([False, True, False, True, True, False, False])
    short = made.shortened(kept)
    assert (short.source, short.context) == ("go it!", "He")
    assert replace(made, second=None).shortened(kept[:4]).context is None


def test_a_text_to_text_model_reads_both_texts_as_two_lines():
    assert readable(EXAMPLES, "label") == EXAMPLES
    assert [one.source for one in readable(EXAMPLES, "text")] == [
        "Boats go down it.",
        "The river Oder.\nHe was nine.",
        "Boats.",
    ]
