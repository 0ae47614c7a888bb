"""A training in parts, between which the policy reads predictions of the model."""

import json
from functools import partial

import encoders
import numpy as np
import pytest
import small
from safetensors.numpy import load_file
from stores import compute, interrupted

from maskpolicy import MaskingCollator
from maskpolicy.core.errors import ConfigError
from maskpolicy.data.corpus.passages import Passages
from maskpolicy.experiment.policy_blocks import policy_block
from maskpolicy.models.training.batching import Order
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import StageRun, topological
from maskpolicy.pipeline.graph.planning import plan
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins import discovery

PLUGIN = '''
"""One rule in two forms: with columns of `annotate`, and with the same columns in every part."""
from dataclasses import dataclass

import numpy as np

from maskpolicy import Count, draw_highest, policy


def scores(passages):
    return [(p.tokens * 7919 % 101).astype(np.float32) for p in passages]


class Highest:
    def select(self, passage, rng):
        return draw_highest(passage.pieces, passage.columns["scores"], 0.3, rng)


@policy("fixed", target="spans")
@dataclass(frozen=True)
class Fixed(Highest):
    def annotate(self, passages, fitted=None):
        return {"scores": scores(passages)}


@policy("again", target="spans")
@dataclass(frozen=True)
class Again(Highest):
    every: Count = 7

    def reannotate(self, passages, current):
        current.guess(passages[:3])
        calls = current.state.get("calls", np.zeros(0, np.int64))
        current.state["calls"] = np.append(current.steps, calls[::-1])[::-1]  # a view
        return {"scores": scores(passages)}


@policy("surprised", target="spans")
@dataclass(frozen=True)
class Surprised:
    every: int = 4
    smoothing: float = 0.0

    def reannotate(self, passages, current):
        return {"losses": current.guess(passages, 0.5).losses}

    def select(self, passage, rng):
        return draw_highest(passage.pieces, passage.columns["losses"], 0.3, rng)
'''
BAD = {
    "reannotate must return a dict of columns, not list": "[]",
    "reannotate returned 1 rows of 'x' for": '{"x": [np.zeros(1)]}',
    "reannotate returned no column": "{}",
    "its column 'words' has the name of an array": '{"words": scores(passages)}',
    "reannotate after 0 steps failed: ZeroDivisionError": "1 / 0",
    "current.state['a'] must be a NumPy array of numbers, not int": (
        '[current.state.update(a=1), {"x": scores(passages)}][1]'
    ),
    "current.state['b'] must be a NumPy array of numbers, not of <U1": (
        '[current.state.update(b=np.array(["w"])), {"x": scores(passages)}][1]'
    ),
}


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory):
    """The file of all policies, loaded."""
    path = tmp_path_factory.mktemp("plugin") / "it.py"
    row = PLUGIN.split('@policy("surprised"')[1]
    found = 'return {"losses": current.guess(passages, 0.5).losses}'
    rows = [
        f'@policy("bad-{number}"{row}'.replace(found, f"return {returned}")
        for number, returned in enumerate(BAD.values())
    ]
    path.write_text("\n\n".join([PLUGIN, *rows]))
    discovery.load_files([path])
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with models and a corpus."""
    folder = tmp_path_factory.mktemp("models")
    for name, model in {"seq2seq": small.bart(dropout=0.1), "encoder": small.roberta()}.items():
        small.saved(folder / name, model)
    (folder / "it.txt").write_text("\n\n".join(small.TEXTS))
    return folder


def built(folder, *rows, kind="seq2seq", where="", **given):
    """Return the graph of an experiment without tasks."""
    spec = {"steps": 20, "batch_size": 3, "warmup": 3, "precision": "fp32", "lr": 1e-2}
    layers = {"decoder_layers": 1} if kind == "encoder" else {}
    keys = {
        "model": {"kind": kind, "name": str(folder / kind), **layers},
        "corpus": {"files": [str(folder / "it.txt")], "words": 12},
        "intermediate": spec | given.pop("intermediate", {}),
    }
    return stages.build(small.without_tasks(folder, *rows, where=where, **keys | given))


def weights(store, stage):
    return (store.path(stage.key) / "model.safetensors").read_bytes()


def work(store, stage):
    return json.loads((store.path(stage.key) / "work.json").read_text())


def parts(stage):
    """Return the stages of a row's training, in order."""
    return [each for each in topological([stage]) if each.kind.startswith("intermediate")]


def on_the_way(stage):
    """Return the models of checkpoint_steps that a row's training makes, by step."""
    return {int(k): made for part in parts(stage) for k, made in part.byproducts.items()}


@pytest.mark.parametrize(
    ("kind", "precision", "how"),
    [
        ("seq2seq", "bf16", {"target": "full"}),
        ("encoder", "fp32", {"mask_exclusion": 0.5}),
        ("encoder", "bf16", {"replaced_token_detection": {"generator": 0.5}}),
    ],
)
def test_parts_with_equal_columns_end_in_the_bytes_of_one_training(
    folder, store, kind, precision, how
):
    spec = {"precision": precision, "dropout": 0.1, "max_source": 20}
    rows = [{"name": name, "label": name, **how} for name in ("fixed", "again")]
    graph = built(folder, *rows, kind=kind, intermediate=spec, checkpoint_steps=[3, 7, 15])
    one, cut = (graph.pretrained[name, 0] for name in ("fixed", "again"))
    early = on_the_way(one), on_the_way(cut)
    assert early[0].keys() == early[1].keys() == {3, 7, 15}
    last = cut.inputs["feedback"]
    compute([one, cut, last, *early[0].values(), *early[1].values()], store)
    assert len(parts(cut)) == 6
    state = load_file(store.path(last.key) / "policy.safetensors")
    assert state["calls"].tolist() == [0, 7, 14]
    pairs = [(one, cut), *((early[0][step], early[1][step]) for step in early[0])]
    for whole, part in pairs:
        assert weights(store, whole) == weights(store, part)
        counted = work(store, part)
        told = counted.pop("feedback_tokens", 0)
        assert counted == work(store, whole)
        is_asked = kind == "seq2seq" or part not in (early[1][3], early[1][7])
        assert (told > 0) == is_asked  # the new head of an encoder predicts nothing at first
        facts = [store.peek(each.key)["record"]["facts"]["loss"] for each in (whole, part)]
        assert facts[0] == facts[1]


def test_an_encoder_with_a_head_of_its_own_is_asked_before_the_first_step(folder, store, tmp_path):
    encoders.saved("bert", tmp_path)
    rows = [{"name": name, "label": name} for name in ("fixed", "again")]
    model = {"kind": "encoder", "name": str(tmp_path), "decoder_layers": 1}
    graph = built(folder, *rows, kind="encoder", intermediate={"steps": 9}, model=model)
    one, cut = (graph.pretrained[name, 0] for name in ("fixed", "again"))
    compute([one, cut, parts(cut)[0]], store)
    assert work(store, parts(cut)[0])["feedback_tokens"] > 0
    assert weights(store, one) == weights(store, cut)


def test_a_model_of_checkpoint_steps_is_the_same_when_trained_alone(folder, store, tmp_path):
    graph = built(folder, "surprised", intermediate={"steps": 9}, checkpoint_steps=[4, 6])
    stage = graph.pretrained["surprised", 0]
    early = on_the_way(stage)
    compute([stage, *early.values()], store)
    made = [each for each in parts(stage) if each.byproducts]
    assert [sorted(each.byproducts) for each in made] == [["4"], ["6"]]
    for step, each in early.items():
        alone = Store(tmp_path / f"alone{step}")
        compute([each], alone)
        assert small.content(alone, each) == small.content(store, each)


@pytest.mark.parametrize(
    ("kind", "limits", "room"),
    [
        ("seq2seq", {}, 62),
        ("seq2seq", {"max_source": 14, "max_target": 9}, 12),
        ("encoder", {"max_source": 14}, 12),
    ],
)
def test_masks_follow_the_model_and_the_columns_cover_what_is_read(
    folder, store, kind, limits, room
):
    graph = built(folder, "surprised", kind=kind, intermediate={"steps": 6, **limits})
    stage = graph.pretrained["surprised", 0]
    first, part, second = parts(stage)[:3]
    compute([first, part, second], store)
    corpus = Passages.open(store.path(stage.inputs["corpus"].key))
    order = Order(corpus.lengths, 3, 0)
    found = []
    for made, steps in ((first, range(4)), (second, range(4, 6))):
        columns = Passages.open(store.path(stage.inputs["corpus"].key), store.path(made.key))
        read = {item for step in steps for item, _ in order.step(step)}
        lengths = columns.arrays["losses"].lengths
        assert [int(each) for each in lengths] == [
            min(room, len(one.tokens)) if place in read else 0 for place, one in enumerate(corpus)
        ]
        assert (columns.arrays["losses"].flat > 0).all()
        found.append(columns.arrays["losses"])
    both = [i for i in range(len(corpus)) if len(found[0][i]) and len(found[1][i])]
    assert any(not np.array_equal(found[0][i], found[1][i]) for i in both)


def test_an_encoder_that_is_asked_only_before_its_training_gets_a_warning(folder, store, caplog):
    row = {"name": "entropy-aware", "every": 8}
    for steps, told in ((9, 0), (8, 1)):
        graph = built(folder, row, kind="encoder", intermediate={"steps": steps})
        (stage,) = graph.pretrained.values()
        compute(parts(stage)[:1], store)
        said = [one for one in caplog.messages if "set `every` below the 8 steps" in one]
        assert len(said) == told


def test_at_most_a_hundred_parts(folder, store):
    row = {"name": "again", "every": 3}
    label = "again every=3"
    stage = built(folder, row, intermediate={"steps": 300}).pretrained[label, 0]
    assert len(parts(stage)) == 200
    assert len(plan([stage], store)) == 203
    graph = partial(built, folder, row, intermediate={"steps": 301})
    with pytest.raises(ConfigError, match=r"every: 3 cuts the 301 steps .* set every to 4 or more"):
        graph()
    with pytest.raises(ConfigError, match=r"^mine.yaml: policies: again every=3: every: 3 cuts"):
        graph(where="mine.yaml: ")


def test_no_steps_need_no_parts(folder, store):
    stage = built(folder, "again", intermediate={"steps": 0}).pretrained["again", 0]
    assert [each.kind for each in parts(stage)] == ["intermediate"]
    compute([stage], store)


def test_labels_smoothed_by_the_model_of_the_part_train_alike_after_a_kill(folder, store, tmp_path):
    block = {"name": "self-evolution", "every": 4}
    rows = [
        {**block, "label": "none", "smoothing": 0.0},
        {**block, "label": "half", "smoothing": 0.5},
    ]
    graph = built(folder, *rows, intermediate={"steps": 12, "checkpoint_every": 1e-9})
    plain, stage = (graph.pretrained[name, 0] for name in ("none", "half"))
    assert plain.inputs["feedback"].key != stage.inputs["feedback"].key
    compute([plain, stage], store)
    assert weights(store, plain) != weights(store, stage)
    broken = Store(tmp_path / "broken")
    interrupted(broken, stage, 10)
    assert broken.checkpoints(stage.key).latest()[0] == 9
    compute([stage], broken)
    assert weights(broken, stage) == weights(store, stage)


def test_a_wrong_reannotate_is_one_line(folder, store):
    rows = [f"bad-{number}" for number in range(len(BAD))]
    asked = [stage.inputs["state"] for stage in built(folder, *rows).pretrained.values()]
    outcomes = execute(asked, store)
    for stage, says in zip(asked, BAD, strict=True):
        assert says in outcomes[stage.key].error
        assert "\n" not in outcomes[stage.key].error


def test_unsupported_feedback_is_one_line_before_any_work(folder):
    with pytest.raises(ConfigError, match=r"members\[1\]: again annotates again"):
        built(folder, {"name": "mixture", "members": ["random", "again"]})
    with pytest.raises(ConfigError, match="predicts, which a collator does not know: use"):
        MaskingCollator("again", small.tokenizer())
    with pytest.raises(ConfigError, match="rate must be above 0 and at most 1, not 0"):
        small.current().guess(small.passages(), 0)


@pytest.mark.slow
@pytest.mark.usefixtures("in_forks")
def test_several_processes_train_the_parts_and_keep_a_model_on_the_way(folder, store):
    keys = {"resources": {"intermediate": {"processes": 2}}, "checkpoint_steps": [4]}
    graph = built(folder, "fixed", "again", intermediate={"steps": 10}, **keys)
    one, cut = (graph.pretrained[name, 0] for name in ("fixed", "again"))
    early, events = [on_the_way(stage)[4] for stage in (one, cut)], []
    compute([one, cut, *early], store, listener=events.append)
    assert weights(store, one) == weights(store, cut)
    assert weights(store, early[0]) == weights(store, early[1])
    assert not {"started"} & {event.what for event in events if event.stage in early}


def test_the_warnings_of_a_part_name_the_block_of_its_budget():
    assert StageRun(None, name="intermediate-part amlm, run 0").block == "intermediate"


def test_every_and_smoothing_of_a_users_policy_have_their_bounds():
    for key, wrong, says in (
        ("every", 0, r"row\.every: must be >= 1, not 0"),
        ("smoothing", 1.5, r"row\.smoothing: must be >= 0 and <= 1, not 1\.5"),
    ):
        with pytest.raises(ConfigError, match=says):
            policy_block({"name": "surprised", key: wrong}, "row", {})
