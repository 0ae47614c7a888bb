"""Annotation and counts by a policy: in order, the same over processes, one line when it fails."""

import logging
import os
import signal
import subprocess
import sys
import tracemalloc
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import clusters
import numpy as np
import pytest
import small
from refusals import refused

from maskpolicy import ConfigError, DataError, Passage, StageError, Statistics
from maskpolicy.data.corpus import annotation, sums
from maskpolicy.plugins import discovery

REFUSALS = (ConfigError, StageError)
PLUGIN = """
import logging
from dataclasses import dataclass
from maskpolicy import as_spans, policy

@policy("{name}")
@dataclass(frozen=True)
class LastWord:
    def annotate(self, passages, fitted=None):
        logging.getLogger("maskpolicy.test").info("a note")
        return {{"last": [passage.words[-1:] for passage in passages]}}
    def select(self, passage, rng):
        return as_spans(passage.columns["last"])
"""


def passage(number: int) -> Passage:
    """Return a passage of number % 5 + 1 one-letter words."""
    text = small.words("a " * (number % 5 + 1))
    return replace(text, id=f"p{number}", columns={"marked": text.words})


TAKEN = ("tokens", "words", "ids", "marked")


@dataclass(frozen=True)
class FirstWord:
    """A policy that marks the first word, and fails as it is told."""

    fail: str = ""

    def annotate(self, passages, fitted=None):
        last = passages[-1].id == "p9"
        if self.fail == "error" and last:
            raise ValueError("bad text\nand more")
        if self.fail == "ours" and last:
            raise DataError("corpus.txt: row 9 is bad")
        if self.fail == "killed" and last:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fail == "nothing" and not last:
            return {}
        rows = [p.words[:1] for p in passages]
        if self.fail == "short":
            rows = rows[1:]
        if self.fail in TAKEN:
            return {self.fail: rows}
        return {"other" if self.fail == "names" and last else "first": rows}


@pytest.fixture
def passages(monkeypatch):
    monkeypatch.setattr(annotation, "BATCH", 4)
    return [passage(number) for number in range(10)]


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_come_in_order_and_processes_know_the_plugin_file_of_a_user(
    passages, tmp_path, caplog, workers
):
    file = tmp_path / "last_word.py"
    file.write_text(PLUGIN.format(name=f"last-word-of-{workers}"), encoding="utf-8")
    policy = discovery.load_file(file).LastWord()
    with caplog.at_level(logging.INFO, "maskpolicy"):
        found = annotation.annotate(policy, passages, workers=workers)
    assert [row.tolist() for row in found["last"]] == [p.words[-1:].tolist() for p in passages]
    # notes of several processes are logged once
    notes = [record.getMessage() for record in caplog.records]
    assert notes == ["a note"] * (1 if workers > 1 else 3)


FAILED = "^policy FirstWord: annotating passages 'p8' to 'p9' failed: ValueError: bad text \\("


@pytest.mark.parametrize(
    ("fail", "workers", "kind", "said"),
    [
        ("error", 1, StageError, FAILED),
        ("ours", 2, DataError, r"^corpus\.txt: row 9 is bad$"),  # keeps its sentence
        ("killed", 2, StageError, "killed"),
        ("short", 1, StageError, "FirstWord"),
        ("names", 1, StageError, "FirstWord"),
        ("nothing", 1, StageError, "FirstWord: annotate returned no column: return one at least"),
        *(
            (name, 1, ConfigError, f"its column '{name}' has the name of an array")
            for name in TAKEN
        ),
    ],
)
def test_a_failure_is_one_line(passages, fail, workers, kind, said):
    policy = FirstWord(fail)
    refused(annotation.annotate, policy, passages, workers=workers, error=kind, match=said)


ORPHANS = """
import os, sys, time
from pathlib import Path

sys.path.insert(0, {root!r})
from maskpolicy.data.corpus import annotation

class Endless:
    # leaves the id of its process in a folder and does not come back
    def annotate(self, passages, fitted=None):
        (Path({folder!r}) / str(os.getpid())).touch()
        time.sleep(600)

if __name__ == "__main__":
    annotation.annotate(Endless(), range(5000), workers=2)
"""


@clusters.needs_proc
def test_processes_do_not_outlive_a_parent_that_is_killed(tmp_path):
    """They would wait for work for ever."""
    folder = tmp_path / "pids"
    folder.mkdir()
    root = str(Path(__file__).parents[2])
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS.format(root=root, folder=str(folder)))
    parent = subprocess.Popen([sys.executable, script], cwd=root)
    try:
        clusters.until(lambda: len(list(folder.iterdir())) == 2, parent)
    finally:
        parent.kill()
        parent.wait()
    clusters.all_gone([int(path.name) for path in folder.iterdir()])


FILES = {"hashes.u64", "values.i64", "ends.i64", "keys.json"}


@dataclass(frozen=True)
class Words:
    """Counts words, and passages."""

    min_count: int = 1
    given: Any = None

    def count(self, passages):
        if isinstance(self.given, ValueError):
            raise self.given
        if self.given is not None:
            return self.given
        found = Counter(word for passage in passages for word in passage.texts(passage.words))
        return found + Counter({0: len(passages)})

    def select(self, passage, rng, statistics):
        return passage.words[:0]


def texts(count: int) -> list[Any]:
    return [small.words(f"a b{number % 3} c{number}") for number in range(count)]


def counted(folder, passages, **more) -> Statistics:
    folder.mkdir()
    sums.count(Words(), passages, folder, **more)
    assert {path.name for path in folder.iterdir()} == FILES
    return Statistics.open(folder)


def test_batches_are_added_up_and_change_no_byte(tmp_path, monkeypatch):
    passages = texts(23)
    found = counted(tmp_path / "whole", passages)
    assert found["a"] == found[0] == 23
    assert [found[f"b{i}"] for i in range(3)] == [8, 8, 7]
    for module in (annotation, sums):
        monkeypatch.setattr(module, "BATCH", 4)
    told: list[tuple[int, ...]] = []
    cut = counted(tmp_path / "cut", passages, progress=lambda *each: told.append(each))
    assert dict(cut.items()) == dict(found.items())
    for name in FILES:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()
    assert told[-1] == (23, 23) and len(told) == 6


def test_small_sums_are_dropped_at_the_end_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(annotation, "BATCH", 4)
    found = counted(tmp_path / "it", texts(23), least=8)
    assert dict(found.items()) == {0: 23, "a": 23, "b0": 8, "b1": 8}


@dataclass(frozen=True)
class Condensing(Words):
    """Counts words, and condenses them to what it is told."""

    condensed: Any = None

    def condense(self, statistics):
        return self.condensed


A_KEY = "a key of statistics must be text, a whole number or a"


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (Words(given=[1]), "count must return a mapping of keys to numbers, not list"),
        (Words(given={"a": 0.5}), "count: numbers must be whole, so that their sum is the same"),
        (Words(given={(1.5,): 1}), f"count: {A_KEY}"),
        (Words(given={"a": 1 << 64}), "counting passages 'p' to 'p' failed: OverflowError: "),
        (Words(given=ValueError("no")), "counting passages 'p' to 'p' failed: ValueError: no"),
        (Condensing(condensed={1.5: 2}), f"condense: {A_KEY}"),
        (Condensing(condensed=[("a", "b")]), "condense failed: ValueError: could not convert str"),
        (Condensing(condensed=3), "condense failed: TypeError: 'int' object is not iterable"),
    ],
)
def test_what_cannot_be_added_up_or_condensed_is_one_line(policy, says):
    line = refused(sums.statistics_of, policy, texts(1), error=REFUSALS)
    assert line.startswith(f"policy {type(policy).__name__}: {says}")


def test_memory_holds_a_part_of_what_lies_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(sums, "_TOGETHER", 1 << 11)
    tables = ({f"{table} {key}": 1 for key in range(2000)} | {"all": 1} for table in range(40))
    tracemalloc.start()
    try:
        sums.write(map(Statistics.of, tables), tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    found = Statistics.open(tmp_path)
    assert len(found) == 80_001 and found["all"] == 40
    written = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert peak < written < 3_000_000


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"x": (np.zeros(1) for _ in range(10))}, "one per passage, not generator"),
        ({"x": [np.array(3.0)] * 10}, r"one per passage, not ndarray array\(3"),
        ({3: [np.zeros(1)] * 10}, "column 3: its name must be text"),
    ],
)
def test_a_column_that_cannot_be_stored_names_the_policy(columns, said):
    match = f"^policy Words: annotate: .*{said}"
    call = annotation.check_columns
    passages = [passage(number) for number in range(10)]
    refused(call, Words(), "annotate", columns, passages, error=StageError, match=match)


def test_a_policy_whose_class_a_function_made_annotates_in_one_process(passages, caplog):
    class Local(FirstWord):
        pass

    with caplog.at_level(logging.INFO, "maskpolicy"):
        found = annotation.annotate(Local(), passages, workers=2)
    assert len(found["first"]) == 10 and "annotates in one process: " in caplog.text
