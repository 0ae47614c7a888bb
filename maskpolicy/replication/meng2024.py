"""The findings of Meng et al. 2024 on the rank of representations, and MAE-LM."""

from __future__ import annotations

from maskpolicy.findings.representations.rank_numbers import NEAREST
from maskpolicy.replication.contrasts import (
    HIGHER,
    LEAST,
    LOWER,
    POINTS,
    Claim,
    Direction,
    Measured,
    RowDifference,
    Trend,
)

_PAPER = "Meng et al. 2024"
_PRETRAINED = {"tau": 0.9, "centred": False, "task": None}


def _probed(row: str, other: str, direction: Direction) -> Measured:
    """Return the difference in the mean accuracy of all linear probes of the last layer.

    They ask for more dimensions than a fine-tuned task does. Probes read the embedded world.
    """
    return Measured(
        experiment="mae-lm",
        row=row,
        analysis="probe",
        value="value",
        other=other,
        reduce="last",
        along="steps",
        direction=direction,
        least=LEAST,
        unit=POINTS,
        if_present=True,
    )


CLAIMS = (
    Claim(
        "M1",
        "The effective rank of <mask> representations rises from the input layer to the output "
        "layer.",
        f"{_PAPER}, lemma 2.1 and figure 1b",
        (
            Measured(
                experiment="mae-lm",
                row="MLM",
                analysis="rank",
                value="mask",
                where=_PRETRAINED,
                reduce="slope",
                along="layer",
                least=0.5,
                unit="ranks a layer",
            ),
        ),
    ),
    Claim(
        "M2",
        "Masks take dimensions of their own in MLM; without masks in the encoder (MAE-LM) this gap "
        "in rank closes.",
        f"{_PAPER}, theorem 2.2 and figure 5a",
        (
            Measured(
                experiment="mae-lm",
                row="MAE-LM",
                analysis="rank",
                value="value",
                where={"set": "gap", "layer": NEAREST, "tau": 0.9, "centred": False},
                resolution=2**0.5,  # a difference of two ranks
                least=1.0,
                unit="ranks",
                direction=LOWER,
            ),
            Measured(
                experiment="mae-lm",
                row="delta 1",
                analysis="rank",
                value="gap",
                other="MAE-LM",
                where=_PRETRAINED,
                reduce="last",
                along="layer",
                resolution=1.0,
                least=1.0,
                unit="ranks",
            ),
        ),
    ),
    Claim(
        "M3",
        "Scores fall as masks return to the encoder.",
        f"{_PAPER}, figure 4",
        (
            Trend(
                experiment="mae-lm",
                rows={"MAE-LM": 0.0, "delta 0.5": 0.5, "delta 1": 1.0},
                tasks=(),
                over="the share of masks that return",
                direction=LOWER,
            ),
            _probed("delta 1", "MAE-LM", LOWER),
        ),
    ),
    Claim(
        "M4",
        "MAE-LM is better than MLM on downstream tasks.",
        f"{_PAPER}, GLUE and SQuAD",
        (RowDifference("mae-lm", "MAE-LM", "MLM", ()), _probed("MAE-LM", "MLM", HIGHER)),
    ),
)
