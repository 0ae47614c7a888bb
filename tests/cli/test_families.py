"""Commands with text-to-text models of other families than BART, and with what is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import text_to_text
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from maskpolicy.models.families import FAMILIES

TEXT = "The cute dog walks in the park. Anna Kovar was born in Rome in 1901. Dogs are cute."
SHORT = ("intermediate.steps=2", "intermediate.batch_size=2", "intermediate.warmup=1")


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "one.txt"
    path.write_text("\n\n".join(f"{TEXT} It is number {n}." for n in range(6)))
    return path


def saved(name, folder) -> Path:
    text_to_text.model(name).save_pretrained(folder)
    text_to_text.tokenizer(name).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("name", "tag", "keys"),
    [
        ("t5", "t5", ("mask_exclusion=1.0",)),
        ("mbart50", "mbart", ("target=full", "permute_sentences=true")),
        ("pegasus", "pegasus", ("join=none",)),
        ("t5gemma", "t5gemma", ("corruption=token", "intermediate.dropout=0.1")),
        ("led", "led", ("insert=0.5",)),
    ],
)
def test_a_model_of_any_family_is_pre_trained_further(call, text, tmp_path, name, tag, keys):
    folder, out = saved(name, tmp_path / "model"), tmp_path / "out"
    words = ("--model", folder, "--corpus", text, "--policy", "random", *SHORT, *keys)
    code, _, err = call("pretrain", *words, "--store", tmp_path / "store", "--out", out)
    assert code == 0, err
    before, after = (AutoModelForSeq2SeqLM.from_pretrained(path) for path in (folder, out))
    weights = after.state_dict()
    assert any(not value.equal(weights[key]) for key, value in before.state_dict().items())
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer(TEXT)["input_ids"] == text_to_text.tokenizer(name)(TEXT)["input_ids"]
    card = (out / "README.md").read_text()
    assert f"- {tag}\n" in card
    assert 'AutoModelForSeq2SeqLM.from_pretrained("out")' in card


def test_more_spans_than_sentinels_are_told(call, text, tmp_path):
    text.write_text("\n\n".join(f"{' '.join(['dog'] * 90)} {n}" for n in range(4)))
    folder, out = saved("t5", tmp_path / "model"), tmp_path / "out"
    words = ("--model", folder, "--corpus", text, "--policy", "random", "policy.ratio=0.5", *SHORT)
    code, _, err = call("pretrain", *words, "--store", tmp_path / "store", "--out", out)
    assert code == 0, err
    (line,) = [each for each in err.splitlines() if "sentinels" in each]
    assert "spans of the first 2 passages stay visible, as a source has at most 19" in line
    work = json.loads((out / "maskpolicy.json").read_text())["work"]
    assert work["spans_without_sentinel"] > 0
    assert work["spans"] == 2 * 2 * 19


def test_a_text_is_shown_with_sentinels(call, tmp_path):
    folder = saved("t5", tmp_path / "model")
    words = ("--model", folder, "--text", "The cute dog walks in the park", "--json")
    code, out, _ = call("show", "random", *words, "policy.ratio=0.3", "--store", tmp_path)
    found = json.loads(out)
    assert code == 0
    assert found["source"].count("<extra_id_") == len(found["spans"]) > 0
    assert found["target"].startswith("<extra_id_0>")
    assert found["target"].endswith(f"<extra_id_{len(found['spans'])}>")


def test_a_tokenizer_without_masks_is_refused_before_any_work(refused, capfd, text, tmp_path):
    folder, store = saved("t5", tmp_path / "model"), tmp_path / "store"
    made = text_to_text.tokenizer("t5")
    plain = type(made)(vocab=list(text_to_text.pieces(True)), extra_ids=0)
    plain.save_pretrained(folder)
    capfd.readouterr()  # the progress of saving
    words = ("--model", folder, "--corpus", text, "--policy", "random", "--store", store)
    line = refused("pretrain", *words, "--out", tmp_path / "out")
    assert f"model {folder}: its tokenizer has neither a mask token nor sentinels" in line
    assert not list(store.glob("artifacts/*"))
    file = tmp_path / "mine.yaml"
    rest = "corpus: world\npolicies: [none, random]\ntasks: [triviaqa]\n"
    file.write_text(f"model: {folder}\n{rest}")
    assert "neither a mask" in refused("run", file, "--store", store, "--out", tmp_path / "run")
    assert not list(store.glob("artifacts/*"))


def test_a_tokenizer_without_offsets_is_refused(refused, capfd, text, tmp_path):
    from transformers import BlenderbotSmallTokenizer

    folder = tmp_path / "model"
    text_to_text.model("bart").save_pretrained(folder)
    (folder / "vocab.json").write_text('{"__start__": 0, "__null__": 1, "__end__": 2, "a": 3}')
    (folder / "merges.txt").write_text("#version: 0.2\n")
    slow = BlenderbotSmallTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    slow.save_pretrained(folder)
    capfd.readouterr()  # the progress of saving
    words = ("--model", folder, "--corpus", text, "--policy", "random")
    line = refused("pretrain", *words, "--out", tmp_path / "out", "--store", tmp_path / "store")
    assert "its tokenizer is not a fast one (no character offsets)" in line


def test_the_docs_have_every_text_to_text_family():
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    rows = [line.replace("`", "") for line in page.splitlines() if line.startswith("| ")]
    for family in FAMILIES:
        if family.kind == "seq2seq":
            facts = (family.name, family.masks, family.start, family.ends)
            assert f"| {' | '.join((*facts, family.positions, family.exclusion))} |" in rows


def test_models_are_listed_by_family(call):
    found = {
        (row["name"], row["kind"]): row for row in json.loads(call("list", "models", "--json")[1])
    }
    assert found["mini", "seq2seq"]["masks"] == "<mask>"
    assert found["T5", "seq2seq"]["start"] == "<pad>"
    assert found["T5", "seq2seq"]["exclusion"] == "unattended"
    assert found["Pegasus", "seq2seq"]["masks"] == "<mask_1> for whole sentences, else <mask_2>"
    shown = call("list", "models")[1]
    for words in ("T5Gemma", "sentinels or mask token", "google-t5/t5-small"):
        assert words in shown
