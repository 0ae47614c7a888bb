"""Plugin files: folders have separate modules, and a key holds all that a plugin reads."""

import json
import multiprocessing
from pathlib import Path

import forked
import numpy as np
import pytest
import small
from refusals import refused

from maskpolicy.core.errors import ConfigError
from maskpolicy.data.corpus import annotation
from maskpolicy.plugins import discovery, isolation, registry
from maskpolicy.plugins.discovery import code_digests
from maskpolicy.plugins.isolation import digest_of_code
from maskpolicy.plugins.registry import Registered


@pytest.fixture
def write(tmp_path, request):
    """Write a plugin with files beside it, below `folder`; returns its path.

    The policy's name has the names of the test's folder, the folder and the file.
    """
    written = []

    def write(
        head: str,
        body: str = "",
        folder: str = "a",
        file: str = "mine.py",
        files: str = "",
        **beside: str,
    ) -> Path:
        home = tmp_path / folder
        home.mkdir(exist_ok=True)
        path = home / file
        for name, text in beside.items():
            other = home / name.replace("__", "/").replace("_py", ".py").replace("_txt", ".txt")
            other.parent.mkdir(parents=True, exist_ok=True)
            other.write_text(text)
        made = small.policy_file(policy_of(path), body, "return passage.words[:COUNT]")
        path.write_text(head + made.replace("count: int = 1", files))
        written.append(path)
        return path

    yield write
    registry.forget(path.resolve() for path in tmp_path.rglob("*.py"))
    for folder in {path.parent.resolve() for path in written}:
        isolation.forget(isolation.home_of(folder))


def policy_of(path: Path) -> str:
    return f"{path.parent.parent.name}-{path.parent.name}-{path.stem}"


def entry(path: Path) -> Registered:
    discovery.load_files([path], fresh=True)
    return registry.entry("policy", policy_of(path))


def code(path: Path) -> dict[str, str]:
    return code_digests(entry(path))


def hidden(path: Path) -> int:
    """Return how many words a policy hides."""
    passage = small.passages()[0]
    return len(entry(path).plugin().select(passage, np.random.default_rng(0)))


def test_an_import_inside_select_finds_what_lies_beside(write):
    body = "from helper import COUNT; import tools.deep"
    beside = {"helper_py": "COUNT = 2\n", "tools__deep_py": "import helper\n"}
    path = write("", body, **beside)
    other = write("", body, folder="b", helper_py="COUNT = 3\n", tools__deep_py="")
    assert (hidden(path), hidden(other), hidden(path)) == (2, 3, 2)
    assert set(code(path)) == {"mine.py", "helper.py", "tools/deep.py"}


def test_a_dot_in_the_name_of_a_file_makes_it_no_other_file(write):
    dotted = write("COUNT = 3\n", file="my.policy.py")
    plain = write("COUNT = 2\n", file="my_policy.py")
    assert (hidden(dotted), hidden(plain)) == (3, 2)


@pytest.mark.parametrize(
    ("head", "beside", "names"),
    [
        (
            "from pack.inner import COUNT",
            {
                "pack/__init__.py": "",
                "pack/inner.py": "from .words import COUNT\n",
                "pack/words.py": "from . import more\nfrom ..top import COUNT\n",
                "pack/more.py": "",
                "top.py": "COUNT = 1\n",
            },
            {"pack/__init__.py", "pack/inner.py", "pack/words.py", "pack/more.py", "top.py"},
        ),
        ("from .helper import COUNT", {"helper.py": "COUNT = 1\n"}, {"helper.py"}),
        (
            "import pack.one.two\nCOUNT = pack.one.two.COUNT",
            {"pack/__init__.py": "X = 1\n", "pack/one/two.py": "COUNT = 1\n"},
            {"pack/__init__.py", "pack/one/two.py"},
        ),
    ],
)
def test_a_change_in_any_module_that_is_imported_is_in_the_key(write, head, beside, names):
    path = write(head)
    for name, text in beside.items():
        target = path.parent / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    before = code(path)
    assert names < set(before)
    for name in names:
        changed = path.parent / name
        changed.write_text(changed.read_text() + "OTHER = 1\n")
        after = code(path)
        assert {each for each in before if before[each] != after[each]} == {name}
        before = after


def test_what_registers_for_another_file_is_in_the_key(write, tmp_path):
    maker = (
        "from dataclasses import dataclass\n"
        "from maskpolicy.plugins.registry import policy\n"
        "def make(name, count):\n"
        "    @policy(name)\n"
        "    @dataclass(frozen=True)\n"
        "    class Mine:\n"
        "        def select(self, passage, rng):\n"
        "            return passage.words[:count]\n"
    )
    path = write("", lib_py=maker)
    path.write_text(f"from lib import make\nmake({policy_of(path)!r}, 1)\n")
    before = code(path)
    path.write_text(f"from lib import make\nmake({policy_of(path)!r}, 2)\n")
    assert code(path) != before
    assert hidden(path) == 2


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (
            "import importlib\nCOUNT = importlib.import_module('helper').COUNT",
            "write `import helper`: importlib would hide it",
        ),
        (
            "import importlib\nCOUNT = importlib.import_module(f'{__package__}.helper').COUNT",
            "imports helper.py in a way that its key cannot follow: write `import helper`",
        ),
    ],
)
def test_what_a_key_cannot_follow_is_an_error(write, head, says):
    path = write(head, helper_py="COUNT = 1\n")
    assert says in refused(entry, path, match=r"plugin .*mine.py.*")


def test_a_module_may_have_the_name_of_the_installed_one_that_it_imports(write):
    head = "import numpy as n, json, helper as h, pack.inner\nfrom pack import inner\n"
    head += "COUNT = h.COUNT + pack.inner.ONE * (inner is pack.inner) * n.ones(1).dtype.itemsize"
    beside = {"helper_py": "COUNT = 1\n", "pack__inner_py": "ONE = 1\n", "json_py": "1 / 0\n"}
    assert hidden(write(head, file="numpy.py", **beside)) == 9


@pytest.mark.parametrize(
    ("head", "body", "declared", "name", "texts"),
    [
        (
            "from maskpolicy import file_of",
            "COUNT = len(file_of(self, 'words.txt').read_text())",
            *("words.txt", "words.txt", ("a", "abc")),
        ),
        (  # a declared module is in the key with its comments
            "import helper",
            "COUNT = len(open(__file__.replace('mine.py', 'helper.py')).read())",
            *("helper.py", "helper.py", ("# a\n", "# abc\n")),
        ),
        ("", "COUNT = 1", "lists", "lists/linked/a.txt", ("x", "y")),
    ],
)
def test_a_declared_file_is_in_the_key_and_can_be_read(
    write, tmp_path_factory, head, body, declared, name, texts
):
    path = write(head, body, files=f"files = ['{declared}']")
    path.with_name("lists").mkdir()
    path.with_name("lists").joinpath("linked").symlink_to(tmp_path_factory.mktemp("other"))
    (path.parent / name).write_text(texts[0])
    before = code(path)
    assert hidden(path) == len(texts[0])
    (path.parent / name).write_text(texts[1])
    after = code(path)
    assert {each for each in before if before[each] != after[each]} == {name}
    assert hidden(path) == len(texts[1])


def test_a_declared_file_that_does_not_exist_is_an_error(write):
    with pytest.raises(ConfigError, match="there is no"):
        code(write("COUNT = 1", files="files = ['gone.txt']"))


def test_a_file_that_was_not_declared_is_not_given(write):
    path = write("COUNT = 1")
    with pytest.raises(ConfigError, match=r"'words.txt' is not declared"):
        discovery.file_of(entry(path).plugin(), "words.txt")


def test_what_a_plugin_prints_is_no_output_of_the_command(write, capfd):
    path = write("print('imported')", "print('selects', 1, sep=': ')\n        COUNT = 1")
    assert hidden(path) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == ["imported", "selects: 1"]


ANNOTATE = """
from dataclasses import dataclass
from maskpolicy.plugins.registry import policy


@policy({name!r})
@dataclass(frozen=True)
class Mine:
    def annotate(self, passages, fitted=None):
        from helper import COUNT

        return {{"spans": [p.words[:COUNT] for p in passages]}}

    def select(self, passage, rng):
        return passage.columns["spans"]
"""


@pytest.fixture
def shards(write, monkeypatch):
    """A plugin that imports its helper late, and two shards of passages for two forks."""
    monkeypatch.setattr(annotation, "BATCH", 2)
    forks = forked.context()
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: forks)
    path = write("", helper_py="COUNT = 2\n")
    path.write_text(ANNOTATE.format(name=policy_of(path)))
    return path, list(small.passages())[:4]


def test_worker_processes_import_late_and_alike(shards):
    path, passages = shards
    policy = entry(path).plugin()
    one = annotation.annotate(policy, passages)
    two = annotation.annotate(policy, passages, workers=2)
    assert json.dumps([each.tolist() for each in one["spans"]]) == json.dumps(
        [each.tolist() for each in two["spans"]]
    )
    assert [len(each) for each in two["spans"]] == [2] * 4


@pytest.mark.parametrize("file", ["helper.py", "mine.py"])
def test_worker_processes_refuse_what_was_edited_since(shards, file):
    path, passages = shards
    made = entry(path)
    code_digests(made)
    edited = path.with_name(file)
    edited.write_text(edited.read_text() + "EDITED = 1\n")
    with pytest.raises(ConfigError, match=rf"{file}: was changed while a command that uses it"):
        annotation.annotate(made.plugin(), passages, workers=2)


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
        CODE.replace(b'"""A policy."""', b'"""Another sentence."""'),
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
        (b'"a"', b'b"a"'),
        (b"{1: None}", b"{True: None}"),
        (b"{**{1: None}", b"{None: {1: None}"),
        (b"!r}", b"!s}"),
        (b".2f}", b".3f}"),
        (b"@dataclass(frozen=True)\n", b""),
        (b"from dataclasses", b"from .dataclasses"),
        (b"if x != 0x10 and", b"if x != 0x10 if"),
    ],
)
def test_what_changes_code_changes_its_digest(old, new):
    assert CODE.count(old) >= 1
    assert digest_of_code(CODE.replace(old, new)) != digest_of_code(CODE)


@pytest.mark.parametrize("reads", [b"Mine.__doc__", b"import inspect\ninspect.getdoc(Mine)"])
def test_docstrings_count_in_a_file_that_reads_them(reads):
    code = CODE + reads
    assert digest_of_code(code) != digest_of_code(code.replace(b"A policy", b"Another"))
    assert digest_of_code(code) == digest_of_code(code + b"  # a comment\n")


def test_a_digest_is_the_same_in_every_version_of_python():
    """Several versions may use one store, so its keys must not depend on them."""
    assert (
        digest_of_code(CODE) == "f6b1db271068f44901ec40e43c91ba01e487037cd03c419169fc3840d4ecb8b7"
    )


@pytest.mark.parametrize("data", [b"def (", b"x = '\0'", b"x = '\xff'\n"])
def test_what_is_no_python_is_hashed_as_it_is(data):
    assert digest_of_code(data) != digest_of_code(data + b"# more\n")
