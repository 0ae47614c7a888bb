"""Metrics of users: of evaluate, beside their packages, and own ones; keys, and what is refused."""

import json
from statistics import fmean

import evaluate
import pytest
import sacrebleu
from refusals import refused
from rouge_score.rouge_scorer import RougeScorer

from maskpolicy.core import metrics
from maskpolicy.core.errors import ConfigError, PluginError
from maskpolicy.data import majority
from maskpolicy.experiment.parse import make_experiment
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import topological
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins import discovery, isolation, registry

MODULE = """
import evaluate
from datasets import Features, Sequence, Value

texts, lists = Value("string"), Sequence(Value("string"))


class Module(evaluate.Metric):
    def _info(self):
        features = {features}
        return evaluate.MetricInfo(
            description="", citation="", inputs_description="", features=features
        )

    def _compute(self, predictions, references{more}):
        {body}
"""
ONE, SEVERAL = (
    f'Features({{"predictions": texts, "references": {kind}}})' for kind in ("texts", "lists")
)
ROUGE = """from rouge_score import rouge_scorer, scoring
        scorer = rouge_scorer.RougeScorer(["rouge1", "rougeL"])
        total = scoring.BootstrapAggregator()
        singles = list(map(scorer.score_multi, references, predictions))
        for one in singles if use_aggregator else ():
            total.add_scores(one)
        if not use_aggregator:
            return {name: [one[name].fmeasure for one in singles] for name in singles[0]}
        return {name: score.mid.fmeasure for name, score in total.aggregate().items()}"""
BLEU = """import sacrebleu
        found = sacrebleu.corpus_{}(predictions, list(zip(*references)))
        return {{"score": found.score, "length": len(predictions), "more": [1.0]}}"""
EXACT = "return {'em': sum(map(str.__eq__, predictions, references)) / len(predictions)}"
PREDICTIONS = ["the cat sat on the mat today", "a dog", "it rained in Rome all day", "one"]
ANSWERS = [
    ["the cat sat on the mat", "a cat was on a mat"],
    ["the dog"],
    ["it rained in Rome for days", "rain fell all day in Rome", "all day it rained"],
    ["two"],
]
PAIRS = list(zip(PREDICTIONS, ANSWERS, strict=True))


@pytest.fixture
def write(tmp_path):
    """Write a module of evaluate; what it registers goes with the test."""

    def write(body, features=SEVERAL, name="mine"):
        path = tmp_path / f"{name}.py"
        more = ", use_aggregator=True" if "rouge" in body else ""  # as evaluate's own
        path.write_text(MODULE.format(features=features, body=body, more=more))
        return path

    yield write
    registry.forget(path.resolve() for path in tmp_path.rglob("*.py"))
    for folder in {path.parent.resolve() for path in tmp_path.rglob("*.py")}:
        isolation.forget(isolation.home_of(folder))


def total(name, predictions=PREDICTIONS, answers=ANSWERS):
    return metrics.total(discovery.find_metric(name).name, predictions, answers)


@pytest.mark.parametrize("key", ["rouge1", "rougeL"])
def test_rouge_is_that_of_its_package_on_each_example(write, key):
    discovery.load_file(write(ROUGE))
    found = total(f"evaluate:mine:{key}")
    scorer = RougeScorer([key])
    own = [scorer.score_multi(of, p)[key].fmeasure for p, of in PAIRS]
    assert list(found.scores) == pytest.approx(own)
    assert found.score == pytest.approx(fmean(own)) and found.mean is None
    if key == "rouge1":
        assert total("evaluate:mine").scores == found.scores
    assert "evaluate:mine@example" not in metrics.METRICS


@pytest.mark.parametrize("kind", ["bleu", "chrf"])
def test_a_corpus_metric_is_one_figure_unless_examples_are_asked_for(write, kind):
    discovery.load_file(write(BLEU.format(kind)))
    of_corpus = {"bleu": sacrebleu.corpus_bleu, "chrf": sacrebleu.corpus_chrf}[kind]
    padded = [[*given, *given[-1:] * 2][:3] for given in ANSWERS]
    found = total("evaluate:mine")
    assert found.score == pytest.approx(
        of_corpus(PREDICTIONS, list(zip(*padded, strict=True))).score / 100
    )
    each = total("evaluate:mine@example")
    own = [of_corpus([p], [[one] for one in of]) for p, of in PAIRS]
    assert list(each.scores) == pytest.approx([one.score / 100 for one in own])
    assert each.score == pytest.approx(fmean(each.scores)) != pytest.approx(found.score, abs=0.01)
    assert found.mean == pytest.approx(each.score) and each.mean is None
    assert "evaluate:mine:length" not in metrics.METRICS


def test_the_best_of_several_answers_counts_where_a_metric_takes_one(write):
    discovery.load_file(write(EXACT, ONE))
    assert total("evaluate:mine", ["a", "b"], [["c", "a"], ["c"]]).scores == [1.0, 0.0]
    discovery.load_file(write("return {'f': 1.0 * ''.join(predictions).startswith("
                              "''.join(references))}", ONE, "joined"))  # fmt: skip
    assert total("evaluate:joined", ["a", "b"], [["c", "a"], ["c", "b"]]).score == 1.0
    assert total("evaluate:mine", ["", "x"], [[], []]).scores == [1.0, 0.0]


def experiment(folder, metric, *plugins):
    for name in ("train", "test"):
        rows = [{"question": f"{name} {n}", "answer": f"Lima or {n}"} for n in range(9)]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = {"name": "table", "metrics": [metric], "data": str(folder)}
    given = {"model": "mini", "corpus": "world", "policies": ["none"], "tasks": [task]}
    return make_experiment({**given, "seeds": [0]}, "it", "it: ", (folder,), plugins)


def planned(folder, metric, *plugins):
    made = stages.build(experiment(folder, metric, *plugins))
    return {each.kind: each for each in topological(stages.choose_cells(made, ()).targets)}


def test_a_task_names_a_local_module_whose_code_is_in_the_keys(write, tmp_path):
    write(ROUGE)
    first = planned(tmp_path, "evaluate:mine.py:rouge1")
    assert "evaluate:mine:rouge1" in json.dumps(first["evaluate"].record())
    assert str(tmp_path) not in json.dumps(first["evaluate"].record())
    guesses = first["majority"]
    made = execute(topological([guesses]), Store(tmp_path / "store"))[guesses.key]
    assert made.error is None
    score = json.loads((made.artifact / majority.FILE).read_text())["score"]
    assert score == pytest.approx((1 + 8 * 2 / 3) / 9)  # one of nine answers, two words of others
    write(ROUGE.replace("fmeasure", "recall"))
    second = planned(tmp_path, "evaluate:mine.py:rouge1")
    changed = {kind for kind in first if first[kind].key != second[kind].key}
    assert changed == {"evaluate", "majority"}
    for other in ("mine.py:rouge3", "mine.py@example"):
        with pytest.raises(ConfigError, match="did you mean 'evaluate:mine"):
            experiment(tmp_path, f"evaluate:{other}")
    with pytest.raises(ConfigError, match="names no metric"):
        experiment(tmp_path, "evaluate:")


@pytest.mark.parametrize(
    ("name", "folder"), [("rouge", "evaluate-metric--rouge"), ("someone/rouge", "someone--rouge")]
)
def test_a_name_is_looked_up_in_the_local_cache_alone(write, tmp_path, monkeypatch, name, folder):
    monkeypatch.setattr(evaluate.config, "HF_MODULES_CACHE", str(tmp_path))
    metric = f"evaluate:{name}"
    with pytest.raises(ConfigError, match="in the cache of evaluate"):
        experiment(tmp_path, metric)
    place = tmp_path / "evaluate_modules" / "metrics" / folder / ("a" * 64)
    place.mkdir(parents=True)
    write(ROUGE).rename(place / "rouge.py")
    assert experiment(tmp_path, metric).tasks[0].metrics == (metric,)
    assert len(str(discovery.find_metric(metric).version)) == 12
    with pytest.raises(ConfigError, match=f"did you mean '{metric}:rougeL'"):
        experiment(tmp_path, f"{metric}:rougel")


REFUSED = {
    "return {'wer': 1.0 - (predictions == references)}": "must be 1 or 100 for right answers",
    "return {'n': 1.0}": "and lower for others",
    "return {'n': 'good'}": "gives {} for right answers",
    "return 1 / 0": "fails in a trial call on two texts and their answers: ZeroDivisionError",
    "return None": "fails in a trial call on two texts",
    "import none_such": "No module named 'none_such'",
}


@pytest.mark.parametrize("body", REFUSED)
def test_a_metric_that_cannot_score_is_refused_before_anything_is_computed(write, tmp_path, body):
    write(body, ONE)
    assert REFUSED[body] in refused(experiment, tmp_path, "evaluate:mine.py")
    assert "evaluate:mine" not in metrics.METRICS


def test_metrics_of_labels_are_refused_and_failures_later_name_the_metric(write, tmp_path):
    write("return {'a': 1.0}", ONE.replace("texts", "Value('int32')"))
    with pytest.raises(ConfigError, match="metrics of labels and numbers are maskpolicy's own"):
        experiment(tmp_path, "evaluate:mine.py")
    write("return {'a': nothing}", ONE, "typo")
    with pytest.raises(ConfigError, match=r"name 'nothing' is not defined \(.*typo.py:\d+\)$"):
        experiment(tmp_path, "evaluate:typo.py")
    body = f"assert 'x' not in predictions, 'no x'\n        {EXACT}"
    discovery.load_file(write(body, ONE, "later"))
    with pytest.raises(PluginError, match=r"'evaluate:later' failed: .*no x"):
        total("evaluate:later", ["x"], [["y"]])


METRIC = """
from maskpolicy.plugins.registry import metric


@metric({name!r})
def score(prediction, answers):
    \"\"\"Compare the last words.\"\"\"
    {body}
"""
LAST = "return float(any(prediction.split()[-1:] == one.split()[-1:] for one in answers))"


def own(folder, body=LAST):
    """Write the file of a metric; return its path."""
    (folder / "my_metric.py").write_text(METRIC.format(body=body, name="last_word"))
    return folder / "my_metric.py"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return 2", "returned 2.0 for 'a'"),
        ("return float('nan')", "returned nan"),
        ("return None", "failed: TypeError"),
        ("return 1 / 0", "my_metric.py:8"),
    ],
)
@pytest.mark.usefixtures("write")
def test_a_metric_that_fails_is_named(tmp_path, body, said):
    discovery.load_files([own(tmp_path, body)], fresh=True)
    line = refused(metrics.total, "last_word", ["a"], [["b"]], error=PluginError)
    assert "last_word" in line and said in line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (METRIC.format(name="f1", body=LAST), "'f1' is one of maskpolicy's own"),
        (METRIC.format(name="", body=LAST), "needs a name"),
        (
            METRIC.replace("def score(prediction, answers)", "class Score").format(
                name="mine", body="x = 1"
            ),
            "(prediction, answers)",
        ),
        (METRIC.replace(", answers", "").format(name="mine", body=LAST), "def NAME"),
    ],
)
@pytest.mark.usefixtures("write")
def test_what_is_no_metric_is_refused(tmp_path, text, said):
    path = own(tmp_path)
    path.write_text(text)
    assert said in refused(discovery.load_file, path)


@pytest.mark.usefixtures("write")
@pytest.mark.parametrize("body", ["return 7", "return None", "return undefined"])
def test_an_own_metric_that_is_broken_is_refused_before_anything_is_computed(tmp_path, body):
    with pytest.raises(ConfigError, match=r"metric 'last_word' .*\(a trial call\)"):
        planned(tmp_path, "last_word", own(tmp_path, body))
    body = "return int(answers[0])"  # an answer that only this trial has
    assert planned(tmp_path, "last_word", own(tmp_path, body))


@pytest.mark.usefixtures("write")
def test_the_code_of_an_own_metric_is_in_the_keys_of_the_scores(tmp_path):
    one, two = (planned(tmp_path, "last_word", own(tmp_path, b)) for b in (LAST, "return 0"))
    assert {kind for kind in one if one[kind].key != two[kind].key} == {"evaluate", "majority"}


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("parts", "55.3", r"returned 55\.3 for all predictions: return a number from -1 to 1"),
        ("parts", "1 / 0", r"metric 'whole' failed: ZeroDivisionError.*\(.*whole\.py:4\)"),
        ("besides", "float('nan')", "returned nan for all predictions: return a finite number"),
        ("besides", "12.5", None),
        ("parts", "-0.2", None),
    ],
)
@pytest.mark.usefixtures("write")
def test_figures_of_all_predictions_are_checked_as_scores_are(tmp_path, kind, value, said):
    path = tmp_path / "whole.py"
    path.write_text(
        "from maskpolicy import metric\n\ndef figure(predictions, answers):\n"
        f"    return {value}\n\n@metric('whole', {kind}={{'figure': figure}})\n"
        "def whole(prediction, answers):\n    return 1\n"
    )
    discovery.load_file(path)
    call = ("whole", ["a"], [["b"]])
    if said:
        refused(metrics.total, *call, error=PluginError, match=said)
    else:
        found = metrics.total(*call)
        assert float(value) in (found.score, found.parts.get("figure"))


def test_a_metric_below_a_decorator_of_another_file_is_in_its_own(tmp_path):
    path = tmp_path / "decorated.py"
    path.write_text(
        "import contextlib, functools\nfrom maskpolicy import metric\n\n"
        '@metric("remembered")\n@functools.lru_cache\ndef one(prediction, answers):\n    return 1\n'
        '@metric("within")\n@contextlib.contextmanager(lambda: (yield))()\n'
        "def two(prediction, answers):\n    return 1\n"
    )
    discovery.load_file(path)
    for name in ("remembered", "within"):
        assert {*discovery.code_digests(registry.entry("metric", name))} == {"decorated.py"}
    (tmp_path / "called.py").write_text(
        "import functools\nfrom maskpolicy import metric\n"
        'metric("called")(functools.partial(lambda prediction, answers: 1))\n'
    )
    match = "metric 'called' must be a function"
    refused(discovery.load_file, tmp_path / "called.py", match=match)
