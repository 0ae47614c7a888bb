"""Each family of text-to-text models against Transformers' own documentation of it."""

import logging
import sys
from copy import deepcopy
from types import SimpleNamespace

import encoders
import pytest
import text_to_text
import torch
from tokenizers.processors import TemplateProcessing
from transformers import EncoderDecoderConfig, RobertaConfig
from transformers.modeling_outputs import BaseModelOutput

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Denoising, Example, as_spans
from maskpolicy.data.corpus.passages import Document
from maskpolicy.data.corpus.passages import tokenize as passages_of
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import SEQ2SEQ
from maskpolicy.experiment.task_kinds import AnswerParams
from maskpolicy.masking.denoising import denoising_pairs
from maskpolicy.models import text_to_text as ours
from maskpolicy.models.families import FAMILIES, bounded, family_of, limits
from maskpolicy.models.finetuning.text import answer, generate
from maskpolicy.models.loading import set_attention, set_dropout
from maskpolicy.models.text_to_text import complete_generation, row_losses, specials, token_loss
from maskpolicy.models.training.batching import IGNORE, collate
from maskpolicy.pipeline.stages import preparation
from maskpolicy.pipeline.stages.params import ModelTokenizer

NAMES = text_to_text.NAMES
EXCLUDING = [n for n in NAMES if n not in ("longt5", "bert2bert")]
TEXTS = ["The cute dog walks in the park.", "Boats go down the river Oder. Dogs walk."]


def batch(name, how=None):
    """Return two masked texts as a batch of the family."""
    tokenizer = text_to_text.tokenizer(name)
    special = specials(tokenizer, text_to_text.model(name))
    texts = [Document(f"d{i}", text) for i, text in enumerate(TEXTS)]
    passages = list(passages_of(texts, tokenizer))
    spans = [as_spans([one.words[1], one.words[4]]) for one in passages]
    written = denoising_pairs(passages, spans, how or Denoising(), special, 0, [0, 0])
    return collate(special.pairs(written, Training()), special.pad, special.start)


@pytest.mark.parametrize("name", NAMES)
def test_the_decoders_input_is_the_models_own_shift_of_the_labels(name):
    """The family's own shift of the labels, which its documentation prescribes for training."""
    model, given = text_to_text.model(name), batch(name)
    config = model.config
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        expected = model.prepare_decoder_input_ids_from_labels(labels=given.labels)
    else:
        shift = sys.modules[type(model).__module__].shift_tokens_right
        expected = shift(given.labels, config.pad_token_id, config.decoder_start_token_id)
    read = given.decoder != text_to_text.tokenizer(name).pad_token_id
    read[:, 0] = True
    assert given.decoder[read].tolist() == expected[read].tolist()
    assert not (given.labels[:, 0] == given.decoder[:, 0]).any()


@pytest.mark.parametrize(
    ("name", "exclusion"), [*((n, 0.0) for n in NAMES), *((n, 1.0) for n in EXCLUDING)]
)
def test_the_loss_equals_that_of_the_model(name, exclusion):
    model, given = text_to_text.model(name), batch(name, Denoising(mask_exclusion=exclusion))
    if getattr(model, "final_logits_bias", None) is not None:
        model.final_logits_bias.normal_()
    total, count = token_loss(model, given)
    read = {"input_ids": given.source}
    if exclusion:
        read = {"encoder_outputs": BaseModelOutput(ours.encode(model, given))}
    logits = model(**read, attention_mask=given.seen.long(), decoder_input_ids=given.decoder).logits
    kept = given.labels != IGNORE
    expected = torch.nn.functional.cross_entropy(
        logits[kept].float(), given.labels[kept], reduction="sum"
    )
    assert count == int(kept.sum())
    assert total.item() == pytest.approx(expected.item(), rel=1e-5)
    (mine,) = torch.autograd.grad(total, [model.get_output_embeddings().weight])
    (theirs,) = torch.autograd.grad(expected, [model.get_output_embeddings().weight])
    torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)
    rows = row_losses(model, given) * kept.sum(1)
    assert rows.sum().item() == pytest.approx(expected.item(), rel=1e-5)


def test_t5_is_trained_on_the_example_of_its_documentation():
    tokenizer = text_to_text.tokenizer("t5")
    special = specials(tokenizer, text_to_text.model("t5"))
    text = "The cute dog walks in the park"
    (passage,) = passages_of([Document("d", text)], tokenizer)
    spans = as_spans([(passage.words[1, 0], passage.words[2, 1]), passage.words[5]])
    written = denoising_pairs([passage], [spans], Denoising(), special, 0, [0])
    pair = special.pairs(written, Training())[0]
    source = tokenizer("The <extra_id_0> walks in <extra_id_1> park").input_ids
    target = tokenizer("<extra_id_0> cute dog <extra_id_1> the <extra_id_2>").input_ids
    assert (pair.source.tolist(), pair.target.tolist()) == (source, target)


def test_the_families_are_told_apart():
    found = {name: family_of(text_to_text.model(name).config).name for name in NAMES}
    assert found["mbart50"] == "mBART"
    assert found["mt5"] == found["umt5"] == "T5"
    assert found["nllb"] == "M2M100"
    assert found["bert2bert"] == "other text-to-text models"
    kinds = [row.types for row in FAMILIES if row.kind == SEQ2SEQ]
    every = [each for types in kinds for each in types]
    assert len(every) == len(set(every))
    assert kinds[-1] == ()


def test_lengths_are_bounded_by_the_positions_of_each_family():
    def lengths(name):
        found = bounded(Training(), text_to_text.model(name))
        return found.max_source, found.max_target

    assert lengths("t5") == (512, 512)  # relative: the settings alone
    assert lengths("led") == (64, 32)
    assert lengths("t5gemma") == lengths("pegasus") == lengths("mbart") == (64, 64)
    assert lengths("bert2bert") == (64, 64)
    part = RobertaConfig(max_position_embeddings=66)  # positions begin after the padding's id
    both = EncoderDecoderConfig.from_encoder_decoder_configs(part, part)
    assert limits(both) == (64, 64)


@pytest.mark.parametrize("name", ["bart", "t5", "t5gemma", "led", "nllb", "bert2bert"])
def test_the_setting_decides_dropout(name):
    key = {"t5": "dropout_rate", "t5gemma": "dropout_rate", "bert2bert": ""}.get(name, "dropout")
    model = text_to_text.model(name, **({key: 0.5} if key else {}))
    given = batch(name)

    def losses():
        model.train()
        return {round(token_loss(model, given)[0].item(), 4) for _ in range(3)}

    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert len(losses()) > 1
        set_dropout(model, 0.0)
        assert len(losses()) == 1
        set_dropout(model, 0.9)
        assert len(losses()) > 1


def test_the_setting_replaces_a_dropout_of_0_that_is_an_integer_or_has_no_layer():
    model, other = text_to_text.model("bart", dropout=0), encoders.model("modernbert")
    for each in (model, other):
        set_dropout(each, 0.1)
    assert model.model.encoder.dropout == model.model.decoder.layers[0].self_attn.dropout == 0.1
    assert other.model.layers[1].attn.out_drop.p == 0.1


def test_weights_for_global_attention_are_neither_trained_nor_decayed(tmp_path):
    text_to_text.model("led").save_pretrained(tmp_path)
    model = ours.load(str(tmp_path))
    token_loss(model, batch("led"))[0].backward()
    frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    assert len(frozen) == 12 and all("_global." in name for name in frozen)
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize(("name", "tables"), [("pegasus", 2), ("marian", 2)])
def test_sinusoidal_positions_are_neither_trained_nor_decayed(tmp_path, name, tables):
    text_to_text.model(name).save_pretrained(tmp_path)
    model = ours.load(str(tmp_path))
    frozen = [each for each, weight in model.named_parameters() if not weight.requires_grad]
    assert len(frozen) == tables and all("embed_positions" in each for each in frozen)


@pytest.mark.parametrize("name", EXCLUDING)
def test_no_token_attends_to_an_excluded_mask(name):
    model, given = text_to_text.model(name), batch(name, Denoising(mask_exclusion=0.5))
    other = deepcopy(given)
    other.source[other.excluded] = 7
    with torch.no_grad():
        states, moved = (ours.encode(model, each) for each in (given, other))
    kept = given.seen & ~given.excluded
    torch.testing.assert_close(states[kept], moved[kept], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(states[given.excluded], moved[given.excluded])
    with torch.no_grad():
        encoder = model.get_encoder()
        plain = encoder(input_ids=given.source, attention_mask=given.seen.long())
        assert not torch.allclose(states[kept], plain.last_hidden_state[kept])


def test_a_removed_mask_and_an_unattended_one_give_the_same_states():
    model, given = text_to_text.model("bart"), batch("bart", Denoising(mask_exclusion=0.5))
    with torch.no_grad():
        removed = ours.encode(model, given)
        unattended = ours._unattended(model.get_encoder(), given)
    torch.testing.assert_close(removed[given.seen], unattended[given.seen])


def test_exclusion_raises_with_a_reason():
    how = Denoising(mask_exclusion=0.5)
    with pytest.raises(ConfigError, match="longt5 models cannot do it"):
        ours.training_module(text_to_text.model("longt5"), how, 1, 0)
    with pytest.raises(ConfigError, match="encoder-decoder models cannot do it: set it to 0"):
        ours.training_module(text_to_text.model("bert2bert"), how, 1, 0)
    model = text_to_text.model("longt5")
    assert ours.training_module(model, Denoising(), 1, 0) is model


def test_a_family_without_an_attention_implementation_keeps_its_own(caplog):
    model = text_to_text.model("t5gemma")
    with caplog.at_level(logging.WARNING):
        set_attention(model, "flash_attention_2")
    assert model.config._attn_implementation == "eager"
    assert [record.getMessage() for record in caplog.records] == [
        "attention: this machine has no flash_attention_2: sdpa is used",
        "attention: T5GemmaForConditionalGeneration has no sdpa: eager is used",
    ]
    set_attention(text_to_text.model("led"), "eager")
    other = text_to_text.model("t5")
    set_attention(other, "sdpa")
    assert other.config._attn_implementation == "sdpa"
    assert len(caplog.records) == 2


@pytest.mark.parametrize("name", text_to_text.TOKENIZERS)
def test_an_answer_begins_as_the_family_says(name):
    model, tokenizer = text_to_text.model(name), text_to_text.tokenizer(name)
    special = specials(tokenizer, model)
    complete_generation(model, special)
    model.generation_config.max_new_tokens = 5
    output = model.generate(torch.tensor([[9, 9, special.eos]]), num_beams=1, do_sample=False)
    assert output[0, 0] == special.start
    if special.target_ends and special.target_ends[0]:
        assert output[0, 1] == special.target_ends[0][0]
    answers = generate(model, tokenizer, TEXTS, max_source=30)
    assert len(answers) == 2
    assert not any(token in answer for answer in answers for token in ("</s>", "<pad>"))


def test_answers_in_bf16_do_not_round_rotary_angles():
    model, one = text_to_text.model("t5gemma"), Example("a", "a", TEXTS[0], ("Ulm",))
    before = {name: b.clone() for name, b in model.named_buffers() if name.endswith("inv_freq")}
    model.generation_config.max_new_tokens, tokenizer = 2, text_to_text.tokenizer("t5gemma")
    answer(model, tokenizer, [one], AnswerParams(keep="start"), Training(precision="bf16"))
    assert model.dtype == torch.bfloat16 and before
    assert all(torch.equal(dict(model.named_buffers())[name], b) for name, b in before.items())


def warnings_about(made, folder):
    """Return the warnings of the stage that loads a tokenizer."""
    made.save_pretrained(folder)
    run, said = SimpleNamespace(local=SimpleNamespace(folder=str(folder))), []
    run.warn = said.append
    preparation.tokenizer(ModelTokenizer(name="", revision=None), {}, folder / "out", run)
    return said


def test_special_tokens_that_a_user_added_get_a_warning(tmp_path):
    for published in (
        *map(encoders.tokenizer, encoders.EVERY),
        *map(text_to_text.tokenizer, NAMES),
    ):
        assert warnings_about(published, tmp_path) == []
    made = deepcopy(encoders.tokenizer("bert"))
    made.add_tokens(["[ENT]"], special_tokens=True)
    made.add_special_tokens({"additional_special_tokens": ["[REL]"]})
    made.add_tokens(["[PLACE]"])
    (line,) = warnings_about(made, tmp_path)
    assert "special tokens [ENT], [REL] are ordinary text" in line


@pytest.mark.parametrize(("single", "what"), [("$A", "a text or to two"), ("[CLS] $A", "two")])
def test_a_tokenizer_that_adds_no_special_tokens_gets_a_warning(tmp_path, single, what):
    made = deepcopy(encoders.tokenizer("modernbert"))
    ids = [("[CLS]", made.cls_token_id)]
    made.backend_tokenizer.post_processor = TemplateProcessing(single=single, special_tokens=ids)
    (line,) = warnings_about(made, tmp_path)
    assert f"adds no special tokens to {what} texts, but training does" in line


@pytest.mark.parametrize("name", ["bart", "mbart", "mbart50", "bert2bert"])
def test_answers_begin_as_targets_do_whatever_token_the_checkpoint_forces(name):
    model = text_to_text.model(name)
    special = specials(text_to_text.tokenizer(name), model)
    model.generation_config.forced_bos_token_id = 9  # such as another language's code
    complete_generation(model, special)
    before, _ = special.ends("max_target")
    assert model.generation_config.forced_bos_token_id == (before[0] if before else None)
    assert bool(before) == (name not in ("mbart", "bert2bert"))


@pytest.mark.parametrize(("name", "stated"), [("bart", 9), ("bart", None), ("bert2bert", None)])
def test_answers_end_as_targets_do_whatever_the_checkpoint_states(name, stated):
    model = text_to_text.model(name)
    special = specials(text_to_text.tokenizer(name), model)
    model.generation_config.eos_token_id = stated
    complete_generation(model, special)
    assert model.generation_config.eos_token_id == special.eos
    assert model.generation_config.forced_eos_token_id in (None, special.eos)
    model.generation_config.eos_token_id = [7, special.eos]
    complete_generation(model, special)
    assert model.generation_config.eos_token_id == [7, special.eos]
