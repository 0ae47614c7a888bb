"""`pretrain --validation`: the loss on text that the model is not trained on."""

import json
import math
from pathlib import Path

import encoders as tiny
import pytest
import small
import torch
from transformers import AutoModel

from maskpolicy.models import text_to_text

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
    small.saved(folder, small.bart(init_std=0.02))
    return folder


@pytest.fixture(autouse=True)
def texts(here):
    for name, text in TEXTS.items():
        Path(f"{name}.txt").write_text(text)


@pytest.fixture
def words(bart, store):
    """The words of a short pretrain command, to which --validation is to be added."""
    return ("pretrain", "--model", bart, "--corpus", "one.txt", *SHORT, "--store", store)


@pytest.fixture
def validated(done, words):
    """Pre-train a model with validation; returns its record and what was printed."""

    def validated(*more, out="out", policy="random"):
        text = ("--validation", "other.txt", "--policy", policy, "--out", out)
        printed, err = done(*words, *text, *more)
        return record_of(out), printed, err

    return validated


def record_of(folder: str | Path) -> dict:
    return json.loads((Path(folder) / "maskpolicy.json").read_text())


@pytest.mark.parametrize(
    ("policy", "keys"),
    [
        ("random", ()),
        ("salient-span", ("target=full", "mask_exclusion=0.5")),
        ("mixture", ("policy.members=[random, {name: pmi, min_count: 2}]",)),
    ],
)
def test_the_next_pre_training_begins_where_the_last_one_ended(validated, policy, keys):
    record, out, _ = validated(*keys, policy=policy)
    found = record["validation_loss"]
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
    card = Path("out", "README.md").read_text()
    assert f"## Validation\n\n{line}\n" in card
    assert f"| 4 | {found['losses'][-1][1]:.4f} |" in card
    vocabulary = json.loads(Path("out", "config.json").read_text())["vocab_size"]
    if policy == "random":  # whose targets are of all kinds
        assert found["before"] == pytest.approx(math.log(vocabulary), rel=0.05)
    assert [name for name, _ in record["validation"]["files"]] == ["other.txt"]
    then, _, _ = validated("--model", "out", *keys, out="then", policy=policy)
    assert then["validation_loss"]["before"] == found["after"]


def test_the_weights_with_the_lowest_loss_are_kept_and_patience_ends(done, words, validated):
    keys = ("intermediate.lr=0.05", "intermediate.schedule=constant", "intermediate.eval_every=2")
    keys += ("intermediate.steps=10", "intermediate.patience=2", "intermediate.max_grad_norm=0")
    record, _, _ = validated(*keys)
    found = record["validation_loss"]
    losses, step = dict(found["losses"]), found["step"]
    assert losses[step] == min(losses.values())
    assert list(losses) == list(range(2, min(step + 4, 10) + 1, 2))
    assert record["work"]["passages"] == 8 * max(losses)
    assert found["steps"] == max(losses)
    same = (f"intermediate.steps={step}", "intermediate.patience=0", "intermediate.eval_every=0")
    done(*words, *keys, *same, "--policy", "random", "--out", "plain")
    kept, plain = (text_to_text.load(name) for name in ("out", "plain"))
    assert torch.equal(kept.lm_head.weight, plain.lm_head.weight)


def test_validation_is_packed_as_the_corpus_is(validated):
    packed, plain = (
        validated("corpus.tokens=100", f"corpus.pack={pack}")[0]["validation_loss"]["passages"]
        for pack in ("true", "false")
    )
    assert packed < plain


def test_all_examples_of_a_passage_are_validated(validated):
    keys = ("policy.examples=each",)
    (_, one, _), (record, each, _) = (
        validated(*more, policy="salient-span") for more in ((), keys)
    )
    found = record["validation_loss"]
    assert found["passages"] > 2 * 35 and found["unit"] == "example"
    assert "(nats per target token, 34 passages): " in one
    assert f"(nats per target token, {found['passages']} examples): " in each


def test_a_warning_says_that_the_loss_did_not_fall(validated):
    for rate, is_told in ((0.001, False), (1.0, True)):
        record, _, err = validated(f"intermediate.lr={rate}")
        found = record["validation_loss"]
        assert (found["after"] >= found["before"]) == is_told
        assert ("the validation loss did not fall" in err) == is_told


def test_validation_changes_no_weight_if_the_last_ones_are_best(call, words, validated):
    for keys, measured in (
        (("intermediate.steps=5", "intermediate.eval_every=2"), [2, 4, 5]),  # the last one, too
        (("intermediate.steps=13",), [2, 4, 6, 8, 10, 12, 13]),
        (("intermediate.eval_every=9",), [4]),
    ):
        record, _, _ = validated(*keys, policy="salient-span")
        assert [step for step, _ in record["validation_loss"]["losses"]] == measured
    call(*words, "--policy", "salient-span", "--out", "plain")
    weights = [Path(name, "model.safetensors").read_bytes() for name in ("out", "plain")]
    assert weights[0] == weights[1]
    assert "validation_loss" not in record_of("plain")
    assert "## Validation" not in Path("plain", "README.md").read_text()


def test_the_validation_text_is_read_like_the_corpus(done, words):
    for name, text in TEXTS.items():
        rows = [json.dumps({"body": entry}) for entry in text.split("\n\n")]
        Path(f"{name}.jsonl").write_text("\n".join([*rows, "{"]))
    words = ["one.jsonl" if word == "one.txt" else word for word in words]
    keys = ("corpus.column=body", "corpus.on_error=skip", "corpus.words=5", "--policy", "random")
    done(*words, "--validation", "other.jsonl", *keys, "--out", "out")
    record = record_of("out")
    assert record["validation"] == {**record["validation"], "column": "body", "words": 5}
    assert record["validation_loss"]["passages"] > 64  # 35 entries of eleven words, in parts


def test_a_new_head_has_no_loss_before(validated, tmp_path):
    folder = tiny.saved("bert", tmp_path / "small")
    keys = ("--model", folder, "model.kind=encoder", "model.head=new")
    record, out, _ = validated(*keys)
    assert record["validation_loss"]["before"] is None
    assert "before" not in next(line for line in out.splitlines() if "Validation loss" in line)


def test_weights_by_a_drawn_rate_are_validated_by_the_bound_on_the_likelihood(validated, tmp_path):
    folder = tiny.saved("bert", tmp_path / "small")
    keys = ("--model", folder, "model.kind=encoder")
    record, out, _ = validated(*keys, policy="diffusion")
    found = record["validation_loss"]
    assert found["bound"] is True
    vocabulary = json.loads(Path("out", "config.json").read_text())["vocab_size"]
    assert found["before"] == pytest.approx(math.log(vocabulary), rel=0.3)  # 34 rates
    assert "Bound on the negative log-likelihood (NELBO, nats per token, 34 passages): " in out
    bell = ("policy.ratio={distribution: bell, mean: 0.3, sd: 0.1}", "loss_weight=rate")
    other, _, _ = validated(*keys, *bell, policy="whole-word", out="other")
    assert other["validation_loss"]["before"] == found["before"]  # the same masks
    assert other["validation_loss"]["after"] != found["after"]
    for members in ("[random, diffusion]", "[diffusion, salient-span]"):
        mixed, _, _ = validated(*keys, f"policy.members={members}", policy="mixture", out=members)
        assert mixed["validation_loss"]["bound"] is True
        assert mixed["validation_loss"]["before"] == found["before"]


def test_replaced_token_detection_is_validated_by_its_whole_loss(validated, tmp_path):
    model = ("--model", tiny.saved("electra", tmp_path / "small"), "model.kind=encoder")
    how = "replaced_token_detection={generator: 0.5}"
    record, out, _ = validated(*model, how, policy="random")
    assert record["validation_loss"]["before"] is None
    assert "Validation loss (of generator and encoder, 34 passages): " in out
    _, info = AutoModel.from_pretrained("out", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]


def test_text_in_which_nothing_is_masked_is_one_line(call, words):
    Path("other.txt").write_text("nothing here\n\nand nothing there")
    policy = ("--policy", "regex", r"policy.pattern=\d{4}")
    code, _, err = call(*words, "--validation", "other.txt", *policy, "--out", "out")
    assert code == 2
    (line,) = (line for line in err.splitlines() if line.startswith("error: "))
    assert "found nothing in 2 passages (annotate regex" in line and ", validation)" in line
