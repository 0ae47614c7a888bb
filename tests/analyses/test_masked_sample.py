"""The masks of a sample of passages are those of the training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import small

from maskpolicy.analyses import masked_sample
from maskpolicy.analyses.masked_sample import MaskedParams, Sampling
from maskpolicy.core import ragged
from maskpolicy.core.types import Denoising
from maskpolicy.data.corpus.passages import PASSAGES_FILE
from maskpolicy.experiment.budgets import Training
from maskpolicy.leaderboard.results.cell import read_run
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import MaskedSteps
from maskpolicy.pipeline.graph.nodes import Local, StageRun
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins.discovery import instance

SPEC = Training(steps=5, batch_size=4, seed=3)


@pytest.mark.parametrize(
    ("ratio", "room"), [(0.3, None), ({"start": 0.9, "end": 0.1}, None), (0.3, 7)]
)
def test_a_sample_is_masked_as_at_the_steps_that_held_its_passages(ratio, room, tmp_path):
    small.save(tmp_path / PASSAGES_FILE, small.passages().arrays)
    pace = (SPEC.steps, SPEC.batch_size) if isinstance(ratio, dict) else None
    params = MaskedParams(
        policy="random",
        fields={"ratio": ratio},
        code={},
        masking=3,
        seed=SPEC.seed,
        sampling=Sampling(draws=2),
        pace=pace,
        room=room,
    )
    masked_sample.masked(params, {"corpus": tmp_path}, tmp_path, StageRun(None, Local()))
    found = ragged.load(tmp_path / masked_sample.FILE)
    count = len(small.passages())
    assert found["places"].flat.tolist() == [*range(count)] * 2

    policy, specials = instance("policy", "random", {"ratio": ratio}), Specials(0, 2, 1, 3, 2)
    spec = replace(SPEC, max_source=SPEC.max_source if room is None else room + 2)
    steps = MaskedSteps(small.passages(), policy, Denoising(), specials, spec)
    compared = 0
    for number in range(SPEC.steps):
        spans = steps._selected(number).spans
        for (item, epoch), each in zip(steps.order.step(number), spans, strict=True):
            if epoch < 2:
                assert np.array_equal(found["spans"][epoch * count + item], each)
                compared += 1
    assert compared > count


RARE = small.EXPERIMENT.replace("corpus: world", "corpus: {files: [two.txt]}\ndata: world").replace(
    "random", "{name: regex, pattern: Boats}"
)


@pytest.mark.slow
def test_a_row_that_masks_nothing_in_the_sample_is_noted(call, refused, tmp_path):
    (tmp_path / "two.txt").write_text("Ada was born in Rome.\n\nBoats go down the Oder.\n")
    (tmp_path / "it.yaml").write_text(RARE)
    store = ("--store", tmp_path / "store")
    words = ("run", tmp_path / "it.yaml", "intermediate.max_source=8", "--out", tmp_path / "out")
    assert call(*words, *store)[0] == 0
    every, _, _ = masked_sample.samples(
        [read_run(tmp_path / "out")], Sampling(), Store(tmp_path / "store")
    )
    assert every[0].tokens.lengths.tolist() == [6, 6]
    first = [Sampling(passages=1, seed=seed).places(2)[0] for seed in range(20)]
    words = ("analyze", "lengths", tmp_path / "out", "passages=1", *store)
    said = refused(*words, f"seed={first.index(0)}", "-q")
    assert (
        "regex pattern=Boats: masks nothing in the sample of its corpus: set a larger number"
        in said
    )
    assert call(*words, f"seed={first.index(1)}", "-q")[0] == 0
