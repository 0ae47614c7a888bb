"""Count the examples that two policies answer differently, and select some to show."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.types import Json
from maskpolicy.leaderboard.board import Board
from maskpolicy.leaderboard.results import predictions
from maskpolicy.leaderboard.results.cell import Result

ROOM = 1_000_000  # bytes, the most for all examples together
WITH_BASELINE, WITH_ANY = 4, 1  # examples for each direction of a pair with, without a baseline
_SOURCE, _ANSWER, _TARGETS = 320, 160, 4  # the most characters, characters, acceptable answers
_SAME = 1e-6


@dataclass(frozen=True)
class _Answered:
    """The rows that answered the same examples of one task, with their cells and scores."""

    cells: Mapping[int, list[Result]]  # by row
    scores: Mapping[int, Mapping[int, NDArray[np.float32]]]  # by row and seed: (n,)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of rows that have a seed in common."""
        both = combinations(sorted(self.scores), 2)
        return [(i, j) for i, j in both if self.scores[i].keys() & self.scores[j].keys()]

    def gap(self, i: int, j: int) -> NDArray[np.float64]:
        """Return the scores (n,) of row i minus those of row j, over the seeds of both."""
        shared = sorted(self.scores[i].keys() & self.scores[j].keys())
        gaps = [self.scores[i][seed].astype(np.float64) - self.scores[j][seed] for seed in shared]
        return np.asarray(np.mean(gaps, axis=0), np.float64)


def examples(board: Board) -> Json:
    """Return for each task {"n", "pairs": {"i-j": [i higher, j higher]}, "shown": [..]}, or None.

    Rows differ on an example if their scores, averaged over shared seeds, differ; pairs without
    shared seeds are omitted. The examples shown have the largest differences; ties are broken by a
    hash of the id. None means that no row has predictions. Raises DataError for a broken file.
    """
    room = ROOM // max(1, len(board.tasks))
    return [_task(board, task, room) for task in board.tasks]


def _task(board: Board, task: str, room: int) -> Json:
    found = _read(board, task)
    if not found.scores:
        return None
    labels = [row.label for row in board.rows]
    bases = {index: labels.index(row.against) for index, row in enumerate(board.rows)}
    first = next(iter(found.cells.values()))[0]
    names = [row["id"] for row in predictions.rows(first.answers)]
    pairs = {}
    for i, j in found.pairs:
        gap = found.gap(i, j)
        pairs[f"{i}-{j}"] = [int((gap > _SAME).sum()), int((gap < -_SAME).sum())]
    shown: list[Json] = []
    chosen = list(dict.fromkeys(_choose(found, bases, names)))
    texts = _texts(found, set(chosen))
    sources = predictions.read_questions(first.folder, task, {names[i] for i in chosen})
    for index in chosen:
        entry = _entry(texts[index], sources.get(names[index]))
        room -= len(json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace"))
        if room < 0:
            break
        shown.append(entry)
    return {"n": len(names), "pairs": pairs, "shown": shown}


def _read(board: Board, task: str) -> _Answered:
    """Return the rows with predictions for the same examples as the first row that has any."""
    cells: dict[int, list[Result]] = {}
    scores: dict[int, Mapping[int, NDArray[np.float32]]] = {}
    examples: str | None = None  # digest of their ids and groups
    for index, row in enumerate(board.rows):
        own = [row.cells[key] for key in sorted(row.cells) if key[0] == task]
        read = [(cell, predictions.read_answers(cell)) for cell in own]
        known = [(cell, answers) for cell, answers in read if answers is not None]
        examples = examples or next((answers.examples for _, answers in known), None)
        same = [(cell, answers) for cell, answers in known if answers.examples == examples]
        if same:
            cells[index] = [cell for cell, _ in same]
            scores[index] = {cell.seed: answers.scores for cell, answers in same}
    return _Answered(cells, scores)


def _choose(found: _Answered, bases: Mapping[int, int], names: list[str]) -> Iterator[int]:
    """Yield the numbers of examples to show: pairs with a baseline first, in both directions.

    `bases` maps each row to its baseline.
    """
    ranks = np.argsort(np.argsort([hashlib.sha256(name.encode()).digest() for name in names]))
    compared = [
        pair for pair in found.pairs if bases[pair[0]] == pair[1] or bases[pair[1]] == pair[0]
    ]
    order = [(pair, WITH_BASELINE) for pair in compared]
    order += [(pair, WITH_ANY) for pair in found.pairs if pair not in compared]
    for (i, j), most in order:
        gap = found.gap(i, j)
        for signed in (gap, -gap):
            places = np.flatnonzero(signed > _SAME)
            by_size = places[np.lexsort((ranks[places], -signed[places]))]
            yield from by_size[:most].tolist()


def _texts(found: _Answered, chosen: set[int]) -> dict[int, dict[int, dict[int, Json]]]:
    """Return the parsed predictions by example, row and seed."""
    texts: dict[int, dict[int, dict[int, Json]]] = {index: {} for index in chosen}
    for row, cells in found.cells.items():
        for cell in cells:
            for number, line in predictions.lines(cell.answers):
                if number - 1 in chosen:
                    parsed = predictions.parse(cell.answers, number, line)
                    texts[number - 1].setdefault(row, {})[cell.seed] = parsed
    return texts


def _entry(texts: Mapping[int, Mapping[int, Json]], source: Json) -> Json:
    """Return one example with each row's most frequent answer over seeds and its scores."""
    answers = {}
    for row, given in texts.items():
        counts = Counter(each["prediction"] for each in given.values())
        text, times = counts.most_common(1)[0]
        scores = {str(seed): round(100 * each["score"], 4) for seed, each in given.items()}
        answers[str(row)] = [_cut(text, _ANSWER), times, len(given), scores]
    first = next(iter(next(iter(texts.values())).values()))
    targets = [_cut(str(target), _ANSWER) for target in first.get("targets", ())]
    return {
        "id": first["id"],
        "source": None if source is None else _cut(source, _SOURCE),
        "targets": targets[:_TARGETS],
        "more": max(0, len(targets) - _TARGETS),
        "answers": answers,
    }


def _cut(text: str, most: int) -> str:
    """Shorten a text to its beginning and end; questions often come last."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half].rstrip()} … {text[-half:].lstrip()}"
