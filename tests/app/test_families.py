"""Commands with text-to-text models of other families than BART, and with unsuitable models."""

import json
import shutil
from pathlib import Path

import pytest
import text_to_text
from tokenizers import Tokenizer
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, BlenderbotSmallTokenizer

from maskpolicy.pipeline.store.artifacts import Store

TEXT = "The cute dog walks in the park. Anna Kovar was born in Rome in 1901. Dogs are cute."
SHORT = ("intermediate.steps=2", "intermediate.batch_size=2", "intermediate.warmup=1")


@pytest.fixture(autouse=True)
def text(here):
    Path("it.txt").write_text("\n\n".join(f"{TEXT} It is number {n}." for n in range(6)))


def saved(name) -> Path:
    folder = Path("model").resolve()
    text_to_text.model(name).save_pretrained(folder)
    text_to_text.tokenizer(name).save_pretrained(folder)
    return folder


def words(folder, *keys):
    """Return the words of a short pretrain command."""
    files = ("--corpus", "it.txt", "--store", "store", "--out", "out")
    return ("pretrain", "--model", folder, "--policy", "random", *files, *SHORT, *keys)


@pytest.mark.parametrize(
    ("name", "tag", "keys"),
    [
        ("t5", "t5", ("mask_exclusion=1.0",)),
        ("mbart50", "mbart", ("target=full", "permute_sentences=true")),
        ("pegasus", "pegasus", ("join=none",)),
        ("t5gemma", "t5gemma", ("corruption=token", "intermediate.dropout=0.1", "insert=0.5")),
    ],
)
def test_a_model_of_any_family_is_pre_trained_further(done, name, tag, keys):
    folder = saved(name)
    (folder / "generation_config.json").write_text('{"eos_token_id": 9}')  # of another tokenizer
    done(*words(folder, *keys))
    before, after = (AutoModelForSeq2SeqLM.from_pretrained(path) for path in (folder, "out"))
    weights = after.state_dict()
    assert any(not value.equal(weights[key]) for key, value in before.state_dict().items())
    tokenizer = AutoTokenizer.from_pretrained("out")
    assert tokenizer(TEXT)["input_ids"] == text_to_text.tokenizer(name)(TEXT)["input_ids"]
    assert after.generation_config.eos_token_id == tokenizer.eos_token_id
    assert after.generation_config.decoder_start_token_id is not None
    card = Path("out", "README.md").read_text()
    assert f"- {tag}\n" in card
    assert 'AutoModelForSeq2SeqLM.from_pretrained("out")' in card


def padded(name) -> Path:
    """Save a model, and a tokenizer that pads each text."""
    folder = saved(name)
    raw = Tokenizer.from_file(str(folder / "tokenizer.json"))
    raw.enable_padding(length=128, pad_id=1, pad_token="<pad>")
    raw.enable_truncation(64)
    raw.save(str(folder / "tokenizer.json"))
    return folder


def test_a_tokenizer_that_pads_trains_alike_and_is_exported_unchanged(done):
    work, kinds = [], []
    for make in (saved, padded):
        done(*words(make("bart")))
        work.append(json.loads(Path("out", "maskpolicy.json").read_text())["work"])
        every = (each["record"] for each in Store(Path("store")).records())
        kinds.append([each["params"] for each in every if each["kind"] == "tokenizer"])
        exported = json.loads(Path("out", "tokenizer.json").read_text())
        shutil.rmtree("out")
    assert work[0] == work[1]
    assert exported["padding"]["strategy"] == {"Fixed": 128}
    assert exported["truncation"]["max_length"] == 64
    assert [each.get("pads") for each in kinds[0]] == [None]
    assert sorted(each.get("pads", False) for each in kinds[1]) == [False, True]


@pytest.mark.parametrize("what", ["source", "target"])
def test_sources_or_targets_without_room_for_text_are_one_line(call, what):
    code, _, err = call(*words(saved("bart"), f"intermediate.max_{what}=2"))
    assert code != 0
    lines = [each for each in err.splitlines() if "hold no text" in each]
    assert len(lines) == 1
    assert f"adds 2 special tokens to a text, so {what}s of max_{what}: 2 tokens" in lines[0]


@pytest.mark.parametrize(
    ("name", "most", "says"),
    [
        ("t5", 512, "spans of the first 2 passages stay visible, as a source has at most 19"),
        ("bart", 20, "wholly or in part, as a target has at most 20 tokens: raise intermediate"),
    ],
)
def test_a_warning_counts_spans_without_room(done, name, most, says):
    Path("it.txt").write_text("\n\n".join(f"{' '.join(['dog'] * 90)} {n}" for n in range(4)))
    keys = ("policy.ratio=0.5", f"intermediate.max_target={most}")
    _, err = done(*words(saved(name), *keys))
    (line,) = [each for each in err.splitlines() if "stay visible" in each]
    assert says in line
    work = json.loads(Path("out", "maskpolicy.json").read_text())["work"]
    assert work["spans_without_sentinel" if name == "t5" else "spans_without_room"] > 0
    assert name != "t5" or work["spans"] == 2 * 2 * 19


def test_a_tokenizer_that_cannot_mask_is_an_error_before_any_work(refused, capfd):
    folder = saved("t5")
    plain = type(text_to_text.tokenizer("t5"))(vocab=list(text_to_text.pieces()), extra_ids=0)
    plain.save_pretrained(folder)
    capfd.readouterr()  # the progress of saving
    says = f"model {folder}: its tokenizer has neither a mask token nor sentinels"
    assert says in refused(*words(folder))
    Path("it.yaml").write_text(f"model: {folder}\ncorpus: world\npolicies: [none, random]\n")
    assert says in refused("run", "it.yaml", "tasks=[triviaqa]", "--store", "store")

    Path("vocab.json").write_text('{"__start__": 0, "__null__": 1, "__end__": 2, "a": 3}')
    Path("merges.txt").write_text("#version: 0.2\n")
    text_to_text.model("bart").save_pretrained("slow")
    BlenderbotSmallTokenizer("vocab.json", "merges.txt").save_pretrained("slow")
    capfd.readouterr()
    line = refused(*words("slow"))
    assert "its tokenizer is not a fast one: choose another model" in line
    assert not list(Path().glob("store/artifacts/*"))
