"""Mask the words that decide a task: selective masking (Gu et al. 2020, "Train No Evil").

The model is fine-tuned on a label task. Of the texts whose label it gets right, the words go into a
buffer, one by one. A word is important if, with it, the probability of the text's label given the
buffer comes within `threshold` of that given the whole text: P(y | text) - P(y | buffer) <
threshold. It is then removed from the buffer, and later words are judged without it. Stop words are
judged and removed too, but are never important. A tagger learns from the important words and finds
such words in text without labels. The rules are those of the released code
(https://github.com/thunlp/SelectiveMasking, data/sc_mask_gen.py and data/create_data_rule).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maskpolicy import (
    Count,
    DataError,
    Example,
    Json,
    Passage,
    Rate,
    Share,
    Spans,
    draw_highest,
    policy,
)
from maskpolicy.data.corpus import content_word, spacy_version
from maskpolicy.models.learned import (
    Classifier,
    Context,
    Contexts,
    Tools,
    Training,
    tagger,
    windows,
)

DROPOUT = 0.1  # of the tagger, unless the budget `fit` sets `dropout`
Marks = list[NDArray[np.bool_]]


@policy("selective-masking", target="spans")
@dataclass(frozen=True)
class SelectiveMasking:
    """Mask words that suffice to predict the label of a text of `train_on` (Gu et al. 2020).

    Of a passage's important words, as many are masked as `ratio` allows: those that the tagger is
    surest of.
    """

    train_on: tuple[str, ...]  # one label task
    ratio: Rate = 0.15  # largest share of a passage's words to mask
    threshold: Share = 0.01  # of the difference of probabilities below which a word is important
    texts: Count = 2000  # most examples of train to find important words in; drawn at random
    hidden: Count = 128  # hidden size of the tagger's LSTM in each direction
    only_select: ClassVar = ("ratio",)  # fields that neither fit nor annotate reads
    learns_from: ClassVar = "labels"
    needs_classifier: ClassVar = True

    def depends(self) -> Json:
        """Return the version of spaCy, which the stop words come with, and that of the rules."""
        return {"spacy": spacy_version(), "rules": 3}

    def fit(self, data: Sequence[Contexts], spec: Training, out: Path, tools: Tools) -> Json:
        """Find the important words of the task's texts, and train the tagger on them.

        Raises DataError if the model gets no label right, or if no word is important.
        """
        from maskpolicy.models.learned import extractor

        judge = tools.load_classifier(data[0], spec)
        rng = np.random.default_rng(spec.seed)
        chosen = rng.permutation(len(data[0].train))[: self.texts]
        read = {"train": [data[0].train[i] for i in np.sort(chosen)], "dev": data[0].dev}

        def probability(examples: Sequence[Example]) -> NDArray[np.float64]:
            own = np.asarray([judge.choices.index(one.targets[0]) for one in examples], int)
            found: NDArray[np.float64] = np.exp(judge.log_probabilities(examples))
            return found[np.arange(len(own)), own]

        splits = {split: _right(found, judge) for split, found in read.items()}
        if not splits["train"]:
            raise DataError(
                f"policy selective-masking: the model gets no label of {data[0].name} right: raise "
                "finetune.steps"
            )
        marks = {split: self.find(found, probability) for split, found in splits.items()}
        cuts = {split: _windows(found, marks[split]) for split, found in splits.items()}
        if not any(len(window.gold) for window in cuts["train"]):
            raise DataError(
                f"policy selective-masking: no word of {data[0].name} is important: raise "
                f"threshold (now {self.threshold:g}) or finetune.steps"
            )
        dropout = DROPOUT if spec.dropout is None else spec.dropout
        reader = extractor.build(tools.embeddings(), spec.seed, self.hidden, dropout)
        done = tools.train(
            reader,
            windows.WindowSteps(cuts["train"], spec),
            tagger.loss,
            spec,
            validate=(lambda module: _score(module, cuts["dev"])) if cuts["dev"] else None,
        )
        shares = {f"important_in_{split}": _share(found) for split, found in marks.items()}
        texts = [text for one in splits["train"] for text in (one.passage, one.second) if text]
        least = tagger.save(reader, texts, shares["important_in_train"], out)
        right = {"right_in_train": len(splits["train"]) / len(read["train"])}
        found = {"texts": len(texts), **right, **shares, "tagged_from": round(least, 4)}
        return {**found, **{name: done[name] for name in sorted(done)}}

    def find(
        self,
        contexts: Sequence[Context],
        probability: Callable[[Sequence[Example]], NDArray[np.float64]],
    ) -> Marks:
        """Return which words of each text are important; the two texts of a pair are joined.

        `probability` returns the probability of each example's label.
        """
        whole = probability([context.example for context in contexts])
        languages = [context.passage.language for context in contexts]
        read = zip(contexts, languages, strict=True)
        skipped = [[not content_word(word, of) for word in each.words] for each, of in read]
        buffers: Marks = [np.zeros(len(words), bool) for words in skipped]
        found: Marks = [np.zeros(len(words), bool) for words in skipped]
        for at in range(max(map(len, skipped), default=0)):
            there = [i for i, words in enumerate(skipped) if at < len(words)]
            for i in there:
                buffers[i][at] = True
            scores = probability([contexts[i].shortened(buffers[i]) for i in there])
            for i, score in zip(there, scores, strict=True):
                if whole[i] - score < self.threshold:
                    found[i][at], buffers[i][at] = not skipped[i][at], False
        return found

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None = None
    ) -> dict[str, list[NDArray[Any]]]:
        """Return the words that the tagger finds important, and the probability of each."""
        spans, sure = tagger.tag("selective-masking", fitted, passages)
        return {"important": spans, "sure": sure}

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Mask the surest floor(ratio * w + u) important words of w words, u uniform in [0, 1)."""
        found, sure = passage.columns["important"], passage.columns["sure"]
        share = self.ratio * len(passage.words) / max(1, len(found))
        return draw_highest(found, sure, share, rng)


def _right(contexts: Sequence[Context], judge: Classifier) -> list[Context]:
    """Return the contexts whose label the classifier gets right."""
    best = judge.log_probabilities([context.example for context in contexts]).argmax(1).tolist()
    pairs = zip(contexts, best, strict=True)
    return [one for one, label in pairs if judge.choices[label] == one.targets[0]]


def _windows(contexts: Sequence[Context], marks: Marks) -> list[windows.Window]:
    made: list[windows.Window] = []
    for context, tagged in zip(contexts, marks, strict=True):
        first = len(context.passage.words)
        made += tagger.cut(context.passage, tagged[:first])
        made += tagger.cut(context.second, tagged[first:]) if context.second else []
    return made


def _score(reader: Any, cuts: Sequence[windows.Window]) -> float:
    """Return the negative mean loss of windows."""
    import torch

    reader.eval()
    total = 0.0
    with torch.inference_mode():
        for batch in windows.batches([len(window.tokens) for window in cuts], windows.BATCH):
            texts = windows.collate([cuts[i] for i in batch]).to(reader.embeddings.device)
            total += tagger.loss(reader, texts)[0].item()
    return -total / len(cuts)


def _share(marks: Marks) -> float:
    words = sum(map(len, marks))
    return float(sum(each.sum() for each in marks)) / max(1, words)
