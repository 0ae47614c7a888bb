"""Stages that make text: the world, the tokenizer, the passages of a corpus, their annotation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from maskpolicy import hub
from maskpolicy.corpus import annotation, documents
from maskpolicy.corpus.passages import (
    PASSAGES_FILE,
    Document,
    Passages,
    passage_rows,
    write_passages,
)
from maskpolicy.errors import DataError
from maskpolicy.graph.nodes import Run, stage
from maskpolicy.models import seq2seq as models
from maskpolicy.plugins import discovery as plugin_files
from maskpolicy.plugins.discovery import instance
from maskpolicy.types import Json, Spans

_TOKENIZER_TEXTS = 200_000  # documents of each corpus that a new tokenizer is trained on


@stage("world", version=5)
def world(params: Json, inputs: Mapping[str, Path], out: Path, run: Run) -> None:
    """Write the embedded world. params: its settings."""
    from maskpolicy.world import make, write

    write(make(params), out)


@stage("tokenizer")
def tokenizer(params: Json, inputs: Mapping[str, Path], out: Path, run: Run) -> None:
    """Train a tokenizer on the text of the corpora, or take that of a model.

    params: {"vocabulary"} and {"corpora": [corpus block, ..]}, or {"name", "revision"} of a model.
    """
    if "name" in params:
        made = models.load_tokenizer(run.local.get("folder") or params["name"], params["revision"])
        if params["name"]:
            hub.note("model", params["name"], run.local.get("revision"), params["revision"])
    else:
        sources = [documents.read(block, inputs, run.local) for block in params["corpora"]]
        made = models.train_tokenizer(_texts(sources), params["vocabulary"])
    made.save_pretrained(out)


def _texts(sources: list[Iterator[Document]]) -> Iterator[str]:
    for source in sources:
        yield from (document.text for document in islice(source, _TOKENIZER_TEXTS))


@stage("corpus")
def passages(params: Json, inputs: Mapping[str, Path], out: Path, run: Run) -> None:
    """Cut a corpus into passages and tokenise them. params: {"corpus": its block}."""
    block = params["corpus"]
    malformed = documents.malformed_rows(block)
    found = documents.read(block, inputs, run.local, malformed)
    tokenizer = models.load_tokenizer(str(inputs["tokenizer"]))
    write_passages(
        out / PASSAGES_FILE, passage_rows(found, tokenizer, block["words"], run.progress)
    )
    run.facts["malformed"] = malformed.count
    if block.get("hub"):
        hub.note("dataset", block["hub"], run.local.get("revision"), block["revision"])


@stage("annotate")
def annotate(params: Json, inputs: Mapping[str, Path], out: Path, run: Run) -> None:
    """Compute a policy's columns of a corpus. params: {"policy", "fields"}; inputs may hold fit."""
    plugin_files.load_files(run.local.get("plugins", ()))
    policy = instance("policy", params["policy"], params["fields"])
    opened = Passages.open(inputs["corpus"])
    found = 0

    def rows() -> Iterator[dict[str, Spans]]:
        nonlocal found
        for columns in annotation.shards(
            policy, opened, inputs.get("fit"), run.workers, run.progress
        ):
            for row in zip(*columns.values(), strict=True):
                found += sum(map(len, row))
                yield dict(zip(columns, row, strict=True))

    write_passages(out / PASSAGES_FILE, rows())
    if not found:
        raise DataError(
            f"policy {params['policy']}: found nothing in {len(opened)} passages: "
            "there is nothing that it could hide in this corpus: name another corpus or policy"
        )
