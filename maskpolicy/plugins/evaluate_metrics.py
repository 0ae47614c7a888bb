"""Metrics of Hugging Face's `evaluate`, under names such as `evaluate:rouge:rougeL`."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from numbers import Real
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

from maskpolicy.core.errors import ConfigError, cause_at
from maskpolicy.core.metrics import Part, References
from maskpolicy.plugins import registry
from maskpolicy.plugins.registry import Registered

PREFIX = "evaluate:"
EACH = "@example"  # ends the name of a corpus metric that is computed on single examples
_OFFICIAL = "evaluate-metric"  # owner of the metrics that are named without one
_RIGHT = "the quick brown fox jumps over the lazy dog and then it sleeps"
_HALF = "yesterday the quick brown fox jumps"  # a prediction that is partly right
_BEST = (1.0, 100.0)  # what right answers score; the second is divided by 100


def module_of(metric: str) -> str:
    """Return NAME of `evaluate:NAME`, `evaluate:NAME:KEY` and either with EACH after it."""
    return metric.removeprefix(PREFIX).partition(":")[0].removesuffix(EACH)


def cached(metric: str) -> Path:
    """Return the newest script of `evaluate:NAME` in the local cache of `evaluate`.

    Raises ConfigError if there is none: nothing is downloaded.
    """
    from evaluate import config

    name = module_of(metric)
    if not name:
        raise ConfigError(f"metric {metric!r}: names no metric: write e.g. {PREFIX}rouge")
    place = Path(config.HF_MODULES_CACHE, "evaluate_modules", "metrics")
    folders = (f"{_OFFICIAL}--{name}", name.replace("/", "--"))
    file = f"{name.rpartition('/')[2]}.py"
    scripts = [path for folder in folders for path in place.glob(f"{folder}/*/{file}")]
    if not scripts:
        raise ConfigError(
            f"metric {metric!r}: {name} is not a local module nor in the cache of evaluate, where "
            f'python -c "import evaluate; evaluate.load({name!r})" puts it: nothing is downloaded'
        )
    return max(scripts, key=lambda path: path.stat().st_mtime)


def register_from(module: ModuleType, path: Path) -> None:
    """Register the metrics of `evaluate` that a plugin file defines, once for each of its figures.

    Their names are `evaluate:FILE:KEY`, and `evaluate:FILE` for the first figure. A figure that is
    not a mean over examples is a part without a test; with EACH after its name, it is computed on
    single examples. Raises ConfigError for a metric that fails on two texts, or has
    no figure that is 1 or 100 for right answers and lower for others.
    """
    if "evaluate" not in sys.modules:
        return
    from evaluate import EvaluationModule

    for value in list(vars(module).values()):
        is_metric = isinstance(value, type) and issubclass(value, EvaluationModule)
        if is_metric and value.__module__ == module.__name__:
            _register(value, path)


def _register(kind: type, path: Path) -> None:
    from datasets import DownloadConfig

    owner, _, own = path.parent.parent.name.partition("--")  # as the cache names its folders
    is_of_user = own == path.stem and owner != _OFFICIAL
    name = PREFIX + (f"{owner}/{own}" if is_of_user else path.stem)
    made: Any = None
    try:
        made = kind(keep_in_memory=True, seed=0)
        made.download_and_prepare(DownloadConfig(local_files_only=True))
        right = _figures(made, [_RIGHT, _HALF], [[_RIGHT], [_HALF]])
        both = _figures(made, [_RIGHT, _HALF], [[_RIGHT], [_RIGHT]])
        half = _one(made, _HALF, [_RIGHT])
    except Exception as error:
        hint = ": metrics of labels and numbers are maskpolicy's own (`maskpolicy list metrics`)"
        reads_text = made is None or "string" in str(made.features)
        raise ConfigError(
            f"metric {name} fails in a trial call on two texts and their answers: "
            f"{cause_at(error, str(path))}{'' if reads_text else hint}"
        ) from error
    _entry = partial(Registered, "metric", plugin=kind, facts={}, file=str(path), line=1)
    scales = {key: best for key in right for best in _BEST if math.isclose(right[key], best)}
    usable = [key for key in scales if both[key] < right[key]]
    if not usable:
        raise ConfigError(
            f"metric {name} gives {right} for right answers and {both} for others: a figure must "
            "be 1 or 100 for right answers, and lower for others"
        )
    for number, key in enumerate(usable):
        of_one = partial(_score_one, made, key, scales[key])
        whole = partial(_score_all, made, key, scales[key])
        is_mean = math.isclose(both[key], fmean((right[key], half[key])))
        for label in [f"{name}:{key}", *([name] if number == 0 else [])]:
            parts: dict[str, Part] = {} if is_mean else {key: whole}
            registry.add_metric(_entry(label), of_one, parts)
            if not is_mean:
                registry.add_metric(_entry(f"{label}{EACH}"), of_one, {})


def _figures(made: Any, predictions: Sequence[str], references: References) -> dict[str, float]:
    """Return the figures of all predictions by key, as the metric computes them."""
    most = max(map(len, references))
    padded = [[*given, *given[-1:] * (most - len(given))] for given in map(list, references)]
    asked = padded if _takes_several(made) else [given[0] for given in padded]
    return _numbers(made.compute(predictions=list(predictions), references=asked))


def _one(made: Any, prediction: str, answers: Sequence[str]) -> dict[str, float]:
    """Return the figures of a single prediction, without the table that `compute` writes."""
    from evaluate.module import temp_seed

    asked = [list(answers)] if _takes_several(made) else list(answers)
    single = "use_aggregator" in inspect.signature(made._compute).parameters  # of rouge: slow
    settings = {"use_aggregator": False} if single else {}
    with temp_seed(0):
        figures = made._compute(predictions=[prediction], references=asked, **settings)
    return _numbers({key: value[0] for key, value in figures.items()} if single else figures)


def _takes_several(made: Any) -> bool:
    """Return whether a metric takes a list of references for a prediction."""
    from datasets import Value

    forms = made.features if isinstance(made.features, list) else [made.features]
    return any(not isinstance(form["references"], Value) for form in forms)


def _numbers(figures: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in figures.items() if isinstance(value, Real)}


def _score_one(made: Any, key: str, best: float, prediction: str, answers: Sequence[str]) -> float:
    """Return a figure of one prediction with the best of its answers, from 0 to 1."""
    answers = answers or [""]
    several = [answers] if _takes_several(made) else [[answer] for answer in answers]
    return max(_bounded(_one(made, prediction, asked)[key], best) for asked in several)


def _score_all(
    made: Any, key: str, best: float, predictions: Sequence[str], references: References
) -> float:
    """Return a figure of all predictions, from 0 to 1."""
    asked = [list(answers) or [""] for answers in references]
    if not _takes_several(made):  # the answer that is nearest to each prediction
        for prediction, answers in zip(predictions, asked, strict=True):
            scores = [_score_one(made, key, best, prediction, [answer]) for answer in answers]
            answers[:] = [answers[scores.index(max(scores))]]
    return _bounded(_figures(made, predictions, asked)[key], best)


def _bounded(figure: float, best: float) -> float:
    """Return a figure divided by the best one; rounding never makes it exceed 1."""
    return min(figure / best, 1.0) if figure / best < 1 + 1e-6 else figure / best
