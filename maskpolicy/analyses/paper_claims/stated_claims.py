"""The findings of Ye et al. 2021 and Meng et al. 2024 on masking policies.

We do not have the full text of Ye et al.: the sentences state what we know of it. F6, F9 and F10
come from figures without numbers. The smallest effect of F2 is the paper's, all others are our
choice. FURTHER has what we ask besides: remedies, controls, and scores of probes.
"""

from __future__ import annotations

from dataclasses import replace

from maskpolicy.analyses.paper_claims.contrasts import (
    HIGHER,
    LEAST,
    LOWER,
    POINTS,
    Claim,
    Contrast,
    Measured,
    RowDifference,
    Trend,
    on_each,
)
from maskpolicy.analyses.representations.figures import NEAREST

_YE, _MENG = "Ye et al. 2021", "Meng et al. 2024"
CLOSED_BOOK = ("triviaqa", "webquestions", "nq")
ENTITIES = ("aidayago2", "zsre", "wow")
_SHORT = ("aidayago2", "zsre")  # tasks whose answers are a few words
_SUPERVISED = "supervised-TQA"  # masks the best span of a passage
_NOISY = "salient-span with errors"  # entities as an imperfect recogniser finds them
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
            RowDifference(
                *("multiple-choice", "original", "none", ("ropes",)), direction=LOWER, least=2.92
            ),
            Measured("multiple-choice", "original", "forgetting", "difference", 0.05, "nats"),
        ),
    ),
    Claim(
        "F3",
        "Salient spans help every entity-centric task.",
        f"{_YE}, closed-book QA and knowledge-intensive tasks",
        (
            *on_each(CLOSED_BOOK, "closed-book", "salient-span", "none"),
            *on_each(ENTITIES, "knowledge-intensive", "salient-span", "none"),
        ),
    ),
    Claim(
        "F4",
        "original is better for long outputs, random for short ones.",
        f"{_YE}, knowledge-intensive tasks",
        (
            RowDifference(
                *("long-answers", "original", "random", ("wow",)), instead="knowledge-intensive"
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
                *("efficiency", _SUPERVISED, "salient-span", ("triviaqa",)), over_steps=True
            ),
        ),
    ),
    Claim(
        "F7",
        "A learned policy can transfer: it beats salient spans on tasks it was not learned on.",
        f"{_YE}, learned policies used for other tasks",
        # in the embedded world, webquestions asks what triviaqa asks, and so does zsre
        (
            RowDifference("closed-book", _SUPERVISED, "salient-span", ("nq",)),
            RowDifference(
                "closed-book", _SUPERVISED, "salient-span", ("aidayago2",), if_present=True
            ),
        ),
        counts="any",
    ),
    Claim(
        "F8",
        "A learned policy overfits to train where test differs: on zsRE it is worse than salient "
        "spans.",
        f"{_YE}, zero-shot RE",
        (RowDifference("zsre", "supervised-zsRE", "salient-span", ("zsre",), direction=LOWER),),
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
                *("closed-book", row, "frequency", "fit", 0.05, "of R²", other),
                settings=_EVERY,
                direction=LOWER,
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
        ),
    ),
    Claim(
        "M4",
        "MAE-LM is better than MLM on downstream tasks.",
        f"{_MENG}, GLUE and SQuAD",
        (RowDifference("mae-lm", "MAE-LM", "MLM", ()),),
    ),
)

_REHEARSAL = RowDifference(
    "multiple-choice", "original, rehearsal", "original", ("ropes",), if_present=True
)
_CONTROL = Measured(
    *("mae-lm", "delta 1", "rank", "gap", 1.0, "ranks", "MAE-LM"),
    where=_PRETRAINED,
    reduce="last",
    along="layer",
    resolution=1.0,
    if_present=True,
)


def _asked(number: str, sentence: str, *contrasts: Contrast) -> Claim:
    return Claim(number, sentence, "our question", contrasts)


FURTHER = (
    _asked("A1", "Rehearsal of general text restores what original loses on ROPES.", _REHEARSAL),
    _asked(
        "A2",
        "So does the genre of ROPES in the intermediate text.",
        replace(_REHEARSAL, row="original, genre"),
    ),
    _asked(
        "A3",
        "Salient spans help also if entities are recognised with errors.",
        RowDifference("closed-book", _NOISY, "none", CLOSED_BOOK, if_present=True),
        RowDifference("knowledge-intensive", _NOISY, "none", ENTITIES, if_present=True),
    ),
    _asked("A4", "With MAE-LM's decoder, masks in the encoder still widen the gap.", _CONTROL),
    _asked("A5", "Linear probes are worse if masks return.", _DELTA_1_PROBED),
    _asked("A6", "Linear probes are better in MAE-LM than in MLM.", _MAE_LM_PROBED),
)
