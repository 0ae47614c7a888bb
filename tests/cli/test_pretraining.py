from __future__ import annotations

import errno
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import encoders as tiny
import pytest
import yaml

from maskpolicy.models import roberta
from maskpolicy.models.bart import build
from maskpolicy.models.tokenizers import train_tokenizer
from maskpolicy.publishing import own_text

TEXT = "Ada Lovelace was born in London in 1815. She wrote notes about engines."
SHORT = ("intermediate.steps=3", "intermediate.batch_size=4", "intermediate.warmup=1")


@pytest.fixture(scope="module")
def bart(tmp_path_factory) -> Path:
    """A folder with a BART and its tokenizer, as Transformers writes them."""
    folder = tmp_path_factory.mktemp("models") / "small-bart"
    tokenizer = train_tokenizer([TEXT] * 9, 400)
    tokenizer.save_pretrained(folder)
    build("mini", tokenizer, 0).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("store")


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


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_the_folder_is_an_ordinary_transformers_folder(call, words, bart, tmp_path):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    code, out, _ = call(*words, "--out", tmp_path / "out")
    assert code == 0
    assert f"written to {tmp_path / 'out'}" in out
    after = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    before = AutoModelForSeq2SeqLM.from_pretrained(bart)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = tokenizer(TEXT, return_tensors="pt").input_ids
    assert (
        ids.tolist()
        == AutoTokenizer.from_pretrained(bart)(TEXT, return_tensors="pt")["input_ids"].tolist()
    )
    assert after.generate(ids, max_new_tokens=3).shape[0] == 1
    assert not after.lm_head.weight.equal(before.lm_head.weight)


def test_an_encoder_is_pre_trained_further_as_mae_lm(call, store, texts, tmp_path):
    from transformers import AutoModel

    folder = tmp_path / "small-roberta"
    tokenizer = train_tokenizer([TEXT] * 9, 400)
    tokenizer.save_pretrained(folder)
    roberta.build("mini", tokenizer, 0, layers=1).save_pretrained(folder)
    files = ("--corpus", texts / "one.txt")
    keys = ("model.kind=encoder", "model.decoder_layers=1", "mask_exclusion=1.0", *SHORT)
    words = ("pretrain", "--model", folder, *files, "--policy", "random", *keys)
    code, _, err = call(*words, "--store", store, "--out", tmp_path / "out")
    assert code == 0, err
    after, before = (
        AutoModel.from_pretrained(path, add_pooling_layer=False).state_dict()
        for path in (tmp_path / "out", folder)
    )
    assert after.keys() == before.keys()
    assert any(not after[name].equal(before[name]) for name in after)
    card = (tmp_path / "out" / "README.md").read_text()
    assert 'AutoModel.from_pretrained("out")' in card
    assert "| mask exclusion | 1.0 |" in card


@pytest.mark.parametrize("family", ["bert", "deberta-v2", "modernbert", "distilbert"])
def test_an_encoder_of_another_family_keeps_its_head(call, store, texts, tmp_path, family):
    from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

    folder = tiny.saved(family, tmp_path / "small")
    files = ("--corpus", texts / "one.txt", "--policy", "salient-span")
    words = ("pretrain", "--model", folder, *files, "model.kind=encoder", *SHORT, "--store", store)
    code, _, err = call(*words, "--out", tmp_path / "out")
    assert code == 0, err
    after = AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
    before = AutoModelForMaskedLM.from_pretrained(folder).eval()
    ids = AutoTokenizer.from_pretrained(tmp_path / "out")(TEXT, return_tensors="pt")["input_ids"]
    assert not after(input_ids=ids).logits.equal(before(input_ids=ids).logits)
    assert after.state_dict().keys() == before.state_dict().keys()
    card = (tmp_path / "out" / "README.md").read_text()
    assert 'AutoModelForMaskedLM.from_pretrained("out")' in card
    assert family in yaml.safe_load(card.split("---\n")[1])["tags"]
    mae = ("mask_exclusion=1.0", "model.decoder_layers=1", "--out", tmp_path / "mae")
    code, _, err = call(*words, *mae)
    assert code == 0, err
    body = AutoModel.from_pretrained(tmp_path / "mae").state_dict()
    assert body.keys() == AutoModel.from_pretrained(folder).state_dict().keys()
    assert 'AutoModel.from_pretrained("mae")' in (tmp_path / "mae" / "README.md").read_text()


def test_a_head_can_be_chosen(call, store, texts, tmp_path):
    from transformers import AutoModelForMaskedLM

    folder = tiny.saved("roberta", tmp_path / "small")
    files = ("--corpus", texts / "one.txt", "--policy", "random", "model.kind=encoder")
    words = ("pretrain", "--model", folder, *files, *SHORT, "--store", store)
    for head in ("own", "new", "auto"):
        assert call(*words, f"model.head={head}", "--out", tmp_path / head)[0] == 0
    assert AutoModelForMaskedLM.from_pretrained(tmp_path / "own").lm_head.bias.any()
    bodies = [(tmp_path / head / "model.safetensors").read_bytes() for head in ("new", "auto")]
    assert bodies[0] == bodies[1] != (tmp_path / "own" / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (("model.kind=encoder", "mask_exclusion=1.0"), "mask_exclusion: mobilebert models cannot"),
        (("model.head=own",), "model.head: is for an encoder of a folder or Hub name only"),
    ],
)
def test_what_a_family_cannot_do_is_one_line(refused, capfd, store, texts, tmp_path, keys, says):
    from transformers import AutoConfig, AutoModelForMaskedLM

    made = tiny.tokenizer("bert")
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 32}
    shape |= {"vocab_size": len(made), "num_attention_heads": 2, "embedding_size": 16}
    config = AutoConfig.for_model("mobilebert", **shape)
    AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path / "small")
    made.save_pretrained(tmp_path / "small")
    capfd.readouterr()
    files = ("--corpus", texts / "one.txt", "--policy", "random", *keys)
    words = ("pretrain", "--model", tmp_path / "small", *files, *SHORT, "--store", store)
    assert says in refused(*words, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_without_a_mask_token_is_one_line(call, store, texts, tmp_path):
    folder = tiny.saved("bert", tmp_path / "small")
    made = tiny.tokenizer("bert").__class__.from_pretrained(folder)
    made.mask_token = None
    made.save_pretrained(folder)
    files = ("--corpus", texts / "one.txt", "--policy", "random", "model.kind=encoder")
    words = ("pretrain", "--model", folder, *files, *SHORT, "--store", store)
    code, _, err = call(*words, "--out", tmp_path / "out")
    (line,) = (line for line in err.splitlines() if line.startswith("error: "))
    assert "its tokenizer has neither a mask token nor sentinels" in line
    assert code == 2


def test_the_model_card_says_what_was_done(call, words, tmp_path):
    call(*words, "--out", tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["base_model"] == "small-bart"
    assert front["library_name"] == "transformers"
    assert {"maskpolicy", "policy:random"} <= set(front["tags"])
    for line in ("| ratio | 0.5 |", "| target | full |", "| steps | 3 |", "| passages | 12 |"):
        assert line in text
    record = json.loads((tmp_path / "out" / "maskpolicy.json").read_text())
    assert record["work"]["passages"] == 12
    assert record["spec"]["steps"] == 3
    assert str(tmp_path) not in text + json.dumps(record)
    command = "pretrain --model small-bart --corpus one.txt --corpus 't*.txt' --policy random "
    assert f"{command}policy.ratio=0.5 target=full {' '.join(SHORT)} --out out\n" in text
    longest = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert longest["model_max_length"] == 512
    for name in ("one.txt", "two.txt"):
        assert f"| {name} | `" in text


def test_passages_that_the_model_cannot_see_whole_are_told(call, words, tmp_path):
    (tmp_path / "one.txt").write_text("\n\n".join(f"{TEXT} " * 40 + str(n) for n in range(9)))
    keys = ("corpus.words=600", "target=spans")
    more = (*keys, "intermediate.max_source=600")
    code, _, err = call(*words, *more, "--out", tmp_path / "out")
    assert code == 0
    assert err.count("longer than") == 1
    line = next(line for line in err.splitlines() if "longer than" in line)
    assert "intermediate random" in line and "longer than 512 tokens and are truncated" in line
    assert line.rstrip().endswith("lower corpus.words")
    assert "| max source | 512 |" in (tmp_path / "out" / "README.md").read_text()
    more = (*keys, "intermediate.max_source=100")
    err = call(*words, *more, "--out", tmp_path / "out")[2]
    assert "longer than 100 tokens" in err
    assert "lower corpus.words or raise intermediate.max_source" in err


def test_the_same_command_replaces_the_folder_by_the_same_bytes(call, words, tmp_path):
    out = tmp_path / "deep" / "out"
    call(*words, "--out", out)
    before = contents(out)
    (out / "old.txt").write_text("of an earlier run")
    code, printed, _ = call(*words, "--out", out)
    assert code == 0
    assert contents(out) == before
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert printed.count("intermediate") == 1


def test_processes_that_write_one_folder_do_so_one_after_the_other(tmp_path):
    part = tmp_path / "part"
    part.mkdir()
    for number in range(20):
        (part / f"{number}.json").write_text("{}")
    record = {"version": 1, "stage": "a", "work": {}}
    outs = [tmp_path / "made" / name for name in ("out", "out.b", "out[1]")]
    outs[0].parent.mkdir()
    with ThreadPoolExecutor(6) as pool:
        for _ in pool.map(lambda out: own_text.place(out, [part], "", record), outs * 8):
            pass
    assert sorted(path.name for path in outs[0].parent.iterdir()) == ["out", "out.b", "out[1]"]
    assert all(len(contents(out)) == 22 for out in outs)


def test_a_folder_that_is_somebody_elses_is_refused_before_any_work(refused, words, tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "notes.txt").write_text("")
    assert "was not made by `maskpolicy pretrain`" in refused(*words, "--out", tmp_path / "theirs")
    assert "is a file, not a folder" in refused(*words, "--out", tmp_path / "one.txt")
    assert "cannot be created" in refused(*words, "--out", tmp_path / "one.txt" / "a" / "b")


def test_the_folder_of_the_model_is_no_place_for_the_next_one(refused, words, bart, tmp_path):
    base = Path(shutil.copytree(bart, tmp_path / "base"))
    words = [base if word == bart else word for word in words]
    line = refused(*words, "--out", tmp_path / "elsewhere" / ".." / "base")
    assert "--out is the folder of --model, which would be lost" in line


def test_a_folder_that_export_made_is_somebody_elses(refused, words, tmp_path):
    (tmp_path / "theirs").mkdir()
    record = tmp_path / "theirs" / "maskpolicy.json"
    for text in ('{"stages": {}}', "{", "[]"):
        record.write_text(text)
        line = refused(*words, "--out", tmp_path / "theirs")
        assert "was not made by `maskpolicy pretrain`: choose another --out" in line
        assert record.read_text() == text


def test_a_folder_made_with_other_settings_is_replaced_and_that_is_told(call, words, tmp_path):
    out = tmp_path / "out"
    assert "will be replaced" not in call(*words, "--out", out)[2]
    assert "will be replaced" not in call(*words, "--out", out)[2]
    code, _, err = call(*words, "intermediate.steps=2", "--out", out)
    assert code == 0
    line = next(line for line in err.splitlines() if "will be replaced" in line)
    assert str(out) in line and "(intermediate.steps: 3 -> 2)" in line
    assert json.loads((out / "maskpolicy.json").read_text())["spec"]["steps"] == 2
    other = ["whole-word" if word == "random" else word for word in words]
    err = call(*other, "--out", out)[2]
    assert '(policy: "random" -> "whole-word"; intermediate.steps: 2 -> 3)' in err
    err = call(*other, "policy.ratio=0.4", "--out", out)[2]
    assert "(policy.ratio: 0.5 -> 0.4)" in err


def test_a_folder_without_a_model_is_refused_before_any_work(refused, texts, tmp_path):
    (tmp_path / "nothing").mkdir()
    words = ("--model", tmp_path / "nothing", "--corpus", texts / "one.txt", "--policy", "random")
    line = refused("pretrain", *words, "--out", tmp_path / "out")
    assert f"{tmp_path / 'nothing'}: has no config.json: name a folder" in line


def test_an_empty_folder_is_taken(call, words, tmp_path):
    (tmp_path / "empty").mkdir()
    assert call(*words, "--out", tmp_path / "empty")[0] == 0
    assert (tmp_path / "empty" / "config.json").is_file()


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("ratio=0.2", "ratio: is a field of the policy random: write policy.ratio=.."),
        ("policy.rato=1", "policy.rato: unknown key 'rato': did you mean 'ratio'?"),
        ("intermediate.stesp=1", "intermediate.stesp: unknown key"),
        ("intermedaite.steps=1", "did you mean 'intermediate'?"),
        ("corpus.wrods=9", "did you mean 'words'?"),
        ("corpus=world", "use --corpus"),
        ("model=mini", "use --model"),
        ("tasks=[zsre]", "tasks: cannot be set here"),
        ("general.steps=3", "only a model built from scratch"),
        ("steps", "write key=value"),
    ],
)
def test_a_key_that_cannot_be_used_is_one_line(refused, words, tmp_path, key, says):
    assert says in refused(*words, key, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--policy", "none", "has no intermediate stage"),
        ("--policy", "radnom", "did you mean 'random'?"),
        ("--model", "nowhere/at/all", "there is no folder"),
        ("--corpus", "/", "'/' is a folder: name its files, e.g. '/*.txt'"),
        ("--corpus", "no*.txt", "no such file 'no*.txt'"),
        ("--corpus", "/dev/null", "'/dev/null' is not a regular file"),
    ],
)
def test_a_name_that_is_not_there_is_one_line(refused, bart, texts, tmp_path, option, value, says):
    options = {"--model": bart, "--corpus": texts / "one.txt", "--policy": "random"}
    given = [word for pair in (options | {option: value}).items() for word in pair]
    assert says in refused("pretrain", *given, "--out", tmp_path / "out")


def test_a_pattern_that_the_shell_took_is_told(refused, bart, texts, tmp_path):
    given = ("--model", bart, "--policy", "random", "--corpus", *(texts / "one.txt",) * 2)
    assert "quote a pattern" in refused("pretrain", *given, "--out", tmp_path / "out")


def test_a_corpus_without_any_entity_is_exit_code_2(call, bart, store, tmp_path):
    (tmp_path / "plain.txt").write_text("it was so.\n\nand so on it went.\n")
    words = ("--model", bart, "--corpus", tmp_path / "plain.txt", "--policy", "salient-span")
    code, _, err = call("pretrain", *words, "--store", store, "--out", tmp_path / "out")
    assert code == 2
    assert err.splitlines()[-1].startswith("error: policy salient-span: found nothing in 2")
    assert err.count("found nothing") == 1
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_the_old_folder_as_it_was(call, words, tmp_path, monkeypatch):
    out = tmp_path / "deep" / "out"
    call(*words, "--out", out)
    before = contents(out)

    def full(source: object, target: Path) -> None:
        Path(target).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    code, _, err = call(*words, "--out", out)
    assert code == 2
    assert err.splitlines()[-1].endswith(
        "cannot be written: No space left on device; choose another --out"
    )
    assert contents(out) == before
    assert [path.name for path in out.parent.iterdir()] == ["out"]
