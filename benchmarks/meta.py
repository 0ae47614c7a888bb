"""Episodes of the meta-learned policy per minute and their peak memory, by back end."""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.measure import Once
from maskpolicy.core import hardware
from maskpolicy.core.types import Denoising
from maskpolicy.data import world
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.task_blocks import task_block
from maskpolicy.models import scratch, text_to_text
from maskpolicy.models.learned import fit_tools
from maskpolicy.models.learned.episodes import Episode, EpisodeSteps, questions
from maskpolicy.models.learned.innerloop import BACKENDS, Inner
from maskpolicy.models.learned.meta import EpisodeLoss
from maskpolicy.models.loading import load_tokenizer
from maskpolicy.models.scratch import train_tokenizer
from maskpolicy.models.training.specials import Specials

BASE = "higher"
SIZE, MAX_WORDS = 8, 10  # episodes in an outer step, words of a span


@dataclass(frozen=True)
class Way:
    """One way of making episodes."""

    backend: str
    inner: Inner
    sharing: int = 1

    @property
    def name(self) -> str:
        """The back end, and what is not the default."""
        notes = [self.backend]
        if self.inner.steps > 1:
            notes.append(f"{self.inner.steps} + {self.inner.query_steps} inner steps")
        if self.inner.optimizer != "sgd":
            notes.append(self.inner.optimizer)
        if self.sharing > 1:
            notes.append(f"{self.sharing} share fast weights")
        return ", ".join(notes)


WAYS = [
    Way(backend, inner, sharing)
    for inner, sharing in (
        (Inner(), 1),
        (Inner(steps=3, query_steps=2), 1),
        (Inner("adamw", 1e-3, 1e-3), 1),
        (Inner(), SIZE),
    )
    for backend in sorted(BACKENDS, reverse=True)
]


def prepare(folder: Path) -> None:
    """Write an untrained mini with its tokenizer, and TriviaQA's contexts in the world."""
    world.write(world.Settings(), folder)
    lines = (folder / "general.jsonl").read_text(encoding="utf-8").splitlines()
    tokenizer = train_tokenizer((json.loads(line)["text"] for line in lines), 2000)
    tokenizer.save_pretrained(folder / "model")
    scratch.build_bart("mini", tokenizer, 0).save_pretrained(folder / "model")
    block = task_block({"name": "triviaqa"}, "", ())
    (folder / "contexts").mkdir()
    for split in fit_tools.SPLITS:
        rows, _ = fit_tools.find_contexts(block, split, folder / "tasks")
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "contexts" / f"{split}.jsonl").write_text(text, encoding="utf-8")
    about = {"task": "triviaqa", "counts": {}}
    (folder / "contexts" / fit_tools.COUNTS).write_text(json.dumps(about), encoding="utf-8")


def parts(folder: Path) -> tuple[Any, EpisodeSteps, EpisodeLoss]:
    """Return a fresh reader, the steps, and the loss of an episode with the default back end."""
    from maskpolicy.models.learned import extractor
    from maskpolicy.models.learned.windows import rank

    tokenizer = load_tokenizer(str(folder / "model"))
    model = text_to_text.load(str(folder / "model"), attn_implementation="eager").eval()
    model.to(hardware.device())
    spec = Training(steps=1000, batch_size=SIZE)
    specials = Specials.of(tokenizer, model.config.decoder_start_token_id)
    data = fit_tools.load_contexts(folder / "contexts", tokenizer)
    asked = questions(data.train, data.task, tokenizer, specials, spec, Denoising())
    reader = extractor.build(model.get_input_embeddings().weight, 0, dropout=0.0)
    reader.to(hardware.device())

    def score(module: Any, passages: Any, k: int) -> Any:
        return rank(module, passages, k, MAX_WORDS)

    episode = Episode()
    loss = EpisodeLoss(model, score, Denoising(), episode, Inner(), BASE, specials, spec)
    return reader, EpisodeSteps(asked, episode, specials, spec), loss


def once(way: Way, reader: Any, steps: EpisodeSteps, loss: EpisodeLoss, count: int) -> Once:
    """Make the episodes of `count` outer steps, and their gradients."""
    steps = replace(steps, episode=replace(steps.episode, sharing=way.sharing))
    loss = replace(loss, backend=way.backend, inner=way.inner)

    def run() -> tuple[float, float, str]:
        batches = [batch for number in range(count) for batch in steps(number).batches]
        reader.zero_grad()
        total = 0.0
        started = time.perf_counter()
        for batch in batches:
            value, _ = loss(reader, batch.to(hardware.device()))
            value.backward()
            total += value.item()
        minutes = (time.perf_counter() - started) / 60
        return count * SIZE, minutes, f"outer loss {total / count / SIZE:.4f}"

    return run


def peak(folder: Path, way: Way) -> float:
    """Return the MiB by which the peak of a fresh process grows in two outer steps."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_grown, (folder, way))


def _grown(folder: Path, way: Way) -> float:
    made = parts(folder)
    before = _peak()
    once(way, *made, 2)()
    return _peak() - before


def _peak() -> float:
    """Return this process's peak memory in MiB, on Linux not that of the one that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 2**10
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return grown / (2**20 if sys.platform == "darwin" else 2**10)


def ways(folder: Path, count: int = 1) -> dict[str, Once]:
    """Return what is compared."""
    prepare(folder)
    made = parts(folder)
    return {way.name: once(way, *made, count) for way in WAYS}
