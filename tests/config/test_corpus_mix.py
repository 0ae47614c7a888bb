from __future__ import annotations

import json

import pytest

from maskpolicy import stages
from maskpolicy.config.corpus_mix import with_details
from maskpolicy.config.experiment import Experiment, resolved
from maskpolicy.config.parse import load_experiment
from maskpolicy.errors import ConfigError
from maskpolicy.graph.nodes import Stage, topological
from maskpolicy.results.cell_config import cell_config

QUICK = "model: mini\ncorpus: world\npolicies: [none, original]\ntasks: [triviaqa]\n"
ROW = "policies=[none, original, {name: original, label: rehearsal, corpus: {mix: {general: 0.2}}}]"


@pytest.fixture
def load(tmp_path):
    def load(*keys: str) -> Experiment:
        (tmp_path / "mine.yaml").write_text(QUICK)
        for name in ("a.txt", "wiki.txt"):
            (tmp_path / name).write_text("One text.\n")
        return load_experiment(tmp_path / "mine.yaml", keys)

    return load


def graph(experiment: Experiment) -> stages.Graph:
    return stages.build(experiment, lambda path: path.name)


def corpus(experiment: Experiment, label: str) -> Stage:
    return graph(experiment).pretrained[label, 0].inputs["corpus"]


def test_a_mixed_corpus_reads_the_corpus_and_the_general_one(load):
    plain, mixed = load(), load("corpus={name: world, mix: {general: 0.2}}")
    made = corpus(mixed, "original")
    assert made.kind == "corpus" and made.label == "intermediate mix.general=0.2"
    assert made.inputs["corpus"].key == corpus(plain, "original").key
    assert made.inputs["mix-general"].key == graph(plain).pretrained["none", 0].inputs["corpus"].key
    before, after = (graph(each).pretrained["none", 0] for each in (plain, mixed))
    assert before.key == after.key  # tokenizer and general model are those without the mix


def test_a_share_of_nothing_is_no_mix(load):
    keys = ("corpus={name: world, mix: {general: 0, situations: 0.0}}",)
    assert corpus(load(*keys), "original").key == corpus(load(), "original").key


def test_a_row_has_a_corpus_of_its_own_key_by_key(load):
    experiment = load(ROW, "corpus={name: world, words: 50}")
    usual, own = (experiment.corpus_of(block) for block in experiment.policies[1:])
    assert (usual.mix, own.mix) == (None, {"general": 0.2})
    assert (own.words, own.name) == (50, "world")
    assert (
        corpus(experiment, "rehearsal").inputs["corpus"].key == corpus(experiment, "original").key
    )


def test_every_stage_of_a_row_reads_its_own_corpus(load):
    learned = "{name: supervised, train_on: [triviaqa]"
    rows = f"[none, {learned}}}, {learned}, label: own, corpus: {{mix: {{general: 0.5}}}}}}, "
    rows += "{name: pmi, label: counted, corpus: {mix: {general: 0.5}}}]"
    made = graph(load(f"policies={rows}", "baseline=none"))
    for label in ("own", "counted"):
        stage = made.pretrained[label, 0]
        wanted = stage.inputs["corpus"]
        below = [each for each in topological([stage]) if each.kind in ("annotate", "count")]
        assert below and all(each.inputs["corpus"].key == wanted.key for each in below)
        contexts = [each for each in topological([stage]) if each.kind == "contexts"]
        read = [each.inputs["corpus"].key for each in contexts if "corpus" in each.inputs]
        assert set(read) <= {wanted.key}


def test_texts_of_a_mix_are_replaced_one_by_one(load):
    file = "corpus={name: world, mix: {general: 0.2, wiki: {files: [wiki.txt], share: 0.1}}}"
    rows = "policies=[original, {name: original, corpus: {mix: {wiki: {share: 0.3}}}}, "
    rows += "{name: original, corpus: {mix: {wiki: {share: 0}}}}]"
    experiment = load(file, rows, "baseline=original")
    shares = []
    for block in experiment.policies:
        found = corpus(experiment, block.label).keyed.get("mix", [])
        shares.append({each["name"]: each["share"] for each in found})
    assert shares == [
        {"general": 0.2, "wiki": 0.1},
        {"general": 0.2, "wiki": 0.3},
        {"general": 0.2},
    ]
    labels = [block.label for block in experiment.policies]
    assert labels[1:] == [
        "original corpus.mix.wiki.share=0.3",
        "original corpus.mix.wiki.share=0.0",
    ]


def test_a_row_with_another_source_drops_that_of_the_file(load):
    experiment = load("corpus={files: [a.txt], columns: [marks, names], on_error: skip}")
    assert with_details(experiment.corpus) == 'a.txt, columns ["marks","names"], on_error skip'
    rows = "policies=[original, {name: original, corpus: {files: [a.txt]}}]"
    experiment = load(rows, "baseline=original")
    assert experiment.policies[1].label == "original corpus.files=a.txt"
    found = experiment.corpus_of(experiment.policies[1])
    assert found.name is None and found.files[0].endswith("/a.txt")
    assert corpus(experiment, experiment.policies[1].label).files


def test_sweeps_vary_the_mix(load):
    experiment = load("grid={corpus.mix.general: [0, 0.2]}")
    labels = [block.label for block in experiment.policies]
    assert labels == [
        "none",
        "original corpus.mix.general=0.0",
        "original corpus.mix.general=0.2",
    ]
    assert corpus(experiment, labels[1]).key == corpus(load(), "original").key
    tuned = load("tune={corpus.mix.general: [0, 0.2]}")
    assert [each.label for each in tuned.policies[1].candidates] == labels[1:]


@pytest.mark.parametrize(
    "keys",
    [
        (ROW,),
        ("corpus={name: world, mix: {wiki: {files: [wiki.txt], words: 9, share: 0.1}}}",),
        ("grid={corpus.mix.general: [0, 0.2]}", "corpus.mix.general=0.1"),
        ("policies=[original, {name: original, corpus: {files: [a.txt]}}]", "baseline=original"),
    ],
)
def test_the_experiment_is_the_same_when_it_is_read_again(load, keys, tmp_path):
    experiment = load(*keys)
    path = tmp_path / "again.yaml"
    path.write_text(json.dumps(resolved(experiment)))
    again = load_experiment(path)
    assert again.corpus == experiment.corpus
    assert again.policies == experiment.policies


def test_results_state_the_corpus_of_their_row(load):
    experiment = load(ROW)
    configs = [
        cell_config(experiment, block, experiment.tasks[0], 0) for block in experiment.policies
    ]
    assert "corpus" not in configs[0] and "mix" not in configs[1]["corpus"]
    assert configs[2]["corpus"]["mix"] == {"general": 0.2}
    assert configs[2]["trainings"] == {"corpus": {"mix": {"general": 0.2}}}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            ("corpus.mix.general=1",),
            "corpus.mix.general: must be below 1, not 1: leave a share to the corpus itself",
        ),
        (
            ("corpus.mix={general: 0.5, a: {files: [a.txt], share: 0.5}}",),
            "add up to 1: leave",
        ),
        (
            ("corpus.mix={wiki: 0.2}",),
            "from general, situations; a text of your own is a block: write {files: [..], share: ",
        ),
        (
            ("corpus.mix={genral: 0.2}",),
            "corpus.mix.genral: unknown text 'genral': did you mean 'general'?",
        ),
        (("corpus.mix={general: {share: 0.3}}",), "must be a share alone: write general: 0.3"),
        (("corpus.mix={general: 30}",), "must be >= 0 and < 1, not 30.0: write 0.3 for 30%"),
        (("corpus.mix={general: -1}",), "corpus.mix.general: must be >= 0 and < 1, not -1"),
        (("corpus.mix={general: 1.5}",), "corpus.mix.general: must be >= 0 and < 1, not 1.5"),
        (
            ("corpus.mix={wiki: {files: [wiki.txt], shar: 0.2}}",),
            "corpus.mix.wiki.shar: unknown key 'shar': did you mean 'share'?",
        ),
        (
            ("corpus.mix={wiki: [wiki.txt]}",),
            "of a text and its share: write {files: [wiki.txt], share: 0.2}",
        ),
        (("corpus.mix={wiki: wiki.txt}",), "write {files: [wiki.txt], share: 0.2}"),
        (("corpus.mix={wiki: null}",), "write {files: [..], share: 0.2}"),
        (
            ("policies=[{name: random, corpus: {mix: {wiki: {share: 0.2}}}}]",),
            "policies[0].corpus.mix.wiki: wiki has no text: write corpus: {mix: {wiki: {files: [",
        ),
        (
            ("policies=[none, {name: random, grid: {corpus: {mix: {general: [0.1, 1.5]}}}}]",),
            "policies[1].grid.corpus.mix.general: must be >= 0 and < 1, not 1.5 (in the row of",
        ),
        (
            ("grid={corpus.files: [[a.txt], [b.txt]]}",),
            "mine.yaml: grid.corpus.files[0]: no such file 'b.txt' (in the row of corpus.files: ",
        ),
        (
            ("corpus.mix={wiki: {files: [wiki.txt]}}",),
            "corpus.mix.wiki.share: missing",
        ),
        (
            ("corpus.mix={wiki: {files: [no.txt], share: 0.1}}",),
            "wiki.files[0]: no such file",
        ),
        (
            ("corpus.mix={a: {name: world, share: 0.1}}",),
            "by name: write general: 0.1",
        ),
        (
            ("corpus.mix={a/b: {files: [a.txt], share: 0.1}}",),
            "is called by letters",
        ),
        (
            ("corpus.mix={situations: 0.1}",),
            "this world has none: set world",
        ),
        (("corpus.mix=[general]",), "a share for each text, not a list: write e.g. {general: 0.2}"),
        (("contrast_corpus={files: [a.txt], mix: {general: 0.1}}",), "contrast_corpus.mix: is for"),
        (("policies=[{name: none, corpus: {words: 9}}]",), "corpus: none has no stage"),
        (("policies=[{name: random, corpus: {wrds: 9}}]",), "corpus.wrds: unknown key"),
        (("policies=[{name: random, corpus: a.txt}]",), "corpus: is a block for files"),
        (("grid={corpus.mx: [1]}",), "unknown key of corpus 'mx'"),
        (
            ("corpus.mix={wiki: {share: 0.1}}",),
            "corpus.mix.wiki: wiki has no text: write corpus: {mix: {wiki: {files: [..], share",
        ),
        (
            ("policies=[none, {name: random, grid: {corpus.mix.wiki.share: [0.1]}}]",),
            "yaml: policies[1].grid.corpus.mix.wiki.share: wiki has no text: write corpus: {mix: ",
        ),
        (
            ("zip={corpus.mix.wiki.share: [0.1]}",),
            "mine.yaml: zip.corpus.mix.wiki.share: wiki has no text",
        ),
        (
            ("tune={corpus.mix: [{wiki: {share: 0.1}}]}",),
            "mine.yaml: tune.corpus.mix.wiki: wiki has no text",
        ),
        (
            ("grid={corpus.mix.situations: [0, 0.1]}",),
            "mine.yaml: grid.corpus.mix.situations: this world has none: set world.situations",
        ),
        (
            ("policies=[original, {name: original, corpus: {mix: {general: 0}}}]",),
            "have the same settings: drop one",
        ),
        (
            ("model=facebook/bart-base", "corpus={files: [a.txt], mix: {general: 0.1}}"),
            "neither this model nor this corpus is made of: name files",
        ),
    ],
)
def test_what_cannot_be_mixed_is_refused(load, keys, message):
    with pytest.raises(ConfigError) as caught:
        load(*keys)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_corpus_in_words(load):
    keys = ("corpus={name: world, words: 50, mix: {general: 0.2, wiki: {files: [wiki.txt], ",)
    experiment = load(keys[0] + "share: 0.1}, situations: 0}}")
    assert with_details(experiment.corpus) == (
        "the embedded world, 20% from general, 10% from wiki, words 50"
    )
    rows = "policies=[original, {name: original, corpus: {files: [a.txt]}}]"
    experiment = load(rows, "baseline=original")
    own = experiment.policies[1]
    assert with_details(experiment.corpus_of(own)) == "a.txt"
    assert corpus(experiment, own.label).label == "intermediate files=a.txt"
