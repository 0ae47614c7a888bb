"""Every file of a finished store, damaged in every way: noticed, and computed again."""

import random
from collections import Counter

import pytest
import tiny
from faults.corruption import DAMAGES, Corruption

from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.store.artifacts import Store


@pytest.mark.parametrize("how", DAMAGES)
def test_each_file_of_a_finished_store_is_noticed_and_computed_again(tmp_path, how):
    root, stages = tmp_path / "store", tiny.diamond()

    def again():
        outcomes = execute(tiny.diamond(), Store(root))
        return int(any(outcome.error for outcome in outcomes.values()))

    def results():
        return tiny.content(Store(root), [stages[3]])

    assert again() == 0
    trials, found = Corruption(root, tmp_path / "whole", results, again), Counter[str]()
    for index in range(len(trials.files)):
        found += trials.trial(index, how, random.Random(index))
    artifacts = [path for path in trials.files if path.parts[0] == "artifacts"]
    assert len(artifacts) == 9  # of three stages: c is transient
    assert found["noticed"] == len(artifacts)
