"""The public collator: its batches, its errors, and its dependencies."""

import math
import pickle
import re
import subprocess
import sys
from copy import deepcopy
from importlib.metadata import distribution
from pathlib import Path

import encoders
import numpy as np
import pytest
import small
import torch
from accelerate.data_loader import IterableDatasetShard
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from refusals import messages, refused
from transformers import AutoModelForCausalLM, AutoTokenizer

from maskpolicy import MaskingCollator
from maskpolicy.core.errors import ConfigError, DataError, PluginError
from maskpolicy.core.schema import Schedule
from maskpolicy.core.types import Denoising
from maskpolicy.data.corpus import sums
from maskpolicy.data.corpus.passages import Document, tokenize
from maskpolicy.experiment.budgets import Training
from maskpolicy.masking.denoising import denoising_pairs
from maskpolicy.masking.selection import select
from maskpolicy.models.training.batching import IGNORE
from maskpolicy.models.training.specials import Specials
from maskpolicy.plugins import discovery

discovery.load_builtin("policy")
from maskpolicy.policies.column import Column  # noqa: E402
from maskpolicy.policies.salient_span import SalientSpan  # noqa: E402
from maskpolicy.policies.uniform import Uniform  # noqa: E402

ROOT = Path(__file__).parents[2]
ROWS = [{"text": text} for text in small.TEXTS]
TOKENIZER = small.tokenizer()
SPECIALS = Specials.of(TOKENIZER)


def collator(policy="random", **keys):
    return MaskingCollator(policy, TOKENIZER, **keys)


def encoded(text, **keys):
    return TOKENIZER(text, return_offsets_mapping=True, **keys)


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def words(ids):
    return TOKENIZER.decode([i for i in ids if i not in (IGNORE, SPECIALS.pad)])


def test_a_batch_equals_that_of_maskpolicys_own_training():
    documents = [Document(str(i), row["text"]) for i, row in enumerate(ROWS)]
    passages = list(tokenize(documents, TOKENIZER))
    rows = [{"id": i, **row} for i, row in enumerate(ROWS)]
    batch = collator(Uniform(0.3), seed=7, target="full")(rows)
    turns = range(len(ROWS))
    spans = select(Uniform(0.3), passages, 7, turns)
    written = denoising_pairs(passages, spans, Denoising(target="full"), SPECIALS, 7, turns)
    for turn, pair in enumerate(SPECIALS.pairs(written, Training())):
        assert batch["input_ids"][turn, : len(pair.source)].tolist() == pair.source.tolist()
        assert batch["labels"][turn, : len(pair.target)].tolist() == pair.target.tolist()


def test_tensors_have_the_shapes_and_the_shift_that_bart_wants():
    batch = collator("original", target="full")(ROWS)
    assert list(batch) == ["input_ids", "attention_mask", "decoder_input_ids", "labels"]
    assert all(tensor.dtype == torch.int64 for tensor in batch.values())
    assert batch["input_ids"].shape == batch["attention_mask"].shape
    assert ((batch["input_ids"] == SPECIALS.pad) == (batch["attention_mask"] == 0)).all()
    labels, decoder = batch["labels"], batch["decoder_input_ids"]
    assert (decoder[:, 0] == SPECIALS.eos).all()
    shifted = labels[:, :-1].masked_fill(labels[:, :-1] == IGNORE, SPECIALS.pad)
    assert torch.equal(decoder[:, 1:], shifted)
    assert all(
        words(row) == f"<s> {text}</s>" for row, text in zip(labels, small.TEXTS, strict=True)
    )


def test_masks_are_fresh_on_every_call_and_equal_for_equal_calls():
    one, two = collator(seed=1), collator(seed=1)
    first = one(ROWS)
    assert same(first, two(ROWS))
    second = one(ROWS)
    assert not same(first, second)
    assert same(second, two(ROWS))
    assert not same(first, collator(seed=2)(ROWS))


def test_a_worker_draws_by_its_own_seed_and_that_of_the_collator():
    def masks(seed):
        torch.manual_seed(0)  # of the workers' seeds
        made = collator(seed=seed)
        return next(iter(torch.utils.data.DataLoader(ROWS, 9, collate_fn=made, num_workers=1)))

    assert same(masks(1), masks(np.int64(1)))
    assert not same(masks(1), masks(2))


@given(st.lists(st.sampled_from(small.TEXTS), min_size=1, max_size=4), st.integers(0, 99))
def test_special_tokens_are_never_masked(texts, seed):
    rows = [encoded(text, padding="max_length", max_length=60) | {"text": text} for text in texts]
    batch = collator(Uniform(1.0), seed=seed, corruption="token", target="full")(rows)
    for ids, seen, text in zip(batch["input_ids"], batch["attention_mask"], texts, strict=True):
        count = len(TOKENIZER(text)["input_ids"])
        assert seen.sum() == count
        assert ids[0] == SPECIALS.bos and ids[count - 1] == SPECIALS.eos
        assert (ids[1 : count - 1] == SPECIALS.mask).all()


def test_ids_give_the_same_batch_as_their_text():
    plain = collator(seed=3)([{"id": i, **row} for i, row in enumerate(ROWS)])
    whole = [{"id": i, **row, **encoded(row["text"])} for i, row in enumerate(ROWS)]
    alone = [{"id": i, "input_ids": torch.tensor(row["input_ids"])} for i, row in enumerate(whole)]
    assert same(plain, collator(seed=3)(whole))
    assert same(plain, collator(seed=3)(alone))


def test_offsets_within_words_of_a_list_are_not_taken_for_those_of_the_text():
    bert, text = encoders.tokenizer("bert"), "東京は日本の首都です"
    words = bert(list(text), is_split_into_words=True, return_offsets_mapping=True)
    masks = MaskingCollator({"name": "whole-word", "ratio": 0.3}, bert, language="ja")
    batch = masks([{"id": i, "text": text, **words} for i in range(20)])
    shares = (batch["labels"] != -100).sum(1) / len(words["input_ids"])
    assert shares.min() > 0 and shares.max() < 0.6  # by the offsets, the text is one word


def test_offsets_of_a_window_that_share_a_character_or_hold_a_special_token_are_kept():
    xlm = encoders.tokenizer("xlm-roberta")
    text = "In Rome 𐍈𐍈 <mask> the river Oder flows 日本 on."
    whole = xlm(text, return_offsets_mapping=True, add_special_tokens=False)
    (at,) = [i for i, span in enumerate(whole["offset_mapping"]) if text[slice(*span)] == "<mask>"]
    window = {"id": 0, "text": text, **{name: ids[at - 3 :] for name, ids in whole.items()}}
    river = [(text.index("river"), text.index("river") + 5)]
    batch = MaskingCollator(
        {"name": "column", "column": "facts"}, xlm, kind="encoder", columns=["facts"]
    )([{**window, "facts": river}])
    masked = [ids for ids in batch["labels"][0].tolist() if ids != -100]
    assert "".join(xlm.convert_ids_to_tokens(masked)).replace("▁", "") == "river"


def test_ids_are_kept_even_if_the_tokenizer_would_split_otherwise():
    text = "Rome"
    letters = [TOKENIZER.encode(letter, add_special_tokens=False)[-1] for letter in text]
    row = {"text": text, "input_ids": letters, "offset_mapping": [(i, i + 1) for i in range(4)]}
    batch = collator(Uniform(1.0), target="full")([row])
    assert batch["labels"][0, 1:-1].tolist() == letters


def test_salient_spans_are_annotated_once_for_each_text():
    class Counting(SalientSpan):
        texts = 0

        def annotate(self, passages, fitted=None):
            type(self).texts += len(passages)
            return super().annotate(passages, fitted)

    collate = collator(Counting())
    for _ in range(3):
        batch = collate(ROWS[:3])
    assert Counting.texts == 3
    hidden = words(batch["labels"][0])[len("<s>") : -len("</s>")].strip()
    assert hidden in ("Anna Kovar", "Rome", "1901", "The Red River", "Red River", "Paris")


@pytest.mark.parametrize(
    ("spans", "said"),
    [
        ([[0, 10], [23, 27]], " Anna Kovar<mask> Rome"),
        ([(0, 10, 3), (23, 27, 5)], " Anna Kovar<mask> Rome"),  # further items, as in a corpus
        ([[0, 10, "PER"], [23, 27]], " Anna Kovar<mask> Rome"),
        (torch.tensor([[0, 10]]), " Anna Kovar"),
        ([torch.tensor([0, 10])], " Anna Kovar"),
        ([np.array([0, 10])], " Anna Kovar"),
        ([(np.int64(0), np.int64(10))], " Anna Kovar"),
        (None, None),
        ([0, 10], r"'answers' must be a list of \[start, end\] characters"),
        ([[10, 0]], r"\[10, 0\] is not a range of the 86-character text"),
    ],
)
def test_spans_of_rows_are_read_as_those_of_a_corpus(spans, said):
    row = {"text": small.TEXTS[0], "answers": spans}
    collate = collator(Column("answers", spans="all"), columns="answers")
    if "text" in str(said) or "must" in str(said):
        refused(collate, [row], error=DataError, match=said)
    else:
        assert words(collate([row])["labels"][0]) == (f"<s>{said}</s>" if said else "")


@pytest.mark.parametrize("text", ["nothing is here", "x", ""])
def test_a_batch_without_any_span_has_no_labels_and_no_gradient(text):
    batch = collator("salient-span")([{"text": text}] * 2)
    assert batch["labels"].tolist() == [[IGNORE], [IGNORE]]
    assert batch["decoder_input_ids"].shape == (2, 1)
    model = small.bart()
    model(**batch).loss.backward()
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    assert gradients
    assert all((gradient == 0).all() for gradient in gradients)


def test_the_language_decides_where_words_end(caplog):
    batches = [
        collator("whole-word", language=one, seed=16)([{"text": "他在巴黎出生和长大"}])
        for one in ("en", "zh")
    ]
    whole, one = (words(batch["labels"][0]) for batch in batches)
    assert whole == "<s> 他在巴黎出生和长大</s>" and len("<s></s>") < len(one) < len(whole)
    assert ["no blanks between words: set language" in line for line in caplog.messages] == [True]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (ROWS[0], "lacks column 'answers'"),
        ({}, r"neither 'text' nor 'input_ids' but nothing: .*remove_unused_columns=False"),
        ({"labels": 3}, r"but \['labels'\]"),
        ({"sentence": "a"}, "rename the column of texts to 'text'"),
        ({"text": 3}, "'text' must be text, not 3"),
        ({"text": None}, "'text' must be text, not None"),
        ("a b c", "a row must be a dict such as"),
        ({"text": "a\0"}, "a row's 'text' holds a NUL"),
        ({"input_ids": [5, -100]}, "'input_ids' must be ids of the tokenizer, not"),
        ({"input_ids": [5, 10**6]}, "'input_ids' must be ids of the tokenizer, not"),
        ({"input_ids": "abc"}, "'input_ids' must be ids of the tokenizer, not 'abc'"),
        ({"input_ids": [5, 6], "offset_mapping": [(0, 1)]}, "has 2 input_ids, but 1 offsets"),
    ],
)
def test_a_row_that_cannot_be_used_raises_one_line(row, message):
    with pytest.raises(DataError, match=message):
        collator(columns=("answers",))([row])


class Once(Uniform):
    """Shuffles its column."""

    def annotate(self, passages, fitted=None):
        return {"units": [passage.words + 0 for passage in passages]}

    def select(self, passage, rng):
        rng.shuffle(passage.columns["units"])
        return passage.words


def test_a_policy_cannot_change_its_columns():
    refused(collator(Once()), ROWS, error=PluginError, match="read-only")


class First(Uniform):
    """Reads the first sentence of a passage, and masks a word that it draws by itself."""

    def annotate(self, passages, fitted=None):
        return {"units": [passage.sentences[0][None] for passage in passages]}

    def select(self, passage, rng):
        return np.random.default_rng().permutation(passage.words)[:1]


def test_a_policy_sees_no_text_without_tokens_and_draws_from_its_generator_alone():
    batch = collator(First())([{"text": ""}])
    assert (batch["labels"] == IGNORE).all()
    refused(collator(First()), [{"text": ""}, *ROWS * 9], match="when it is called again")


def test_special_tokens_of_the_user_are_named(caplog):
    added = deepcopy(TOKENIZER)
    added.add_special_tokens({"additional_special_tokens": ["[SPEAKER]"]})
    MaskingCollator("random", added)
    assert "special tokens [SPEAKER] are ordinary text" in caplog.text


def test_a_plugin_that_was_edited_is_imported_again(tmp_path):
    path = tmp_path / "edited.py"
    for count in (1, 2):
        path.write_text(small.POLICY.format(name="words-of-a-file") + f"\n\nCOUNT = {count}\n")
        if count == 1:
            discovery.load_files([path])
        made = type(collator("words-of-a-file").policy)
        assert vars(sys.modules[made.__module__])["COUNT"] == count


ZSRE = {"name": "supervised", "train_on": ["zsre"]}


@pytest.mark.parametrize(("call", "says"), messages(__file__, "collator.txt"))
def test_an_invalid_policy_or_setting_raises(call, says):
    said = refused(eval, call, globals())
    assert said.startswith("MaskingCollator: ") and says in said


def test_a_block_sets_the_fields_of_a_policy_and_how_it_is_written():
    block = collator({"name": "random", "ratio": 0.3, "target": "full"}, seed=7)
    assert same(block(ROWS), collator(Uniform(0.3), seed=7, target="full")(ROWS))
    assert (
        collator({"name": "random", "target": "full"}, target="spans").denoising.target == "spans"
    )


def test_no_rows_no_steps_and_no_tokenizer_raise():
    with pytest.raises(ValueError, match="at least one row"):
        collator()([])
    with pytest.raises(ConfigError, match="steps: must be >= 1, not 0"):
        collator().for_steps(0, 0)
    with pytest.raises(ConfigError, match="first: must be >= 0, not -1"):
        collator().for_steps(-1, 8)  # a schedule would be read before its beginning
    with pytest.raises(ConfigError, match=r"must be a fast one .*not NoneType"):
        MaskingCollator("random", None)


def test_a_schedule_follows_the_steps_of_the_whole_training():
    rows = [{"id": i, "text": small.TEXTS[0]} for i in range(8)]
    scheduled = collator(Uniform(Schedule(1.0, 0.0)))
    loader = torch.utils.data.DataLoader(
        rows, batch_size=2, collate_fn=scheduled.for_steps(3, 8, batches=2)
    )
    for number, batch in enumerate(loader):
        fixed = collator(Uniform(1 - (3 + number // 2) / 8))
        assert same(batch, fixed.for_steps(3 + number // 2, 8)(rows[2 * number : 2 * number + 2]))
    last = scheduled.for_steps(7, 8)(rows)
    assert (last["labels"] != IGNORE).any()  # the rate stays above that of the end
    with pytest.raises(ConfigError, match=r"give the Trainer callbacks=\[collator.callback\(\)\]"):
        scheduled(rows)


@pytest.mark.slow
def test_a_mixture_masks_each_row_with_its_members_objective():
    block = {"name": "mixture", "members": [{"name": "salient-span", "target": "full"}, "random"]}
    made = collator(block, seed=3)
    batch = made([{"text": small.TEXTS[0]}] * 40)
    lengths = {int(n) for n in (batch["labels"] != IGNORE).sum(1)}
    whole = len(TOKENIZER(small.TEXTS[0]).input_ids)
    assert whole in lengths and min(lengths) < whole / 2
    assert pickle.loads(pickle.dumps(made))(ROWS).keys() == batch.keys()
    with pytest.raises(ConfigError, match="target: mixture draws policies: set it in the blocks"):
        collator(block, target="full")


COUNTED = ["Karl Berg sold the mill"] * 3 + ["the Red River", "the Red River", "the mill"]


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_an_encoder_predicts_masked_tokens_at_their_places(family):
    tokenizer, model = encoders.tokenizer(family), encoders.model(family)
    collate = MaskingCollator({"name": "whole-word", "ratio": 0.3}, tokenizer, model=model)
    batch = collate(ROWS)
    names = {"input_ids", "attention_mask", "labels"}
    has_types = "token_type_ids" in tokenizer.model_input_names
    assert set(batch) == names | ({"token_type_ids"} if has_types else set())
    masked = batch["labels"] != IGNORE
    assert torch.equal(masked, batch["input_ids"] == tokenizer.mask_token_id)
    whole = torch.where(masked, batch["labels"], batch["input_ids"])
    plain = deepcopy(tokenizer)(list(small.TEXTS), padding=True, return_tensors="pt")
    assert torch.equal(whole, plain["input_ids"])
    assert torch.equal(batch["attention_mask"], plain["attention_mask"])
    assert math.isfinite(model(**batch).loss.item())


def test_labels_are_as_wide_as_the_sources_where_the_longest_is_not_masked():
    rows = [{"text": "nothing at all is a name in here, nor is it a year"}, {"text": "Rome"}]
    batch = MaskingCollator("salient-span", encoders.tokenizer("roberta"), kind="encoder")(rows)
    assert batch["labels"].shape == batch["input_ids"].shape
    assert (batch["labels"][0] == IGNORE).all() and (batch["labels"][1] != IGNORE).any()


def test_the_kind_follows_from_model_folder_or_tokenizer(tmp_path):
    assert collator().kind == "seq2seq"
    assert MaskingCollator("random", encoders.tokenizer("bert")).kind == "encoder"
    saved = AutoTokenizer.from_pretrained(encoders.saved("roberta", tmp_path))
    assert MaskingCollator("random", saved).kind == "encoder"
    assert MaskingCollator("random", saved, model=small.bart()).kind == "seq2seq"
    assert MaskingCollator("random", saved, kind="seq2seq").kind == "seq2seq"


def test_statistics_may_be_the_folder_of_an_artifact(tmp_path):
    passages = [small.passage(text) for text in COUNTED]
    policy = discovery.instance("policy", "informask", {"ratio": 0.5})
    sums.count(policy, passages, tmp_path)
    rows = [{"text": text} for text in COUNTED]
    one = collator(policy, statistics=tmp_path, seed=3)(rows)
    assert same(one, collator(policy, statistics=COUNTED, seed=3)(rows))
    assert same(one, collator(policy, statistics=str(tmp_path), seed=3)(rows))
    with pytest.raises(DataError, match="holds no statistics"):
        collator(policy, statistics=tmp_path / "elsewhere")


def test_a_member_of_a_mixture_needs_its_statistics():
    mixture = {"name": "mixture", "members": ["random", "informask-rates"]}
    with pytest.raises(ConfigError, match="policy informask-rates needs the statistics"):
        collator(mixture)
    batch = collator(mixture, statistics=COUNTED)([{"text": text} for text in COUNTED])
    assert (batch["labels"] != IGNORE).any()


def test_numpy_and_transformers_are_all_that_it_needs(tmp_path):
    """What docs/install.md installs for the collator alone, linked into a folder of its own."""
    stated = re.findall(
        r"^pip install .* (numpy transformers)$", (ROOT / "docs/install.md").read_text(), re.M
    )
    names, needed = stated[0].split(), set()
    while names:
        if (name := canonicalize_name(names.pop())) not in needed:
            needed.add(name)
            required = map(Requirement, distribution(name).requires or ())
            names += [each.name for each in required if not each.marker or each.marker.evaluate()]
    for name in needed:
        for top in {file.parts[0] for file in distribution(name).files or ()} - {".."}:
            if not (tmp_path / top).exists():
                (tmp_path / top).symlink_to(distribution(name).locate_file(top))
    TOKENIZER.save_pretrained(tmp_path / "tokenizer")
    code = """
import sys
sys.path += sys.argv[1:3]
from maskpolicy import MaskingCollator
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1] + "/tokenizer")
batch = MaskingCollator("random", tokenizer, kind="seq2seq")([{"text": "He died in 1893."}])
print({type(each).__module__ for each in batch.values()}, "torch" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, tmp_path, ROOT], capture_output=True, text=True
    )
    assert done.stdout == "{'numpy'} False\n", done.stderr[-2000:]


@pytest.mark.parametrize(("make", "positions"), [(small.bart, 16), (small.roberta, 18)])
def test_a_text_is_cut_to_the_positions_of_the_model(make, positions):
    model = make(max_position_embeddings=positions)
    batch = collator(model=model)([{"text": "He died in 1893. " * 20}])
    assert batch["input_ids"].shape == (1, 16)


def test_a_model_that_does_not_fit_is_refused(tmp_path):
    wrong = AutoModelForCausalLM.from_config(encoders.config("bert"))
    tokenizer = deepcopy(encoders.tokenizer("bert"))
    refused(MaskingCollator, "random", tokenizer, model=wrong, match="BertLMHeadModel has other")
    bert = encoders.model("bert")
    tokenizer.add_tokens([f"own{i}" for i in range(bert.config.vocab_size)])
    refused(MaskingCollator, "random", tokenizer, model=bert, match="call resize_token_embeddings")
    tokenizer = AutoTokenizer.from_pretrained(encoders.saved("bert", tmp_path / "it"))
    batch = MaskingCollator("random", tokenizer)([{"text": "many old mills " * 400}])
    assert batch["input_ids"].shape[1] == bert.config.max_position_embeddings
    tokenizer.unk_token = tokenizer.pad_token = tokenizer.sep_token
    ids = tokenizer("many old mills", padding="max_length", max_length=16)["input_ids"]
    (source,) = MaskingCollator("random", tokenizer)([{"input_ids": ids}])["input_ids"]
    assert len(source) < 16


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_ids_alone_stay_as_they_are(family):
    tokenizer = encoders.tokenizer(family)
    ids = tokenizer("many ☃ old ☃", add_special_tokens=False)["input_ids"]
    for begin in range(4):  # within a word, at an unknown token, within a character
        batch = MaskingCollator("random", tokenizer, kind="encoder")([{"input_ids": ids[begin:]}])
        source, labels = batch["input_ids"][0], batch["labels"][0]
        read = torch.where(labels == IGNORE, source, labels)
        assert read[1:-1].tolist() == ids[begin:]


def test_ids_beside_a_text_are_used_without_their_offsets():
    text = small.TEXTS[0]
    ids = TOKENIZER(text, truncation=True, max_length=9)["input_ids"]
    full = collator(Uniform(1.0), target="full")
    for part in (ids, ids[:1] + ids[4:]):  # the beginning, and a part of the text
        assert full([{"text": text, "input_ids": part}])["labels"][0].tolist() == part
    with pytest.raises(DataError, match="not those of its 'text', which its columns refer to"):
        collator(columns=("facts",))([{"text": text, "input_ids": ids[3:], "facts": [[0, 2]]}])


def test_a_row_whose_id_is_none_is_masked_as_one_without():  # as in concatenated datasets
    one, other = (collator().for_steps(0, 1) for _ in range(2))
    assert same(one([{**row, "id": None} for row in ROWS]), other(ROWS))


def test_workers_that_begin_a_second_epoch_are_refused():  # they would count from the first step
    steps = collator("random").for_steps(0, 2)
    loader = torch.utils.data.DataLoader(ROWS[:2], 1, collate_fn=steps, num_workers=1)
    assert len(list(loader)) == 2
    with pytest.raises(ConfigError, match="collate_fn to for_steps"):
        next(iter(loader))


@pytest.mark.parametrize("is_shared", [False, True])
def test_steps_do_not_count_workers_that_have_no_shard(is_shared):
    rows = Dataset.from_list([{"text": row["text"]} for row in ROWS[:2]] * 3).to_iterable_dataset()
    if is_shared:  # as accelerate shares it among processes
        rows = IterableDatasetShard(rows)
    falling = collator({"name": "random", "ratio": {"start": 1.0, "end": 0.0}})
    one, more = (
        torch.utils.data.DataLoader(rows, 1, collate_fn=falling.for_steps(0, 6), num_workers=number)
        for number in (0, 2)
    )
    assert all(same(a, b) for a, b in zip(one, more, strict=True))


@pytest.mark.parametrize(
    ("first", "second"),
    [("He died in 1893.", "The old park."), ("the", "The old park."), ("the", "by")],
)
def test_offsets_of_a_pair_are_not_those_of_its_first_text(first, second):
    pair = encoded(first, text_pair=second)
    rows = [{**pair, "text": first}, {"input_ids": pair["input_ids"]}]
    made = [collator()._tokens(row) for row in rows]
    assert made[0][0] == made[1][0] and made[0][2].tolist() == made[1][2].tolist()


def test_masks_are_the_same_whatever_holds_the_numbers_of_a_row():
    text = "Ada Lovelace was born near the old park in the town of Ulm in 1893. " * 3
    row = {**encoded(text), "text": text, "facts": [(0, 3), (4, 12)]}
    lists = {
        **row,
        "offset_mapping": [*map(list, row["offset_mapping"])],
        "facts": [[0, 3], [4, 12]],
    }
    arrays = {**lists, **{name: np.asarray(lists[name]) for name in ("input_ids", "facts")}}
    made = [collator(columns="facts")([each]) for each in (row, lists, arrays)]
    assert same(made[0], made[1]) and same(made[1], made[2])
