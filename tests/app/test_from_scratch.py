"""Models of your own size, built from scratch with a tokenizer trained on your own text."""

import json
from dataclasses import replace
from pathlib import Path

import clusters
import forked
import pytest
import small
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer

from maskpolicy.core.errors import DataError
from maskpolicy.experiment.model_and_corpus import model_block
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.leaderboard.results.collecting import cell_config
from maskpolicy.models.families import limits
from maskpolicy.models.scratch import build, preset, train_tokenizer
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.nodes import topological

TEXT = "\n\n".join([*small.TEXTS, "Dr. Żuk didn't pay $3.50 in Łódź – naïve café, 東京."] * 4)
SIZES = ("model.layers=1", "model.width=32", "model.heads=2", "model.vocabulary=500")
STEPS = ("intermediate.steps=2", "intermediate.batch_size=4")


@pytest.fixture(autouse=True)
def text(here):
    Path("it.txt").write_text(TEXT)


@pytest.fixture
def pretrain(call, store):
    """Pre-train a model on the text; returns exit code, stdout and stderr."""

    def pretrain(model, *words):
        given = ("--model", model, "--corpus", "it.txt", "--policy", "random", "--out", "out")
        return call("pretrain", *given, *words, "--store", store)

    return pretrain


def test_a_tokenizer_is_the_same_in_every_process():
    kinds = (("wordpiece", "bert"), ("unigram", "t5"))
    program = (
        "import small; from maskpolicy.models.scratch import train_tokenizer as train; "
        f"[print(train(small.TEXTS, 400, *kind).backend_tokenizer.to_str()) for kind in {kinds}]"
    )
    here = [train_tokenizer(small.TEXTS, 400, *kind).backend_tokenizer.to_str() for kind in kinds]
    assert clusters.finish(forked.Script(program)).splitlines() == here  # with other hashes


def test_wordpiece_knows_chinese_characters_and_keeps_to_its_size():
    chinese = [chr(0x4E00 + number) for number in range(1500)]
    made = train_tokenizer(["".join(chinese)], 4000, "wordpiece", "bert")
    assert made.tokenize("".join(chinese)) == chinese
    assert len(train_tokenizer(["".join(chinese)], 400, "wordpiece", "bert")) <= 400


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "algorithm"),
    [
        *((model, None) for model in ("bart", "modernbert", "t5")),
        *(("bert", "unigram"), ("roberta", "wordpiece")),
    ],
)
def test_an_architecture_is_trained_on_own_text_alone(pretrain, model, algorithm):
    chosen = (f"model.tokenizer={algorithm}",) if algorithm else ()
    code, _, err = pretrain(model, *SIZES, *chosen, *STEPS)
    assert code == 0, err
    assert "world" not in err
    factory = AutoModelForSeq2SeqLM if model in ("bart", "t5") else AutoModelForMaskedLM
    made, loading = factory.from_pretrained("out", output_loading_info=True)
    assert not loading["missing_keys"] and made.config.model_type == model
    assert (made.config.num_hidden_layers, made.config.hidden_size) == (1, 32)
    if model != "t5":
        key = "init_std" if model == "bart" else "initializer_range"
        assert getattr(made.config, key) == 0.1118  # sqrt(2 / (5 * 32))
    tokenizer = AutoTokenizer.from_pretrained("out")
    assert len(tokenizer) == made.config.vocab_size <= 500
    text = "Ada met her sister."
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True).strip() == text
    first, last = {"bert": ("[CLS]", "[SEP]"), "t5": (None, "</s>")}.get(model, ("<s>", "</s>"))
    if model == "modernbert":
        first, last = "[CLS]", "[SEP]"
    shown = tokenizer.convert_ids_to_tokens(ids)
    assert shown[-1] == last and first in (None, shown[0])
    types = tokenizer("Ada", "Eve").get("token_type_ids")
    assert (set(types) == {0, 1} and types[-1] == 1) if model == "bert" else types is None
    assert "built from scratch" in Path("out/README.md").read_text()


def test_a_configuration_file_is_built_with_the_tokenizer_of_a_folder(pretrain):
    small.tokenizer().save_pretrained("words")
    config = {"model_type": "bert", "hidden_size": 24, "num_hidden_layers": 2, "vocab_size": 9}
    config |= {"num_attention_heads": 3, "intermediate_size": 40, "max_position_embeddings": 64}
    Path("config.json").write_text(json.dumps(config))
    code, _, err = pretrain("config.json", "model.tokenizer=words", *STEPS)
    assert code == 0, err
    code, _, err = pretrain("./out", *STEPS)
    assert code != 0 and "out: --out is the folder of --model, which would be lost" in err
    made = AutoModel.from_pretrained("out").config.to_dict()
    assert {**config, "vocab_size": len(small.tokenizer())}.items() <= made.items()
    for wrong, said in (
        ({"intermediate_size": 2**20, "num_hidden_layers": 999}, "would have 50.3 billion weights"),
        ({"max_position_embeddings": 10**9}, "1000000000 is not an integer in 1..1048576"),
        ({"type_vocab_size": 0}, "0 is not an integer in 1..1048576"),
        ({"hidden_act": "nope"}, "cannot be built: 'nope'"),
        ({"hidden_dropout_prob": "0.1"}, "'hidden_dropout_prob': TypeError: Field"),
    ):
        Path("config.json").write_text(json.dumps({**config, **wrong}))
        code, _, err = pretrain("config.json", "model.tokenizer=words", *STEPS)
        assert code != 0 and said in err.splitlines()[-1]


def test_a_general_stage_reads_the_corpus_that_it_names(done, store):
    Path("general.txt").write_text(TEXT.replace("Ada", "Eve"))
    sizes = {"layers": 1, "width": 32, "heads": 2, "vocabulary": 500}
    keys = {
        "model": {"architecture": "roberta", **sizes},
        "corpus": {"files": ["it.txt"]},
        "general": {"corpus": {"files": ["general.txt"]}, "steps": 2, "batch_size": 4},
    }
    Path("it.yaml").write_text(small.experiment(**keys, tasks=["cola"], data="world"))
    done("run", "it.yaml", "--store", store)
    assert "roberta encoder (" in Path("runs/it/leaderboard.md").read_text()
    record = json.loads(Path("runs/it/results/random--cola--0.json").read_text())
    assert record["config"]["general"]["corpus"]["files"] == [str(Path("general.txt").resolve())]


def test_an_architecture_is_not_a_folder_of_its_name(tmp_path):
    write = {"model_type": "bert"}
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text(json.dumps(write))
    found = model_block({"architecture": "bert", "width": 130}, "it", [tmp_path])
    assert (found.name, found.is_scratch, found.attention_heads) == ("bert", True, 2)
    assert model_block("bert", "it", [tmp_path]).name == str(tmp_path / "bert")
    assert replace(found, width=193).attention_heads == 1


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"model_type": "bart"}, "seq2seq"),
        ({"model_type": "t5"}, "seq2seq"),
        ({"model_type": "roberta"}, "encoder"),
        ({"model_type": "mbart", "is_encoder_decoder": True}, "seq2seq"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_configuration_decides_the_kind_of_its_model(tmp_path, config, kind, encoding):
    (tmp_path / "config.json").write_text(json.dumps(config), encoding)
    assert model_block({"architecture": "config.json"}, "it", [tmp_path]).kind == kind


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "t5", "d_model": 8, "num_layers": 1, "num_heads": 2, "d_ff": 8},
        {"model_type": "bart", "d_model": 16, "encoder_layers": 1, "decoder_layers": 1},
        *(
            {"model_type": name, "hidden_size": 24, "num_hidden_layers": 1}
            for name in ("bert", "modernbert", "roberta")
        ),
    ],
)
def test_a_configuration_file_has_the_limits_and_the_precision_of_its_model(tmp_path, config):
    stored = {"dtype": "bfloat16", "torch_dtype": "bfloat16"}  # as in published files
    (tmp_path / "config.json").write_text(json.dumps(config | stored))
    shape = preset(model_block({"architecture": "config.json"}, "it", [tmp_path]))
    model = build(shape.config, small.tokenizer(), 0)
    assert shape.positions == (limits(model.config)[0] or 2**31)
    assert model.dtype == torch.float32


def test_a_configuration_file_is_told_by_its_contents_and_not_its_folder(tmp_path):
    found = []
    for folder, width in (("a", 24), ("b", 24), ("c", 36)):
        (tmp_path / folder).mkdir()
        config = {"model_type": "bert", "hidden_size": width, "num_attention_heads": 3}
        (tmp_path / folder / "config.json").write_text(json.dumps(config))
        keys = {"model": {"architecture": "config.json"}, "corpus": "world", "data": "world"}
        (tmp_path / folder / "it.yaml").write_text(small.experiment(**keys, tasks=["cola"]))
        experiment = load_experiment(tmp_path / folder / "it.yaml")
        made = topological(stages.build(experiment).stages)
        (general,) = {each.key: each for each in made if each.kind == "general"}.values()
        row, task = experiment.policies[0], experiment.tasks[0]
        found.append((general.key, cell_config(experiment, row, task, 0)["model"]))
    assert found[0] == found[1]
    assert all(one != other for one, other in zip(found[0], found[2], strict=True))


def test_a_configuration_file_with_a_typo_is_to_be_corrected(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert",}')
    with pytest.raises(DataError, match=r"not JSON: .*; correct it$"):
        model_block({"architecture": "config.json"}, "it", [tmp_path])
