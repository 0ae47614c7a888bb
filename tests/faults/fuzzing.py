"""Mutated experiment files, command lines, data files and results: one line, or they work."""

import contextlib
import csv
import gzip
import io
import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
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
_LONGEST = 600  # characters of an error, including its prefix
# what no name of a board may be in its forms: HTML, LaTeX, a formula
_ACTIVE = {".html": "<q7>", ".md": "<q7>", ".tex": r"\\input|(?<!\\)\$x", ".csv": "(?m)^[=+@]"}
_TOKENIZERS = (("bpe", "bart"), ("wordpiece", "bert"), ("unigram", "t5"))
# an alphanumeric word, another one, and control characters
_LONG = ("ab", "a-", "".join(map(chr, (*range(32), *range(127, 160), *range(0x200B, 0x2030)))))
csv.field_size_limit(1 << 30)  # a mutated name may be long
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
    """Return a command's words with some removed, replaced, repeated or mutated."""
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


def command(folder: Path, rng: random.Random) -> bool:
    """Give a mutated command line in a folder; return whether it is refused."""
    with below(folder):
        return give(command_line(rng)) == 2


def refuses(call: Callable[[], object]) -> bool:
    """Return whether a call raises a MaskpolicyError of one line; raises Wrong for other errors."""
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
    """Write a mutated experiment file to `path`, and load it; return whether it is refused."""
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
    split = "test" if name == "blimp" else rng.choice(("train", "dev", "test"))
    with _mutation(rng.choice(examples.files(block, split, data, contexts=False)), rng):
        return refuses(lambda: list(examples.lines(block, split, data)))


def write_tasks(folder: Path) -> None:
    """Write files as those of BLiMP and CoNLL below a folder."""
    pairs = [
        {"sentence_good": f"Who leaves {n}?", "sentence_bad": f"Who leave {n}?", "UID": "island"}
        for n in range(4)
    ]
    more = {"field": "syntax", "linguistics_term": "island_effects", "one_prefix_method": True}
    lines = [json.dumps({**pair, **more, "pairID": str(n)}) for n, pair in enumerate(pairs)]
    (folder / "blimp").mkdir(parents=True)
    (folder / "blimp" / "island.jsonl").write_text("\n".join(lines))
    for name in ("train", "dev", "test"):
        sentence = "U.N. NNP I-NP I-ORG\nofficial NN I-NP O\nEkeus NNP I-NP I-PER\n\n"
        (folder / f"{name}.txt").write_text(f"-DOCSTART- -X- -X- O\n\n{3 * sentence}")


def write_corpora(folder: Path, lines: Sequence[str]) -> None:
    """Write the texts of lines of JSON as corpora in all formats to a folder."""
    import pandas

    folder.mkdir()
    rows = [json.loads(line) for line in lines]
    texts = [row["text"] for row in rows]
    (folder / "text.txt").write_text("\n\n".join(texts))
    (folder / "rows.jsonl").write_text("\n".join(lines))
    (folder / "list.json").write_text(json.dumps(rows))
    pandas.DataFrame({"text": texts}).to_parquet(folder / "rows.parquet")
    cells = [text.replace('"', '""') for text in texts]
    for name, mark in (("rows.csv", ","), ("rows.tsv", "\t")):
        table = "".join(f'{i}{mark}"{cell}"\n' for i, cell in enumerate(cells))
        (folder / name).write_text(f"id{mark}text\n{table}")


def write_scores(folder: Path) -> None:
    """Write scores of single examples, as tables and as a stored board, to a folder."""
    import pandas as pd

    from maskpolicy.leaderboard.given_scores import build_board
    from maskpolicy.leaderboard.report import to_json

    folder.mkdir()
    lines = [
        {"system": system, "task": task, "example": n, "seed": seed, "score": (n + at) % 3 / 2}
        for at, system in enumerate(("base", "=1+1", "<q7>far"))
        for task in ("qa", "$x_1$")
        for seed in range(3)
        for n in range(4)
    ]
    frame = pd.DataFrame(lines)
    frame.to_csv(folder / "scores.csv", index=False)
    frame.to_csv(folder / "scores.tsv", index=False, sep="\t")
    frame.to_json(folder / "scores.jsonl", orient="records", lines=True)
    frame.to_parquet(folder / "scores.parquet")
    frame.replace("base", "base\x1b[31m").to_csv(folder / "escape.csv", index=False)
    (folder / "leaderboard.json").write_text(json.dumps(to_json(build_board(frame))))


def scores(originals: Sequence[Path], to: Path, rng: random.Random) -> bool:
    """Mutate scores or a board of strangers (restored at the end), and write the board's forms."""
    from maskpolicy.leaderboard.given_scores import build_board
    from maskpolicy.leaderboard.page import save_forms, site_index
    from maskpolicy.leaderboard.score_files import read_scores
    from maskpolicy.leaderboard.stored_board import FILE, read_board

    def board() -> None:
        is_board = path.name == FILE
        made = read_board(path.parent) if is_board else build_board(read_scores([path])[0])
        site_index.save_index([site_index.entry(made, "board")], to / "site.html", "boards")
        save_forms(made, to / "board")

    with _mutation(rng.choice(originals), rng) as path:
        is_refused = refuses(board)
        for form in () if is_refused else (to / "site.html", *(to / "board").iterdir()):
            shown = form.read_text(encoding="utf-8")
            if form.suffix == ".csv":  # a cell a line
                shown = "\n".join(chain.from_iterable(csv.reader(shown.splitlines())))
            if active := re.search(_ACTIVE.get(form.suffix, "\x1b") + "|\x1b", shown):
                raise Wrong(f"{form.name} has {active[0]!r}: {path.read_bytes()[:300]!r}")
        return is_refused


def shape(path: Path, rng: random.Random) -> bool:
    """Write a model of odd sizes, and plan with it; return whether it is refused."""
    from maskpolicy.experiment.parse import load_experiment
    from maskpolicy.pipeline import stages

    odd = (0, -1, 1, 2, 3, 8, 64, 400, 1000, 10**5, 10**9, 10**18, 1.5, "x", None, [2])
    names = ("layers", "width", "heads", "feed_forward", "vocabulary", "decoder_layers")
    model: dict[str, Any] = {name: rng.choice(odd) for name in rng.sample(names, 2)}
    kind = rng.choice(("bart", "t5", "roberta", "bert", "modernbert"))
    model |= {"architecture": kind, "width": model.get("width", 64)}
    if rng.random() < 0.3:
        keys = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
        config = {key: rng.choice(odd) for key in rng.sample(keys, 2)}
        written = path.with_name("config.json")
        written.write_text(json.dumps({"model_type": "roberta", **config}))
        model = {"name": str(written), "kind": "encoder"}
    text = {"model": model, "corpus": "world", "policies": ["none"], "tasks": ["cola"]}
    path.write_text(json.dumps(text))
    return refuses(lambda: stages.build(load_experiment(path)))


def text(original: str, rng: random.Random) -> bool:
    """Segment a mutated text, or train a tokenizer on it; return whether it is refused."""
    from maskpolicy.data.corpus import segmentation
    from maskpolicy.experiment.model_and_corpus import check_language

    hostile = mutated(original.encode(), rng).decode("utf-8", "replace")
    hostile = rng.choice(("a", "ab", "語")) * 1_000_000 if rng.random() < 0.03 else hostile
    language = rng.choice(("en", "de", "ja", "th", "ar", "hi", "zh", "ko", "ru", *ODD[:8]))

    def use() -> None:
        if rng.random() < 0.2:
            _learn(hostile, *rng.choice(_TOKENIZERS))
            return
        check_language(language, "language")
        rules = segmentation.segmenter(language)
        starts = rules.sentences(hostile)
        words = [match.span() for match in rules.words.finditer(hostile)]
        if starts != sorted(set(starts)) or any(a[1] > b[0] for a, b in pairwise(words)):
            raise Wrong(f"{language}: cuts out of order: {hostile[:300]!r}")

    return refuses(use)


def long_text(number: int, rng: random.Random) -> Counter[str]:
    """Train a tokenizer of each algorithm on each of _LONG in turn, of 3 million characters."""
    tokenizer, unit = _TOKENIZERS[number % 3], _LONG[number // 3 % 3]
    text = unit * (3_000_000 // len(unit))
    return Counter(trials=1, refused=refuses(partial(_learn, text, *tokenizer)))


def _learn(text: str, algorithm: Any, style: Any) -> None:
    """Train a tokenizer on a text, which it then cuts."""
    from maskpolicy.models.scratch import train_tokenizer

    made = train_tokenizer(text.split("\n"), 500, algorithm, style)
    made.decode(made(text)["input_ids"])


def documents(originals: Sequence[Path], rng: random.Random) -> bool:
    """Mutate a corpus file (restored at the end), and read it; return whether it is refused."""
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
    """Mutate a file, or the content of a gzipped one, while the block runs."""
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
