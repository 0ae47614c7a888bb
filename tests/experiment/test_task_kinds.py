"""The facts of a kind of task stand in one row, which everything else reads."""

import re
from pathlib import Path

import pytest

import maskpolicy
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Example
from maskpolicy.data import majority
from maskpolicy.data.taskfiles import sources
from maskpolicy.experiment.task_kinds import TASK_KINDS, TaskKind
from maskpolicy.models.finetuning import ANSWERING
from maskpolicy.plugins.registry import Registered

HOME = Path(maskpolicy.__file__).parent


def entry(kind: str) -> Registered:
    facts = {"group": "own", "metric": "exact_match", "files": {"dev": "dev.jsonl"}, "kind": kind}
    return Registered("task", "own", object, facts, "own.py", 1)


def test_each_kind_has_a_head_and_no_other_file_names_its_facts():
    assert set(ANSWERING) == set(TASK_KINDS) == {"text", "label", "span", "tags", "pairs"}
    facts = "|".join(one.hub for one in TASK_KINDS.values())
    named = re.compile(rf'"({facts})"|"text", "label"|kind (==|!=) "(text|label|span|tags|pairs)"')
    files = [path for path in HOME.rglob("*.py") if named.search(path.read_text("utf-8"))]
    assert [path.name for path in files] == ["task_kinds.py"]


def test_a_new_row_is_enough_for_facts_and_guesses(monkeypatch):
    monkeypatch.setitem(TASK_KINDS, "order", TaskKind("encoder", "AutoModel", "ranking"))
    assert sources.facts(entry("order")).kind == "order"
    rows = [Example(str(index), "", "a question", ("first",)) for index in range(3)]
    guess = majority.best(majority.Material(rows, "exact_match"), rows, rows, "order")
    assert (guess.rule, guess.score) == ("commonest answer", 1.0)


def test_an_unknown_kind_is_one_line():
    with pytest.raises(ConfigError, match=r"own.py:1: @task\('own'\): unknown kind 'labels': did"):
        sources.facts(entry("labels"))
