"""A policy of a finished run whose file was edited since is told of."""

from __future__ import annotations

import logging
from pathlib import Path

from maskpolicy.files import sha256
from maskpolicy.plugins import discovery
from maskpolicy.plugins.discovery import code_digests, find_plugin
from maskpolicy.runs.preview import PolicyOfRun, warn_of_edits
from maskpolicy.store.artifacts import Store

KEY = "a" * 64
PLUGIN = """
from dataclasses import dataclass
from maskpolicy import policy

@policy("edited-since", target="spans")
@dataclass(frozen=True)
class Edited:
    def select(self, passage, rng):
        return passage.words[:1]
"""


def test_an_edited_plugin_is_told(tmp_path, caplog):
    path, store = tmp_path / "mine.py", Store(tmp_path / "store")
    path.write_text(PLUGIN)
    discovery.load_files([path], fresh=True)
    code = code_digests(find_plugin("policy", "edited-since"))
    with store.write(KEY, {"params": {"code": code}}):
        pass
    row = PolicyOfRun({"name": "edited-since"}, Path(), "mine", {}, KEY)
    with caplog.at_level(logging.WARNING):
        warn_of_edits(row, store)
        assert caplog.messages == []
        path.write_text(PLUGIN.replace("[:1]", "[:2]"))
        discovery.load_files([path], fresh=True)
        warn_of_edits(row, store)
    line = "mine: mine.py changed since the run: what is shown may not be what the run masked"
    assert caplog.messages == [line]


def test_a_run_whose_key_holds_the_bytes_of_the_file_is_known(tmp_path, caplog):
    """Keys of earlier versions do."""
    path, store = tmp_path / "mine.py", Store(tmp_path / "store")
    path.write_text(PLUGIN.replace("edited-since", "kept-since"))
    discovery.load_files([path], fresh=True)
    with store.write(KEY, {"params": {"code": {"mine.py": sha256(path)}}}):
        pass
    row = PolicyOfRun({"name": "kept-since"}, Path(), "mine", {}, KEY)
    with caplog.at_level(logging.WARNING):
        warn_of_edits(row, store)
        assert caplog.messages == []
        path.write_text(path.read_text() + "# a comment\n")
        discovery.load_files([path], fresh=True)
        warn_of_edits(row, store)
    assert len(caplog.messages) == 1
