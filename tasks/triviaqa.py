"""TriviaQA (Joshi et al. 2017) as closed-book question answering."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from maskpolicy import Count, DataError, Example, Hub, Json, task
from maskpolicy.data.taskfiles import alike, block, existing, opened, records, text, texts, window

_HIDDEN = "<unk>"  # the Hub's answer to questions of the unlabelled test set
_WIKIPEDIA = "wikipedia/"  # the folder of evidence about Wikipedia's pages


@task(
    "triviaqa",
    group="closed-book",
    metric="exact_match",
    editions=("unfiltered-web", "web", "wikipedia"),
    files={"train": "{edition}-train.json", "dev": "{edition}-dev.json"},
    folders=("triviaqa-unfiltered", "qa", "triviaqa-rc/qa"),
    at="Data",
    hub=Hub(
        "mandarjoshi/trivia_qa",
        {"unfiltered-web": "unfiltered", "web": "rc.web", "wikipedia": "rc.wikipedia"},
        bare=".nocontext",
    ),
    version=2,
)
@dataclass(frozen=True)
class TriviaQA:
    """Trivia questions; the context is a window of an evidence document that holds an answer.

    Questions about one Wikipedia page are one group, or equal questions if a row names no page.
    `documents: false` reads no evidence: there are no contexts, and the Hub sends megabytes instead
    of gigabytes. Exact match normalises like SQuAD's script, as in the closed-book literature; with
    `normalisation: triviaqa` like TriviaQA's own.
    """

    # of the files; auto: the first whose files exist
    edition: Literal["auto", "unfiltered-web", "web", "wikipedia"] = "auto"
    window: Count = 100  # words of an evidence document
    documents: bool = True  # read the evidence, for contexts
    # of exact match: squad drops punctuation, triviaqa (its own script) replaces it with a space
    normalisation: Literal["squad", "triviaqa"] = "squad"

    @property
    def metric(self) -> str:
        """The metric of the normalisation."""
        return "exact_match" if self.normalisation == "squad" else "triviaqa_exact_match"

    def example(self, row: Json) -> Example | None:
        """Map a row; its answers are Value, the Aliases and, if verified, the HumanAnswers."""
        answer = block(row, "Answer", "answer")
        value = answer.get("Value", answer.get("value"))
        if not answer or value in (None, "", _HIDDEN):
            return None
        targets = (
            text(answer, "Value", "value"),
            *texts(answer, "Aliases", "aliases"),
            *texts(answer, "HumanAnswers"),
        )
        source = text(row, "Question", "question")
        names = [name for name, _ in _pages(row)]
        pages = [name.removeprefix(_WIKIPEDIA) for name in names if name.startswith(_WIKIPEDIA)]
        kind = str(answer.get("Type") or answer.get("type") or "")
        return Example(
            id=text(row, "QuestionId", "question_id"),
            group=next(filter(None, pages), alike(source)),
            source=source,
            targets=targets,
            slices={"answer type": kind},
        )

    def evidence(
        self, rows: Sequence[Json], beside: Sequence[Path], split: str
    ) -> Callable[[Json, Example], str | None]:
        """Return a lookup of the first window with an answer, in order of the documents' ranks."""
        folders = _folders(beside)

        def find(row: Json, example: Example) -> str | None:
            documents = _documents(row, folders) if self.documents else ()
            windows = (window(document, example.targets, self.window) for document in documents)
            return next((text for text in windows if text is not None), None)

        return find

    def evidence_files(
        self, rows: Sequence[Json], beside: Sequence[Path], split: str
    ) -> list[Path]:
        """Return those evidence documents of the rows that exist."""
        folders = _folders(beside) if self.documents else []
        paths: list[Path] = []
        for row in rows:
            with suppress(DataError):  # `load` reports the row
                paths += [path for name, _ in _pages(row) for path in _files(name, folders)]
        return paths


def _folders(beside: Sequence[Path]) -> list[Path]:
    """Return the evidence folders: official archives hold evidence/ next to qa/."""
    around = [*beside[:1], *(folder.parent for folder in beside[:1]), *beside[1:]]
    places = (folder / name for folder in around for name in ("evidence", "triviaqa-rc/evidence"))
    return [path for path in dict.fromkeys(places) if path.is_dir()]


def _documents(row: Json, folders: Sequence[Path]) -> Iterator[str]:
    """Yield the evidence texts of a row by rank; missing documents are left out."""
    for name, inline in _pages(row):
        if inline:
            yield inline
            continue
        for path in _files(name, folders):
            try:
                with opened(path) as stream:
                    yield stream.read().decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}: not UTF-8 at byte {error.start}: convert it to UTF-8"
                ) from error


def _pages(row: Json) -> Iterator[tuple[str, str]]:
    """Yield (name under evidence/, text inside the row) of each document, by rank."""
    for page in records(row, "EntityPages", "entity_pages"):
        yield f"{_WIKIPEDIA}{_name(page)}", page.get("wiki_context") or ""
    results = records(row, "SearchResults", "search_results")
    for page in sorted(results, key=_rank):
        yield f"web/{_name(page)}", page.get("search_context") or ""


def _name(page: Json) -> str:
    """Return a document's name; raises DataError if it leads out of the evidence folder."""
    name = str(page.get("Filename") or page.get("filename") or "")
    if ".." in name.split("/"):
        raise _outside(name)
    return name


def _outside(name: str) -> DataError:
    return DataError(f"key 'Filename': {name!r} leads out of the evidence folder")


def _rank(page: Json) -> float:
    try:
        return float(page.get("Rank", page.get("rank")))
    except (TypeError, ValueError):  # unranked results come last
        return float("inf")


def _files(name: str, folders: Sequence[Path]) -> list[Path]:
    """Return the first file of a name below the folders; DataError if a link leads outside."""
    for folder in folders:
        try:
            path = existing(folder / name)
        except OSError:  # the file system does not allow the name
            return []
        if path is not None:
            if not path.resolve().is_relative_to(folder.resolve()):
                raise _outside(name)
            return [path]
    return []
