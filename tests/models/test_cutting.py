"""Passages longer than a source are cut before they are masked, and their columns with them."""

from collections import Counter
from functools import cache

import numpy as np
import pytest
import small
import text_to_text
from hypothesis import given
from hypothesis import strategies as st
from languages import SENTENCES
from strategies import DENOISINGS

from maskpolicy import MaskingCollator
from maskpolicy.core.ragged import Ragged
from maskpolicy.core.types import Denoising, as_spans
from maskpolicy.data.corpus.passages import Passages
from maskpolicy.experiment.budgets import Training
from maskpolicy.models.scratch import train_tokenizer
from maskpolicy.models.training.batching import IGNORE
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import MaskedSteps
from maskpolicy.plugins import discovery, hooks, registry
from maskpolicy.plugins.discovery import find_plugin

POLICIES = ("random", "random-40", "whole-word", "span", "poisson", "mass", "prefix-lm")
TOKENIZERS = ("bart", "t5", "mbart", "pegasus", "bert2bert")


def passages(name):
    return small.passages(text_to_text.tokenizer(name))


def masked(policy, how, tokenizer, limit, of_target=500):
    """Return steps over all passages, and (kept tokens, source, target) of each, without ends."""
    specials = Specials.of(text_to_text.tokenizer(tokenizer))
    spec = Training(batch_size=len(passages(tokenizer)), max_source=limit, max_target=of_target)
    plugin = find_plugin("policy", policy).plugin()
    steps = MaskedSteps(passages(tokenizer), plugin, how, specials, spec)
    pairs = specials.pairs(steps.written(0), spec)
    (before, after), ends = specials.ends(), specials.ends("max_target")
    rows = []
    for (item, _), pair in zip(steps.order.step(0), pairs, strict=True):
        assert len(pair.source) <= limit
        assert len(pair.target) <= of_target
        kept = passages(tokenizer)[item].tokens[: steps.room].tolist()
        source = pair.source[len(before) : len(pair.source) - len(after)].tolist()
        target = pair.target[len(ends[0]) : len(pair.target) - len(ends[1])].tolist()
        rows.append((kept, source, target))
    return steps, rows


def split(target, specials):
    """Return the text of each mark of a source, in order."""
    marks = specials.sentinels or (specials.mask,)
    runs = [[]]
    for token in target:
        if token in marks:
            runs.append([])
        else:
            runs[-1].append(token)
    return runs[1:-1] if specials.sentinels else runs


def assert_reproduced(kept, source, target, how, specials):
    """Check that a source and its target, without their ends, together make the kept tokens."""
    marks = {specials.mask, specials.sentence, *specials.sentinels}
    visible = [token for token in source if token not in marks]
    if not target:
        assert Counter(source) == Counter(kept)
        assert how.permute_sentences or source == kept
        return
    if how.target == "full":
        assert target == kept
        assert how.replacement or not Counter(visible) - Counter(kept)
        return
    hidden = [token for token in target if token not in marks]
    assert Counter(visible) + Counter(hidden) == Counter(kept)
    if how.permute_sentences or how.insert or specials.sentence:
        return
    if how.join == "none":
        rest = iter(kept)
        assert all(token in rest for token in hidden)  # in the order of the text
        return
    texts = iter(split(target, specials))
    again, left = [], 0
    for token in source:
        if token not in marks:
            again.append(token)
        elif not left:
            text = next(texts)
            again += text
            left = len(text) - 1 if how.corruption == "token" else 0
        else:
            left -= 1
    assert again == kept
    assert next(texts, None) is None


@given(
    st.sampled_from(POLICIES),
    DENOISINGS,
    st.sampled_from(TOKENIZERS),
    st.integers(4, 60),
    st.integers(5, 80),
)
def test_source_and_target_hold_the_tokens_that_are_kept(policy, how, tokenizer, limit, of_target):
    how = Denoising(**vars(how) | {"mask_exclusion": 0.0})
    steps, rows = masked(policy, how, tokenizer, limit, of_target)
    for kept, source, target in rows:
        assert_reproduced(kept, source, target, how, steps.specials)


DRAWS = ("mixture", "ul2")
LANGUAGES = ("ar", "cs", "de", "el", "en", "hi", "ja", "ru", "th", "zh")
CORPUS = tuple(line for language in LANGUAGES for line in SENTENCES[language])
FIELDS = {
    "column": {"column": "marked", "spans": "all"},
    "regex": {"pattern": r"\w\w+", "spans": 3},
    "pmi": {"min_count": 2},
    "mixture": {"members": ["random", "whole-word", "span"]},
}


@cache
def trained(name):
    """Return a tokenizer that is trained on sentences of all languages."""
    if name == "byte-level":
        return train_tokenizer(CORPUS, 1500)
    return text_to_text.tokenizer(name, CORPUS, 1500)


# they need a pipeline or a file, have weights, or mask as salient-span does at first
LEFT_OUT = ("phrases", "pos", "concepts", "diffusion", "salient-first")


@cache
def untrained():
    """Return the names of the policies that need neither a training nor a spaCy pipeline."""
    discovery.load_builtin("policy")
    entries = [registry.entry("policy", name) for name in registry.names("policy")]
    return [
        entry.name
        for entry in entries
        if hooks.FIT.of(entry.plugin) is None and hooks.REANNOTATE.of(entry.plugin) is None
        if registry.is_builtin(entry.plugin) and entry.name not in LEFT_OUT
    ]


def random_collator(rng, count):
    """Return a collator of a random policy, tokenizer, language, kind and limits, and texts."""

    def one(choices):
        return choices[rng.integers(len(choices))]

    language, name = one(LANGUAGES), one(untrained())
    tokenizer = trained(one(("bert2bert", "byte-level", "t5gemma", "t5", "pegasus")))
    names = (tokenizer.bos_token_id, tokenizer.cls_token_id)
    has_ends = any(each is not None for each in names) and tokenizer.mask_token_id is not None
    kind = one(("seq2seq", "encoder")) if has_ends and name not in DRAWS else "seq2seq"
    asked = {}
    if kind == "seq2seq" and name not in DRAWS:
        asked = {
            "corruption": one(("span", "token")),
            "target": one(("full", "spans")),
            "join": one(("mask", "none")),
            "permute_sentences": bool(rng.random() < 0.2),
            "insert": one((0.0, 0.0, 0.4)),
        }
        asked = {key: value for key, value in asked.items() if rng.random() < 0.7}
        if rng.random() < 0.1:
            asked = {"corruption": "delete", "target": "full"}
    if kind == "encoder" and rng.random() < 0.5:
        asked = {"replacement": {"mask": 0.8, "random": 0.1, "keep": 0.1}}
    sentences = SENTENCES[language]
    texts = ["".join(rng.permutation(sentences)[:9]) for _ in range(count)]
    if name in ("salient-span", "temporal") and language != "en":
        name = "whole-word"
    made = MaskingCollator(
        {"name": name, **FIELDS.get(name, {})},
        tokenizer,
        kind=kind,
        **asked,
        columns=("marked",),
        language=language,
        seed=int(rng.integers(99)),
        max_source=int(rng.integers(5, 90)),
        max_target=int(rng.integers(5, 90)),
        statistics=sentences * 2,
        return_tensors="np",
    )
    return made, [{"text": text, "marked": [[0, 4], [9, 15]]} for text in texts]


def assert_pairs_of_collator(seed, count=5):
    """Check `count` pairs of a random collator; return their number."""
    collator, rows = random_collator(np.random.default_rng(seed), count)
    tokenizer, specials = collator.tokenizer, collator.specials
    (before, after), (first, last) = specials.ends(), specials.ends("max_target")
    batch = collator(rows)
    for row, source, seen, labels in zip(
        rows, batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True
    ):
        whole = tokenizer(row["text"], add_special_tokens=False)["input_ids"]
        source = source[seen == 1].tolist()
        assert tuple(source[: len(before)]) == before
        assert tuple(source[len(source) - len(after) :]) == after
        room = collator.spec.max_source - len(before) - len(after)
        if collator.kind == "encoder":
            filled = np.where(labels[: len(source)] == IGNORE, source, labels[: len(source)])
            assert filled.tolist() == [*before, *whole[:room], *after]
            continue
        target = labels[labels != IGNORE].tolist()
        assert len(target) <= collator.spec.max_target
        source = source[len(before) : len(source) - len(after)]
        target = target[len(first) : len(target) - len(last)]
        (how,) = {leaf.denoising for leaf in collator.masker.leaves}
        if how.target == "full":
            room = min(room, collator.spec.max_target - len(first) - len(last))
        assert_reproduced(whole[:room], source, target, how, specials)
    return len(rows)


def test_every_collator_makes_pairs_that_reproduce_their_text():
    assert sum(map(assert_pairs_of_collator, range(40))) == 200


def test_the_work_counts_tokens_that_are_cut():
    steps, _ = masked("random", Denoising(), "bart", 10)
    lengths = passages("bart").lengths
    work = steps(0).work
    assert work["passage_tokens"] == lengths.sum()
    assert work["cut_tokens"] == (lengths - np.minimum(lengths, 8)).sum() > 0
    steps, _ = masked("random", Denoising(), "bart", 500)
    work = steps(0).work
    assert work["passage_tokens"] == lengths.sum() and "cut_tokens" not in work


@given(st.integers(1, 40), st.integers(0, 3))
def test_columns_are_cut_with_their_passage(most, seed):
    rng = np.random.default_rng(seed)
    every = small.passages()
    names = ("entities", "chances", "pmi", "weights", "importance", "candidates", "scores")
    columns = {name: [] for name in names}
    for each in every:
        tokens, words = len(each.tokens), len(each.words)
        chosen = rng.permutation(words)[: rng.integers(1, 4)]
        columns["entities"].append(each.words[np.sort(chosen)])
        columns["chances"].append(np.arange(tokens, dtype=np.float32))
        columns["pmi"].append(rng.random((tokens, 2), np.float32))
        columns["weights"].append(np.arange(words, dtype=np.int64))
        columns["importance"].append(rng.random(len(each.sentences)))
        columns["candidates"].append(each.words[chosen])
        columns["scores"].append(each.words[chosen, 0].astype(np.float64))
    made = {name: Ragged.of_arrays(rows) for name, rows in columns.items()}
    whole = Passages({**every.arrays, **made})
    cut = whole.cut(most)
    assert (cut is whole) == (most >= every.lengths.max())
    assert (cut.lengths == every.lengths).all()
    for before, now in zip(whole, cut, strict=True):
        found = now.columns
        assert now.tokens.tolist() == before.tokens[:most].tolist()
        assert now.offsets.tolist() == before.offsets[:most].tolist()
        covered = [token for a, b in now.words.tolist() for token in range(a, b)]
        assert covered == list(range(len(now.tokens)))
        assert now.sentences[-1, 1] == now.words[-1, 1] == len(now.tokens)
        for name in ("entities", "candidates"):
            inside = [(a, min(b, most)) for a, b in before.columns[name].tolist() if a < most]
            assert [tuple(span) for span in found[name].tolist()] == inside
        assert found["chances"].tolist() == before.columns["chances"][:most].tolist()
        assert found["pmi"].tolist() == before.columns["pmi"][:most].tolist()
        assert found["weights"].tolist() == list(range(len(now.words)))
        assert len(found["importance"]) == len(now.sentences)
        assert found["scores"].tolist() == found["candidates"][:, 0].tolist()


@pytest.mark.parametrize("name", ["chances", "entities"])
def test_a_column_that_was_not_computed_stays_empty(name):
    every = small.passages()
    empty = as_spans([]) if name == "entities" else np.zeros(0, np.float32)
    first = every[0].words[:1] if name == "entities" else np.ones(len(every[0].tokens), np.float32)
    rows = Ragged.of_arrays([first, *[empty] * (len(every) - 1)])
    cut = Passages({**every.arrays, name: rows}).cut(3)
    assert [len(each.columns[name]) for each in cut][1:] == [0] * (len(every) - 1)
    assert len(cut[0].columns[name]) == (3 if name == "chances" else 1)
