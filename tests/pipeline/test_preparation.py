"""Corpora in shards: the passages, columns, sums and errors of one stage."""

import gzip
import json
import logging
import os
import resource
import shutil
from pathlib import Path

import encoders
import pyarrow
import pytest
import small
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from stores import compute

from maskpolicy.core.errors import ConfigError, DataError, StageError
from maskpolicy.data.corpus import annotation, passages
from maskpolicy.data.corpus.passages import INDEX_FILE, PASSAGES_FILE, Passages, open_arrays
from maskpolicy.experiment.parse import make_experiment
from maskpolicy.models.training.batching import Order
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import topological
from maskpolicy.pipeline.store.artifacts import Store

TEXTS = [f"{number}. {text}" for number, text in enumerate(small.TEXTS * 6)]
JSONL = "".join(json.dumps({"text": text, "marked": [[0, 1]]}) + "\n" for text in TEXTS)
PLAIN = "\ufeff" + "".join(
    text.replace(". ", ".\r\n") + ("\r\n", "\n \n\n", "\n = Head = \n")[index % 3] + "\n"
    for index, text in enumerate(TEXTS)
)
TSV = "id\ttext\n" + "".join(f'{index}\t"{text}"\n' for index, text in enumerate(TEXTS))
_CELLS = [text.replace(",", " -") for text in TEXTS]
CSV = "id,text\n" + "".join(f"{index},{text}\n" for index, text in enumerate(_CELLS))
KILT = "".join(json.dumps({"text": ["Title", text]}) + "\n" for text in TEXTS)
FORMATS = {
    "a.jsonl": JSONL.encode(),
    "a.txt": PLAIN.encode(),
    "a.tsv": TSV.encode(),
    "a.csv": CSV.replace('"', "'").encode(),
    "kilt_knowledgesource.json": KILT.encode(),
}
BAD = {
    "a.jsonl": b'{"text": 3}\n{\n\xff\n',
    "a.txt": b"\xff\xfe.\n\nnul \x00.\n\n",
    "a.tsv": b'1\t2\t3\n9\t"a"b"\n',
}


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a model and its tokenizer."""
    return small.saved(tmp_path / "bart")


def plan(folder, files, shard_mb, policy="salient-span", **corpus):
    """Return the stages of the corpus of some files, and of its annotations, and their store."""
    keys = {"files": [str(path) for path in files], "words": 12, "shard_mb": shard_mb, **corpus}
    made = small.without_tasks(folder.parent, policy, corpus=keys)
    store = Store(folder.parent / "store")
    graph = stages.build(made, store.hash_file, store.cut_file)
    inputs = graph.pretrained[made.policies[0].label, 0].inputs
    return inputs["corpus"], inputs.get("annotate"), store


def shards_of(stage):
    return [needed for name, needed in stage.inputs.items() if name.startswith("shard-")]


def contents(path):
    """Return the type and the arrays of each column of an artifact, also as plain lists."""
    return {
        name: [(row.dtype.str, row.tolist()) for row in rows]
        for name, rows in open_arrays(path).items()
    }


def both(folder, files, mb, **keys):
    """Compute corpus and annotations in one stage and in shards, and compare them."""
    found = []
    for shard_mb in (0, mb):
        corpus, annotate, store = plan(folder, files, shard_mb, **keys)
        compute([corpus, annotate], store)
        found.append((corpus, annotate))
        for stage in shards_of(corpus) + shards_of(annotate):
            assert not store.path(stage.key).exists()
    for whole, merged in zip(*found, strict=True):
        assert not shards_of(whole) and len(shards_of(merged)) > 1
        assert merged.key != whole.key
        one, other = store.path(whole.key), store.path(merged.key)
        assert (one / PASSAGES_FILE).exists() and (other / INDEX_FILE).exists()
        assert contents(one) == contents(other)
    facts = [store.peek(corpus.key)["record"]["facts"] for corpus, _ in found]
    assert facts[0] == facts[1]
    return found[1], store


def write(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    return path


def test_packed_passages_run_across_documents_and_are_full(folder, tmp_path):
    files = [write(tmp_path, f"{name}.txt", b"one two three.\n\n" * 9) for name in "ab"]
    found = {}
    for pack in (False, True):
        corpus, _, store = plan(folder, files, 0, "random", pack=pack)
        compute([corpus], store)
        passages = Passages.open(store.path(corpus.key))
        found[pack] = [len(passage.text.split()) for passage in passages]
        assert store.peek(corpus.key)["record"]["facts"]["size"] == {
            "passages": len(passages),
            "words": 54,
            "tokens": sum(len(passage.tokens) for passage in passages),
        }
    assert found[False] == 18 * [3]
    assert found[True] == [12, 12, 3, 12, 12, 3]  # documents of two files are not joined


def test_a_text_that_the_tokenizer_does_not_know_gets_a_warning(folder, tmp_path, caplog):
    encoders.tokenizer("bert").save_pretrained(folder)
    path = write(tmp_path, "it.txt", "\u732b \u72ac.\n\n".encode() * 9)
    corpus, _, store = plan(folder, [path], 0.0001, "random")
    compute([corpus], store)
    says = "intermediate: 66.7% of the tokens are unknown to the tokenizer ([UNK]): choose a"
    assert says in caplog.messages[-1]


@pytest.mark.parametrize("name", ["a.csv", "kilt_knowledgesource.json"])
def test_shards_of_a_file_have_the_passages_and_columns_of_the_whole(
    folder, tmp_path, name, monkeypatch
):
    monkeypatch.setattr(annotation, "BATCH", 4)
    path = write(tmp_path, name, FORMATS[name])
    corpus, _ = both(folder, [path], 0.0006)[0]
    assert len(shards_of(corpus)) > 3


def test_passages_that_are_not_read_need_no_columns(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(annotation, "BATCH", 4)
    path, found = write(tmp_path, "a.txt", FORMATS["a.txt"]), []
    spec = {"steps": 3, "batch_size": 2, "warmup": 1}
    for annotate, shard_mb in (("all", 0), ("read", 0), ("read", 0.0006)):
        corpus = {"files": [str(path)], "words": 12, "shard_mb": shard_mb}
        keys = {"corpus": corpus, "intermediate": spec, "annotate": annotate}
        made = small.without_tasks(tmp_path, "salient-span", **keys)
        store = Store(tmp_path / "store")
        graph = stages.build(made, store.hash_file, store.cut_file)
        training = graph.pretrained["salient-span", 0]
        columns = training.inputs["annotate"]
        compute([columns, training], store)
        weights = (store.path(training.key) / "model.safetensors").read_bytes()
        found.append((weights, contents(store.path(columns.key))["entities"]))
    assert found[1] == found[2] and found[1][0] == found[0][0]
    order = Order(Passages.open(store.path(training.inputs["corpus"].key)).lengths, 2, 0)
    read = {item for number in range(3) for item, _ in order.step(number)}
    for item, (every, own) in enumerate(zip(found[0][1], found[1][1], strict=True)):
        assert own == (every if item in read else (every[0], []))
    assert 0 < sum(len(own) > 0 for _, own in found[1][1]) < sum(len(e) > 0 for _, e in found[0][1])


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.tsv"])
def test_malformed_rows_are_counted_and_named_as_in_one_stage(folder, tmp_path, name, caplog):
    lines = FORMATS[name].splitlines(keepends=True)
    data = b"".join([*lines[:2], BAD[name], *lines[2:-2], BAD[name] * 6, *lines[-2:]])
    path = write(tmp_path, name, data)
    with caplog.at_level(logging.WARNING):
        both(folder, [path], 0.0006, on_error="skip")
    said = [record.getMessage() for record in caplog.records if "malformed" in record.getMessage()]
    assert len(said) == 2 and said[0] == said[1]
    corpus, _, store = plan(folder, [path], 0.0006)
    whole, *_ = plan(folder, [path], 0)
    line = execute([whole], store)[whole.key].error
    outcome = execute([corpus], store)[corpus.key]
    assert str(path) in line and outcome.error.endswith(f"failed: {line}")


def test_shards_outlive_a_change_of_what_malformed_rows_do(folder, tmp_path):
    path = write(tmp_path, "a.jsonl", JSONL.encode() + BAD["a.jsonl"] + JSONL.encode())
    plans = {mode: plan(folder, [path], 0.0006, on_error=mode) for mode in ("raise", "skip")}
    raising, *_, store = plans["raise"]
    skipping = plans["skip"][0]
    keys = [stage.key for stage in shards_of(skipping)]
    assert [stage.key for stage in shards_of(raising)] == keys and raising.key != skipping.key
    line = execute([raising], store)[raising.key].error
    done = {key for key in keys if store.has(key)}
    # those before the row; the others are of no use once it has failed
    assert 0 < len(done) < len(keys) - 1 and "line 49: key 'text' must be text" in line
    outcomes = execute([skipping], store, targets=[skipping, *shards_of(skipping)])
    assert {key for key in keys if outcomes[key].hit} == done
    assert outcomes[skipping.key].error is None
    again = execute([raising], store)[raising.key].error
    assert line.endswith(again) and again.startswith(str(path))


def test_several_files_packed_ones_and_parquet_are_shards_together(folder, tmp_path):
    files = [
        write(tmp_path, "a.jsonl.gz", gzip.compress(JSONL.encode())),
        write(tmp_path, "a.json", json.dumps([{"text": text} for text in TEXTS]).encode()),
        write(tmp_path, "empty.txt", b""),
        write(tmp_path, "quoted.csv", b'text\n"a\nb"\n' * 3),
    ]
    (tmp_path / "other").mkdir()
    files.append(write(tmp_path / "other", "a.jsonl", JSONL.encode()))
    table = pyarrow.table({"text": [" = Head = ", *TEXTS]})
    parquet.write_table(table, tmp_path / "p.parquet", row_group_size=7)
    (corpus, _), store = both(folder, [*files, tmp_path / "p.parquet"], 0.001)
    ids = [row.tobytes().decode() for row in open_arrays(store.path(corpus.key))["ids"]]
    assert {name.partition(":")[0] for name in ids} == {"0/a", "1/a", "4/a", "quoted", "p"}


def test_small_files_share_a_shard(folder, tmp_path):
    files = [write(tmp_path, f"{number:02d}.txt", b"Some words. " * 9) for number in range(20)]
    corpus, *_ = plan(folder, files, 0.0005)
    counts = [len(stage.params.shard.files) for stage in shards_of(corpus)]
    assert counts == [4] * 5


def test_a_corpus_that_fits_into_one_shard_keeps_its_key(folder, tmp_path):
    path = write(tmp_path, "a.jsonl", JSONL.encode())
    keys = {plan(folder, [path], mb, **more)[0].key for mb, more in ((0, {}), (64, {}), (1, {}))}
    assert len(keys) == 1
    limited = [plan(folder, [path], mb, limit=5)[0] for mb in (0, 0.0006)]
    assert limited[0].key == limited[1].key
    packed = write(tmp_path, "b.jsonl.gz", gzip.compress(JSONL.encode()))
    assert not shards_of(plan(folder, [packed], 0.0001)[0])


@pytest.mark.parametrize(
    ("content", "wanted", "says"),
    [
        (b'{"text": " "}\n{"other": 3}\n', 0, "30 malformed"),
        (b'{"text": "no name is here."}\n', 1, "found nothing in 30 passages"),
    ],
)
def test_what_no_shard_has_fails_at_the_merge(folder, tmp_path, content, wanted, says):
    path = write(tmp_path, "a.jsonl", content * 30)
    lines = []
    for mb in (0, 0.0003):
        *made, store = plan(folder, [path], mb, on_error="skip")
        outcome = execute([made[wanted]], store)[made[wanted].key]
        assert isinstance(outcome.exception, DataError)
        lines.append(outcome.error)
    assert lines[0] == lines[1] and says in lines[0]


def test_shards_are_linked_or_copied_if_links_are_not_possible(folder, tmp_path, monkeypatch):
    path = write(tmp_path, "a.jsonl", JSONL.encode())
    corpus, _, store = plan(folder, [path], 0.0006)
    shards, linked = shards_of(corpus), []
    link = os.link
    monkeypatch.setattr(os, "link", lambda *names: linked.append(names) or link(*names))
    execute([corpus], store, targets=[corpus, *shards])
    files = sorted(store.path(corpus.key).glob("*.safetensors"))
    before = [file.read_bytes() for file in files]
    assert len(linked) == len(files) == len(shards)
    for file, shard in zip(files, shards, strict=True):
        assert file.samefile(store.path(shard.key) / PASSAGES_FILE)
    shutil.rmtree(store.path(corpus.key))

    def refuse(*names):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    execute([corpus], store, targets=[corpus, *shards])
    assert [file.read_bytes() for file in files] == before
    assert not files[0].samefile(store.path(shards[0].key) / PASSAGES_FILE)


def test_more_parts_are_opened_than_a_process_may_usually_open_files(folder, tmp_path, monkeypatch):
    path = write(tmp_path, "a.jsonl", JSONL.encode())
    corpus, _, store = plan(folder, [path], 0.00005)
    execute([corpus], store)
    count = len(list(store.path(corpus.key).glob("*.safetensors")))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, limits[1]))
        opened = Passages.open(store.path(corpus.key))
        assert len(opened) == len(list(opened)) >= count > 40
        del opened
        monkeypatch.setattr(passages, "allow_files", lambda count: None)  # as with a low hard limit
        used = len(list(Path("/proc/self/fd").iterdir()))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 9, limits[1]))
        with pytest.raises(StageError, match="raise the limit") as error:
            Passages.open(store.path(corpus.key))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(str(error.value).splitlines()) == 1


def rewrite(path):
    """Write other text of the same length and with the same times that a program can set."""
    about = path.stat()
    path.write_bytes(path.read_bytes().replace(b"a", b"o"))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert path.stat().st_size == about.st_size


@pytest.mark.parametrize(  # marks of young files are not remembered
    ("mb", "when", "is_old"),
    [(0, "before", True), (0, "during", False), (0.002, "before", False), (0.002, "during", True)],
)
def test_a_file_that_changes_after_the_plan_leaves_no_artifact(folder, tmp_path, mb, when, is_old):
    path = write(tmp_path, "a.jsonl", JSONL.encode())
    if is_old:
        os.utime(path, (1e9, 1e9))
    corpus, _, store = plan(folder, [path], mb)
    if when == "before":
        rewrite(path)
    during = [path] if when == "during" else []

    def listen(event):
        if event.what == "advanced" and during:
            rewrite(during.pop())

    outcomes = execute([corpus], store, listen)
    failed = [each for each in outcomes.values() if each.exception is not None]
    (first,) = failed  # nothing else is computed for a corpus that cannot be
    assert isinstance(first.exception, DataError)
    assert first.error.startswith(f"{path}: was changed")
    assert first.error.endswith("run the command again")
    (tokenizer,) = (stage for stage in topological([corpus]) if stage.kind == "tokenizer")
    assert store.committed() == {tokenizer.key}
    again = plan(folder, [path], mb)[0]
    assert again.key != corpus.key
    compute([again], store)


def test_a_changed_tokenizer_is_not_stored_and_a_file_that_is_only_touched_is_read(
    folder, tmp_path
):
    path = write(tmp_path, "a.jsonl", JSONL.encode())
    corpus, _, store = plan(folder, [path], 0)
    before = (folder / "tokenizer.json").read_bytes()
    rewrite(folder / "tokenizer.json")
    error = execute([corpus], store)[corpus.key].error
    assert f"{folder / 'tokenizer.json'}: was changed" in error and not store.committed()
    (folder / "tokenizer.json").write_bytes(before)
    os.utime(path, (1e9, 1e9))
    compute([corpus], store)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(size=st.integers(40, 3000), batch=st.integers(1, 30))
def test_any_cut_gives_the_same_corpus(folder, tmp_path, size, batch):
    path = write(tmp_path, "a.txt", PLAIN.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(annotation, "BATCH", batch)
        both(folder, [path], size / 1e6)


def test_a_sentencepiece_file_is_in_the_key_of_a_tokenizer_that_is_made_of_it(tmp_path):
    def key():
        keys = {"model": str(tmp_path), "corpus": "world", "policies": ["none"], "tasks": []}
        return stages.tokenizer(make_experiment(keys, "it", "", (), needs=())).key

    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "spiece.model").write_bytes(b"one")
    first = key()
    (tmp_path / "spiece.model").write_bytes(b"two")
    assert key() != first
    (tmp_path / "tokenizer.json").write_text("{}")  # Transformers reads this one instead
    second = key()
    (tmp_path / "spiece.model").write_bytes(b"one")
    assert key() == second


PMI = {"name": "pmi", "label": "pmi", "min_count": 6, "entries": 8}


def test_shards_and_processes_change_no_byte_of_statistics(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(annotation, "BATCH", 4)
    monkeypatch.setattr("maskpolicy.data.corpus.shards.BATCH", 4)
    path, found = write(tmp_path, "a.jsonl", JSONL.encode()), []
    for mb, workers in ((0, 2), (0.0008, 1)):
        _, annotate, store = plan(folder, [path], mb, PMI)
        condensed = annotate.inputs["statistics"]
        counted = condensed.inputs["count"]
        assert bool(mb) == (len(shards_of(counted)) > 2)
        compute([counted, condensed], store, workers=workers)
        found.append([small.content(store, stage) for stage in (counted, condensed)])
        assert not any(store.has(each.key) for each in shards_of(counted))  # transient
    assert found[0] == found[1]
    assert len(found[0][0]["hashes.u64"]) > 0


def test_a_model_built_from_scratch_has_general_text():
    keys = {"model": "mini", "corpus": "world", "tasks": [], "policies": ["difference-masking"]}
    made = make_experiment({**keys, "baseline": "difference-masking"}, "it", "", (), needs=())
    trained = stages.build(made).pretrained["difference-masking", 0]
    condensed = trained.inputs["annotate"].inputs["fit"].inputs["statistics"]
    other = condensed.inputs["contrast"].inputs["corpus"]
    assert other.label == "general"
    (general,) = [each for each in topological([trained]) if each.kind == "general"]
    assert other.key == general.inputs["corpus"].key


def test_fields_that_count_reads_follow_no_schedule(folder, tmp_path):
    path, ratio = write(tmp_path, "a.jsonl", JSONL.encode()), {"start": 0.3, "end": 0.1}
    with pytest.raises(ConfigError, match=r"policies\[0\].ratio"):
        plan(folder, [path], 0, {"name": "informask-rates", "label": "rates", "ratio": ratio})
    plan(folder, [path], 0, {**PMI, "ratio": ratio})
