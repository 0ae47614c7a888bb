"""Stages that count what a policy asks for in a corpus, and condense it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from maskpolicy.data.corpus import sums
from maskpolicy.data.corpus.passages import Passages
from maskpolicy.data.corpus.shards import share
from maskpolicy.pipeline.graph.nodes import stage
from maskpolicy.pipeline.graph.stage_run import StageRun
from maskpolicy.pipeline.stages.params import CondenseParams, CountParams, CountShardParams
from maskpolicy.pipeline.stages.preparation import shard_folders
from maskpolicy.plugins import discovery
from maskpolicy.plugins.discovery import instance
from maskpolicy.plugins.statistics import Statistics


@stage("count-shard")
def count_shard(
    params: CountShardParams, inputs: Mapping[str, Path], out: Path, run: StageRun
) -> None:
    """Add up what a policy counts in a part of a corpus."""
    opened = Passages.open(inputs["corpus"])
    _count(params, opened[share(len(opened), params.number, params.count)], inputs, out, run)


@stage("count")
def count(params: CountParams, inputs: Mapping[str, Path], out: Path, run: StageRun) -> None:
    """Add up what a policy counts in a corpus, or merge the sums of its shards.

    inputs: "corpus", and "before", the sums of the pass before if it is not the first one.
    """
    if folders := shard_folders(inputs):
        sums.merge([Statistics.open(each) for each in folders], out, params.min_count)
    else:
        _count(params, Passages.open(inputs["corpus"]), inputs, out, run, params.min_count)


def _count(
    params: CondenseParams,
    passages: Passages,
    inputs: Mapping[str, Path],
    out: Path,
    run: StageRun,
    least: int = 1,
) -> None:
    discovery.load_files(run.local.plugins)
    policy = instance("policy", params.policy, params.fields)
    before = Statistics.open(inputs["before"]) if "before" in inputs else None
    once = Passages(passages.arrays, remembered=0)
    sums.count(policy, once, out, before, least, run.workers, run.progress)


@stage("condense")
def condense(params: CondenseParams, inputs: Mapping[str, Path], out: Path, run: StageRun) -> None:
    """Write what a policy makes of its sums.

    inputs: "count", and "contrast", the sums of the contrasting corpus, if the policy takes them.
    """
    discovery.load_files(run.local.plugins)
    policy = instance("policy", params.policy, params.fields)
    contrast = Statistics.open(inputs["contrast"]) if "contrast" in inputs else None
    sums.condense(policy, Statistics.open(inputs["count"]), contrast, out)
