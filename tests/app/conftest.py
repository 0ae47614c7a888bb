"""What the tests of app share: tiny runs, a store, and a Hub on this machine."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from fnmatch import fnmatch
from pathlib import Path

import folders
import huggingface_hub
import pytest

from maskpolicy.core import hub as access


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test works in an empty folder, where commands keep their store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MASKPOLICY_STORE", raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def run_tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Run an experiment, given as YAML; returns a folder with tiny.yaml, its store and out/."""

    def run_tiny(text: str, files: Mapping[str, str] | None = None) -> Path:
        folder = tmp_path_factory.mktemp("tiny")
        for name, content in (files or {}).items():
            (folder / name).write_text(content)
        return folders.run_experiment(folder, text, "out")

    return run_tiny


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the store that the tests of a module share."""
    return tmp_path_factory.mktemp("store")


class Hub:
    """Keeps repositories as the Hub does: their files by kind and name, such as "models/me/it"."""

    def __init__(self, cache: Path) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.is_reachable = True
        self._cache = cache

    def create_repo(self, name: str, *, repo_type: str, private: bool, exist_ok: bool) -> str:
        if name.startswith("another/"):
            raise OSError("403 Forbidden")
        assert exist_ok
        key = f"{repo_type}s/{name}"
        if key not in self.files:
            self.files[key], self.private[key] = {}, private
        return f"https://hub/{key.removeprefix('models/')}"

    def upload_file(
        self, *, path_or_fileobj: Path, path_in_repo: str, repo_id: str, repo_type: str, **more: str
    ) -> None:
        self.files[f"{repo_type}s/{repo_id}"][path_in_repo] = path_or_fileobj.read_bytes()

    def create_branch(self, name: str, *, branch: str, repo_type: str, exist_ok: bool) -> None:
        assert exist_ok
        self.files.setdefault(f"{repo_type}s/{name}@{branch}", {})

    def upload_folder(
        self,
        *,
        folder_path: Path,
        repo_id: str,
        revision: str | None = None,
        ignore_patterns: Sequence[str] = (),
        **more: str,
    ) -> None:
        name = f"{repo_id}@{revision}" if revision else repo_id
        paths = [path for path in folder_path.rglob("*") if path.is_file()]
        for path in paths:
            inside = path.relative_to(folder_path).as_posix()
            if not any(fnmatch(inside, pattern) for pattern in ignore_patterns):
                self.upload_file(path_or_fileobj=path, path_in_repo=inside, repo_id=name, **more)

    def snapshot_download(
        self, name: str, *, repo_type: str, revision: str | None, **more: object
    ) -> str:
        name = f"{name}@{revision}" if revision else name
        if f"{repo_type}s/{name}" not in self.files:
            raise OSError("404 Repository not found")
        for path, content in self.files[f"{repo_type}s/{name}"].items():
            (self._cache / path).write_bytes(content)
        return str(self._cache)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Hub:
    """A Hub in place of the real one."""
    hub = Hub(tmp_path_factory.mktemp("hub"))
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: hub)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.snapshot_download)
    monkeypatch.setattr(huggingface_hub, "is_offline_mode", lambda: False)
    monkeypatch.setattr(access, "is_reachable", lambda endpoint: hub.is_reachable)
    monkeypatch.setattr(access, "access", nullcontext)
    return hub


# 24 passages of 10 words in the file's corpus, and 6 in that of a row
BUDGETS = """
model: mini
corpus: {files: [it.txt], words: 10}
policies:
  - none
  - random
  - {name: original, label: short, corpus: {files: [short.txt]}, intermediate: {epochs: 4}}
  - {name: original, label: words, intermediate: {words: 121, batch_size: 3}}
tasks:
  - {name: table, label: all, data: tables}
  - {name: table, label: few, data: tables, limit: {train: 9}, finetune: {batch_size: 2}}
  - {name: table, label: own, data: tables, finetune: {epochs: 1.5}}
  - {name: table, label: steps, data: tables, finetune: {steps: 7}}
finetune: {batch_size: 4}
intermediate: {epochs: 2.5, batch_size: 8}
"""


def with_budgets(folder: Path) -> None:
    """Write it.yaml, an experiment with budgets in words and epochs, and what it names."""
    line = "one two three four five six seven eight nine ten\n\n"
    (folder / "tables").mkdir(parents=True)
    for name, text in (("it.yaml", BUDGETS), ("it.txt", 24 * line), ("short.txt", 6 * line)):
        (folder / name).write_text(text)
    for split, count in (("train", 13), ("test", 2)):
        rows = [{"question": f"What is {n} in {split}?", "answer": str(n)} for n in range(count)]
        (folder / "tables" / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
