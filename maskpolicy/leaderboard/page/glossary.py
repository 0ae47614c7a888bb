"""The page's glossary: what each row's policy does, its settings, and what it masked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.files import relative_paths
from maskpolicy.core.types import Denoising, Json
from maskpolicy.experiment.definition import NONE
from maskpolicy.leaderboard import description
from maskpolicy.leaderboard.board import Board, BoardRow
from maskpolicy.leaderboard.page.embedded_analyses import EmbeddedAnalysis, MaskedPassage
from maskpolicy.leaderboard.results import run_record
from maskpolicy.plugins.discovery import plugin_of_run

_NO_STAGE = "No intermediate stage: the model is fine-tuned as it is."
COUNTS = {  # titles of counts, with what is divided by what
    "spans per passage": ("spans", "passages"),
    "tokens per span": ("hidden_tokens", "spans"),
    "masked tokens per passage": ("hidden_tokens", "passages"),
    "target tokens per passage": ("target_tokens", "passages"),
    "passages without a span": ("passages_without_span", "passages"),
}
_SHARES = ("passages without a span",)  # in percent


@dataclass(frozen=True)
class PolicyEntry:
    """One row in the glossary."""

    label: str
    sentence: str  # "" if neither the policy's plugin nor the run has it
    settings: tuple[tuple[str, str], ...]
    counts: tuple[str, ...]  # as COUNTS; () if nothing was counted
    passage: MaskedPassage | None  # one that was masked in training, if the viewer was run


def entries(board: Board, analyses: Sequence[EmbeddedAnalysis]) -> list[PolicyEntry]:
    """Return an entry for each row, in the order of the board."""
    passages: dict[tuple[str, str], MaskedPassage] = {}  # by the run's name and the row's label
    for analysis in analyses:
        for passage in analysis.passages:
            passages.setdefault((analysis.folder, passage.label), passage)
    return [
        PolicyEntry(
            label=row.label,
            sentence=_sentence(row.config["name"], _places(row)),
            settings=tuple(_settings(board, row).items()),
            counts=_counts(row.work),
            passage=next((passages[place] for place in _places(row) if place in passages), None),
        )
        for row in board.rows
    ]


def _places(row: BoardRow) -> list[tuple[str, str]]:
    """Return the folders of a row's results, each with the row's label there."""
    return list(dict.fromkeys((str(cell.folder), cell.policy) for cell in row.cells.values()))


def _sentence(policy: str, places: Sequence[tuple[str, str]]) -> str:
    """Return the first sentence of a policy's docstring; of a plugin that is not loaded, as run."""
    if policy == NONE:
        return _NO_STAGE
    try:
        return plugin_of_run("policy", policy).summary
    except ConfigError:  # a plugin whose file this command was not given
        known = [run_record.summaries(Path(folder)) for folder, _ in places]
        return next((each[policy] for each in known if policy in each), "")


def _settings(board: Board, row: BoardRow) -> dict[str, str]:
    """Return a row's settings besides the usual objective, and what it has for its trainings."""
    settings = dict(row.config)
    if row.label != settings.pop("name"):
        settings = {"policy": row.config["name"], **settings}
    settings |= row.own_settings
    chosen = {description.choice(cell) for cell in row.cells.values()} - {""}
    settings |= {description.CHOICE: "; ".join(sorted(chosen))} if chosen else {}
    found = relative_paths(settings, board.runs[0].folder)
    return {key.replace("_", " "): _plain(value) for key, value in _unusual(found).items()}


def _unusual(settings: Mapping[str, Json]) -> dict[str, Json]:
    """Return the settings without those of the usual objective, and without unset ones."""
    usual = asdict(Denoising())
    return {
        key: value
        for key, value in settings.items()
        if value is not None and not (key in usual and value == usual[key])
    }


def _plain(value: Json) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_plain(each)}" for key, each in _unusual(value).items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _counts(work: Mapping[str, int] | None) -> tuple[str, ...]:
    if not work:
        return ()
    found = []
    for title, (part, whole) in COUNTS.items():
        share = work[part] / work[whole] if work.get(whole) and part in work else None
        if share is None:
            found.append("–")
        else:
            found.append(f"{100 * share:.1f}%" if title in _SHARES else f"{share:.2f}")
    return tuple(found)
