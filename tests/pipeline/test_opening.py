"""A command names its store by a folder or a URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskpolicy.core.errors import StoreError
from maskpolicy.pipeline.store.opening import is_url, open_store


@pytest.mark.parametrize("place", ["s3://bucket/prefix", "file:///a b", "memory://name", "foo://x"])
def test_urls_are_told_from_folders(place):
    assert is_url(place)


@pytest.mark.parametrize("place", ["store", "/store", "./s3:", "C:\\store", "a/b://c", ""])
def test_folders_are_told_from_urls(place):
    assert not is_url(place)


@pytest.mark.parametrize("url", ["s3://[x", "file:///", "file://", "s3://[::1]x/a"])
def test_a_url_that_names_nothing_is_one_line(url, tmp_path):
    with pytest.raises(StoreError, match=r"^store "):
        open_store(url, tmp_path)


@pytest.mark.parametrize("place", ["s3:bucket/prefix", "s3:/bucket/prefix"])
def test_an_address_without_two_slashes_is_told(place):
    with pytest.raises(StoreError, match=f"^store {place}: write s3://bucket/prefix for a bucket"):
        open_store(place)


def test_without_a_home_the_cache_is_asked_for(monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    with pytest.raises(StoreError, match=r"home directory.*--cache or \$MASKPOLICY_CACHE"):
        open_store("memory://x")


def test_a_folder_is_opened_without_being_created(tmp_path):
    store = open_store(str(tmp_path / "store"))
    assert store.place == str(tmp_path / "store")
    assert not store.root.exists()
