"""All kinds of buckets behave alike; errors are one line."""

import hashlib
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import s3
from stores import below

from maskpolicy.core.errors import StoreError
from maskpolicy.pipeline.store import bucket as bucket_module
from maskpolicy.pipeline.store.bucket import CHUNK, FORMAT, MARKER, now, open_bucket, prepare

OUTAGE = float(os.environ.get("OUTAGE", "3"))  # seconds; obstore's own retries end after 2


OF_ALL_KINDS = pytest.mark.parametrize("url", ["file", "memory", "s3"], indirect=True)


def said(url):
    """Return the one line that opening a bucket ends with."""
    with pytest.raises(StoreError) as failed:
        open_bucket(url)
    (line,) = str(failed.value).splitlines()
    return line


@OF_ALL_KINDS
def test_objects_are_written_read_listed_and_deleted(bucket):
    assert bucket.read("a/one") is None
    assert bucket.write("a/one", b"1")
    assert bucket.write("a/one", b"22")
    bucket.write("ab/two", b"333")
    assert bucket.read("a/one") == b"22"
    assert [(entry.name, entry.size) for entry in bucket.entries("a")] == [("a/one", 2)]
    assert abs((now(bucket) - bucket.entries("a")[0].modified).total_seconds()) < 60
    bucket.delete(["a/never", "a/one", "ab/two"])
    assert below(bucket) == []


@OF_ALL_KINDS
def test_a_listing_has_all_pages_in_order(bucket):
    names = [f"a/{number:02}" for number in range(3 * s3.PAGE + 1)]
    for name in reversed(names):
        bucket.write(name, b"")
    assert below(bucket, "a") == names


@OF_ALL_KINDS
def test_of_many_writers_one_creates(bucket):
    contents = [f"writer {number}".encode() for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda content: bucket.write("a", content, new=True), contents))
    assert [c for c, is_first in zip(contents, won, strict=True) if is_first] == [bucket.read("a")]


@OF_ALL_KINDS
@pytest.mark.parametrize("size", [0, 1000, CHUNK + 5])
def test_files_travel_whole_and_once(bucket, tmp_path, size):
    content = hashlib.shake_256(b"seed").digest(size)
    (tmp_path / "there").write_bytes(content)
    assert bucket.upload(tmp_path / "there", "blobs/x")
    assert not bucket.upload(tmp_path / "there", "blobs/x")
    digest = hashlib.sha256(content).hexdigest()
    assert (
        bucket.download("blobs/x", tmp_path / "back") == digest == bucket.download("blobs/x", None)
    )
    assert (tmp_path / "back").read_bytes() == content
    assert bucket.download("blobs/y", tmp_path / "none") is None


@OF_ALL_KINDS
def test_a_bucket_is_prepared_once_and_another_format_is_one_line(bucket, url):
    prepare(bucket)
    marker = bucket.read(MARKER)
    prepare(bucket)
    open_bucket(url)
    assert (below(bucket), bucket.read(MARKER)) == ([MARKER], marker)
    for content in (f'{{"format": {FORMAT + 1}}}', "[]", "x"):
        bucket.write(MARKER, content.encode())
        assert "not of this version of maskpolicy: install" in said(url)


def test_a_request_whose_answer_is_lost_or_breaks_off_is_sent_again(server, tmp_path):
    bucket = open_bucket(server.url)
    server.lost_answers.add("some/prefix/a")
    assert bucket.write("a", b"0123456789", new=True)
    assert not bucket.write("a", b"other", new=True)
    server.truncated.add("some/prefix/a")
    assert bucket.download("a", tmp_path / "a") == hashlib.sha256(b"0123456789").hexdigest()


def test_spoilt_requests_of_every_kind_are_sent_again(server, tmp_path):
    server.spoilt = 0.15
    bucket, large, back = open_bucket(server.url), tmp_path / "large", tmp_path / "back"
    for number in range(12):
        content, name = f"{number}".encode(), f"all/{number}"
        assert bucket.write(name, content, new=True)
        assert not bucket.write(name, b"other", new=True)
        assert bucket.read(name) == content
        assert name in below(bucket, "all")
        large.write_bytes(content * (CHUNK + 1 if number == 0 else 9))
        bucket.upload(large, f"blobs/{number}")
        assert bucket.download(f"blobs/{number}", back) is not None
        assert back.read_bytes() == large.read_bytes()
        bucket.delete([name, f"blobs/{number}"])
        assert bucket.read(name) is None
    assert all(server.spoilings[way] for way in s3.WAYS)


@pytest.mark.parametrize("way", [*s3.WAYS, "refused"])
def test_every_kind_of_request_outlives_an_outage(server, tmp_path, caplog, way):
    bucket, large = open_bucket(server.url), tmp_path / "large"
    large.write_bytes(b"x" * (CHUNK + 1))
    digest = hashlib.sha256(large.read_bytes()).hexdigest()
    bucket.upload(large, "blobs/there")
    for name in ("there", "gone"):
        bucket.write(name, b"1")
    answers = {
        partial(bucket.write, "new", b"2", new=True): True,
        partial(bucket.write, "there", b"2", new=True): False,
        partial(bucket.write, "other", b"2"): True,
        partial(bucket.read, "there"): b"1",
        partial(below, bucket, "blobs"): ["blobs/there"],
        partial(bucket.download, "blobs/there", tmp_path / "back"): digest,
        partial(bucket.delete, ["gone"]): None,
    }
    is_refused = way == "refused"
    server.ways = ("reset",) if is_refused else (way,)  # of requests by connections that exist
    server.outage = time.monotonic() + OUTAGE
    if is_refused:
        server.stop()
    with ThreadPoolExecutor(len(answers) + 1) as pool:
        asked = [pool.submit(request) for request in answers]
        pool.submit(bucket.upload, large, "large")
        if is_refused:
            time.sleep(OUTAGE)
            server.start()
        assert [one.result() for one in asked] == list(answers.values())
    assert below(bucket) == ["blobs/there", "large", "new", "other", "there"]
    assert bucket.download("large", None) == digest
    assert "it is asked again for 180 s" in caplog.text


def test_an_outage_that_does_not_end_is_one_line(server, monkeypatch):
    monkeypatch.setattr(bucket_module, "_FIRST", 1)
    server.outage = time.monotonic() + 60
    assert "cannot be reached" in said(server.url)
    server.outage = time.monotonic() + OUTAGE
    assert open_bucket(server.url, is_known=True).read("a") is None  # by a worker of a run


def test_a_server_without_create_if_absent_is_one_line(server):
    server.is_unconditional = True
    bucket = open_bucket(server.url)
    for _ in range(2):  # also when another process has found it out before
        with pytest.raises(StoreError, match="ignores If-None-Match"):
            prepare(bucket)
    assert below(bucket) == []


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_bucket_without_permission_says_what_to_check(server, method):
    server.denied = {method}
    with pytest.raises(StoreError, match="no permission: check AWS_ACCESS_KEY_ID"):
        prepare(open_bucket(server.url))


def test_missing_credentials_are_named(server, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")  # then those of the machine are asked for
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    assert "no credentials: set AWS_ACCESS_KEY_ID" in said(server.url)
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    assert "no credentials: set AZURE_STORAGE_ACCOUNT_NAME" in said("az://container/prefix")


@pytest.mark.parametrize(
    ("url", "line"),
    [
        (
            "ftp://host/x",
            "store ftp://host/x: unknown kind of address: name a folder, or one of s3",
        ),
        ("file:///nowhere/none", "there is no such folder on this machine: create it"),
        ("file://host/tmp", "there is no such folder"),
        ("file:///", "there is no such folder"),
        ("s3://", "store s3://: "),
        ("s3://[x", "store s3://[x: is not an address"),
        ("s3://name:secret@bucket/x", "give credentials in the environment (AWS_ACCESS_KEY_ID"),
        ("az://container/x?sig=secret", "give credentials in the environment (AZURE_STORAGE_"),
        ("file:///tmp#secret", "store file://...: a URL ends before #: write %23"),
    ],
)
def test_an_address_that_cannot_be_used_is_one_line_without_secrets(url, line):
    assert line in said(url)
    assert "secret" not in said(url)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    assert "pip install 'maskpolicy[bucket]'" in said("memory://x")
