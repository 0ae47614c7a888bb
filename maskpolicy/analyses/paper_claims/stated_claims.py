"""The findings of Ye et al. 2021 and Meng et al. 2024 on masking policies.

We do not have the full text of Ye et al.: the sentences state what we know of it. F6, F9 and F10
come from figures without numbers. All smallest effects are our choice.
"""

from __future__ import annotations

from dataclasses import replace

from maskpolicy.analyses.paper_claims.contrasts import (
    HIGHER,
    LEAST,
    LOWER,
    POINTS,
    Claim,
    Interaction,
    Measured,
    RowDifference,
    Trend,
    on_each,
)
from maskpolicy.analyses.representations.figures import NEAREST

_YE, _MENG = "Ye et al. 2021", "Meng et al. 2024"
CLOSED_BOOK = ("triviaqa", "webquestions", "nq")
ENTITIES = ("aidayago2", "zsre", "wow")
_SHORT = ("aidayago2", "zsre")  # tasks whose answers are a few words; those of wow are sentences
_SUPERVISED = "supervised-TQA"  # masks the best span of a passage
_NOISY = "salient-span with errors"  # entities as an imperfect recogniser finds them
_ON_ZSRE = RowDifference("zsre", "supervised-zsRE", "salient-span", ("zsre",), direction=LOWER)
_ON_NEAR = RowDifference("zsre-near", "supervised-zsRE", "salient-span", ("zsre",), direction=LOWER)
_NAMES = {"tag": ("PROPN", "NUM")}
_EVERY = {"every": True}  # one number for each intermediate run
_PRETRAINED = {"tau": 0.9, "centred": False, "task": None}
# The mean accuracy of all linear probes of the last layer, which need more dimensions than a
# fine-tuned task does. Probes need the embedded world.
_DELTA_1_PROBED = Measured(
    *("mae-lm", "delta 1", "probe", "value", LEAST, POINTS, "MAE-LM"),
    reduce="last",
    along="steps",
    direction=LOWER,
    if_present=True,
)
_MAE_LM_PROBED = replace(_DELTA_1_PROBED, row="MAE-LM", other="MLM", direction=HIGHER)

YE_2021 = (
    Claim(
        "F1",
        "Recovering the whole text (original) helps closed-book question answering.",
        f"{_YE}, closed-book QA",
        (RowDifference("closed-book", "original", "none", CLOSED_BOOK),),
    ),
    Claim(
        "F2",
        "original harms ROPES, because intermediate pre-training leads to catastrophic forgetting.",
        f"{_YE}, multiple-choice QA: 46.60 to 43.68",
        (
            RowDifference("multiple-choice", "original", "none", ("ropes",), direction=LOWER),
            RowDifference("multiple-choice", "original, rehearsal", "original", ("ropes",)),
            RowDifference(
                "multiple-choice", "original, genre", "original", ("ropes",), if_present=True
            ),
            Measured(
                *("multiple-choice", "original", "forgetting", "difference", 0.05, "nats"),
                other="original, rehearsal",
            ),
        ),
    ),
    Claim(
        "F3",
        "Salient spans help every entity-centric task.",
        f"{_YE}, closed-book QA and knowledge-intensive tasks",
        (
            *on_each(CLOSED_BOOK, "closed-book", "salient-span", "none"),
            *on_each(ENTITIES, "knowledge-intensive", "salient-span", "none"),
            RowDifference("closed-book", _NOISY, "none", CLOSED_BOOK, if_present=True),
            RowDifference("knowledge-intensive", _NOISY, "none", ENTITIES, if_present=True),
        ),
    ),
    Claim(
        "F4",
        "original is better for long outputs, random for short ones.",
        f"{_YE}, knowledge-intensive tasks",
        (
            RowDifference("knowledge-intensive", "original", "random", ("wow",)),
            RowDifference(
                "knowledge-intensive", "original", "random", ("wow's facts",), if_present=True
            ),
            RowDifference("knowledge-intensive", "original", "random", _SHORT, direction=LOWER),
        ),
    ),
    Claim(
        "F5",
        "A supervised policy beats salient spans on TriviaQA.",
        f"{_YE}, closed-book QA",
        (RowDifference("closed-book", _SUPERVISED, "salient-span", ("triviaqa",)),),
    ),
    Claim(
        "F6",
        "A supervised policy learns TriviaQA in fewer steps than salient spans.",
        f"{_YE}, learning efficiency",
        (
            RowDifference(
                *("efficiency", _SUPERVISED, "salient-span", ("triviaqa",)),
                step="first checkpoint",
            ),
        ),
    ),
    Claim(
        "F7",
        "A learned policy can transfer: it beats salient spans on tasks it was not learned on.",
        f"{_YE}, learned policies used for other tasks",
        on_each(("webquestions", "nq"), "closed-book", _SUPERVISED, "salient-span"),
        counts="any",
    ),
    Claim(
        "F8",
        "A learned policy overfits to train where test differs: on zsRE it is worse than salient "
        "spans.",
        f"{_YE}, zero-shot RE",
        (_ON_ZSRE, Interaction(_ON_ZSRE, _ON_NEAR, direction=LOWER, if_present=True)),
    ),
    Claim(
        "F9",
        "Salient spans and learned policies mask proper nouns and numbers, random masks any word.",
        f"{_YE}, parts of speech",
        tuple(
            Measured(
                *("closed-book", row, "pos", "share", 0.1, "of the masked words", "random"),
                settings=_EVERY,
                where=_NAMES,
            )
            for row in ("salient-span", _SUPERVISED)
        ),
    ),
    Claim(
        "F10",
        "Masked tokens follow Zipf's law less for salient spans than for random, and less still "
        "for a learned policy.",
        f"{_YE}, frequency of masked tokens",
        tuple(
            Measured(
                *("closed-book", row, "frequency", "slope", 0.1, "of slope", other),
                settings=_EVERY,
            )
            for row, other in (("salient-span", "random"), (_SUPERVISED, "salient-span"))
        ),
    ),
)

MENG_2024 = (
    Claim(
        "M1",
        "The effective rank of <mask> representations rises from the input layer to the output "
        "layer.",
        f"{_MENG}, lemma 2.1 and figure 1b",
        (
            Measured(
                *("mae-lm", "MLM", "rank", "mask", 0.5, "ranks a layer"),
                where=_PRETRAINED,
                reduce="slope",
                along="layer",
            ),
        ),
    ),
    Claim(
        "M2",
        "Masks take dimensions of their own in MLM; without masks in the encoder (MAE-LM) this gap "
        "in rank closes.",
        f"{_MENG}, theorem 2.2 and figure 5a",
        (
            Measured(
                *("mae-lm", "MAE-LM", "rank", "value", 1.0, "ranks"),
                where={"set": "gap", "layer": NEAREST, "tau": 0.9, "centred": False},
                resolution=2**0.5,  # a difference of two ranks
                direction=LOWER,
            ),
            Measured(
                *("mae-lm", "delta 1", "rank", "gap", 1.0, "ranks", "MAE-LM"),
                where=_PRETRAINED,
                reduce="last",
                along="layer",
                resolution=1.0,
            ),
        ),
    ),
    Claim(
        "M3",
        "Scores fall as masks return to the encoder.",
        f"{_MENG}, figure 4",
        (
            Trend(
                experiment="mae-lm",
                rows={"MAE-LM": 0.0, "delta 0.5": 0.5, "delta 1": 1.0},
                tasks=(),
                over="the share of masks that return",
                direction=LOWER,
            ),
            _DELTA_1_PROBED,
        ),
    ),
    Claim(
        "M4",
        "MAE-LM is better than MLM on downstream tasks.",
        f"{_MENG}, GLUE and SQuAD",
        (RowDifference("mae-lm", "MAE-LM", "MLM", ()), _MAE_LM_PROBED),
    ),
)
