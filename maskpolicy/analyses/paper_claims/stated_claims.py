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
    Counts,
    Measured,
    RowDifference,
    Trend,
    on_each,
)
from maskpolicy.analyses.representations.figures import NEAREST

_YE, _MENG, _OURS = "Ye et al. 2021", "Meng et al. 2024", "our question"
CLOSED_BOOK = ("triviaqa", "webquestions", "nq")
ENTITIES = ("aidayago2", "zsre", "wow")
_SHORT = ("aidayago2", "zsre")  # tasks whose answers are a few words
_SUPERVISED = "supervised-TQA"  # masks the best span of a passage
_NOISY = "salient-span with errors"  # entities as an imperfect recogniser finds them
_EVERY = {"every": True}  # one number for each intermediate run
_PRETRAINED = {"tau": 0.9, "centred": False, "task": None}
# The mean accuracy of all linear probes of the last layer, which need more dimensions than a
# fine-tuned task does. Probes need the embedded world.
_PROBED = Measured(
    *("mae-lm", "delta 1", "probe", "value", LEAST, POINTS, "MAE-LM"),
    reduce="last",
    along="steps",
    direction=LOWER,
    if_present=True,
)
_ON_ROPES = RowDifference(
    "multiple-choice", "original, rehearsal", "original", ("ropes",), if_present=True
)
_LEARNED = RowDifference("closed-book", _SUPERVISED, "salient-span", ("triviaqa",))
_NAMED = Measured(
    *("closed-book", "salient-span", "pos", "share", 0.1, "of the masked words", "random"),
    settings=_EVERY,
    where={"tag": ("PROPN", "NUM")},
)
_ZIPF = Measured(
    *("closed-book", "salient-span", "frequency", "fit", 0.05, "of R²", "random"),
    settings=_EVERY,
    direction=LOWER,
)


def _claim(
    number: str, source: str, sentence: str, *contrasts: Contrast, counts: Counts = "all"
) -> Claim:
    return Claim(number, sentence, source, contrasts, counts)


YE_2021 = (
    _claim(
        "F1",
        f"{_YE}, closed-book QA",
        "Recovering the whole text (original) helps closed-book question answering.",
        RowDifference("closed-book", "original", "none", CLOSED_BOOK),
    ),
    _claim(
        "F2",
        f"{_YE}, multiple-choice QA: 46.60 to 43.68",
        "original harms ROPES, because intermediate pre-training leads to catastrophic forgetting.",
        RowDifference(
            *("multiple-choice", "original", "none", ("ropes",)), direction=LOWER, least=2.92
        ),
        Measured("multiple-choice", "original", "forgetting", "difference", 0.05, "nats"),
    ),
    _claim(
        "F3",
        f"{_YE}, closed-book QA and knowledge-intensive tasks",
        "Salient spans help every entity-centric task.",
        *on_each(CLOSED_BOOK, "closed-book", "salient-span", "none"),
        *on_each(ENTITIES, "knowledge-intensive", "salient-span", "none"),
    ),
    _claim(
        "F4",
        f"{_YE}, knowledge-intensive tasks",
        "original is better for long outputs, random for short ones.",
        RowDifference("long-answers", "original", "random", ("wow",)),
        RowDifference("knowledge-intensive", "original", "random", _SHORT, direction=LOWER),
    ),
    _claim(
        "F5",
        f"{_YE}, closed-book QA",
        "A supervised policy beats salient spans on TriviaQA.",
        _LEARNED,
    ),
    _claim(
        "F6",
        f"{_YE}, learning efficiency",
        "A supervised policy learns TriviaQA in fewer steps than salient spans.",
        replace(_LEARNED, experiment="efficiency", over_steps=True),
    ),
    _claim(
        "F7",
        f"{_YE}, learned policies used for other tasks",
        "A learned policy can transfer: it beats salient spans on tasks it was not learned on.",
        # in the embedded world, webquestions asks what triviaqa asks, and so does zsre
        replace(_LEARNED, tasks=("nq",)),
        replace(_LEARNED, tasks=("aidayago2",), if_present=True),
        counts="any",
    ),
    _claim(
        "F8",
        f"{_YE}, zero-shot RE",
        "A learned policy overfits to train where test differs: on zsRE it is worse than salient "
        "spans.",
        RowDifference("zsre", "supervised-zsRE", "salient-span", ("zsre",), direction=LOWER),
    ),
    _claim(
        "F9",
        f"{_YE}, parts of speech",
        "Salient spans and learned policies mask proper nouns and numbers, random masks any word.",
        _NAMED,
        replace(_NAMED, row=_SUPERVISED),
    ),
    _claim(
        "F10",
        f"{_YE}, frequency of masked tokens",
        "Masked tokens follow Zipf's law less for salient spans than for random, and less still "
        "for a learned policy.",
        _ZIPF,
        replace(_ZIPF, row=_SUPERVISED, other="salient-span"),
    ),
)
MENG_2024 = (
    _claim(
        "M1",
        f"{_MENG}, lemma 2.1 and figure 1b",
        "The effective rank of <mask> representations rises from the input layer to the output "
        "layer.",
        Measured(
            *("mae-lm", "MLM", "rank", "mask", 0.5, "ranks a layer"),
            where=_PRETRAINED,
            reduce="slope",
            along="layer",
        ),
    ),
    _claim(
        "M2",
        f"{_MENG}, theorem 2.2 and figure 5a",
        "Masks take dimensions of their own in MLM; without masks in the encoder (MAE-LM) this gap "
        "in rank closes.",
        Measured(
            *("mae-lm", "MAE-LM", "rank", "value", 1.0, "ranks"),
            where={"set": "gap", "layer": NEAREST, "tau": 0.9, "centred": False},
            resolution=2.0,  # a difference of two differences of ranks
            direction=LOWER,
        ),
    ),
    _claim(
        "M3",
        f"{_MENG}, figure 4",
        "Scores fall as masks return to the encoder.",
        Trend(
            experiment="mae-lm",
            rows={"MAE-LM": 0.0, "delta 0.5": 0.5, "delta 1": 1.0},
            tasks=(),
            over="the share of masks that return",
            direction=LOWER,
        ),
    ),
    _claim(
        "M4",
        f"{_MENG}, GLUE and SQuAD",
        "MAE-LM is better than MLM on downstream tasks.",
        RowDifference("mae-lm", "MAE-LM", "MLM", ()),
    ),
)
FURTHER = (
    _claim(
        "A1",
        _OURS,
        "Rehearsal of general text restores what original loses on ROPES.",
        _ON_ROPES,
    ),
    _claim(
        "A2",
        _OURS,
        "So does the genre of ROPES in the intermediate text.",
        replace(_ON_ROPES, row="original, genre"),
    ),
    _claim(
        "A3",
        _OURS,
        "Salient spans help also if entities are recognised with errors.",
        RowDifference("closed-book", _NOISY, "none", CLOSED_BOOK, if_present=True),
        RowDifference("knowledge-intensive", _NOISY, "none", ENTITIES, if_present=True),
    ),
    _claim(
        "A4",
        _OURS,
        "With MAE-LM's decoder, masks in the encoder still widen the gap.",
        Measured(
            *("mae-lm", "delta 1", "rank", "gap", 1.0, "ranks", "MAE-LM"),
            where=_PRETRAINED,
            reduce="last",
            along="layer",
            resolution=2**0.5,  # a difference of two ranks
            if_present=True,
        ),
    ),
    _claim("A5", _OURS, "Linear probes are worse if masks return.", _PROBED),
    _claim(
        "A6",
        _OURS,
        "Linear probes are better in MAE-LM than in MLM.",
        replace(_PROBED, row="MAE-LM", other="MLM", direction=HIGHER),
    ),
)
