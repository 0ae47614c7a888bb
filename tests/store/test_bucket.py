"""Every kind of bucket has the same objects; what is wrong with one is told in one line."""

from __future__ import annotations

import builtins
import hashlib
import socket
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from uuid import uuid4

import pytest
import s3

from maskpolicy.errors import StoreError
from maskpolicy.store.bucket import CHUNK, FORMAT, MARKER, open_bucket


@pytest.fixture
def server(monkeypatch):
    """Return a server of S3's protocol whose address is in the environment."""
    with s3.serve() as bucket:
        for name, value in bucket.environment().items():
            monkeypatch.setenv(name, value)
        yield bucket


@pytest.fixture(params=["file", "memory", "s3"])
def bucket(request, tmp_path):
    """Return an empty bucket of each kind."""
    if request.param == "s3":
        return open_bucket(request.getfixturevalue("server").url)
    (tmp_path / "bucket").mkdir()
    urls = {"file": f"file://{tmp_path}/bucket", "memory": f"memory://{uuid4().hex}"}
    return open_bucket(urls[request.param])


def said(url):
    """Return the one line that opening a bucket ends with."""
    with pytest.raises(StoreError) as failed:
        open_bucket(url)
    (line,) = str(failed.value).splitlines()
    assert line.startswith(f"store {url}: ")
    return line


def test_objects_are_written_read_listed_and_deleted(bucket):
    assert bucket.read("a/one") is None
    bucket.write("a/one", b"1")
    bucket.write("a/one", b"22")
    bucket.write("ab/two", b"333")
    assert bucket.read("a/one") == b"22"
    assert [(entry.name, entry.size) for entry in bucket.entries("a")] == [("a/one", 2)]
    assert (bucket.size("a/one"), bucket.size("a/two")) == (2, None)
    bucket.delete(["a/never", "a/one", "ab/two"])
    assert bucket.entries("a") == bucket.entries("ab") == []


def test_a_listing_has_all_pages_in_order(bucket):
    names = [f"a/{number:02}" for number in range(3 * s3.PAGE + 1)]
    for name in reversed(names):
        bucket.write(name, b"")
    assert [entry.name for entry in bucket.entries("a")] == names


def test_each_write_gives_an_object_another_tag(bucket):
    tags = set()
    for content in (b"1", b"2", b"3"):
        bucket.write("a", content)
        tags |= {entry.tag for entry in bucket.entries("") if entry.name == "a"}
    assert len(tags) == 3


def test_of_many_writers_one_creates(bucket):
    contents = [f"writer {number}".encode() for number in range(8)]
    won = []

    def write(content):
        if bucket.create("a/claim", content):
            won.append(content)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [bucket.read("a/claim")]


@pytest.mark.parametrize("size", [0, 1000, CHUNK + 5])
def test_files_travel_whole(bucket, tmp_path, size):
    content = hashlib.shake_256(b"seed").digest(size)
    (tmp_path / "there").write_bytes(content)
    bucket.upload(tmp_path / "there", "blobs/x")
    assert bucket.size("blobs/x") == size
    assert bucket.download("blobs/x", tmp_path / "back") == hashlib.sha256(content).hexdigest()
    assert (tmp_path / "back").read_bytes() == content
    assert bucket.download("blobs/y", tmp_path / "none") is None


def test_a_bucket_is_prepared_once(bucket):
    bucket.prepare()
    marker = bucket.read(MARKER)
    bucket.prepare()
    bucket.probe()
    assert bucket.read(MARKER) == marker


def test_a_bucket_of_another_format_is_refused(bucket):
    for marker in (f'{{"format": {FORMAT + 1}}}', "[]", "x"):
        bucket.write(MARKER, marker.encode())
        with pytest.raises(StoreError, match="not of this version of maskpolicy: install"):
            bucket.probe()


# S3


def test_an_upload_whose_answer_is_lost_was_ours(server):
    bucket = open_bucket(server.url)
    server.lost_answers.add("some/prefix/a")
    assert bucket.create("a", b"mine")
    assert not bucket.create("a", b"other")


def test_a_download_that_breaks_off_goes_on(server, tmp_path):
    bucket = open_bucket(server.url)
    bucket.write("a", b"0123456789")
    server.truncated.add("some/prefix/a")
    digest = bucket.download("a", tmp_path / "a")
    assert digest == hashlib.sha256(b"0123456789").hexdigest()


def test_a_server_without_create_if_absent_is_refused(server):
    server.is_unconditional = True
    bucket = open_bucket(server.url)
    for _ in range(2):  # also when another process has found it out before
        with pytest.raises(StoreError, match="ignores If-None-Match"):
            bucket.prepare()
    assert bucket.entries("") == []


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_bucket_without_permission_says_what_to_check(server, method):
    server.denied = {method}
    with pytest.raises(StoreError, match="no permission: check AWS_ACCESS_KEY_ID"):
        open_bucket(server.url).prepare()


def test_a_bucket_that_does_not_exist_is_named(server):
    assert "no such bucket: create it" in said("s3://another/prefix")


def test_an_address_that_nobody_answers_is_told(server, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
        assert "cannot be reached: check the address and the network" in said(server.url)


def test_missing_credentials_are_named(server, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")  # then those of the machine are asked for
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    assert "no credentials: set AWS_ACCESS_KEY_ID" in said(server.url)


# other addresses


def test_unknown_addresses_and_folders_are_refused(tmp_path):
    assert "unknown kind of address: name a folder, or one of s3://, gs://," in said("ftp://host/x")
    assert "no such folder on this machine: create it" in said(f"file://{tmp_path}/none")
    assert "no such folder" in said("file://host/tmp")
    assert said("s3://")


def test_a_bucket_in_memory_is_refused_by_other_processes():
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert "exists in one process only" in pool.submit(said, "memory://x").result()


def test_credentials_in_a_url_are_refused_and_not_repeated():
    for url in ("s3://name:secret@bucket/x", "az://container/x?sig=secret"):
        with pytest.raises(StoreError, match="give credentials in the environment") as failed:
            open_bucket(url)
        assert "secret" not in str(failed.value)


def test_azure_without_an_account_is_told(monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    assert "no credentials: set AZURE_STORAGE_ACCOUNT_NAME" in said("az://container/prefix")


def test_a_missing_package_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("obstore"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert "pip install 'maskpolicy[bucket]'" in said("memory://x")
