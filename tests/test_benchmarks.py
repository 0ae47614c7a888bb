"""The scripts of benchmarks/, in sizes that say nothing about speed."""

import re
from dataclasses import replace
from functools import partial

import forked
import pytest

from benchmarks import board, comparison, gpu, meta, paper_budget, training
from maskpolicy.data import world
from maskpolicy.experiment import yaml_file
from maskpolicy.experiment.budgets import resolve_auto

WORLD = partial(world.Settings, people=20, general_people=20)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Measure in a small world, and do not build BART-base, of which nothing is measured here."""
    monkeypatch.setattr(world, "Settings", WORLD)
    monkeypatch.setattr(comparison, "bart_base", lambda: None)


def train_for(*about):
    """Train in a process that the fixture has not changed."""
    world.Settings, comparison.bart_base = WORLD, lambda: None
    return gpu._train_for(*about)


def mini(steps):
    """Return the settings of mini with few passages a step, on spans and on full targets."""
    found = comparison.settings(steps, 2)
    return [replace(one, size=4, held_out=16) for one in found if one.name.startswith("mini")]


def test_both_sides_count_the_same_tokens_and_reach_the_same_loss():
    (setting, _) = mini(6)
    order = setting.masked(resolve_auto(setting.spec)).order
    places = [place for number in range(6) for place in order.step(number)]
    sides = (
        training.theirs(setting, places=places, train_sampling_strategy="sequential"),
        training.ours(setting),
        training.ours(setting, workers=1),
    )
    tokens = [once()[0] for once in sides]
    assert tokens[0] == tokens[1] == tokens[2] > 0
    losses = [float(note.split()[1]) for note in training.agreement(setting)]
    assert losses[0] == pytest.approx(losses[1], rel=0.002)


def test_the_script_for_a_gpu_runs_on_a_cpu(monkeypatch):
    for module, name, value in (
        (gpu, "_TRACED", 2),
        (gpu, "_UNTIMED", 1),
        (gpu, "get_context", lambda method: forked.context()),
        (gpu, "_train_for", train_for),
        (meta, "SIZE", 2),
    ):
        monkeypatch.setattr(module, name, value)
    sizes = gpu.Sizes("mini", passages=(4,), steps=4, cells=(2,), seconds=0.1, repeats=1)
    _, *tables, waiting, resuming, cells, generation, extracting, episodes = gpu.report(
        sizes, list(gpu.SECTIONS)
    )
    assert all("of the peak" in each and "| maskpolicy |" in each for each in tables)
    assert waiting.count("| mini ") == 2 and "| 0.0 |" in waiting
    assert resuming.endswith("repeated: equal and resumed: equal.")  # on a CPU
    assert "| span extractor |" in extracting
    assert cells.count("| mini |") == 1
    assert re.search(r" (\d+) of \1 the same; ", generation)
    assert "| functional |" in episodes


@pytest.mark.slow
def test_a_board_of_given_scores_is_measured(tmp_path, monkeypatch):
    for name, count in (("SYSTEMS", 3), ("TASKS", 2)):
        monkeypatch.setattr(board, name, count)
    first, _, *measured = board.report(tmp_path, [60]).splitlines()[-1].split(" | ")
    assert first == "| 60" and all(float(cell.strip(" |").replace(",", "")) for cell in measured)


def test_the_papers_budgets_are_those_of_their_scripts():
    page = yaml_file.read_text(paper_budget._FOLDER / "mae-lm.yaml")
    seen: set[str] = set()
    found = paper_budget.counted(yaml_file.values(page, ""), seen)
    assert found.runs == {"intermediate": 20, "finetune": 4 * 9 * 5 * 4}
    pretraining = 5 * 125_000 * 2_048 * 510 * (0.6e9 + 3 * 0.7e9)
    epochs = 10 * (8_551 + 3_668 + 5_749 + 2_490) + 5 * (67_349 + 363_846 + 104_743)
    examples = epochs + 2 * 392_702 + 3 * 130_319
    finetuning = 4 * 5 * 4 * examples * 50 * 0.6e9
    assert found.flop == pytest.approx(pretraining + finetuning, rel=1e-3)
    assert paper_budget.counted(yaml_file.values(page, ""), seen).runs == {}


@pytest.mark.slow
def test_the_products_of_attention_count_whatever_computes_it():
    (setting, _) = mini(2)
    counted = []
    for attention in ("eager", "sdpa"):
        setting.model.set_attn_implementation(attention)
        counted.append(training.per_token(setting))
    assert counted[0] == counted[1]
