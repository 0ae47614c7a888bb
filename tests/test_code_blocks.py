"""Every block of code in the README and the docs is checked: shell, YAML and Python.

Tutorials are executed by tests/test_tutorials.py, docs/api.md by tests/app/test_python_page.py.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest
import typer
import yaml
from pages import PAGES, ROOT, Block, blocks, imports

from maskpolicy.app import commands as cli
from maskpolicy.experiment import reference, verbatim
from maskpolicy.experiment.parse import experiment_of
from maskpolicy.experiment.text_budgets import TextSize

BLOCKS = [block for page in PAGES for block in blocks(page)]
COMMAND: Any = typer.main.get_command(cli.app)
TARGETS = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
OTHERS = {
    "cd",
    "git",
    "pip",
    "ray",
    "sbatch",
    "source",
    "mkdir",
    "diff",
    "bash",
}  # programs not checked
PROGRAMS = {"maskpolicy", "make", "python", ".venv/bin/pre-commit", *OTHERS}
EXPERIMENT = {"model": "mini", "corpus": "world", "data": "world"}
EXPERIMENT |= {"policies": ["none"], "tasks": ["triviaqa"]}


def of(language: str) -> list[Any]:
    return [pytest.param(each, id=each.name) for each in BLOCKS if each.language == language]


def test_every_block_states_its_language():
    known = {"sh", "yaml", "python", "json", "text"}
    others = [block.name for block in BLOCKS if block.language not in known]
    assert others == [], f"write one of {sorted(known)} behind ```"
    fences = sum(page.read_text("utf-8").count("\n```") for page in PAGES)
    assert fences == 2 * len(BLOCKS)  # none was overlooked


@pytest.mark.parametrize("block", of("text"))
def test_a_block_of_text_holds_no_command(block: Block):
    first = {words[0] for words in map(str.split, block.text.splitlines()) if words}
    assert not first & (PROGRAMS - {"source"})


@pytest.mark.parametrize("block", of("sh"))
def test_a_shell_block_can_be_given(block: Block):
    for words in block.commands:
        assert words[0] in PROGRAMS, words
        if words[0] == "maskpolicy":
            check_command(words[1:])
        elif words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= {*TARGETS}, words
        elif words[:2] == ["python", "-m"]:
            assert find_spec(words[2]), words
        elif words[0] == "python":
            assert (ROOT / words[1]).is_file() or words[1] in files_of(block.page), words


def check_command(words: list[str]) -> None:
    """Parse the words of a command as the command line does, and check the keys among them."""
    context = COMMAND.make_context("maskpolicy", words[:1], resilient_parsing=True)
    if words == ["--help"]:
        return
    name, command, rest = COMMAND.resolve_command(context, words)
    if isinstance(command, click.Group) or hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, rest)
    parsed = command.make_context(name, list(rest))  # raises UsageError
    if words[0] in ("run", "plan", "status", "pretrain"):
        given = {word.partition("=")[0] for word in parsed.params["keys"] or ()}
        stated = {each for each in given if not each.startswith("policy.")}
        assert stated <= keys(), sorted(stated - keys())


@cache
def keys() -> set[str]:
    """Return the keys of an experiment as the command line has them."""
    found = set()
    for key in reference.listed((), ()):
        named = key.block.replace(".KIND", "").split(", ")
        found |= {key.name if block == "file" else f"{block}.{key.name}" for block in named}
    kinds = ("annotate", "corpus", "evaluate", "finetune", "general", "intermediate", "fit")
    needs = {f"resources.{kind}.{need}" for kind in kinds for need in ("gpus", "processes", "cpus")}
    return found | needs


def files_of(page: Path) -> dict[str, str]:
    """Return the files that a page, and the pages it builds on, show: name to text."""
    shown = [
        page,
        *(ROOT / "docs" / name for name in ("development/extending.md", "policies.md", "tasks.md")),
    ]
    return {
        block.file: block.text for each in reversed(shown) for block in blocks(each) if block.file
    }


@dataclass(frozen=True)
class Sized:
    """A corpus and tasks of known sizes, for budgets in words and epochs."""

    size: TextSize

    def text(self, experiment: Any) -> TextSize:
        return self.size

    def examples(self, experiment: Any, task: Any) -> int:
        return 1000


@pytest.mark.parametrize("block", of("yaml"))
def test_a_block_of_yaml_is_an_experiment_or_a_part_of_one(block: Block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = yaml.safe_load(block.text)
    assert isinstance(given, dict)
    for name, text in files_of(block.page).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for pattern in _files(given):
        path = tmp_path / pattern.replace("*", "one")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}" if path.suffix == ".jsonl" else "Lima is in Peru.\n")
    if str(given.get("data", "world")) not in ("world", "hub"):
        (tmp_path / given["data"]).mkdir(parents=True, exist_ok=True)
    base = dict(EXPERIMENT)
    if isinstance(given.get("model"), Mapping) and given["model"].get("kind") == "encoder":
        base["tasks"] = ["cola"]
    file = tmp_path / "experiment.yaml"
    missing = [f"{key}: {value}\n" for key, value in base.items() if key not in given]
    text = "".join([block.text, *missing])
    if "none" not in given.get("policies", ["none"]):  # part of a list, without its baseline
        text = text.replace("policies:\n", "policies:\n  - none\n")
    file.write_text(text, encoding="utf-8")
    size = TextSize(passages=10**5, words=10**7)  # for budgets in words
    counter = Sized(size)
    assert experiment_of(verbatim.read_experiment(file), file, counter).policies


def _files(value: Any) -> Iterator[str]:
    """Yield every pattern of a key `files`, at any depth."""
    if isinstance(value, Mapping):
        yield from value.get("files", ())
    for each in value.values() if isinstance(value, Mapping) else value:
        if isinstance(each, Mapping | list):
            yield from _files(each)


@pytest.mark.parametrize("block", of("json"))
def test_a_block_of_json_is_json(block: Block):
    assert json.loads(block.text)


@pytest.mark.parametrize("block", of("python"))
def test_a_block_of_python_compiles_and_its_imports_exist(block: Block):
    own = {name.removesuffix(".py") for name in files_of(block.page)}
    for module, name in imports(block.text):
        if module not in own:
            found = import_module(module)
            assert not name or hasattr(found, name), name
