"""The findings of Ye et al. 2021 on masking policies in intermediate pre-training.

The paper's full text is not at hand: the sentences say what is known of it. F6, F9 and F10 are read
off figures whose numbers are not known, so their smallest effects are our choice, as all others.
"""

from __future__ import annotations

from maskpolicy.replication.contrasts import (
    LOWER,
    Claim,
    Interaction,
    Measured,
    RowDifference,
    on_each,
)

_PAPER = "Ye et al. 2021"
CLOSED_BOOK = ("triviaqa", "webquestions", "nq")
ENTITIES = ("aidayago2", "zsre", "wow")
_SHORT = ("aidayago2", "zsre")  # tasks whose answers are a few words; those of wow are sentences
_SUPERVISED = "supervised-TQA"  # masks the best span of a passage
_NOISY = "salient-span with errors"  # entities as an imperfect recogniser finds them
_ON_ZSRE = RowDifference("zsre", "supervised-zsRE", "salient-span", ("zsre",), direction=LOWER)
_ON_NEAR = RowDifference("zsre-near", "supervised-zsRE", "salient-span", ("zsre",), direction=LOWER)
_NAMES = {"tag": ("PROPN", "NUM")}
_EVERY = {"every": True}  # one number for each intermediate run

CLAIMS = (
    Claim(
        "F1",
        "Recovering the whole text (original) helps closed-book question answering.",
        f"{_PAPER}, closed-book QA",
        (RowDifference("closed-book", "original", "none", CLOSED_BOOK),),
    ),
    Claim(
        "F2",
        "original harms ROPES, because intermediate pre-training leads to catastrophic forgetting.",
        f"{_PAPER}, multiple-choice QA: 46.60 to 43.68",
        (
            RowDifference("multiple-choice", "original", "none", ("ropes",), direction=LOWER),
            RowDifference("multiple-choice", "original, rehearsal", "original", ("ropes",)),
            RowDifference(
                experiment="multiple-choice",
                row="original, genre",
                other="original",
                tasks=("ropes",),
                if_present=True,
            ),
            Measured(
                experiment="multiple-choice",
                row="original",
                analysis="forgetting",
                value="difference",
                other="original, rehearsal",
                least=0.05,
                unit="nats",
            ),
        ),
    ),
    Claim(
        "F3",
        "Salient spans help every entity-centric task.",
        f"{_PAPER}, closed-book QA and knowledge-intensive tasks",
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
        f"{_PAPER}, knowledge-intensive tasks",
        (
            RowDifference("knowledge-intensive", "original", "random", ("wow",)),
            RowDifference(
                experiment="knowledge-intensive",
                row="original",
                other="random",
                tasks=("wow's facts",),
                if_present=True,
            ),
            RowDifference("knowledge-intensive", "original", "random", _SHORT, direction=LOWER),
        ),
    ),
    Claim(
        "F5",
        "A supervised policy beats salient spans on TriviaQA.",
        f"{_PAPER}, closed-book QA",
        (RowDifference("closed-book", _SUPERVISED, "salient-span", ("triviaqa",)),),
    ),
    Claim(
        "F6",
        "A supervised policy learns TriviaQA in fewer steps than salient spans.",
        f"{_PAPER}, learning efficiency",
        (
            RowDifference(
                experiment="efficiency",
                row=_SUPERVISED,
                other="salient-span",
                tasks=("triviaqa",),
                step="first checkpoint",
            ),
        ),
    ),
    Claim(
        "F7",
        "A learned policy can transfer: it beats salient spans on tasks that it was not learnt on.",
        f"{_PAPER}, learned policies used for other tasks",
        on_each(("webquestions", "nq"), "closed-book", _SUPERVISED, "salient-span"),
        counts="any",
    ),
    Claim(
        "F8",
        "A learned policy overfits to train where test differs: on zsRE it is worse than salient "
        "spans.",
        f"{_PAPER}, zero-shot RE",
        (_ON_ZSRE, Interaction(_ON_ZSRE, _ON_NEAR, direction=LOWER, if_present=True)),
    ),
    Claim(
        "F9",
        "Salient spans and learned policies mask proper nouns and numbers, random masks any word.",
        f"{_PAPER}, parts of speech",
        tuple(
            Measured(
                experiment="closed-book",
                row=row,
                analysis="pos",
                value="share",
                other="random",
                settings=_EVERY,
                where=_NAMES,
                least=0.1,
                unit="of the masked words",
            )
            for row in ("salient-span", _SUPERVISED)
        ),
    ),
    Claim(
        "F10",
        "Masked tokens follow Zipf's law less for salient spans than for random, and less still "
        "for a learned policy.",
        f"{_PAPER}, frequency of masked tokens",
        tuple(
            Measured(
                experiment="closed-book",
                row=row,
                analysis="frequency",
                value="slope",
                other=other,
                settings=_EVERY,
                least=0.1,
                unit="of slope",
            )
            for row, other in (("salient-span", "random"), (_SUPERVISED, "salient-span"))
        ),
    ),
)
