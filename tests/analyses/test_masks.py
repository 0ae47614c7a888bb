"""`rank`, `returned-masks`, masks of a sample, and where answers stand in a text."""

import json
import shutil
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import small
from refusals import refused

from maskpolicy.analyses import masked_sample
from maskpolicy.analyses.builtin.encoders import ReturnedMasks
from maskpolicy.analyses.builtin.masked_tokens import _overlap
from maskpolicy.analyses.masked_sample import MaskedParams, Sample, Sampling
from maskpolicy.core import ragged
from maskpolicy.core.keys import from_json, to_json
from maskpolicy.core.metrics import Total
from maskpolicy.core.ragged import Ragged
from maskpolicy.core.types import Denoising, as_spans
from maskpolicy.data.corpus.passages import PASSAGES_FILE
from maskpolicy.data.taskfiles.evidence import Answers, words_of, words_within
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.policy_blocks import policy_block
from maskpolicy.leaderboard.results.cell import Result, Run, read_run
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import MaskedSteps
from maskpolicy.pipeline.graph.nodes import Local, StageRun
from maskpolicy.pipeline.stages.params import IntermediateParams
from maskpolicy.pipeline.stages.policy_inputs import policy_params
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins import discovery
from maskpolicy.plugins.discovery import instance


def cell(label, score, seed=0, kind="encoder", task="cola", run=0, **how):
    how = {"mask_exclusion": 0.0, "shallow_decoder": False, **how}
    config = {"policy": {"name": "random", "ratio": 0.15, **how}, "model": {"kind": kind}}
    config["intermediate_seed"] = run
    metrics = Total("matthews", score, 10)
    return Result(label, task, seed, "glue", config, {}, metrics)


def none(seed=0):
    config = {"policy": {"name": "none"}, "model": {"kind": "encoder"}}
    return Result("none", "cola", seed, "glue", config, {}, Total("m", 0.1, 1))


def analyse(tmp_path, *results):
    run = Run(Path("a"), results, "none", tuple(dict.fromkeys(r.policy for r in results)))
    return ReturnedMasks().analyse([run], Store(tmp_path))


def test_scores_stand_in_order_of_delta_and_mlm_apart(tmp_path):
    found = analyse(
        tmp_path,
        none(),
        cell("MLM", 0.3),
        cell("delta 1", 0.4, shallow_decoder=True),
        cell("MAE-LM", 0.6, mask_exclusion=1.0),
        cell("half", 0.5, mask_exclusion=0.5),
    )
    assert [(row["delta"], row["score"]) for row in found.rows] == [
        (0.0, pytest.approx(60)),
        (0.5, pytest.approx(50)),
        (1.0, pytest.approx(40)),
        ("ordinary MLM", pytest.approx(30)),
    ]
    (panel,) = found.plots
    assert [series.label for series in panel.series] == ["random", "random, ordinary MLM"]
    assert list(panel.series[0].x) == [0.0, 0.5, 1.0]
    other = cell("other", 0.3, mask_exclusion=1.0)
    other.config["policy"]["ratio"] = 0.3  # so it differs in more than returned masks
    found = analyse(tmp_path, none(), cell("MLM", 0.2), other)
    assert (found.rows, found.plots) == ((), ())
    assert found.notes == ("no rows differ in mask_exclusion or shallow_decoder alone",)


@pytest.mark.parametrize("how", [{"mask_exclusion": 1.0}, {}])
def test_the_interval_is_students_over_intermediate_runs(tmp_path, how):
    """Seeds of fine-tuning that share an intermediate run are not independent."""
    scores = {0: (0.4,), 1: (0.45, 0.55), 2: (0.5, 0.6, 0.7)}
    seeds = [(run, score) for run, each in scores.items() for score in each]
    cells = [cell("a", score, seed, run=run, **how) for seed, (run, score) in enumerate(seeds)]
    rows = analyse(tmp_path, cell("b", 0.1, mask_exclusion=0.5), *cells).rows
    (row,) = (each for each in rows if each["delta"] != 0.5)
    half = 4.302653 * 10 / 3**0.5
    assert (row["score"], row["runs"], row["seeds"]) == (pytest.approx(50), 3, 6)
    assert (row["low"], row["high"]) == (pytest.approx(50 - half), pytest.approx(50 + half))


@pytest.mark.parametrize(
    ("key", "values", "names"),
    [
        ("policy", {"ratio": 0.3}, ("random ratio=0.15", "random ratio=0.3")),
        ("trainings", {"intermediate": {"lr": 0.1}}, ("random", "random intermediate.lr=0.1")),
    ],
)
def test_rows_that_differ_in_more_than_masks_are_lines_of_their_own(tmp_path, key, values, names):
    cells = [cell(f"row {n}", n / 10, mask_exclusion=n % 2) for n in range(4)]
    for each in cells[2:]:
        each.config[key] = each.config.get(key, {}) | values
    rows = {(row["policy"], row["score"]) for row in analyse(tmp_path, *cells).rows}
    assert rows == {(names[n // 2], 10.0 * n) for n in range(4)}


@pytest.mark.usefixtures("laid_out")
def test_a_folder_of_a_model_is_analysed(call, tmp_path):
    small.saved(tmp_path / "bart")
    (tmp_path / "text.txt").write_text("\n\n".join(small.TEXTS * 4))
    words = ("rank", tmp_path / "bart", f"text=[{tmp_path / 'text.txt'}]", "words=10")
    code, out, _ = call("analyze", *words, "--out", tmp_path / "out", "--store", tmp_path / "s")
    assert code == 0, out
    found = json.loads((tmp_path / "out" / "rank.json").read_text())
    rows = [(row["model"], row["tau"], row["centred"], row["layer"]) for row in found["rows"]]
    settings = [(tau, centred) for tau in (0.9, 0.99) for centred in (False, True)]
    assert rows == [("bart", *setting, layer) for setting in settings for layer in (0, 1)]


def test_text_that_cannot_be_read_is_named(refused, capfd, tmp_path):
    small.saved(tmp_path / "model", small.roberta())
    capfd.readouterr()  # of Transformers
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\x00")
    for name, says in (("bad.txt", ", line 1: not UTF-8"), ("no.txt", ": cannot be read")):
        words = ("analyze", "rank", tmp_path / "model", f"text=[{tmp_path / name}]")
        assert f"{name}{says}" in refused(*words)
    said = refused("analyze", "coverage", tmp_path / "model")
    assert "name a folder that `maskpolicy run` wrote" in said


ENDS_AT_2 = {"steps": 9, "batch_size": 4, "lr": 1e-12, "eval_every": 1, "patience": 1}
EXPERIMENT = small.experiment(
    model={"kind": "encoder", "name": "mini", "layers": 1, "decoder_layers": 1},
    policies=["none", {"name": "random", "label": "mae", "mask_exclusion": 1.0}],
    **{"tasks": ["cola"], "seeds": [0, 1], "finetune": ENDS_AT_2},
    **{"keep_models": ["finetune"], "checkpoint_steps": [1]},
)


def test_the_models_of_a_run_are_measured_before_and_after_fine_tuning(analyse):
    found = analyse("rank", "passages=40")
    settings = [(tau, centred) for tau in (0.9, 0.99) for centred in (False, True)]
    assert sorted({(row["tau"], row["centred"]) for row in found["rows"]}) == settings
    assert all(r["gap"] == r["all_with_masks"] - r["all_without"] for r in found["rows"])
    rows = [row for row in found["rows"] if row["tau"] == 0.9 and not row["centred"]]
    last = {row["model"]: row for row in rows if row["task"] is None and row["layer"] == 1}
    assert list(last) == ["none", "mae", "mae at 1"]
    assert sum(row["task"] == "cola" and row["model"] == "mae" for row in rows) == 4  # 2 seeds
    panels = {panel["title"]: panel["series"] for panel in found["plots"]}
    assert len(panels) == 8
    gaps = panels["with masks less without (5a), 0.9"]
    assert [series["y"] for series in gaps] == [
        [row["gap"] for row in rows if row["model"] == name and row["task"] is None]
        for name in ("none", "mae")
    ]
    tuned = panels["real tokens, last layer, cola (5b)"]
    lines = [(series["label"], series["x"]) for series in tuned]
    assert lines == [("none", [0, 2]), ("mae", [0, 2])]
    assert tuned[1]["y"][0] == last["mae"]["real_without"]
    line = next(one for one in panels["<mask> tokens, last layer"] if one["label"] == "mae")
    points = sorted((last[name]["loss"], last[name]["mask"]) for name in ("mae", "mae at 1"))
    assert list(zip(line["x"], line["y"], strict=True)) == points


def test_models_that_are_gone_or_of_another_kind_are_told(refused, home, tmp_path):
    said = refused("analyze", "forgetting", home / "run", "--store", home / "store")
    assert "needs text-to-text models, and the models of this run are encoders" in said
    store = Path(shutil.copytree(home / "store", tmp_path / "store"))
    for manifest in list((store / "artifacts").glob("*/MANIFEST.json")):
        if json.loads(manifest.read_text())["record"]["kind"] != "tokenizer":
            shutil.rmtree(manifest.parent)
    said = refused("analyze", "rank", home / "run", "--json", "--store", store)
    assert "nothing to show: none: its model is not in the store" in said


SPEC = Training(steps=5, batch_size=4, seed=3)
SPECIALS = Specials(3, bos=0, eos=2, pad=1, start=2)


def drawn(folder: Path, **how) -> dict[str, Ragged]:
    """Return what the stage draws of the passages, with the seed of SPEC."""
    small.save(folder / PASSAGES_FILE, small.passages().arrays)
    params = MaskedParams(**{"fields": {}, "code": {}, "masking": 3, "seed": SPEC.seed, **how})
    masked_sample.masked(params, {"corpus": folder}, folder, StageRun(None, Local()))
    return ragged.load(folder / masked_sample.FILE)


@pytest.mark.parametrize(
    ("ratio", "room", "limits"),  # the last: tokens of a target, sentinels
    [
        (0.3, None, None),
        ({"start": 0.9, "end": 0.1}, None, None),
        (0.3, 7, None),
        (0.8, None, (4, 0)),
        (0.8, None, (510, 3)),
        (0.8, None, (4, 9)),
    ],
)
def test_a_sample_is_masked_as_at_the_steps_that_held_its_passages(ratio, room, limits, tmp_path):
    pace = (SPEC.steps, SPEC.batch_size) if isinstance(ratio, dict) else None
    how = {"policy": "random", "fields": {"ratio": ratio}, "sampling": Sampling(draws=2)}
    limited = limits and (Denoising(), *limits)
    found = drawn(tmp_path, **how, pace=pace, room=room, limits=limited)
    count = len(small.passages())
    assert found["places"].flat.tolist() == [*range(count)] * 2

    policy = instance("policy", "random", {"ratio": ratio})
    target_room, sentinels = limits or (510, 0)
    specials = replace(SPECIALS, sentinels=tuple(range(100, 100 + sentinels)))
    max_source = SPEC.max_source if room is None else room + 2
    spec = replace(SPEC, max_source=max_source, max_target=target_room + 2)
    assert specials.limits(spec, 99) == limits
    steps = MaskedSteps(small.passages(), policy, Denoising(), specials, spec)
    compared = without = 0
    for number in range(SPEC.steps):
        written, spans = steps.written(number), steps._selected(number).spans
        for i, (item, epoch) in enumerate(steps.order.step(number)):
            if epoch < 2:
                own = found["spans"][epoch * count + item]
                assert len(own) == written.spans[i]
                assert np.diff(own).sum() == written.masked_tokens[i]
                without += not np.array_equal(own, spans[i])
                compared += 1
    assert compared > count
    assert (without > 0) == (limits is not None)


def test_passages_that_no_step_reads_have_the_rates_of_all_steps(tmp_path):
    how = {"policy": "random", "fields": {"ratio": {"start": 1.0, "end": 0.0}}}
    found = drawn(tmp_path, **how, pace=(2, 1), sampling=Sampling(draws=20))
    whole = 20 * small.passages().lengths.sum()  # two steps of one passage, at 100% and 50%
    assert np.diff(found["spans"].flat).sum() / whole == pytest.approx(0.75, abs=0.02)


@dataclass(frozen=True)
class EachWord:
    """Mask a word in each example, and more tokens before it as the training goes on."""

    def examples_of(self, passages):
        return [len(passage.words) - 1 for passage in passages]

    def select(self, passage, rng, progress, example):
        start, end = passage.words[example]
        return as_spans([(max(0, start - int(9 * progress)), end)])


def test_a_sample_has_all_examples_of_its_passages(tmp_path, monkeypatch):
    monkeypatch.setattr(masked_sample, "instance", lambda *_: EachWord())
    count = sum(EachWord().examples_of(small.passages()))
    spec = replace(SPEC, batch_size=1, steps=2 * count)
    how = {"policy": "each-word", "sampling": Sampling(passages=2, draws=2)}
    found = drawn(tmp_path, **how, pace=(spec.steps, 1))
    places = found["places"].flat.tolist()
    assert len(places) == 4
    steps = MaskedSteps(small.passages(), EachWord(), Denoising(), SPECIALS, spec)
    masked = defaultdict(list)
    for number in range(spec.steps):
        ((item, epoch),), (spans,) = steps.order.step(number), steps._selected(number).spans
        masked[epoch, steps.examples[item, 0]] += spans.tolist()
    for number, (spans, counts) in enumerate(zip(found["spans"], found["counts"], strict=True)):
        own = masked[number // 2, places[number]]
        assert sorted(spans.tolist()) == sorted(own)
        assert counts.tolist() == [1] * len(own)


RARE = small.EXPERIMENT.replace("corpus: world", "corpus: {files: [two.txt]}\ndata: world").replace(
    "random", "{name: regex, pattern: Boats go}"
)


@pytest.mark.slow
def test_a_row_that_masks_nothing_in_the_sample_is_noted(call, refused, tmp_path):
    (tmp_path / "two.txt").write_text("Ada was born in Rome.\n\nBoats go down the Oder.\n")
    (tmp_path / "it.yaml").write_text(RARE)
    store = ("--store", tmp_path / "store")
    keys = ("intermediate.max_source=8", "intermediate.max_target=3")
    words = ("run", tmp_path / "it.yaml", *keys, "--out", tmp_path / "out")
    assert call(*words, *store)[0] == 0
    read = [read_run(tmp_path / "out")], Store(tmp_path / "store")
    every, _, _ = masked_sample.samples(read[0], Sampling(), read[1])
    assert every[0].tokens.lengths.tolist() == [6, 6]
    assert np.diff(every[0].flat).tolist() == [[1]]  # as many tokens as the target holds
    first = [Sampling(passages=1, seed=seed).places(2)[0] for seed in range(20)]
    words = ("analyze", "lengths", tmp_path / "out", "passages=1", *store)
    said = refused(*words, f"seed={first.index(0)}", "-q")
    told = "masks nothing in the sample of its corpus: set a larger number"
    assert f"regex pattern=Boats go: {told}" in said
    assert call(*words, f"seed={first.index(1)}", "-q")[0] == 0


def test_passages_that_were_not_read_are_annotated_to_be_sampled(call, tmp_path):
    texts = [f"Karl met Anna in {1900 + year} at the mill." for year in range(30)]
    (tmp_path / "two.txt").write_text("\n\n".join(texts))
    (tmp_path / "it.yaml").write_text(RARE.replace("Boats go", "19.."))
    found, store = [], ("--store", tmp_path / "store")
    for annotate in ("all", "read"):
        words = (tmp_path / "it.yaml", f"annotate={annotate}", *store)
        code, *said = call("run", *words, "--out", tmp_path / annotate)
        assert code == 0, said
        rows = json.loads(call("check", *words, "--passages", 5, "--json")[1])["rows"]
        read = [read_run(tmp_path / annotate)], Sampling(passages=20), Store(tmp_path / "store")
        (sample,), _, _ = masked_sample.samples(*read)
        found.append((rows, list(sample.in_characters())))
    assert found[0] == found[1]
    texts[7] = "Boats go down the Oder."
    (tmp_path / "two.txt").write_text("\n\n".join(texts))
    (tmp_path / "rare.yaml").write_text(RARE)
    words = (tmp_path / "rare.yaml", "annotate=read", *store)
    assert call("run", *words, "--out", tmp_path / "rare")[0] == 0
    read = [read_run(tmp_path / "rare")], Sampling(passages=1), Store(tmp_path / "store")
    none, notes, _ = masked_sample.samples(*read)
    assert none == [] and "masks nothing in the sample of its corpus" in notes[0]
    assert len(found[1][1]) == 20 and all(spans for _, spans in found[1][1])


TEXT = "The U.S. war (1934-1950) ended inside Rome, Italy."


def test_words_have_no_punctuation_and_articles_are_left_out():
    found = words_of(TEXT)
    words = ["u", "s", "war", "1934", "1950", "ended", "inside", "rome", "italy"]
    assert [word for word, *_ in found] == words
    assert [TEXT[start:end].lower() for _, start, end in found] == [word for word, *_ in found]


def test_places_are_ranges_of_whole_words():
    answers = Answers(["the US", "U.S.", "1950!", "Rome", "Rome, Italy", "in", "a war", "..", ""])
    assert answers.places(words_of(TEXT)) == {(0, 2), (2, 3), (4, 5), (7, 8), (7, 9)}
    assert not Answers(["..", "the"])


def test_a_span_masks_the_words_that_it_holds_whole():
    words = words_of(TEXT)

    def within(part):
        start = TEXT.index(part)
        return words_within(words, start, start + len(part))

    assert within("(1934-") == (3, 4)
    assert within("Rome, Italy.") == (7, 9)
    assert within("The U.S.") == (0, 2)
    assert within(" (") is None
    assert within("in") is None  # of "inside"
    assert within("side Rome") is None


def test_overlap_is_of_the_tokens_that_both_rows_read():
    """A row with full targets may read less of a passage than one whose targets are spans."""
    tokens, samples = Ragged.of_arrays([np.arange(6), np.arange(3)]), []
    for most, first in ((None, [[0, 2], [4, 6]]), (4, [[0, 2]])):
        spans = Ragged.of_arrays([np.array(first), np.array([[1, 2]])])
        passages = SimpleNamespace(arrays={"tokens": tokens}, most=most)
        row = SimpleNamespace(label=str(most))
        samples.append(Sample(passages, np.arange(2), spans, spans, row=row))
    for one, other in (samples, samples[::-1]):
        found = _overlap(one, other)
        assert (found["both"], found["jaccard"]) == (1.0, 1.0)
        assert found["by_chance"] == pytest.approx((3 / 7) / (2 - 3 / 7))


def test_what_a_policy_depends_on_is_in_the_key_of_its_sample(tmp_path):
    words, path = tmp_path / "words.txt", tmp_path / "told.py"
    words.write_text("one")
    depends = f"    def depends(self):\n        return open({str(words)!r}).read(), 1\n"
    path.write_text(small.POLICY.format(name="told") + depends)
    discovery.load_file(path)
    about = policy_params(policy_block({"name": "told"}, "it", {}))
    params = IntermediateParams(**about, how=Denoising(), spec=SPEC)
    assert masked_sample.masked_params(params, Sampling(), None, None).depends == ["one", 1]
    params = from_json(IntermediateParams, to_json(params))  # as the store keeps them
    call = masked_sample.unchanged_block, params, Run(tmp_path, (), "none"), "its training"
    assert call[0](*call[1:]).name == "told"
    words.write_text("two")
    refused(*call, match="policy told has changed since its training")
