"""Relative positions of an encoder: bins, bias, and the saved folder."""

import json
import math

import numpy as np
import pytest
import small
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from small import MASK

from maskpolicy.analyses import representations
from maskpolicy.experiment.definition import ENCODER
from maskpolicy.experiment.task_kinds import TASK_KINDS
from maskpolicy.models import encoders, relative_positions
from maskpolicy.models.loading import is_relative
from maskpolicy.models.masked_encoder import scattered
from maskpolicy.models.training.batching import IGNORE


def model(wide=True):
    """Return a small encoder with relative positions; `wide`: a bias that cannot be overlooked."""
    stock = small.roberta(
        initializer_range=0.3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    values = stock.config.to_dict()
    values.pop("model_type")
    made = relative_positions.RelativeRobertaModel(
        relative_positions.RelativeRobertaConfig(**values), add_pooling_layer=False
    ).eval()
    made.load_state_dict(stock.state_dict(), strict=False)
    with torch.no_grad():
        draw = torch.Generator().manual_seed(5)
        shape = made.relative_bias.weight.shape
        made.relative_bias.weight.copy_(torch.randn(shape, generator=draw) if wide else 0.0)
    return made, stock.eval()


def states(made, *ids, **more):
    with torch.no_grad():
        return made(torch.tensor(ids), **more).last_hidden_state


@given(st.integers(-600, 600))
def test_the_bin_of_a_distance(distance):
    """The rule of the released code, restated for one number."""
    near = abs(distance)
    if near >= 16:
        near = min(31, 16 + math.ceil(math.log(near / 16) / math.log(127 / 16) * 15 - 1e-6))
    expected = 31 + (near if distance >= 0 else -near)
    assert relative_positions.bins(torch.tensor([distance])).tolist() == [expected]


def test_without_a_bias_it_is_a_stock_roberta():
    made, stock = model(wide=False)
    ids = [0, 8, 9, 10, 11, 2]
    assert torch.allclose(states(made, ids), states(stock, ids), atol=1e-6)
    assert not torch.allclose(states(model()[0], ids), states(stock, ids), atol=1e-2)


def test_padding_changes_nothing():
    made, _ = model()
    short, long = [0, 8, 9, 2, 1, 1], [0, 8, 9, 10, 11, 2]
    seen = torch.tensor([[1, 1, 1, 1, 0, 0], [1] * 6])
    both = states(made, short, long, attention_mask=seen)
    assert torch.allclose(both[0, :4], states(made, short[:4])[0], atol=1e-5)
    assert torch.allclose(both[1], states(made, long)[0], atol=1e-5)


def test_both_ways_of_attention_give_the_same_gradient():
    found = []
    for name in ("eager", "sdpa"):
        made, _ = model()
        made.set_attn_implementation(name)
        seen = torch.tensor([[1, 1, 1, 1, 1, 0], [1] * 6])
        out = made(torch.tensor([[0, 8, 9, 10, 2, 1], [0, 8, 9, 10, 11, 2]]), attention_mask=seen)
        out.last_hidden_state[seen.bool()].pow(3).sum().backward()
        found.append(made.relative_bias.weight.grad)
    assert found[0].abs().sum() > 0
    assert torch.allclose(*found, rtol=1e-3, atol=1e-4)


def batch_of(*sources):
    """A batch in which every <mask> is to be recovered (as 9), and all are excluded."""
    return small.batch(
        [(ids, np.where(own := small.excluding(ids), 9, IGNORE), own) for ids in sources]
    )


@pytest.mark.parametrize(
    "source",
    [[0, MASK, MASK, 8, 9, 10, 2], [0, 8, MASK, 9, MASK, 10, 2], [0, 8, 9, 10, MASK, MASK, 2]],
    ids=["beginning", "middle", "end"],
)
def test_distances_around_removed_tokens_are_the_original_ones(source):
    made, _ = model()
    batch = batch_of(source, [0, MASK, 5, 2])
    kept = batch.seen & ~batch.excluded
    with torch.no_grad():
        plain = made(input_ids=batch.source, attention_mask=kept.long()).last_hidden_state
        assert torch.allclose(scattered(made, batch)[kept], plain[kept], atol=1e-5)
        # the tokens that are left, put side by side, are another text to the bias alone
        made.embeddings.position_embeddings.weight.zero_()
        gaps = scattered(made, batch)[0, 0]
        left = [token for token in source if token != MASK]
        assert not torch.allclose(gaps, states(made, left)[0, 0], atol=1e-3)


def test_inputs_embeds_have_the_same_bias():
    made, _ = model()
    ids = torch.tensor([[0, 8, 9, 2]])
    with torch.no_grad():
        rows = made.embeddings.word_embeddings(ids)
        places = torch.arange(4)[None] + 2  # as RoBERTa counts from the ids
        given = made(inputs_embeds=rows, position_ids=places).last_hidden_state
    assert torch.allclose(given, states(made, [0, 8, 9, 2]), atol=1e-5)
    with pytest.raises(ValueError, match="two dimensions"):
        made(ids, attention_mask=torch.ones(1, 1, 4, 4))


def test_a_folder_is_read_again_with_its_bias(tmp_path):
    made, _ = model()
    made.save_pretrained(tmp_path)
    assert is_relative(str(tmp_path))
    loaded = encoders.load(str(tmp_path))
    assert torch.equal(states(loaded.eval(), [0, 8, 9, 2]), states(made, [0, 8, 9, 2]))
    assert type(representations.load_encoder(tmp_path)) is relative_positions.RelativeRobertaModel


@pytest.mark.parametrize("kind", [one for one in TASK_KINDS if TASK_KINDS[one].model == ENCODER])
def test_the_head_of_each_kind_of_task_has_a_body_with_a_bias(kind):
    config = model()[0].config
    made = getattr(transformers, TASK_KINDS[kind].auto_class).from_config(config)
    assert type(made.roberta) is relative_positions.RelativeRobertaModel


YAML = small.experiment(
    model={"kind": "encoder", "name": "mini", "layers": 1, "relative_positions": True},
    policies=["none", {"name": "random", "label": "MAE", "mask_exclusion": 1.0}],
    **{"tasks": ["cola"], "keep_models": ["finetune"]},
)


@pytest.mark.slow
def test_a_run_trains_fine_tunes_and_exports_the_bias(done, tmp_path):
    (tmp_path / "it.yaml").write_text(YAML)
    store, run = ("--store", tmp_path / "store"), tmp_path / "run"
    done("run", tmp_path / "it.yaml", "--out", run, *store)
    cell = json.loads((run / "results" / "MAE--cola--0.json").read_text())
    artifacts = tmp_path / "store" / "artifacts"
    biases = {}
    for name, key in cell["stages"].items():
        files = list((artifacts / key).glob("model.safetensors"))
        for path in files:
            tensors = load_file(path)
            (biases[name.partition(" ")[0]],) = (
                tensor for at, tensor in tensors.items() if at.endswith("relative_bias.weight")
            )
    assert set(biases) == {"general", "intermediate", "finetune"}
    assert not torch.equal(biases["general"], biases["intermediate"])
    assert not torch.equal(biases["intermediate"], biases["finetune"])
    out = ("--out", tmp_path / "tuned")
    done("export", run, "MAE", "--task", "cola", *out, *store)
    card = (tmp_path / "tuned" / "README.md").read_text()
    assert "import maskpolicy.models.relative_positions\nfrom transformers import" in card
    assert "ordinary Transformers folder" not in card
    tuned = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "tuned")
    assert torch.equal(tuned.roberta.relative_bias.weight, biases["finetune"])
