"""`python -m benchmarks gpu`: BART-base on one GPU, written to docs/development/benchmarks-gpu.md.

Training against Seq2SeqTrainer, what keeps the GPU waiting, several trainings on one card at a
time, a resumed training, generation, the span extractor, and episodes of the meta-learned policy.
Without a GPU the same code runs on the CPU, where it says nothing.
"""

from __future__ import annotations

import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

from benchmarks import comparison, generation, meta, training
from benchmarks.comparison import Setting
from benchmarks.measure import Once, Rate, interleaved, matrix_product, shown, table, wait
from benchmarks.trainer import theirs
from maskpolicy.core import hardware
from maskpolicy.core.errors import cause
from maskpolicy.experiment.budgets import resolve_auto
from maskpolicy.models.learned import extractor, windows
from maskpolicy.models.text_to_text import training_loss
from maskpolicy.models.training.loop import WORKERS, Feed, train
from maskpolicy.models.training.optimization import NoCheckpoints, Optimization, Start
from maskpolicy.pipeline.graph.preflight import BART, CARDS

_OURS = training.OURS
_GOAL = 0.45  # share of the peak
_TRACED = 20  # steps in which waits are counted, and in which the GPU's work is traced
_UNTIMED = 10  # first steps, in which the model is compiled and memory allocated
_SECONDS = 8.0  # that each of several trainings at a time is measured for


@dataclass(frozen=True)
class Sizes:
    """How much is measured; the defaults are those of the page."""

    model: str = "BART-base"  # or mini
    passages: Sequence[int] = (1024, 256, 64)  # a step
    steps: int = 60
    cells: Sequence[int] = (1, 4, 8)  # trainings on the card at a time
    seconds: float = _SECONDS
    repeats: int = 3
    limit: float = 60.0  # seconds of a comparison after which no further repeat begins
    compiles: bool = False  # measures torch.compile too, which takes minutes for each model


def report(sizes: Sizes, chosen: Sequence[str]) -> Iterator[str]:
    """Measure, and yield the `chosen` sections of the page, by names of `SECTIONS`.

    A section that fails is its title and its error; the others are still measured.
    """
    for name in chosen:
        try:
            yield from SECTIONS[name](sizes)
        except Exception as error:  # noqa: BLE001 - minutes on a GPU are not measured twice
            traceback.print_exc()
            yield f"## {name.capitalize()}\n\nNot measured: {cause(error)}."


def cores_for_masks(rates: Sequence[Rate]) -> str:
    """Return how many cores make the masks that a GPU at _GOAL of its peak reads."""
    needed = _GOAL * CARDS["h100"][0] / BART
    own = (rate for rate in rates if rate.name.startswith("maskpolicy"))
    cores = (f"{rate.name}: {needed / rate.median:.1f}" for rate in own)
    return (
        f"An H100 at {_GOAL:.0%} of its peak reads {needed:,.0f} tokens/s with BART-base "
        f"({BART / 1e9:g} GFLOP each). Cores that make so many: {'; '.join(cores)}."
    )


def peak() -> tuple[float, str]:
    """Return the FLOP/s that shares refer to, and what they are: the maker's, or measured."""
    import torch

    name = torch.cuda.get_device_name() if hardware.is_cuda() else ""
    for card, (most, _) in CARDS.items():
        if card.upper() in name and "PCIe" not in name and "MIG" not in name:
            return most, f"{card.upper()}'s {most / 1e12:.0f} TFLOP/s"
    precision = "bf16" if hardware.has_bf16() else "fp32"
    flop, seconds, _ = matrix_product(precision)()
    return flop / seconds, f"{flop / seconds / 1e12:.3g} TFLOP/s of a product of two matrices"


def _training(sizes: Sizes) -> Iterator[str]:
    most, what = peak()
    yield (
        "## Training\n\nNon-padding tokens (source and target) per second: passages of up to 128 "
        "tokens, without the first quarter of the steps. The Trainer has bf16, sdpa, batches by "
        "length and pinned memory in all rows; a row that is compiled says so. Shares of the peak "
        f"refer to {what}."
    )
    counted: dict[str, float] = {}
    for setting in _settings(sizes):
        rates = interleaved(_ways(setting, sizes.compiles), sizes.repeats, sizes.limit)
        if setting.name not in counted:
            counted[setting.name] = training.per_token(setting)
        each = counted[setting.name]
        noted = [
            replace(rate, note=f"{each * rate.median / most:.1%} of the peak; {rate.note}")
            for rate in rates
        ]
        lines = table(noted, "tokens/s", training.BEST)
        yield f"### {setting.name} targets, {setting.size} passages a step\n\n{lines}"


def _settings(sizes: Sizes) -> list[Setting]:
    """Return the settings of `comparison`, with so many passages and steps."""
    found = comparison.settings(sizes.steps, sizes.steps)
    chosen = [one for one in found if one.name.startswith(sizes.model)]
    return [replace(one, size=size) for one in chosen for size in sizes.passages]


def _ways(setting: Setting, compiles: bool) -> dict[str, Once]:
    count = len(setting.passages)  # as in ours, no step ends with an epoch
    epochs = range(-(-setting.size * setting.steps // count))
    places = [(item, epoch) for epoch in epochs for item in range(count)]
    best = {**training.best(setting), "places": places}
    ways = {
        training.BEST: theirs(setting, **best),
        _OURS: training.ours(setting, compile=False),
    }
    if compiles:
        compiled = theirs(setting, **best, torch_compile=True)
        ways[f"{training.BEST}, torch.compile"] = compiled
        ways[f"{_OURS}, compile"] = training.ours(setting, compile=True)
    return ways


def _waiting(sizes: Sizes) -> Iterator[str]:
    """Count the operations for which the host waits, and the time without work on the GPU."""
    lines = ["| targets | waits of the host a step | where | GPU idle |", "|---|---:|---|---:|"]
    for setting in _settings(replace(sizes, passages=[max(sizes.passages)])):
        step = _stepper(setting, compile=sizes.compiles)
        for _ in range(_UNTIMED):
            step()
        waits = _waits(step)
        idle = _idle(step)
        places = ", ".join(dict.fromkeys(waits)) or "none"
        lines.append(f"| {setting.name} | {len(waits) / _TRACED:.1f} | {places} | {idle:.0%} |")
    yield (
        f"## What the GPU waits for\n\nOver {_TRACED} steps of {max(sizes.passages)} passages: "
        "operations that `torch.cuda.set_sync_debug_mode` warns of, and the share of time in which "
        "no kernel runs, from a trace of the profiler. Two processes make the masks.\n\n"
        + "\n".join(lines)
    )


def _waits(step: Callable[[], float]) -> list[str]:
    """Return where the host waited for the GPU in _TRACED steps, each time as file and line.

    The mode is "warn", because "error" would end the steps at the first place.
    """
    import torch

    if not hardware.is_cuda():
        return []
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            for _ in range(_TRACED):
                step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    waits = (each for each in found if "synchronizing" in str(each.message))
    return [f"{Path(each.filename).name}:{each.lineno}" for each in waits]


def _idle(step: Callable[[], float]) -> float:
    """Return the share of _TRACED steps without work on the GPU (without one: no operation)."""
    from torch.profiler import DeviceType, ProfilerActivity, profile

    kind = "CUDA" if hardware.is_cuda() else "CPU"
    with profile(activities=[getattr(ProfilerActivity, kind)]) as trace:
        for _ in range(_TRACED):
            step()
        wait()
    ranges = [
        each.time_range
        for each in trace.events() or ()
        if each.device_type == getattr(DeviceType, kind)
    ]
    return idle_share([(each.start, each.end) for each in ranges])


def idle_share(busy: Sequence[tuple[float, float]]) -> float:
    """Return the share of the time from the first to the last interval that none of them covers."""
    covered, until = 0.0, min((begin for begin, _ in busy), default=0.0)
    first = until
    for begin, end in sorted(busy):
        covered += max(0.0, end - max(begin, until))
        until = max(until, end)
    return 1 - covered / (until - first) if until > first else 0.0


def _resuming(sizes: Sizes) -> Iterator[str]:
    """Stop a training in its middle and resume it: do its weights equal those of a whole one?"""
    (setting, *_) = _settings(replace(sizes, passages=[min(sizes.passages)]))
    half = sizes.steps // 2
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder, "state")
        whole, again = _trained(setting), _trained(setting)
        _trained(setting, until=half, state=state)
        halves = _trained(setting, start=Start(half, state, {}))
        size = sum(file.stat().st_size for file in state.iterdir())
    found = " and ".join(
        f"{name}: {'equal' if not apart else f'they differ by up to {apart:.1e}'}"
        for name, apart in (("repeated", _apart(whole, again)), ("resumed", _apart(whole, halves)))
    )
    yield (
        f"## A resumed training\n\n{sizes.steps} steps of {setting.name}, not compiled, repeated, "
        f"and resumed after {half} steps from a state of {size / 1e6:.0f} MB. The weights at the "
        f"end, {found}."
    )


def _trained(setting: Setting, **parts: Any) -> Any:
    """Return a trained model; `parts` says how much of the training this is (see `train`)."""
    spec, module = resolve_auto(replace(setting.spec, compile=False)), setting.fresh()
    module.set_attn_implementation(spec.attention)
    if "state" in parts:
        parts["state"].mkdir()
    steps = setting.masked(spec)
    train(module, steps, training_loss(), spec, NoCheckpoints(), training.silent, **parts)
    return module.cpu()


def _apart(one: Any, two: Any) -> float:
    """Return the largest difference between a weight of two models."""
    pairs = zip(one.state_dict().values(), two.state_dict().values(), strict=True)
    return max(float((first - second).abs().max()) for first, second in pairs)


def _cells(sizes: Sizes) -> Iterator[str]:
    """Measure several processes that train at a time, as `--jobs` starts them."""
    lines = ["| model | at a time | tokens/s of all | ratio to one |", "|---|---:|---:|---:|"]
    for model in dict.fromkeys(("mini", sizes.model)):
        first = 0.0
        for count in sizes.cells:
            every = _at_a_time(model, count, sizes)
            first = first or every
            lines.append(f"| {model} | {count} | {shown(every)} | {every / first:.2f} |")
    yield (
        "## Several trainings on one card\n\nProcesses that train at a time, each a model of its "
        f"own on spans targets with {min(sizes.passages)} passages a step, not compiled; "
        f"measured once for {sizes.seconds:g} seconds.\n\n" + "\n".join(lines)
    )


def _at_a_time(model: str, count: int, sizes: Sizes) -> float:
    """Return the tokens per second of `count` trainings together."""
    context = get_context("spawn")
    ready = context.Barrier(count)
    with ProcessPoolExecutor(count, context, _receive, (ready,)) as pool:
        jobs = [pool.submit(_train_for, model, sizes) for _ in range(count)]
        errors = [error for job in jobs if (error := job.exception()) is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, BrokenBarrierError)):
            raise error
        return sum(job.result() for job in jobs)


_ready: Any = None  # the barrier that all trainings wait at


def _receive(barrier: Any) -> None:
    global _ready
    _ready = barrier


def _train_for(model: str, sizes: Sizes) -> float:
    """Train after all others have warmed up too; return the tokens per second."""
    import torch

    torch.set_num_threads(1)
    (setting,) = [
        one
        for one in _settings(replace(sizes, model=model, passages=[min(sizes.passages)]))
        if one.name.endswith("spans")
    ]
    try:
        step = _stepper(setting, compile=False)
        for _ in range(_UNTIMED):
            step()
        wait()
    except BaseException:
        _ready.abort()  # else the others would wait for this one
        raise
    _ready.wait()
    begin, tokens = time.perf_counter(), 0.0
    while time.perf_counter() - begin < sizes.seconds:
        tokens += sum(step() for _ in range(5))
        wait()  # else the clock would run ahead of the GPU
    return tokens / (time.perf_counter() - begin)


def _stepper(setting: Setting, **changes: Any) -> Callable[[], float]:
    """Return a function that takes one optimizer step, as `train` does, and returns its tokens."""
    spec = resolve_auto(replace(setting.spec, **changes))
    module = setting.fresh()
    module.set_attn_implementation(spec.attention)
    module.train()
    run = Optimization(module, spec, 10**9)
    loss = hardware.compiled(training_loss()) if spec.compile else training_loss()
    workers = WORKERS.get(run.device.type, 0)
    feed = Feed(setting.masked(spec), run, 0, workers, "")
    steps = iter(feed)

    def step() -> float:
        number, data = next(steps)
        while not run.step(number, data, loss):
            data = feed.shrink(number)
        return data.work["source_tokens"] + data.work["target_tokens"]

    return step


def _generation(sizes: Sizes) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        found = generation.ways(Path(folder), sizes.model)
        rates = interleaved(found, sizes.repeats)
    yield (
        f"## Generation\n\nAnswers per second of an untrained {sizes.model} to the world's "
        f"dialogues, at most 24 tokens each, batches of {generation.BATCH}.\n\n"
        + table(rates, "answers/s", generation.PLAIN)
    )


def _extracting(sizes: Sizes) -> Iterator[str]:
    """Measure how fast a span extractor annotates a corpus, as for `supervised`."""
    import torch

    (setting, *_) = _settings(replace(sizes, passages=[min(sizes.passages)]))
    vocabulary = setting.tokenizer.vocab_size
    reader = extractor.build(torch.randn(vocabulary, 256), 0).to(hardware.device()).eval()
    count = min(len(setting.passages), sizes.steps * min(sizes.passages))
    passages = [setting.passages[i] for i in range(count)]
    words = sum(len(each.words) for each in passages)

    def once() -> tuple[float, float, str]:
        begin = time.perf_counter()
        windows.candidates(reader, passages, 5, 10)
        wait()
        return words, time.perf_counter() - begin, ""

    rates = interleaved({"span extractor": once}, sizes.repeats)
    yield (
        "## Span extractor\n\nWords per second that an untrained extractor of width 128 annotates "
        f"with five candidates a passage.\n\n{table(rates, 'words/s', 'span extractor')}"
    )


def _episodes(sizes: Sizes) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        found = {
            name: once
            for name, once in meta.ways(Path(folder)).items()
            if "functional" in name or name == meta.BASE
        }
        rates: list[Rate] = interleaved(found, sizes.repeats)
    yield (
        "## Meta-learning\n\nEpisodes of the meta-learned policy per minute, 8 candidates each, an "
        "untrained mini.\n\n" + table(rates, "episodes/min", meta.BASE)
    )


SECTIONS: Mapping[str, Callable[[Sizes], Iterator[str]]] = {
    "training": _training,
    "waiting": _waiting,
    "resuming": _resuming,
    "cells": _cells,
    "generation": _generation,
    "extracting": _extracting,
    "episodes": _episodes,
}
