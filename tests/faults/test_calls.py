"""Changes of the file system are counted; a loss of power empties unflushed files."""

import os
import random
import signal

from faults import calls, forks


def _write(folder):
    (folder / "one").write_text("1")
    (folder / "two").write_text("2")
    (folder / "two").rename(folder / "three")
    return 0


def test_a_process_ends_before_its_nth_change(tmp_path):
    for moment, names in ((0, []), (1, ["one"]), (2, ["one", "two"]), (3, ["one", "three"])):
        folder = tmp_path / str(moment)
        folder.mkdir()

        def call(folder=folder, moment=moment):
            calls.signal_before(moment)
            return _write(folder)

        code = forks.wait(forks.start(call, tmp_path / "said"))
        assert code == (-signal.SIGKILL if moment < 3 else 0)
        assert sorted(path.name for path in folder.iterdir()) == names


def test_only_what_was_not_flushed_is_lost(tmp_path):
    folder, record = tmp_path / "it", tmp_path / "record"
    folder.mkdir()

    def call():
        calls.record_flushes(record)
        _write(folder)
        with (folder / "one").open("rb") as file:
            os.fsync(file.fileno())
        return 0

    assert forks.wait(forks.start(call, tmp_path / "said")) == 0
    assert calls.lose(folder, record, random.Random(0)) == 1
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"one": "1", "three": ""}
