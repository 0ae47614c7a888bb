"""Messages of commands that a signal ends, and warnings about edited plugins and what they read."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import clusters
import forked
import pytest
import small

from maskpolicy.plugins import discovery, registry

AT_ONCE = "from maskpolicy.pipeline.graph import events; events._INTERVAL = 0.1"
LINE = "interrupted: the same command continues where it stopped"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "jobs", "before"),
    [(signal.SIGTERM, 2, "import forked; forked.fork_jobs()"), (signal.SIGINT, 1, "")],
)
def test_a_signal_ends_a_run_with_a_checkpoint_and_a_line(number, jobs, before):
    general = {"steps": 100_000, "warmup": 1, "batch_size": 2, "precision": "fp32"}
    Path("it.yaml").write_text(small.experiment(policies=["none"], general=general))
    store = Path(".maskpolicy", "store")

    def trains():
        lines = [line for path in store.glob("events/*") for line in path.read_text().splitlines()]
        return any('"advanced"' in line and '"general mini"' in line for line in lines)

    running = forked.command("run", "it.yaml", "--jobs", jobs, before=f"{before}\n{AT_ONCE}")
    clusters.until(trains, running)
    running.send_signal(number)
    said = clusters.finish(running, codes=(128 + number,))
    assert said.splitlines()[-1] == LINE
    (key,) = (path for path in (store / "checkpoints").iterdir())
    assert any(path.name.isdigit() for path in key.iterdir())
    assert not list((store / "locks").iterdir())


def test_a_terminal_that_is_closed_ends_a_command_with_the_same_line(call):
    body = ("import signal", "signal.raise_signal(signal.SIGHUP)")
    Path("ends.py").write_text(small.policy_file("ends", *body))
    model = small.saved(Path("bart"))
    code, _, err = call("show", "ends", "--plugin", "ends.py", "--text", "Ada.", "--model", model)
    assert (code, err.splitlines()[-1]) == (128 + signal.SIGHUP, LINE)


def test_a_signal_while_a_plugin_is_imported_ends_the_command(call):
    Path("ends.py").write_text("import signal\nsignal.raise_signal(signal.SIGTERM)\n")
    code, _, err = call("list", "policies", "--plugin", "ends.py")
    assert (code, err) == (128 + signal.SIGTERM, f"{LINE}\n")


def test_control_c_while_the_commands_are_imported_is_one_line(tmp_path):
    interrupt = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    (tmp_path / "typer.py").write_text(interrupt)  # imported in place of the library
    command = [sys.executable, "-c", "from maskpolicy.__main__ import main; main()"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path[1:]])}
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 130
    assert found.stderr == f"{LINE}\n"


PLUGIN = """
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import outside, beside, xml.dom.minidom
from maskpolicy import policy

HERE = Path(__file__).parent
(HERE / "written").write_text("x")


@policy("reads")
@dataclass(frozen=True)
class Reads:
    files = ["declared"]

    def depends(self):
        return (HERE / "depends").read_text()

    def annotate(self, passages, fitted=None):
        count = int(np.loadtxt(HERE.parent / "count.txt"))
        texts = [(HERE / name).read_text() for name in ("written", "declared", "depends")]
        return {"first": [np.array([[0, count]], dtype=np.int32) for _ in passages]}

    def select(self, passage, rng):
        return passage.columns["first"]
"""


def test_edited_plugins_and_what_plugins_read_are_named(tmp_path, done, monkeypatch):
    mixed = {"name": "mixture", "members": ["span", "random"]}
    keys = {"policies": ["random", "span", "reads", mixed], "plugins": ["plugin/reads.py"]}
    Path("it.yaml").write_text(small.experiment(**keys, baseline="random"))
    plugin = tmp_path / "plugin"
    plugin.mkdir()
    Path("count.txt").write_text("1")
    Path("elsewhere").mkdir()
    for name in ("elsewhere/outside.py", "plugin/beside.py", "linked", "plugin/depends"):
        Path(name).write_text("")
    (plugin / "declared").symlink_to("../linked")
    (plugin / "reads.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    monkeypatch.delitem(sys.modules, "xml.dom.minidom", raising=False)
    copies = []
    for place in (("policy", "span"), ("task", "zsre")):
        discovery.load_builtin(place[0])
        entry = registry.entry(*place)
        copies.append(Path(shutil.copy(entry.file, tmp_path)))  # may be edited
        monkeypatch.setitem(registry._ENTRIES, place, replace(entry, file=str(copies[-1])))
    Path("bucket").mkdir()

    def said(command: str) -> str:
        place = ("--store", f"file://{tmp_path}/bucket", "--cache", f"cache of {command}")
        return " ".join(done(command, "it.yaml", *place)[1].split())

    reads = f"plugin of {plugin}: reads {{}}, in no key: an edit computes nothing again"
    first = said("check")
    assert first.count("in no key") == 2
    for path in (tmp_path / "elsewhere" / "outside.py", tmp_path / "count.txt"):
        assert reads.format(path) in first
    said("run")
    for path in copies:
        path.write_text(path.read_text() + "\n# a comment changes no code\n")
    assert "was edited" not in said("plan")
    for path in copies:
        path.write_text(path.read_text() + "\nLONGEST = 3\n")
    found = said("plan")
    for name in ("policy span", "task zsre"):
        assert f"{name}: was edited since 2 of the stages of this run were computed" in found
    assert "policy random: was edited" not in found
