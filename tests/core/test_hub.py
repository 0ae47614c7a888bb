"""Hub names become commits, from a server or the cache; errors come within seconds."""

import hashlib
import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import pytest
import small
from huggingface_hub import constants, is_offline_mode
from refusals import refused

from maskpolicy.core import hub
from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.experiment.parse import make_experiment
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.store.artifacts import Store

NAME = "owner/bart"
COMMIT = "0123456789" * 4
NOBODY = "http://127.0.0.1:9"  # the port of discard, on which nobody listens


class Server(BaseHTTPRequestHandler):
    """Answers as the Hub does for one model, whose files lie in a folder."""

    folder: Path

    def do_GET(self):
        if self.path.startswith(f"/api/models/{NAME}") and "/tree/" not in self.path:
            about = {"id": NAME, "sha": COMMIT, "siblings": []}
            return self.send(200, json.dumps(about).encode())
        path = self.folder.joinpath(*self.path.split("/")[5:])
        if self.path.startswith(f"/{NAME}/resolve/") and path.is_file():
            return self.send(200, path.read_bytes())
        # a tree, too: there is no folder of chat templates
        return self.send(404, b"", "EntryNotFound" if NAME in self.path else "RepoNotFound")

    do_HEAD = do_GET

    def send(self, status, body, error=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        if error:
            self.send_header("X-Error-Code", error)
        self.end_headers()
        if self.command == "GET":
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


@pytest.fixture
def fetched(tmp_path, monkeypatch):
    """Return a function that fetches a model's stages with the settings of a Hub, as a new process.

    It returns kind, key, commit and error of each stage.
    """

    def fetched(endpoint, name=NAME, is_offline=False):
        settings = {"ENDPOINT": endpoint, "HF_HUB_OFFLINE": is_offline}
        settings |= {"HF_HUB_CACHE": str(tmp_path / "hub")}
        template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        settings |= {"HUGGINGFACE_CO_URL_TEMPLATE": template}
        for setting, value in settings.items():
            monkeypatch.setattr(constants, setting, value)
        monkeypatch.setattr(logging.getLogger("huggingface_hub"), "propagate", True)
        hub.forget_commits()
        keys = {"model": name, "corpus": "world", "policies": ["none"], "tasks": ["zsre"]}
        built = stages.build(make_experiment(keys, "it", "", ()))
        cell = next(iter(built.cells.values()))
        wanted = [cell.inputs["tokenizer"], built.pretrained["none", 0]]
        outcomes = execute(wanted, Store(tmp_path / uuid4().hex)).values()
        return [(o.stage.kind, o.stage.key, o.stage.params.revision, o.error) for o in outcomes]

    return fetched


def test_a_model_is_pinned_to_its_commit_online_and_afterwards_from_the_cache(
    endpoint, fetched, caplog
):
    online = fetched(endpoint)
    assert [(kind, *about) for kind, _, *about in online] == [
        (kind, COMMIT, None) for kind in ("tokenizer", "pretrained")
    ]
    assert fetched(NOBODY) == fetched(endpoint, is_offline=True) == online
    assert "etry" not in caplog.text


def test_a_model_that_nobody_has_is_one_line_and_no_retries(endpoint, fetched, caplog):
    for address, says in ((NOBODY, "the Hub cannot be reached, and its cache"), (endpoint, "404")):
        line = refused(fetched, address, "owner/other", match=says)
        assert line.startswith("model: owner/other: its commit cannot be")
    assert "etry" not in caplog.text


@pytest.mark.parametrize(("kind", "fault"), [("dataset", DataError), ("model", ConfigError)])
def test_a_commit_needs_no_network_and_a_name_without_one_is_one_line(kind, fault, monkeypatch):
    assert hub.commit(kind, "owner/name", COMMIT) == COMMIT
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for about, says in (
        ((None,), f"{kind} owner/name: its commit cannot be"),
        ((None, "mine.yaml: corpus"), r"^mine\.yaml: corpus: owner/name: its commit cannot be"),
        (("v" * 70_000,), r"resolved: URL too long \("),
    ):
        refused(hub.commit, kind, "owner/name", *about, error=fault, match=says)


def test_the_libraries_ask_again_once_the_hub_answers(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", NOBODY)
    with pytest.raises(KeyError), hub.access():
        assert is_offline_mode()
        raise KeyError
    assert not is_offline_mode()
