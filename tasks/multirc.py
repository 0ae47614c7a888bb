"""MultiRC (Khashabi et al. 2018), of SuperGLUE: is an answer to a question right?"""

from __future__ import annotations

from dataclasses import dataclass

from maskpolicy import Example, Json, task
from maskpolicy.data.taskfiles import digest, glue, text


@task(
    "multirc",
    besides=("accuracy_f1",),
    at="passage.questions.answers",
    mark="question",
    **glue.superglue("multirc", "MultiRC"),
)
@dataclass(frozen=True)
class MultiRC:
    """Each answer to a question, and the paragraph, as BabyLM's pipeline writes them; 1: right.

    Answers to questions about one paragraph are one group. SuperGLUE's F1 over all answers is that
    of `accuracy_f1`.
    """

    def example(self, row: Json) -> Example | None:
        """Map an answer with the keys around it, or a row of the Hub or of BabyLM's file."""
        paragraph = text(row, "paragraph", "around.text")
        answer = text(row, "answer", "text").strip()
        asked = f"Question: {text(row, 'question').strip()} Answer: {answer}"
        pair = {"asked": asked, "paragraph": paragraph, "label": row.get("label")}
        return glue.example(pair, ("asked", "paragraph"), glue.BINARY, group=digest(paragraph))
