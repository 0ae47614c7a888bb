"""The policies that the docs show are complete: they are read from the pages and used."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small

from maskpolicy.core.types import Denoising
from maskpolicy.masking.selection import Masker, select
from maskpolicy.models.learned import Current
from maskpolicy.plugins import discovery
from maskpolicy.plugins.discovery import instance

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "policies.md", DOCS / "development" / "extending.md")
PAGE = "".join(page.read_text(encoding="utf-8") for page in PAGES)
SHOWN = dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE, re.DOTALL))
TEXT = "one two three four five six seven eight nine ten " * 4


@pytest.fixture(scope="module", autouse=True)
def loaded(tmp_path_factory):
    """All policies of the page, each in a file of its own."""
    folder = tmp_path_factory.mktemp("page")
    for name, code in SHOWN.items():
        (folder / name).write_text(code)
        discovery.load_file(folder / name)


@pytest.mark.parametrize("name", SHOWN)
def test_a_policy_takes_25_lines_at_most(name):
    assert len([line for line in SHOWN[name].splitlines() if line.strip()]) <= 25


def growing(progress: float, **fields) -> list[int]:
    """Return the number of words in each span of a passage of 40 words."""
    policy = instance("policy", "growing", fields)
    spans = select(policy, [small.words(TEXT)], 0, [0], progress=progress)[0]
    return sorted((spans[:, 1] - spans[:, 0]).tolist())


def test_growing_masks_ever_longer_runs_of_an_ever_smaller_share():
    lengths = [growing(done, ratio=0.4, longest=4) for done in (0.0, 0.3, 0.6, 0.9)]
    assert lengths == [[1] * 16, [2] * 8, [1, 3, 3, 3, 3, 3], [4] * 4]
    ratio = {"start": 0.4, "end": 0.0}
    assert [sum(growing(done, ratio=ratio)) for done in (0.0, 0.5)] == [16, 8]


def test_hard_words_masks_words_by_the_loss_of_their_tokens():
    policy = instance("policy", "hard-words", {})
    text = small.words("one two three four five six seven eight nine ten")
    column = policy.reannotate([text], Current(vocabulary=50))["losses"][0]
    assert column == pytest.approx([np.log(50)] * 10)
    losses = np.arange(10, dtype=np.float32) % 7
    marked = replace(text, columns={"losses": losses})
    spans = [select(policy, [marked], seed, [0])[0][:, 0].tolist() for seed in range(30)]
    assert {tuple(each) for each in spans} == {(6,), (5, 6)}


def test_by_length_draws_the_member_that_fits_the_passage():
    policy = instance("policy", "by-length", {"words": 5})
    masker = Masker.of(policy, Denoising())
    text = "One two. Three four five. Six seven."
    passages = [small.words("one two"), small.words(text)]
    gaps = masker.leaves[1].policy.annotate(passages)["importance"]
    marked = [replace(p, columns={"importance": g}) for p, g in zip(passages, gaps, strict=True)]
    found = masker.select([passages, marked], [0, 1, 0], 0, [0, 1, 2])
    assert [each.join for each in found.denoisings] == ["mask", "none", "mask"]
