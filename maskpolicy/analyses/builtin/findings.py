"""The findings of Ye et al. 2021 and Meng et al. 2024: shown, refuted or undecided."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from maskpolicy import Findings, Json, Run, Store, analysis
from maskpolicy.analyses import Figure
from maskpolicy.analyses.paper_claims.contrast_evidence import Evidences
from maskpolicy.analyses.paper_claims.contrasts import LEAST, POINTS, Claim
from maskpolicy.analyses.paper_claims.stated_claims import FURTHER, MENG_2024, YE_2021
from maskpolicy.analyses.paper_claims.verdicts import RUNS, Tested, Verdict, decide
from maskpolicy.core.schema import Positive
from maskpolicy.leaderboard.comparisons import generality
from maskpolicy.leaderboard.stats import LEVEL

CLAIMS = (*YE_2021, *MENG_2024)
COLUMNS = (
    *("finding", "claim", "verdict", "p", "p of least", "compared", "on", "difference", "low"),
    *("high", "claimed", "least", "own p", "own p of least", "finds", "runs"),
)
OVERVIEW = ("finding", "claim", "verdict")
ABOUT = (
    "The fourteen findings of Ye et al. 2021 and Meng et al. 2024",
    "All findings are tested as one family, and a rule decides each verdict: nothing here is typed "
    "by hand. docs/claims.md explains the verdicts, docs/differences.md the rule. A1 to A6, where "
    "runs have their rows, are questions of ours, a second family.",
    "The experiments of experiments/findings/ are the fifth design. It was made after the results "
    "of the fourth were known, and the first three were changed with figures at hand "
    "(docs/development/log.md).",
    "`make findings` runs the experiments of experiments/findings/ and writes this page; "
    "`maskpolicy analyze findings RUN... --out FOLDER` writes it for finished runs.",
)
HEADINGS = (
    "compared, on: the rows, and the scores or the figure of an analysis, whose difference is "
    "tested; claimed: the sign of the difference that the paper claims; least: the smallest "
    "difference that counts as an effect; runs: intermediate runs of the rows"
)
NOTHING = "no run has rows that a claim compares: run the experiments of experiments/findings/"


@analysis("findings", heading="Claims of the papers", place=10)
@dataclass(frozen=True)
class PaperFindings:
    """The claims of Ye et al. 2021 and Meng et al. 2024, each shown, refuted or undecided.

    Reads the runs of experiments/findings/, or of experiments/paper/, which it finds by the names
    of the experiments. All claims are one family of tests. `least` is the smallest effect, in
    points, of claims about scores, except for F2's, which is the paper's: a claim that is not shown
    is refuted if the data exclude effects of this size. For `forgetting`, models that were
    pre-trained elsewhere need `text`, general text that no stage has seen; for `pos`, corpora other
    than the world need `pipeline`, a spaCy pipeline. `draw: false` leaves out the figures.
    """

    least: Positive = LEAST
    text: tuple[str, ...] = ()
    pipeline: str | None = None
    draw: bool = True

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Test all claims; findings are not cached, because they use other analyses."""
        settings: dict[str, dict[str, Json]] = {
            "forgetting": {"text": list(self.text)} if self.text else {},
            "pos": {"pipeline": self.pipeline} if self.pipeline else {},
        }
        evidences = Evidences(runs, store, settings)
        families = [[self._scaled(claim) for claim in own] for own in (CLAIMS, FURTHER)]
        main, further = (decide(claims, evidences) for claims in families)
        verdicts = [*main, *(verdict for verdict in further if verdict.tested)]
        drawn = tuple(_figures(evidences)) if self.draw else ()
        if not drawn and not any(each.estimate for one in verdicts for each in one.tested):
            return Findings(COLUMNS, (), (NOTHING,), partial=True)
        notes = (*_rules(main, verdicts), *dict.fromkeys(evidences.notes))
        rows = tuple(row for verdict in verdicts for row in _rows(verdict))
        return Findings(
            COLUMNS, rows, notes, partial=True, figures=drawn, about=ABOUT, overview=OVERVIEW
        )

    def _scaled(self, claim: Claim) -> Claim:
        """Return a claim whose contrasts of scores have the smallest effect of the settings."""
        scaled = tuple(
            replace(each, least=self.least) if each.unit == POINTS and each.least == LEAST else each
            for each in claim.contrasts
        )
        return replace(claim, contrasts=scaled)


def _rows(verdict: Verdict) -> list[dict[str, Json]]:
    """Return the rows of one claim: a row for each comparison, the first with the verdict."""
    claim, judged = verdict.claim, verdict.judged
    rest: dict[str, Json] = dict.fromkeys(("claim", "verdict", "p", "p of least"), "")
    sentence = f"{claim.sentence} ({claim.source})"
    first: dict[str, Json] = {"claim": sentence, "verdict": verdict.text}
    if judged is not None:
        first |= {"p": float(judged.p), "p of least": float(judged.p_least)}
    rows = [_row(each) for each in verdict.tested] or [{}]
    heads = [first, *[rest] * (len(rows) - 1)]
    return [{"finding": claim.number, **head, **row} for head, row in zip(heads, rows, strict=True)]


def _row(tested: Tested) -> dict[str, Json]:
    contrast, estimate = tested.contrast, tested.estimate
    row: dict[str, Json] = {"compared": contrast.compared, "on": contrast.on}
    row |= {"claimed": "> 0" if contrast.direction > 0 else "< 0"}
    row |= {"least": f"{contrast.least:g} {contrast.unit}"}
    row |= {"own p": tested.p, "own p of least": tested.p_least}
    row |= {"finds": tested.finds, "runs": tested.evidence.runs}
    if estimate is not None:
        row |= {"difference": estimate.difference, "low": estimate.low, "high": estimate.high}
    return row


def _rules(main: Sequence[Verdict], verdicts: Sequence[Verdict]) -> list[str]:
    """Return the rule of all verdicts and of the main family, and what the tests generalise to."""
    family = [verdict for verdict in main if verdict.judged is not None]
    tested = [each for verdict in verdicts for each in verdict.tested if each.claimed]
    any_of = [v.claim.number for v in verdicts if v.claim.counts == "any"]
    notes = [
        HEADINGS,
        "difference: with the 95% interval of its own test, in the unit of `least`",
        "own p: of a difference of 0 or in the other direction; own p of least: of a difference of "
        "`least` or more in the claimed direction; both one-sided, for this comparison alone",
        "p: that the finding does not hold, the largest own p of its comparisons; p of least: "
        "that it holds with differences of `least` or more, the smallest own p of least times the "
        f"number of its comparisons ({', '.join(any_of)}, a claim about any of them: the other way "
        f"round); both adjusted over all {len(family)} findings, those of A1 to A6 over these "
        "(Holm; of the two at most one can be true)",
        f"shown: p < {LEVEL}; refuted: p of least < {LEVEL}, and not shown",
        "finds: the difference with which this comparison alone would have been significant in the "
        "family with a probability of 80%",
        f"a comparison needs {RUNS} intermediate runs; while one has fewer, a finding about all "
        "cannot be shown, and one about any cannot be refuted",
    ]
    kinds = {each.evidence.draws_general for each in tested if each.evidence.pair is not None}
    if kinds:
        notes.append(generality(kinds))
    if any(each.evidence.values is not None for each in tested):
        notes.append(
            "Numbers of analyses, and scores that are not means over examples, are tested over "
            "runs alone (Student's t): the passages and examples are held fixed."
        )
    return notes


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper: the panels of an analysis that have `panels` in their titles."""

    title: str
    experiment: str
    analysis: str
    panels: str = ""
    settings: Mapping[str, Json] = field(default_factory=dict)


_EVERY = {"every": True}  # all intermediate runs of a row
FIGURES = (
    PaperFigure("Ye et al. 2021: learning efficiency", "efficiency", "efficiency"),
    PaperFigure("Ye et al. 2021: learned policies on other tasks", "closed-book", "transfer"),
    PaperFigure(
        "Ye et al. 2021: parts of speech of masked words", "closed-book", "pos", settings=_EVERY
    ),
    PaperFigure(
        "Ye et al. 2021: frequency of masked tokens", "closed-book", "frequency", settings=_EVERY
    ),
    PaperFigure("Meng et al. 2024, figure 1a: rank of all tokens", "mae-lm", "rank", "(1a)"),
    PaperFigure("Meng et al. 2024, figure 1b: rank of <mask> tokens", "mae-lm", "rank", "(1b)"),
    PaperFigure("Meng et al. 2024, figure 3: scores over pre-training", "mae-lm", "figure3"),
    PaperFigure("Meng et al. 2024, figure 4: masks that return", "mae-lm", "returned-masks"),
    PaperFigure("The same for linear probes of the frozen encoders", "mae-lm", "probe"),
    PaperFigure("Meng et al. 2024, figure 5a: gap in rank", "mae-lm", "rank", "(5a)"),
    PaperFigure("Meng et al. 2024, figure 5b: rank in fine-tuning", "mae-lm", "rank", "(5b)"),
)


def _figures(evidences: Evidences) -> list[Figure]:
    """Return the figures for which the runs have what their analysis needs."""
    found = []
    for figure in FIGURES:
        for run in evidences.of_experiment(figure.experiment):
            table = evidences.table(figure.analysis, figure.settings, run)
            plots = table.plots if table else ()
            kept = tuple(plot for plot in plots if figure.panels in getattr(plot, "title", ""))
            if kept:
                given = {**evidences.settings.get(figure.analysis, {}), **figure.settings}.items()
                settings = "".join(f" {key}={json.dumps(value)}" for key, value in given)
                about = f"maskpolicy analyze {figure.analysis} {run.name}{settings}"
                found.append(Figure(figure.title, about, kept))
    return found
