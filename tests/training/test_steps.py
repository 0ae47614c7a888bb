"""What the model learns from: masked passages and examples, as steps with BART's own tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import small
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from maskpolicy.config.budgets import Training
from maskpolicy.masking.denoising import DenoisingPairs
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.ragged import Ragged
from maskpolicy.schema import Schedule
from maskpolicy.training.batching import IGNORE, Order
from maskpolicy.training.specials import Specials
from maskpolicy.training.steps import ExampleSteps, MaskedSteps, tokenize
from maskpolicy.types import Denoising, Example, as_spans

SPEC = Training(batch_size=4, micro_tokens=120, max_source=40, max_target=30)
SPECIALS = Specials.of(small.tokenizer(), 2)
EXAMPLES = [
    Example("a", "a", "where was Anna Kovar born?", ("Rome", "Roma")),
    Example("b", "b", "which river runs through Lindau?", ("the Oder",)),
    Example("c", "c", "who founded Berg & Sons? <mask>", ("Karl Berg",)),
]


@dataclass(frozen=True)
class FirstWord:
    """Hide the first word of the passages that have more than one sentence."""

    def select(self, passage, rng):
        return passage.words[:1] if len(passage.sentences) > 1 else as_spans([])


class Rising:
    """Hide words from the middle of the training on: others when a step is asked for again."""

    def __init__(self):
        self.calls = 0

    def select(self, passage, rng, progress=0.0):
        place = self.calls // SPEC.batch_size % 2
        self.calls += 1
        return passage.words[place : place + 1] if progress > 0.5 else as_spans([])


def steps(policy=None, how=None, spec=SPEC):
    return MaskedSteps(small.passages(), policy or FirstWord(), how or Denoising(), SPECIALS, spec)


def rows(array, end):
    """Return the rows of a padded array up to and with `end`."""
    return [row[: row.index(end) + 1] for row in array.tolist()]


def test_every_pair_begins_with_bos_and_ends_with_eos():
    for batch in steps()(0).batches:
        for row in [*rows(batch.source, 2), *rows(batch.labels, 2)]:
            assert row[0] == 0
            assert row[-1] == 2
        assert (batch.decoder[:, 0] == 2).all()
        assert (batch.decoder[:, 1] == 0).all()


def test_a_policy_that_masks_late_must_mask_the_same_again():
    assert steps().masks_again(SPEC.steps)
    assert not steps(Rising()).masks_again(SPEC.steps)
    assert steps(Rising()).masks_again(1)


def test_units_are_the_labels_of_the_step():
    for number in range(5):
        step = steps()(number)
        assert step.units == sum(int((b.labels != IGNORE).sum()) for b in step.batches)
        assert step.units == step.work["target_tokens"]


def test_the_work_of_a_step_is_what_was_hidden_and_learnt():
    made = steps()
    for number in range(5):
        step = made(number)
        chosen = [small.passages()[item] for item, _ in made.order.step(number)]
        with_span = [one for one in chosen if len(one.sentences) > 1]
        assert step.work["passages"] == 4
        assert step.work["passages_without_span"] == 4 - len(with_span)
        assert step.work["spans"] == len(with_span)
        assert step.work["hidden_tokens"] == sum(int(one.words[0, 1]) for one in with_span)
        assert sum(len(batch.source) for batch in step.batches) == len(with_span)


def test_a_step_is_a_function_of_its_number():
    policy = find_plugin("policy", "random").plugin(ratio=0.3)
    walked = steps(policy)
    for number in (0, 3, 1):
        fresh = steps(policy)(number)
        for one, other in zip(walked(number).batches, fresh.batches, strict=True):
            assert one.source.tolist() == other.source.tolist()
            assert one.labels.tolist() == other.labels.tolist()


def test_the_same_passage_is_masked_anew_in_every_epoch():
    policy = find_plugin("policy", "random").plugin(ratio=0.3)
    spec = replace(SPEC, batch_size=len(small.passages()), micro_tokens=10**6)
    made = steps(policy, spec=spec)
    first, second = (made(number).work["source_tokens"] for number in (0, 1))
    labels = [sorted(map(str, made(n).batches[0].labels.tolist())) for n in (0, 1)]
    assert first > 0 < second
    assert labels[0] != labels[1]


def test_long_pairs_are_cut_and_stay_closed():
    spec = replace(SPEC, max_source=6, max_target=5)
    for batch in steps(how=Denoising(target="full"), spec=spec)(0).batches:
        assert batch.source.shape[1] == 6
        assert batch.labels.shape[1] == 5
        assert (batch.labels[:, -1] == 2).all()


def test_passages_that_are_cut_are_counted():
    longest = int(small.passages().lengths.max())
    spec = replace(SPEC, max_source=longest + 2, max_target=longest + 1)
    assert steps(how=Denoising(target="spans"), spec=spec).too_long() == (0, "max_source")
    cut, key = steps(how=Denoising(target="full"), spec=spec).too_long()
    assert (cut, key) == (int((small.passages().lengths == longest).sum()), "max_target")
    assert cut


def written(source, target, excluded):
    return DenoisingPairs(
        Ragged.of([np.asarray(source)], np.int32),
        Ragged.of([np.asarray(target)], np.int32),
        excluded,
        np.ones(1, int),
        np.ones(1, int),
    )


def test_excluded_marks_move_with_their_tokens():
    masked = written(range(10, 16), range(3), np.arange(6) == 3)
    whole = SPECIALS.pairs(masked, SPEC)[0]
    assert whole.source.tolist() == [0, *range(10, 16), 2]
    assert whole.excluded.tolist() == [False] * 4 + [True] + [False] * 3
    cut = SPECIALS.pairs(masked, replace(SPEC, max_source=5))[0]
    assert cut.source.tolist() == [0, 10, 11, 12, 2]
    assert cut.excluded.tolist() == [False] * 5
    assert SPECIALS.pairs(replace(masked, excluded=None), SPEC)[0].excluded is None


def test_an_empty_target_stays_empty():
    masked = written(range(10, 16), [], None)
    assert SPECIALS.pairs(masked, SPEC)[0].target.tolist() == []


def test_only_the_empty_targets_stay_empty():
    rows = Ragged.of([np.asarray(row, int) for row in ([], [7], [], [8, 9], [])], np.int32)
    wrapped = SPECIALS.wrap(rows, 30, empty=False)
    assert [row.tolist() for row in wrapped] == [[], [0, 7, 2], [], [0, 8, 9, 2], []]
    assert SPECIALS.wrap(rows, 30)[0].tolist() == [0, 2]


def test_a_cut_keeps_the_side_that_is_asked_for():
    rows = Ragged.of([np.arange(4, 10), np.arange(4, 6)], np.int32)
    kept = {keep: [r.tolist() for r in SPECIALS.wrap(rows, 5, keep)] for keep in ("start", "end")}
    assert kept["start"] == [[0, 4, 5, 6, 2], [0, 4, 5, 2]]
    assert kept["end"] == [[0, 7, 8, 9, 2], [0, 4, 5, 2]]


def test_the_start_of_the_decoder_is_the_models():
    assert Specials.of(small.tokenizer(), 7).start == 7
    assert Specials.of(small.tokenizer()).start == 2


def test_bert_s_own_marks_begin_and_end_a_text():
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    names |= {"pad_token": "[PAD]", "mask_token": "[MASK]"}
    words = Tokenizer(WordLevel({name: i for i, name in enumerate(names.values())}, "[UNK]"))
    marks = Specials.of_encoder(PreTrainedTokenizerFast(tokenizer_object=words, **names))
    assert (marks.bos, marks.eos, marks.pad, marks.mask) == (1, 2, 3, 4)
    assert marks.start is None


def test_an_example_is_trained_on_its_first_target():
    made = ExampleSteps.of(EXAMPLES, small.tokenizer(), SPECIALS, SPEC)
    decoded = [small.tokenizer().decode(pair.target[1:-1]).strip() for pair in made.pairs]
    assert decoded == ["Rome", "the Oder", "Karl Berg"]


@pytest.mark.parametrize("keep", ["start", "end"])
def test_a_task_says_which_side_of_a_source_stays(keep):
    spec = replace(SPEC, max_source=5)
    whole = tokenize([EXAMPLES[0].source], small.tokenizer())[0]
    pair = ExampleSteps.of(EXAMPLES, small.tokenizer(), SPECIALS, spec, keep).pairs[0]
    assert pair.source[1:-1].tolist() == (whole[:3] if keep == "start" else whole[-3:]).tolist()


def test_a_special_tokens_name_in_a_question_is_text():
    for ids in tokenize([example.source for example in EXAMPLES], small.tokenizer()):
        assert not set(ids.tolist()) & set(small.tokenizer().all_special_ids)


def test_every_example_comes_once_in_an_epoch():
    made = ExampleSteps.of(EXAMPLES, small.tokenizer(), SPECIALS, replace(SPEC, batch_size=1))
    seen = [made(number).batches[0].source.tolist()[0] for number in range(3)]
    assert sorted(seen) == sorted(pair.source.tolist() for pair in made.pairs)
    assert made(0).work == {"examples": 1}


@pytest.mark.slow
@pytest.mark.parametrize(("keep", "left"), [("start", "Anna met a"), ("end", "in Rome")])
def test_a_source_with_a_word_of_megabytes_is_encoded_in_pieces(keep, left):
    source = "Anna met " + "abcdefghij" * 300_000 + " in Rome"
    tokens = small.tokenizer().convert_ids_to_tokens(tokenize([source], small.tokenizer())[0])
    assert sum(token[0] == "Ġ" for token in tokens) == 4 + 300  # words, and pieces of the long one
    example = replace(EXAMPLES[0], source=source)
    made = ExampleSteps.of([example], small.tokenizer(), SPECIALS, SPEC, keep)
    (ids,) = made.pairs.sources
    assert len(ids) == SPEC.max_source
    assert left in small.tokenizer().decode(ids)


@dataclass(frozen=True)
class Following:
    """Hide as many of the first words as the progress says, in percent."""

    def select(self, passage, rng, progress):
        return passage.words[: round(100 * progress)]


def test_the_progress_is_the_share_of_the_whole_budget_that_is_done():
    made = steps(Following(), spec=replace(SPEC, steps=50))
    for number in (3, 0, 49, 3):
        chosen = [small.passages()[item] for item, _ in made.order.step(number)]
        hidden = sum(len(one.words[: 2 * number].flatten()) // 2 for one in chosen)
        assert made(number).work["spans"] == hidden


def test_a_schedule_hides_what_a_number_hides_at_that_step():
    policy = find_plugin("policy", "random").plugin
    spec = replace(SPEC, steps=10)
    scheduled = steps(policy(ratio=Schedule(0.8, 0.2)), spec=spec)
    for number in (0, 5, 9):
        fixed = steps(policy(ratio=0.8 - 0.06 * number), spec=spec)
        for one, other in zip(scheduled(number).batches, fixed(number).batches, strict=True):
            assert one.source.tolist() == other.source.tolist()


def test_an_order_knows_the_step_of_each_item():
    order = Order(small.passages().lengths, 3, seed=4)
    count = len(small.passages())
    places = {
        (item, epoch): number for number in range(count) for item, epoch in order.step(number)
    }
    for epoch in (0, 1):
        assert order.steps_of(np.arange(count), epoch).tolist() == [
            places[item, epoch] for item in range(count)
        ]
