"""Natural Questions (Kwiatkowski et al. 2019), open-domain (Lee et al. 2019), as closed-book."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from maskpolicy import Example, Hub, Json, task
from maskpolicy.data.taskfiles import alike, dpr, kilt, optional, text, texts

# DPR's dev file may reveal answers of the official dev, which is the test split
_COMPANIONS = {"train": ("train",), "dev": ("dev", "test"), "test": ("test",)}


@task(
    "nq",
    group="closed-book",
    metric="nq_exact_match",
    editions=("open", "kilt", "efficientqa"),
    files={"train": "NQ-open.train.jsonl", "dev": "NQ-open.dev.jsonl"},
    others={
        "kilt": {"train": "nq-train-kilt.jsonl", "dev": "nq-dev-kilt.jsonl"},
        "efficientqa": {
            "train": "NQ-open.train.jsonl",
            "dev": "NQ-open.efficientqa.dev.1.1.jsonl",
            "test": "NQ-open.efficientqa.test.1.1.jsonl",
        },
    },
    folders=("nq_open", *kilt.FOLDERS),
    hub=Hub(
        {"open": "google-research-datasets/nq_open", "kilt": "facebook/kilt_tasks"},
        {"open": "", "kilt": "nq"},
    ),
    retrieval=True,
    version=2,
)
@dataclass(frozen=True)
class NaturalQuestions:
    """Questions to a search engine, in lower case.

    The context is KILT's provenance paragraph, otherwise a passage of DPR's file. EfficientQA uses
    the train file of NQ-open, and has its own dev file and labelled test file (key `answer`). Exact
    match decomposes accents (NFD), as NQ-open's script does.
    """

    # of the files; auto: the first whose files exist
    edition: Literal["auto", "open", "kilt", "efficientqa"] = "auto"

    def example(self, row: Json) -> Example | None:
        """Map a row of NQ-open or of KILT's form.

        Questions about one page are one group if the row names the page (KILT's provenance, or the
        key `subject` of the embedded world's rows); otherwise equal questions are.
        """
        targets = (*texts(row, "answer"), *kilt.answers(row))
        if not targets:
            return None
        if not optional(row, "question"):
            kilt.check(row, "nq")
        source = text(row, "question", "input")
        group = optional(row, "subject") or kilt.page(row) or alike(source)
        return Example(optional(row, "id"), group, source, targets)

    def evidence(
        self, rows: Sequence[Json], beside: Sequence[Path], split: str
    ) -> Callable[[Json, Example], str | None]:
        """Return a lookup of the provenance paragraph, or a positive passage with an answer."""
        provenance = kilt.paragraphs(rows, beside)
        questions = (text(row, "question", "input") for row in rows)
        passage = dpr.passages(questions, dpr.companions("nq", beside, _COMPANIONS[split]))

        def find(row: Json, example: Example) -> str | None:
            return provenance(row, example) or passage(row, example)

        return find

    def evidence_files(
        self, rows: Sequence[Json], beside: Sequence[Path], split: str
    ) -> list[Path]:
        """Return DPR's files and, for KILT's form, the knowledge source, as far as they exist."""
        pages = kilt.knowledge(beside) if any("output" in row for row in rows) else []
        return [*pages, *dpr.companions("nq", beside, _COMPANIONS[split])]
