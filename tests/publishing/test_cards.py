from __future__ import annotations

from maskpolicy.corpus.documents import WorldSource
from maskpolicy.corpus.mixing import TextShare
from maskpolicy.publishing import cards


def test_a_card_states_the_shares_of_texts_that_were_mixed_in():
    source = WorldSource(words=100, limit=0)
    assert "passages from" not in cards._corpus(source, ())
    assert "| passages from general | 20% |" in cards._corpus(source, [TextShare("general", 0.2)])
