"""A tokenizer, passages, a BART and an experiment that are small enough for every test."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from maskpolicy.core.ragged import Ragged, RaggedWriter
from maskpolicy.core.types import Passage, as_spans
from maskpolicy.data import world
from maskpolicy.data.corpus.passages import Document, Passages, build_passages, tokenize
from maskpolicy.masking.denoising import denoising_pairs
from maskpolicy.masking.sentinels import Marks
from maskpolicy.models.scratch import train_tokenizer

if TYPE_CHECKING:
    from maskpolicy.experiment.definition import Experiment
    from maskpolicy.pipeline.graph.nodes import Stage
    from maskpolicy.pipeline.store.artifacts import Store

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # of `mini`; their ids are 0 to 4
MASK = SPECIALS.index("<mask>")

TEXTS = (
    "Anna Kovar was born in Rome in 1901. She wrote The Red River. It won a prize in Paris!",
    "The river Oder runs through the town of Lindau, and then through Rome. Boats go down it.",
    "In 1934 Karl Berg founded Berg & Sons in Paris; his sister Maria joined him in 1936.",
    "Why did Maria leave Lindau? Nobody knows. She said: “It rained.” Then she was gone.",
    "A prize of 300 francs went to Anna Kovar's pupil. He was nine.",
    "Boats.",
    "Lindau is a town on the Oder. It has two bridges, a mill and a café.",
    "Karl Berg sold the mill in 1950. The bridges were built by his sons.",
)

EXPERIMENT = """
model: mini
corpus: world
policies: [none, random]
tasks: [zsre]
world: {people: 8, general_people: 6}
general: {steps: 2, warmup: 1, batch_size: 4}
intermediate: {steps: 2, warmup: 1, batch_size: 4}
finetune: {steps: 2, warmup: 1, batch_size: 4}
"""

FILE = "model: mini\ncorpus: world\npolicies: [none, random]\ntasks: [triviaqa, zsre]\n"
"""The file of the fixture `load`."""

POLICY = """
from dataclasses import dataclass

from maskpolicy.plugins.registry import policy


@policy({name!r})
@dataclass(frozen=True)
class Mine:
    \"\"\"Hide the first words.\"\"\"

    count: int = 1

    def select(self, passage, rng):
        return passage.words[: self.count]
"""
"""The file of a policy `{name}`; its decorator is in line 7."""


def policy_file(name: str, *body: str) -> str:
    """Return the file of a policy with these lines in `select`."""
    lines = "\n        ".join(body)
    return POLICY.format(name=name).replace("return passage.words[: self.count]", lines)


def experiment(**keys: Any) -> str:
    """Return EXPERIMENT with other keys."""
    return yaml.safe_dump({**yaml.safe_load(EXPERIMENT), **keys}, sort_keys=False)


@cache
def tokenizer() -> Any:
    """Return a byte-level BPE of 320 entries; not to be changed."""
    return train_tokenizer(TEXTS, 320)


@cache
def passages(made: Any = None) -> Passages:
    """Return the texts as passages of at most 12 words, with our tokenizer or another one."""
    documents = [Document(f"d{index}", text) for index, text in enumerate(TEXTS)]
    return build_passages(documents, made or tokenizer(), words=12)


def save(path: Any, columns: dict[str, Ragged]) -> None:
    """Write columns of equal length to one file, as a stage does."""
    with RaggedWriter(path) as file:
        for row in zip(*columns.values(), strict=True):
            file.append(dict(zip(columns, row, strict=True)))


def passage(text: str, **columns: Any) -> Passage:
    """Return one tokenised text."""
    document = Document("it", text, columns)
    return next(tokenize([document], tokenizer()))


def words(text: str, **columns: Any) -> Passage:
    """Return a passage with one token, numbered from 0, for each blank-separated word."""
    parts = text.split()
    starts = np.cumsum([0, *(len(part) + 1 for part in parts)])[:-1]
    offsets = as_spans([(s, s + len(w)) for s, w in zip(starts, parts, strict=True)])
    index = np.arange(len(parts), dtype=np.int32)
    each = np.stack([index, index + 1], axis=1)
    return Passage("p", text, index, offsets, each, as_spans([(0, len(parts))]), columns)


def ids(tokens: Any, sentences: Any = None, name: str = "it") -> Passage:
    """Return a passage of bare ids, one word each, without text."""
    array = np.asarray(tokens, np.int32)
    pieces = as_spans([(place, place + 1) for place in range(len(array))])
    whole = [(0, len(array))] if array.size else []
    return Passage(name, "", array, pieces, pieces, as_spans(sentences or whole))


def computed(
    experiment: Experiment, folder: Path, kinds: Sequence[str] = ("intermediate",)
) -> tuple[dict[str, Stage], Store]:
    """Compute all stages of `kinds` in a store at `folder`; return them by label, and the store.

    Their by-products are computed too.
    """
    from maskpolicy.pipeline import stages
    from maskpolicy.pipeline.graph.execution import execute
    from maskpolicy.pipeline.graph.nodes import topological
    from maskpolicy.pipeline.store.artifacts import Store

    graph, store = stages.build(experiment), Store(folder)
    order = topological([*graph.stages, *graph.pretrained.values()])
    wanted = [stage for stage in order if stage.kind in kinds]
    parts = [part for stage in wanted for part in stage.byproducts.values()]
    outcomes = execute([*order, *parts], store, targets=[*wanted, *parts])
    assert [outcome.error for outcome in outcomes.values() if outcome.error] == []
    return {stage.label: stage for stage in wanted}, store


def content(store: Store, stage: Stage) -> dict[str, bytes]:
    """Return the bytes of the files of a stage's artifact, without its manifest."""
    files = (path for path in store.path(stage.key).iterdir() if path.name != "MANIFEST.json")
    return {path.name: path.read_bytes() for path in files}


def bart(dropout: float = 0.0, seed: int = 0, **settings: Any) -> Any:
    """Return a BART of one layer and width 16 with the tokenizer's vocabulary."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    shape = {"d_model": 16, "max_position_embeddings": 64, "init_std": 0.2}
    shape |= {"vocab_size": len(tokenizer()), "dropout": dropout}
    for part in ("encoder", "decoder"):
        shape |= {f"{part}_layers": 1, f"{part}_attention_heads": 2, f"{part}_ffn_dim": 32}
    config = BartConfig(**shape | settings)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return BartForConditionalGeneration(config)


def saved(folder: Path, model: Any = None) -> Path:
    """Save a model, by default the BART, with the tokenizer as Transformers does."""
    (model or bart()).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def with_world(folder: Path, **settings: Any) -> Path:
    """Save the BART to bart/ and write a world, by default of people, to world/."""
    about = {"people": 12, "general_people": 6, "kinds": ["people"], **settings}
    world.write(world.make(about), folder / "world")
    saved(folder / "bart")
    return folder


def without_tasks(folder: Path, *rows: Any, where: str = "", **keys: Any) -> Experiment:
    """Return an experiment that pre-trains the model in folder/bart with some policies."""
    from maskpolicy.experiment.parse import make_experiment

    first = rows[0] if isinstance(rows[0], str) else rows[0].get("label", rows[0]["name"])
    own = {"model": str(folder / "bart"), "policies": list(rows), "tasks": [], "baseline": first}
    return make_experiment(own | keys, "it", where, (folder,), needs=())


def roberta(**settings):
    """Return a small RoBERTa-style encoder."""
    import torch
    from transformers import RobertaConfig, RobertaModel

    shape = {
        **{"vocab_size": len(tokenizer()), "hidden_size": 16, "intermediate_size": 32},
        **{"num_hidden_layers": 2, "num_attention_heads": 2},
        **{"max_position_embeddings": 66, "type_vocab_size": 1},
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return RobertaModel(RobertaConfig(**shape | settings), add_pooling_layer=False).eval()


def current(seed=0, steps=0):
    """Return a small BART in training, as a policy's `reannotate` gets it."""
    from maskpolicy.core.types import Denoising
    from maskpolicy.experiment.budgets import Training
    from maskpolicy.models.guesses import Guesser
    from maskpolicy.models.learned import Current
    from maskpolicy.models.model_kinds import MODEL_KINDS

    kind, model = MODEL_KINDS["seq2seq"], bart(seed=seed)
    specials = kind.specials(tokenizer(), model)
    spec = Training(max_source=60, max_target=60)
    guesser = Guesser(model, kind, specials, spec, Denoising(join="none"))
    return Current(vocabulary=len(tokenizer()), steps=steps, guesser=guesser)


def batch(rows: Any, start: int | None = None) -> Any:
    """Return a batch of (source, target, excluded or None); `start` is None without a decoder."""
    from maskpolicy.models.training.batching import Pair, Pairs, collate

    pairs = [Pair(np.asarray(a, np.int32), np.asarray(b, np.int32), left) for a, b, left in rows]
    return collate(Pairs.of(pairs), SPECIALS.index("<pad>"), start)


def excluding(source: Any) -> Any:
    """Return which tokens of a source are <mask>."""
    return np.asarray(source) == MASK


def denoising_pair(passage: Passage, spans: Any, how: Any, mask: Any, *seeds: int) -> Any:
    """Return the pair of one passage; `seeds` are the seed and the epoch, 0 by default.

    `mask` is the id of a mask, or `Marks`.
    """
    seed, epoch = (*seeds, 0, 0)[:2]
    marks = mask if isinstance(mask, Marks) else Marks(mask)
    return pair_of(denoising_pairs([passage], [spans], how, marks, seed, [epoch]), 0)


def pair_of(written: Any, i: int) -> Any:
    """Return one pair of many."""
    return SimpleNamespace(
        source=written.sources[i],
        target=written.targets[i],
        excluded=written.excluded[i],
        masked_tokens=written.masked_tokens[i],
        spans=written.spans[i],
    )
