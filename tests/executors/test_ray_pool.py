"""Runs on a real cluster of several nodes on this machine, which are killed."""

from __future__ import annotations

import signal
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace

import clusters
import pytest

from benchmarks import raylets
from maskpolicy.errors import ConfigError
from maskpolicy.executors import stage_worker
from maskpolicy.executors.ray_engine import on_ray
from maskpolicy.executors.request import Request, plan_digest
from maskpolicy.graph.outcomes import Silent

pytest.importorskip("ray", reason="the extra maskpolicy[ray] is not installed")
pytestmark = [pytest.mark.cluster, pytest.mark.slow]

TWO = "resources.intermediate.processes=2"
KINDS = ("tokenizer", "corpus", "general", "annotate", "intermediate", "finetune", "evaluate")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The experiment, where the nodes' workers find their notes and pauses."""
    made = tmp_path_factory.mktemp("ray")
    (made / "notes").mkdir()
    return made


@pytest.fixture(scope="module")
def file(folder):
    return clusters.write_experiment(folder)


@pytest.fixture(scope="module")
def planned(file, folder):
    """The experiment in this process, without the notes and pauses of the nodes' workers."""
    request = Request(str(file), store=str(folder / "refused"), kinds=())
    return stage_worker.plan(request)


@pytest.fixture(scope="module")
def cluster(folder, alone, planned):
    variables = {"NOTES": str(folder / "notes"), "PAUSE": "0.5"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)  # of the nodes' workers
        with raylets.nodes(2, cores=2) as made:
            yield made


@pytest.fixture(scope="module")
def alone(folder, file):
    """The experiment by one process on this machine."""
    said = clusters.finish(clusters.start(file, folder / "alone", TWO))
    assert "annotates" in said
    return folder / "alone"


def commits(folder):
    return raylets.lines(folder / "notes" / "commits")


def empty_notes(folder):
    for each in (folder / "notes").iterdir():
        each.unlink()
    return folder / "notes"


def test_nodes_are_killed_during_every_kind_of_stage(folder, file, alone, cluster):
    begins = folder / "notes" / "begins"
    held = {kind: folder / "notes" / f"hold-{kind}" for kind in KINDS}
    for each in held.values():
        each.touch()
    ray = f"ray={cluster.address}"
    running = clusters.start(file, folder / "killed", TWO, "--executor", ray)
    for kind in KINDS:

        def working(kind=kind):
            """Return the node on which a stage of the kind has begun."""
            parents = [int(words[2]) for words in raylets.lines(begins) if words[0] == kind]
            return next(filter(None, map(cluster.of, parents)), None)

        cluster.kill(clusters.until(working, running))
        held[kind].unlink()
        cluster.add()
    said = clusters.finish(running)
    assert said.count("was lost: another one takes over its stage") >= len(KINDS)
    assert any("worker" in line and "annotates" in line for line in said.splitlines())
    assert "Traceback" not in said
    assert raylets.artifacts(folder / "killed" / "store") == raylets.artifacts(alone / "store")
    assert raylets.results(folder / "killed" / "out") == raylets.results(alone / "out")
    counted = Counter(words[0] for words in commits(folder))
    assert len(counted) > 12
    assert set(counted.values()) == {1}


def test_idle_workers_make_room_for_a_stage_that_takes_a_whole_node(folder, file, alone, cluster):
    notes = empty_notes(folder)
    held = notes / "hold-finetune"  # its worker keeps one of two nodes from the training
    held.touch()
    running = clusters.start(file, folder / "wide", TWO, "--executor", f"ray={cluster.address}")

    def begun():
        return {words[0] for words in raylets.lines(notes / "begins")}

    clusters.until(lambda: {"finetune", "intermediate"} <= begun(), running)
    held.unlink()
    clusters.finish(running)
    assert raylets.artifacts(folder / "wide" / "store") == raylets.artifacts(alone / "store")


def test_a_driver_is_killed_and_started_again(folder, file, alone, cluster):
    empty_notes(folder)
    words = (TWO, "--executor", f"ray={cluster.address}")
    running = clusters.start(file, folder / "again", *words)
    clusters.until(lambda: len(commits(folder)) >= 4, running)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    said = clusters.finish(clusters.start(file, folder / "again", *words))
    assert "Traceback" not in said
    assert raylets.artifacts(folder / "again" / "store") == raylets.artifacts(alone / "store")
    assert raylets.results(folder / "again" / "out") == raylets.results(alone / "out")
    assert set(Counter(words[0] for words in commits(folder)).values()) == {1}


def test_nodes_with_another_version_are_one_line(folder, planned, tmp_path):
    other = tmp_path / "maskpolicy" / "executors"
    other.mkdir(parents=True)
    for path in (other.parent / "__init__.py", other / "__init__.py", other / "ray_actors.py"):
        path.touch()
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(tmp_path))  # of the nodes alone
            others = stack.enter_context(raylets.nodes(1))
        order, experiment = planned.order, planned.experiment
        with (
            pytest.raises(ConfigError, match="cannot import maskpolicy: install the same version"),
            on_ray(others.address, planned.request, experiment, order, planned.store) as workers,
        ):
            workers.watch(Silent())
            clusters.until(lambda: workers.pause(0.2))


def test_a_worker_with_other_files_or_another_store_is_refused(folder, planned, cluster):
    order, experiment = planned.order, planned.experiment
    other_plan = replace(planned.request, plan=plan_digest([]))
    other_store = replace(planned.request, store=str(folder / "elsewhere"))
    for request, told in ((other_plan, "plans other stages"), (other_store, "is another one on")):
        with (
            pytest.raises(ConfigError, match=rf"^worker \d+: .*{told}.* the same version"),
            on_ray(cluster.address, request, experiment, order, planned.store) as workers,
        ):
            workers.watch(Silent())
            clusters.until(lambda: workers.pause(0.2))
