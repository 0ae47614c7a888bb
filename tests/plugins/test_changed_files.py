"""A plugin that is edited while a command uses it never leaves two artifacts under one key."""

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import small
import spacy_rules
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import Nothing

import maskpolicy.pipeline.stages  # noqa: F401 - registers the annotate stage
from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.core.files import sha256
from maskpolicy.data.corpus import annotation, passages
from maskpolicy.data.corpus.passages import PASSAGES_FILE, passage_rows, write_passages
from maskpolicy.pipeline.graph.events import Event, Outcome, silent
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage, stage
from maskpolicy.pipeline.stages.params import ReaderParams
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins import changed_files, discovery, hooks, isolation, registry
from maskpolicy.plugins.discovery import code_digests

POLICY = """
from dataclasses import dataclass
from pathlib import Path

import pyarrow
from early import EARLY
from maskpolicy.plugins.registry import policy


@policy("edited")
@dataclass(frozen=True)
class Edited:
    files = ["words.txt"]

    def annotate(self, passages, fitted=None):
        from late import LATE

        words = pyarrow.OSFile(str(Path(__file__).with_name("words.txt"))).read()
        count = 1 + OWN + EARLY + LATE + len(words)
        return {"spans": [p.words[:count] for p in passages]}

    def select(self, passage, rng):
        return passage.columns["spans"]
"""
FILES = {
    "mine.py": "OWN = {}\n" + POLICY,
    "early.py": "EARLY = {}\n",
    "late.py": "LATE = {}\n",
    "words.txt": "{}",
}


@stage("passages-of-four")
def passages_of_four(params: Nothing, inputs, out, run):
    documents = [passages.Document(f"d{index}", text) for index, text in enumerate(small.TEXTS[:4])]
    write_passages(out / PASSAGES_FILE, passage_rows(documents, small.tokenizer(), words=100))


class Plugin:
    """A plugin of four files in a folder of its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()
        for name in FILES:
            self.edit(name, 0)

    def edit(self, name: str, value: int) -> None:
        text = "w" * value if name == "words.txt" else FILES[name].replace("{}", str(value))
        (self.folder / name).write_text(text)

    def plan(self) -> Stage:
        """Return the stage that computes its columns, with the key of the current files."""
        discovery.load_files([self.folder / "mine.py"], fresh=True)
        code = code_digests(registry.entry("policy", "edited"))
        params = ReaderParams(policy="edited", fields={}, code=code, depends={})
        inputs = {"corpus": Stage("passages-of-four", "", Nothing())}
        return Stage("annotate", "edited", params, inputs)

    def forget(self) -> None:
        registry.forget([self.folder / "mine.py"])
        isolation.forget(isolation.home_of(self.folder))


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    monkeypatch.setattr(annotation, "BATCH", 2)
    made = Plugin(tmp_path.resolve() / "plugin")
    yield made
    made.forget()


def run(stage: Stage, store: Store, plugin: Plugin | None = None, *edit: Any) -> Outcome:
    """Compute a stage; edit a plugin when the first of two shards of passages is annotated."""

    def listen(event: Event) -> None:
        if plugin and (event.what, event.done, event.total) == ("advanced", 2, 4):
            plugin.edit(*edit)

    return execute([stage], store, listen)[stage.key]


@pytest.mark.parametrize("name", ["mine.py", "early.py", "late.py"])
def test_a_module_edited_after_its_import_is_warned_of_once(plugin, store, caplog, name):
    planned = plugin.plan()
    assert run(planned, store, plugin, name, 1).error is None
    again = run(planned, Store(store.root.with_name("other")))
    assert again.error is None
    said = [each.getMessage() for each in caplog.records if "was changed while" in each.message]
    path = plugin.folder / name
    assert said == [
        f"plugin file {path}: was changed while this command uses it: its results are those of "
        "the file before the change"
    ]
    assert plugin.plan().key != planned.key


def test_a_declared_file_edited_under_way_refuses_the_commit(plugin, store):
    """No hook of Python notices how Arrow reads it."""
    planned = plugin.plan()
    outcome = run(planned, store, plugin, "words.txt", 1)
    assert "words.txt: was changed while a command that uses it is under way" in outcome.error
    assert store.get(planned.key) is None
    assert run(plugin.plan(), store).error is None


def test_a_declared_file_edited_between_commands_is_read_again(plugin):
    plugin.plan()
    assert not isolation.stale()
    plugin.edit("words.txt", 1)
    assert [home.folder for home in isolation.stale()] == [plugin.folder]


def test_a_plugin_that_was_imported_anew_since_the_plan_is_refused(plugin, store):
    first = plugin.plan()
    plugin.edit("mine.py", 1)
    second = plugin.plan()
    assert "mine.py: was changed while a command that uses it" in run(first, store).error
    assert run(second, store).error is None
    plugin.edit("mine.py", 0)
    assert plugin.plan().key == first.key
    assert run(first, store).error is None


def test_an_installed_plugin_edited_under_way_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "their_masks"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    (folder / "words.txt").write_text("w")
    text = "from their_masks import early\nfrom maskpolicy.plugins.registry import policy\n\n"
    text += "@policy('their-masks')\nclass Theirs:\n    files = ['words.txt']\n\n"
    (folder / "early.py").write_text("")
    (folder / "__init__.py").write_text(text + "    def select(self, passage, rng): pass\n")
    import their_masks

    entry = registry.entry("policy", "their-masks")
    try:
        code = code_digests(entry)
        names = ("__init__.py", "early.py", "words.txt")
        assert set(code) == {f"their_masks/{name}" for name in names}
        for name in names:
            changed_files.compare_files(entry, code)
            before = (folder / name).read_text()
            (folder / name).write_text(f"{before}\nX = 1\n")
            with pytest.raises(ConfigError, match=rf"{name}: was changed while a command"):
                changed_files.compare_files(entry, code)
            with suppress(ConfigError):  # of a module, which is in use as it was imported
                assert code_digests(entry) != code
            (folder / name).write_text(before)
    finally:
        registry.forget([Path(their_masks.__file__)])


EDIT = st.tuples(st.sampled_from(sorted(FILES)), st.integers(0, 2))


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(EDIT, EDIT, EDIT), min_size=1, max_size=4))
def test_artifacts_of_one_key_are_the_same(plugin, store, edits):
    """Edit a file before the plan, after it and during the stage; begin with an empty store."""
    known: dict[str, bytes] = {}
    for before, after, during in edits:
        plugin.edit(*before)
        planned = plugin.plan()
        plugin.edit(*after)
        shutil.rmtree(store.path(planned.key), ignore_errors=True)
        outcome = run(planned, store, plugin, *during)
        if outcome.artifact is not None:
            data = (outcome.artifact / PASSAGES_FILE).read_bytes()
            assert known.setdefault(planned.key, data) == data


def _overwritten(path: Path) -> None:
    times = path.stat()
    path.write_text("behind")
    path.write_text("before")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _linked_elsewhere(path: Path) -> None:
    own, other = path.readlink(), path.with_name("other.txt")
    other.write_text("behind")
    for target in (other, own):
        path.unlink()
        path.symlink_to(target)


@pytest.mark.parametrize("change", [_overwritten, _linked_elsewhere])
def test_a_data_file_that_was_changed_and_put_back_is_refused(tmp_path, change):
    path, discarded = tmp_path / "text.txt", []
    (tmp_path / "own.txt").write_text("before")
    path.symlink_to("own.txt") if change is _linked_elsewhere else path.write_text("before")
    known = {path: sha256(path)}
    time.sleep(0.02)  # longer than a step of the disk's clock
    guard = changed_files.guarded(Nothing(), lambda: discarded.append(path), known)
    with pytest.raises(DataError, match=r"text\.txt: was changed while"), guard:
        change(path)
    assert discarded
    assert {path: sha256(path)} == known
    with changed_files.guarded(Nothing(), pytest.fail, known):
        path.read_text()


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_pipeline_that_changes_leaves_nothing_under_the_old_key(plugin, store, tmp_path, when):
    folder = tmp_path / "pipeline"
    spacy_rules.pipeline(folder)

    def planned():
        block = {"pipeline": str(folder), "labels": "all"}
        depends = hooks.DEPENDS.of(discovery.instance("policy", "salient-span", block))()
        code = code_digests(discovery.find_plugin("policy", "salient-span"))
        params = ReaderParams(policy="salient-span", fields=block, code=code, depends=depends)
        inputs = {"corpus": Stage("passages-of-four", "", Nothing())}
        return Stage("annotate", "salient-span", params, inputs)

    def edit(event=None):
        if event is None or event.what == "advanced":
            (folder / "meta.json").write_text((folder / "meta.json").read_text() + " ")

    first = planned()
    if when == "before":
        edit()
    outcome = execute([first], store, edit if when == "during" else silent)[first.key]
    assert (
        "policy salient-span: what its `depends` names (such as a spaCy pipeline) was"
        in outcome.error
    )
    assert store.get(first.key) is None
    assert "was changed" not in execute([planned()], store)[planned().key].error
