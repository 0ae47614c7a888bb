"""Metrics of plugins: a function that scores one prediction, usable by every task."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import TypeAlias

from maskpolicy import keys
from maskpolicy.errors import ConfigError, MaskpolicyError, PluginError
from maskpolicy.metrics import METRICS, Metric, Part
from maskpolicy.plugins import plugin_errors, registry
from maskpolicy.plugins.discovery import code_digests, find_plugin

Scorer: TypeAlias = Callable[[str, Sequence[str]], float]
"""(prediction, the acceptable answers of its example) -> a score from 0 to 1."""


def metric(
    name: str,
    *,
    graded: bool = False,
    parts: Mapping[str, Part] | None = None,
    besides: Mapping[str, Part] | None = None,
) -> Callable[[Scorer], Scorer]:
    """Register a function as the metric `name`, which tasks state as `metric="NAME"`.

    The function takes a prediction and the acceptable answers of its example, and returns a score
    from 0 to 1; a task's score is the mean over its examples. State `graded=True` if a prediction
    can be partly right. `parts` and `besides` are figures of all predictions together, functions of
    (predictions, the answers of each): the score is the mean of `parts` where there are any, and
    `besides` are reported with it. Raises ConfigError for a name in use, and for a function that
    cannot be called so.
    """

    def decorate(score: Scorer) -> Scorer:
        if name in METRICS and name not in registry.names("metric"):
            raise ConfigError(f"metric {name!r} is one of maskpolicy's own: rename it")
        try:
            inspect.signature(score).bind("prediction", ["answer"])
        except TypeError as error:
            raise ConfigError(
                f"metric {name!r} cannot be called with (prediction, answers): {error}: write "
                "def NAME(prediction, answers) -> float"
            ) from None
        registry.register("metric", name)(score)
        title = name.replace("_", " ")
        METRICS[name] = Metric(
            name=name,
            score=_checked(name, score),
            title=title,
            parts=parts or {},
            besides=besides or {},
            graded=graded,
        )
        return score

    return decorate


def find_metric(name: str) -> Metric:
    """Return a metric by name; the version of a plugin's metric is a digest of its code.

    Raises ConfigError for an unknown name, with the choices.
    """
    if name not in METRICS:
        find_plugin("metric", name, others=tuple(METRICS))
    if name not in registry.names("metric"):
        return METRICS[name]
    digest = keys.digest(code_digests(find_plugin("metric", name)))
    return replace(METRICS[name], version=digest[:12])


def _checked(name: str, score: Scorer) -> Scorer:
    """Return a user's metric that names itself where it fails or gives no score."""

    @wraps(score)
    def checked(prediction: str, answers: Sequence[str]) -> float:
        try:
            value = float(score(prediction, answers))
        except MaskpolicyError:
            raise
        except Exception as error:
            file = registry.entry("metric", name).file
            raise PluginError(
                f"metric {name!r} failed: {plugin_errors.cause_at(error, file)}"
            ) from error
        if not 0 <= value <= 1:
            raise PluginError(
                f"metric {name!r} returned {value} for {prediction!r}: return a number from 0 to 1"
            )
        return value

    return checked
