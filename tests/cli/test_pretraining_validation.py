"""`pretrain --validation`: the loss of text that the model is not trained on."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import encoders as tiny
import pytest
import torch

from maskpolicy.models import text_to_text
from maskpolicy.models.bart import build
from maskpolicy.models.tokenizers import train_tokenizer

TEXTS = {
    name: "\n\n".join(
        f"{person} was born in London in {year + 7 * number}. She wrote {number} notes."
        for number in range(count)
    )
    for name, count, person, year in (
        ("one", 40, "Ada Lovelace", 1815),
        ("other", 35, "Mary Shelley", 1797),
    )
}
SHORT = ("intermediate.steps=4", "intermediate.batch_size=8", "intermediate.warmup=1")


@pytest.fixture(scope="module")
def bart(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "small-bart"
    tokenizer = train_tokenizer(list(TEXTS.values()), 400)
    tokenizer.save_pretrained(folder)
    build("mini", tokenizer, 0).save_pretrained(folder)
    return folder


@pytest.fixture
def words(bart, tmp_path):
    """The words of a short pretrain command with validation, less --policy and --out."""
    for name, text in TEXTS.items():
        (tmp_path / f"{name}.txt").write_text(text)
    files = ("--corpus", tmp_path / "one.txt", "--validation", tmp_path / "other.txt")
    return ("pretrain", "--model", bart, *files, *SHORT, "--store", tmp_path / "store")


def record_of(folder: Path) -> dict:
    return json.loads((folder / "maskpolicy.json").read_text())


@pytest.mark.parametrize(
    "policy",
    [
        ("random",),
        ("salient-span", "target=full", "mask_exclusion=0.5"),
        ("pmi", "policy.min_count=2"),
        ("mixture", "policy.members=[random, {name: pmi, min_count: 2}]"),
    ],
)
def test_the_next_pre_training_begins_where_the_last_one_ended(call, words, tmp_path, policy):
    code, out, _ = call(*words, "--policy", *policy, "--out", tmp_path / "out")
    assert code == 0
    found = record_of(tmp_path / "out")["validation_loss"]
    assert found["passages"] == 34  # of 35, as two batches are of equal size
    assert [step for step, _ in found["losses"]] == [1, 2, 3, 4]
    least = min(found["losses"], key=lambda pair: pair[1])
    assert found["step"] == least[0]
    assert found["after"] == pytest.approx(least[1], rel=0.01)  # measured in bf16 on some machines
    (line,) = (line for line in out.splitlines() if line.startswith("Validation loss"))
    assert line == (
        f"Validation loss (nats per target token, 34 passages): {found['before']:.3f} before, "
        f"{found['after']:.3f} after step {found['step']} of 4, the lowest of 4."
    )
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"## Validation\n\n{line}\n" in card
    assert f"| 4 | {found['losses'][-1][1]:.4f} |" in card
    again = ["pretrain", "--model", tmp_path / "out", *words[3:]]
    assert call(*again, "--policy", *policy, "--out", tmp_path / "then")[0] == 0
    assert record_of(tmp_path / "then")["validation_loss"]["before"] == found["after"]


def test_the_loss_before_is_that_of_an_untrained_model(call, words, tmp_path):
    call(*words, "--policy", "random", "--out", tmp_path / "out")
    found = record_of(tmp_path / "out")
    vocabulary = json.loads((tmp_path / "out" / "config.json").read_text())["vocab_size"]
    assert found["validation_loss"]["before"] == pytest.approx(math.log(vocabulary), rel=0.05)
    assert [name for name, _ in found["validation"]["files"]] == ["other.txt"]


def test_the_weights_with_the_lowest_loss_are_kept_and_patience_ends(call, words, tmp_path):
    keys = ("intermediate.lr=0.05", "intermediate.schedule=constant", "intermediate.eval_every=2")
    keys += ("intermediate.steps=10", "intermediate.patience=2", "intermediate.max_grad_norm=0")
    assert call(*words, *keys, "--policy", "random", "--out", tmp_path / "out")[0] == 0
    record = record_of(tmp_path / "out")
    losses = dict(record["validation_loss"]["losses"])
    step = record["validation_loss"]["step"]
    assert losses[step] == min(losses.values())
    assert list(losses) == list(range(2, min(step + 4, 10) + 1, 2))
    assert record["work"]["passages"] == 8 * max(losses)
    same = (f"intermediate.steps={step}", "intermediate.patience=0", "intermediate.eval_every=0")
    assert record["validation_loss"]["steps"] == max(losses)
    files = [word for word in words if word not in ("--validation", tmp_path / "other.txt")]
    kept = text_to_text.load(str(tmp_path / "out"))
    call(*files, *keys, *same, "--policy", "random", "--out", tmp_path / "out")
    plain = text_to_text.load(str(tmp_path / "out"))
    assert torch.equal(kept.lm_head.weight, plain.lm_head.weight)


def test_a_loss_that_did_not_fall_is_told(call, words, tmp_path):
    for rate, is_told in ((0.001, False), (1.0, True)):
        keys = (f"intermediate.lr={rate}", "--policy", "random", "--out", tmp_path / "out")
        code, _, err = call(*words, *keys)
        assert code == 0
        found = record_of(tmp_path / "out")["validation_loss"]
        assert (found["after"] >= found["before"]) == is_told
        assert ("the validation loss did not fall" in err) == is_told


def test_validation_changes_no_weight_if_the_last_ones_are_best(call, words, tmp_path):
    keys = ("--policy", "salient-span")
    assert call(*words, *keys, "intermediate.eval_every=9", "--out", tmp_path / "out")[0] == 0
    assert [step for step, _ in record_of(tmp_path / "out")["validation_loss"]["losses"]] == [4]
    files = [word for word in words if word not in ("--validation", tmp_path / "other.txt")]
    call(*files, *keys, "--out", tmp_path / "plain")
    read = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("out", "plain")]
    assert read[0] == read[1]
    assert "validation_loss" not in record_of(tmp_path / "plain")
    assert "## Validation" not in (tmp_path / "plain" / "README.md").read_text()


def test_the_last_step_is_measured_too(call, words, tmp_path):
    more = ("--policy", "random", "--out", tmp_path / "out")
    for steps, every, measured in ((5, 2, [2, 4, 5]), (13, 0, [2, 4, 6, 8, 10, 12, 13])):
        keys = (f"intermediate.steps={steps}", f"intermediate.eval_every={every}")
        assert call(*words, *keys, *more)[0] == 0
        found = record_of(tmp_path / "out")["validation_loss"]["losses"]
        assert [step for step, _ in found] == measured


def test_the_validation_text_is_read_like_the_corpus(call, words, tmp_path):
    for name in TEXTS:
        rows = [json.dumps({"body": text}) for text in TEXTS[name].split("\n\n")]
        (tmp_path / f"{name}.jsonl").write_text("\n".join([*rows, "{"]))
    files = [f"{word}".replace(".txt", ".jsonl") for word in words]
    keys = ("corpus.column=body", "corpus.on_error=skip", "corpus.words=5", "--policy", "random")
    code, _, err = call(*files, *keys, "--out", tmp_path / "out")
    assert code == 0, err
    found = record_of(tmp_path / "out")
    assert found["validation"] == {**found["validation"], "column": "body", "words": 5}
    assert found["validation_loss"]["passages"] > 64  # 35 entries of eleven words, in parts


def test_a_head_that_is_drawn_anew_has_no_loss_before(call, words, tmp_path):
    folder = tiny.saved("bert", tmp_path / "small")
    keys = ("model.kind=encoder", "model.head=new", "--policy", "random")
    code, out, _ = call("pretrain", "--model", folder, *words[3:], *keys, "--out", tmp_path / "out")
    assert code == 0
    assert record_of(tmp_path / "out")["validation_loss"]["before"] is None
    assert "before" not in next(line for line in out.splitlines() if "Validation loss" in line)


def test_text_that_cannot_validate_is_one_line(refused, words, tmp_path):
    words = (*words, "--out", tmp_path / "out")
    text = tmp_path / "one.txt"
    line = refused(*words, "--policy", "random", "--validation", tmp_path / "*.txt")
    assert "--validation: one.txt: the corpus has the same file (one.txt)" in line
    (tmp_path / "copy.txt").write_text(text.read_text())
    mixed = f"corpus.mix={{more: {{files: [{tmp_path / 'other.txt'}], share: 0.1}}}}"
    for more in (("--validation", tmp_path / "copy.txt"), (mixed,)):
        assert "the corpus has the same file" in refused(*words, "--policy", "random", *more)
    line = refused(*words, "--policy", "random", "--validation", tmp_path / "no.txt")
    assert "--validation.files[1]: no such file" in line
    line = refused(*words, "--policy", "random", "intermediate.steps=0")
    assert "intermediate.steps is 0: there is nothing to validate" in line
    files = [word for word in words if word not in ("--validation", tmp_path / "other.txt")]
    line = refused(*files, "--policy", "random", "intermediate.patience=2")
    assert "intermediate.patience: needs text to measure the loss on: --validation" in line
    line = refused(*words, "--policy", "self-evolution")
    assert "--validation: self-evolution is trained in parts" in line


def test_text_in_which_nothing_is_masked_is_one_line(call, words, tmp_path):
    (tmp_path / "other.txt").write_text("nothing here\n\nand nothing there")
    policy = ("--policy", "regex", r"policy.pattern=\d{4}")
    code, _, err = call(*words, *policy, "--out", tmp_path / "out")
    assert code == 2
    (line,) = (line for line in err.splitlines() if line.startswith("error: "))
    assert "found nothing in 2 passages (annotate regex" in line and ", validation)" in line


def test_python_takes_validation_text_too(words, bart, tmp_path, monkeypatch):
    import maskpolicy as mp

    monkeypatch.chdir(tmp_path)
    store = os.fspath(tmp_path / "store")
    out = mp.pretrain(
        os.fspath(bart),
        "random",
        "one.txt",
        "out",
        *SHORT,
        validation="other.txt",
        store=store,
        progress=False,
    )
    assert record_of(out)["validation_loss"]["step"] in (1, 2, 3, 4)
