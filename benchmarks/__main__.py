"""`python -m benchmarks [PART ...]` writes docs/development/benchmarks.md."""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import (
    board,
    comparison,
    corpus,
    encoder,
    exclusion,
    generation,
    gpu,
    loop,
    masking,
    meta,
    scheduling,
    training,
)
from benchmarks.measure import at_least, disturbance, interleaved, one_line_of_error, table
from maskpolicy.core import hardware
from maskpolicy.models.loading import load_tokenizer

_PARTS = ("training", "exclusion", "masking", "generation", "meta", "corpus")
_MORE = ("board", "encoder", "gpu", "loop", "scheduling")  # only if asked for
_COMMANDS = (
    "`python -m benchmarks training --quick` takes three minutes: ours against the best settings "
    "of Seq2SeqTrainer in turn, up to three rounds, as a table and a last line of JSON. `python -m "
    "benchmarks loop` runs whole experiments of four sizes, `python -m benchmarks encoder` trains "
    "the mini encoder, and `python -m benchmarks gpu` writes "
    "[benchmarks-gpu.md](benchmarks-gpu.md) on a machine with a GPU. All use one thread unless "
    "`--threads` says otherwise, and a figure is marked where other processes used the processor "
    "meanwhile."
)
_QUICK_SECONDS = 120.0  # for BART-base: after them no further round ends
_DOCS = Path(__file__).resolve().parent.parent / "docs" / "development"
_PAGE, _GPU_PAGE = _DOCS / "benchmarks.md", _DOCS / "benchmarks-gpu.md"


@one_line_of_error()
def main() -> None:
    """Measure what is asked for and write the page, or print it where parts are left out."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(_PARTS), help=", ".join(_PARTS + _MORE))
    parser.add_argument("--repeats", type=at_least(1), default=5)
    parser.add_argument("--threads", type=at_least(1), default=1, help="of PyTorch")
    parser.add_argument(
        "--quick", action="store_true", help="training: in three minutes, see there"
    )
    parser.add_argument("--mini-steps", type=at_least(2), default=60, help="steps of one repeat")
    parser.add_argument("--base-steps", type=at_least(2), default=4, help="steps of one repeat")
    parser.add_argument("--text", type=Path, help="masking: a text file too, one document a line")
    parser.add_argument("--tokenizer", help="masking: that text's, a folder or Hub name")
    parser.add_argument("--note", help="masking: what the text is and where it is from")
    parser.add_argument("--stage-seconds", type=float, nargs="*", default=[0.0], metavar="S")
    parser.add_argument(
        "--passages", type=at_least(1), nargs="+", default=[10_000], help="corpus: of each"
    )
    parser.add_argument(
        "--workers", type=at_least(1), nargs="+", default=[1, 2], help="corpus: at a time"
    )
    shards = "corpus: megabytes of a shard, 0: none"
    parser.add_argument("--shard-mb", type=float, nargs="+", default=[64.0], help=shards)
    parts = list(gpu.SECTIONS)
    parser.add_argument(
        "--sections", nargs="+", choices=parts, default=parts, help="gpu: its parts"
    )
    parser.add_argument("--steps", type=at_least(2), default=60, help="gpu: steps of one repeat")
    compiles = "gpu: torch.compile too, which takes minutes for each model"
    parser.add_argument("--with-compile", action="store_true", help=compiles)
    parser.add_argument("--folder", type=Path, help="board, corpus, loop: for files meanwhile")
    scores = "board: scores of a table"
    parser.add_argument("--rows", type=at_least(1), nargs="+", default=[5_000_000], help=scores)
    options = parser.parse_args()
    unknown = sorted(set(options.parts) - {*_PARTS, *_MORE})
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}: choose from {', '.join(_PARTS + _MORE)}")
    if options.tokenizer and not options.text:
        parser.error("--tokenizer is that of --text")
    if options.text and not options.text.is_file():  # found before anything is measured
        parser.error(f"--text: {options.text} is not a file")
    if options.tokenizer:
        load_tokenizer(options.tokenizer)
    _set_threads(options.threads)
    if options.quick:
        if options.parts != ["training"]:
            parser.error("--quick is for `python -m benchmarks training`")
        sys.stdout.write(_quick())
        return
    sections = [_head()]
    if "gpu" in options.parts:
        if not hardware.is_cuda():
            parser.error("gpu: PyTorch finds no GPU")
        sizes = gpu.Sizes(
            steps=options.steps, repeats=options.repeats, compiles=options.with_compile
        )
        for section in gpu.report(sizes, options.sections):
            sections.append(section)
            if options.parts == ["gpu"]:
                _GPU_PAGE.write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    if "board" in options.parts:
        sections.append(board.report(options.folder, options.rows))
    if "loop" in options.parts:
        sections.append(loop.report(options.folder, loop.sizes()))
    if "training" in options.parts:
        sections.append(_training(options))
    if "encoder" in options.parts:
        sections.append(_encoder(options))
    if "exclusion" in options.parts:
        sections.append(_exclusion(options))
    if "masking" in options.parts:
        sections.append(_masking(options))
    if "generation" in options.parts:
        sections.append(_generation(options))
    if "meta" in options.parts:
        sections.append(_meta(options))
    if "corpus" in options.parts:
        sections.append(_corpus(options))
    if "scheduling" in options.parts:
        sections += [scheduling.report(seconds) for seconds in options.stage_seconds]
        sections.append(scheduling.planning_report())
    is_page = set(options.parts) == set(_PARTS)
    page = "\n\n".join([*sections[:1], *([_COMMANDS] if is_page else []), *sections[1:]]) + "\n"
    if is_page:
        _PAGE.write_text(page, encoding="utf-8")
    sys.stdout.write(page)


def _set_threads(count: int) -> None:
    import torch

    torch.set_num_threads(count)


def _quick() -> str:
    """Measure ours and the Trainer's best settings, three rounds at most; the last line is JSON."""
    settings = [replace(one, held_out=0) for one in comparison.settings(40, 2)]
    small = [one for one in settings if one.name.startswith("mini")]
    large = [one for one in settings if one not in small]
    found = training.compare(small, 3, ladder=False)
    found += training.compare(large, 3, ladder=False, seconds=_QUICK_SECONDS)
    rounds = ", ".join(f"{one.name} {len(one.ratio.rates)}" for one in found)
    lines = [
        f"{_head()} Rounds: {rounds}.",
        "",
        "| | ratio to Seq2SeqTrainer's best settings | share of the matrix peak | |",
        "|---|---|---|---|",
    ]
    for one in found:
        busy = disturbance([each for rate in one.rates for each in rate.others]).strip()
        lines.append(f"| {one.name} | {one.ratio} | {one.share} | {busy} |")
    medians = {
        one.name: {"ratio": round(one.ratio.median, 3), "share": round(one.share.median, 3)}
        for one in found
    }
    return "\n".join([*lines, "", json.dumps(medians)]) + "\n"


def _corpus(options: argparse.Namespace) -> str:
    rows = corpus.table(options.passages, options.workers, options.shard_mb, options.folder)
    return (
        "## Corpora\n\nSeconds until the last worker had cut JSON Lines into passages of 100 "
        "words, annotated them with salient-span's built-in rules, and taken the first step of a "
        "training; in brackets the CPU seconds of all workers. Each worker has one core. Memory is "
        "the largest of a worker at the end of a part, without what it maps of files.\n\n"
        + "\n".join(rows)
    )


def _head() -> str:
    import torch
    import transformers

    words = [Path(word).name if Path(word).exists() else word for word in sys.argv[1:]]
    return (
        "# Benchmarks\n\n"
        f"`python -m benchmarks {shlex.join(words)}`, "
        f"{datetime.now(UTC):%Y-%m-%d}, {hardware.describe()}, {platform.system()}, "
        f"torch {torch.__version__}, transformers {transformers.__version__}. "
        "Ratios are medians over repeats that took turns in one process; absolute figures are of "
        "this machine and this hour."
    )


def _training(options: argparse.Namespace) -> str:
    parts = [
        "## Training\n\nNon-padding tokens (source and target) per second. Same weights, dropout, "
        "passages per step and policy; the loss is on held-out masks after the same steps, for "
        "which each side has an order of the passages of its own. Below each table stand the "
        "losses of both sides when they are fed the same batches, in fp32 and without dropout. "
        "The neighbour's masks come from the same code in its data collator."
    ]
    settings = comparison.settings(options.mini_steps, options.base_steps)
    for setting in settings:
        (one,) = training.compare([setting], options.repeats, ladder=True)
        same = training.agreement(setting)
        parts.append(
            f"### {setting.policy} on {one.name} targets\n\n"
            f"{table(one.rates, 'tokens/s', training.DEFAULTS)}\n\n"
            f"maskpolicy against the best settings: {one.ratio}. It reached {one.share} of the "
            f"matrix peak ({one.peak.median / 1e9:.0f} GFLOP/s, measured in every round). On the "
            f"same batches: Seq2SeqTrainer {same[0]}, maskpolicy {same[1]}."
        )
    return "\n\n".join(parts)


def _encoder(options: argparse.Namespace) -> str:
    parts = [
        "## Encoders\n\nSteps per second of the mini encoder: pre-training on the world's entries, "
        "32 a step, and fine-tuning on random tokens, 16 texts a step."
    ]
    for work in encoder.works(options.mini_steps):
        rates = encoder.compare(work, options.repeats)
        parts.append(f"### {work.name}\n\n{table(rates, 'steps/s', encoder.THEIRS)}")
    return "\n\n".join(parts)


def _exclusion(options: argparse.Namespace) -> str:
    parts = [
        "## Mask exclusion\n\nSteps per second of the training loop, 15% of the tokens masked one "
        "by one. Weights, passages, policy and targets are the same; the encoder's input differs."
    ]
    for setting in exclusion.settings(options.mini_steps, options.base_steps):
        rates = exclusion.compare(setting, options.repeats)
        tokens = exclusion.seen(setting)
        parts.append(
            f"### {setting.name}\n\nThe encoder is given {tokens.fewer:.1%} fewer non-padding "
            f"tokens.\n\n{table(rates, 'steps/s', exclusion.PLAIN)}"
        )
    return "\n\n".join(parts)


def _masking(options: argparse.Namespace) -> str:
    parts = [
        "## Masking\n\nTokens of passages per second on one core, from annotated passages to "
        f"finished batches of {masking.SIZE}."
    ]
    corpora = {
        "The embedded world, mini's tokenizer": (None, None, False),
        "The same, its documents joined": (None, None, True),
    }
    if options.text:
        corpora[options.note or options.text.name] = (options.text, options.tokenizer, False)
    for what, (text, tokenizer, packs) in corpora.items():
        with tempfile.TemporaryDirectory() as folder:
            passages, fast = masking.load(text, tokenizer, Path(folder), packs)
            rates = interleaved(masking.ways(passages, fast, 600), options.repeats)
        length = passages.lengths.mean()
        parts.append(
            f"{what}: {len(passages)} passages of {length:.0f} tokens on average.\n\n"
            f"{table(rates, 'tokens/s', masking.STOCK)}\n\n{gpu.cores_for_masks(rates)}"
        )
    return "\n\n".join(parts)


def _generation(options: argparse.Namespace) -> str:
    parts = []
    for name in generation.MODELS:
        with tempfile.TemporaryDirectory() as folder:
            rates = interleaved(generation.ways(Path(folder), name), options.repeats)
        parts.append(f"### {name}\n\n{table(rates, 'answers/s', generation.PLAIN)}")
    return (
        "## Generation\n\nAnswers per second to the world's dialogues, untrained models, at most "
        f"24 tokens each, batches of {generation.BATCH}.\n\n" + "\n\n".join(parts)
    )


def _meta(options: argparse.Namespace) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rates = interleaved(meta.ways(folder), options.repeats)
        peaks = [meta.peak(folder, way) for way in meta.WAYS]
    rates = [
        replace(rate, note=f"{rate.note}; peak +{peak:,.0f} MiB")
        for rate, peak in zip(rates, peaks, strict=True)
    ]
    return (
        "## Meta-learning\n\nEpisodes of the meta-learned policy per minute, 8 candidates each, an "
        "untrained mini on the world's TriviaQA contexts; by how much the peak memory of a fresh "
        f"process grows.\n\n{table(rates, 'episodes/min', meta.BASE)}"
    )


if __name__ == "__main__":
    main()
