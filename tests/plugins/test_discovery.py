"""Plugins in files, experiments and installed packages, and metrics of the user's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import small

from maskpolicy.core import metrics
from maskpolicy.core.errors import ConfigError, PluginError
from maskpolicy.experiment.parse import make_experiment
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.nodes import Stage, topological
from maskpolicy.plugins import discovery, isolation, registry

YAML = "model: mini\ncorpus: world\ntasks: [zsre]\npolicies: [none, {policy}]\nplugins: [{file}]\n"


@pytest.fixture
def command(tmp_path):
    """Run `maskpolicy` with tmp_path/site on sys.path; returns the finished process."""

    def command(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "maskpolicy", *map(str, words)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), *sys.path])},
        )

    return command


@pytest.fixture
def package(tmp_path):
    """Write a package as pip installs it: a module, METADATA, entry_points.txt, RECORD."""

    def package(name: str, code: str, module: str | None = None) -> Path:
        site = tmp_path / "site"
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (site / f"{name}.py").write_text(code)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        points = f"[maskpolicy.plugins]\n{name} = {module or name}\n"
        (info / "entry_points.txt").write_text(points)
        (info / "RECORD").write_text(f"{name}.py,,\n{info.name}/METADATA,,\n")
        return site / f"{name}.py"

    return package


def listed(done: subprocess.CompletedProcess[str]) -> dict[str, dict]:
    assert done.returncode == 0, done.stderr
    return {entry["name"]: entry for entry in json.loads(done.stdout)}


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def test_a_neighbour_that_is_no_python_is_no_fault_where_a_file_does_without(command, tmp_path):
    (tmp_path / "broken.py").write_text("def (")
    careful = "try:\n    import broken\nexcept SyntaxError:\n    broken = None\n"
    (tmp_path / "mine.py").write_text(careful + small.POLICY.format(name="mine"))
    (tmp_path / "mine.yaml").write_text(YAML.format(policy="mine", file="mine.py"))
    done = command("plan", "mine.yaml")
    assert done.returncode == 0, done.stderr
    assert "mine" in done.stdout


def test_a_broken_package_hides_no_other(command, package):
    package("a_broken", "import no_such_module_at_all\n")
    package("b_exits", "raise SystemExit(3)\n")
    package("c_theirs", small.POLICY.format(name="theirs"))
    package("d_absent", "", module="not_there_at_all")
    done = command("list", "policies", "--json")
    assert "theirs" in listed(done)
    warnings = done.stderr.splitlines()
    assert [line.split(" (")[0] for line in warnings] == [
        f"warning: plugin {name!r} of {name}" for name in ("a_broken", "b_exits", "d_absent")
    ]
    assert "no_such_module_at_all" in warnings[0]


def test_an_unknown_name_says_which_package_failed(command, package, tmp_path):
    package("broken", "raise RuntimeError('out of luck')\n")
    (tmp_path / "my.yaml").write_text(YAML.format(policy="radnom", file=""))
    line = one_line(command("plan", "my.yaml"))
    assert "my.yaml: policies[1]: unknown policy 'radnom': did you mean 'random'?" in line
    assert "out of luck" in line


def test_a_file_that_takes_a_built_in_name_raises_with_both_places(command, tmp_path):
    (tmp_path / "mine.py").write_text(small.POLICY.format(name="random"))
    (tmp_path / "my.yaml").write_text(YAML.format(policy="random", file="mine.py"))
    line = one_line(command("plan", "my.yaml"))
    assert "policy 'random' is defined twice" in line
    assert "mine.py:7" in line and "uniform.py:" in line


def test_a_name_that_two_packages_define_raises_with_both_places(command, package, tmp_path):
    first = package("a_masks", small.POLICY.format(name="theirs"))
    second = package("b_masks", small.POLICY.format(name="theirs"))
    (tmp_path / "my.yaml").write_text(YAML.format(policy="theirs", file=""))
    line = one_line(command("plan", "my.yaml"))
    assert f"{first}:7" in line
    assert f"{second}:7" in line


def test_a_package_that_takes_a_built_in_name_changes_nothing_and_is_named(command, package):
    package("masks", small.POLICY.format(name="random"))
    done = command("list", "policies", "--json")
    assert "ratio" in listed(done)["random"]["fields"]
    assert "defined twice" in done.stderr


TASK = """
from maskpolicy.plugins.registry import task


@task("mine"{facts})
class Mine:
    \"\"\"Asks.\"\"\"

    def {method}(self, row):
        return None
"""
FACTS = ', group="own", metric="exact_match", files={"dev": "dev.jsonl"}'


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("x = 1\n", "mine.py: registers nothing: put @policy(NAME)"),
        ("\nraise RuntimeError('boo')\n", "failed: RuntimeError: boo ({file}:2)"),
        (
            TASK.format(facts=FACTS, method="exmple"),
            "{file}:5: task 'mine' defines `exmple`, which maskpolicy does not use: did you mean "
            "`example`? Call it `_exmple` if it is a helper of yours",
        ),
        (
            TASK.format(facts=FACTS.replace("exact_match", "exact"), method="example"),
            "{file}:5: @task('mine'): unknown metric 'exact': did you mean 'exact_match'?",
        ),
        (
            TASK.format(facts=FACTS.replace('group="own", ', ""), method="example"),
            "{file}:5: @task('mine'): group is missing: state group=",
        ),
        (
            TASK.format(facts=FACTS.replace('"own"', '"closed_bok"'), method="example"),
            "{file}:5: @task('mine'): group 'closed_bok': did you mean 'closed-book', the group of",
        ),
        (
            TASK.format(facts=FACTS.partition(", files")[0], method="example"),
            "{file}:5: @task('mine'): files is missing: state files=",
        ),
        (
            TASK.format(facts=FACTS + ', foldrs=("x",)', method="example"),
            "{file}:5: @task('mine'): unknown fact 'foldrs': did you mean 'folders'?",
        ),
    ],
)
@pytest.mark.usefixtures("write")
def test_a_task_that_cannot_be_used_is_one_line_with_its_file(
    refused, tmp_path, monkeypatch, code, says
):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(code)
    (tmp_path / "my.yaml").write_text(
        "model: mini\ncorpus: world\npolicies: [none]\ntasks: [{name: mine, data: .}]\n"
        "plugins: [mine.py]\n"
    )
    (tmp_path / "dev.jsonl").write_text("{}\n")
    assert says.replace("{file}", str(path)) in refused("plan", "my.yaml")


def test_a_file_or_a_list_in_place_of_a_name_is_told_how_to_write_it():
    with pytest.raises(ConfigError, match=r"'mine\.py' is a file: give --plugin mine\.py"):
        discovery.find_plugin("policy", "mine.py")
    with pytest.raises(ConfigError, match=r"^here: .* is several: write \[none, random\]"):
        discovery.find_plugin("policy", "none, random", where="here")


METRIC = """
from maskpolicy.plugins.registry import metric


@metric({name!r}{facts})
def score(prediction, answers):
    \"\"\"Compare the last words.\"\"\"
    {body}
"""
LAST = "return float(any(prediction.split()[-1:] == one.split()[-1:] for one in answers))"
SCORED_TASK = """
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
    """Write the file of a metric, return its path, and forget the metric after the test."""

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
    (tmp_path / "my_task.py").write_text(SCORED_TASK)
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


@pytest.mark.parametrize("body", ["return 7", "return None", "return undefined"])
def test_a_metric_that_is_broken_is_refused_before_anything_is_computed(planned, body):
    with pytest.raises(ConfigError, match=r"metric 'last_word' .*\(a trial call\)"):
        planned(body)
    assert planned("return int(answers[0])")  # an answer that only this trial has


def test_a_task_names_it_and_its_code_is_in_the_keys_of_the_scores(planned):
    first, second = ({each.kind: each.key for each in planned(body)} for body in (LAST, "return 0"))
    assert {kind for kind in first if first[kind] != second[kind]} == {"evaluate", "majority"}
