"""Plugins in files, experiments and installed packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import small

from maskpolicy.core.errors import ConfigError
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


@pytest.fixture
def forgotten(tmp_path):
    """Forget the files of a test behind it."""
    yield
    registry.forget(path.resolve() for path in tmp_path.rglob("*.py"))
    isolation.forget(isolation.home_of(tmp_path.resolve()))


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
@pytest.mark.usefixtures("forgotten")
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
