"""maskpolicy pretrain: the Transformers folder that it writes, and the card."""

import errno
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import encoders as tiny
import pytest
import small
import yaml
from folders import contents
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer

from maskpolicy.app.cards import ModelHistory
from maskpolicy.app.own_text import Request
from maskpolicy.app.transformers_folders import place

TEXT = "Ada Lovelace was born in London in 1815. She wrote notes about engines."
SHORT = ("intermediate.steps=3", "intermediate.batch_size=4", "intermediate.warmup=1")


@pytest.fixture(scope="module")
def bart(tmp_path_factory) -> Path:
    """A folder with a BART and its tokenizer, as Transformers writes them."""
    folder = tmp_path_factory.mktemp("models") / "small-bart"
    small.saved(folder, small.bart(max_position_embeddings=512))
    return folder


@pytest.fixture
def texts(tmp_path) -> Path:
    """A folder with two text files."""
    for name in ("one", "two"):
        lines = [f"{TEXT} Engine number {n} is of kind {name}." for n in range(9)]
        (tmp_path / f"{name}.txt").write_text("\n\n".join(lines))
    return tmp_path


@pytest.fixture
def words(bart, store, texts):
    """The words of a short pretrain command, less --out."""
    files = ("--corpus", texts / "one.txt", "--corpus", texts / "t*.txt")
    policy = ("--policy", "random", "policy.ratio=0.5", "target=full")
    return ("pretrain", "--model", bart, *files, *policy, *SHORT, "--store", store)


@pytest.fixture
def encoder_words(store, texts):
    """Return a function from the folder of an encoder to the words of a command, less --out."""

    def encoder_words(folder, *more):
        files = ("--corpus", texts / "one.txt", "--policy", "random")
        return ("pretrain", "--model", folder, *files, *SHORT, "--store", store, *more)

    return encoder_words


def test_the_folder_is_an_ordinary_transformers_folder_with_a_card(done, words, bart, tmp_path):
    out = tmp_path / "out"
    out.mkdir()  # an empty folder may be there
    printed, _ = done(*words, "--out", out)
    assert f"written to {out}" in printed
    after, before = (AutoModelForSeq2SeqLM.from_pretrained(path) for path in (out, bart))
    ids, same = (
        AutoTokenizer.from_pretrained(path)(TEXT, return_tensors="pt").input_ids
        for path in (out, bart)
    )
    assert ids.tolist() == same.tolist()
    assert after.generate(ids, max_new_tokens=3).shape[0] == 1
    assert not after.lm_head.weight.equal(before.lm_head.weight)

    card = (out / "README.md").read_text()
    front = yaml.safe_load(card.split("---\n")[1])
    assert (front["base_model"], front["library_name"]) == ("small-bart", "transformers")
    assert {"maskpolicy", "policy:random"} <= set(front["tags"])
    rows = (
        "| ratio | 0.5 |",
        "| target | full |",
        "| steps | 3 |",
        "| passages | 12 |",
        "| batch size | 4 |",
    )
    for row in (*rows, "| one.txt | `", "| two.txt | `"):
        assert row in card
    record = json.loads((out / "maskpolicy.json").read_text())
    assert (record["work"]["passages"], record["spec"]["steps"]) == (12, 3)
    assert str(tmp_path) not in card + json.dumps(record)
    command = "pretrain --model small-bart --corpus one.txt --corpus 't*.txt' --policy random "
    assert f"{command}policy.ratio=0.5 target=full {' '.join(SHORT)} --out out\n" in card
    assert json.loads((out / "tokenizer_config.json").read_text())["model_max_length"] == 512


def test_the_command_on_a_card_has_no_absolute_paths_within_values(here):
    files = f"[{here}/one.txt, /data/me/two.txt]"
    asked = Request("mini", "random", ["it.txt"], here / "out", [f"corpus.mix={{x: {files}}}"])
    assert "'corpus.mix={x: [one.txt, …/two.txt]}' --out out" in asked.command


def test_an_encoder_of_another_family_keeps_its_head(done, encoder_words, tmp_path):
    folder, out, mae = (tmp_path / name for name in ("small", "out", "mae"))
    tiny.saved("modernbert", folder)
    words = encoder_words(folder, "--policy", "salient-span")
    done(*words, "--out", out)
    after, before = (AutoModelForMaskedLM.from_pretrained(path).eval() for path in (out, folder))
    ids = AutoTokenizer.from_pretrained(out)(TEXT, return_tensors="pt")["input_ids"]
    assert not after(input_ids=ids).logits.equal(before(input_ids=ids).logits)
    assert after.state_dict().keys() == before.state_dict().keys()
    card = (out / "README.md").read_text()
    assert 'AutoModelForMaskedLM.from_pretrained("out")' in card
    assert "modernbert" in yaml.safe_load(card.split("---\n")[1])["tags"]
    done(*words, "mask_exclusion=1.0", "model.decoder_layers=1", "--out", mae)
    body, same = (AutoModel.from_pretrained(path).state_dict() for path in (mae, folder))
    assert body.keys() == same.keys()
    assert any(not body[name].equal(same[name]) for name in same)
    card = (mae / "README.md").read_text()
    assert 'AutoModel.from_pretrained("mae")' in card and "| mask exclusion | 1.0 |" in card
    assert "It is the body alone and fills no masks" in card


def test_a_head_can_be_chosen(done, encoder_words, tmp_path):
    folder = tiny.saved("roberta", tmp_path / "small")
    (folder / "modules.json").write_text('[{"path": ""}, {"path": "1_Pooling"}, {"path": ".."}]')
    (folder / "1_Pooling").mkdir()
    for name in ("config.json", "pytorch_model.bin"):
        (folder / "1_Pooling" / name).write_text("{}")
    for head in ("own", "new", "auto"):
        words = encoder_words(folder, f"model.head={head}", "--out", tmp_path / head)
        done(*words)
        made = AutoModelForMaskedLM.from_pretrained(tmp_path / head, output_loading_info=True)
        assert not made[1]["missing_keys"] and made[0].lm_head.bias.any()  # it was trained
        assert "so it fills masks" in (tmp_path / head / "README.md").read_text()
        copied = {path.name for path in (tmp_path / head).iterdir()}
        assert {"modules.json", "1_Pooling"} <= copied
        assert len([*(tmp_path / head / "1_Pooling").iterdir()]) == 2
    weights = [(tmp_path / head / "model.safetensors").read_bytes() for head in ("new", "auto")]
    assert weights[0] == weights[1] != (tmp_path / "own" / "model.safetensors").read_bytes()


def test_a_warning_says_that_passages_are_too_long(done, words, tmp_path):
    (tmp_path / "one.txt").write_text("\n\n".join(f"{TEXT} " * 40 + str(n) for n in range(9)))
    words = (*words, "corpus.words=600", "target=spans", "--out", tmp_path / "out")
    _, err = done(*words, "intermediate.max_source=600")
    (line,) = (line for line in err.splitlines() if "longer than" in line)
    assert "intermediate random" in line and "longer than 512 tokens and are truncated" in line
    assert line.rstrip().endswith("lower corpus.words or corpus.tokens")
    assert "| max source | 512 |" in (tmp_path / "out" / "README.md").read_text()
    err = done(*words, "intermediate.max_source=100")[1]
    assert "longer than 100 tokens" in err
    assert "lower corpus.words or corpus.tokens, or raise intermediate.max_source" in err


def test_the_same_command_replaces_the_folder_by_the_same_bytes(call, words, tmp_path, monkeypatch):
    def full(source: object, target: Path) -> None:
        Path(target).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    out = tmp_path / "deep" / "out"
    call(*words, "--out", out)
    before = contents(out)
    (out / "old.txt").write_text("of an earlier run")
    printed = call(*words, "--out", out)[1]
    assert contents(out) == before
    assert printed.count("intermediate") == 1
    monkeypatch.setattr(shutil, "copyfile", full)
    code, _, err = call(*words, "--out", out)
    assert code == 2
    says = "cannot be written: No space left on device; choose another --out"
    assert err.splitlines()[-1].endswith(says)
    assert contents(out) == before
    assert [path.name for path in out.parent.iterdir()] == ["out"]


@pytest.mark.usefixtures("in_forks")
def test_several_processes_share_the_cache_of_a_bucket(done, words, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "default"))
    (tmp_path / "bucket").mkdir()
    place = ("--store", f"file://{tmp_path}/bucket", "--cache", "cache")
    done(*words, *place, "resources.intermediate.processes=2", "--out", "out")
    assert not (tmp_path / "default" / "maskpolicy").exists()


def test_processes_that_write_one_folder_do_so_one_after_the_other(tmp_path):
    part = tmp_path / "part"
    part.mkdir()
    for number in range(20):
        (part / f"{number}.json").write_text("{}")
    about = ModelHistory("it", "mini", None, "maskpolicy pretrain", {"versions": {}})
    outs = [tmp_path / "made" / name for name in ("out", "out.b", "out[1]")]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda out: place(out, [part], about, {"stage": "a"}), outs * 8))
    assert sorted(path.name for path in outs[0].parent.iterdir()) == ["out", "out.b", "out[1]"]
    assert all(len(contents(out)) == 22 for out in outs)


def test_a_warning_says_that_a_folder_of_other_settings_is_replaced(done, words, tmp_path):
    out = tmp_path / "out"
    for _ in range(2):
        assert "will be replaced" not in done(*words, "--out", out)[1]
    _, err = done(*words, "intermediate.steps=2", "--out", out)
    line = next(line for line in err.splitlines() if "will be replaced" in line)
    assert str(out) in line and "(intermediate.steps: 3 -> 2)" in line
    assert json.loads((out / "maskpolicy.json").read_text())["spec"]["steps"] == 2
    other = ["whole-word" if word == "random" else word for word in words]
    err = done(*other, "--out", out)[1]
    assert '(policy: "random" -> "whole-word"; intermediate.steps: 2 -> 3)' in err
    assert "(policy.ratio: 0.5 -> 0.4)" in done(*other, "policy.ratio=0.4", "--out", out)[1]


@pytest.mark.parametrize(("family", "types"), [("albert", [0, 1]), ("mpnet", [0])])
def test_the_tokenizer_writes_the_token_types_that_training_reads(tmp_path, family, types):
    saved = tiny.saved(family, tmp_path / "it")
    about = ModelHistory("it", family, None, "maskpolicy pretrain", {"versions": {}}, "encoder")
    place(tmp_path / "out", [saved], about, {})
    written = AutoTokenizer.from_pretrained(tmp_path / "out")("one", "two")
    assert sorted(set(written.get("token_type_ids", [0]))) == types
    assert written["input_ids"] == AutoTokenizer.from_pretrained(saved)("one", "two")["input_ids"]
