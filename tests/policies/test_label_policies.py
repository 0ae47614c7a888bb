"""Policies that learn from labels: their rules by hand, and their stages, keys and models."""

import json
import shutil
from collections import Counter
from dataclasses import make_dataclass, replace
from math import log, sqrt
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st
from maskpolicy.policies.ke_mlm import FILE as WORDS_FILE
from maskpolicy.policies.ke_mlm import KeMlm
from maskpolicy.policies.selective_masking import SelectiveMasking, _right
from maskpolicy.policies.typhoon import FILE as CHANCES_FILE
from maskpolicy.policies.typhoon import Typhoon, chances, update

from maskpolicy import DataError, Passage, Statistics, Store, as_spans
from maskpolicy.core.ragged import load
from maskpolicy.data.corpus import sums
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.policy_blocks import policy_block, policy_versions
from maskpolicy.models.learned import Context, Contexts
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import topological

POLICIES = ("selective-masking", "typhoon", "ke-mlm")
COLUMNS = {"selective-masking": "important", "typhoon": "chances", "ke-mlm": "telling"}
SHORT = {"batch_size": 4, "precision": "fp32"}
BUDGETS = {
    "fit": {"steps": 6, "eval_every": 3, **SHORT},
    "intermediate": {"steps": 2, **SHORT},
    "finetune": {"steps": 4, "lr": 1e-3, **SHORT},
}
GIVEN = {"selective-masking": {"texts": 12, "hidden": 8, "threshold": 0.5}}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Both kinds of models, and a world of tasks."""
    folder = small.with_world(tmp_path_factory.mktemp("made"))
    small.saved(folder / "encoder", small.roberta(initializer_range=0.3))
    return folder


def experiment(made, kind="encoder", train_on=("cola",), names=POLICIES, **keys):
    """Return an experiment with rows that learn on `train_on`."""
    rows = [
        {"name": name, "label": name, "train_on": list(train_on), **GIVEN.get(name, {})}
        for name in names
    ]
    own = {
        "model": {"name": str(made / kind), **({"kind": kind} if kind == "encoder" else {})},
        "corpus": {"name": "world", "words": 30},
        "data": str(made / "world" / "tasks"),
        "world": {"people": 12, "general_people": 6},
        **BUDGETS,
    }
    return small.without_tasks(made, *rows, **own | keys)


@pytest.mark.parametrize("kind", ["encoder", "bart"])
def test_every_policy_runs_with_either_kind_of_model(made, kind):
    found, store = small.computed(experiment(made, kind), made / "store")
    for name in POLICIES:
        annotate = found[f"{name}, run 0"].inputs["annotate"]
        fit = annotate.inputs["fit"]
        assert ("classifier" in fit.inputs) == (name != "ke-mlm")
        report = json.loads(small.content(store, fit)["report.json"])
        assert report["dev"] is None
        assert report["contexts"]["cola"]["train"]["labels"].keys() == {"0", "1"}
        column = load(store.path(annotate.key) / "passages.safetensors")[COLUMNS[name]]
        assert column.lengths.sum() > 0
        work = json.loads(small.content(store, found[f"{name}, run 0"])["work.json"])
        assert work["hidden_tokens"] > 0


def test_labels_of_the_test_split_change_neither_key_nor_bytes(made, tmp_path):
    before, store = small.computed(experiment(made), made / "store", ("fit",))
    judges = {fit.inputs["classifier"].key for fit in before.values() if "classifier" in fit.inputs}
    assert len(judges) == 1  # rows of one task share the classifier
    folder = shutil.copytree(made / "world" / "tasks", tmp_path / "tasks")
    test = folder / "CoLA" / "dev.tsv"  # serves as test
    test.write_text(test.read_text().replace("\t0\t*", "\t1\t"))
    changed = experiment(made, data=str(folder))
    after, other = small.computed(changed, tmp_path / "other", ("fit",))
    for label, stage in before.items():
        assert after[label].key == stage.key
        assert small.content(other, after[label]) == small.content(store, stage)
    train = folder / "CoLA" / "train.tsv"
    train.write_text(train.read_text().replace("\t0\t*", "\t1\t", 1))
    order = topological(stages.build(changed).pretrained.values())
    keys = {stage.label: stage.key for stage in order if stage.kind == "fit"}
    assert all(keys[label] != stage.key for label, stage in before.items())


def test_a_pair_of_texts_is_learned_from(made, tmp_path):
    folder = shutil.copytree(made / "world" / "tasks", tmp_path / "tasks")
    (folder / "MRPC").mkdir()
    for split, count in (("train", 24), ("dev", 6)):
        ends = ["floats", "sank"] * (count // 2)
        rows = [
            f"{i % 2}\t1\t2\tBoat {split} {i} goes down.\tThe boat {split} {i} {end}."
            for i, end in enumerate(ends)
        ]
        head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
        (folder / "MRPC" / f"{split}.tsv").write_text("\n".join([head, *rows, ""]))
    for kind in ("encoder", "bart"):
        pairs = experiment(made, kind, ("mrpc",), data=str(folder))
        found, store = small.computed(pairs, made / "store", ("fit",))
        words = json.loads(small.content(store, found["ke-mlm, run 0"])["words.json"])
        assert next(iter(words["mrpc"]["1"])) == "sank"
        chances = np.load(store.path(found["typhoon, run 0"].key) / "chances.npy")
        second = small.tokenizer()("boat sank.", add_special_tokens=False).input_ids
        assert (chances[second] > 0).all()
        assert (chances[small.tokenizer().all_special_ids] == 0).all()


def test_numbers_in_place_of_labels_are_one_line(made, tmp_path):
    folder = shutil.copytree(made / "world" / "tasks", tmp_path / "tasks")
    (folder / "STS-B").mkdir()
    for split in ("train", "dev"):
        rows = "\n".join(f"Boat {split} {i}.\tA boat.\t{i / 2}" for i in range(8))
        (folder / "STS-B" / f"{split}.tsv").write_text(f"sentence1\tsentence2\tscore\n{rows}\n")
    numbers = experiment(made, names=["ke-mlm"], train_on=["stsb"], data=str(folder))
    order = topological(stages.build(numbers).pretrained.values())
    wanted = [stage for stage in order if stage.kind == "contexts"]
    outcomes = execute(order, Store(made / "store"), targets=wanted)
    (error,) = {one.error for one in outcomes.values() if one.error}
    assert "task 'stsb' has numbers instead of labels: a policy cannot learn from it" in error


REVIEWS = [
    *[("1", "Good film !")] * 6,
    *[("1", "fine film")] * 4,
    *[("0", "bad film")] * 7,
    ("0", "good film"),
    *[("0", "fine plot")] * 2,
]
CORPUS = ["Good film .", "film", *["plot"] * 18, *["other"] * 19]
TASK = Contexts(
    "reviews",
    tuple(
        Context(f"{i}", "", text, (label,), small.words(text), as_spans([]), ("0", "1"))
        for i, (label, text) in enumerate(REVIEWS)
    ),
    (),
    {},
)


def words_of_classes(out: Path, **fields) -> dict[str, dict[str, float]]:
    """Return the words of each class of the 20 lines."""
    policy = KeMlm(("reviews",), **fields)
    statistics = Statistics.of(policy.count([small.words(text) for text in CORPUS]))
    policy.fit([TASK], Training(), out, None, statistics)
    return json.loads((out / WORDS_FILE).read_text())["reviews"]


def test_words_have_the_z_scores_that_the_formula_gives_by_hand(tmp_path):
    # class 1: good 6, fine 4, film 10, of 20; class 0: bad 7, film 8, good 1, fine 2, plot 2, of 20
    # with the corpus: good 8, fine 6, film 20, bad 7, plot 20, 61 in all; "other" is a stop word
    found = words_of_classes(tmp_path)
    good = (log(14 / 67) - log(9 / 72)) / sqrt(1 / 14 + 1 / 9)
    film = (log(30 / 51) - log(28 / 53)) / sqrt(1 / 30 + 1 / 28)
    fine = (log(10 / 71) - log(8 / 73)) / sqrt(1 / 10 + 1 / 8)
    bad = (log(14 / 67) - log(7 / 74)) / sqrt(1 / 14 + 1 / 7)
    plot = (log(22 / 59) - log(20 / 61)) / sqrt(1 / 22 + 1 / 20)
    wanted = {"1": {"good": good, "fine": fine, "film": film}, "0": {"bad": bad, "plot": plot}}
    assert found == {
        label: {word: pytest.approx(z, abs=5e-4) for word, z in words.items()}
        for label, words in wanted.items()
    }
    assert list(found["1"]) == ["good", "fine", "film"]  # best first


def test_words_are_prepared_as_in_the_released_code():
    # kornosk/log-odds-ratio: contractions are expanded, then stop words and punctuation dropped
    text = small.words(
        "The film 's plot , it isn't good : ain't shan’t critics’ film’s won't stop , they'll sink"
    )
    assert KeMlm(("reviews",)).count([text]) == Counter(
        {"": 7, "film": 2, "plot": 1, "good": 1, "critics'": 1, "stop": 1, "sink": 1}
    )


def test_all_occurrences_of_the_words_of_any_class_are_found_and_one_class_has_none(tmp_path):
    words_of_classes(tmp_path, words=1)
    policy = KeMlm(("reviews",), words=1)
    passages = [small.words("BAD film , good plot"), small.words("nothing here")]
    found = policy.annotate(passages, tmp_path)["telling"]
    assert [spans.tolist() for spans in found] == [[[0, 1], [3, 4]], []]
    task = Contexts("reviews", TASK.train[:10], (), {})
    with pytest.raises(DataError, match="all texts of reviews have one label"):
        policy.fit([task], Training(), tmp_path, None, Statistics.of({"": 9}))


token_types = st.lists(
    st.tuples(st.one_of(st.just(0.0), st.floats(0.001, 100)), st.integers(0, 50)),
    min_size=1,
    max_size=40,
)


def test_the_average_moves_once_for_each_batch_with_the_type():
    average = np.zeros(6)
    update(average, np.asarray([3, 5, 3]), np.asarray([1.0, 7.0, 3.0]), 0.9)
    assert average.tolist() == [0, 0, 0, 2, 0, 7]  # the mean of a type's first batch
    update(average, np.asarray([3]), np.asarray([4.0]), 0.9)
    assert average.tolist() == pytest.approx([0, 0, 0, 0.9 * 2 + 0.1 * 4, 0, 7])


@pytest.mark.parametrize(
    ("saliency", "counts", "ratio", "wanted"),
    [
        ([4, 2, 1], [1, 1, 2], 0.5, [1, 0.5, 0.25]),  # k = 1/4: 2 of 4 tokens are expected
        ([1, 6], [2, 1], 2 / 3, [0.5, 1]),  # 6 would have 1.5: it has 1, the others share 1
        ([3, 0], [1, 3], 0.5, [1, 0]),  # what has no saliency is never masked
        ([2, 2], [5, 7], 0.25, [0.25, 0.25]),  # equal saliency is random masking
        ([1, 2], [1, 1], 0.0, [0, 0]),
        ([5, 1], [0, 4], 0.5, [1, 0.5]),  # a type that the corpus lacks takes no part in it
    ],
)
def test_chances_by_hand(saliency, counts, ratio, wanted):
    found = chances(np.asarray(saliency, float), np.asarray(counts), ratio)
    assert found.tolist() == pytest.approx(wanted)


@given(token_types, st.floats(0, 1))
def test_chances_meet_the_budget_where_enough_tokens_count(drawn, ratio):
    # as man2machine/cs324-final-project-2023, cs324_project/masking.py, asserts for a dataset
    saliency, counts = (np.asarray(column, float) for column in zip(*drawn, strict=True))
    found = chances(saliency, counts, ratio)
    assert ((found >= 0) & (found <= 1)).all()
    salient = counts[saliency > 0].sum()
    assert found @ counts == pytest.approx(min(ratio * counts.sum(), salient))
    assert (np.diff(found[np.argsort(saliency, kind="stable")]) >= -1e-12).all()


def test_types_of_tokens_are_counted_and_have_one_chance(tmp_path):
    words = small.words("a b c d").words
    passage = Passage("p", "", np.asarray([2, 0, 2, 1]), words, words, words[:0])
    assert Typhoon(("cola",)).count([passage, passage]) == {2: 4, 0: 2, 1: 2}
    np.save(tmp_path / CHANCES_FILE, np.asarray([0.5, 0.0, 1.0], np.float32))
    found = Typhoon(("cola",)).annotate([passage], tmp_path)["chances"][0]
    assert found.tolist() == [1.0, 0.5, 1.0, 0.0]


POLICY = SelectiveMasking(("cola",))


def context(text: str, second: str | None = None) -> Context:
    pair = None if second is None else small.words(second)
    return Context("i", "g", text, ("1",), small.words(text), as_spans([]), ("0", "1"), pair)


def important(policy: SelectiveMasking, found: Context, tell) -> tuple[list[str], list[str]]:
    """Return the important words, and the judged texts; `tell(words)` is the probability P(y)."""
    judged: list[str] = []

    def probability(examples):
        texts = [" / ".join(filter(None, (one.source, one.context))) for one in examples]
        judged.extend(texts)
        return np.asarray([tell(set(text.lower().split())) for text in texts])

    marks = policy.find([found], probability)[0]
    return [word for word, mark in zip(found.words, marks, strict=True) if mark], judged


def praise(words: set[str]) -> float:
    return 0.9 if words & {"great", "moving"} else 0.5


def test_a_word_that_suffices_is_important_and_leaves_the_buffer():
    found, judged = important(POLICY, context("The film was truly great and moving ."), praise)
    assert found == ["great", "moving"]
    assert judged == [  # the whole text; then one prefix for each word that is no stop word
        "The film was truly great and moving .",
        *("The", "The film", "The film was", "The film was truly", "The film was truly great"),
        *("The film was truly and", "The film was truly and moving", "The film was truly and ."),
    ]


def test_a_stop_word_of_the_language_is_judged_and_taken_out_but_never_important():
    # thunlp/SelectiveMasking, sc_mask_gen.py: popped from the buffer, skipped by create_mask
    found, judged = important(POLICY, context("Not great"), lambda w: 0.9 if "not" in w else 0.1)
    assert found == []
    assert judged == ["Not great", "Not", "great"]
    one = context("Not nicht")
    german = replace(one, passage=replace(one.passage, language="de"))
    assert important(POLICY, one, lambda _: 1.0)[0] == ["nicht"]
    assert important(POLICY, german, lambda _: 1.0)[0] == ["Not"]


def test_only_texts_whose_label_the_classifier_gets_right_are_learned_from():
    def log_probabilities(examples):
        return np.log([[0.3, 0.7] if "great" in one.source else [0.6, 0.4] for one in examples])

    judge = SimpleNamespace(choices=("0", "1"), log_probabilities=log_probabilities)
    texts = [context("great film"), context("dull film"), context("so great")]  # all labelled 1
    assert _right(texts, judge) == [texts[0], texts[2]]


@pytest.mark.parametrize(
    ("threshold", "wanted"),
    [
        (0.0, []),
        (0.125, ["dull"]),  # bad alone is 0.25 below the whole text, and with dull it is not
        (0.375, ["bad"]),  # it is taken out: dull alone is 0.375 below
        (0.75, ["bad", "dull", "film"]),
    ],
)
def test_the_threshold_is_on_the_difference_to_the_whole_text(threshold, wanted):
    worth = {"bad": 0.375, "dull": 0.25, "film": 0.0}

    def tell(words):
        return 0.25 + sum(worth[word] for word in words)

    policy = SelectiveMasking(("cola",), threshold=threshold)
    assert important(policy, context("bad dull film"), tell)[0] == wanted


def test_both_texts_of_a_pair_are_read_one_after_the_other():
    found, judged = important(POLICY, context("Boats sink", "Great boats float"), praise)
    assert found == ["Great"]
    assert judged == [
        *("Boats sink / Great boats float", "Boats", "Boats sink", "Boats sink / Great"),
        *("Boats sink / boats", "Boats sink / boats float"),
    ]


def test_a_setting_with_the_name_of_a_class_variable_is_a_setting(monkeypatch):
    counted = []
    monkeypatch.setattr(Typhoon, "count", lambda self, passages: Counter(counted.append(1) or "a"))
    sums.statistics_of(Typhoon(("cola",), passes=3), [small.ids([1])])
    assert len(counted) == 1
    own = make_dataclass("Own", [("version", str, "second")])()
    block = replace(policy_block({"name": "random"}, "row", {}), policy=own)
    assert policy_versions(block) is None
