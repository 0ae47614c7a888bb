"""Heads of label and span tasks: what they read, what they learn from, what they answer."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import small
import torch

from maskpolicy.config.budgets import Training
from maskpolicy.errors import DataError
from maskpolicy.finetuning import TASK_HEADS, encoder_inputs, span
from maskpolicy.finetuning.head_params import AnswerParams
from maskpolicy.training.specials import Specials
from maskpolicy.types import Example

PARAMS = AnswerParams(keep="start")
SPEC = Training(batch_size=4, micro_tokens=4096, max_source=64, precision="fp32")
MARKS = Specials.of_encoder(small.tokenizer())
TEXT = "Lindau is a town on the Oder. It has two bridges, a mill and a café."
QUESTION = "What river is Lindau on?"


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a small encoder and its tokenizer."""
    plain = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    small.roberta(num_hidden_layers=1, initializer_range=0.3, **plain).save_pretrained(tmp_path)
    small.tokenizer().save_pretrained(tmp_path)
    return tmp_path


def labelled(target="1", context=None, choices=("0", "1")):
    return Example("a", "a", "Boats go down it.", (target,), context=context, choices=choices)


def asked(context=TEXT, answer="the Oder", **keys):
    keys = {"start": context.index(answer)} if answer else {"answerable": False}
    return Example("q", "q", QUESTION, (answer,) if answer else (), context=context, **keys)


def learn(head, model, examples, steps=60, lr=5e-3):
    """Train a little, outside of the loop."""
    made = head.steps(model, small.tokenizer(), examples, SPEC, PARAMS)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    model.train()
    for number in range(steps):
        optimizer.zero_grad()
        for batch in made(number).batches:
            head.loss(model, batch)[0].backward()
        optimizer.step()
    return model


def read(ids):
    return small.tokenizer().decode(ids)


def test_two_texts_are_read_as_roberta_reads_them(folder):
    head = TASK_HEADS["label"]
    one, two = labelled(), labelled(context="Boats.")
    model = head.start(folder, [one], 0)
    sources = head.steps(model, small.tokenizer(), [one, two], SPEC, PARAMS).pairs.sources
    assert [read(row) for row in sources] == [
        "<s> Boats go down it.</s>",
        "<s> Boats go down it.</s></s> Boats.</s>",
    ]


@pytest.mark.parametrize(
    ("lengths", "room", "left"),
    [((3, 9), 8, (3, 5)), ((9, 3), 8, (5, 3)), ((9, 9), 8, (4, 4)), ((2, 3), 8, (2, 3))],
)
def test_the_longer_text_is_cut_first(lengths, room, left):
    first, second = (np.arange(length, dtype=np.int32) for length in lengths)
    assert tuple(map(len, encoder_inputs.cut(first, second, room))) == left


def test_a_classifier_learns_and_answers_with_labels(folder):
    head = TASK_HEADS["label"]
    examples = [
        Example(str(i), str(i), text, ("entailment" if "town" in text else "neutral",), choices=c)
        for c in [("entailment", "neutral", "contradiction")]
        for i, text in enumerate(small.TEXTS)
    ]
    model = learn(head, head.start(folder, examples, 0), examples)
    assert model.config.num_labels == 3
    answers = head.answer(model, small.tokenizer(), examples, PARAMS, SPEC)
    assert answers == [example.targets[0] for example in examples]


def test_without_choices_a_number_is_learnt(folder):
    head = TASK_HEADS["label"]
    examples = [labelled("4.5", choices=()), labelled("0.5", "Boats.", choices=())]
    model = head.start(folder, examples, 0)
    steps = head.steps(model, small.tokenizer(), examples, SPEC, PARAMS)
    assert {batch.labels.dtype for batch in steps(0).batches} == {torch.float32}
    assert steps(0).units == SPEC.batch_size
    learn(head, model, examples, 150)
    found = [float(one) for one in head.answer(model, small.tokenizer(), examples, PARAMS, SPEC)]
    assert found == pytest.approx([4.5, 0.5], abs=0.5)


@pytest.mark.parametrize(("target", "choices"), [("2", ("0", "1")), ("much", ())])
def test_a_label_that_is_none_is_one_line(folder, target, choices):
    head = TASK_HEADS["label"]
    model = head.start(folder, [labelled()], 0)
    with pytest.raises(DataError, match="example 'a': its label"):
        head.steps(model, small.tokenizer(), [labelled(target, choices=choices)], SPEC, PARAMS)


@pytest.mark.parametrize("kind", ["label", "span"])
def test_a_seed_decides_the_head(folder, kind):
    def weights(seed):
        return TASK_HEADS[kind].start(folder, [labelled()], seed).state_dict()

    one, same, other = weights(0), weights(0), weights(1)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("answer", ["Lindau", "the Oder", "two bridges, a mill and a café", "café"])
def test_the_place_of_an_answer_is_its_text(answer):
    (window,) = span._windows([asked(answer=answer)], small.tokenizer(), SPEC)
    first, last = span._place(window, asked(answer=answer))
    assert answer in read(window.source[first : last + 1])
    begin, end = window.offsets[first - window.first, 0], window.offsets[last - window.first, 1]
    assert TEXT[begin:end].strip().startswith(answer)


def test_windows_overlap_and_cover_the_context():
    example = asked(" ".join([TEXT] * 4))
    windows = list(span._windows([example], small.tokenizer(), SPEC))
    assert len(windows) > 2
    assert all(len(window.source) <= SPEC.max_source for window in windows)
    for before, after in pairwise(windows):
        assert before.offsets[0, 0] < after.offsets[0, 0] < before.offsets[-1, 1]
    assert windows[-1].offsets[-1, 1] == len(example.context)
    places = [span._place(window, example) for window in windows]
    assert places[0] != (0, 0)
    assert places[-1] == (0, 0)


def test_an_answer_behind_a_word_of_megabytes_is_found():
    example = asked("abcdefghij" * 300_000 + f" {TEXT}")
    window = list(span._windows([example], small.tokenizer(), SPEC))[-1]
    first, last = (place - window.first for place in span._place(window, example))
    begin, end = window.offsets[first, 0], window.offsets[last, 1]
    assert example.context[begin:end].strip() == "the Oder"


def test_a_question_without_an_answer_points_at_the_beginning():
    example = asked(answer=None)
    (window,) = span._windows([example], small.tokenizer(), SPEC)
    assert span._place(window, example) == (0, 0)


def test_the_best_span_is_ordered_short_and_inside_the_context():
    (window,) = span._windows([asked()], small.tokenizer(), SPEC)
    scores = np.zeros((len(window.source), 2), np.float32)
    scores[0] = 99  # <s>
    first, last = span._place(window, asked())
    scores[first, 0] = scores[last, 1] = 5
    assert span._best(window, scores, TEXT) == (10.0, "the Oder")
    scores[last + 2, 0] = scores[first - 1, 1] = 12  # an end before its beginning
    score, text = span._best(window, scores, TEXT)
    assert score == 12.0
    assert text in TEXT


def test_a_reader_learns_spans_and_when_there_is_none(folder):
    head = TASK_HEADS["span"]
    other = "Boats. They go down to Rome."
    examples = [asked(), asked(other, None)]
    model = learn(head, head.start(folder, examples, 0), examples, 120)
    answer = head.answer(
        model,
        small.tokenizer(),
        examples,
        AnswerParams(keep="start", head="span", unanswerable=True),
        SPEC,
    )
    assert answer == ["the Oder", ""]
    forced = head.answer(model, small.tokenizer(), examples, PARAMS, SPEC)
    assert forced[0] == "the Oder"
    assert forced[1] and forced[1] in other


@pytest.mark.parametrize("kind", ["label", "span"])
def test_a_fine_tuned_folder_opens_again(folder, tmp_path, kind):
    head = TASK_HEADS[kind]
    examples = [labelled()] if kind == "label" else [asked()]
    model = head.start(folder, examples, 0)
    model.save_pretrained(tmp_path / "tuned")
    again = head.open(tmp_path / "tuned")
    assert all(map(torch.equal, model.state_dict().values(), again.state_dict().values()))
