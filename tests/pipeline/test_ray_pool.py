"""Runs on a real cluster of several nodes on this machine, which are killed."""

import os
import signal
from collections import Counter
from pathlib import Path

import clusters
import pytest
from clusters import begun, until

from benchmarks import raylets

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
def cluster(folder, alone):
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
            """Return the process and the node of a stage of the kind that has begun."""
            begun = (words[1:3] for words in raylets.lines(begins) if words[0] == kind)
            found = ((Path("/proc", worker), cluster.of(int(node))) for worker, node in begun)
            return next((each for each in found if each[1]), None)

        worker, node = until(working, running)
        cluster.kill(node)
        # it would finish the stage without its node
        until(lambda worker=worker: not worker.exists(), running)
        held[kind].unlink()
        cluster.add()
    said = clusters.finish(running)
    assert said.count("it starts again from its last checkpoint") >= len(KINDS)
    assert "annotates" in said
    assert "Traceback" not in said
    assert raylets.artifacts(folder / "killed" / "store") == raylets.artifacts(alone / "store")
    assert raylets.results(folder / "killed" / "out") == raylets.results(alone / "out")
    counted = Counter(words[0] for words in commits(folder))
    assert len(counted) > 12
    assert set(counted.values()) == {1}


def test_a_driver_is_killed_and_started_again(folder, file, alone, cluster):
    empty_notes(folder)
    words = (TWO, "--executor", f"ray={cluster.address}")
    running = clusters.start(file, folder / "again", *words)
    until(lambda: len(commits(folder)) >= 4, running)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    said = clusters.finish(clusters.start(file, folder / "again", *words))
    assert "Traceback" not in said
    assert raylets.artifacts(folder / "again" / "store") == raylets.artifacts(alone / "store")
    assert raylets.results(folder / "again" / "out") == raylets.results(alone / "out")
    assert set(Counter(words[0] for words in commits(folder)).values()) == {1}


def test_tasks_that_are_killed_and_a_cluster_that_is_lost(folder, file, alone, cluster):
    """A killed task costs its steps; without its head, the command ends with one line."""
    notes = empty_notes(folder)
    held = notes / "hold-annotate"
    held.touch()
    with raylets.nodes(1, cores=2) as other:
        words = (TWO, "--executor", f"ray={other.address}")
        running = clusters.start(file, folder / "lost", *words)
        os.kill(until(lambda: begun(notes, "annotate"), running)[0], signal.SIGKILL)
        until(lambda: begun(notes, "annotate")[1:], running)
        other.cluster.remove_node(other.cluster.head_node, allow_graceful=False)
        said = clusters.finish(running, codes=(2,))
    assert "it starts again from its last checkpoint" in said
    assert said.splitlines()[-1].startswith("error: ")
    held.unlink()
    clusters.finish(clusters.start(file, folder / "lost", TWO))
    assert raylets.artifacts(folder / "lost" / "store") == raylets.artifacts(alone / "store")
