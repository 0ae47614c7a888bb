"""The metrics as an `evaluate.Metric`: AnswerMetric(config_name="f1", keep_in_memory=True).

Importing this module imports `evaluate`, which takes seconds: maskpolicy itself does not.
"""

from __future__ import annotations

from typing import Any

import evaluate
from datasets import Features, Sequence, Value

from maskpolicy.core import metrics

_INPUTS = """
    predictions: list of generated texts.
    references: for each prediction, the list of its acceptable answers.
"""


class AnswerMetric(evaluate.Metric):
    """The score of all examples, in percent, by the metric `config_name`."""

    def _info(self) -> evaluate.MetricInfo:
        stated = metrics.metric(self.config_name)
        return evaluate.MetricInfo(
            description=f"{stated.title}, in percent, version {stated.version}",
            citation="",
            inputs_description=_INPUTS,
            features=Features(
                {"predictions": Value("string"), "references": Sequence(Value("string"))}
            ),
        )

    def _compute(self, predictions: list[str], references: list[list[str]]) -> dict[str, Any]:
        total = metrics.total(self.config_name, predictions, references)
        values = {self.config_name: total.score, **total.parts}
        return {name: 100 * value for name, value in values.items()}
