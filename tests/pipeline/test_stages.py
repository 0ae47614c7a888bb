"""Digests pin the results of stages; changes of settings show what keys depend on."""

import hashlib
import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import encoders
import numpy as np
import pytest
import small
import text_to_text
from folders import contents
from safetensors.torch import load_file
from stores import compute, interrupted

from maskpolicy.core import metrics
from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.core.keys import to_json
from maskpolicy.core.metrics import Total
from maskpolicy.core.ragged import Ragged
from maskpolicy.core.types import Denoising, Example
from maskpolicy.data.corpus import entities as rules
from maskpolicy.data.corpus.annotation import annotate
from maskpolicy.data.corpus.passages import Passages
from maskpolicy.data.world import make, write
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.experiment.world_settings import SUBJECT_KINDS
from maskpolicy.masking.selection import select
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import ExampleSteps, MaskedSteps
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import topological, version_of
from maskpolicy.pipeline.stages.cloze_answers import ClozeParams, _is_right, _masked
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins import hooks
from maskpolicy.plugins.discovery import find_plugin

TASKS = ("triviaqa", "zsre")
POLICIES = ("random", "whole-word", "span", "poisson", "salient-span")
HOWS = (
    Denoising(),
    Denoising(corruption="token", join="none"),
    Denoising(target="full", permute_sentences=True, insert=0.5),
    Denoising(mask_exclusion=0.5),
)
SPEC = Training(batch_size=4, micro_tokens=150, max_source=60)
GOLDEN = {
    "world": ({"world": 5}, "c476556f2ca70900"),
    "tokenizer": ({"tokenizer": 1}, "d50ab4877e99d7e4"),
    "passages": ({"corpus": 2}, "a2bd700ccc41afa7"),
    "entities": ({"annotate": 1, "rules": 2}, "4092c02c0ae37301"),
    "spans": ({"general": 7, "intermediate": 8, "rules": 2, "span": 2}, "dfda9b041e9cd386"),
    "pairs": ({"general": 7, "intermediate": 8, "span": 2}, "9b5a73996dba5f58"),
    "order": ({"general": 7, "intermediate": 8}, "9dba90086d3e9e4f"),
    "examples": ({"finetune": 8, "evaluate": 5}, "2955eede234f0961"),
}


def annotated():
    """Return the passages with the column that salient-span computes, all labels in it."""
    found = annotate(find_plugin("policy", "salient-span").plugin(labels="all"), small.passages())
    columns = {name: Ragged.of_arrays(rows) for name, rows in found.items()}
    return Passages({**small.passages().arrays, **columns})


def chosen():
    """Return the masks of each policy, by policy and epoch."""
    passages = list(annotated())
    found = {
        (name, epoch): select(
            find_plugin("policy", name).plugin(), passages, 7, [epoch] * len(passages)
        )
        for name in POLICIES
        for epoch in (0, 1)
    }
    assert all(sum(map(len, hidden)) > 3 for hidden in found.values())
    return found


def world():
    settings = {"people": 6, "general_people": 4, "kinds": list(SUBJECT_KINDS)}
    with TemporaryDirectory() as folder:
        write(make(settings), Path(folder))
        paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return [
            [path.relative_to(folder).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()]
            for path in paths
        ]


def tokenizer():
    return json.loads(small.tokenizer().backend_tokenizer.to_str())["model"]


def passages():
    names = ("tokens", "offsets", "words", "sentences")
    return [[p.id, p.text, *(getattr(p, name).tolist() for name in names)] for p in annotated()]


def entities():
    return [passage.columns["entities"].tolist() for passage in annotated()]


def spans():
    return [[*key, [each.tolist() for each in found]] for key, found in chosen().items()]


def pairs():
    made = [
        small.denoising_pair(passage, each, how, 4, 7, epoch)
        for (_, epoch), found in chosen().items()
        for how in HOWS
        for passage, each in zip(annotated(), found, strict=True)
    ]
    return [[m.source.tolist(), m.target.tolist(), m.excluded.tolist()] for m in made]


def order():
    policy = find_plugin("policy", "random")
    specials = Specials.of(small.tokenizer())
    steps = MaskedSteps(annotated(), policy.plugin(), Denoising(**policy.facts), specials, SPEC)
    return [[steps.order.step(number), arrays(steps(number))] for number in range(6)]


def examples():
    given = [Example(str(i), "g", text, (text[:9],)) for i, text in enumerate(small.TEXTS)]
    steps = ExampleSteps.of(given, small.tokenizer(), Specials.of(small.tokenizer()), SPEC, "end")
    return [arrays(steps(number)) for number in range(4)]


def arrays(step):
    names = ("source", "seen", "decoder", "labels")
    return [[getattr(batch, name).tolist() for name in names] for batch in step.batches]


@pytest.mark.parametrize("name", GOLDEN)
def test_a_result_that_changes_raises_the_version_of_its_stages(name):
    """Pin what stages compute: a key holds a stage's version, not maskpolicy's code.

    If this fails, the same experiment now gives another result, and stores still hold the old one
    under the same key. First raise `version` in the `@stage(...)` of every kind that GOLDEN names
    here ("rules": VERSION of data.corpus.entities, where these found something else), or `version`
    of the policy that masks something else; then write the new versions and the new digest into
    GOLDEN.
    """
    versions, expected = GOLDEN[name]
    made = globals()[name]()
    found = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:16]
    assert ({kind: version(kind) for kind in versions}, found) == (versions, expected)


def version(kind):
    if kind in POLICIES:
        return hooks.VERSION.of(find_plugin("policy", kind).plugin)
    return rules.VERSION if kind == "rules" else version_of(kind)


YAML = """
model: mini
corpus: world
policies: [none, random, salient-span, {name: span, label: runs}]
tasks: [triviaqa, zsre]
seeds: [0, 1]
world: {people: 8, general_people: 6}
general: {steps: 3}
intermediate: {steps: 3}
finetune: {steps: 3}
"""


def graph(folder, text=YAML, changes=(), plugin=(), name="it.yaml"):
    """Return the graph of an experiment, whose file is written to a folder."""
    (folder / name).write_text(text)
    return stages.build(load_experiment(folder / name, changes, plugin))


@pytest.fixture
def keys(tmp_path):
    """Return a function from changes of an experiment to the keys of its stages."""

    def keys(*changes, **more):
        order = topological(graph(tmp_path, changes=changes, **more).stages)
        return {(stage.kind, stage.label): stage.key for stage in order}

    return keys


def result(store, cell):
    return json.loads((store.path(cell.key) / "result.json").read_text())


def moved(before, after):
    """Return the (kind, first word of the label) of the stages whose keys differ."""
    assert before.keys() == after.keys()
    return {
        (kind, label.replace(",", "").partition(" ")[0])
        for (kind, label), key in before.items()
        if after[kind, label] != key
    }


def behind(*rows):
    return {(kind, row) for row in rows for kind in ("intermediate", "finetune", "evaluate")}


def tuned(*rows):
    return {(kind, row) for row in rows for kind in ("finetune", "evaluate")}


ROWS = ("none", "random", "salient-span", "runs")
MASKED = ROWS[1:]
TRAINED = {("general", "mini"), *behind(*MASKED), *tuned("none")}
CORPUS = {("corpus", "intermediate"), ("annotate", "salient-span"), *behind(*MASKED)}
EXAMPLES = {(f"{split}-examples", task) for split in ("train", "test") for task in TASKS}
WORLD = {("world", ""), *EXAMPLES}
EVERYTHING = WORLD | TRAINED | CORPUS | {("tokenizer", "mini"), ("corpus", "general")}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("policies.3.ratio=0.2", behind("runs")),
        ("policies.3.longest=9", behind("runs")),
        ("policies.3.corruption=token", behind("runs")),
        ("policies.3.target=full", behind("runs")),
        ("corruption=token", behind(*MASKED)),
        ("intermediate.steps=4", behind(*MASKED)),
        ("intermediate.seed=1", behind(*MASKED)),
        ("finetune.lr=1e-4", tuned(*ROWS)),
        ("finetune.eval_every=1", tuned(*ROWS)),
        ("general.patience=1", set()),
        ("general.steps=4", TRAINED),
        ("general.precision=fp32", TRAINED),
        ("intermediate.attention=sdpa", behind(*MASKED)),
        ("intermediate.micro_tokens=99", behind(*MASKED)),
        ("intermediate.dropout=0.1", behind(*MASKED)),
        ("intermediate.compile=true", behind(*MASKED)),
        ("corpus={name: world, words: 50}", CORPUS),
        ("world.people=9", EVERYTHING),
        ("intermediate.checkpoint_every=1", set()),
        ("keep_models=[finetune]", set()),
        ("baseline=random", set()),
    ],
)
def test_a_change_moves_the_keys_of_its_own_stages_only(keys, change, expected):
    set_ = ("general.precision=bf16", "intermediate.attention=eager", "intermediate.dropout=0.0")
    assert moved(keys(*set_), keys(*set_, change)) == expected


def test_worlds_that_differ_in_tasks_alone_share_every_model(keys):
    before = keys()
    after = keys("world.heldout=[employer]")
    (text,) = after.keys() - before.keys()
    assert text == ("world", "text")
    assert after.pop(text) == before["world", ""]
    assert moved(before, after) == WORLD | tuned(*ROWS)


def test_a_limit_moves_the_keys_of_its_own_task_only(keys):
    same = keys("tasks.0={name: triviaqa, limit: {train: 0}}")
    assert same == keys()
    for split, kinds in (
        ("train", {"train-examples", "finetune", "evaluate"}),
        ("dev", {"train-examples", "finetune", "evaluate"}),
        ("test", {"test-examples", "evaluate"}),
    ):
        limited = keys(f"tasks.0={{name: triviaqa, limit: {{{split}: 5}}}}")
        found = [name for name, key in limited.items() if key not in same.values()]
        assert {kind for kind, _ in found} == kinds
        assert all("triviaqa" in label for _, label in found)


def test_what_is_learned_depends_on_the_limits_of_train_and_dev_alone(keys):
    row = "policies=[none, {name: supervised, train_on: [triviaqa]}]"

    def fit(limit):
        found = keys(row, f"tasks=[{{name: triviaqa, label: triviaqa, limit: {{{limit}}}}}]")
        return next(key for (kind, _), key in found.items() if kind == "fit")

    assert fit("train: 5") != fit("train: 0") == fit("test: 5")


JUDGED = ("finetune.eval_every=1", "finetune.steps=4")


@pytest.mark.parametrize(
    ("named", "others", "kinds"),
    [
        ("[kilt_accuracy]", (), set()),
        ("[kilt_accuracy, f1]", (), {"evaluate"}),
        ("[f1, kilt_accuracy]", (), {"evaluate"}),
        ("[kilt_accuracy, f1]", JUDGED, {"evaluate"}),
        ("[f1, kilt_accuracy]", JUDGED, {"finetune", "evaluate"}),
    ],
)
def test_metrics_are_computed_anew_without_any_training(keys, named, others, kinds):
    text = YAML.replace("triviaqa, zsre", "zsre")
    before = set(keys(*others, text=text).values())
    after = keys(*others, f"tasks=[{{name: zsre, label: zsre, metrics: {named}}}]", text=text)
    assert {kind for (kind, _), key in after.items() if key not in before} == kinds


def test_more_rows_tasks_and_seeds_move_no_key(keys):
    before = keys()
    more = keys("policies=[none, random, salient-span, {name: span, label: runs}, poisson]")
    more |= keys("tasks=[triviaqa, zsre, wow]")
    more |= keys("seeds=[0, 1, 2]")
    assert {name: more[name] for name in before} == before


SWEPT = "policies=[none, {name: random, grid: {ratio: [0.15, 0.3], intermediate.lr: [1e-3, 1e-4]}}]"


def test_a_cell_of_a_sweep_has_the_key_of_the_cell_with_its_settings(keys):
    swept = keys(SWEPT, "grid.finetune.steps=[3, 4]")
    for ratio, lr, steps in ((0.15, 0.001, 3), (0.3, 0.0001, 4)):
        rows = f"policies=[none, {{name: random, label: it, ratio: {ratio}}}]"
        plain = keys(rows, f"intermediate.lr={lr}", f"finetune.steps={steps}")
        row = f"random ratio={ratio} intermediate.lr={lr} finetune.steps={steps}"
        for kind in ("finetune", "evaluate"):
            for seed in (0, 1):
                name = f"zsre, seed {seed}"
                assert swept[kind, f"{row}, {name}"] == plain[kind, f"it, {name}"]
    own = "policies=[none, {name: random, finetune: {lr: 1e-4}, intermediate: {steps: 2}}]"
    stated = "random intermediate.steps=2 finetune.lr=0.0001, zsre, seed 0"
    plain = keys("policies=[none, random]", "intermediate.steps=2", "finetune.lr=1e-4")
    found = keys(own)
    assert found["evaluate", stated] == plain["evaluate", "random, zsre, seed 0"]
    assert found["evaluate", "none, zsre, seed 0"] != plain["evaluate", "none, zsre, seed 0"]


def test_the_members_and_the_start_of_a_learned_row_are_fitted_with_its_budget(tmp_path):
    learned = "{name: supervised, train_on: [zsre]}"
    start = f"{{name: meta-learned, train_on: [zsre], init: {learned}}}"
    rows = f"policies=[none, {{name: mixture, members: [span, {learned}]}}, {start}]"
    overrides = (rows, "grid.fit.lr=[1e-3, 1e-4]", "finetune.steps=2")
    built = graph(tmp_path, YAML, overrides)
    found = {}
    for (row, _, _), cell in built.cells.items():
        found[row] = {s.params.spec.lr for s in topological([cell]) if s.kind == "fit"}
    rates = {row: {float(row.rpartition("=")[2])} for row in found if row != "none"}
    assert found == {"none": set(), **rates}


@pytest.mark.parametrize("more", [(), ("general_seeds=4",)])
def test_runs_with_numbers_of_their_own_are_other_runs_of_the_same_experiment(keys, more):
    whole = keys("seeds=[0, 1, 2, 3]", "intermediate_seeds=4", *more)
    part = keys("seeds=[2, 3]", "intermediate_runs=[2, 3]", *more)
    assert ("intermediate", "random, run 2") in part
    assert ("general", "mini, model 3") in part
    assert {name: whole[name] for name in part} == part
    assert len({whole["intermediate", f"random, run {run}"] for run in range(4)}) == 4


LEARNT = "policies=[none, random, {name: supervised, train_on: [triviaqa]}]"


def test_the_general_text_of_a_world_may_be_named(tmp_path):
    (tmp_path / "it.yaml").write_text(
        "model: {architecture: bart}\ncorpus: world\npolicies: [none, random]\ntasks: [zsre]\n"
    )
    found = []
    for words in ("general.steps=2", "general={corpus: world, steps: 2}"):
        graph = stages.build(load_experiment(tmp_path / "it.yaml", [words]))
        every = {each.key: each for each in topological(graph.targets)}.values()
        found.append({each.key for each in every if each.kind == "general"})
        texts = [each.params.corpus for each in every if each.kind == "corpus"]
        assert {each.part for each in texts} == {"general", "intermediate"}
    assert found[0] == found[1]


OTHER = ("general.steps=2", "general.corpus={files: [b.txt]}")


def test_general_text_that_rows_read_too_is_masked_apart_and_random_weights_are_told(
    tmp_path, caplog
):
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("Ada Lovelace lived in London.\n" * 9)
    (tmp_path / "it.yaml").write_text(
        "model: {kind: encoder, architecture: bert}\ncorpus: {files: [a.txt]}\nbaseline: random\n"
        "policies: [random, keywords]\ntasks: [cola]\n"
    )
    said = "policies[1]: keywords reads the model, and its weights are random"
    same = ("general.steps=2", "general.corpus={files: [a.txt], shard_mb: 32}")
    for words, seed in (((), 0), (same[:1], 2**31), (same, 2**31), (OTHER, 0)):
        caplog.clear()
        experiment = load_experiment(tmp_path / "it.yaml", words)
        every = topological(stages.build(experiment).targets)
        assert {each.params.spec.seed for each in every if each.kind == "general"} == {seed}
        assert (said in caplog.text) == (not words)


def test_every_stage_of_a_seed_rests_on_its_own_general_model(tmp_path):
    several = (LEARNT, "seeds=[5, 6, 7, 8]", "intermediate_seeds=4", "checkpoint_steps=[1]")
    for count, more in ((1, ("general_seeds=1",)), (2, ("general_seeds=2",)), (4, ())):
        built = graph(tmp_path, YAML, [*several, *more])
        cells = built.cells | built.early
        assert len(cells) == 4 * 2 * (3 + 2)  # each row, and two of them after one step
        for (_, _, seed, *_), stage in cells.items():
            general = [each for each in topological([stage]) if each.kind == "general"]
            assert {each.params.spec.seed for each in general} == {(seed - 5) % count}


def test_the_name_and_folder_of_an_experiment_are_in_no_key(keys, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    assert keys(name="other.yaml") == keys() == keys(name="elsewhere/it.yaml")


@pytest.fixture
def plugin(tmp_path):
    """Write a plugin; returns its path."""
    path = tmp_path / "mine.py"
    path.write_text(small.policy_file(f"mine-{tmp_path.name}", "return passage.pieces[:1]"))
    return path


def test_a_plugins_code_is_in_the_key(keys, plugin, tmp_path):
    assert keys() == keys(plugin=[plugin])  # no row uses it
    rows = f"policies=[none, random, mine-{tmp_path.name}]"
    mine = behind(f"mine-{tmp_path.name}")
    before = keys(rows, plugin=[plugin])
    plugin.write_text(plugin.read_text() + "CHANGED = 1\n")
    assert moved(before, keys(rows, plugin=[plugin])) == mine


def test_what_select_alone_depends_on_is_in_the_key(keys, plugin, tmp_path):
    name, place = f"mine-{tmp_path.name}", tmp_path / "words.txt"
    depends = f"    def depends(self):\n        return open({str(place)!r}).read()\n"
    plugin.write_text(plugin.read_text() + depends)
    drawn = f"{{name: mixture, members: [random, {name}]}}"

    def planned(text):
        place.write_text(text)
        return keys(f"policies=[none, random, {name}, {drawn}]", plugin=[plugin])

    before = planned("one")
    assert planned("one") == before
    assert moved(before, planned("two")) == behind(name, "mixture")


def test_a_data_folder_is_known_by_its_files_and_not_by_its_path(keys, tmp_path):
    write(make({"people": 8, "general_people": 6}), tmp_path / "world")
    data = tmp_path / "world" / "tasks"
    before = keys(f"data={data}")
    shutil.copytree(data, tmp_path / "copy")
    assert keys(f"data={tmp_path / 'copy'}") == before
    train = next(data.rglob("structured_zeroshot-train*"))
    dev = next(data.rglob("structured_zeroshot-dev*"))
    texts = train.read_bytes(), dev.read_bytes()
    dev.write_bytes(texts[1] + texts[0][: texts[0].index(b"\n") + 1])  # which serves as test
    found = moved(before, keys(f"data={data}"))
    assert found == {("test-examples", "zsre"), *(("evaluate", row) for row in ROWS)}
    train.write_bytes(texts[1])
    dev.write_bytes(texts[0])
    found = moved(before, keys(f"data={data}"))
    assert found == {("train-examples", "zsre"), ("test-examples", "zsre"), *tuned(*ROWS)}


def test_the_folders_of_files_of_one_name_are_in_the_key(keys, tmp_path):
    plugin, data = tmp_path / "tk.py", tmp_path / "mine"
    plugin.write_text(
        "from maskpolicy import Example, task\n"
        "FILES = {'train': 'train/qa.jsonl', 'dev': 'dev/qa.jsonl', 'test': 'test/qa.jsonl'}\n"
        f"@task('tk-{tmp_path.name}', group='own', metric='exact_match', files=FILES)\n"
        "class Qa:\n    def example(self, row):\n        return Example('', '', **row)\n"
    )
    for split in ("train", "dev", "test"):
        (data / split).mkdir(parents=True)
        row = {"source": f"of {split}?", "targets": ["yes"]}
        (data / split / "qa.jsonl").write_text(json.dumps(row))
    asked = f"tasks=[{{name: tk-{tmp_path.name}, data: {data}}}]"
    before = keys(asked, plugin=[plugin])
    (data / "train").rename(data / "held")
    (data / "dev").rename(data / "train")
    (data / "held").rename(data / "dev")
    found = moved(before, keys(asked, plugin=[plugin]))
    assert {kind for kind, _ in found} == {"train-examples", "finetune", "evaluate"}


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a BART that has fewer positions than passages have tokens."""
    return small.saved(tmp_path / "bart", small.bart(max_position_embeddings=32))


@pytest.mark.parametrize("place", ["model.safetensors", "sub/w.safetensors"])
def test_a_model_folder_is_known_by_its_files_and_not_by_its_path(keys, folder, tmp_path, place):
    text = YAML.replace("general: {steps: 3}", "")
    weights = folder / place
    weights.parent.mkdir(exist_ok=True)
    (folder / "model.safetensors").rename(weights)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"shared.weight": place}}))
    before = keys(f"model={folder}", text=text)
    shutil.copytree(folder, tmp_path / "moved" / "bart")
    assert keys(f"model={tmp_path / 'moved' / 'bart'}", text=text) == before
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    after = keys(f"model={folder}", text=text)
    kinds = {kind for kind, _ in moved(before, after)}
    assert kinds == {"pretrained", "intermediate", "finetune", "evaluate"}
    weights.rename(folder / "pytorch_model.bin")
    assert moved(after, keys(f"model={folder}", text=text))


def pretrain(folder, tmp_path, rows, **policy):
    """Run an intermediate stage of two steps on rows of text and spans; returns its outcome."""
    lines = [json.dumps({"text": text, "marked": spans}) + "\n" for text, spans in rows]
    (tmp_path / "it.jsonl").write_text("".join(lines))
    corpus = {"files": [str(tmp_path / "it.jsonl")], "columns": ["marked"]}
    budget = {"steps": 2, "batch_size": 4}
    made = small.without_tasks(tmp_path, policy, corpus=corpus, intermediate=budget)
    stage = stages.build(made).pretrained[made.policies[0].label, 0]
    return execute([stage], Store(tmp_path / "store"))[stage.key]


HIDDEN = {"name": "random", "ratio": 1.0, "corruption": "token", "join": "none"}


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({"name": "column", "column": "marked"}, "policy column: masks nothing in the 2 steps"),
        ({"name": "random", "ratio": 0.0}, "policy random: masks nothing in the 2 steps"),
        (HIDDEN | {"mask_exclusion": 0.5}, "policy random: masks every token of every passage"),
    ],
)
def test_a_training_does_not_start_without_text_to_read_or_to_predict(
    folder, tmp_path, policy, says
):
    outcome = pretrain(folder, tmp_path, [(text, []) for text in small.TEXTS], **policy)
    assert isinstance(outcome.exception, DataError)
    assert says in outcome.error


def test_a_training_that_reads_no_words_or_the_same_ones_over_and_over_is_warned_of(
    folder, tmp_path, caplog, monkeypatch
):
    rows = [(text, []) for text in small.TEXTS]
    assert pretrain(folder, tmp_path, rows, name="random", ratio=1.0, join="none").error is None
    assert "policy random masks every token of every passage" in caplog.text
    assert "times (" not in caplog.text
    caplog.clear()
    monkeypatch.setattr("maskpolicy.pipeline.stages.model_training._EPOCHS", 7)
    text = "One two three four five six seven eight nine ten."
    assert pretrain(folder, tmp_path, [(text, [])], name="random", ratio=0.5).error is None
    assert "masks every token" not in caplog.text
    assert "reads each of 1 passages 8 times (2 steps of 4 passages)" in caplog.text
    assert "lower intermediate.steps" in caplog.text


def test_a_policy_that_masks_one_passage_is_trained(folder, tmp_path):
    rows = [(text, [[0, 4]] if text == small.TEXTS[0] else []) for text in small.TEXTS]
    assert pretrain(folder, tmp_path, rows, name="column", column="marked").error is None
    assert pretrain(folder, tmp_path, rows, name="poisson", insert=0.0).error is None


ENCODER = """
model: {kind: encoder, name: mini, layers: 1, decoder_layers: 1}
corpus: world
policies:
  - none
  - {name: random, label: mlm}
  - {name: salient-span, label: mae, mask_exclusion: 1.0}
  - {name: random, label: delta 1, shallow_decoder: true}
  - {name: random, label: electra, replaced_token_detection: {generator: 0.5}}
tasks: [cola, squad_v2]
world: {people: 8, general_people: 6}
general: {steps: 2, batch_size: 4}
intermediate: {steps: 2, batch_size: 4}
finetune: {steps: 2, batch_size: 4, eval_every: 1}
"""
HEAD, BODY = "RobertaForMaskedLM", "RobertaModel"


def test_an_encoder_goes_through_the_whole_pipeline(tmp_path):
    store, built = Store(tmp_path / "store"), graph(tmp_path, ENCODER)
    compute(built.stages, store)
    kinds = {stage.kind for stage in topological(built.stages)}
    assert kinds == {stage.kind for stage in topological(graph(tmp_path).stages)}
    for row, saved in {"none": BODY, "mlm": HEAD, "mae": BODY, "electra": BODY}.items():
        folder = store.path(built.pretrained[row, 0].key)
        names = {each.name for each in folder.iterdir()}
        assert names == {"config.json", "model.safetensors", "work.json", "MANIFEST.json"}
        assert json.loads((folder / "config.json").read_text())["architectures"] == [saved]
    results = {cell[:2]: result(store, stage) for cell, stage in built.cells.items()}
    assert results["mae", "cola"]["metric"] == "matthews"
    assert 0 <= results["mae", "squad_v2"]["parts"]["exact_match"] <= 1
    assert len(results) == 10


def test_an_encoder_answers_in_single_precision_without_flash_attention(tmp_path, caplog):
    changes = ("policies=[none]", "tasks=[cola]", "finetune.attention=flash_attention_2")
    store, built = Store(tmp_path / "store"), graph(tmp_path, ENCODER, changes)
    (stage,) = built.cells.values()
    compute([stage.inputs["model"], stage.inputs["examples"]], store)
    caplog.clear()
    compute([stage], store)
    assert "flash_attention_2" not in caplog.text


def test_an_encoder_is_trained_alike_after_a_kill(tmp_path):
    text = ENCODER.replace("steps: 2", "steps: 6")
    built = graph(tmp_path, text, ["intermediate.checkpoint_every=1e-9"])
    whole, broken = Store(tmp_path / "whole"), Store(tmp_path / "broken")
    for row in ("mae", "electra"):
        stage = built.pretrained[row, 0]
        compute([stage], whole)
        interrupted(broken, stage, 4)
        assert broken.checkpoints(stage.key).latest()[0] > 0
        compute([stage], broken)
        assert small.content(broken, stage) == small.content(whole, stage)


def test_exclusion_leaves_no_trace_in_the_files_of_a_bart(folder, tmp_path):
    made = {}
    for share in (0.0, 1.0):
        how = {"corruption": "token", "mask_exclusion": share}
        text = small.experiment(model=str(folder), general={}, **how)
        store, stage = Store(tmp_path / "store"), graph(tmp_path, text).pretrained["random", 0]
        compute([stage], store)
        files = store.path(stage.key)
        made[share] = contents(files, "model.safetensors", "MANIFEST.json")
        made[share]["tensors"] = sorted(load_file(files / "model.safetensors"))
    assert made[0.0] == made[1.0]


def test_fine_tuning_validates_the_last_weights_too(folder, tmp_path, monkeypatch):
    found, score = [], metrics.score
    monkeypatch.setattr(metrics, "score", lambda *given: found.append(given) or score(*given))
    changes = ("finetune.steps=3", "finetune.eval_every=2", "policies=[none]", "seeds=[0]")
    built = graph(tmp_path, small.experiment(model=str(folder), general={}), changes)
    (cell,) = built.cells.values()
    compute([cell.inputs["model"]], Store(tmp_path / "store"))
    assert len(found) == 2  # after steps 2 and 3


def test_the_first_metric_ranks_and_the_others_are_beside_it(tmp_path):
    changes = ("tasks=[{name: wow, metrics: [contains, f1]}]", "seeds=[0]", "world.wow_values=true")
    store, built = Store(tmp_path / "store"), graph(tmp_path, YAML, changes)
    (stage,) = (stage for (row, _, _), stage in built.cells.items() if row == "none")
    compute([stage, *built.majority.values()], store)
    found = result(store, stage)
    lines = (store.path(stage.key) / "predictions.jsonl").read_text().splitlines()
    answers = [json.loads(line) for line in lines]
    predictions, targets = ([row[name] for row in answers] for name in ("prediction", "targets"))
    assert found["metric"] == "contains"
    assert found["score"] == sum(row["score"] for row in answers) / len(answers)
    assert found["parts"] == {"f1": metrics.total("f1", predictions, targets).score}
    assert Total.from_json(found).parts == found["parts"]


def test_a_metric_without_short_answers_gets_a_warning(tmp_path, caplog):
    wow = "tasks=[zsre, {name: wow, metrics: [f1, contains]}]"
    graph(tmp_path, changes=[wow])
    assert "tasks[1].metrics: contains looks for a short answer" in caplog.text
    caplog.clear()
    graph(tmp_path, changes=[wow, "world.wow_values=true"])
    graph(tmp_path, changes=["tasks=[{name: zsre, metrics: [contains]}]"])
    assert not caplog.text


PAIRS = small.experiment(
    model={"kind": "encoder", "name": "mini", "head": "own"},
    policies=["none", "random", {"name": "random", "ratio": 0.4}],
    **{"data": "data", "tasks": ["pairs"], "seeds": [0, 1], "checkpoint_steps": [1]},
)


def pairs_graph(folder, *changes):
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "pairs.csv").write_text("good,bad\nAda was born.,Ada were born.\n")
    return graph(folder, PAIRS, changes)


def evaluations(graph):
    return {cell: stage.key for cell, stage in (graph.cells | graph.early).items()}


def test_nothing_is_fine_tuned_and_each_model_answers_once(tmp_path):
    built = pairs_graph(tmp_path)
    kinds = {stage.kind for stage in topological(list(built.targets))}
    assert kinds.isdisjoint({"finetune", "train-examples", "majority", "audit"})
    found = evaluations(built)
    assert len(found) == 2 * (3 + 2)
    assert len(set(found.values())) == 3 + 2  # both seeds share the intermediate run
    others = ("finetune.steps=7", "finetune.lr=0.1", "finetune.max_source=64")
    assert evaluations(pairs_graph(tmp_path, *others)) == found
    other = evaluations(pairs_graph(tmp_path, "tasks=[{name: pairs, choose: within_word_l2r}]"))
    assert set(other.values()).isdisjoint(found.values())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["model.head=auto"], "row none has with model.head: own"),
        (["policies=[none, {name: random, mask_exclusion: 1.0}]"], "exclusion=1.0 drops the one"),
        (["policies=[none, {name: random, replaced_token_detection: {}}]"], "=50.0 drops the one"),
        (["tasks=[{name: pairs, choose: enc_dec_mask}]"], "choose pll or within_word_l2r"),
        (["tasks=[{name: pairs, metrics: [matthews]}]"], "this task has pairs: name another"),
        (["data=world"], "the embedded world has no files of task 'pairs'"),
    ],
)
def test_what_cannot_be_scored_is_one_line(tmp_path, changes, said):
    with pytest.raises(ConfigError, match=rf"tasks.*: .*{said}|tasks.*{said}"):
        pairs_graph(tmp_path, *changes)


def test_pairs_may_be_as_long_as_the_sources_of_fine_tuning(tmp_path):
    cells = pairs_graph(tmp_path, "finetune.max_source=1024").cells.values()
    assert {cell.params.spec.max_source for cell in cells} == {1024}


@pytest.mark.parametrize(
    ("family", "head", "has_none"),
    [("roberta", "auto", True), ("roberta", "own", False), ("bert", "auto", False)],
)
def test_a_folder_of_roberta_needs_its_own_head_for_pairs(tmp_path, family, head, has_none):
    folder = encoders.saved(family, tmp_path / "model")
    changes = (f"model={{name: {folder}, kind: encoder, head: {head}}}", "general.steps=0")
    said = r"tasks\[0\]: pairs needs a head .* row none has with model.head: own"
    with pytest.raises(ConfigError, match=said) if has_none else nullcontext():
        pairs_graph(tmp_path, *changes)


TEXTS = ["Anna Kovar was born in <mask>.", "Boats go down the <mask> in 1901."]
VALUES = ["Rome", "river Oder"]


@pytest.mark.parametrize("name", ["bart", "t5", "mbart"])
def test_the_value_is_masked_by_one_mark_or_one_for_each_token(name):
    tokenizer = text_to_text.tokenizer(name)
    marks = Specials.of(tokenizer)
    sources, longest = _masked(TEXTS, VALUES, tokenizer, marks, Denoising())
    whole = [text.replace("<mask>", value) for text, value in zip(TEXTS, VALUES, strict=True)]
    for source, text in zip(sources, whole, strict=True):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        (at,) = np.flatnonzero(source == marks.mask)
        rest = len(source) - at - 1
        assert source[:at].tolist() == ids[:at]
        assert source[at + 1 :].tolist() == ids[len(ids) - rest :]
        hidden = tokenizer.decode(ids[at : len(ids) - rest]).strip()
        assert hidden in VALUES
    by_tokens, _ = _masked(TEXTS, VALUES, tokenizer, marks, Denoising(corruption="token"))
    assert by_tokens.lengths.tolist() == [
        len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in whole
    ]
    assert longest == max(map(len, tokenizer(whole, add_special_tokens=False)["input_ids"]))


@pytest.mark.parametrize(
    ("row", "target", "corruption"),
    [
        ("{name: random}", "spans", None),
        ("{name: random, corruption: token}", "spans", "token"),
        ("{name: mixture, members: [original, random]}", "full", None),
        ("{name: mixture, members: [random, {name: ul2, members: [original]}]}", "full", None),
        ("{name: mixture, members: [random, {name: span, corruption: token}]}", "spans", None),
        ("{name: mixture, members: [{name: span, corruption: token}]}", "spans", "token"),
    ],
)
def test_a_value_is_asked_for_as_a_row_and_its_members_were_trained(
    tmp_path, row, target, corruption
):
    built = graph(tmp_path, changes=[f"policies=[none, {row[:-1]}, label: it}}]"])
    trained = built.pretrained["it", 0].params
    asked = to_json(ClozeParams.of(trained, {}))
    assert asked["how"] == to_json(trained.how) | {"target": target}
    assert asked.get("corruption") == corruption


def test_the_first_of_several_spans_fills_in_the_mask():
    said = ("Rome", "Rome Anna Kovar", "Romeville", "Anna Kovar Rome")
    assert [_is_right(answer, "Rome", full=False) for answer in said] == [True, True, False, False]
    assert _is_right("Anna Kovar was born in Rome.", "Rome", full=True)
