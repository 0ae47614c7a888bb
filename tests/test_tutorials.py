"""Each tutorial works as it stands there, with smaller trainings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import babylm
import pytest
from pages import DOCS, Block, blocks

TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
SMALL = (
    *("world.people=8", "world.general_people=4"),
    *(
        f"{name}.{key}"
        for name in ("general", "intermediate", "finetune")
        for key in ("steps=2", "warmup=1", "batch_size=2", "precision=fp32")
    ),
)
TRAINING = ("run", "plan", "status", "pretrain")  # they take the keys of an experiment
ELSEWHERE = re.compile(
    r"facebook/|s3://|ray=|^make |^source |^bash "
)  # needs a download or a cluster


@pytest.fixture(scope="module")
def begun(tmp_path_factory) -> Path:
    """A folder for copies of what tutorials leave that others build on, by page."""
    return tmp_path_factory.mktemp("begun")


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial(page, call, tmp_path, monkeypatch, begun):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MASKPOLICY_STORE", raising=False)
    for named in re.findall(r"builds on the \[quickstart\]\((\w+\.md)\)", page.read_text("utf-8")):
        if not (begun / named).exists():
            first = next(block for block in blocks(page.parent / named) if block.language == "sh")
            given(first, call)
            shutil.copytree(tmp_path, begun / named)
        shutil.copytree(begun / named, tmp_path, dirs_exist_ok=True)
    printed = ""
    if page.stem == "babylm":
        babylm.slice_into(tmp_path)
    for block in blocks(page):
        if block.file:
            text = smaller(block.text) if page.stem == "babylm" else block.text
            (tmp_path / block.file).write_text(text, encoding="utf-8")
        elif block.language == "python":
            done = [sys.executable, "-c", block.text]
            subprocess.run(done, check=True, timeout=300, env=environment())
        elif block.language == "sh":
            printed = given(block, call)
        elif block.language == "text":
            assert [line for line in block.text.splitlines() if line not in printed] == []


def smaller(text: str) -> str:
    """Return an experiment with one seed, and the only checkpoint that two steps have."""
    for key, value in (("checkpoint_words", "[1]"), ("seeds", "[0]"), ("intermediate_seeds", "1")):
        text = re.sub(rf"^{key}: .*$", f"{key}: {value}", text, flags=re.MULTILINE)
    return text


def given(block: Block, call: Callable[..., tuple[int, str, str]]) -> str:
    """Give the commands of a block; return what they print."""
    printed = ""
    for written in block.commands:
        words = [word.replace("$PWD", str(Path.cwd())) for word in written]
        if ELSEWHERE.search(" ".join(words)):
            continue
        if words[0] != "maskpolicy":
            subprocess.run(words, check=True, timeout=60)
            continue
        code, out, err = call(*small(words[1:]))
        assert code == 0, f"{block.name}: {words}\n{err}"
        printed += out
    return printed


def small(words: Sequence[str]) -> list[str]:
    """Return the words of a command with keys for a small world and short trainings."""
    if words[0] == "world":
        return [*words, "people=8", "general_people=4"]
    if words[0] not in TRAINING:
        return [*words]
    added = [key for key in SMALL if words[0] != "pretrain" or not key.startswith("finetune.")]
    names = {word.partition("=")[0] for word in added}
    return [*(word for word in words if word.partition("=")[0] not in names), *added]


def environment() -> dict[str, str]:
    """Return the environment of a Python that imports files of the working directory."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([".", *sys.path])}
