"""How much each policy masked: spans, tokens, and passages without a span."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from maskpolicy import Findings, Json, Result, Run, Store, analysis
from maskpolicy.plots import Bars, Series

COUNTS = ("passages", "spans", "hidden_tokens", "target_tokens")
PANELS = {"hidden_tokens": "masked tokens", "target_tokens": "target tokens"}
COLUMNS = (
    *("run", "policy", "stage", "passages", "without_span", "spans", "spans_per_passage"),
    *("hidden_tokens", "tokens_per_span", "target_tokens"),
)


@analysis("coverage", heading="How much each policy masked", of_masks=True, place=20, version=2)
@dataclass(frozen=True)
class Coverage:
    """How much each policy masked in its intermediate stage: spans, tokens, passages without any.

    One row for each intermediate stage (a policy has several if intermediate_seeds is above 1);
    `without_span` is the share of passages in which the policy masked nothing.
    """

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Return the work recorded by the intermediate stages, in the order of the rows."""
        rows: list[Json] = []
        notes = []
        for run in runs:
            for label in run.rows:
                cells = [result for result in run.results if result.policy == label]
                found = _stages(cells)
                rows += [_row(run, label, *each) for each in found]
                if not found and any("intermediate" in cell.config for cell in cells):
                    notes.append(f"{run.name}, {label}: its intermediate stage did not finish")
        several = len(runs) > 1
        panels = tuple(_panel(rows, kind, several) for kind in PANELS) if rows else ()
        return Findings(COLUMNS if several else COLUMNS[1:], tuple(rows), tuple(notes), panels)


def _panel(rows: Sequence[Json], kind: str, several: bool) -> Bars:
    """Return a bar for each policy, with the range over its intermediate stages."""
    shares: dict[str, list[float]] = {}
    for row in rows:
        share = _share(row, kind, "passages")
        label = f"{row['policy']} ({row['run']})" if several else row["policy"]
        shares.setdefault(label, []).extend([] if share is None else [share])
    means = [statistics.fmean(values) if values else None for values in shares.values()]
    low = [min(values) if len(values) > 1 else None for values in shares.values()]
    high = [max(values) if len(values) > 1 else None for values in shares.values()]
    series = Series("tokens", means, low=low, high=high)
    return Bars(PANELS[kind], "tokens per passage", list(shares), [series])


def _stages(results: Sequence[Result]) -> list[tuple[int, Json]]:
    """Return (number, work) of the intermediate stages of a row's cells."""
    works = {
        result.config["intermediate_seed"]: result.work
        for result in results
        if result.work is not None
    }
    return sorted(works.items())


def _row(run: Run, label: str, number: int, work: Json) -> Json:
    return {
        "run": run.name,
        "policy": label,
        "stage": number,
        **{name: work.get(name) for name in COUNTS},
        "without_span": _share(work, "passages_without_span", "passages"),
        "spans_per_passage": _share(work, "spans", "passages"),
        "tokens_per_span": _share(work, "hidden_tokens", "spans"),
    }


def _share(work: Json, part: str, whole: str) -> float | None:
    """Return one count over another; None if a result of another version lacks one of them."""
    parts, wholes = work.get(part), work.get(whole)
    return parts / wholes if wholes and parts is not None else None
