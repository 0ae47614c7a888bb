"""The tables and lines that commands print."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from maskpolicy.app.screen import size_text, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console
    from rich.table import Table

    from maskpolicy.app.data_check import RowFigures, TaskFigures
    from maskpolicy.app.preview import Preview
    from maskpolicy.core.types import Json
    from maskpolicy.experiment.reference import Key
    from maskpolicy.leaderboard.board import Board
    from maskpolicy.leaderboard.power import Power
    from maskpolicy.pipeline.graph.costs import Expected
    from maskpolicy.pipeline.graph.planning import Planned

_ROWS = 12  # the most stages of one kind, state and reason that are listed one by one
_MASKS = {  # columns about the masks of a row
    "sampled": "{0.sampled:,}",
    "of passages": "{0.passages:,}",
    "tokens each": "{0.tokens_per_passage:.1f}",
    "masked": "{0.masked_tokens:.1%}",
    "spans each": "{0.spans_per_passage:.2f}",
    "without span": "{0.without_span:.1%}",
    "epochs": "{0.epochs:.1f}",
}


def leaderboard(board: Board, screen: Console, *, work: bool = False, gaps: bool = True) -> None:
    """Print a leaderboard and its notes; without `gaps`, no notes on missing scores."""
    from maskpolicy.leaderboard import report

    screen.print(report.to_table(board, work=work))
    for line in board.about_tests:
        screen.print(line, soft_wrap=True, markup=False)
    intervals = report.to_differences(board)
    if intervals is not None:
        screen.print(intervals)
    for note in board.notes:
        if gaps or note not in board.gaps:
            screen.print(f"* {note}", soft_wrap=True)


def plan(planned: Sequence[Planned], takes: Expected, screen: Console, *, stages: bool) -> None:
    """Print how many stages of each kind have each state, and what is left to compute.

    With `stages`, each stage is listed with the reason for its state.
    """
    if stages:
        shown = table("state", "stage", "why")
        for row in _grouped(planned):
            shown.add_row(*row)
        screen.print(shown)
    for state, number in Counter(entry.state for entry in planned).items():
        kinds = Counter(entry.stage.kind for entry in planned if entry.state == state)
        screen.print(f"{number} {state}: {_counted(kinds)}", soft_wrap=True)
    if any(entry.state != "done" for entry in planned):
        screen.print(_expectation(takes), soft_wrap=True)


def _counted(kinds: Mapping[str, int]) -> str:
    return ", ".join(kind if count == 1 else f"{count} {kind}" for kind, count in kinds.items())


def _grouped(planned: Sequence[Planned]) -> Iterator[tuple[str, str, str]]:
    """Yield (state, stage, why); many stages of one kind for one reason share a row."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for entry in planned:
        groups.setdefault((entry.state, entry.stage.kind, entry.why), []).append(entry.stage.name)
    for (state, _, why), names in groups.items():
        if len(names) > _ROWS:
            names = [f"{names[0]}, and {len(names) - 1} more"]
        yield from ((state, name, why) for name in names)


def _expectation(takes: Expected) -> str:
    """Return a line about the time and the bytes that a run takes."""
    from maskpolicy.app.progress import duration

    lacking = f"unknown for {', '.join(takes.unknown)}, of which no stage has been computed yet"
    if not takes.measured:
        return f"time and bytes: {lacking}"
    jobs = f" with {takes.workers} stages at a time" if takes.workers > 1 else ""
    work = f" ({duration(takes.work)} of work)" if takes.workers > 1 else ""
    line = (
        f"expected: {duration(takes.seconds)}{jobs}{work}, {size_text(takes.written)} written, "
        f"{size_text(takes.kept)} of them kept; estimated from {takes.measured} finished stages "
        "of the same kinds"
    )
    return f"{line}; {lacking}" if takes.unknown else line


def corpora(text_of_rows: Mapping[str, str], screen: Console) -> None:
    """Print which rows read which text."""
    rows: dict[str, list[str]] = {}
    for label, text in text_of_rows.items():
        rows.setdefault(text, []).append(label)
    if not rows:
        return
    shown = table("corpus of the intermediate stage", "rows")
    for text, labels in rows.items():
        shown.add_row(text, "; ".join(labels))
    screen.print()
    screen.print(shown)


def power(differences: list[Power], remarks: Sequence[str], screen: Console) -> None:
    """Print the remarks, and the differences that the planned seeds would find."""
    from maskpolicy.leaderboard.power import to_rows

    if differences or remarks:
        screen.print()
    for line in remarks:
        screen.print(line, soft_wrap=True)
    if not differences:
        return
    rows = to_rows(differences)
    shown = table(*rows[0])
    for row in rows:
        shown.add_row(*row.values())
    screen.print("Differences to the baseline that would be significant with 80% probability:")
    screen.print(shown)


def check(
    rows: Sequence[RowFigures],
    tasks: Sequence[TaskFigures],
    later: Sequence[str],
    screen: Console,
) -> None:
    """Print a table of the tasks, one of what each row masks, and one of the answers masked."""
    if tasks:
        examples = table("task", *tasks[0].examples, numbers=True)
        for task in tasks:
            examples.add_row(task.task, *(f"{count:,}" for count in task.examples.values()))
        screen.print(examples)
    for line in (line for task in tasks for line in task.notes):
        screen.print(line, soft_wrap=True, highlight=False)
    if rows:
        masks = table("first epoch", *_MASKS, numbers=True)
        for row in rows:
            masks.add_row(row.row, *(form.format(row) for form in _MASKS.values()))
        screen.print()
        screen.print(masks)
    if any(row.answer_places for row in rows):
        screen.print()
        screen.print(_answers(rows))
    if later:
        names = "; ".join(later)
        screen.print(f"masks depend on a training: {names}", soft_wrap=True, highlight=False)


def _answers(rows: Sequence[RowFigures]) -> Table:
    """Return a table of how often the answers of tasks are masked where they stand."""
    shown = table("answers masked", *rows[0].answer_places, numbers=True)
    for row in rows:
        cells = [
            f"{row.answers_masked[task] / places:.1%} of {places:,}" if places else "none there"
            for task, places in row.answer_places.items()
        ]
        shown.add_row(row.row, *cells)
    return shown


def previews(masked: Sequence[Preview], screen: Console) -> None:
    """Print texts, each with what is masked in it, its source and its target."""
    from rich.text import Text

    has_seeds = len({each.seed for each in masked}) > 1
    for number, preview in enumerate(masked):
        if len(masked) > 1:
            name = f"{preview.row}, seed {preview.seed}" if has_seeds else preview.row
            screen.print(*([""] if number else []), name, sep="\n", style="bold", soft_wrap=True)
        text = Text(preview.masked.text)
        for start, end, _ in preview.masked.spans:
            text.stylize("bold black on yellow", start, end)
        spans = " | ".join(part for _, _, part in preview.masked.spans) or "nothing"
        parts = (text, spans, preview.masked.source, preview.masked.target or "–")
        for heading, part in zip(("text", "masked", "source", "target"), parts, strict=True):
            screen.print(f"{heading:<8}", part, sep="", soft_wrap=True)


def keys(listed: Sequence[Key]) -> Table:
    """Return a table of the keys of an experiment file."""
    from maskpolicy.experiment import reference

    shown = table("block", "key", "type", "default", "")
    for key in listed:
        block = f"{key.block}: {key.of}" if key.of else key.block
        cases = [f"{reference.written(value)} ({case})" for case, value in key.defaults.items()]
        shown.add_row(
            block, key.name, key.type, "\n".join([reference.default(key), *cases]), key.meaning
        )
    return shown


def listing(entries: Sequence[Json]) -> Table:
    """Return a table of entries with the same keys; their `fields` come last, with defaults."""
    names = [name for name in entries[0] if name not in ("fields", "where")]
    shown = table(*names, *(["fields"] if "fields" in entries[0] else []))
    for entry in entries:
        fields = ", ".join(
            f"{name}={json.dumps(field['default'])}" if "default" in field else name
            for name, field in entry.get("fields", {}).items()
        )
        cells = [_cell(entry[name]) for name in names]
        shown.add_row(*cells, *([fields] if "fields" in entry else []))
    return shown


def _cell(value: Json) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return "–" if value is None else str(value)
