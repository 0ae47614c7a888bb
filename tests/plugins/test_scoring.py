"""A metric of the user's own: one function, named by a task, in the keys of what it scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maskpolicy.core import metrics
from maskpolicy.core.errors import ConfigError, PluginError
from maskpolicy.data import majority
from maskpolicy.experiment.parse import make_experiment
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage, topological
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins import discovery, isolation, registry

METRIC = """
from maskpolicy.plugins.registry import metric


@metric({name!r}{facts})
def score(prediction, answers):
    \"\"\"Compare the last words.\"\"\"
    {body}
"""
LAST = "return float(any(prediction.split()[-1:] == one.split()[-1:] for one in answers))"
TASK = """
from dataclasses import dataclass

from maskpolicy.plugins.registry import task
from maskpolicy.core.types import Example


@task("seats", group="geography", metric="last_word", files=dict(train="a.jsonl", dev="b.jsonl"))
@dataclass(frozen=True)
class Capitals:
    \"\"\"The capital of a country.\"\"\"

    def example(self, row):
        return Example(row["id"], row["id"], source=row["country"], targets=(row["capital"],))
"""


@pytest.fixture
def write(tmp_path):
    """Write the file of a metric; returns its path. What it registers goes with the test."""

    def write(body: str = LAST, name: str = "last_word", facts: str = "") -> Path:
        path = tmp_path / "my_metric.py"
        path.write_text(METRIC.format(body=body, name=name, facts=facts))
        return path

    yield write
    registry.forget(path.resolve() for path in tmp_path.rglob("*.py"))
    isolation.forget(isolation.home_of(tmp_path.resolve()))


def score(path: Path, prediction: str, *answers: str) -> float:
    discovery.load_files([path], fresh=True)
    return metrics.total("last_word", [prediction], [answers]).score


def test_it_scores_and_goes_with_its_file(write):
    path = write()
    assert score(path, "the city of Lima", "Lima") == 1
    assert score(path, "Lima of old", "Lima", "Limo") == 0
    assert discovery.find_metric("last_word").title == metrics.title("last_word") == "last word"
    registry.forget([path.resolve()])
    assert "last_word" not in metrics.METRICS


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return 2", "returned 2.0 for 'a'"),
        ("return float('nan')", "returned nan"),
        ("return None", "failed: TypeError"),
        ("return 1 / 0", "my_metric.py:8"),
    ],
)
def test_a_metric_that_fails_is_named(write, body, said):
    with pytest.raises(PluginError, match="last_word") as caught:
        score(write(body), "a", "b")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (METRIC.format(name="f1", facts="", body=LAST), "'f1' is one of maskpolicy's own"),
        (METRIC.format(name="", facts="", body=LAST), "needs a name"),
        (METRIC.replace("def score(prediction, answers)", "class Score").format(
            name="mine", facts="", body="x = 1"), "(prediction, answers)"),
        (METRIC.replace(", answers", "").format(name="mine", facts="", body=LAST), "def NAME"),
    ],
)  # fmt: skip
def test_what_is_no_metric_is_refused(write, text, said):
    path = write()
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        discovery.load_file(path)
    assert said in str(caught.value)


@pytest.fixture
def planned(write, tmp_path):
    """Return the stages of an experiment whose one task names the metric with this body."""
    (tmp_path / "my_task.py").write_text(TASK)
    for name in ("a.jsonl", "b.jsonl"):
        rows = [json.dumps({"id": f"{name}{n}", "country": "x", "capital": "y"}) for n in range(9)]
        (tmp_path / name).write_text("\n".join(rows))
    given = {"model": "mini", "corpus": "world", "policies": ["none"], "tasks": ["seats"]}

    def planned(body: str = LAST) -> list[Stage]:
        files = [write(body), tmp_path / "my_task.py"]
        keys = {**given, "seeds": [0], "data": str(tmp_path)}
        made = stages.build(make_experiment(keys, "it", "it: ", (), files))
        return topological(stages.choose_cells(made, ()).targets)

    return planned


def test_a_task_names_it_and_its_code_is_in_the_keys_of_the_scores(planned):
    first, second = ({each.kind: each.key for each in planned(body)} for body in (LAST, "return 0"))
    assert {kind for kind in first if first[kind] != second[kind]} == {"evaluate", "majority"}


@pytest.mark.parametrize(("body", "score"), [(LAST, 1.0), ("return 0.25", 0.25)])
def test_a_stage_scores_with_it(planned, tmp_path, body, score):
    guesses = next(each for each in planned(body) if each.kind == "majority")
    made = execute(topological([guesses]), Store(tmp_path / "store"))[guesses.key]
    assert made.error is None
    assert json.loads((made.artifact / majority.FILE).read_text())["score"] == score
