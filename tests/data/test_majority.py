"""Guesses without a model: each rule by itself, the choice on dev, and the line on every board."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from operator import eq
from pathlib import Path

import folders
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from maskpolicy import Example, Store
from maskpolicy.core import metrics
from maskpolicy.data import majority, world
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.leaderboard import page, report
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import topological
from maskpolicy.pipeline.stages import build


def example(source: str, *answers: str, group: str = "", **fields) -> Example:
    return Example(source, group or source, source, answers, **fields)


def learnt(name: str, train: Sequence[Example], metric: str = "exact_match", **facts):
    """Return the guess that a rule learns."""
    learn = next(rules[name] for rules in majority.RULES.values() if name in rules)
    return learn(majority.Material(train, metric, **facts))


def births(wording: str, towns: Sequence[str]) -> list[Example]:
    """Return questions about subjects of one name each."""
    made = (f"{wording} {wording.replace(' ', '')}{i} born ?" for i in range(len(towns)))
    return [example(source, town) for source, town in zip(made, towns, strict=True)]


def test_the_commonest_answer_counts_every_acceptable_one_and_parts_of_answers():
    train = [example("a", "x", "z"), example("b", "y", "z"), example("c", "y")]
    assert learnt("commonest answer", train)(example("d")) == "z"
    train = [example(str(i), answer) for i, answer in enumerate(["a b c", "a b d", "q", "r"])]
    assert learnt("commonest answer", train, "f1")(example("d")) == "a b c"


def test_wordings_that_share_an_answer_count_as_one_relation():
    train = births("where was", ["Ulm", "Bonn", "Bonn", "Kiel", "Kiel"])
    train += births("in which town was", ["Ulm", "Ulm", "Bonn"]) + births("who saw", ["Ada"] * 6)
    assert learnt("template", train)(example("where was Zoe born ?")) == "Bonn"
    assert learnt("relation", train)(example("where was Zoe born ?")) == "Ulm"
    assert learnt("relation", train)(example("who saw Zoe born ?")) == "Ada"


def test_the_commonest_answer_of_the_relation_is_found_in_the_source_as_whole_words():
    train = [example("x", "Ulm")] * 3 + [example("y", "the River Oder")] * 2
    guess = learnt("in the source", train)
    assert guess(example("From Ulmen, it went down the river Oder.")) == "the River Oder"
    assert guess(example("From the Oder to Ulm.")) == "Ulm"
    assert guess(example("Nothing known.")) == "Ulm"
    train = births("where was", ["Ulm", "Bonn", "Bonn"] * 3) + births("who saw", ["Ada"] * 10)
    guess = learnt("in the source", train)
    lines = "Ada went from Bonn to Ulm ."
    assert guess(example(f"where was Zoe born ?\n{lines}")) == "Bonn"
    assert guess(example(f"who saw Zoe born ?\n{lines}")) == "Ada"
    assert guess(example("who saw Zoe born ?\nIn Ulm .")) == "Ulm"


def test_choices_are_guessed_by_text_and_by_place():
    pairs = [("less", "more"), ("more", "less"), ("less", "more")]
    train = [example(str(i), "more", choices=pair) for i, pair in enumerate(pairs)]
    assert learnt("commonest answer", train)(example("", choices=("more", "less"))) == "more"
    assert learnt("commonest answer", train)(example("", choices=("new", "old"))) == "new"
    assert learnt("place", train)(example("", choices=("new", "old"))) == "old"
    assert learnt("place", train)(example("", choices=("one",))) == "one"
    assert learnt("place", [example("free", "x")]) is None


@pytest.mark.parametrize(
    ("labels", "metric", "guess"),
    [
        *(("0001100000", "matthews", "0"), ("0001100101", "accuracy", "0")),
        *(("0001100101", "accuracy_f1", "1"), (("1", "2.5", "4"), "correlation", "2.5")),
    ],
)
def test_a_label_is_the_one_that_scores_best_in_train(labels, metric, guess):
    train = [example(str(i), label) for i, label in enumerate(labels)]
    assert learnt("commonest label", train, metric)(example("")) == guess


def test_spans_are_no_answer_or_the_first_words():
    page = "Ada Byron wrote notes. They last."
    train = [example(str(i), "Ada Byron", context=page) for i in range(4)]
    assert learnt("no answer", train, "squad") is None
    assert learnt("no answer", train, "squad", unanswerable=True)(train[0]) == ""
    assert learnt("first words", train, "squad")(train[0]) == "Ada Byron"


def test_a_rule_is_chosen_on_a_large_dev_and_scored_on_test():
    train = births("where was", ["Ulm"] * 6) + births("who saw", ["Ada"] * 8)
    dev, test = births("where was", ["Ulm", "Bonn"] * 500), births("where was", ["Kiel"])
    found = majority.best(majority.Material(train, "exact_match"), dev, test, "text")
    tried = {"commonest answer": 0, "relation": 0.5, "template": 0.5, "in the source": 0.5}
    assert asdict(found) == {"rule": "relation", "score": 0.0, "n": 1, "tried": tried}


def test_a_rule_is_chosen_by_train_and_dev_and_not_by_a_small_dev():
    """A dev split of two, of which the poorer rule gets more right."""
    train = births("where was", ["Ulm"] * 9) + births("who saw", ["Ada"] * 10)
    dev = births("where is", ["Ada"] * 2)
    test = births("where was", ["Ulm"] * 4)
    found = majority.best(majority.Material(train, "exact_match"), dev, test, "text")
    assert (found.rule, found.score, found.n) == ("relation", 1.0, 4)
    assert found.tried["commonest answer"] < found.tried["template"] == 1


def test_no_fold_learns_from_the_groups_of_another_one():
    rows = [example(f"q{i}", f"a{i // 3}", group=f"g{i // 3}") for i in range(40)]
    found = majority.best(majority.Material(rows, "exact_match"), [], rows, "text")
    assert set(found.tried.values()) == {0}


texts = st.text("ab ?[SEP]\n", max_size=12)
rows = st.lists(st.tuples(texts, texts.filter(str.strip)), min_size=1, max_size=8)


@given(rows, rows, st.sampled_from(["exact_match", "f1", "kilt_accuracy"]))
def test_no_rule_reads_the_answers_that_it_is_scored_by(train, test, metric):
    learnt_from = [example(source, answer) for source, answer in train]
    for learn in majority.RULES["text"].values():
        guess = learn(majority.Material(learnt_from, metric))
        for source, answer in test if guess else ():
            blind = Example("another id", "another group", source, ())
            assert guess is not None
            assert guess(example(source, answer)) == guess(blind)
            assert isinstance(metrics.metric(metric).score(guess(blind), [answer]), float)


EXPERIMENTS = Path(__file__).parents[2] / "experiments"
# what a draw of a value, or of a choice, from its pool would give
UNIFORM = {"triviaqa": 3, "webquestions": 3, "nq": 3, "aidayago2": 3, "zsre": 0, "wow": 30}
UNIFORM |= {"wiqa": 33, "quartz": 50, "ropes": 52}


def test_guesses_are_above_uniform_chance_in_a_skewed_world_of_many_questions(tmp_path):
    plan, store = build(load_experiment(EXPERIMENTS / "nine-tasks.yaml")), Store(tmp_path)
    outcomes = execute(plan.majority.values(), store)
    order = topological(plan.majority.values())  # without a training
    assert set(outcomes) == {stage.key for stage in order}
    (made,) = (stage for stage in order if stage.kind == "world")
    asked = world.figures(store.path(made.key))["tasks"]
    assert {name: counts["test"] for name, counts in asked.items() if counts["test"] < 250} == {}
    found = {
        task: json.loads((store.path(stage.key) / majority.FILE).read_text())
        for task, stage in plan.majority.items()
    }
    low = {task for task, least in UNIFORM.items() if 100 * found[task]["score"] < least}
    assert low == set()
    rules = {task: of_task["rule"] for task, of_task in found.items()}
    assert (rules["aidayago2"], rules["ropes"]) == ("mention", "in the source")
    assert rules["triviaqa"] in ("relation", "template")


def test_every_form_of_a_board_has_the_line(tmp_path):
    scores = {"none": 0.2, "random": 0.6}
    made = folders.board(folders.write(tmp_path / "run", scores, ("nq",), majority=0.1675))
    assert report.to_json(made)["majority"] == {"nq": 16.75}
    assert report.to_json(made)["majority_rules"] == {"nq": "relation"}
    lines = report.to_markdown(made).splitlines()
    assert lines[2] == "| majority | 16.8 |"
    assert f"{majority.SENTENCE}." in lines
    rows = csv.DictReader(io.StringIO(report.to_csv(made)))
    assert [row["majority"] for row in rows] == ["16.75", "16.75"]
    tex = report.to_latex(made)
    assert "\\midrule\nmajority & 16.8 \\\\\n\\midrule\nnone" in tex
    assert f"% {majority.SENTENCE}\n" in tex
    html = page.render(made)
    assert '<span class="score" title="relation">16.8</span>' in html
    assert f"<li>{majority.SENTENCE}." in html
    screen = io.StringIO()
    Console(file=screen, width=200).print(report.to_table(made))
    said = "not above this line shows no learning beyond such a guess; being above it is necessary"
    about = (Path(__file__).parents[2] / "docs" / "development" / "majority.md").read_text()
    for text in (html, tex, "\n".join(lines), screen.getvalue(), about):
        assert said in " ".join(text.split())


def test_joined_runs_show_what_they_agree_on(tmp_path):
    one = folders.write(tmp_path / "one", {"none": 0.2, "a": 0.6}, ("nq", "zsre"), majority=0.25)
    old = folders.write(tmp_path / "old", {"none": 0.2, "b": 0.6}, ("nq", "zsre"))
    assert set(folders.board(one, old).majority) == {"nq", "zsre"}
    other = folders.write(tmp_path / "other", {"none": 0.2, "c": 0.6}, ("nq",), majority=0.5)
    made = folders.board(one, other)
    assert set(made.majority) == {"zsre"}
    (note,) = (note for note in made.notes if "majority" in note)
    assert note.startswith("nq: runs do not agree on majority (25.0 in ")
    assert "50.0 in other)" in note


def test_the_nearest_template_is_that_of_the_definition():
    rng = np.random.default_rng(0)
    drawn = [" ".join(map(str, rng.integers(0, 30, 8))) for _ in range(1100)]
    made = [Example(text, text, text, ("a",)) for text in drawn]
    known = majority.Templates(made[:1000], "start", "exact_match")

    def nearest(template: tuple[str, ...]) -> tuple[str, ...]:
        """Compare with each known template."""
        words = set(template)
        return max(
            known.examples,
            key=lambda other: (
                len(words & set(other)) / max(1, len(words | set(other))),
                [*map(eq, template, other), False].index(False),
            ),
        )

    asked = [known._exact(one) for one in made[1000:]]
    assert [known.of(one) for one in made[1000:]] == [nearest(template) for template in asked]
