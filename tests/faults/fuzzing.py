"""Mutated experiment files, command lines, data files and results: one line, or they work."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from faults.kills import Wrong

from maskpolicy.core.errors import MaskpolicyError

ODD = (
    *str.split(
        "- -- = a=b 0 -1 1e400 nan null true ~ *a ${x} ${oc.env:HOME} { } [[ [] {} ' %s {0}"
    ),
    *str.split("/dev/null .. ../../x a/b =1+1 <b> \\input{x} 1 !!python/object:x"),
    *("", "9" * 30, "0x" + "f" * 40, "a" * 3000, "&a [*a]", "\t", "\n", '"', "\\"),
    *("\x1b[31m", "\x00", "\ufeff", "\u202e", "\U0001f9ea"),
)
WORDS = (
    *str.split("name label policies tasks model corpus data seeds steps grid ratio target spans"),
    *str.split("random none triviaqa zsre world files keys id input output answer question text"),
    *str.split("title provenance context"),
)
COMMANDS = [
    line.split("|")
    for line in (
        "plan|quickstart|seeds=[0,1]|intermediate.steps=10|--json",
        "plan|it.yaml|--only|random/zsre",
        "list|policies|--json",
        "list|keys|--markdown",
        "leaderboard|run|--baseline|none|--pairs|--json",
        "examples|zsre|--data|tasks|--limit|3|--split|dev",
        "status|it.yaml|--store|store|--json",
        "store|verify|--store|store",
        "store|du|--store|store",
        "gallery|random|--text|Ada wrote notes.",
        "show|random|policy.ratio=0.3|--text|Ada wrote notes.|--seed|1|--json",
        "analyze|coverage|run|--json",
    )
]
_LONGEST = 600  # characters of an error: those of the message, and what comes before it
_FAULT = re.compile(r"Traceback|a bug in maskpolicy|a fault of maskpolicy")


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Return a content with a few changes: bytes, words, lines and nested brackets."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        content = _changed(content, rng)
    return content


def _changed(content: bytes, rng: random.Random) -> bytes:
    begin, to = (rng.randrange(len(content) + 1) for _ in range(2))
    odd = rng.choice((*ODD, *WORDS)).encode()
    words, lines = list(re.finditer(rb"[\w.]+", content)), content.split(b"\n")
    match rng.choice(("cut", "copy", "insert", "flip", "replace", "lines", "nest")):
        case "cut":
            return content[:begin] + content[begin + rng.randrange(40) :]
        case "copy":
            return content[:to] + content[begin : begin + rng.randrange(60)] + content[to:]
        case "insert":
            times = rng.randrange(2000) if rng.random() < 0.1 else 1
            return content[:to] + odd * times + content[to:]
        case "flip":
            return content[:to] + bytes([rng.randrange(256)]) + content[to + 1 :]
        case "replace" if words:
            word = rng.choice(words)
            return content[: word.start()] + odd + content[word.end() :]
        case "lines":
            rng.shuffle(lines) if rng.random() < 0.3 else lines.pop(rng.randrange(len(lines)))
            return b"\n".join(lines)
        case "nest":
            nested = rng.choice((b"[", b"{a: ", b'{"a":', b"- ")) * rng.choice((3, 60, 20_000))
            return content[:to] + nested + content[to:]
    return content


def give(words: Sequence[str]) -> int:
    """Give a command in this process, and return its exit code.

    Raises Wrong unless it works or ends in one line.
    """
    from maskpolicy.app.commands import app

    out, said = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            code = app(list(words), standalone_mode=False) or 0
    except Exception as error:
        raise Wrong(f"{_shown(words)}: {type(error).__name__}: {error}") from error
    err = said.getvalue()
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    if _FAULT.search(err) or (code == 2 and len(errors) != 1) or code not in (0, 1, 2):
        raise Wrong(f"{_shown(words)}: exit code {code}: {err[-300:]}")
    if any(len(line) > _LONGEST or "\x1b" in line for line in errors):
        raise Wrong(f"{_shown(words)}: a line of {len(errors[0])} characters, or with escapes")
    return int(code)


def _shown(words: Sequence[str]) -> str:
    return repr([word if len(word) < 80 else f"{word[:80]}.. ({len(word)})" for word in words])


def command_line(rng: random.Random) -> list[str]:
    """Return a command's words with some left out, exchanged, repeated, or replaced by odd ones."""
    words = list(rng.choice(COMMANDS))
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.randrange(1, len(words)) if len(words) > 1 else 0
        odd = rng.choice((*ODD, *(word for line in COMMANDS for word in line[1:])))
        match rng.choice(("delete", "replace", "insert", "mutate")):
            case "delete" if len(words) > 2:
                del words[place]
            case "replace":
                words[place] = odd
            case "insert":
                words.insert(place, odd)
            case "mutate":
                words[place] = mutated(words[place].encode(), rng).decode("utf-8", "replace")
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
    from maskpolicy.experiment.parse import load_experiment

    path.write_bytes(mutated(rng.choice(originals).read_bytes(), rng))
    return refuses(lambda: load_experiment(path))


def rows(data: Path, tasks: Sequence[str], rng: random.Random) -> bool:
    """Mutate a file of a task below `data` (restored at the end), and read the task's splits."""
    from maskpolicy.data.taskfiles import examples
    from maskpolicy.experiment.definition import TaskBlock

    name = rng.choice(tasks)
    how: dict[str, Any] = {"on_error": rng.choice(("raise", "skip")), "context": rng.random() < 0.3}
    block = TaskBlock(name, name, data=str(data), **how)
    split = rng.choice(("train", "dev", "test"))
    with _mutation(rng.choice(examples.files(block, split, data, contexts=False)), rng):
        return refuses(lambda: list(examples.lines(block, split, data)))


def documents(originals: Sequence[Path], rng: random.Random) -> bool:
    """Mutate a corpus file (restored at the end), and read it; returns whether it was refused."""
    from maskpolicy.data.datafiles import readers

    with _mutation(rng.choice(originals), rng) as path:
        return refuses(lambda: [row.value for row in readers.rows(path)])


def results(run: Path, names: Sequence[str], rng: random.Random) -> bool:
    """Mutate a file of a finished run (restored at the end), and rank its results."""
    from maskpolicy.leaderboard.build import build_leaderboard
    from maskpolicy.leaderboard.results.cell import read_run

    with _mutation(run / rng.choice(names), rng):
        return refuses(lambda: build_leaderboard([read_run(run)]))


@contextlib.contextmanager
def _mutation(path: Path, rng: random.Random) -> Iterator[Path]:
    """Mutate a file, or what a gzipped one holds, while the block runs."""
    before = path.read_bytes()
    if path.name.endswith(".gz") and rng.random() < 0.8:
        path.write_bytes(gzip.compress(mutated(gzip.decompress(before), rng)))
    else:
        path.write_bytes(mutated(before, rng))
    try:
        yield path
    finally:
        path.write_bytes(before)


@contextlib.contextmanager
def below(folder: Path) -> Iterator[None]:
    """Work in a folder while the block runs, with a default store there."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
