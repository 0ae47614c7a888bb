"""KILT's tasks (Petroni et al. 2021): answers and provenance of rows, and the knowledge source."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from maskpolicy.core.errors import DataError
from maskpolicy.core.types import Example, Json
from maskpolicy.data.datafiles import fields
from maskpolicy.data.datafiles.rows import matching, opened
from maskpolicy.data.taskfiles.sources import Hub

KNOWLEDGE = "kilt_knowledgesource.json"
FOLDERS = ("kilt", "KILT", "data")
SEPARATOR = "[SEP]"  # stands between subject and relation in zsRE's sources
START, END = "[START_ENT]", "[END_ENT]"  # stand around the mention in entity linking's sources
_PAGE = re.compile(rb'"wikipedia_id"\s*:\s*(?:"([^"]*)"|(\d+))')
_HEAD = 400  # first bytes of a page's line, which hold its id
_TURN = re.compile(r"._\d+\Z")  # the end of a dialogue's id
_NEEDS = {
    "zsre": f"key 'input' must read SUBJECT {SEPARATOR} RELATION",
    "wow": "key 'id' must read DIALOGUE_TURN, and key 'input' hold the turns alone",
    "nq": "key 'input' must be a question",
}

Place = tuple[str, int, int]  # page, first and last paragraph


def facts(name: str) -> dict[str, Any]:
    """Return the common facts of KILT's tasks; names of files begin with `name`."""
    return {
        "group": "knowledge-intensive",
        "files": {split: f"{name}-{split}-kilt.jsonl" for split in ("train", "dev")},
        "folders": FOLDERS,
        "hub": Hub("facebook/kilt_tasks", name),
    }


def mention(source: str) -> str:
    """Return the marked mention in a source of entity linking, or ""."""
    _, start, rest = source.partition(START)
    inside, end, _ = rest.partition(END)
    return " ".join(inside.split()) if start and end else ""


def answers(row: Json) -> tuple[str, ...]:
    """Return the distinct answers of a row (the Hub has "" for a missing one)."""
    stated = [entry.get("answer") for entry in fields.records(row, "output")]
    if not all(isinstance(answer, str | None) for answer in stated):
        raise DataError("key 'output': every 'answer' must be text")
    return fields.distinct(answer or "" for answer in stated)


def objects(row: Json) -> tuple[str, ...]:
    """Return the surface forms of a row's object (`meta.obj_surface`), if any."""
    return fields.distinct(fields.texts(fields.block(row, "meta"), "obj_surface"))


def check(row: Json, task: str) -> None:
    """Raise DataError unless a row looks like those of `task` (zsre, wow or nq).

    All files of KILT have the same keys; they differ in the form of `input` and of dialogues' `id`.
    """
    source = fields.text(row, "input")
    subject, mark, relation = source.partition(SEPARATOR)
    if START in source:
        alike = "aidayago2"
    elif mark:
        alike = "zsre" if subject.strip() and relation.strip() else ""
    else:
        alike = "wow" if _TURN.search(fields.optional(row, "id")) else "nq"
    if alike != task:
        looks = f": this looks like a row of {alike}" if alike not in ("", "nq") else ""
        raise DataError(f"{_NEEDS[task]}{looks}; give task {task!r} its own file")


def page(row: Json) -> str:
    """Return the id of the Wikipedia page with a row's answer, or ""."""
    pages = (origin.get("wikipedia_id") for origin in _origins(row))
    return str(next(filter(None, pages), ""))


def places(row: Json, lead: bool = False) -> Iterator[Place]:
    """Yield the places of a row's provenance, those with an answer first.

    With `lead`, a page without a paragraph, as in entity linking, means its title and first
    paragraph.
    """
    for origin in _origins(row):
        page, start = origin.get("wikipedia_id"), origin.get("start_paragraph_id")
        end = origin.get("end_paragraph_id")
        if page and isinstance(start, int) and start >= 0:
            yield str(page), start, max(start, end) if isinstance(end, int) else start
        elif page and lead:
            yield str(page), 0, 1


def _origins(row: Json) -> Iterator[dict[str, Any]]:
    """Yield the provenance entries of a row, those with an answer first."""
    entries = fields.records(row, "output")
    for entry in sorted(entries, key=lambda entry: not entry.get("answer")):
        yield from fields.records(entry, "provenance")


def knowledge(beside: Sequence[Path]) -> list[Path]:
    """Return the first file of KILT's knowledge source in these folders, or nothing."""
    return [path for folder in beside for path in matching(folder, KNOWLEDGE)][:1]


def paragraphs(
    rows: Iterable[Json], beside: Sequence[Path], lead: bool = False
) -> Callable[[Json, Example], str | None]:
    """Return a function (row, example) -> the text of the row's provenance, or None.

    The pages of all `rows` are read in one pass over the knowledge source in `beside`.
    """
    wanted: set[str] = set()
    for row in rows:
        with suppress(DataError):  # `find` raises it again
            wanted |= {page for page, _, _ in places(row, lead)}
    pages = {
        page: text for path in knowledge(beside) if wanted for page, text in _pages(path, wanted)
    }

    def find(row: Json, example: Example) -> str | None:
        for page, start, end in places(row, lead):
            parts = (part.strip() for part in pages.get(page, [])[start : end + 1])
            text = "\n".join(part for part in parts if part)
            if text:
                return text
        return None

    return find


class Provenance:
    """The contexts of a task in KILT's form: the provenance of its rows."""

    lead: ClassVar = False  # see `places`

    def evidence(
        self, rows: Sequence[Json], beside: Sequence[Path], split: str
    ) -> Callable[[Json, Example], str | None]:
        """Return a lookup of the provenance paragraph."""
        return paragraphs(rows, beside, self.lead)

    def evidence_files(
        self, rows: Sequence[Json], beside: Sequence[Path], split: str
    ) -> list[Path]:
        """Return the files of KILT's knowledge source that exist."""
        return knowledge(beside)


def _pages(path: Path, wanted: set[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the id and the paragraphs of each wanted page; other lines are not parsed."""
    with opened(path) as stream:
        for number, line in enumerate(stream, start=1):
            head = _PAGE.search(line, 0, _HEAD)
            is_other = head and (head[1] or head[2]).decode(errors="replace") not in wanted
            if is_other or not line.strip():
                continue
            try:
                page: dict[str, Any] = json.loads(line)
                yield str(page["wikipedia_id"]), fields.texts(page, "text")
            except (ValueError, KeyError, TypeError, DataError, RecursionError) as error:
                raise DataError(f"{path}, line {number}: not a page: {error}") from error
