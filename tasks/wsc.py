"""WSC (Levesque et al. 2012), of SuperGLUE: does a pronoun refer to a noun?"""

from __future__ import annotations

from dataclasses import dataclass

from maskpolicy import Example, Json, task
from maskpolicy.data.taskfiles import block, digest, glue, text


@task("wsc", mark="target", version=2, **glue.superglue("wsc", "WSC"))
@dataclass(frozen=True)
class Wsc:
    """The question of BabyLM's pipeline, and the text; 1: it does.

    The question names the words and not their places in the text. Rows with one text are one
    group, whatever its blanks.
    """

    def example(self, row: Json) -> Example | None:
        """Map a row of the official file, or of the Hub or of BabyLM's file."""
        spans, whole = block(row, "target") or row, text(row, "text")
        pronoun, noun = (text(spans, key) for key in ("span2_text", "span1_text"))
        asked = f'Does "{pronoun}" refer to "{noun}" in this passage?'
        pair = {"asked": asked, "text": whole, "label": row.get("label")}
        group = digest("".join(whole.split()))
        return glue.example(pair, ("asked", "text"), glue.BINARY, group=group)
