"""A bucket and a file of notes for the tests of this folder."""

from uuid import uuid4

import pytest

from maskpolicy.pipeline.store.bucket import open_bucket


@pytest.fixture
def url(request, tmp_path):
    """Return the URL of an empty bucket: a folder, or of the kind that a test asks for."""
    kind = getattr(request, "param", "file")
    if kind == "s3":
        return request.getfixturevalue("server").url
    (tmp_path / "bucket").mkdir()
    return {"file": f"file://{tmp_path}/bucket", "memory": f"memory://{uuid4().hex}"}[kind]


@pytest.fixture
def bucket(url):
    return open_bucket(url)


@pytest.fixture
def count(tmp_path):
    """Return a file in which each computation of a tiny stage leaves a line."""
    (tmp_path / "count").write_text("")
    return tmp_path / "count"


@pytest.fixture
def since(count):
    """Return a function that returns the labels computed since its last call."""

    def since():
        labels = count.read_text().splitlines()
        count.write_text("")
        return labels

    return since
