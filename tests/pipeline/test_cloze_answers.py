"""What the stage "cloze" shows a model: the entry with its value masked by the model's own mark."""

from __future__ import annotations

import numpy as np
import pytest
import small
import text_to_text

from maskpolicy.models.training.specials import Specials
from maskpolicy.pipeline.stages.cloze_answers import _masked

TEXTS = ["Anna Kovar was born in <mask>.", "Boats go down the <mask> in 1901."]
VALUES = ["Rome", "river Oder"]


@pytest.mark.parametrize("name", ["bart", "t5", "mbart"])
def test_the_value_is_masked_by_one_mark(name):
    tokenizer = text_to_text.tokenizer(name)
    marks = Specials.of(tokenizer).marks
    sources, longest = _masked(TEXTS, VALUES, tokenizer, marks)
    whole = [text.replace("<mask>", value) for text, value in zip(TEXTS, VALUES, strict=True)]
    for source, text in zip(sources, whole, strict=True):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        (at,) = np.flatnonzero(source == marks.mask)
        rest = len(source) - at - 1
        assert source[:at].tolist() == ids[:at]
        assert source[at + 1 :].tolist() == ids[len(ids) - rest :]
        hidden = tokenizer.decode(ids[at : len(ids) - rest]).strip()
        assert hidden in VALUES
    assert longest == max(
        len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in whole
    )


def test_the_name_of_a_mask_is_ordinary_text():
    from maskpolicy.models.training.steps import tokenize

    tokenizer = small.tokenizer()
    assert tokenizer.mask_token_id not in tokenize(["born in <mask>."], tokenizer)[0]
