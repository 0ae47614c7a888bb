"""Every analysis over one real run, small as it is."""

import json
import shlex
import shutil
from pathlib import Path

import folders
import pytest
import spacy_rules
import yaml
from payloads import SCRIPT

import maskpolicy as mp
from maskpolicy.analyses import masked_sample
from maskpolicy.analyses.masked_sample import Sampling
from maskpolicy.app.contents import PAGE
from maskpolicy.core.files import slug
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.leaderboard.results.cell import read_run
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins import registry

PLUGIN = """
from dataclasses import dataclass

import numpy as np
from maskpolicy.plugins.registry import policy


@policy("guess-first", target="spans")
@dataclass(frozen=True)
class GuessFirst:
    \"\"\"Hide the first word: stands for a learned policy, with candidates and scores.\"\"\"

    train_on: tuple[str, ...] = ("zsre",)

    def annotate(self, passages, fitted=None):
        spans = [p.words[:4] for p in passages]
        return {
            "candidates": spans,
            "scores": [-np.arange(len(s), dtype=np.float32) for s in spans],
        }

    def select(self, passage, rng):
        return passage.columns["candidates"][:1]
"""
PLUGINS = {"guess.py": PLUGIN}
EXPERIMENT = f"""
model: mini
corpus: world
policies: [none, original, random, salient-span, {{name: guess-first, label: "{SCRIPT}"}}]
tasks: [zsre]
seeds: [0, 1]
checkpoint_steps: [2]
keep_models: [finetune]
plugins: [guess.py]
tracker: tensorboard
world: {{people: 8, general_people: 8, entries: 6}}
general: {{steps: 6, batch_size: 4, warmup: 1}}
intermediate: {{steps: 6, batch_size: 4, warmup: 1}}
finetune: {{steps: 3, batch_size: 4, warmup: 1}}
"""


def by(found: dict, *names: str) -> dict:
    return {tuple(row[name] for name in names): row for row in found["rows"]}


def test_original_and_random_hide_the_same_tokens(analyse):
    rows = by(analyse("overlap"), "policy", "other")
    assert rows["original", "random"]["jaccard"] == 1.0
    assert rows["original", "salient-span"]["jaccard"] < 0.5
    assert 0 < rows["original", "random"]["by_chance"] < 0.2
    shared = rows["original", SCRIPT]["both"], rows[SCRIPT, "original"]["both"]
    assert all(0 <= share <= 1 for share in shared)


def test_masks_of_another_version_of_masking_are_not_drawn_again(home, monkeypatch):
    store, run = Store(home / "store"), read_run(home / "run")
    monkeypatch.setattr("maskpolicy.analyses.masked_sample.version_of", lambda kind: 99)
    found, notes, missing = masked_sample.samples([run], Sampling(passages=5), store)
    assert (found, missing) == ([], True)
    assert all("was trained by a version of maskpolicy that masks differently" in n for n in notes)


def test_masks_are_told_by_their_lengths_places_and_frequencies(analyse):
    rows = by(analyse("lengths"), "policy", "length")
    assert rows["random", 1]["share"] == 1.0
    salient = [row for (policy, _), row in rows.items() if policy == "salient-span"]
    assert sum(row["share"] for row in salient) == pytest.approx(1)
    rows = by(analyse("positions", "parts=4"), "policy", "from")
    assert rows[SCRIPT, 0.0]["share"] > 0
    assert rows[SCRIPT, 0.75]["share"] == 0
    assert rows["random", 0.75]["share"] > 0
    rows = by(analyse("frequency", "least=1", "resamples=20"), "policy")
    corpus, salient = rows["(corpus)",], rows["salient-span",]
    assert corpus["low"] <= corpus["slope"] <= corpus["high"] < 0
    assert corpus["slope"] < salient["slope"]  # entities are not as unequally frequent


def test_parts_of_speech_are_known_of_the_world(analyse):
    rows = by(analyse("pos"), "policy", "tag")
    named = rows["salient-span", "PROPN"]["share"] + rows["salient-span", "NUM"]["share"]
    assert named > 0.9
    assert rows["random", "VERB"]["corpus"] > 0.02
    totals = sum(row["share"] for (policy, _), row in rows.items() if policy == "random")
    assert totals == pytest.approx(1)


def test_a_pipeline_tags_instead(analyse, tmp_path):
    tags = [({"IS_ALPHA": True}, "NOUN"), ({"IS_ALPHA": False}, "PUNCT")]
    tagger = spacy_rules.pipeline(tmp_path / "tagger", tags=tags)
    found = analyse("pos", f"pipeline={tagger}")
    assert {row["tag"] for row in found["rows"]} <= {"NOUN", "PUNCT", "X"}


def test_answers_are_hit_by_entities_more_than_by_chance(analyse):
    rows = by(analyse("answers"), "policy", "task")
    assert rows["salient-span", "zsre"]["share"] > rows["random", "zsre"]["share"]
    assert rows["salient-span", "zsre"]["answers"] <= rows["salient-span", "zsre"]["spans"]


def test_checkpoints_go_from_none_over_kept_steps_to_the_end_and_cost_more_and_more(analyse):
    found = analyse("efficiency")
    steps = [row["steps"] for row in found["rows"] if row["policy"] == "random"]
    assert steps == [0, 2, 6]
    assert {row["seeds"] for row in found["rows"]} == {2}
    [note] = found["notes"]
    assert note.startswith("points without a test: ")
    for over in ("seconds", "tokens"):
        found = analyse("checkpoints", f"over={over}")
        costs = [row[over] for row in found["rows"] if row["policy"] == "salient-span"]
        assert costs == sorted(costs)
        assert costs[0] == 0 < costs[1]
        assert len(found["plots"][0]["series"]) == 4


def test_transfer_is_of_what_a_policy_of_a_file_learnt_on(analyse):
    (row,) = analyse("transfer")["rows"]
    assert (row["policy"], row["learnt_on"], row["own"]) == (SCRIPT, "zsre", "yes")


def test_what_a_run_has_of_its_plugins_rows_stays_where_they_are_not_loaded(done, home, tmp_path):
    run = Path(shutil.copytree(home / "run", tmp_path / "run"))
    words = ("analyze", "answers", run, "--store", home / "store")
    done(*words, "--plugin", home / "guess.py")
    files = {f"answers.{ending}" for ending in ("json", "md", "svg", "png")}
    assert {path.name for path in (run / "analyses" / "answers").iterdir()} == files
    sentence = "Hide the first word: stands for a learned policy, with candidates and scores."
    before, page = (run / "analyses" / "answers" / "answers.json").read_bytes(), run / PAGE
    assert SCRIPT in before.decode()
    assert sentence in page.read_text()
    registry.forget([home / "guess.py"])
    out, err = done(*words, "passages=17")  # which no store has findings of
    assert f"kept as it was: {run / 'analyses' / 'answers'}" in out
    assert err.splitlines()[-1].startswith("left out: ")
    assert "give --plugin FILE (the run used " in err.splitlines()[-1]
    assert (run / "analyses" / "answers" / "answers.json").read_bytes() == before
    done("analyze", "coverage", run, "--store", home / "store")
    assert sentence in page.read_text()


def test_mismatch_scores_seen_relations_with_kept_models(analyse):
    rows = by(analyse("mismatch"), "policy", "relations")
    for policy in ("none", "salient-span"):
        assert rows[policy, "seen in train"]["examples"] > 0
        assert rows[policy, "unseen"]["examples"] > 0
        assert rows[policy, "seen in train"]["seeds"] == 2
    assert rows["salient-span", "unseen"]["hits"] > rows["random", "unseen"]["hits"]
    assert rows["none", "unseen"]["hits"] is None


def test_mismatch_has_no_score_by_a_metric_that_is_no_mean_over_examples(done, home, tmp_path):
    run = shutil.copytree(home / "run", tmp_path / "run")
    for path in (run / "results").iterdir():
        mean = json.loads(path.read_text())["metrics"]["score"]
        folders.change(run, path.name, metrics={"mean": mean, "parts": {}})
    words = ("analyze", "mismatch", run, "--store", home / "store", "--plugin", home / "guess.py")
    found = json.loads(done(*words, "--json")[0])
    assert {row["score"] for row in found["rows"]} == {None}
    assert found["notes"][-1] == "zsre: its metric is not a mean over examples: no scores"


def test_cloze_asks_each_model_by_the_right_and_by_a_wrong_name(analyse):
    found = by(analyse("cloze"), "policy")
    assert {("original",), ("random",), ("salient-span",)} <= set(found)
    for row in found.values():
        assert (row["kind"], row["values"]) == ("people", 8 * 5)
        assert 0 <= row["right name"] <= 100 and 0 <= row["wrong name"] <= 100
        assert 10 < row["most frequent"] < 100


def test_forgetting_reads_a_text_again_that_has_changed(analyse, tmp_path):
    text = tmp_path / "wiki.txt"
    words = ("forgetting", "passages=8", f"text=[{text}]")
    text.write_text("The bridge was built by two brothers in the winter of that year.\n\n" * 8)
    first = analyse(*words)
    text.write_text("A river of that name has no bridge and never will have a second one.\n\n" * 8)
    assert analyse(*words)["rows"] != first["rows"]


def test_what_a_changed_policy_hid_is_not_known(analyse, home):
    file = home / "guess.py"
    file.write_text(f"{PLUGIN}CHANGED = 1\n")
    try:
        found = analyse("lengths", "passages=50")
    finally:
        file.write_text(PLUGIN)
    assert SCRIPT not in {row["policy"] for row in found["rows"]}
    says = "policy guess-first has changed since its training: run its experiment again"
    assert found["notes"] == [f"{SCRIPT}: {says}"]
    assert SCRIPT in {row["policy"] for row in analyse("lengths", "passages=50")["rows"]}


def test_viewer_shows_candidates_with_scores(analyse):
    found = analyse("viewer", "passages=2")
    own = [row for row in found["rows"] if row["policy"] == SCRIPT]
    assert [row["what"] for row in own[:3]] == ["masked", "candidate", "candidate"]
    assert own[0]["text"] == own[1]["text"]
    assert [row["score"] for row in own[1:4]] == [0.0, -1.0, -2.0]
    assert len({row["passage"] for row in found["rows"]}) == 2


def test_the_store_is_by_default_that_of_the_run(done, refused, home, tmp_path, monkeypatch):
    words = ("analyze", "lengths", home / "run", "--out", tmp_path, "--json", "--store")
    assert "name the store of that run with --store" in refused(*words, tmp_path / "empty")
    monkeypatch.chdir(home)
    monkeypatch.delenv("MASKPOLICY_STORE", raising=False)
    out, _ = done(*words[:-1], "--plugin", home / "guess.py")
    assert json.loads(out)["rows"]


def test_a_model_kept_on_the_way_is_the_one_trained_to_there(home, tmp_path):
    experiment = load_experiment(home / "tiny.yaml")
    store, other = Store(home / "store"), Store(tmp_path / "store")
    plan = stages.build(experiment, store.hash_file)
    early = plan.early["random", "zsre", 0, 2].inputs["model"].inputs["model"]
    assert early.params.until == 2
    execute([early], other)
    names = ("model.safetensors", "work.json", "config.json")
    for name in names:
        on_the_way = (store.path(early.key) / name).read_bytes()
        assert (other.path(early.key) / name).read_bytes() == on_the_way
    assert store.get(early.key).manifest["seconds"] < other.get(early.key).manifest["seconds"]


def test_a_tracker_gets_the_losses_of_every_training(home):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folders = sorted(path.parent for path in (home / "run" / "logs").rglob("events.*"))
    assert len(folders) == 1 + 4 + 10 + 8  # general, intermediate, finetune, and of kept models
    events = accumulator.EventAccumulator(str(folders[-1])).Reload()
    named = (pair for one in read_run(home / "run").results for pair in one.stages.items())
    keys = {slug(name): key for name, key in named}
    loss = Store(home / "store").peek(keys[folders[-1].name])["record"]["facts"]["loss"]
    found = [(event.step, event.value) for event in events.Scalars("loss")]
    assert found == [(6, pytest.approx(loss))]


def exported(done, home, out, *words):
    done("export", home / "run", *words, "--out", out, "--store", home / "store")
    text = (out / "README.md").read_text()
    return text, yaml.safe_load(text.split("---\n")[1])


def test_a_read_only_store_that_lost_its_corpus_is_enough(done, home, small_disk, tmp_path):
    disk = small_disk("size=500m")
    store = Store(shutil.copytree(home / "store", disk / "store"))
    for known in store.records(dropped=False):
        if known["record"]["kind"] == "corpus":
            assert store.drop(known["key"])
    small_disk("remount,ro,size=500m")
    words = (home / "run", "--store", store.root)
    done("analyze", "mismatch", *words, "--json", "--plugin", home / "guess.py")
    done("export", *words, "salient-span", "--out", tmp_path / "bart")
    assert "the embedded world" in (tmp_path / "bart" / "README.md").read_text()
    assert mp.load(home / "run", store=store.root).store.temporary is not None


def test_a_fine_tuned_model_says_on_what_and_its_tokenizer_cuts_where_positions_end(
    done, home, tmp_path
):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    text, front = exported(done, home, tmp_path / "bart", "none", "--task", "zsre", "--seed", "1")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "bart")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "bart")
    ids = tokenizer("one two three " * 999, truncation=True, return_tensors="pt").input_ids
    assert ids.shape[1] == model.config.max_position_embeddings
    assert model.generate(ids, max_new_tokens=2).shape[0] == 1
    assert "then fine-tuned on zsre (world)" in text
    assert "## Policy" not in text
    assert len(front["model-index"][0]["results"]) == 1
    assert "| steps | 3 |" in text
    assert "| zsre (world) | invented data (the embedded world) | kilt_accuracy |" in text
    assert "| 1 |" in text


def test_the_card_of_a_row_has_its_policy_text_and_budget_and_a_label_with_markup_as_text(
    done, home, tmp_path
):
    text, front = exported(done, home, tmp_path / "bart", SCRIPT, "--plugin", home / "guess.py")
    command = f"maskpolicy export run {shlex.quote(SCRIPT)} --plugin guess.py --out bart\n"
    assert f"maskpolicy run run/experiment.yaml\n{command}" in text
    assert "<script" not in text.replace(command, "")
    assert "policy:guess-first" in front["tags"]
    for line in ("## Policy", "## Corpus", "the embedded world", "## Budget", "| steps | 6 |"):
        assert line in text
    assert str(home) not in text + (tmp_path / "bart" / "maskpolicy.json").read_text()


def test_forgetting_measures_as_many_passages_of_a_long_document_as_it_says(analyse, tmp_path):
    sentence, rows = "The bridge was built by two brothers in that winter. ", []
    for number in (8, 100):
        (tmp_path / "book.jsonl").write_text(json.dumps({"text": sentence * number}))
        words = ("passages=8", "words=10", f"text=[{tmp_path / 'book.jsonl'}]")
        rows.append(analyse("forgetting", *words)["rows"])
    assert rows[0] and rows[0] == rows[1]
