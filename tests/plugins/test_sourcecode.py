"""The digest of a file's code, and the modules that it imports."""

from __future__ import annotations

import pytest

from maskpolicy.plugins.sourcecode import closure, code_digest, digest_of_code

CODE = b'''
"""What this is."""
from dataclasses import dataclass
import numpy as np

@dataclass(frozen=True)
class Mine:
    """A policy."""

    ratio: float = 0.15
    words: tuple[str, ...] = ("a", "\xc3\xa9")

    def select(self, passage, rng, *, more=None):
        """Select."""
        found = [x for x in passage.words[:, 0] if x != 0x10 and not self.words]
        return {**{1: None}, "text": f"{self.ratio:.2f} of {len(found)!r}"} or np.inf
'''


@pytest.mark.parametrize(
    "other",
    [
        CODE + b"# a comment\n",
        CODE.replace(b"(frozen=True)", b"(\n    frozen=True,\n)  # noqa"),
        CODE.replace(b"    ", b"  "),
        CODE.replace(b'"text"', b"'text'"),
        CODE.replace(b"0x10", b"(16)"),
        CODE.replace(b'"""A policy."""', b'"""Another sentence."""'),
        CODE.replace(b'    """A policy."""\n', b""),
        CODE.replace(b"ratio: float = 0.15", b'ratio: float = 0.15\n    """A share."""'),
        CODE.replace(b"\n", b"\r\n"),
    ],
)
def test_what_changes_no_code_changes_no_digest(other):
    assert other != CODE
    assert digest_of_code(other) == digest_of_code(CODE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"0.15", b"0.150001"),
        (b"0x10", b"17"),
        (b'"a"', b'"b"'),
        (b'"a"', b'b"a"'),
        (b"found", b"others"),
        (b"!=", b"=="),
        (b"{1: None}", b"{True: None}"),
        (b"{1: None}", b"{1: 0}"),
        (b"{**{1: None}", b"{None: {1: None}"),
        (b"more=None", b"more"),
        (b"!r}", b"!s}"),
        (b".2f}", b".3f}"),
        (b"(frozen=True)", b"(frozen=False)"),
        (b"@dataclass(frozen=True)\n", b""),
        (b"from dataclasses", b"from .dataclasses"),
        (b"[:, 0]", b"[:, 0:]"),
        (b"if x != 0x10 and", b"if x != 0x10 if"),
    ],
)
def test_what_changes_code_changes_its_digest(old, new):
    assert CODE.count(old) >= 1
    assert digest_of_code(CODE.replace(old, new)) != digest_of_code(CODE)


def test_where_statements_stand_is_in_the_digest():
    inside = b"def f(x):\n    while x:\n        x = 1\n        y = 2\n"
    assert digest_of_code(inside) != digest_of_code(inside.replace(b"        y", b"    y"))


@pytest.mark.parametrize("reads", [b"Mine.__doc__", b"import inspect\ninspect.getdoc(Mine)"])
def test_docstrings_count_in_a_file_that_reads_them(reads):
    code = CODE + reads
    assert digest_of_code(code) != digest_of_code(code.replace(b"A policy", b"Another"))
    assert digest_of_code(code) == digest_of_code(code + b"  # a comment\n")


def test_a_digest_is_the_same_in_every_version_of_python():
    """A store may be used by several; so its keys must not depend on them."""
    assert (
        digest_of_code(CODE) == "f6b1db271068f44901ec40e43c91ba01e487037cd03c419169fc3840d4ecb8b7"
    )


def test_a_long_sum_and_a_large_number_have_a_digest():
    chain = " + ".join(["1"] * 500)
    assert digest_of_code(f"x = {chain}".encode()) != digest_of_code(f"x = {chain} + 1".encode())
    assert digest_of_code(b"x = 0x" + b"f" * 5000) != digest_of_code(b"x = 0x" + b"f" * 5001)


@pytest.mark.parametrize("data", [b"def (", b"x = '\0'", b"x = '\xff'\n"])
def test_what_is_no_python_is_hashed_as_it_is(data):
    assert digest_of_code(data) != digest_of_code(data + b"# more\n")


def test_other_files_are_hashed_as_they_are(tmp_path):
    module, text = tmp_path / "a.py", tmp_path / "a.txt"
    for path in (module, text):
        path.write_text("X = 1\n")
    before = code_digest(module), code_digest(text)
    for path in (module, text):
        path.write_text("X = 1  # one\n")
    assert code_digest(module) == before[0]
    assert code_digest(text) != before[1]


def test_modules_are_followed_at_any_depth(tmp_path):
    (tmp_path / "a.py").write_text("def f():\n    import b\n")
    (tmp_path / "b.py").write_text("from . import c\nimport json\n")
    (tmp_path / "c.py").write_text("")
    (tmp_path / "json.py").write_text("")
    names = {path.name for path in closure(tmp_path / "a.py", tmp_path)}
    assert names == {"a.py", "b.py", "c.py"}
