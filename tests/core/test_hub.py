"""Hub names become commits, from a server or the cache; errors come within seconds."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import small

from maskpolicy.core import hub
from maskpolicy.core.errors import ConfigError, DataError

NAME = "owner/bart"
COMMIT = "0123456789" * 4
NOBODY = "http://127.0.0.1:9"  # the port of discard, on which nobody listens
PLAN = f"""
import sys
from pathlib import Path

from maskpolicy.pipeline import stages
from maskpolicy.experiment.parse import make_experiment
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.core.errors import MaskpolicyError
from maskpolicy.pipeline.store.artifacts import Store

given = dict(model="{NAME}", corpus="world", policies=["none"], tasks=["zsre"])
try:
    built = stages.build(make_experiment(given, "it", "", ()))
    cell = next(iter(built.cells.values()))
    wanted = [cell.inputs["tokenizer"], built.pretrained["none", 0]]
    for outcome in execute(wanted, Store(sys.argv[1])).values():
        stage = outcome.stage
        print(stage.kind, stage.key, stage.params.revision, outcome.error or "fetched")
except MaskpolicyError as error:
    print("refused:", error)
"""


class Server(BaseHTTPRequestHandler):
    """Answers as the Hub does for one model, whose files lie in a folder."""

    folder: Path

    def do_HEAD(self):
        self.answer(with_body=False)

    def do_GET(self):
        self.answer(with_body=True)

    def answer(self, with_body):
        if self.path.startswith((f"/api/models/{NAME}/revision", f"/api/models/{NAME}?")) or (
            self.path == f"/api/models/{NAME}"
        ):
            about = {"id": NAME, "sha": COMMIT, "siblings": []}
            return self.send(200, json.dumps(about).encode(), with_body)
        if self.path.startswith(f"/api/models/{NAME}/tree/"):  # no folder of chat templates
            return self.send(404, b"", with_body, "EntryNotFound")
        parts = self.path.split("/")
        if self.path.startswith(f"/{NAME}/resolve/"):
            path = self.folder.joinpath(*parts[5:])
            if path.is_file():
                return self.send(200, path.read_bytes(), with_body)
            return self.send(404, b"", with_body, "EntryNotFound")
        return self.send(404, b"", with_body, "RepoNotFound")

    def send(self, status, body, with_body, error=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        if error:
            self.send_header("X-Error-Code", error)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, *_):
        """Keep quiet."""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    """Serve a BART on a port of this machine; returns the address."""
    Server.folder = tmp_path_factory.mktemp("hub")
    small.saved(Server.folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def planned(cache, endpoint, script=PLAN, **more):
    """Run the script in a new interpreter; returns its lines and what stood on stderr."""
    set_ = {"HF_HOME": str(cache), "HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0", **more}
    with TemporaryDirectory() as store:
        done = subprocess.run(
            [sys.executable, "-c", script, store],
            capture_output=True,
            text=True,
            env={**os.environ, **set_},
        )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


@pytest.mark.slow
def test_a_model_is_pinned_to_its_commit_online_and_afterwards_from_the_cache(endpoint, tmp_path):
    online, _ = planned(tmp_path, endpoint)
    assert [line.partition(" ")[0] for line in online] == ["tokenizer", "pretrained"]
    assert all(line.endswith(f" {COMMIT} fetched") for line in online)
    offline, said = planned(tmp_path, NOBODY)
    assert offline == online
    assert "etry" not in said
    assert planned(tmp_path, endpoint, HF_HUB_OFFLINE="1")[0] == online


def test_a_model_that_nobody_has_is_one_line_and_no_retries(endpoint, tmp_path):
    for address, says in ((NOBODY, "the Hub cannot be reached, and its cache"), (endpoint, "404")):
        script = PLAN.replace(NAME, "owner/other")
        lines, said = planned(tmp_path, address, script)
        assert len(lines) == 1
        assert lines[0].startswith("refused: model: owner/other: its commit cannot be")
        assert says in lines[0]
        assert "etry" not in said


@pytest.mark.parametrize(("kind", "fault"), [("dataset", DataError), ("model", ConfigError)])
def test_a_commit_needs_no_network_and_a_name_without_one_is_one_line(kind, fault, monkeypatch):
    from huggingface_hub import constants

    assert hub.commit(kind, "owner/name", COMMIT) == COMMIT
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(fault, match=f"{kind} owner/name: its commit cannot be") as caught:
        hub.commit(kind, "owner/name", None)
    assert "\n" not in str(caught.value)
    with pytest.raises(fault, match=r"^mine\.yaml: corpus: owner/name: its commit cannot be"):
        hub.commit(kind, "owner/name", None, "mine.yaml: corpus")
    with pytest.raises(fault, match=r"resolved: URL too long \("):
        hub.commit(kind, "owner/name", "v" * 70_000)


def test_the_libraries_ask_again_once_the_hub_answers(monkeypatch):
    from huggingface_hub import constants, is_offline_mode

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", NOBODY)
    with pytest.raises(KeyError), hub.access():
        assert is_offline_mode()
        raise KeyError
    assert not is_offline_mode()
