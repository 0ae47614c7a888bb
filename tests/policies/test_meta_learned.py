"""The policy meta-learned: what it starts from, what it leaves behind, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import small
import torch
from tiny import Nothing

from maskpolicy.core.seeding import generator
from maskpolicy.core.types import Denoising
from maskpolicy.data.corpus.annotation import annotate
from maskpolicy.data.corpus.passages import Passages
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.parse import make_experiment
from maskpolicy.experiment.policy_blocks import policy_block
from maskpolicy.models.learned import extractor
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage, stage, topological
from maskpolicy.pipeline.stages import build
from maskpolicy.pipeline.stages.params import FitParams
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins import discovery

SUPERVISED = {"name": "supervised", "train_on": ["triviaqa"]}
SPEC = Training(steps=2, precision="fp32", checkpoint_every=1e9)
QUICK = {
    "episode": {"candidates": 3},
    "outer": {"steps": 3, "episodes": 2, "warmup": 0, "eval_every": 1, "dev": 2, "lr": 0.01},
}


@dataclass(frozen=True)
class Texts:
    """Texts, the first `answered` of which hold an answer."""

    answered: int
    texts: tuple[str, ...]


@stage("tiny-bart")
def tiny_bart(params: Nothing, inputs, out, run):
    """Write a small BART."""
    small.bart().save_pretrained(out)


@stage("tiny-tokenizer")
def tiny_tokenizer(params: Nothing, inputs, out, run):
    """Write its tokenizer."""
    small.tokenizer().save_pretrained(out)


@stage("tiny-reader")
def tiny_reader(params: Nothing, inputs, out, run):
    """Write an untrained extractor."""
    extractor.build(small.bart().get_input_embeddings().weight, 0, 8).save(out)


@stage("tiny-contexts")
def tiny_contexts(params: Texts, inputs, out, run):
    """Write contexts, of which `answered` hold an answer."""
    rows = [
        {
            "id": f"q{i}",
            "group": f"q{i}",
            "source": f"Who was born in {1900 + i}?",
            "targets": ["Anna"],
            "context": text,
            "answers": [[0, 4]] if i < params.answered else [],
        }
        for i, text in enumerate(params.texts)
    ]
    for split in ("train", "dev"):
        lines = [json.dumps(row) + "\n" for row in rows]
        (out / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    counts = {split: {"examples": len(rows)} for split in ("train", "dev")}
    (out / "counts.json").write_text(json.dumps({"task": "triviaqa", "counts": counts}))


def fitting(answered=8, texts=small.TEXTS, how=None, **fields):
    """Return the fit stage of a row over tiny artifacts."""
    discovery.load_builtin("policy")
    given = {"train_on": ["triviaqa"], "init": SUPERVISED, **QUICK, **fields}
    made = policy_block({"name": "meta-learned", **given}, "row", {})
    params = FitParams(
        policy=made.name, fields=made.fields, code={}, spec=SPEC, how=Denoising(**(how or {}))
    )
    inputs = {
        "model": Stage("tiny-bart", "", Nothing()),
        "tokenizer": Stage("tiny-tokenizer", "", Nothing()),
        "init": Stage("tiny-reader", "", Nothing()),
        "contexts-00": Stage("tiny-contexts", "", Texts(answered, tuple(texts))),
    }
    return Stage("fit", made.label, params, inputs)


def fitted(store, **settings) -> tuple[Path, dict]:
    made = fitting(**settings)
    outcome = execute([made], store)[made.key]
    assert outcome.error is None
    folder = store.path(made.key)
    return folder, json.loads((folder / "report.json").read_text())


def refused(store, **settings) -> str:
    made = fitting(**settings)
    error = execute([made], store)[made.key].error
    assert error is not None
    assert len(str(error).splitlines()) == 1
    assert store.get(made.key) is None
    return str(error)


def heads(folder):
    return extractor.Extractor.load(folder).heads.weight


def test_what_is_fitted_ranks_spans_for_annotate_and_select(tmp_path):
    folder, report = fitted(Store(tmp_path))
    again, _ = fitted(Store(tmp_path / "again"))
    weights = [(each / "extractor.safetensors").read_bytes() for each in (folder, again)]
    assert weights[0] == weights[1]
    assert report["training"]["work"] == {"episodes": 6}
    assert report["training"]["questions"] == 8
    assert set(report["dev"]["triviaqa"]["policy"]["hits"]) == {"1", "5", "20"}
    policy = discovery.instance("policy", "meta-learned", {"train_on": ["triviaqa"], "top_k": 3})
    columns = annotate(policy, small.passages(), folder)
    one = Passages({**small.passages().arrays})[0]
    one = type(one)(**{**one.__dict__, "columns": {k: v[0] for k, v in columns.items()}})
    drawn = {tuple(policy.select(one, generator(0, i, "it"))[0]) for i in range(50)}
    assert drawn <= {tuple(span) for span in columns["candidates"][0][:3]}
    assert len(drawn) > 1


def test_the_papers_form_has_the_spans_of_its_start(tmp_path):
    start = {**SUPERVISED, "loss": "start-end", "overlap": True}
    folder, _ = fitted(Store(tmp_path), init=start, overlap=True)
    names, given = ("meta-learned", "supervised"), {"train_on": ["triviaqa"], "overlap": True}
    policies = [discovery.instance("policy", name, given) for name in names]
    one, two = (annotate(each, small.passages(), folder)["candidates"] for each in policies)
    assert [spans.tolist() for spans in one] == [spans.tolist() for spans in two]
    ranges = [sorted(spans[:5].tolist()) for spans in one]  # of top_k: 5
    assert any(b[0] < a[1] for each in ranges for a, b in pairwise(each))


def test_training_changes_the_policy_unless_the_initial_one_is_better(tmp_path):
    store = Store(tmp_path)
    start = heads(store.path(start_of(store)))
    unjudged = {**QUICK["outer"], "eval_every": 0}
    folder, report = fitted(store, outer=unjudged)
    assert not torch.equal(heads(folder), start)
    assert not report["training"]["initial_stays"]
    folder, report = fitted(store, outer={**QUICK["outer"], "steps": 0})
    assert report["training"]["initial_stays"]
    assert torch.equal(heads(folder), start)


def start_of(store) -> str:
    made = fitting().inputs["init"]
    execute([made], store)
    return made.key


def test_a_start_on_the_same_tasks_needs_answers(tmp_path):
    store = Store(tmp_path)
    error = refused(store, init="supervised", answered=1)
    assert (
        "init: supervised would learn from triviaqa, where 12.5% of 8 contexts hold an answer, "
        "not 20%: start from a policy that is learned on another task" in error
    )
    fitted(store, init="supervised", answered=2)
    fitted(store, answered=1)


def test_an_outer_loss_that_is_no_number_commits_nothing(tmp_path):
    error = refused(Store(tmp_path), inner={"lr": 1e30})
    assert "the outer loss of example 'q" in error
    assert "lower inner.lr (now 1e+30)" in error


def experiment(*policies):
    given = {"model": "mini", "corpus": "world", "policies": ["none", *policies], "seeds": [0]}
    return make_experiment({**given, "tasks": ["triviaqa", "zsre"]}, "it", "it: ", ())


def fits(made):
    stages = topological(build(made).stages)
    return {stage.label: stage for stage in stages if stage.kind == "fit"}


def test_its_start_is_a_fit_stage_that_a_supervised_row_shares():
    row = {"name": "meta-learned", "label": "mine", "train_on": ["zsre"], "init": SUPERVISED}
    found = fits(experiment(SUPERVISED, row))
    start = found["supervised train_on=triviaqa, run 0"]
    assert found["mine, run 0"].inputs["init"].key == start.key


def test_it_is_fitted_to_how_spans_are_written_and_not_to_top_k():
    row = {"name": "meta-learned", "label": "mine", "train_on": ["triviaqa"]}
    changes = [{}, {"top_k": 5}, {"target": "full"}, {"episode": {"candidates": 4}}]
    made = [fits(experiment({**row, **change}))["mine, run 0"] for change in changes]
    assert made[0].key == made[1].key
    assert len({stage.key for stage in made}) == 3
    assert len({stage.inputs["init"].key for stage in made}) == 1
