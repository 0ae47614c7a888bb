"""What encoders of each family read of one text or two, and their heads for labels and spans."""

from __future__ import annotations

from dataclasses import replace

import encoders as tiny
import numpy as np
import pytest
import torch

from maskpolicy.config.budgets import Training
from maskpolicy.errors import ConfigError
from maskpolicy.finetuning import TASK_HEADS, encoder_inputs, label, span
from maskpolicy.finetuning.head_params import AnswerParams
from maskpolicy.models import encoders
from maskpolicy.training.specials import Specials
from maskpolicy.training.steps import tokenize
from maskpolicy.types import Example

EVERY = (*tiny.FAMILIES, *tiny.LIKE_THEM)
PARAMS = AnswerParams(keep="start")
SPEC = Training(batch_size=2, micro_tokens=4096, max_source=48, precision="fp32")
FIRST, SECOND = "What river is Lindau on?", "Lindau is a town on the Oder. It has two mills."


def labelled(target="1", context=None, choices=("0", "1")):
    return Example("a", "a", FIRST, (target,), context=context, choices=choices)


def asked():
    start = SECOND.index("the Oder")
    return Example("q", "q", FIRST, ("the Oder",), context=SECOND, start=start)


@pytest.mark.parametrize("family", EVERY)
def test_texts_get_the_special_tokens_that_the_tokenizer_writes(family):
    made = tiny.tokenizer(family)
    first, second = tokenize([FIRST, SECOND], made)
    marks, both = Specials.of_encoder(made), encoder_inputs.TwoTexts.of(made)
    (single,) = marks.wrap(tokenize([FIRST], made), 500)
    assert single.tolist() == made(FIRST)["input_ids"]
    assert both.joined(first, second).tolist() == made(FIRST, SECOND)["input_ids"]
    assert both.joined(first, second)[both.offset(first)] == second[0]
    assert len(both) == len(made(FIRST, SECOND)["input_ids"]) - len(first) - len(second)


def test_a_tokenizer_that_adds_nothing_to_texts_is_read_like_robertas():
    from tokenizers import processors

    from maskpolicy.models.tokenizers import train_tokenizer

    made = train_tokenizer([FIRST, SECOND], 300)
    made.backend_tokenizer.post_processor = processors.ByteLevel()
    ids = np.asarray([9], np.int32)
    assert encoder_inputs.TwoTexts.of(made).joined(ids, ids).tolist() == [0, 9, 2, 2, 9, 2]


@pytest.mark.parametrize("family", ["bert", "electra", "albert", "roberta", "deberta-v2"])
def test_token_types_are_those_of_the_tokenizer(family):
    made, seen = tiny.tokenizer(family), []
    head, examples = TASK_HEADS["label"], [labelled(), labelled(context=SECOND)]
    model = tiny.model(family)
    steps = head.steps(model, made, examples, replace(SPEC, max_source=tiny.LONGEST), PARAMS)

    class Spy(torch.nn.Module):
        config = model.config

        def forward(self, **given):
            seen.append(given)

    for batch in steps(0).batches:
        encoder_inputs.outputs(Spy(), batch)
        types = seen[-1].get("token_type_ids")
        knows = getattr(model.config, "type_vocab_size", 0) > 1 and family != "roberta"
        assert (types is not None) == knows
        for row, ids in enumerate(batch.source.tolist() if knows else ()):
            texts = (FIRST, SECOND) if len(set(types[row].tolist())) > 1 else (FIRST,)
            expected = made(*texts, return_token_type_ids=True)
            length = len(expected["input_ids"])
            assert ids[:length] == expected["input_ids"]
            assert types[row, :length].tolist() == expected["token_type_ids"]
            assert not types[row, length:].any()
    assert len(seen) == len(steps(0).batches)


@pytest.mark.parametrize("kind", ["label", "span"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_each_family_is_fine_tuned_and_answers(tmp_path, family, kind):
    folder, made, head = (
        tiny.saved(family, tmp_path / "it"),
        tiny.tokenizer(family),
        TASK_HEADS[kind],
    )
    examples = [labelled(), labelled("0", SECOND)] if kind == "label" else [asked(), asked()]
    model = head.start(folder, examples, 0)
    steps = head.steps(model, made, examples, SPEC, PARAMS)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        total, _ = head.loss(model.train(), steps(0).batches[0])
        total.backward()
        losses.append(total.item())
        optimizer.step()
    assert losses[-1] < losses[0]
    assert model.base_model.get_input_embeddings().weight.grad.any()
    answers = head.answer(model, made, examples, PARAMS, SPEC)
    if kind == "label":
        assert set(answers) <= {"0", "1"}
    else:
        assert all(answer in SECOND for answer in answers)
    model.save_pretrained(tmp_path / "tuned")
    again = head.open(tmp_path / "tuned").eval()
    assert head.answer(again, made, examples, PARAMS, SPEC) == answers


def test_a_family_without_a_head_is_refused_with_one_line(tmp_path):
    folder = tiny.saved("eurobert", tmp_path)
    assert label.start(folder, [labelled()], 0).config.num_labels == 2
    with pytest.raises(ConfigError, match="AutoModelForQuestionAnswering knows no eurobert"):
        span.start(folder, [asked()], 0)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_rows_that_keep_a_head_and_rows_that_do_not_begin_alike(tmp_path, family):
    folder = tiny.saved(family, tmp_path / "it")
    for head in ("own", "new"):
        encoders.load(str(folder), head=head).save_pretrained(tmp_path / head)
    found = [label.start(tmp_path / head, [labelled()], 0).state_dict() for head in ("own", "new")]
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    body = encoders.load_body(str(folder)).state_dict()
    kept = label.start(folder, [labelled()], 0).base_model.state_dict()
    assert all(torch.equal(kept[name], tensor) for name, tensor in body.items())


@pytest.mark.parametrize("family", ["bert", "deberta-v2", "modernbert", "xlm-roberta"])
def test_the_place_of_an_answer_is_its_text(family):
    (window,) = span._windows([asked()], tiny.tokenizer(family), SPEC)
    first, last = (place - window.first for place in span._place(window, asked()))
    begin, end = window.offsets[first, 0], window.offsets[last, 1]
    assert SECOND[begin:end] == "the Oder"
