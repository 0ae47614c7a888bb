"""grid, zip and tune: rows and labels; texts that are mixed into a corpus, and columns."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Detection, Replacement
from maskpolicy.data import world
from maskpolicy.data.corpus import documents
from maskpolicy.experiment.definition import Experiment
from maskpolicy.experiment.model_and_corpus import mixed_texts, with_details
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.experiment.sweeps import RowKeys
from maskpolicy.experiment.world_settings import GOLD
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.nodes import Stage, topological
from maskpolicy.plugins.registry import ROW_KEYS
from tests.experiment.conftest import plugin

DOCS = Path(__file__).parents[2] / "docs" / "experiments.md"
SHOWN = DOCS.read_text("utf-8").partition("## Sweeps and tuning")[2]
EXAMPLES = re.findall(r"```yaml\n(.*?)```.*?```text\n(.*?)```", SHOWN, re.DOTALL)


@pytest.fixture
def load_rows(load):
    return lambda policies, *more: load(f"policies={policies}", *more)


def labels(experiment: Experiment) -> list[str]:
    return [block.label for block in experiment.policies]


@pytest.mark.parametrize(("text", "rows"), EXAMPLES)
def test_the_examples_of_the_page_have_the_rows_that_it_shows(tmp_path, text, rows):
    (tmp_path / "it.yaml").write_text(text, "utf-8")
    assert labels(load_experiment(tmp_path / "it.yaml")) == rows.splitlines()


def test_a_row_that_cannot_have_a_key_of_the_top_stays_one_row(load_rows):
    learned = "{name: supervised, train_on: [triviaqa]}"
    found = load_rows(f"[none, random, {learned}]", "grid={fit.lr: [1e-4, 1e-3], target: [full]}")
    assert labels(found) == [
        "none",
        "random target=full",
        "supervised train_on=triviaqa target=full fit.lr=0.0001",
        "supervised train_on=triviaqa target=full fit.lr=0.001",
    ]


def test_the_objective_at_the_top_reaches_the_members_of_a_mixture(load_rows):
    found = load_rows(
        "[none, {name: mixture, members: [mass, span]}]", "grid={target: [full, spans]}"
    )
    targets = [{each["target"] for each in row.fields["members"]} for row in found.policies[1:]]
    assert targets == [{"full"}, {"spans"}]


@pytest.mark.parametrize("sweep", ["grid", "tune"])
@pytest.mark.parametrize(
    ("block", "file", "key", "value", "whole"),
    [
        ("replaced_token_detection", "{generator: 0.5}", "weight", 25.0, Detection(0.5, 25.0)),
        ("replacement", "{mask: 0.75, keep: 0.25}", "mask", 0.75, Replacement(0.75, 0.0, 0.25)),
    ],
)
def test_a_sweep_over_one_key_of_the_objective_keeps_the_files_others(
    load_rows, sweep, block, file, key, value, whole
):
    model = "model={kind: encoder, name: mini}"
    found = load_rows(
        "[none, random]", model, f"{block}={file}", f"{sweep}.{block}.{key}=[{value}]"
    )
    (row,) = found.policies[1].candidates or found.policies[1:]
    assert getattr(row.denoising, block) == whole


def test_a_member_may_leave_out_what_the_file_states(load_rows):
    member = "{name: random, corruption: delete, target: full, replacement: null}"
    found = load_rows(
        f"[none, {{name: mixture, members: [random, {member}]}}]",
        "replacement={mask: 0.8, random: 0.1, keep: 0.1}",
    )
    first, second = found.policies[1].members
    assert first.denoising.replacement is not None and second.denoising.replacement is None


def test_a_mixture_whose_members_all_state_a_key_of_the_top_stays_one_row(load_rows):
    inner = "{name: mixture, members: [{name: random, target: full}, {name: span, target: full}]}"
    members = f"[{inner}, {{name: mass, target: spans}}]"
    rows = f"[none, {{name: mixture, label: mixed, members: {members}}}, random]"
    found = load_rows(rows, "grid={target: [full, spans]}")
    assert labels(found) == ["none", "mixed", "random target=full", "random target=spans"]


def test_checkpoints_are_those_of_the_longest_row(load_rows):
    steps = "grid={intermediate.steps: [10, 100]}"
    assert load_rows("[none, random]", steps, "checkpoint_steps=[50]").checkpoint_steps == (50,)


def test_the_baseline_may_be_several_rows_that_differ_in_trainings(load_rows):
    assert load_rows("[none, random]", "grid={finetune.lr: [1e-4, 1e-3]}").baseline == "none"
    labelled = "[none, {name: random, label: MLM}]"
    more = ("baseline=MLM", "grid={finetune.lr: [1e-4, 1e-3]}")
    assert load_rows(labelled, *more).baseline == "MLM"


TUNE = "tune={intermediate.lr: [1e-4, 1e-3], on: dev}"


def tried(experiment: Experiment) -> dict[str, list[str]]:
    return {row.label: [each.label for each in row.candidates] for row in experiment.policies}


def test_all_rows_with_an_intermediate_stage_choose_from_the_same_values(load_rows):
    rows = "[none, random, {name: span, label: S}, {name: mass, intermediate: {lr: 0.1}}]"
    assert tried(load_rows(rows, TUNE)) == {
        "none": [],
        "random": ["random intermediate.lr=0.0001", "random intermediate.lr=0.001"],
        "S": ["S intermediate.lr=0.0001", "S intermediate.lr=0.001"],
        "mass intermediate.lr=0.1": [],
    }
    assert tried(load_rows("[none]", "tune={finetune.lr: [1e-4]}")) == {
        "none": ["none finetune.lr=0.0001"]
    }


def test_a_row_of_its_own_may_choose_any_of_its_settings(load_rows):
    tune = "{ratio: [0.1, 0.3], target: [full], on: dev}"
    found = load_rows(f"[none, random, {{name: random, tune: {tune}}}]")
    assert tried(found)["random ratio=tuned target=tuned"] == [
        "random ratio=0.1 target=full",
        "random ratio=0.3 target=full",
    ]
    few, many = found.policies[2].candidates
    assert [few.fields["ratio"], many.fields["ratio"]] == [0.1, 0.3]
    assert few.denoising.target == "full"
    assert found.policies[2].tune == {"ratio": [0.1, 0.3], "target": ["full"], "on": "dev"}


def test_the_order_of_the_keys_changes_no_candidate(load_rows):
    keys = ["intermediate.lr: [1e-4, 1e-3]", "finetune.lr: [1e-3, 1e-4]"]
    one, other = (
        load_rows("[none, random]", f"tune={{{', '.join(k)}}}") for k in (keys, keys[::-1])
    )
    assert one == other


def test_the_reserved_keys_of_a_row_are_those_that_are_documented():
    assert {field.name for field in fields(RowKeys)} == set(ROW_KEYS)


def graph(experiment: Experiment) -> stages.Graph:
    return stages.build(experiment, lambda path: path.name)


def corpus(experiment: Experiment, label: str) -> Stage:
    return graph(experiment).pretrained[label, 0].inputs["corpus"]


def test_a_mixed_corpus_reads_the_corpus_and_the_general_one(load):
    plain, mixed = load(), load("corpus={name: world, mix: {general: 0.2}}")
    made = corpus(mixed, "random")
    assert made.kind == "corpus" and made.label == "intermediate mix.general=0.2"
    assert made.inputs["corpus"].key == corpus(plain, "random").key
    assert made.inputs["mix-general"].key == graph(plain).pretrained["none", 0].inputs["corpus"].key
    before, after = (graph(each).pretrained["none", 0] for each in (plain, mixed))
    assert before.key == after.key  # tokenizer and general model are those without the mix
    nothing = load("corpus={name: world, mix: {general: 0, situations: 0.0}}")
    assert corpus(nothing, "random").key == corpus(plain, "random").key


@pytest.mark.parametrize(
    ("languages", "keyed"), [(("en", "en"), None), (("de", "de"), None), (("de", "en"), True)]
)
def test_texts_of_several_languages_have_keys_of_their_own(load, tmp_path, languages, keyed):
    path = tmp_path / "it.txt"
    path.write_text("Text.")
    own, other = (f"files: [{path}], language: {each}" for each in languages)
    experiment = load(f"corpus={{{own}, mix: {{more: {{{other}, share: 0.2}}}}}}")
    assert corpus(experiment, "random").keyed.get("languages") is keyed


def test_passages_have_words_or_tokens_in_each_row(load):
    rows = "policies=[original, {name: original, corpus: {words: 30}}, "
    rows += "{name: original, corpus: {mix: {general: 0.1}}}]"
    experiment = load(rows, "baseline=original", "corpus={name: world, tokens: 64}")
    sizes = [experiment.corpus_of(block).passage_size for block in experiment.policies]
    by_tokens = {"words": None, "tokens": 64}
    assert sizes == [by_tokens, {"words": 30, "tokens": None}, by_tokens]
    mixed = corpus(experiment, experiment.policies[2].label).inputs["mix-general"]
    assert mixed.keyed["corpus"]["tokens"] == 64
    labels = [block.label for block in experiment.policies]
    assert labels[1] == "original corpus.words=30"


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


def test_tokens_null_of_a_row_means_the_words_of_the_file(load):
    sizes = "policies=[{name: original, grid: {corpus.tokens: [null, 126]}}]"
    experiment = load(sizes, "baseline=original", "corpus={name: world, words: 50}")
    found = [experiment.corpus_of(block).passage_size for block in experiment.policies]
    assert found == [{"words": 50, "tokens": None}, {"words": None, "tokens": 126}]


@pytest.mark.parametrize(
    ("own", "label"),
    [
        ("hub: x/y, split: dev", "hub=x/y corpus.mix.wiki.split=dev"),
        ("files: [a.txt], tokens: 40", "files=a.txt corpus.mix.wiki.tokens=40"),
        ("words: 30", "words=30"),
    ],
)
@pytest.mark.parametrize(
    "file", ["files: [wiki.txt], words: 9", "hub: x/z, stream: true, tokens: 9"]
)
def test_a_row_may_give_a_text_of_a_mix_another_source_and_size(load, file, own, label):
    rows = f"[original, {{name: original, corpus: {{mix: {{wiki: {{{own}}}}}}}}}]"
    mixed = f"corpus={{name: world, mix: {{wiki: {{{file}, share: 0.2}}}}}}"
    experiment = load(mixed, f"policies={rows}", "baseline=original")
    row = experiment.policies[1]
    assert label in row.label
    (text,) = mixed_texts(experiment.corpus_of(row))
    assert text.share == 0.2 and bool(text.corpus.hub) != bool(text.corpus.files)


def test_a_row_with_another_source_drops_that_of_the_file(load):
    rows = "policies=[original, {name: original, corpus: {files: [a.txt]}}]"
    experiment = load(rows, "baseline=original")
    own = experiment.policies[1]
    assert own.label == "original corpus.files=a.txt"
    found = experiment.corpus_of(own)
    assert found.name is None and found.files[0].endswith("/a.txt")
    assert with_details(found) == "a.txt"
    made = corpus(experiment, own.label)
    assert made.files and made.label == "intermediate files=a.txt"


def test_the_hook_is_a_list_of_names(load, tmp_path):
    (tmp_path / "mine.py").write_text(plugin("marks-of-mine", 'corpus_columns = "marks"'))
    said = (
        r"policy marks-of-mine: corpus_columns: must be a list, not text 'marks': write \[marks\]"
    )
    with pytest.raises(ConfigError, match=said):
        load("plugins=[mine.py]", "policies=[none, marks-of-mine]")


@pytest.mark.parametrize("more", [{}, {"entity_errors": {"wrong": 0.1}}])
def test_the_columns_are_those_of_the_worlds_documents(tmp_path, more):
    settings = world.make({"people": 4, "general_people": 2, **more})
    world.write(settings, tmp_path)
    first = next(iter(documents.world(tmp_path / "general.jsonl")))
    assert tuple(first.columns) == settings.columns and {*GOLD} <= {*first.columns}


@pytest.mark.parametrize("label", ["1", "null", "' '", "[x]", '"two\\nlines"'])
def test_the_labels_of_a_zip_are_checked_as_those_of_blocks(load_rows, label):
    rows = f"[none, {{name: random, zip: {{ratio: [0.1, 0.2], label: [{label}, b]}}}}]"
    with pytest.raises(ConfigError, match=r"policies\[1\]\.label: (must be text|is empty|has a)"):
        load_rows(rows)


@pytest.mark.parametrize("mix", ["{}", "{general: 0.5}", "{wiki: {files: [wiki.txt], share: 0.1}}"])
def test_a_row_may_choose_the_share_of_a_text_that_it_does_not_state(load_rows, mix):
    found = load_rows(
        "[none, random]", f"corpus={{name: world, mix: {mix}}}", "tune.corpus.mix.general=[0, 0.2]"
    )
    assert [*tried(found)] == ["none", "random"]
    shares = [found.corpus_of(each).mix["general"] for each in found.policies[1].candidates]
    assert shares == [0, 0.2]


@pytest.mark.parametrize(
    ("corpus", "row", "tune", "found"),
    [
        ("world", "", "corpus.files: [[a.txt], [wiki.txt]]", ["files=a.txt", "files=wiki.txt"]),
        ("{files: [a.txt], tokens: 50}", "", "corpus.words: [60, 120]", ["words=60", "words=120"]),
        ("{files: [a.txt], words: 50}", "", "corpus.tokens: [6, 9]", ["tokens=6", "tokens=9"]),
        ("{files: [a.txt], words: 5}", "", "corpus.tokens: [null, 9]", ["tokens=null", "tokens=9"]),
        (
            "world",
            "corpus: {mix: {wiki: {files: [wiki.txt]}}}, ",
            "corpus.mix.wiki.share: [0.1, 0.2]",
            ["mix.wiki.share=0.1", "mix.wiki.share=0.2"],
        ),
    ],
)
def test_a_row_may_choose_its_source_and_its_sizes(load_rows, corpus, row, tune, found):
    rows = f"[none, {{name: random, {row}tune: {{{tune}}}}}]"
    made = load_rows(rows, f"corpus={corpus}")
    (tuned,) = [label for label in tried(made) if label != "none"]
    assert tuned.endswith("=tuned")
    bare = tuned.rpartition(" ")[0]
    assert tried(made)[tuned] == [f"{bare} corpus.{each}" for each in found]


def test_files_of_one_name_are_told_apart_by_their_folders(load_rows, tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a.txt").write_text("Another text.")
    rows = "[none, {name: random, tune: {corpus.files: [[a.txt], [b/a.txt]]}}]"
    labels = tried(load_rows(rows))["random corpus.files=tuned"]
    assert labels == [f"random corpus.files={tmp_path / each}" for each in ("a.txt", "b/a.txt")]


def test_a_row_with_the_files_setting_differs_where_a_column_has_its_own(load_rows, caplog):
    rows = "[none, random, {name: random, finetune: {lr: 3e-4}}, "
    rows += "{name: none, label: it, finetune: {lr: 3e-4}}]"
    found = load_rows(rows, "tasks=[{name: triviaqa, finetune: {lr: 1e-5}}]")
    assert labels(found)[2:] == ["random finetune.lr=0.0003", "it"] and not caplog.messages
    rates = [found.budget("finetune", row, found.tasks[0]).lr for row in found.policies]
    assert rates == [1e-5, 1e-5, 3e-4, 3e-4]
