"""Mutated experiment files, command lines, data files and results: one line, or they work."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.kills import Wrong

from maskpolicy.errors import MaskpolicyError

ODD = (
    *("", "-", "--", "=", "a=b", "0", "-1", "1e400", "9" * 30, "0x" + "f" * 40, "nan", "null"),
    *("true", "~", "*a", "&a [*a]", "${x}", "${oc.env:HOME}", "{", "}", "[[", "!!python/object:x"),
    *(
        "\x1b[31m",
        "\x00",
        "\ufeff",
        "\u202e",
        "\U0001f9ea",
        "'",
        '"',
        "\\",
        "%s",
        "{0}",
        "\t",
        "\n",
    ),
    *(
        "/dev/null",
        "..",
        "../../x",
        "a/b",
        "a" * 3000,
        "=1+1",
        "<b>",
        "\\input{x}",
        "1",
        "[]",
        "{}",
    ),
)
WORDS = (
    *("name", "label", "policies", "tasks", "model", "corpus", "data", "seeds", "steps", "grid"),
    *("ratio", "target", "spans", "random", "none", "triviaqa", "zsre", "world", "files", "keys"),
    *("id", "input", "output", "answer", "question", "text", "title", "provenance", "context"),
)
COMMANDS = (
    ("plan", "quickstart", "seeds=[0,1]", "intermediate.steps=10", "--digest"),
    ("plan", "it.yaml", "--only", "random/zsre"),
    ("list", "policies", "--json"),
    ("list", "keys", "--markdown"),
    ("leaderboard", "run", "--baseline", "none", "--pairs", "--json"),
    ("examples", "zsre", "--data", "tasks", "--limit", "3", "--split", "dev"),
    ("status", "it.yaml", "--store", "store", "--json"),
    ("store", "verify", "--store", "store"),
    ("store", "du", "--store", "store"),
    ("gallery", "random", "--text", "Ada wrote notes."),
    ("show", "random", "policy.ratio=0.3", "--text", "Ada wrote notes.", "--seed", "1", "--json"),
    ("analyze", "coverage", "run", "--json"),
)
_LONGEST = 600  # characters of an error: those of the message, and what comes before it
_FAULT = re.compile(r"Traceback|a bug in maskpolicy|a fault of maskpolicy")


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Return a content with a few changes: bytes, words, lines and numbers."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        content = rng.choice(_MUTATIONS)(content, rng)
    return content


def _cut(content: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(content) + 1)
    return content[:begin] + content[begin + rng.randrange(40) :]


def _copy(content: bytes, rng: random.Random) -> bytes:
    begin, to = rng.randrange(len(content) + 1), rng.randrange(len(content) + 1)
    return content[:to] + content[begin : begin + rng.randrange(60)] + content[to:]


def _insert(content: bytes, rng: random.Random) -> bytes:
    odd = rng.choice((*ODD, *WORDS)).encode()
    if rng.random() < 0.1:
        odd = odd * rng.randrange(2000)
    place = rng.randrange(len(content) + 1)
    return content[:place] + odd + content[place:]


def _flip(content: bytes, rng: random.Random) -> bytes:
    if not content:
        return content
    place = rng.randrange(len(content))
    return content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :]


def _replace(content: bytes, rng: random.Random) -> bytes:
    found = list(re.finditer(rb"[\w.]+", content))
    if not found:
        return content
    one = rng.choice(found)
    odd = rng.choice((*ODD, *WORDS)).encode()
    return content[: one.start()] + odd + content[one.end() :]


def _lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    rng.shuffle(lines) if rng.random() < 0.3 else lines.pop(rng.randrange(len(lines)))
    return b"\n".join(lines)


def _nest(content: bytes, rng: random.Random) -> bytes:
    place, depth = rng.randrange(len(content) + 1), rng.choice((3, 60, 20_000))
    return content[:place] + rng.choice((b"[", b"{a: ", b'{"a":', b"- ")) * depth + content[place:]


_MUTATIONS = (_cut, _copy, _insert, _flip, _replace, _lines, _nest)


@dataclass(frozen=True)
class Said:
    """What a command gave."""

    code: int
    out: str
    err: str


def give(words: Sequence[str]) -> Said:
    """Give a command in this process; raises Wrong unless it works or ends in one line."""
    from maskpolicy.cli import app

    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = app(list(words), standalone_mode=False) or 0
    except Exception as error:
        raise Wrong(f"{_shown(words)}: {type(error).__name__}: {error}") from error
    said = Said(code, out.getvalue(), err.getvalue())
    errors = [line for line in said.err.splitlines() if line.startswith("error: ")]
    if _FAULT.search(said.err) or (code == 2 and len(errors) != 1) or code not in (0, 1, 2):
        raise Wrong(f"{_shown(words)}: exit code {code}: {said.err[-300:]}")
    if any(len(line) > _LONGEST or "\x1b" in line for line in errors):
        raise Wrong(f"{_shown(words)}: a line of {len(errors[0])} characters, or with escapes")
    return said


def _shown(words: Sequence[str]) -> str:
    return repr([word if len(word) < 80 else f"{word[:80]}.. ({len(word)})" for word in words])


def command_line(rng: random.Random) -> list[str]:
    """Return a command's words with some left out, exchanged, repeated, or replaced by odd ones."""
    words = list(rng.choice(COMMANDS))
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.randrange(1, len(words)) if len(words) > 1 else 0
        how = rng.randrange(5)
        if how == 0 and len(words) > 2:
            del words[place]
        elif how == 1:
            words[place] = rng.choice(ODD)
        elif how == 2:
            words.insert(place, rng.choice(ODD))
        elif how == 3:
            words[place] = mutated(words[place].encode(), rng).decode("utf-8", "replace")
        else:
            words.insert(place, rng.choice([word for line in COMMANDS for word in line[1:]]))
    return [words[0], *(word.replace("\x00", "") for word in words[1:])]


def refuses(call: Callable[[], object]) -> bool:
    """Return whether a call raises an error of one line of ours; raises Wrong for any other."""
    try:
        call()
    except MaskpolicyError as error:
        if "\n" in str(error):
            raise Wrong(f"several lines: {error}") from error
        return True
    except RecursionError as error:
        raise Wrong("RecursionError") from error
    except Exception as error:
        raise Wrong(f"{type(error).__name__}: {str(error)[:300]}") from error
    return False


def experiment(path: Path, originals: Sequence[Path], rng: random.Random) -> bool:
    """Write a mutated experiment file to `path`, and load it; returns whether it was refused."""
    from maskpolicy.config.parse import load_experiment

    path.write_bytes(mutated(rng.choice(originals).read_bytes(), rng))
    return refuses(lambda: load_experiment(path))


def rows(data: Path, tasks: Sequence[str], rng: random.Random) -> bool:
    """Mutate a file of a task below `data` (restored at the end), and read the task's splits."""
    from maskpolicy.config.experiment import TaskBlock
    from maskpolicy.formats import examples

    name = rng.choice(tasks)
    how: dict[str, Any] = {"on_error": rng.choice(("raise", "skip")), "context": rng.random() < 0.3}
    block = TaskBlock(name, name, data=str(data), **how)
    split = rng.choice(("train", "dev", "test"))
    path = rng.choice(examples.files(block, split, data, contexts=False))
    before = path.read_bytes()
    try:
        path.write_bytes(_in_format(path, before, rng))
        return refuses(lambda: list(examples.lines(block, split, data)))
    finally:
        path.write_bytes(before)


def documents(folder: Path, originals: Sequence[Path], rng: random.Random) -> bool:
    """Read the mutated copy of a corpus file; returns whether it was refused."""
    from maskpolicy.datafiles import readers

    original = rng.choice(originals)
    path = folder / original.name
    path.write_bytes(_in_format(original, original.read_bytes(), rng))
    return refuses(lambda: [row.value for row in readers.rows(path)])


def results(run: Path, names: Sequence[str], rng: random.Random) -> bool:
    """Mutate a file of a finished run (restored at the end), and rank its results."""
    from maskpolicy.leaderboard.build import build_leaderboard
    from maskpolicy.results.cell import read_run

    path = run / rng.choice(names)
    before = path.read_bytes()
    try:
        path.write_bytes(mutated(before, rng))
        return refuses(lambda: build_leaderboard([read_run(run)]))
    finally:
        path.write_bytes(before)


def _in_format(path: Path, content: bytes, rng: random.Random) -> bytes:
    """Return a mutated content; of a gzipped file, mostly what it holds is mutated."""
    if path.name.endswith(".gz") and rng.random() < 0.8:
        return gzip.compress(mutated(gzip.decompress(content), rng))
    return mutated(content, rng)


@contextlib.contextmanager
def below(folder: Path) -> Iterator[None]:
    """Work in a folder while the block runs, with a default store there."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
