"""An experiment that notes its computations, and commands that run it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import forked
import pytest

from benchmarks import raylets

PATIENCE = 600.0  # seconds until a moment that never comes fails

PLUGIN = (
    raylets.NOTING
    + '''
import logging
from dataclasses import dataclass

import numpy as np

from maskpolicy import policy


@policy("noted")
@dataclass(frozen=True)
class Noted:
    """Masks the first token; its annotation says who computes it."""

    def annotate(self, passages, fitted=None):
        logging.getLogger("maskpolicy.noted").warning("annotates %d passages", len(passages))
        return {"first": [np.array([[0, 1]], dtype=np.int32) for _ in passages]}

    def select(self, passage, rng):
        return passage.columns["first"]
'''
)
YAML = """
model: mini
corpus: world
policies: [none, noted]
tasks: [{name: zsre, label: zsre, limit: {test: 20}}]
plugins: [noted.py]
world: {people: 8, general_people: 6}
general: {steps: 4, warmup: 1, batch_size: 4, precision: fp32}
intermediate: {steps: 6, warmup: 1, batch_size: 8, precision: fp32, micro_tokens: 512}
finetune: {steps: 4, warmup: 1, batch_size: 4, precision: fp32}
"""

# starts the tasks of an array as Slurm does
SBATCH = """#!{python}
import os, re, subprocess, sys
script = open(sys.argv[-1]).read()
found = re.search(r"--array=0-(\\d+)", script)
number = str(os.getpid())
for task in range(int(found[1]) + 1) if found else [None]:
    own = {{"SLURM_JOB_ID": number, "SLURM_LOCALID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}}
    own |= {{"SLURM_NODEID": "0", "SLURM_JOB_NODELIST": "node", "SLURM_NNODES": "1"}}
    if task is not None:
        own |= {{"SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": str(task)}}
    running = subprocess.Popen(["bash", sys.argv[-1]], env=os.environ | own,
        stdout=subprocess.DEVNULL, stderr=open("{folder}/errors", "a"), start_new_session=True)
    job = number if task is None else f"{{number}}_{{task}}"
    open("{folder}/pid-" + job, "w").write(str(running.pid))
print("Submitted batch job", number)
"""
SRUN = """#!{python}
import subprocess, sys
at = next(n for n, word in enumerate(sys.argv) if "/bin/python" in word)
sys.exit(subprocess.run(sys.argv[at:]).returncode)
"""
SACCT = """#!{python}
import glob, os
print("JobID|State|NodeList")
for path in glob.glob("{folder}/pid-*"):
    pid = int(open(path).read())
    try:
        gone = open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        gone = True
    print(path.rpartition("pid-")[2] + ("|FAILED|node" if gone else "|RUNNING|node"))
"""


def fake_slurm(folder: Path) -> str:
    """Write commands that stand for Slurm's, which keep notes in a folder; returns a PATH."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    commands = {"sbatch": SBATCH, "srun": SRUN, "sacct": SACCT, "scancel": "#!{python}\n"}
    for name, text in commands.items():
        command = folder / "bin" / name
        command.write_text(text.format(python=sys.executable, folder=folder))
        command.chmod(0o755)
    return f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"


def write_experiment(folder: Path) -> Path:
    """Write the experiment and its plugin to a folder; returns its file.

    The names of plugins end in the folder's, so that several of them fit into one process.
    """
    own = PLUGIN.replace('"noted"', f'"noted-{folder.name}"')
    (folder / "noted.py").write_text(own.replace('"unused"', f'"unused-{folder.name}"'))
    file = folder / "it.yaml"
    file.write_text(YAML.replace("[none, noted]", f"[none, noted-{folder.name}]"))
    return file


Running: TypeAlias = subprocess.Popen[str] | forked.Script


def command(*words: object, before: str = "", **variables: str) -> subprocess.Popen[str]:
    """Start a command of maskpolicy in an interpreter of its own, which runs code before it."""
    main = ["-c", f"{before}\nfrom maskpolicy.__main__ import main; main()"]
    return subprocess.Popen(
        [sys.executable, *(main if before else ["-m", "maskpolicy"]), *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **variables},
    )


def start(
    file: Path, out: Path, *words: str, command: Callable[..., Running] = command, **variables: str
) -> Running:
    """Start `maskpolicy run` with its output, store and notes below `out`."""
    (out / "notes").mkdir(parents=True, exist_ok=True)
    places = ("--out", out / "out", "--store", out / "store")
    return command("run", file, *places, *words, **variables)


def finish(running: Running, codes: tuple[int, ...] = (0,)) -> str:
    """Wait for a command, and return its output."""
    try:
        said, _ = running.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGKILL)
        raise AssertionError(f"it hangs: {running.communicate()[0]}") from None
    assert running.returncode in codes, said
    return said


def until(happened: Callable[[], Any], running: Running | None = None) -> Any:
    """Wait until `happened` returns a true value, and return it."""
    last = time.monotonic() + PATIENCE
    while not (found := happened()):
        assert running is None or running.poll() is None, running.communicate()[0]
        assert time.monotonic() < last
        time.sleep(0.05)
    return found


def begun(notes: Path, kind: str) -> list[int]:
    """Return the processes that have begun stages of a kind, by their notes."""
    return [int(words[1]) for words in raylets.lines(notes / "begins") if words[0] == kind]


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")


def gone(pid: int) -> bool:
    """Return whether a process has ended; the table of processes may still have its entry."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def all_gone(pids: Iterable[int]) -> None:
    """Wait until all of these processes have ended."""
    until(lambda: all(map(gone, pids)))
