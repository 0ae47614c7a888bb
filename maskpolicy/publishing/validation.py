"""Text to validate a pre-training on: added to its experiment, and what was found, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from maskpolicy.config.experiment import Experiment
from maskpolicy.config.model_and_corpus import corpus_block
from maskpolicy.errors import ConfigError
from maskpolicy.stages import feedback
from maskpolicy.stages.training_text import VALIDATION_FACT, VALIDATION_PREFIX
from maskpolicy.types import Json

if TYPE_CHECKING:
    from maskpolicy.graph.nodes import Stage

_TIMES = 10  # evaluations, if intermediate.eval_every is not set


def with_validation(
    experiment: Experiment, files: Sequence[str], folders: Sequence[Path]
) -> Experiment:
    """Return a pre-training that is validated on files, which are read like those of its corpus.

    Raises ConfigError for a missing file, a training without steps, or one in parts.
    """
    block, spec, corpus = experiment.policies[0], experiment.intermediate, experiment.corpus
    if feedback.every(block):
        raise ConfigError(
            f"--validation: {block.name} is trained in parts, between which it reads the corpus "
            "again; such a training cannot be validated: leave --validation out"
        )
    if not spec.steps:
        raise ConfigError("--validation: intermediate.steps is 0: there is nothing to validate")
    found = corpus_block({"files": list(files)}, "--validation", folders)
    found = replace(found, words=corpus.words, on_error=corpus.on_error, column=corpus.column)
    if corpus.name is None:
        found = replace(found, columns=corpus.columns)
    every = spec.eval_every or -(-spec.steps // _TIMES)
    return replace(
        experiment,
        validation_corpus=found,
        intermediate=replace(spec, eval_every=min(every, spec.steps)),
    )


def check_apart(training: Stage) -> None:
    """Raise ConfigError if a training reads a file that it is validated on, by its content."""
    text = training.inputs.get(f"{VALIDATION_PREFIX}corpus")
    if text is None:
        return
    trained_on = {digest: name for name, digest in _files(training.inputs["corpus"])}
    for name, digest in _files(text):
        if digest in trained_on:
            raise ConfigError(
                f"--validation: {name}: the corpus has the same file ({trained_on[digest]}): the "
                "loss of text that the model is trained on says little: name other files"
            )


def _files(corpus: Stage) -> Iterator[tuple[str, str]]:
    """Yield name and digest of each file of a corpus, and of the texts that are mixed into it."""
    keyed = corpus.keyed.get("corpus")
    yield from (keyed or {}).get("files") or ()
    for other in corpus.inputs.values():
        if other.kind == corpus.kind:
            yield from _files(other)


def validation_of(manifest: Json) -> Json:
    """Return what the manifest of a training records of its validation, or None."""
    return manifest["record"]["facts"].get(VALIDATION_FACT)


def validation_sentence(found: Json) -> str:
    """Return what a validation found, in words; `found` is that of `validation_of`."""
    before = "" if found["before"] is None else f"{found['before']:.3f} before, "
    count, times = found["passages"], len(found["losses"])
    passages = f"{count} passage{'s' if count > 1 else ''}"
    lowest = f", the lowest of {times}" if times > 1 else ""
    return (
        f"Validation loss (nats per target token, {passages}): {before}{found['after']:.3f} after "
        f"step {found['step']} of {found['steps']}{lowest}."
    )
