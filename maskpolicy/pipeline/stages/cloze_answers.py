"""A stage that lets a model fill in masked values, in texts with the right and a wrong name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maskpolicy.core import hardware
from maskpolicy.core.errors import DataError
from maskpolicy.core.ragged import Ragged
from maskpolicy.core.schema import omitted
from maskpolicy.core.types import Corruption, Denoising, Target
from maskpolicy.data.corpus.passages import Document, tokenize
from maskpolicy.data.world.unasked_texts import MASK, blanks
from maskpolicy.experiment.world_settings import Settings
from maskpolicy.masking.denoising import denoising_pairs
from maskpolicy.masking.sentinels import Marks
from maskpolicy.models import text_to_text
from maskpolicy.models.finetuning.text import generate
from maskpolicy.models.loading import load_tokenizer
from maskpolicy.pipeline.graph.nodes import Folders, StageRun, stage
from maskpolicy.pipeline.stages.params import IntermediateParams
from maskpolicy.plugins import hooks

ANSWERS = "cloze.json"
_SLACK = 8  # an answer may repeat the longest text and have so many tokens more
_MOST = 510  # the most tokens of a source


@dataclass(frozen=True, kw_only=True)
class ClozeParams:
    """The world to take values from, and the denoising objective that trained the model."""

    world: Settings
    how: Denoising  # with full targets if a member of a mixture has them
    corruption: Corruption = omitted("span")  # of values: by tokens if that of all members is

    @classmethod
    def of(cls, trained: IntermediateParams, world: Settings) -> ClozeParams:
        """Return the parameters for a model by those of its training."""
        blocks = _leaves({**trained.fields, **vars(trained.how)})
        target: Target = "full" if any(each["target"] == "full" for each in blocks) else "spans"
        by_tokens = all(each["corruption"] == "token" for each in blocks)
        how = replace(trained.how, target=target)
        return cls(world=world, how=how, corruption="token" if by_tokens else "span")


def _leaves(block: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a policy's resolved block, or those of the policies that it draws."""
    members = block.get(hooks.MEMBERS.name, ())
    return [leaf for member in members for leaf in _leaves(member)] or [block]


@stage("cloze", version=5)
def cloze(params: ClozeParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Mask one value of the world's entries at a time, and let a model fill it in.

    Writes a row for each value: its kind and relation, and whether the model fills it in correctly
    in the text about its subject ("own") and in the same text about another subject ("other").
    """
    tokenizer = load_tokenizer(str(inputs["tokenizer"]))
    model: Any = text_to_text.load(str(inputs["model"]))
    model.to(hardware.device())
    found = list(blanks(params.world))
    if not found:
        raise DataError("cloze: this world has no two subjects that could exchange their names")
    full = params.how.target == "full"
    texts = [blank.text for blank in found] + [blank.renamed for blank in found]
    values = [blank.value for blank in found] * 2
    marks = text_to_text.specials(tokenizer, model)
    sources, longest = _masked(texts, values, tokenizer, marks, Denoising(params.corruption))
    model.generation_config.max_new_tokens = longest + _SLACK
    answers = generate(model, tokenizer, sources, max_source=_MOST, progress=run.progress)
    right = [_is_right(answer, value, full) for answer, value in zip(answers, values, strict=True)]
    rows = [
        {"kind": blank.kind, "relation": blank.relation, "own": own, "other": other}
        for blank, own, other in zip(found, right, right[len(found) :], strict=False)
    ]
    (out / ANSWERS).write_text(json.dumps(rows), encoding="utf-8")


def _is_right(answer: str, value: str, full: bool) -> bool:
    """Return whether an answer fills in the value.

    A full target is the whole text, which must contain it. A model that was trained on several
    spans of each passage fills in more than the one mask, in their order.
    """
    return value in answer if full else f"{answer} ".startswith(f"{value} ")


def _masked(
    texts: Sequence[str], values: Sequence[str], tokenizer: Any, marks: Marks, how: Denoising
) -> tuple[Ragged, int]:
    """Return the ids of texts whose value is masked, and the length of the longest text."""
    documents, places = [], []
    for number, (text, value) in enumerate(zip(texts, values, strict=True)):
        start = text.index(MASK)
        documents.append(Document(str(number), text.replace(MASK, value, 1)))
        places.append([[start, start + len(value)]])
    passages = list(tokenize(documents, tokenizer))
    spans = [one.at(place) for one, place in zip(passages, places, strict=True)]
    written = denoising_pairs(passages, spans, how, marks, 0, [0] * len(passages))
    return written.sources, max(len(one.tokens) for one in passages)
