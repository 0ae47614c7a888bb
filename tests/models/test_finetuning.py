"""Heads of tasks: their inputs, losses and answers."""

import copy
import random
from dataclasses import replace
from functools import partial
from itertools import pairwise, product

import encoders as tiny
import numpy as np
import pytest
import small
import torch
from transformers import AutoModelForSeq2SeqLM, SwitchTransformersConfig

from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError, DataError, StageError
from maskpolicy.core.types import Example
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.task_kinds import AnswerParams
from maskpolicy.models import encoders, scratch
from maskpolicy.models.finetuning import TASK_HEADS, encoder_tasks
from maskpolicy.models.finetuning.text import answer, generate
from maskpolicy.models.scratch import train_tokenizer
from maskpolicy.models.text_to_text import token_loss
from maskpolicy.models.training.batching import IGNORE, Pairs, collate, rows_for
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import tokenize

PARAMS = AnswerParams(keep="start")
SPEC = Training(batch_size=4, micro_tokens=4096, max_source=64, precision="fp32")
TEXT = "Lindau is a town on the Oder. It has two bridges, a mill and a café."
QUESTION = "What river is Lindau on?"


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a small encoder and its tokenizer."""
    plain = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    small.saved(tmp_path, small.roberta(num_hidden_layers=1, initializer_range=0.3, **plain))
    return tmp_path


def labelled(target="1", context=None, choices=("0", "1")):
    return Example("a", "a", QUESTION, (target,), context=context, choices=choices)


def asked(context=TEXT, answer="the Oder", **keys):
    keys = {"start": context.index(answer)} if answer else {"answerable": False}
    return Example("q", "q", QUESTION, (answer,) if answer else (), context=context, **keys)


def learn(head, model, examples, steps=60):
    """Train a little, outside of the loop."""
    made = head.steps(model, small.tokenizer(), examples, SPEC, PARAMS)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model.train()
    for number in range(steps):
        optimizer.zero_grad()
        for batch in made(number).batches:
            head.loss(model, batch)[0].backward()
        optimizer.step()
    return model


def read(ids):
    return small.tokenizer().decode(ids)


@pytest.mark.parametrize(
    ("lengths", "room", "left"),
    [((3, 9), 8, (3, 5)), ((9, 3), 8, (5, 3)), ((9, 9), 8, (4, 4)), ((2, 3), 8, (2, 3))],
)
def test_the_longer_text_is_cut_first(lengths, room, left):
    first, second = (np.arange(length, dtype=np.int32) for length in lengths)
    assert tuple(map(len, encoder_tasks.cut(first, second, room))) == left


def test_without_choices_the_model_learns_a_number(folder):
    head = TASK_HEADS["label"]
    examples = [labelled("4.5", choices=()), labelled("0.5", "Boats.", choices=())]
    model = head.start(folder, examples, 0)
    steps = head.steps(model, small.tokenizer(), examples, SPEC, PARAMS)
    assert {batch.labels.dtype for batch in steps(0).batches} == {torch.float32}
    assert steps(0).units == SPEC.batch_size
    learn(head, model, examples, 150)
    found = [float(one) for one in head.answer(model, small.tokenizer(), examples, PARAMS, SPEC)]
    assert found == pytest.approx([4.5, 0.5], abs=0.5)


def test_weights_that_are_not_numbers_have_no_answers(folder, chooser):
    head, (likely, tokenizer) = TASK_HEADS["label"], copy.deepcopy(chooser)
    model = head.start(folder, [labelled()], 0)
    for one in (model, likely):
        next(one.parameters()).data[:] = torch.nan
    with pytest.raises(StageError, match="its weights may be damaged"):
        head.answer(model, small.tokenizer(), [labelled()], PARAMS, SPEC)
    with pytest.raises(StageError, match="its weights may be damaged"):
        answer(likely, tokenizer, examples(), LIKELIEST, SPEC)


@pytest.mark.parametrize(("target", "choices"), [("2", ("0", "1")), ("much", ())])
def test_an_unknown_label_raises_one_line(folder, target, choices):
    head = TASK_HEADS["label"]
    model = head.start(folder, [labelled()], 0)
    with pytest.raises(DataError, match="example 'a': its label"):
        head.steps(model, small.tokenizer(), [labelled(target, choices=choices)], SPEC, PARAMS)
    with pytest.raises(DataError, match=r"'a': its choice '2' is none of .* 0, 1"):
        head.answer(model, small.tokenizer(), [labelled(choices="012")], PARAMS, SPEC)


def test_a_seed_decides_the_head(folder):
    def weights(seed):
        return TASK_HEADS["label"].start(folder, [labelled()], seed).state_dict()

    one, same, other = weights(0), weights(0), weights(1)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("answer", ["Lindau", "the Oder", "two bridges, a mill and a café", "café"])
def test_the_place_of_an_answer_is_its_text(answer):
    (window,) = encoder_tasks.windows([asked(answer=answer)], small.tokenizer(), SPEC)
    first, last = window.place(asked(answer=answer))
    assert answer in read(window.source[first : last + 1])
    begin, end = window.offsets[first - window.first, 0], window.offsets[last - window.first, 1]
    assert TEXT[begin:end].strip().startswith(answer)


def test_windows_overlap_and_cover_the_context():
    example = asked(" ".join([TEXT] * 4))
    windows = encoder_tasks.windows([example], small.tokenizer(), SPEC)
    assert len(windows) > 2
    assert all(len(window.source) <= SPEC.max_source for window in windows)
    for before, after in pairwise(windows):
        assert before.offsets[0, 0] < after.offsets[0, 0] < before.offsets[-1, 1]
    assert windows[-1].offsets[-1, 1] == len(example.context)
    places = [window.place(example) for window in windows]
    assert places[0] != (0, 0)
    assert places[-1] == (0, 0)


def test_a_token_of_blanks_is_no_answer():
    offsets = np.asarray([[0, 4], [4, 5], [5, 6], [6, 10]], np.int32)
    window = encoder_tasks.Window(0, np.arange(4, dtype=np.int32), 0, offsets)
    scores = np.asarray([[1, 1], [9, 9], [9, 9], [2, 0]], np.float32)
    assert window.best(scores, "Anna  Rome") == (10.0, "Anna")  # as run_qa: "  " has 18
    assert window.best(scores, " " * 10) == (-np.inf, "")


def test_the_best_span_is_ordered_short_and_inside_the_context():
    (window,) = encoder_tasks.windows([asked()], small.tokenizer(), SPEC)
    scores = np.zeros((len(window.source), 2), np.float32)
    scores[0] = 99  # <s>
    first, last = window.place(asked())
    scores[first, 0] = scores[last, 1] = 5
    assert window.best(scores, TEXT) == (10.0, "the Oder")
    scores[last + 2, 0] = scores[first - 1, 1] = 12  # an end before its beginning
    score, text = window.best(scores, TEXT)
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


BUDGET = Training(batch_size=2, micro_tokens=4096, max_source=48, precision="fp32")
SECOND = "Lindau is a town on the Oder. It has two mills."
NAMED, TAGS = "Anna Kovar left Lindau , unhappily .", "B-PER I-PER O B-LOC O O O"


def tagged(words=NAMED, tags=TAGS):
    return Example("t", "t", words, (tags,))


def test_the_first_token_of_each_word_has_its_tag(folder):
    head, example = TASK_HEADS["tags"], tagged()
    model = head.start(folder, [example], 0)
    assert set(model.config.label2id) == set(TAGS.split())
    batch = head.steps(model, small.tokenizer(), [example], SPEC, PARAMS)(0).batches[0]
    first = batch.labels[0] != IGNORE
    assert [model.config.id2label[n] for n in batch.labels[0, first].tolist()] == TAGS.split()
    places = [*np.flatnonzero(first.numpy()), len(batch.source[0]) - 1]
    texts = [read(batch.source[0, a:b]).strip() for a, b in pairwise(places)]
    assert texts == NAMED.split()
    assert head.steps(model, small.tokenizer(), [example], SPEC, PARAMS)(0).units == 7 * 4


def test_tags_are_learned_and_words_that_are_cut_off_are_outside(folder):
    head, other = TASK_HEADS["tags"], tagged("Lindau left .", "B-LOC O O")
    examples = [tagged(), other]
    model = learn(head, head.start(folder, examples, 0), examples)
    answers = head.answer(model, small.tokenizer(), examples, PARAMS, SPEC)
    assert answers == [TAGS, "B-LOC O O"]
    words = " ".join([NAMED] * 9)
    cut = head.answer(model, small.tokenizer(), [tagged(words)], PARAMS, SPEC)[0].split()
    assert len(cut) == len(words.split())
    assert set(cut[-20:]) == {"O"}
    (found,) = head.cuts(small.tokenizer(), [tagged(words), other], SPEC, PARAMS, True)
    assert found.count == 1


@pytest.mark.parametrize("family", tiny.TOKENIZERS)
def test_texts_get_the_special_tokens_that_the_tokenizer_writes(family):
    made = tiny.tokenizer(family)
    first, second = tokenize([QUESTION, SECOND], made)
    marks, both = Specials.of_encoder(made), encoder_tasks.TwoTexts.of(made)
    (single,) = marks.wrap(tokenize([QUESTION], made), 500)
    assert single.tolist() == made(QUESTION)["input_ids"]
    assert both.joined(first, second).tolist() == made(QUESTION, SECOND)["input_ids"]
    assert both.joined(first, second)[both.offset(first)] == second[0]
    assert len(both) == len(made(QUESTION, SECOND)["input_ids"]) - len(first) - len(second)


@pytest.mark.parametrize(
    ("family", "pieces"),
    [
        *((name, name) for name in ("bert", "albert", "roberta", "deberta-v2")),
        ("bert", "xlm-roberta"),  # as Multilingual-MiniLM
    ],
)
def test_token_types_are_those_of_the_tokenizer(family, pieces):
    made, seen = tiny.tokenizer(pieces), []
    head, examples = TASK_HEADS["label"], [labelled(), labelled(context=SECOND)]
    model = tiny.model(family, label2id={"0": 0, "1": 1}, id2label={0: "0", 1: "1"})
    steps = head.steps(model, made, examples, replace(BUDGET, max_source=tiny.LONGEST), PARAMS)

    class Spy(torch.nn.Module):
        config = model.config

        def forward(self, **given):
            seen.append(given)

    for batch in steps(0).batches:
        encoder_tasks.outputs(Spy(), batch)
        types = seen[-1].get("token_type_ids")
        knows = getattr(model.config, "type_vocab_size", 0) > 1 and "roberta" not in pieces
        assert (types is not None) == knows
        for row, ids in enumerate(batch.source.tolist() if knows else ()):
            texts = (QUESTION, SECOND) if len(set(types[row].tolist())) > 1 else (QUESTION,)
            expected = made(*texts, return_token_type_ids=True)
            length = len(expected["input_ids"])
            assert ids[:length] == expected["input_ids"]
            assert types[row, :length].tolist() == expected["token_type_ids"]
            assert not types[row, length:].any()
    assert len(seen) == len(steps(0).batches)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        *((family, "label") for family in tiny.FAMILIES),
        *product(("bert", "distilbert", "modernbert", "roberta"), ("span", "tags")),
    ],
)
def test_each_family_is_fine_tuned_and_answers(tmp_path, family, kind):
    folder, made, head = (
        tiny.saved(family, tmp_path / "it"),
        tiny.tokenizer(family),
        TASK_HEADS[kind],
    )
    examples = {
        "label": [labelled(), labelled("0", SECOND)],
        "span": [asked(SECOND), asked(SECOND)],
        "tags": [tagged(), tagged()],
    }[kind]
    model = head.start(folder, examples, 0)
    steps = head.steps(model, made, examples, BUDGET, PARAMS)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(0)  # of dropout
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        total, _ = head.loss(model.train(), steps(0).batches[0])
        total.backward()
        losses.append(total.item())
        optimizer.step()
    assert losses[-1] < losses[0]
    assert model.base_model.get_input_embeddings().weight.grad.any()
    answers = head.answer(model, made, examples, PARAMS, BUDGET)
    if kind == "label":
        assert set(answers) <= {"0", "1"}
    elif kind == "tags":
        assert [len(answer.split()) for answer in answers] == [len(NAMED.split())] * 2
    else:
        assert all(answer in SECOND for answer in answers)
    model.save_pretrained(tmp_path / "tuned")
    again = head.load(tmp_path / "tuned").eval()
    assert head.answer(again, made, examples, PARAMS, BUDGET) == answers


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_a_head_does_not_depend_on_the_task_of_the_checkpoint(tmp_path, family):
    settings = {"num_labels": 3, "problem_type": "multi_label_classification"}
    folder = tiny.saved(family, tmp_path, **settings)
    span = TASK_HEADS["span"].start(folder, [asked(SECOND)], 0)
    assert span.qa_outputs.out_features == 2
    for choices, names in ((("no", "yes"), {0: "no", 1: "yes"}), ((), {0: "LABEL_0"})):
        config = TASK_HEADS["label"].start(folder, [labelled(choices=choices)], 0).config
        assert (config.problem_type, config.id2label) == (None, names)
        assert config.label2id == {name: number for number, name in names.items()}


def test_a_family_without_a_head_raises_one_line(tmp_path):
    folder = tiny.saved("eurobert", tmp_path)
    assert TASK_HEADS["label"].start(folder, [labelled()], 0).config.num_labels == 2
    with pytest.raises(ConfigError, match="AutoModelForQuestionAnswering knows no eurobert"):
        TASK_HEADS["span"].start(folder, [asked(SECOND)], 0)


@pytest.mark.parametrize("family", ["bert", "deberta-v2", "modernbert", "roberta"])
def test_a_kept_head_does_not_change_the_first_weights(tmp_path, family):
    folder = tiny.saved(family, tmp_path / "it")
    for head in ("own", "new"):
        encoders.load(str(folder), head=head).save_pretrained(tmp_path / head)
    start = TASK_HEADS["label"].start
    found = [start(tmp_path / head, [labelled()], 0).state_dict() for head in ("own", "new")]
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    body = encoders.load(str(folder), head="new").state_dict()
    kept = start(folder, [labelled()], 0).base_model.state_dict()
    assert all(torch.equal(kept[name], tensor) for name, tensor in body.items())


WORDS = " ".join(small.TEXTS).split()
SOURCES = ["Where is Ulm?", "Which of the many towns on the river is it?", "Bonn", "more or less"]
CHOICES = [("in the south", "Ulm"), ("more", "less", "no effect"), ("a", "b"), ("less", "more")]
LIKELIEST = AnswerParams(keep="start", choose="likelihood")


@pytest.fixture(scope="module")
def model():
    made = small.bart(init_std=0.6, encoder_layers=2, decoder_layers=2)
    made.generation_config.forced_bos_token_id = 0
    made.generation_config.forced_eos_token_id = None
    made.generation_config.max_new_tokens = 8
    return made.eval()


@pytest.fixture(scope="module")
def sources():
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 15))) for _ in range(16)] + ["", "x"]


def plain(model, sources, limit=64):
    """Return the answers of transformers' own loop, in file order."""
    tokenizer = small.tokenizer()
    answers = []
    for source in sources:
        ids = tokenizer(source, return_tensors="pt", truncation=True, max_length=limit)["input_ids"]
        with torch.no_grad():
            output = model.generate(input_ids=ids, num_beams=1, do_sample=False)
        answers.append(tokenizer.decode(output[0], skip_special_tokens=True).strip())
    return answers


def test_a_batch_of_answers_without_enough_memory_is_halved(model, sources, monkeypatch):
    tried, own = [], model.generate

    def hungry(**inputs):
        tried.append(len(inputs["input_ids"]))
        if tried[-1] > 3:
            raise torch.OutOfMemoryError
        return own(**inputs)

    expected = generate(model, small.tokenizer(), sources, max_source=64)
    monkeypatch.setattr(model, "generate", hungry)
    done = []
    found = generate(
        model, small.tokenizer(), sources, max_source=64, progress=lambda *at: done.append(at[0])
    )
    assert found == expected
    assert tried == [18, 9, 4] + [2] * 9
    assert done == [*range(2, 19, 2)]
    monkeypatch.setattr(model, "generate", partial(own, None, 1))
    with pytest.raises(AttributeError):  # another error is no lack of memory
        generate(model, small.tokenizer(), sources, max_source=64)


def test_a_gpu_answers_as_many_questions_at_a_time_as_its_memory_holds(monkeypatch):
    monkeypatch.setattr(hardware, "is_cuda", lambda: True)
    for gigabytes, rows in ((1, 64), (16, 390), (70, 1024)):
        monkeypatch.setattr(hardware, "free_gpu_memory", lambda size=gigabytes: size * 2**30)
        assert rows_for(168) == rows


def test_answers_equal_those_of_a_plain_loop_for_any_generation_settings(model, sources):
    expected = plain(model, sources)
    assert generate(model, small.tokenizer(), sources, max_source=64, batch=7) == expected
    assert len(set(expected)) > 5
    summarizing = copy.deepcopy(model)
    settings = {"num_beams": 4, "no_repeat_ngram_size": 1, "min_length": 8, "length_penalty": 2.0}
    for name, value in settings.items():
        setattr(summarizing.generation_config, name, value)
    assert plain(summarizing, sources) != expected
    assert generate(summarizing, small.tokenizer(), sources, max_source=64) == expected
    assert {name: getattr(summarizing.generation_config, name) for name in settings} == settings


def test_a_saved_model_generates_what_was_scored(model, sources, tmp_path):
    tuned, head = copy.deepcopy(model), TASK_HEADS["text"]
    tuned.generation_config.num_beams, tuned.generation_config.min_length = 4, 8
    head.steps(tuned, small.tokenizer(), examples(), SPEC, PARAMS)
    tuned.save_pretrained(tmp_path)
    saved = head.load(tmp_path).eval()
    read = small.tokenizer()
    expected = generate(saved, read, sources, max_source=64)
    for source, text in zip(sources, expected, strict=True):
        output = saved.generate(**read(source, return_tensors="pt"))
        assert read.decode(output[0], skip_special_tokens=True).strip() == text


def test_truncation_may_keep_the_end_of_a_source(model):
    source = "Anna Kovar was born in Rome in 1901"
    ids = small.tokenizer()(source)["input_ids"]
    with torch.no_grad():
        (output,) = model.generate(torch.tensor([[0, *ids[-9:]]]), num_beams=1, do_sample=False)
    expected = small.tokenizer().decode(output, skip_special_tokens=True).strip()
    assert generate(model, small.tokenizer(), [source], max_source=10, keep="end") == [expected]
    assert generate(model, small.tokenizer(), [source], max_source=10) != [expected]


@pytest.fixture(scope="module")
def chooser():
    """Return a model of preset mini, drawn from a seed, and its tokenizer."""
    tokenizer = train_tokenizer([*SOURCES, *(c for given in CHOICES for c in given)], 300)
    return scratch.build_bart("mini", tokenizer, 0).float().eval(), tokenizer


def mean_loss(model, tokenizer, source, choice):
    """Return the mean loss of one choice, by the loss that models are trained with."""
    specials = Specials.of(tokenizer, model.config.decoder_start_token_id)
    sources, targets = (tokenize([text], tokenizer) for text in (source, choice))
    pairs = Pairs(specials.wrap(sources, 32), specials.wrap(targets, 16))
    with torch.inference_mode():
        total, count = token_loss(model, collate(pairs, specials.pad, specials.start))
    return float(total) / count


def test_the_chosen_answer_has_the_lowest_mean_training_loss(chooser):
    model, tokenizer = chooser
    expected = [
        min(given, key=lambda choice: mean_loss(model, tokenizer, source, choice))
        for source, given in zip(SOURCES, CHOICES, strict=True)
    ]
    spec = Training(max_source=32, max_target=16, precision="fp32")
    assert answer(model, tokenizer, examples(), LIKELIEST, spec) == expected


def examples():
    return [
        Example(f"q{n}", "g", source, ("more",), choices=given)
        for n, (source, given) in enumerate(zip(SOURCES, CHOICES, strict=True))
    ]


def test_labels_may_have_another_order_in_each_example(folder):
    head, examples = TASK_HEADS["label"], [labelled(), labelled("0", SECOND)]
    model = learn(head, head.start(folder, examples, 0), examples)
    assert head.answer(model, small.tokenizer(), examples, PARAMS, SPEC) == ["1", "0"]
    turned = [replace(one, choices=one.choices[::-1]) for one in examples]
    assert head.answer(model, small.tokenizer(), turned, PARAMS, SPEC) == ["1", "0"]
    both = (head.steps(model, small.tokenizer(), ones, SPEC, PARAMS) for ones in (examples, turned))
    assert len({str(steps.pairs.targets.flat) for steps in both}) == 1


def test_a_model_whose_encoder_has_an_output_of_its_own_class_chooses_answers():
    tokenizer = small.tokenizer()
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_heads": 2, "num_experts": 2}
    config = SwitchTransformersConfig(
        vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, num_layers=2, **sizes
    )
    made = AutoModelForSeq2SeqLM.from_config(config).eval()
    found = answer(made, tokenizer, examples(), LIKELIEST, replace(SPEC, precision="fp32"))
    assert all(one in given for one, given in zip(found, CHOICES, strict=True))
