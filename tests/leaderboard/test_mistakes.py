"""Every file of results or scores that cannot be read is an error of one line that names it.

Each line of messages.txt is a case: "write" puts a file with this text into the folder of a run,
"change" other values into one of its results, "board" is for a file of given scores. Texts are
written as in Python; \\udce9 is a byte that is no UTF-8.
"""

import json
import shutil
from pathlib import Path

import folders
import pytest
from refusals import messages


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """The folder of a run with two rows."""
    shares = {"none": 0.2, "random": 0.6}
    return folders.write(tmp_path_factory.mktemp("one") / "run", shares, ("zsre",), seeds=1, n=9)


@pytest.mark.parametrize(("given", "said"), [*messages(__file__)], ids=lambda text: text[:60])
def test_a_file_that_cannot_be_read_is_one_line(refused, run, tmp_path, given, said):
    command, place, *text = given.split(" ", 2)
    path = shutil.copytree(run, tmp_path / "run") / place
    if command == "change":
        folders.change(tmp_path / "run", path.name, **json.loads(*text))
    else:
        content = "".join(text).encode().decode("unicode_escape")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
    page = ("leaderboard", tmp_path / "run", "--html", tmp_path / "it.html")
    line = refused(*(("board", path) if command == "board" else page))
    assert said in line and "Arrow" not in line
