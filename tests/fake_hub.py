"""A server on this machine that keeps repositories as the Hub does: create, commit, list, fetch."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "a-token"
_BRANCH = "main"


@dataclass
class Repository:
    """The files of one repository."""

    private: bool
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def commit(self) -> str:
        digest = hashlib.sha1(repr(sorted(self.files.items())).encode())
        return digest.hexdigest()


@dataclass
class FakeHub:
    """The repositories by kind and name ("models/me/it"), and the address of the server."""

    address: str
    repositories: dict[str, Repository] = field(default_factory=dict)

    def environment(self, home: object, token: str = TOKEN) -> dict[str, str]:
        """Return the environment of a process that takes this server for the Hub."""
        found = {key: value for key, value in os.environ.items() if key != "HF_HUB_OFFLINE"}
        more = {"HF_ENDPOINT": self.address, "HF_TOKEN": token, "HF_HOME": str(home)}
        return found | more | {"HF_HUB_DISABLE_TELEMETRY": "1"}


@contextmanager
def serving() -> Iterator[FakeHub]:
    """Run a server until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    hub = FakeHub(f"http://127.0.0.1:{server.server_address[1]}")
    server.hub = hub
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def command(
    hub: FakeHub, home: Path, *words: object, token: str = TOKEN
) -> subprocess.CompletedProcess[str]:
    """Run a command of maskpolicy in a process that takes a server for the Hub."""
    return subprocess.run(
        [sys.executable, "-m", "maskpolicy", *map(str, words)],
        env=hub.environment(home, token),
        capture_output=True,
        text=True,
        timeout=300,
    )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> FakeHub:
        found: FakeHub = self.server.hub
        return found

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        if path == ["api", "validate-yaml"]:
            return self.answer({"errors": [], "warnings": []})
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer({"error": "Invalid credentials in Authorization header"}, 401)
        if path == ["api", "repos", "create"]:
            return self.create(json.loads(body))
        kind, owner, name, what = path[1:5]
        repository = self.hub.repositories.get(f"{kind}/{owner}/{name}")
        if repository is None:
            return self.answer({"error": "Repository not found"}, 404)
        if what == "preupload":
            files = [
                {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            return self.answer({"files": files})
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                value = entry["value"]
                repository.files[value["path"]] = base64.b64decode(value["content"])
        address = f"{self.hub.address}/{owner}/{name}/commit/{repository.commit}"
        return self.answer({"commitUrl": address, "commitOid": repository.commit, "success": True})

    def create(self, asked: dict[str, Any]) -> None:
        kind = f"{asked.get('type') or 'model'}s"
        owner = asked.get("organization") or "me"
        key = f"{kind}/{owner}/{asked['name']}"
        prefix = "" if kind == "models" else f"{kind}/"
        about = {"url": f"{self.hub.address}/{prefix}{owner}/{asked['name']}"}
        if key in self.hub.repositories:
            return self.answer(about | {"error": "You already created this repo"}, 409)
        private = asked.get("private") or asked.get("visibility") == "private"
        self.hub.repositories[key] = Repository(bool(private))
        return self.answer(about)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        if path == [""]:
            return self.answer({})
        if path[0] == "api":
            return self.describe(path[1:])
        kind = path.pop(0) if path[0] in ("datasets", "spaces") else "models"
        repository = self.hub.repositories.get("/".join((kind, *path[:2])))
        content = repository.files.get("/".join(path[4:])) if repository is not None else None
        if repository is None or content is None:
            return self.answer({"error": "Entry not found"}, 404)
        more = {"X-Repo-Commit": repository.commit, "ETag": f'"{_oid(content)}"'}
        return self.send(content, more, "application/octet-stream")

    def describe(self, path: list[str]) -> None:
        repository = self.hub.repositories.get("/".join(path[:3]))
        if repository is None:
            return self.answer({"error": "Repository not found"}, 404)
        if "tree" in path:
            entries = [
                {"type": "file", "path": name, "size": len(content), "oid": _oid(content)}
                for name, content in sorted(repository.files.items())
            ]
            return self.answer(entries)
        siblings = [{"rfilename": name} for name in sorted(repository.files)]
        about = {"id": "/".join(path[1:3]), "sha": repository.commit, "siblings": siblings}
        return self.answer(about | {"private": repository.private, "tags": [], "downloads": 0})

    def answer(self, value: Any, status: int = 200) -> None:
        more = {"X-Error-Message": value["error"]} if status >= 400 else {}
        self.send(json.dumps(value).encode(), more, "application/json", status)

    def send(self, content: bytes, more: dict[str, str], kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in more.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
