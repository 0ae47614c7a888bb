"""AIDA CoNLL-YAGO (Hoffart et al. 2011) in KILT's form: the page that a mention refers to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from maskpolicy import Count, DataError, Example, Json, task
from maskpolicy.data.taskfiles import digest, kilt, optional, text


@task("aidayago2", metric="kilt_accuracy", **kilt.facts("aidayago2"))
@dataclass(frozen=True)
class AidaYago2(kilt.Provenance):
    """A marked mention with the words around it; the answer is a page's title.

    The mentions of one document are one group; if rows have a key `subject`, as those of the
    embedded world do, the mentions of one subject are. The context is the title and first paragraph
    of the page in KILT's knowledge source, or the paragraph that the provenance names.
    """

    lead: ClassVar = True  # a page without a paragraph stands for its title and first paragraph
    words: Count = 40  # on either side of the mention

    def example(self, row: Json) -> Example | None:
        """Map a row; blanks in the document count as one space each."""
        targets = kilt.answers(row)
        if not targets:
            return None
        left, mention, right = parts(text(row, "input"))
        around = [*left[-self.words :], kilt.START, *mention, kilt.END, *right[: self.words]]
        document = " ".join([*left, *mention, *right])
        group = optional(row, "subject") or digest(document)
        seen = "yes" if " ".join(mention) in targets else "no"
        return Example(
            text(row, "id"), group, " ".join(around), targets, slices={"mention is title": seen}
        )

    def reading(self, row: Json) -> tuple[str, tuple[str, ...]]:
        """Return the document, in which a learned policy must find the mention."""
        left, mention, right = parts(text(row, "input"))
        return " ".join([*left, *mention, *right]), (" ".join(mention),)


def parts(document: str) -> tuple[list[str], list[str], list[str]]:
    """Return the words before, inside and after the marks."""
    left, start, rest = document.partition(kilt.START)
    mention, end, right = rest.partition(kilt.END)
    if not (start and end and mention.strip()) or kilt.START in rest or kilt.END in left + right:
        raise DataError(f"key 'input' must mark one mention: {kilt.START} mention {kilt.END}")
    return left.split(), mention.split(), right.split()
