"""Exported models and BabyLM entries score in BabyLM's evaluation pipeline as in the run."""

import json
import shutil
from dataclasses import replace
from math import ceil
from pathlib import Path
from statistics import fmean

import babylm
import folders
import pytest
import small
import torch
from official import rows_of
from transformers import AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoProcessor

from maskpolicy.app import submission, transformers_folders
from maskpolicy.app.commands import app
from maskpolicy.core.errors import StoreError
from maskpolicy.core.metrics import Total
from maskpolicy.leaderboard.results.cell import Result, read_run
from maskpolicy.pipeline.store.opening import open_store

SIZES = {"layers": 2, "width": 16, "heads": 2, "feed_forward": 32, "vocabulary": 500}
MODEL = {"kind": "encoder", "name": "modernbert", "head": "own", **SIZES}
ROWS = ["none", "random", {"name": "random", "label": "more", "ratio": 0.4}]
BUDGET = {"steps": 6, "warmup": 1, "batch_size": 4}
KEYS = {"data": ".", "policies": ROWS, "tasks": ["pairs"], "intermediate": BUDGET, "finetune": {}}
PAIRS = (("Ada was born.", "Ada were born."), ("It is old.", "It are old."), ("He ran", "He runs"))
TABLE = "\n".join(["good,bad", *(",".join(pair) for pair in PAIRS)])
EARLY = ("chck_0.0001M", "chck_0.0002M")
MODELS = {"encoder": AutoModelForMaskedLM, "seq2seq": AutoModelForSeq2SeqLM}
ENCODER = pytest.mark.parametrize("ran", ["encoder"], indirect=True)


@pytest.fixture(scope="module", params=MODELS)
def ran(request, run_tiny):
    """Return the folder of a run with checkpoints, and the class that its models are loaded by."""
    model = MODEL if request.param == "encoder" else "mini"
    text = small.experiment(model=model, checkpoint_words=[100, 200], **KEYS)
    return run_tiny(text, {"pairs.csv": TABLE}), MODELS[request.param]


def choices(folder: Path, auto_class) -> list[str]:
    """Return the likelier sentence of each pair, as the pipeline loads a model and scores with it.

    See get_model, process_mlm_sentences and process_enc_dec_mask_sentences in
    evaluation_pipeline/sentence_zero_shot of babylm/evaluation-pipeline-2025.
    """
    named = {"revision": "chck_1M", "trust_remote_code": True}  # of a folder, none is looked up
    model = auto_class.from_pretrained(str(folder), **named).eval()
    processor = AutoProcessor.from_pretrained(str(folder), padding_side="right", **named)

    def score(sentence: str) -> float:
        read = processor(text=sentence, return_offsets_mapping=True)
        total = 0.0
        for place, (_, end) in enumerate(read["offset_mapping"]):
            if end == 0:
                continue
            tokens = torch.tensor([read["input_ids"]])
            target, tokens[0, place] = int(tokens[0, place]), processor.mask_token_id
            more = {}
            if auto_class is AutoModelForSeq2SeqLM:
                starts = [processor.bos_token_id, processor.mask_token_id]
                more["decoder_input_ids"] = torch.tensor([starts])
            with torch.no_grad():
                logits = model(tokens, torch.ones_like(tokens), **more).logits
            at = -1 if more else place
            total += logits[0, at].log_softmax(-1)[target].item()
        return total

    return [max(pair, key=score) for pair in PAIRS]


def check_settings(folder: Path) -> None:
    """The pipeline's Transformers 4.51 knows two settings of a tokenizer by older names alone.

    And its fast tokenizers put no blank before a text unless the settings say so.
    """
    settings, parts = (
        json.loads((folder / f"tokenizer{name}.json").read_text()) for name in ("_config", "")
    )
    assert settings["tokenizer_class"] in ("PreTrainedTokenizerFast", "RobertaTokenizer")
    assert not isinstance(settings.get("extra_special_tokens"), list)
    assert settings["add_prefix_space"] is parts["pre_tokenizer"]["add_prefix_space"] is True


def predicted(path: Path) -> list[str]:
    return [row["prediction"] for row in rows_of(path)]


def test_checkpoints_answer_in_the_pipeline_as_in_the_run(done, ran, tmp_path):
    folder, auto_class = ran
    out, words = tmp_path / "babylm", ("--store", folder / "store", "--checkpoints")
    done("export", folder / "out", "more", "--out", out, *words)
    assert choices(out, auto_class) == predicted(folder / "out/predictions/more--pairs--0.jsonl")
    store = open_store(folder / "store")
    early = [cell for cell in read_run(folder / "out").early if cell.policy == "more"]
    assert len(early) == 2
    for name, cell in zip(EARLY, early, strict=True):
        check_settings(out / name)
        evaluated = store.get(cell.stage_key("evaluate")).path
        assert choices(out / name, auto_class) == predicted(evaluated / "predictions.jsonl")
    assert len({path.read_bytes() for path in out.rglob("model.safetensors")}) == 3
    (last,) = {path.name for path in out.iterdir() if path.is_dir()} - {*EARLY}
    whole, same = (place / "model.safetensors" for place in (out, out / last))
    assert whole.read_bytes() == same.read_bytes()


@pytest.mark.parametrize("millions", [0.5, *range(1, 10), *range(10, 101, 10)])
def test_a_checkpoint_has_the_roundest_number_of_words_that_its_last_step_reaches(millions):
    step = ceil(millions * 1e6 / 6400.7)
    assert transformers_folders.checkpoint_name(step, 6400.7) == f"chck_{millions}M"


@ENCODER
def test_checkpoints_are_branches_on_the_hub(done, hub, ran, tmp_path):
    folder, _ = ran
    out, words = tmp_path / "babylm", ("--store", folder / "store", "--checkpoints")
    done("export", folder / "out", "more", "--out", out, *words, "--push", "me/it")
    for name in ("", *EARLY):
        files = {path.name: path.read_bytes() for path in (out / name).iterdir() if path.is_file()}
        assert hub.files[f"models/me/it@{name}".removesuffix("@")] == files
    assert "--checkpoints" in (out / "README.md").read_text()


ENTRY = """
model: {kind: encoder, name: mini, head: own}
corpus: {files: ['train_10M/*.train'], words: 10}
data: evaluation_data/fast_eval
policies: [random]
tasks: [blimp, blimp-supplement, ewok]
baseline: random
world: {people: 8, general_people: 6}
general: {steps: 0}
intermediate: {epochs: 1, warmup: 1, batch_size: 4}
finetune: {steps: 2, warmup: 1, batch_size: 4}
checkpoint_words: [50]
"""
FULL = (
    *("data=evaluation_data/full_eval", "tasks=[blimp, boolq, mnli]", "checkpoint_words=[]"),
    *("--out", "full"),
)
ROW = ("--row", "random", "--store", "store", "--name", "my-babylm")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a folder with data of BabyLM and the runs fast and full."""
    folder = babylm.slice_into(tmp_path_factory.mktemp("babylm"))
    (folder / "it.yaml").write_text(ENTRY)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words in (("--out", "fast"), FULL):
            assert not app(["run", "it.yaml", "--store", "store", *words], standalone_mode=False)
    return folder


@pytest.fixture
def entry(home, done, monkeypatch):
    """Return the JSON of an entry, and the folder of the pipeline's results."""
    monkeypatch.chdir(home)
    out, err = done("submission", "fast", "full", *ROW)
    path = home / "results/my-babylm/all_full_preds_and_fast_scores_mlm.json"
    assert f"written to {path.relative_to(home)}" in out
    glue = ", ".join(f"glue/{task}" for task in ("mrpc", "multirc", "qqp", "rte", "wsc"))
    others = "entity_tracking, wug_adj, wug_past, comps, reading, aoa"
    fast = ", ".join(f"fast_eval_results/{each}" for each in submission.FAST_OTHERS)
    assert f"not in it: blimp_supplement, ewok, {others}, {glue}, {fast}\n" in err
    return json.loads(path.read_text()), path.parent


def right(predictions, path, key):
    """Return the share of predictions that the pipeline counts, as calculate_results_from_pred.

    Pairs of two equal sentences, which the run leaves out, are right, and not in the share.
    """
    pairs = [*zip(predictions["predictions"], rows_of(path), strict=True)]
    hits = [one["pred"] == data[key] for one, data in pairs]
    equal = [data.get("sentence_bad") == babylm.EQUAL for _, data in pairs]
    assert all(hit for hit, same in zip(hits, equal, strict=True) if same)
    return fmean(hit for hit, same in zip(hits, equal, strict=True) if not same)


def scores(folder):
    return {one.task: one.metrics.score for one in read_run(folder).results}


def test_the_last_model_is_scored_as_in_the_run(entry, home):
    found, place = entry
    data, known = home / "evaluation_data/full_eval", scores(home / "full")
    blimp = found["blimp"]
    assert blimp == json.loads(
        (place / "main/zero_shot/mlm/blimp/blimp_filtered/predictions.json").read_text()
    )
    shares = [
        right(blimp[name], data / f"blimp_filtered/{name}.jsonl", "sentence_good")
        for name in babylm.PARADIGMS
    ]
    assert fmean(shares) == pytest.approx(known["blimp"])
    for task in ("boolq", "mnli"):
        own = json.loads((place / f"main/finetune/{task}/predictions.json").read_text())
        assert own == {task: found["glue"][task]}
        assert own[task]["predictions"][1]["id"] == f"{task}_1"
        share = right(own[task], data / f"glue_filtered/{task}.valid.jsonl", "label")
        assert share == pytest.approx(known[task])


def test_checkpoints_are_scored_on_the_fast_sets(entry, home):
    found, place = entry
    revisions = sorted(path.name for path in place.iterdir() if path.name.startswith("chck_"))
    assert revisions[0] == "chck_0.00005M" and len(revisions) == 2
    fast = found["fast_eval_results"]
    assert fast.keys() == {"blimp", "blimp_supplement", "ewok"}
    run, last = read_run(home / "fast"), scores(home / "fast")
    early = {one.task: one.metrics.score for one in run.early}
    means = [fmean(scored.values()) for scored in fast["blimp_supplement"]]
    assert means == pytest.approx([early["blimp-supplement"], last["blimp-supplement"]])
    means = [fmean(scored.values()) for scored in fast["blimp"]]  # one of five pairs is equal
    assert means == pytest.approx([0.8 * early["blimp"] + 0.2, 0.8 * last["blimp"] + 0.2])
    path = place / revisions[0] / "zero_shot/mlm/ewok/ewok_fast/predictions.json"
    share = right(
        json.loads(path.read_text())["spatial-relations"],
        home / "evaluation_data/fast_eval/ewok_fast/spatial-relations.jsonl",
        "Target1",
    )
    assert share == pytest.approx(early["ewok"]) == fast["ewok"][0]["spatial-relations"]


def test_a_failed_fast_benchmark_and_a_missing_folder_are_named(home, done, refused, monkeypatch):
    monkeypatch.chdir(home)
    shutil.copytree("fast", "part")
    folders.change(home / "part", "random--ewok--*", error="lost", metrics=None)
    _, err = done("submission", "part", *ROW)
    assert "comps, reading, aoa, fast_eval_results/ewok, fast_eval_results/entity" in err
    for task, more, said in (
        ("ewok", {"config": {"task": {"limit": {"test": 5}}}}, "needs all examples"),
        ("blimp", {"stages": {"intermediate random, run 0": "0" * 64}}, "is of another model than"),
        ("blimp-supplement", {"config": {"model": {"kind": "seq2seq"}}}, "an entry has one: mlm"),
    ):
        shutil.copytree("fast", task)
        folders.change(home / task, f"random--{task}--*", **more)
        assert said in refused("submission", "full", task, *ROW)
    shutil.copytree("full", "full2")
    assert "has the same task: run one of the two" in refused("submission", "full", "full2", *ROW)
    folders.change(home / "part", "random--blimp--*", config={"task": {"data": "/gone"}})
    assert "blimp: the folder /gone is missing: put" in refused("submission", "part", *ROW)


def test_missing_checkpoints_are_one_line(refused, home, monkeypatch):
    monkeypatch.chdir(home)
    words = ("random", "--out", "exported", "--checkpoints", "--store", "store")
    said = refused("export", "full", *words)
    assert "random has no checkpoints: set checkpoint_words or checkpoint_steps in" in said


def test_a_way_of_scoring_that_the_pipeline_lacks_is_left_out(home, done, monkeypatch):
    monkeypatch.chdir(home)
    shutil.copytree("fast", "within")
    way = {"task": {"choose": "within_word_l2r"}}
    folders.change(home / "within", "random--blimp--*", config=way)
    done("submission", "within", *ROW, "--out", "within-results")
    (entry,) = (home / "within-results").rglob("all_full*.json")
    assert json.loads(entry.read_text()).keys() == {"fast_eval_results"}
    assert json.loads(entry.read_text())["fast_eval_results"].keys() == {"blimp_supplement", "ewok"}


@pytest.mark.parametrize("name", ["masking", "small"])
def test_the_shipped_experiments_are_planned(done, home, monkeypatch, name):
    monkeypatch.chdir(home)
    keys = ("intermediate.batch_size=4", *(["checkpoint_words=[50]"] if name == "small" else []))
    out, _ = done("plan", f"babylm/{name}", *keys, "--store", "planned", "--hardware", "h100x1")
    assert "seeds find" in out and "to do" in out and "GPU-hours" in out


@ENCODER
def test_a_card_names_no_fine_tuning_of_tasks_without_it(done, ran, refused, tmp_path):
    folder, _ = ran
    words = ("export", folder / "out", "more", "--store", folder / "store", "--out")
    done(*words, tmp_path / "it")
    card = (tmp_path / "it/README.md").read_text()
    assert "| pairs (local files) |" in card and "fine-tun" not in card
    said = refused(*words, tmp_path / "tuned", "--task", "pairs")
    assert "--task pairs: is answered without fine-tuning" in said


def test_a_card_tells_budgets_of_tasks_apart():
    config = {"finetune": {"steps": 9}}
    tuned = Result("a", "x", 0, "", config, {"finetune a": "1"}, Total("accuracy", 0.5, 8))
    other = replace(tuned, task="y", config={"finetune": {"steps": 3}})
    zero = replace(tuned, task="blimp", stages={"evaluate a": "2"})
    told = transformers_folders.budgets([tuned, other, zero, replace(tuned, seed=1)])
    assert told == "x: 9 steps; y: 3 steps; blimp: none"
    assert transformers_folders.budgets([tuned]) == "9 steps"


def test_a_checkpoint_without_answers_does_not_get_those_of_the_last_model(home, tmp_path):
    run = read_run(home / "fast")
    lacking = replace(run, early=tuple(one for one in run.early if one.task != "ewok"))
    says = "the answers of random to ewok at step .* are not in this run: run its experiment again"
    with pytest.raises(StoreError, match=says):
        submission.write([lacking], "random", 0, open_store(home / "store"), tmp_path)
