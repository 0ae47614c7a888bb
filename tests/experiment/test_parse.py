from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from refusals import refused
from small import FILE

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Denoising
from maskpolicy.experiment import parse
from maskpolicy.experiment.definition import resolved
from maskpolicy.experiment.parse import load_experiment


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "mine.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("outer", "warmup"),
    [("{}", 10), ("{steps: 21}", 10), ("{steps: 20}", 2), ("{steps: 5, warmup: 4}", 4)],
)
def test_a_warmup_that_nobody_set_is_a_tenth_of_few_steps(load, outer, warmup):
    row = f"{{name: meta-learned, train_on: [zsre], outer: {outer}}}"
    made = load(f"policies=[none, {row}]")
    assert made.policies[1].fields["outer"]["warmup"] == warmup
    for steps, of_stage in ((20_000, 1000), (2001, 1000), (2000, 200), (9, 0), (0, 1000)):
        keys = ("model=facebook/bart-base", f"intermediate.steps={steps}")
        assert load(*keys).intermediate.warmup == of_stage


def test_a_warmup_longer_than_the_training_is_told_and_kept(write, caplog):
    file = write(FILE + "intermediate: {steps: 50, warmup: 60}\n")
    assert load_experiment(file).intermediate.warmup == 60
    assert f"{file}: intermediate.warmup: 60 is more than the 50 steps" in caplog.text
    caplog.clear()
    load_experiment(file, ["intermediate.warmup=50"])
    assert not caplog.text


WARMUPS = [  # finetune of the file, task and row -> steps and warm-up on that task and on another
    ("{}", "{steps: 10}", "{steps: 500}", [(500, 20), (500, 20)]),
    ("{}", "{steps: 10}", "{lr: 1}", [(10, 1), (120, 20)]),
    ("{steps: 30}", "{steps: 2000}", "{steps: 30}", [(30, 3), (30, 3)]),
    ("{}", "{steps: 1000, warmup: 100}", "{steps: 60}", [(60, 100), (60, 20)]),
    ("{warmup: 9}", "{steps: 1000, warmup: 100}", "{steps: 10}", [(10, 100), (10, 9)]),
]


def of_warmups(file, task, row):
    blocks = f"policies=[none, {{name: random, finetune: {row}}}]", f"finetune={file}"
    return *blocks, f"tasks=[{{name: zsre, finetune: {task}}}, triviaqa]"


@pytest.mark.parametrize(("file", "task", "row", "budgets"), WARMUPS)
def test_steps_of_a_row_decide_the_default_warmup_on_each_task(
    load, file, task, row, budgets, caplog
):
    made = load(*of_warmups(file, task, row))
    specs = [made.budget("finetune", made.policies[1], column) for column in made.tasks]
    assert [(spec.steps, spec.warmup) for spec in specs] == budgets
    told = "policies[1] with tasks[0]: finetune.warmup: 100 is more than the"
    assert (told in caplog.text) == ("100" in task)
    if "100" in task and file == "{}":
        with pytest.raises(ConfigError, match=r"policies\[1\].finetune.steps: .* set the warm-up"):
            load(*of_warmups(file, task, "{steps: 30}"))


def test_data_may_differ_by_task_and_labels_show_what_differs(load, tmp_path):
    (tmp_path / "official").mkdir()
    tasks = "[triviaqa, {name: zsre, data: official}, {name: wow, data: hub, revision: abc}]"
    experiment = load(f"tasks={tasks}")
    assert [task.data for task in experiment.tasks] == ["world", str(tmp_path / "official"), "hub"]
    assert experiment.tasks[2].revision == "abc"
    experiment = load("tasks=[zsre, {name: zsre, context: true}]")
    assert [task.label for task in experiment.tasks] == ["zsre context=false", "zsre context=true"]


def test_how_keys_of_a_block_win_over_the_file_and_the_file_over_the_policy(load):
    rows = "[random, {name: original, label: own, target: spans}, original]"
    experiment = load(f"policies={rows}", "baseline=own")
    assert [block.denoising.target for block in experiment.policies] == ["spans", "spans", "full"]
    experiment = load(f"policies={rows}", "baseline=own", "target=full", "join=none")
    assert [block.denoising for block in experiment.policies] == [
        Denoising(target="full", join="none"),
        Denoising(target="spans", join="none"),
        Denoising(target="full", join="none"),
    ]


@pytest.mark.parametrize(
    ("row", "label"),
    [
        ("random", "random"),
        ("{name: random, ratio: 0.15, target: spans}", "random"),
        ("{name: random, ratio: 0.3}", "random ratio=0.3"),
        ("{name: random, label: mine, ratio: 0.5}", "mine"),
        ("{name: original, target: spans}", "original target=spans"),
        ("{name: regex, pattern: 'a+'}", "regex pattern=a+"),
        ("{name: supervised, train_on: [zsre, wow]}", "supervised train_on=zsre+wow"),
        (
            "{name: meta-learned, train_on: [wow], outer: {steps: 5}, init: {name: supervised, "
            "train_on: [zsre]}}",
            "meta-learned train_on=wow init.name=supervised init.train_on=zsre outer.steps=5",
        ),
    ],
)
def test_a_row_is_named_by_what_is_not_the_default(load, row, label):
    alone = load(f"policies=[none, {row}]")
    rows = f"[none, {row}, {{name: random, ratio: 0.7}}, span, {{name: span, p: 0.5}}]"
    among = load(f"policies={rows}")
    assert [alone.policies[1].label, among.policies[1].label] == [label, label]
    assert [block.label for block in among.policies[2:]] == [
        "random ratio=0.7",
        "span",
        "span p=0.5",
    ]


def test_the_baseline_is_a_label_or_the_only_row_of_a_policy(load):
    rows = "policies=[none, {name: random, ratio: 0.3}, {name: span, label: random}]"
    assert load(rows, "baseline=random").baseline == "random"
    rows = "policies=[none, {name: random, ratio: 0.3}]"
    assert load(rows, "baseline=random").baseline == "random ratio=0.3"


def test_rows_and_columns_that_differ_in_their_labels_alone_are_told(load, tmp_path, caplog):
    file = tmp_path / "mine.yaml"
    rows = "[none, {name: random, label: a}, {name: random, label: b, ratio: 0.15}, random, span]"
    made = load(f"policies={rows}")
    assert len(made.policies) == 5
    told = "differ in their labels alone and will have the same scores"
    assert caplog.messages == [f"{file}: policies: the rows 'a', 'b' and 'random' {told}"]
    caplog.clear()
    load("tasks=[{name: triviaqa, label: x}, triviaqa, {name: zsre, label: y}]")
    assert caplog.messages == [f"{file}: tasks: the columns 'x' and 'triviaqa' {told}"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("corpus: world\n", ": model: missing; it has no default: give "),
        ("model: mini\n", ": corpus: missing; it has no default: give "),
        ("model: mini\ncorpus: world\n", ": policies: missing; it has no default: give "),
        (FILE[: FILE.index("tasks")], ": tasks: missing; it has no default: give "),
        (FILE[: FILE.index("tasks")] + "finetune: {epochs: 2}\n", ": tasks: missing; "),
        ("model: mini\ncorpus: [world\ntasks: 3\n", ":3: not valid YAML"),
        (FILE + "model: mini\n", ":5: not valid YAML: found duplicate key"),
    ],
)
def test_a_file_that_is_wrong_is_one_line(write, text, said):
    path = write(text)
    assert refused(load_experiment, path).startswith(f"{path}{said}")


def test_one_policy_task_and_seed_need_no_brackets(write, caplog):
    one = write("model: mini\ncorpus: world\npolicies: none\ntasks: zsre\nseeds: 3\n")
    lists = write(
        "model: mini\ncorpus: world\npolicies: [none]\ntasks: [zsre]\nseeds: [3]\n", "b.yaml"
    )
    first, second = load_experiment(one), load_experiment(lists)
    assert replace(first, name="b", where=second.where) == second
    said = "seeds: 3 is the number of one seed; for several seeds write [0, 1, 2]"
    assert [record.getMessage() for record in caplog.records] == [f"{one}: {said}"]


def test_the_runs_of_the_command_line_win_over_those_of_the_file(write):
    for line, override, runs in (
        ("intermediate_seeds: 3", "intermediate_runs=[0, 1]", (0, 1)),
        ("intermediate_runs: [4, 5, 6]", "intermediate_seeds=2", (0, 1)),
    ):
        path = write(f"{FILE}seeds: [0, 1, 2]\n{line}\n")
        assert load_experiment(path, [override]).runs == runs


@pytest.mark.parametrize(
    ("file", "override", "size"),
    [
        ("words: 50", "corpus.tokens=126", {"words": None, "tokens": 126}),
        ("words: 50", "corpus.tokens=null", {"words": 50, "tokens": None}),
        ("tokens: 64", "corpus.words=50", {"words": 50, "tokens": None}),
    ],
)
def test_an_override_replaces_the_unit_of_passages(write, file, override, size):
    path = write(FILE.replace("corpus: world", f"corpus: {{name: world, {file}}}"))
    assert load_experiment(path, [override]).corpus.passage_size == size


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def loads_or_says_why(path: Path, overrides: list[str]) -> bool:
    """Whether it loads, or is refused in one line; any other exception fails the test."""
    try:
        return load_experiment(path, overrides).name == path.stem
    except ConfigError as error:
        return "\n" not in str(error)


@settings(max_examples=150)
@given(st.text() | st.text("{}[]:,-&*!?|>'\"%@`# \n\tab1.${}~<="))
def test_garbage_gives_nothing_but_a_config_error(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "garbage.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert loads_or_says_why(path, [])


@settings(max_examples=150)
@given(st.sampled_from([f.name for f in fields(parse.File)] + ["target", "x"]), JUNK)
@example("policies", {"\n": None})
def test_a_junk_value_gives_nothing_but_a_config_error(tmp_path_factory, key, junk):
    path = tmp_path_factory.getbasetemp() / "junk.yaml"
    try:
        path.write_text(FILE + OmegaConf.to_yaml({"junk": junk}), encoding="utf-8")
    except (ValueError, UnicodeEncodeError):  # an invalid interpolation, a surrogate
        return
    text = path.read_text(encoding="utf-8").replace("junk:", f"{key}:")
    lines = [line for line in FILE.splitlines() if not line.startswith(f"{key}:")]
    path.write_text("\n".join(lines) + "\n" + text[len(FILE) :], encoding="utf-8")
    assert loads_or_says_why(path, [])


@settings(max_examples=100)
@given(st.text(max_size=20), st.text(max_size=20))
def test_a_junk_override_gives_nothing_but_a_config_error(tmp_path_factory, key, value):
    path = tmp_path_factory.getbasetemp() / "override.yaml"
    path.write_text(FILE, encoding="utf-8")
    assert loads_or_says_why(path, [f"{key}={value}"])
    assert loads_or_says_why(path, [f"seeds={value}"])


ENCODER = "model={name: mini, kind: encoder}"


def test_an_encoder_recovers_tokens_at_their_positions_whatever_the_policy(load):
    rows = "policies=[none, random, original, poisson, {name: span, mask_exclusion: 0.5}]"
    made = load(ENCODER, rows)
    plain = Denoising(corruption="token", target="spans", join="none")
    own = [block.denoising for block in made.policies[1:]]
    assert own == [plain, plain, plain, replace(plain, mask_exclusion=0.5)]


TUNE = "tune={intermediate.lr: [1e-4, 1e-3], on: dev}"
SWEPT = "policies=[none, {name: random, grid: {ratio: [0.1, 0.3], finetune.lr: [1e-4]}}]"
TRAINED = "policies=[none, {name: random, intermediate: {betas: [0.8, 0.9], dropout: null}}]"
LABELLED = "policies=[none, random, {name: span, label: mine}]"
CHOICE = "policies=[none, {name: random, tune: {ratio: [0.1, 0.3], finetune.lr: [0.1]}}]"
OF_TEXT = "policies=[none, {name: regex, tune: {pattern: [a, b]}}]"
MIX = "corpus={name: world, mix: {wiki: {files: [wiki.txt], words: 9, share: 0.1}}}"
OWN = "policies=[original, {name: original, corpus: {files: [a.txt]}}]"
TEXT_OF_ROW = "policies=[original, {name: original, corpus: {mix: {wiki: {hub: x/y, tokens: 40}}}}]"
SHARE_OF_ROW = (
    "policies=[none, {name: random, corpus: {mix: {own: {files: [a.txt]}}}, "
    "tune: {corpus.mix.own.share: [0.1, 0.2]}}]"
)
MEMBERS = "{name: mixture, members: [{name: mass, ratio: 0.3}, ul2]}"


@pytest.mark.parametrize(
    "overrides",
    [
        (SWEPT,),
        (TRAINED,),
        (LABELLED, "grid={finetune.steps: [7, 200]}"),
        (LABELLED, TUNE),
        (CHOICE,),
        (OF_TEXT, "grid={intermediate.steps: [9, 50]}"),
        *(of_warmups(*case[:3]) for case in WARMUPS),
        ("tune={intermediate.steps: [9, 50]}", "intermediate={warmup: 3}"),
        (MIX, "checkpoint_steps=[9]"),
        ("grid={corpus.mix.general: [0, 0.2]}", "corpus.mix.general=0.1"),
        (OWN, "baseline=original"),
        (MIX, TEXT_OF_ROW, "baseline=original"),
        ("tune={corpus.files: [[a.txt], [wiki.txt]]}",),
        ("tune={corpus.tokens: [null, 9]}", "corpus={name: world, words: 5}"),
        (MIX, SHARE_OF_ROW),
        ("policies=[none, {name: random, corpus: world}]", "corpus={files: [a.txt], column: body}"),
        (f"general.policy={MEMBERS}", f"policies=[none, {MEMBERS}]", "target=full"),
        (ENCODER, "shallow_decoder=true", "mask_exclusion=0.25"),
        (ENCODER, "replacement={mask: 0.85, keep: 0.15}", "replaced_token_detection={weight: 9}"),
    ],
)
def test_a_resolved_experiment_loads_to_the_same_one(load, tmp_path, overrides):
    made = load(*overrides)
    config = resolved(made)
    assert not {"grid", "zip"} & config.keys()
    path = tmp_path / "mine.yaml"
    path.write_text(OmegaConf.to_yaml(OmegaConf.create(config)))
    again = load_experiment(path)
    assert again == made
    assert [block.members for block in again.policies] == [block.members for block in made.policies]


def test_columns_from_two_folders_are_named_as_the_file_names_the_folders(load, tmp_path):
    for name in ("a/tasks", "b/tasks"):
        (tmp_path / name).mkdir(parents=True)
    tasks = "tasks=[{name: zsre, data: a/tasks}, zsre]"
    experiment = load(tasks, "data=b/tasks")
    assert [task.label for task in experiment.tasks] == ["zsre data=a/tasks", "zsre data=b/tasks"]
    assert [task.data for task in experiment.tasks] == [
        str(tmp_path / n) for n in ("a/tasks", "b/tasks")
    ]


def test_a_pattern_may_begin_with_the_home_folder_as_a_file_may(load, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("A text.")
    for name in ("~/notes/a.txt", "~/notes/*.txt"):
        experiment = load(f"corpus={{files: ['{name}']}}")
        assert experiment.corpus.files == (str(tmp_path / "notes" / "a.txt"),)
    corpus = "corpus={files: ['~/notes/*'], pack: true}"
    rows = "policies=[none, random, {name: random, corpus: world}]"
    experiment = load(corpus, rows)  # the world is never packed
    assert not experiment.corpus_of(experiment.policies[2]).pack


def test_patience_without_evaluations_and_evaluations_of_no_one_are_told(write, caplog):
    file = write(FILE + "finetune: {patience: 3}\nintermediate: {eval_every: 50}\n")
    load_experiment(file, ["tasks=[{name: zsre, finetune: {eval_every: 5}}, triviaqa]"])
    said = "finetune.patience: has no effect: it counts evaluations on dev: set finetune.eval_every"
    assert said in caplog.text and "intermediate.eval_every: has no effect" in caplog.text
    caplog.clear()
    load_experiment(file, ["finetune.eval_every=5", "intermediate.eval_every=0"])
    assert not caplog.text
