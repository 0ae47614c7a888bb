"""Effective ranks against a dense SVD, their token sets, and means over runs against scipy."""

from types import SimpleNamespace

import numpy as np
import pytest
import small
import text_to_text
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from maskpolicy.analyses import over_runs, representations
from maskpolicy.analyses.representations import SETS, Ranks, figures
from maskpolicy.analyses.representations.figures import (
    NEAREST,
    RISE,
    MeasuredModel,
    panels,
    table,
    values,
)
from maskpolicy.core.errors import ConfigError
from maskpolicy.data.corpus.passages import Document, tokenize
from maskpolicy.leaderboard.results.cell import Result, Run


def dense(rows, tau):
    """Return the effective rank by its definition, from the singular values of all rows."""
    squares = torch.linalg.svdvals(rows.double()) ** 2
    share = torch.cumsum(squares, 0) / squares.sum()
    return int((share < tau - 1e-12).sum()) + 1


@given(
    seed=st.integers(0, 99),
    width=st.integers(2, 24),
    rank=st.integers(1, 24),
    tau=st.floats(0.1, 0.99),
    mean=st.floats(0, 9),
)
def test_a_gram_matrix_over_batches_gives_the_rank_of_a_dense_svd(seed, width, rank, tau, mean):
    draw = torch.Generator().manual_seed(seed)
    left = torch.randn(60, min(rank, width), generator=draw)
    rows = mean + left @ torch.randn(min(rank, width), width, generator=draw)
    gram = representations.Gram()
    for part in rows.split(17):
        gram.add(part)
    assert representations.effective_rank(gram.squares(), tau) == dense(rows, tau)
    wide = rows.double()
    centred = representations.effective_rank(gram.squares(centred=True), tau)
    assert centred == dense(wide - wide.mean(0), tau)
    assert gram.rows == 60


def test_equal_rows_have_one_dimension_and_none_once_centred():
    gram = representations.Gram()
    gram.add(torch.tensor([0.1, 0.7, 0.3]).expand(50, 3))
    ranks = [representations.effective_rank(gram.squares(each), 0.99) for each in (False, True)]
    assert ranks == [1, 0]


def test_every_layer_has_a_rank_of_every_set():
    passages = list(small.passages())
    found = representations.measure(small.roberta(), small.tokenizer(), passages, share=0.5)
    assert len(found.layers()) == 3
    assert found.width == 16
    tokens = sum(len(passage.tokens) for passage in passages)
    assert found.tokens["real_without"] == tokens
    assert found.tokens["mask"] + found.tokens["real_with"] == tokens
    assert found.tokens["real"] == found.tokens["real_with"] + tokens
    ends = 2 * len(passages)  # BOS and EOS
    assert found.tokens["all_with_masks"] == found.tokens["all_without"] == tokens + ends
    for layer in found.layers():
        assert layer.keys() == {*representations.SETS, "gap"}
        assert all(1 <= layer[name] <= 16 for name in representations.SETS)


def test_ranks_are_those_of_the_hidden_states():
    model, passages = small.roberta(), list(small.passages())
    found = representations.measure(model, small.tokenizer(), passages)
    states = []
    for passage in passages:
        ids = torch.tensor([[0, *passage.tokens.tolist(), 2]])
        with torch.no_grad():
            hidden = model(ids, output_hidden_states=True).hidden_states
        states.append([layer[0] for layer in hidden])
    for tau in (0.8, 0.99):
        both = (found.layers(tau), found.layers(tau, centred=True))
        for number, (layer, centred) in enumerate(zip(*both, strict=True)):
            inner = torch.cat([one[number][1:-1] for one in states])
            every = torch.cat([one[number] for one in states]).double()
            assert layer["real_without"] == dense(inner, tau)
            assert layer["all_without"] == dense(every, tau)
            assert centred["all_without"] == dense(every - every.mean(0), tau)


def test_the_gap_is_what_masks_take_up():
    class Layers(torch.nn.Module):
        """An encoder that gives real tokens two dimensions and `<mask>` one of its own."""

        def __init__(self):
            super().__init__()
            self.config = small.roberta().config
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, input_ids, **given):
            states = torch.zeros(*input_ids.shape, 16)
            states[..., 0], states[..., 1] = input_ids % 2, (input_ids + 1) % 2
            states[input_ids == small.tokenizer().mask_token_id] = torch.eye(16)[2]
            return SimpleNamespace(hidden_states=(states,))

    found = representations.measure(Layers(), small.tokenizer(), list(small.passages()), share=0.5)
    (layer,) = found.layers(0.99)
    assert (layer["all_with_masks"], layer["all_without"], layer["mask"]) == (3, 2, 1)
    assert layer["real_with"] == layer["real_without"] == layer["real"] == 2
    model = MeasuredModel("run", "row", "line", "row")
    drawn = {panel.title: panel.series for panel in figures.panels([(model, found)], (0.5, 0.99))}
    assert [series.y for series in drawn["with masks less without (5a), 0.99"]] == [[1]]


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be loaded"):
        representations.load_encoder(tmp_path)


WIDTH = 12


def spectrum(rank: int) -> np.ndarray:
    """Return squared singular values whose effective rank at 0.99 is `rank`."""
    return np.repeat([1.0, 0.0], [rank, WIDTH - rank])


def made(masks: tuple[int, ...], gap: int) -> Ranks:
    """Return ranks of `<mask>` by layer, and a gap between all tokens with and without masks."""
    layers = [{name: 4 for name in SETS} | {"mask": m, "all_with_masks": 4 + gap} for m in masks]
    squares = [{name: (spectrum(r),) * 2 for name, r in layer.items()} for layer in layers]
    return Ranks(WIDTH, dict.fromkeys(SETS, 100), squares)


def model(row, stage, loss, kept_at=0):
    line = f"{row} {stage}"
    label = f"{row}, run {stage}"
    return MeasuredModel("it", label, line, row, kept_at=kept_at, loss=loss, stage=stage)


MEASURED = [
    each
    for stage, masks in enumerate([(1, 5), (2, 7), (1, 8)])
    for each in (
        (model("MLM", stage, 2.0, kept_at=50), made((1, 2), 1 + stage)),
        (model("MLM", stage, 0.5), made(masks, 5)),
        (model("MAE-LM", stage, 1.9), made((3, 3), 0)),
    )
]
BASES = {("it", "MLM"): "MLM", ("it", "MAE-LM"): "MLM"}


def found(policy, name, layer):
    return [
        (each["stage"], each["value"])
        for each in values(MEASURED, (0.99,), BASES)
        if (each["policy"], each["set"], each["layer"], each["centred"])
        == (policy, name, layer, False)
    ]


def test_a_rise_is_the_last_layer_less_the_first_of_the_model_at_the_end():
    assert found("MLM", "mask", RISE) == [(0, 4), (1, 5), (2, 7)]
    assert found("MLM", "mask", 1) == [(0, 5), (1, 7), (2, 8)]
    assert found("MAE-LM", "gap", 0) == [(0, 0), (1, 0), (2, 0)]


def test_a_gap_is_compared_at_the_nearest_loss():
    """MAE-LM ends where MLM was at step 50, not where MLM ends."""
    assert found("MAE-LM", "gap", NEAREST) == [(0, -1), (1, -2), (2, -3)]
    assert found("MLM", "gap", NEAREST) == []


def test_rises_and_gaps_at_the_nearest_loss_are_tested_over_runs():
    from scipy.stats import ttest_1samp

    rows = {
        (row["policy"], row["set"], row["layer"]): row
        for row in table(values(MEASURED, (0.99,), BASES))
        if not row["centred"]
    }
    rise, gap = rows["MLM", "mask", RISE], rows["MAE-LM", "gap", NEAREST]
    assert (rise["mean"], gap["mean"]) == (pytest.approx(16 / 3), -2)
    assert (rise["runs"], gap["runs"]) == (3, 3)
    plain = ttest_1samp([4, 5, 7], 0).pvalue
    # four tests: each with and without centring
    assert rise["p (Holm)"] == pytest.approx(4 * plain)
    tested = {place for place, row in rows.items() if "p (Holm)" in row}
    assert tested == {("MLM", "mask", RISE), ("MAE-LM", "gap", NEAREST)}


def test_a_figure_has_a_line_for_each_row_with_an_interval_over_runs():
    drawn = {panel.title: panel.series for panel in panels(MEASURED, (0.99,))}
    line, flat = drawn["<mask> tokens (1b)"]
    assert (line.label, line.y) == ("MLM", [pytest.approx(4 / 3), pytest.approx(20 / 3)])
    assert line.low[1] < 20 / 3 < line.high[1]
    assert (flat.y, flat.low) == ([3, 3], [3, 3])
    (over_loss, _) = drawn["<mask> tokens, last layer"]
    assert over_loss.x == (0.5, 2.0)
    assert over_loss.y == [pytest.approx(20 / 3), 2]


VALUES = [2.0, 3.0, 2.5, 4.0, 1.5]


def test_the_interval_is_students():
    expected = stats.t.interval(0.95, 4, np.mean(VALUES), np.std(VALUES, ddof=1) / np.sqrt(5))
    assert over_runs.interval(VALUES) == pytest.approx(expected)
    assert over_runs.interval([3.0]) == (None, None)
    assert over_runs.interval([3.0, 3.0]) == (3.0, 3.0)


def test_all_places_are_one_family():
    places = {"a": VALUES, "b": [0.1, -0.2, 0.3, -0.1, 0.0]}
    found = over_runs.tested(places)
    alone = [stats.ttest_1samp(values, 0).pvalue for values in places.values()]
    assert found["a"]["p (Holm)"] == pytest.approx(2 * min(alone))
    assert found["b"]["p (Holm)"] == pytest.approx(max(alone))
    assert (found["a"]["low"], found["a"]["high"]) == pytest.approx(over_runs.interval(VALUES))
    assert found["a"]["detectable"] is None  # what was found needs no such number
    assert found["b"]["detectable"] > 0.2


def test_two_runs_and_equal_numbers_have_no_test():
    found = over_runs.tested({"two": [1.0, 2.0], "same": [3.0, 3.0, 3.0], "three": [1.0, 2.0, 3.0]})
    assert list(found) == ["three"]
    assert over_runs.tested({}) == {}


def test_each_row_is_compared_with_the_baseline_at_the_same_place(tmp_path):
    cells = [Result(row, "cola", 0, "group", {"policy": {"name": row}}, {}) for row in "abc"]
    run = Run(tmp_path, tuple(cells), "a")
    numbers = {
        (run.name, "a", 4): {0: 1.0, 5: 9.0, 1: 2.0},
        (run.name, "b", 4): {1: 5.0, 0: 7.0, 2: 7.0},
        (run.name, "b", 2): {1: 5.0},
        (run.name, "c", 4): {3: 6.0},
    }
    assert over_runs.against_baselines(numbers, [run]) == {(run.name, "b", 4): [6.0, 3.0]}


@pytest.mark.parametrize("name", ["bart", "mbart", "mbart50", "blenderbot", "t5gemma"])
def test_states_are_those_of_the_text_wherever_a_tokenizer_writes_special_tokens(name):
    class Echo(torch.nn.Module):
        """A model whose states are its input."""

        config = SimpleNamespace(max_position_embeddings=99)

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, input_ids, **_):
            return SimpleNamespace(hidden_states=[input_ids[..., None].float()])

    made = text_to_text.tokenizer(name)
    documents = [Document(text, text) for text in ("The cute dog walks.", "All dogs walk.")]
    passages = list(tokenize(documents, made))
    (found,) = representations.real_states(Echo(), made, passages)
    assert found[:, 0].tolist() == [token for each in passages for token in each.tokens]
