"""Corpora of generated text: cut, annotated and opened by one or more workers.

Every measurement has a store of its own and fresh processes, each on one core.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np

_WORDS = 20_000  # of the invented language
_SENTENCES = 20_000  # that the passages are put together from
_LETTERS = list("aaabcdeeefghiiklmnooprsttuvw")
_MONTHS = ("January", "March", "May", "July", "October", "December")
_PARTS = ("plan", "corpus", "annotate", "first step")


@dataclass(frozen=True)
class Part:
    """What one worker took for one part of the work."""

    end: float  # seconds of the epoch
    cpu: float  # seconds of this process
    memory: int  # KiB in memory at the end, without what is mapped of files
    mapped: int  # KiB that were in memory at most, with what is mapped of files


def table(
    passages: Sequence[int], workers: Sequence[int], shard_mb: Sequence[float], folder: Path | None
) -> Iterator[str]:
    """Measure every combination and yield the lines of a table; `folder` holds the stores."""
    yield "| passages | text (MB) | shard (MB) | workers | " + " | ".join(_HEADS) + " |"
    yield "|---:|---:|---:|---:|" + "---:|" * len(_HEADS)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        for count in passages:
            home = Path(place) / str(count)
            prepare(home, count)
            for size, number in product(shard_mb, workers):
                yield _measure(home, count, size, number)


_HEADS = (
    *("plan (s)", "corpus (s)", "annotate (s)", "first step (s)"),
    *("corpus, passages per CPU second", "annotate, passages per CPU second"),
    *("memory (MiB)", "peak with mapped files (MiB)", "store (MB)"),
)


def _measure(home: Path, count: int, shard_mb: float, workers: int) -> str:
    """Return the row of one measurement: seconds until the last worker has ended each part."""
    with tempfile.TemporaryDirectory(dir=home) as store:
        command = [sys.executable, "-m", "benchmarks.corpus", store, str(shard_mb)]
        running = [_start(command, number) for number in range(workers)]
        said = [json.loads(each.communicate()[0].splitlines()[-1]) for each in running]
        size = sum(path.stat().st_size for path in Path(store).rglob("*") if path.is_file())
    found = [{name: Part(**part) for name, part in each.items()} for each in said]
    ends = [max(each[name].end for each in found) for name in ("start", *_PARTS)]
    wall = np.diff(ends).tolist()
    cpu = {name: sum(each[name].cpu for each in found) for name in _PARTS}
    cells = [
        f"{count:,}",
        f"{(home / 'text.jsonl').stat().st_size / 1e6:,.0f}",
        f"{shard_mb:g}",
        str(workers),
        *(f"{took:.1f} ({cpu[name]:.1f} CPU)" for took, name in zip(wall, _PARTS, strict=True)),
        *(f"{count / cpu[name]:,.0f}" for name in ("corpus", "annotate")),
        f"{max(part.memory for each in found for part in each.values()) / 1024:,.0f}",
        f"{max(each['first step'].mapped for each in found) / 1024:,.0f}",
        f"{size / 1e6:,.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _start(command: Sequence[str], number: int) -> subprocess.Popen[str]:
    """Start a worker on one core of this machine."""
    cores = sorted(os.sched_getaffinity(0))
    core = {cores[number % len(cores)]}
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, core),
    )


def prepare(home: Path, count: int) -> None:
    """Write the text, a tokenizer of it and a small BART."""
    from transformers import BartConfig, BartForConditionalGeneration

    from maskpolicy.models.scratch import train_tokenizer

    home.mkdir()
    rng = np.random.default_rng(0)
    sentences = list(_sentences(rng))
    with (home / "text.jsonl").open("w", encoding="utf-8") as file:
        for _ in range(count):
            drawn = rng.integers(0, _SENTENCES, 5).tolist()
            text = " ".join(" ".join(sentences[each] for each in drawn).split(" ")[:100])
            file.write(json.dumps({"text": text}) + "\n")
    tokenizer = train_tokenizer(sentences, 8192)
    tokenizer.save_pretrained(home / "model")
    config = BartConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
    )
    BartForConditionalGeneration(config).save_pretrained(home / "model")
    old = time.time() - 60  # a younger file may still be written to, so its digest is not kept
    os.utime(home / "text.jsonl", (old, old))


def _sentences(rng: np.random.Generator) -> Iterator[str]:
    """Yield sentences of invented words, frequent and rare ones, with names, dates and numbers."""
    words = ["".join(rng.choice(_LETTERS, rng.integers(2, 9))) for _ in range(_WORDS)]
    often = 1 / np.arange(1, _WORDS + 1)
    for _ in range(_SENTENCES):
        drawn = rng.choice(_WORDS, rng.integers(14, 28), p=often / often.sum())
        made = [words[each] for each in drawn]
        if rng.random() < 0.5:
            made[3:3] = [words[each].capitalize() for each in rng.integers(0, _WORDS, 2)]
        if rng.random() < 0.3:
            day, year = rng.integers([1, 1900], [28, 2000])
            made += ["on", str(day), str(rng.choice(_MONTHS)), str(year)]
        if rng.random() < 0.2:
            made += ["for", str(rng.integers(2, 900)), "miles"]
        yield " ".join([made[0].capitalize(), *made[1:]]) + "."


def _work(store_folder: Path, shard_mb: float) -> None:
    """Compute the stages as one worker; print what each part took."""
    import torch  # noqa: F401 (so that no part has the time of the import)
    import transformers.models.bart.modeling_bart  # noqa: F401

    from maskpolicy.experiment.parse import make_experiment
    from maskpolicy.pipeline import stages
    from maskpolicy.pipeline.graph.execution import execute
    from maskpolicy.pipeline.store.artifacts import Store

    done = {"start": _part(0.0)}
    home = store_folder.parent
    settings = {
        "model": str(home / "model"),
        "corpus": {"files": [str(home / "text.jsonl")], "shard_mb": shard_mb},
        "policies": [{"name": "salient-span"}],
        "tasks": [],
        "baseline": "salient-span",
        "intermediate": {"steps": 1},
    }
    experiment = make_experiment(settings, "benchmark", "", (home,), needs=())
    store = Store(store_folder)
    trained = stages.build(experiment, store.hash_file, store.cut_file).pretrained[
        "salient-span", 0
    ]
    done["plan"] = _part(done["start"].cpu)
    inputs = {name: trained.inputs[name] for name in ("corpus", "annotate")}
    for name, stage in {**inputs, "first step": trained}.items():
        outcome = execute([stage], store)[stage.key]
        if outcome.error:
            sys.exit(outcome.error)
        done[name] = _part(sum(part.cpu for part in done.values()))
    print(json.dumps({name: asdict(part) for name, part in done.items()}))


def _part(before: float) -> Part:
    used = resource.getrusage(resource.RUSAGE_SELF)
    status = Path("/proc/self/status").read_text(encoding="ascii").split()
    memory = int(status[status.index("RssAnon:") + 1])
    return Part(time.time(), used.ru_utime + used.ru_stime - before, memory, used.ru_maxrss)


if __name__ == "__main__":
    _work(Path(sys.argv[1]), float(sys.argv[2]))
