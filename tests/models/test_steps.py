"""Training data: the order, special tokens, and the steps of passages and examples."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
import small
import text_to_text
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from maskpolicy.core.ragged import Ragged
from maskpolicy.core.types import Denoising, Example, as_spans
from maskpolicy.experiment.budgets import Training
from maskpolicy.masking.denoising import DenoisingPairs
from maskpolicy.models.loading import load_tokenizer
from maskpolicy.models.training.batching import Order, Pair, Pairs, Share, collate, micro_batches
from maskpolicy.models.training.specials import Specials, added_ends, check_tokens
from maskpolicy.models.training.steps import ExampleSteps, MaskedSteps, tokenize

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


def test_a_policy_that_masks_late_must_mask_the_same_again():
    steps().check_repeats(SPEC.steps)
    steps(Rising()).check_repeats(1)
    refused(steps(Rising()).check_repeats, SPEC.steps, match="masks other tokens when it is called")


def test_the_work_of_a_step_counts_masked_passages_and_tokens():
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
        Ragged.of([excluded], bool),
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


def test_only_the_empty_targets_stay_empty():
    rows = Ragged.of([np.asarray(row, int) for row in ([], [7], [], [8, 9], [])], np.int32)
    wrapped = SPECIALS.wrap_targets(rows, 30, empty=False)
    assert [row.tolist() for row in wrapped] == [[], [0, 7, 2], [], [0, 8, 9, 2], []]
    assert SPECIALS.wrap_targets(rows, 30)[0].tolist() == [0, 2]


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


@dataclass(frozen=True)
class Following:
    """Hide as many of the first words as the progress says, in percent."""

    def select(self, passage, rng, progress):
        return passage.words[: round(100 * progress)]


def test_the_progress_is_the_share_of_the_whole_budget_that_is_done():
    made = steps(Following(), spec=replace(SPEC, steps=50, max_target=99))
    for number in (3, 0, 49, 3):
        chosen = [small.passages()[item] for item, _ in made.order.step(number)]
        hidden = sum(len(one.words[: 2 * number].flatten()) // 2 for one in chosen)
        assert made(number).work["spans"] == hidden


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


LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=30).map(np.asarray)
PAIRS = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 8)), max_size=20).map(
    lambda sizes: [Pair(np.full(n, 7, np.int32), np.full(m, 8, np.int32)) for n, m in sizes]
)


def content(pair):
    return pair.source.tobytes(), pair.target.tobytes()


@given(LENGTHS, st.integers(1, 12), st.integers(0, 5), st.integers(1, 3))
def test_every_item_comes_once_in_every_epoch(lengths, size, seed, window):
    order = Order(lengths, size, seed, window)
    steps = -(-3 * len(lengths) // size)
    places = [place for number in range(steps) for place in order.step(number)]
    assert all(len(order.step(number)) == size for number in range(steps))
    for epoch in range(3):
        items = [item for item, of in places if of == epoch]
        assert sorted(items) == list(range(len(lengths)))
    assert [epoch for _, epoch in places] == sorted(epoch for _, epoch in places)


@given(LENGTHS, st.integers(1, 12), st.integers(0, 5), st.lists(st.integers(0, 20), max_size=5))
def test_a_step_does_not_depend_on_the_steps_before(lengths, size, seed, numbers):
    walked = Order(lengths, size, seed)
    for number in numbers:
        assert walked.step(number) == Order(lengths, size, seed).step(number)


def test_a_step_has_items_of_similar_length():
    lengths = np.random.default_rng(0).integers(1, 100, 320)
    order = Order(lengths, 10, 0)
    spread = [np.ptp([lengths[item] for item, _ in order.step(n)]) for n in range(32)]
    assert np.mean(spread) < 15
    assert np.ptp([np.mean([lengths[i] for i, _ in order.step(n)]) for n in range(3)]) > 1


@given(PAIRS, st.integers(1, 200), st.booleans())
def test_micro_batches_are_complete_and_within_the_budget(pairs, budget, decodes):
    cuts = micro_batches(Pairs.of(pairs), budget, decodes)
    cut = [content(pair) for batch in cuts for pair in batch]
    assert Counter(cut) == Counter(content(pair) for pair in pairs if len(pair.target))
    for batch in cuts:
        padded = max(len(p.source) for p in batch) + decodes * max(len(p.target) for p in batch)
        assert len(batch) == 1 or len(batch) * padded <= budget


def test_labels_that_no_decoder_reads_do_not_count():
    pairs = Pairs.of([Pair(np.arange(10), np.arange(10))] * 8)
    assert [len(micro_batches(pairs, 80, decodes)) for decodes in (False, True)] == [1, 2]


TEXT = "The cute dog walks in the park."


@pytest.mark.parametrize("name", text_to_text.TOKENIZERS)
def test_a_source_has_the_special_tokens_of_the_tokenizer(name):
    tokenizer = text_to_text.tokenizer(name)
    (row,) = Specials.of(tokenizer).wrap(tokenize([TEXT], tokenizer), 512)
    assert row.tolist() == tokenizer(TEXT)["input_ids"]


@pytest.mark.parametrize("name", ["bart", "t5", "mbart", "mbart50", "nllb", "pegasus"])
def test_a_target_has_the_special_tokens_of_the_tokenizer(name):
    tokenizer = text_to_text.tokenizer(name)
    (row,) = Specials.of(tokenizer).wrap_targets(tokenize([TEXT], tokenizer), 512)
    assert row.tolist() == tokenizer(text_target=TEXT)["input_ids"]


def test_the_language_of_a_saved_tokenizer_stays(tmp_path):
    made = type(text_to_text.tokenizer("mbart50"))
    text_to_text.tokenizer("mbart50").save_pretrained(tmp_path / "one")
    made.from_pretrained(tmp_path / "one", src_lang="de_DE").save_pretrained(tmp_path / "two")
    tokenizer = load_tokenizer(str(tmp_path / "two"))
    german = tokenizer.convert_tokens_to_ids("de_DE")
    assert Specials.of(tokenizer).source_ends == ((german,), (2,))
    assert Specials.of(tokenizer).target_ends == ((german,), (2,))


def test_sentinels_may_be_pieces_as_in_mt5():
    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    vocab += [(f"▁<extra_id_{i}>", -1.0) for i in (2, 1, 0)]
    raw = Tokenizer(models.Unigram(vocab, unk_id=2))
    own = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, **own)
    assert Specials.of(tokenizer).sentinels == (5, 4, 3)
    check_tokens(tokenizer, "it")


def test_pegasus_has_two_masks():
    tokenizer = text_to_text.tokenizer("pegasus")
    found = Specials.of(tokenizer)
    assert tokenizer.convert_ids_to_tokens([found.mask, found.sentence]) == ["<mask_2>", "<mask_1>"]
    assert Specials.of(small.tokenizer()).sentence is None


def test_a_tokenizer_that_adds_nothing_gets_both_ends():
    words = Tokenizer(models.WordLevel({"a": 0, "<s>": 1, "</s>": 2, "<pad>": 3, "<mask>": 4}, "a"))
    own = {"bos": "<s>", "eos": "</s>", "pad": "<pad>", "mask": "<mask>"}
    tokens = {f"{name}_token": token for name, token in own.items()}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **tokens)
    assert added_ends(tokenizer) == ((), ())
    assert Specials.of(tokenizer) == Specials(bos=1, eos=2, pad=3, mask=4, start=2)
    del tokens["bos_token"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **tokens)
    assert Specials.of(tokenizer).source_ends == ((), (2,))
    assert Specials.of(tokenizer).start == 3


@pytest.mark.parametrize(("ranks", "size"), [(2, 64), (4, 64), (8, 64), (8, 256)])  # 64: of paper/
def test_processes_share_each_step_by_tokens(ranks, size):
    lengths = np.random.default_rng(0).lognormal(4, 0.8, 40 * size).astype(int) + 1
    whole = Order(lengths, size, 0, most=512)
    shares = [replace(whole, share=Share(rank, ranks)) for rank in range(ranks)]
    for number in range(40):
        parts = [share.step(number) for share in shares]
        assert sorted(pair for part in parts for pair in part) == sorted(whole.step(number))
        tokens = [sum(min(lengths[i], 512) for i, _ in part) for part in parts]
        assert min(tokens) >= 0.8 * np.mean(tokens)


def test_the_rows_of_all_processes_are_those_of_the_step():
    whole = steps()
    shares = [replace(whole, share=Share(rank, 3))(0) for rank in range(3)]
    step = whole(0)
    sources = [
        sorted(row for batch in each for row in rows(batch.source, SPECIALS.eos))
        for each in (step.batches, [batch for share in shares for batch in share.batches])
    ]
    assert len(sources[0]) == 3 and sources[0] == sources[1]
    assert sum(share.units for share in shares) == step.units
    assert sum((Counter(share.work) for share in shares), Counter()) == +Counter(step.work)
    assert replace(whole, share=Share(8, 9))(0).batches == []


def test_rows_that_fill_a_bucket_have_no_labels():
    pairs = Pairs.of(
        [Pair(np.arange(5, 5 + n), np.arange(5, 9)) for n in (3, 4, 9, 9, 9, 9, 9, 9, 9)]
    )
    plain, filled = (collate(pairs, 1, 2, limits) for limits in (None, (40, 30)))
    assert [len(plain.source), len(filled.source)] == [9, 10]
    assert filled.source[9].eq(filled.source[0]).all()
    assert filled.labels[9].eq(-100).all()
    assert filled.labels[:9, :4].eq(plain.labels).all()
