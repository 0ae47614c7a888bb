"""The findings of Meng et al. 2024 on the rank of representations, and MAE-LM."""

from __future__ import annotations

from maskpolicy.replication.contrasts import LOWER, Claim, Measured, RowDifference, Trend

_PAPER = "Meng et al. 2024"
_PRETRAINED = {"tau": 0.9, "centred": False, "task": None}

CLAIMS = (
    Claim(
        "M1",
        "The effective rank of <mask> representations rises from the input layer to the output "
        "layer.",
        f"{_PAPER}, lemma 2.1 and figure 1b",
        (
            Measured(
                *("mae-lm", "MLM", "rank", "mask"),
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
        tuple(
            Measured(
                *("mae-lm", row, "rank", "gap"),
                other="MAE-LM",
                where=_PRETRAINED,
                reduce="last",
                along="layer",
                resolution=1.0,
                least=1.0,
                unit="ranks",
            )
            for row in ("MLM", "delta 1")
        ),
    ),
    Claim(
        "M3",
        "Scores fall as masks return to the encoder.",
        f"{_PAPER}, figure 4",
        (
            Trend(
                *("mae-lm", {"MAE-LM": 0.0, "delta 0.5": 0.5, "delta 1": 1.0}, ()),
                over="the share of masks that return",
                direction=LOWER,
            ),
        ),
    ),
    Claim(
        "M4",
        "MAE-LM is better than MLM on downstream tasks.",
        f"{_PAPER}, GLUE and SQuAD",
        (RowDifference("mae-lm", "MAE-LM", "MLM", ()),),
    ),
)
