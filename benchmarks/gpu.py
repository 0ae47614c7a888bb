"""`python -m benchmarks gpu`: BART-base on one GPU, written to docs/development/benchmarks-gpu.md.

Training against Seq2SeqTrainer, what keeps the GPU waiting, several trainings on one card at a
time, a resumed training, generation, the span extractor, and episodes of the meta-learned policy.
Without a GPU the same code runs on the CPU, where it says nothing.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks import comparison, generation, meta, training
from benchmarks.comparison import Setting
from benchmarks.measure import Once, Rate, interleaved, matrix_product, shown, table, wait
from benchmarks.trainer import theirs
from maskpolicy.core import hardware
from maskpolicy.experiment.budgets import resolve_auto
from maskpolicy.models.learned import extractor, windows
from maskpolicy.models.text_to_text import training_loss
from maskpolicy.models.training.loop import train
from maskpolicy.models.training.optimization import Optimization, Start
from maskpolicy.pipeline.graph.preflight import BART, CARDS

_OURS = training.OURS
_GOAL = 0.45  # share of the peak
_TRACED = 20  # steps in which waits are counted, and in which the GPU's work is traced
_SECONDS = 8.0  # that each of several trainings at a time is measured for


@dataclass(frozen=True)
class Sizes:
    """How much is measured; the defaults are those of the page."""

    model: str = "BART-base"  # or mini
    passages: Sequence[int] = (64, 256, 1024)  # a step
    steps: int = 60
    cells: Sequence[int] = (1, 2, 4, 8)  # trainings on the card at a time
    seconds: float = _SECONDS
    repeats: int = 3


def report(sizes: Sizes) -> Iterator[str]:
    """Measure, and yield the sections of the page."""
    yield _training(sizes)
    yield _waiting(sizes)
    yield _cells(sizes)
    yield _resuming(sizes)
    yield _generation(sizes)
    yield _extracting(sizes)
    yield _episodes(sizes)


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
        if card.upper() in name:
            return most, f"{card.upper()}'s {most / 1e12:.0f} TFLOP/s"
    precision = "bf16" if hardware.has_bf16() else "fp32"
    flop, seconds, _ = matrix_product(precision)()
    return flop / seconds, f"{flop / seconds / 1e12:.3g} TFLOP/s of a product of two matrices"


def _training(sizes: Sizes) -> str:
    most, what = peak()
    parts = [
        "## Training\n\nNon-padding tokens (source and target) per second: passages of up to 128 "
        "tokens, without the first quarter of the steps, in which models are compiled. The Trainer "
        "has bf16, sdpa, batches by length and pinned memory in all rows. Shares of the peak refer "
        "to "
        f"{what}."
    ]
    for setting in _settings(sizes):
        rates = interleaved(_ways(setting), sizes.repeats)
        each = training.per_token(setting)
        noted = [
            replace(rate, note=f"{each * rate.median / most:.1%} of the peak; {rate.note}")
            for rate in rates
        ]
        lines = table(noted, "tokens/s", training.BEST)
        parts.append(f"### {setting.name} targets, {setting.size} passages a step\n\n{lines}")
    return "\n\n".join(parts)


def _settings(sizes: Sizes) -> list[Setting]:
    """Return the settings of `comparison`, with so many passages and steps."""
    found = comparison.settings(sizes.steps, sizes.steps)
    chosen = [one for one in found if one.name.startswith(sizes.model)]
    return [replace(one, size=size) for size in sizes.passages for one in chosen]


def _ways(setting: Setting) -> dict[str, Once]:
    ways = {
        training.BEST: theirs(setting, **training.best(setting)),
        _OURS: training.ours(setting),
        f"{_OURS}, 4 workers": training.ours(setting, workers=4),
    }
    if hardware.is_cuda():
        compiled = theirs(setting, **training.best(setting), torch_compile=True)
        ways[f"{training.BEST}, torch.compile"] = compiled
        ways[f"{_OURS}, 4 workers, compile"] = training.ours(setting, workers=4, compile=True)
    return ways


def _waiting(sizes: Sizes) -> str:
    """Count the operations for which the host waits, and the time without work on the GPU."""
    lines = ["| targets | waits of the host a step | GPU idle |", "|---|---:|---:|"]
    for setting in _settings(replace(sizes, passages=[max(sizes.passages)])):
        step = _stepper(setting)
        for number in range(3):  # the first ones compile and allocate
            step(number)
        waits = _waits(step, range(3, 3 + _TRACED)) / _TRACED
        idle = _idle(step, range(3 + _TRACED, 3 + 2 * _TRACED))
        lines.append(f"| {setting.name} | {waits:.1f} | {idle:.0%} |")
    return (
        f"## What the GPU waits for\n\nOver {_TRACED} steps of {max(sizes.passages)} passages: "
        "operations that `torch.cuda.set_sync_debug_mode` warns of, and the share of time in which "
        "no kernel runs, from a trace of the profiler. Masks are made in the same process.\n\n"
        + "\n".join(lines)
    )


def _waits(step: Callable[[int], float], numbers: Sequence[int]) -> int:
    """Return how many operations made the host wait for the GPU."""
    import torch

    if not hardware.is_cuda():
        return 0
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            for number in numbers:
                step(number)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(each.message) for each in found)


def _idle(step: Callable[[int], float], numbers: Sequence[int]) -> float:
    """Return the share of time without work on the GPU (without one: without an operation)."""
    from torch.profiler import DeviceType, ProfilerActivity, profile

    kind = "CUDA" if hardware.is_cuda() else "CPU"
    with profile(activities=[getattr(ProfilerActivity, kind)]) as trace:
        for number in numbers:
            step(number)
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


def _resuming(sizes: Sizes) -> str:
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
    return (
        f"## A resumed training\n\n{sizes.steps} steps of {setting.name}, repeated, and resumed "
        f"after {half} steps from a state of {size / 1e6:.0f} MB. The weights at the end, {found}."
    )


def _trained(setting: Setting, **parts: Any) -> Any:
    """Return a trained model; `parts` says how much of the training this is (see `train`)."""
    spec, module = resolve_auto(setting.spec), setting.fresh()
    module.set_attn_implementation(spec.attention)
    if "state" in parts:
        parts["state"].mkdir()
    steps = setting.masked(spec)
    train(module, steps, training_loss(), spec, training.NoCheckpoints(), training.silent, **parts)
    return module.cpu()


def _apart(one: Any, two: Any) -> float:
    """Return the largest difference between a weight of two models."""
    pairs = zip(one.state_dict().values(), two.state_dict().values(), strict=True)
    return max(float((first - second).abs().max()) for first, second in pairs)


def _cells(sizes: Sizes) -> str:
    """Measure several processes that train at a time, as `--jobs` starts them."""
    lines = ["| model | at a time | tokens/s of all | ratio to one |", "|---|---:|---:|---:|"]
    for model in dict.fromkeys(("mini", sizes.model)):
        first = 0.0
        for count in sizes.cells:
            every = statistics.median(_at_a_time(model, count, sizes) for _ in range(sizes.repeats))
            first = first or every
            lines.append(f"| {model} | {count} | {shown(every)} | {every / first:.2f} |")
    return (
        "## Several trainings on one card\n\nProcesses that train at a time, each a model of its "
        f"own on spans targets with {min(sizes.passages)} passages a step.\n\n" + "\n".join(lines)
    )


def _at_a_time(model: str, count: int, sizes: Sizes) -> float:
    """Return the tokens per second of `count` trainings together."""
    context = get_context("spawn")
    ready = context.Barrier(count)
    with context.Pool(count, initializer=_receive, initargs=(ready,)) as pool:
        jobs = [pool.apply_async(_train_for, (model, sizes)) for _ in range(count)]
        return sum(job.get() for job in jobs)


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
    step, state = _stepper(setting), {"number": 0}

    def one() -> float:
        state["number"] += 1
        return step(state["number"] - 1)

    for _ in range(5):
        one()
    wait()
    _ready.wait()
    begin, tokens = time.perf_counter(), 0.0
    while time.perf_counter() - begin < sizes.seconds:
        tokens += one()
        if state["number"] % 5 == 0:  # else the clock would run ahead of the GPU
            wait()
    wait()
    return tokens / (time.perf_counter() - begin)


def _stepper(setting: Setting) -> Callable[[int], float]:
    """Return a function that takes one optimizer step and returns its tokens."""
    spec = resolve_auto(setting.spec)
    module = setting.fresh()
    module.set_attn_implementation(spec.attention)
    module.train()
    run, steps, loss = Optimization(module, spec, 10**9), setting.masked(spec), training_loss()

    def step(number: int) -> float:
        data = steps(number)
        run.step(number, data, loss)
        return data.work["source_tokens"] + data.work["target_tokens"]

    return step


def _generation(sizes: Sizes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        found = generation.ways(Path(folder), sizes.model)
        rates = interleaved(found, sizes.repeats)
    return (
        f"## Generation\n\nAnswers per second of an untrained {sizes.model} to the world's "
        f"dialogues, at most 24 tokens each, batches of {generation.BATCH}.\n\n"
        + table(rates, "answers/s", generation.PLAIN)
    )


def _extracting(sizes: Sizes) -> str:
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
    return (
        "## Span extractor\n\nWords per second that an untrained extractor of width 128 annotates "
        f"with five candidates a passage.\n\n{table(rates, 'words/s', 'span extractor')}"
    )


def _episodes(sizes: Sizes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        found = {
            name: once
            for name, once in meta.ways(Path(folder)).items()
            if "functional" in name or name == meta.BASE
        }
        rates: list[Rate] = interleaved(found, sizes.repeats)
    return (
        "## Meta-learning\n\nEpisodes of the meta-learned policy per minute, 8 candidates each, an "
        "untrained mini.\n\n" + table(rates, "episodes/min", meta.BASE)
    )
