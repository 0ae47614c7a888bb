"""Exported models and their checkpoints are read as BabyLM's evaluation pipeline reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoProcessor

from maskpolicy.leaderboard.results.cell import read_run
from maskpolicy.pipeline.store.opening import open_store

YAML = """
model: {kind: encoder, name: mini, head: own}
corpus: world
data: .
policies: [none, random, {name: random, label: more, ratio: 0.4}]
tasks: [pairs]
world: {people: 8, general_people: 6}
general: {steps: 2, warmup: 1, batch_size: 4}
intermediate: {steps: 6, warmup: 1, batch_size: 4}
"""
PAIRS = (("Ada was born.", "Ada were born."), ("It is old.", "It are old."), ("He ran", "He runs"))
TABLE = "\n".join(["good,bad", *(",".join(pair) for pair in PAIRS)])
MODELS = {"encoder": AutoModelForMaskedLM, "seq2seq": AutoModelForSeq2SeqLM}


@pytest.fixture(scope="module", params=MODELS)
def ran(request, run_tiny):
    """Return the folder of a run with checkpoints, and the class that its models are loaded by."""
    text = f"{YAML}checkpoint_steps: [2, 4]\n"
    if request.param == "seq2seq":
        text = text.replace("{kind: encoder, name: mini, head: own}", "mini")
    return run_tiny(text, {"pairs.csv": TABLE}), MODELS[request.param]


@pytest.fixture(scope="module")
def unchecked(run_tiny):
    """Return the folder of a run without checkpoints."""
    return run_tiny(YAML, {"pairs.csv": TABLE})


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


def predicted(path: Path) -> list[str]:
    return [json.loads(row)["prediction"] for row in path.read_text().splitlines()]


def test_checkpoints_answer_in_the_pipeline_as_in_the_run(call, ran, tmp_path):
    folder, auto_class = ran
    out, words = tmp_path / "babylm", ("--store", folder / "store", "--checkpoints")
    code, _, err = call("export", folder / "out", "more", "--out", out, *words)
    assert code == 0, err
    assert choices(out, auto_class) == predicted(folder / "out/predictions/more--pairs--0.jsonl")
    store = open_store(folder / "store")
    early = [cell for cell in read_run(folder / "out").early if cell.policy == "more"]
    for step, cell in zip((2, 4), early, strict=True):
        evaluated = store.get(cell.stage_key("evaluate")).path
        found = choices(out / f"step_{step}", auto_class)
        assert found == predicted(evaluated / "predictions.jsonl")
    weights = {path.read_bytes() for path in out.rglob("model.safetensors")}
    assert len(weights) == 3


def test_checkpoints_are_branches_on_the_hub(call, hub, ran, tmp_path):
    folder, _ = ran
    out, words = tmp_path / "babylm", ("--store", folder / "store", "--checkpoints")
    code, _, err = call("export", folder / "out", "more", "--out", out, *words, "--push", "me/it")
    assert code == 0, err
    for branch, part in (("", out), ("@step_2", out / "step_2"), ("@step_4", out / "step_4")):
        files = {path.name: path.read_bytes() for path in part.iterdir() if path.is_file()}
        assert hub.files[f"models/me/it{branch}"] == files
    assert "--checkpoints" in (out / "README.md").read_text()


def test_checkpoints_that_there_are_none_of_are_one_line(refused, ran, unchecked, tmp_path):
    words = ("--out", tmp_path / "babylm", "--checkpoints", "--store", unchecked / "store")
    said = refused("export", unchecked / "out", "more", *words)
    assert "more has no checkpoints: set checkpoint_steps in the experiment and run it" in said
    said = refused("export", ran[0] / "out", "more", *words, "--task", "pairs")
    assert "--checkpoints: are models before fine-tuning: leave out --task" in said
