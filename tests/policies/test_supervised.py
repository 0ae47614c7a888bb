"""The learned policies: what they mask, what they are fitted on, and what they must not see."""

import json
import re
import shutil
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import small
import torch
from official import write as write_rows
from tiny import Nothing

from maskpolicy.core.seeding import generator
from maskpolicy.core.types import Denoising, as_spans
from maskpolicy.data.corpus.annotation import annotate
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
from maskpolicy.plugins.discovery import find_plugin

FIT = {"steps": 6, "batch_size": 8, "eval_every": 4, "precision": "fp32"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A BART and a world of tasks, in which webquestions has no contexts for train."""
    folder = small.with_world(tmp_path_factory.mktemp("made"), birds=12, kinds=["people", "birds"])
    (folder / "world" / "tasks" / "biencoder-webquestions-train.json").unlink()
    return folder


def supervised(made, data, row=(), words=40, **keys):
    """Return an experiment whose policy learns from tasks that lie in a folder, or in the world."""
    tasks = ["triviaqa", "zsre", "nq", "webquestions"]
    own = {"name": "supervised", "label": "it", "train_on": tasks, "hidden": 8, **dict(row)}
    keys = {"fit": FIT, "world": {"people": 12, "general_people": 6}, **keys}
    corpus = {"name": "world", "words": words}
    return small.without_tasks(made, own, data=str(data), corpus=corpus, **keys)


@pytest.fixture(scope="module")
def fitted_on_tasks(made):
    """Return a fit stage, and the store that it was computed in."""
    experiment = supervised(made, made / "world" / "tasks")
    found, store = small.computed(experiment, made / "store", ("fit",))
    return *found.values(), store


def test_what_is_fitted_hides_whole_words_and_reports_how_well(fitted_on_tasks):
    stage, store = fitted_on_tasks
    report = json.loads(small.content(store, stage)["report.json"])
    assert [step for step, _ in report["training"]["scores"]] == [4, 6]
    assert report["contexts"]["zsre"]["train"]["without_answer"] == 0
    counts = report["contexts"]["webquestions"]["train"]  # from the corpus of the experiment
    assert 0 < counts["retrieved"] == counts["examples"] - counts["without_context"]
    assert counts["without_answer"] == 0
    for task in ("triviaqa", "zsre"):
        found = report["dev"][task]
        assert found["contexts"] > 0
        hits = found["policy"]["hits"]
        assert 0 <= hits["1"] <= hits["5"] <= hits["20"] <= 1
        assert found["random"]["hits"]["1"] < found["salient-span"]["hits"]["1"]
    policy = find_plugin("policy", "supervised").plugin(("triviaqa",), top_k=5, max_words=3)
    passage = small.passages()[0]
    columns = policy.annotate([passage], store.path(stage.key))
    passage = replace(passage, columns={name: rows[0] for name, rows in columns.items()})
    (span,) = policy.select(passage, np.random.default_rng(0)).tolist()
    assert span in columns["candidates"][0][:5].tolist()
    assert span[0] in passage.words[:, 0]
    assert span[1] in passage.words[:, 1]


def test_answers_of_the_test_split_change_neither_key_nor_bytes(fitted_on_tasks, made, tmp_path):
    before, store = fitted_on_tasks
    folder = shutil.copytree(made / "world" / "tasks", tmp_path / "other")
    changed = [path for path in folder.rglob("*") if is_test(path)]
    assert len(changed) == 8
    for path in changed:
        path.write_text(with_other_answers(path), encoding="utf-8")
    experiment = supervised(made, folder)
    found, other = small.computed(experiment, tmp_path / "store", ("fit",))
    (after,) = found.values()
    assert after.key == before.key
    assert small.content(other, after) == small.content(store, before)
    train = folder / "structured_zeroshot-train-kilt.jsonl"
    train.write_text(train.read_text().replace('"answer": "', '"answer": "in ', 1))
    (changed,) = fits(experiment).values()
    assert changed.key != before.key


def is_test(path):
    """Whether a file holds answers of a test split: the official dev, or test if it has labels."""
    names = ("wikipedia-dev", "unfiltered-web-dev", "structured_zeroshot-dev", "NQ-open.dev")
    names += ("biencoder-nq-dev", "examples.test", "biencoder-webquestions-test", "wow-dev")
    return path.is_file() and any(name in path.name for name in names)


def with_other_answers(path):
    """Return a file's text with every answer replaced."""

    def other(value, under=""):
        if isinstance(value, dict):
            return {key: other(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [other(each, under) for each in value]
        if under == "targetValue":
            return '(list (description "somebody else"))'
        return "somebody else" if under.lower() in ANSWERS and isinstance(value, str) else value

    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return "".join(json.dumps(other(json.loads(line))) + "\n" for line in text.splitlines())
    return json.dumps(other(json.loads(text)))


ANSWERS = {
    *("answer", "answers", "value", "aliases", "normalizedaliases", "normalizedvalue"),
    *("matchedwikientityname", "normalizedmatchedwikientityname"),
}


def keys(made, row=(), **more):
    changed = supervised(made, "world", {"train_on": ["zsre"], **dict(row)}, **more)
    order = topological(build(changed).pretrained.values())
    return {
        (each.kind, each.label.partition(", ")[2]): each.key
        for each in order
        if each.kind in ("contexts", "fit", "annotate", "intermediate")
    }


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"row": {"top_k": 5}}, {"intermediate"}),
        ({"row": {"max_words": 5}}, {"fit", "annotate", "intermediate"}),
        ({"row": {"loss": "start-end"}}, {"fit", "annotate", "intermediate"}),
        ({"row": {"overlap": True}}, {"fit", "annotate", "intermediate"}),
        ({"fit": {**FIT, "steps": 7}}, {"fit", "annotate", "intermediate"}),
        ({"row": {"train_on": ["wow"]}}, {"contexts", "fit", "annotate", "intermediate"}),
        ({"words": 50}, {"contexts", "fit", "annotate", "intermediate"}),
        ({"fit": {**FIT, "checkpoint_every": 1}}, set()),
    ],
)
def test_a_change_moves_the_keys_behind_it_only(made, change, expected):
    before, after = keys(made), keys(made, **change)
    assert {kind for kind, run in before if before[kind, run] != after[kind, run]} == expected


def test_every_run_fits_with_a_seed_of_its_own(made):
    found = keys(made, intermediate_seeds=2, seeds=[0, 1])
    for kind in ("fit", "annotate", "intermediate"):
        assert found[kind, "run 0"] == keys(made)[kind, "run 0"]
        assert found[kind, "run 0"] != found[kind, "run 1"]


def test_select_draws_the_top_k_in_proportion_to_exp_of_their_scores():
    scores = np.log(np.asarray([4.0, 2.0, 1.0, 1.0], np.float32)) - 3
    columns = {"candidates": as_spans([(5, 7), (0, 1), (9, 11), (2, 3)]), "scores": scores}
    passage = replace(small.ids(range(12)), columns=columns)
    rng = np.random.default_rng(0)
    three = find_plugin("policy", "supervised").plugin(("zsre",), top_k=3)
    drawn = Counter(int(three.select(passage, rng)[0, 0]) for _ in range(7000))
    assert drawn.keys() == {5, 0, 9}
    for first, share in ((5, 4 / 7), (0, 2 / 7), (9, 1 / 7)):
        assert abs(drawn[first] / 7000 - share) < 0.03
    one = find_plugin("policy", "supervised").plugin(("zsre",))
    assert one.select(passage, rng).tolist() == [[5, 7]]


SUPERVISED = {"name": "supervised", "train_on": ["triviaqa"]}
SPEC = Training(steps=2, precision="fp32", checkpoint_every=1e9)
QUICK = {
    "episode": {"candidates": 3},
    "outer": {"steps": 3, "episodes": 2, "warmup": 0, "eval_every": 1, "dev": 2, "lr": 0.01},
}


@dataclass(frozen=True)
class Answered:
    """How many contexts hold an answer."""

    count: int


@stage("tiny-bart")
def tiny_bart(params: Nothing, inputs, out, run):
    """Write a small BART and its tokenizer."""
    small.saved(out)


@stage("tiny-reader")
def tiny_reader(params: Nothing, inputs, out, run):
    """Write an untrained extractor."""
    extractor.build(small.bart().get_input_embeddings().weight, 0, 8).save(out)


@stage("tiny-contexts")
def tiny_contexts(params: Answered, inputs, out, run):
    """Write eight contexts, the first ones of which hold an answer."""
    rows = [
        {
            **{"id": f"q{i}", "group": f"q{i}", "source": f"Who was born in {1900 + i}?"},
            **{"targets": ["Anna"], "context": text},
            "answers": [[0, 4]] if i < params.count else [],
        }
        for i, text in enumerate(small.TEXTS)
    ]
    for split in ("train", "dev"):
        write_rows(out / f"{split}.jsonl", *rows)
    counts = {split: {"examples": len(rows)} for split in ("train", "dev")}
    (out / "counts.json").write_text(json.dumps({"task": "triviaqa", "counts": counts}))


def fitting(answered=8, **fields):
    """Return the fit stage of a row over tiny artifacts."""
    discovery.load_builtin("policy")
    given = {"train_on": ["triviaqa"], "init": SUPERVISED, **QUICK, **fields}
    made = policy_block({"name": "meta-learned", **given}, "row", {})
    own = {"policy": made.name, "fields": made.fields, "code": {}}
    params = FitParams(**own, spec=SPEC, how=Denoising())
    inputs = {
        **dict.fromkeys(("model", "tokenizer"), Stage("tiny-bart", "", Nothing())),
        "init": Stage("tiny-reader", "", Nothing()),
        "contexts-00": Stage("tiny-contexts", "", Answered(answered)),
    }
    return Stage("fit", made.label, params, inputs)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A store in which equal stages are computed once."""
    return Store(tmp_path_factory.mktemp("kept"))


def fitted(store, **settings) -> tuple[Path, dict]:
    made = fitting(**settings)
    outcome = execute([made], store)[made.key]
    assert outcome.error is None
    folder = store.path(made.key)
    return folder, json.loads((folder / "report.json").read_text())


def heads(folder):
    return extractor.Extractor.load(folder).heads.weight


def test_what_is_fitted_ranks_spans_for_annotate_and_select(kept, store):
    folder, report = fitted(kept)
    again, _ = fitted(store)
    weights = [(each / "extractor.safetensors").read_bytes() for each in (folder, again)]
    assert weights[0] == weights[1]
    assert report["training"]["work"] == {"episodes": 6}
    assert report["training"]["questions"] == 8
    assert set(report["dev"]["triviaqa"]["policy"]["hits"]) == {"1", "5", "20"}
    policy = discovery.instance("policy", "meta-learned", {"train_on": ["triviaqa"], "top_k": 3})
    columns = annotate(policy, small.passages(), folder)
    one = replace(small.passages()[0], columns={k: v[0] for k, v in columns.items()})
    drawn = {tuple(policy.select(one, generator(0, i, "it"))[0]) for i in range(50)}
    assert drawn <= {tuple(span) for span in columns["candidates"][0][:3]}
    assert len(drawn) > 1


@pytest.mark.parametrize("top_k", [1, 5])
def test_the_papers_form_chooses_as_its_start_does_at_equal_scores(kept, top_k):
    start = {**SUPERVISED, "loss": "start-end", "overlap": True}
    episode = {**QUICK["episode"], "draw": "start-end"}
    folder, _ = fitted(kept, init=start, overlap=True, episode=episode)
    given = {"train_on": ["triviaqa"], "overlap": True, "top_k": top_k}
    chosen = []
    for name in ("meta-learned", "supervised"):
        policy = discovery.instance("policy", name, given)
        columns = annotate(policy, small.passages(), folder)
        for i, one in enumerate(small.passages()):
            passage = replace(one, columns={name: rows[i] for name, rows in columns.items()})
            chosen += [policy.select(passage, generator(0, k, "it")).tolist() for k in range(9)]
    assert chosen[: len(chosen) // 2] == chosen[len(chosen) // 2 :]
    ranges = [sorted(spans[:5].tolist()) for spans in columns["candidates"]]
    assert any(b[0] < a[1] for each in ranges for a, b in pairwise(each))


def test_training_changes_the_policy_unless_the_initial_one_is_better(kept, caplog):
    caplog.set_level("INFO")
    initial = fitting().inputs["init"]
    execute([initial], kept)
    start = heads(kept.path(initial.key))
    unjudged = {**QUICK["outer"], "eval_every": 0}
    folder, report = fitted(kept, outer=unjudged)
    assert not torch.equal(heads(folder), start)
    assert not report["training"]["initial_stays"]
    assert "stays as `init` is" not in caplog.text
    _, report = fitted(kept, outer={**QUICK["outer"], "eval_every": 25})
    assert [step for step, _ in report["training"]["scores"]] == [3]
    folder, report = fitted(kept, outer={**QUICK["outer"], "steps": 0})
    assert report["training"]["initial_stays"]
    assert "stays as `init` is" in caplog.text
    assert torch.equal(heads(folder), start)


def test_a_start_on_the_same_tasks_needs_answers(kept):
    made = fitting(init="supervised", answered=1)
    error = str(execute([made], kept)[made.key].error)
    assert (
        "init: supervised would learn from triviaqa, where 12.5% of 8 contexts hold an answer, "
        "not 20%: start from a policy that is learned on another task" in error
    )
    assert len(error.splitlines()) == 1
    assert kept.get(made.key) is None
    fitted(kept, init="supervised", answered=2)
    fitted(kept, answered=1)


def experiment(*policies):
    given = {"model": "mini", "corpus": "world", "policies": ["none", *policies], "seeds": [0]}
    return make_experiment({**given, "tasks": ["triviaqa", "zsre"]}, "it", "it: ", ())


def fits(made):
    stages = topological(build(made).pretrained.values())
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


REPORTS = """
from dataclasses import dataclass
import numpy as np
from maskpolicy import policy

@policy("reports", target="spans")
@dataclass(frozen=True)
class Reports:
    train_on: tuple[str, ...]

    def fit(self, data, spec, out, tools):
        return {"mean": np.float32(0.5), "shape": np.arange(2), "n": {3: np.int64(4)}}

    def annotate(self, passages, fitted):
        return {"candidates": [passage.words[:0] for passage in passages]}

    def select(self, passage, rng):
        return passage.pieces[:1]
"""


@pytest.mark.parametrize(
    ("name", "returned", "says"),
    [
        ("nan", '{"loss": np.float32("nan")}', "fit returned NaN"),
        ("own", '(out / "report.json").write_text("{}")', "fit wrote report.json"),
    ],
)
def test_a_report_that_cannot_be_kept_names_the_policy(kept, tmp_path, name, returned, says):
    text = re.sub('{"mean".*', lambda _: returned, REPORTS.replace('"reports"', f'"{name}"'))
    (tmp_path / f"{name}.py").write_text(text)
    discovery.load_file(tmp_path / f"{name}.py")
    given = fitting()
    params = replace(given.params, policy=name, fields={"train_on": ["triviaqa"]})
    made = Stage("fit", "it", params, given.inputs)
    assert f"policy {name}: {says}" in str(execute([made], kept)[made.key].error)


def test_what_a_users_fit_reports_may_have_numbers_of_numpy(kept, tmp_path):
    (tmp_path / "reports.py").write_text(REPORTS)
    discovery.load_file(tmp_path / "reports.py")
    given = fitting()
    params = replace(given.params, policy="reports", fields={"train_on": ["triviaqa"]})
    made = Stage("fit", "it", params, given.inputs)
    assert execute([made], kept)[made.key].error is None
    report = json.loads((kept.path(made.key) / "report.json").read_text())
    assert report["training"] == {"mean": 0.5, "shape": [0, 1], "n": {"3": 4}}
