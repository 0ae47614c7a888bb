"""`python -m benchmarks.budget` computes what a large experiment takes on 1, 8 and 64 machines.

Nothing is trained: the graph of experiments/nine-tasks.yaml, with seven policies and five seeds, is
scheduled with the measured rates that the options name.
"""

from __future__ import annotations

import argparse
import heapq
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from maskpolicy.experiment.parse import load_experiment
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.nodes import Stage, topological, users_of

_FILE = Path(__file__).resolve().parent.parent / "experiments" / "nine-tasks.yaml"
_POLICIES = (
    "[none, original, random, salient-span, {name: supervised, train_on: [triviaqa]}, "
    "{name: supervised, label: supervised top 5, train_on: [triviaqa], top_k: 5}, "
    "{name: meta-learned, train_on: [triviaqa]}]"
)
_KEYS = (f"policies={_POLICIES}", "seeds=[0,1,2,3,4]", "intermediate_seeds=5")
_MACHINES = (1, 8, 64)
_HOUR = 3600.0


def main() -> None:
    """Print the table of hours, and what it rests on."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.budget", description=__doc__)
    parser.add_argument("--passages", type=int, default=21_015_324, help="of the corpus (DPR's)")
    parser.add_argument("--corpus", type=float, required=True, help="passages/s of a machine")
    parser.add_argument("--annotate", type=float, required=True, help="passages/s of a machine")
    parser.add_argument("--training", type=float, required=True, help="tokens/s of a machine")
    parser.add_argument("--answers", type=float, help="answers/s of a machine; none: not counted")
    parser.add_argument("--steps", type=int, default=20_000, help="of an intermediate training")
    parser.add_argument("--tokens", type=int, default=64 * 150, help="of one of its steps")
    parser.add_argument("--finetune-steps", type=int, default=3_000)
    parser.add_argument("--finetune-tokens", type=int, default=32 * 50, help="of one of its steps")
    parser.add_argument("--questions", type=int, default=5_000, help="of a task's test split")
    parser.add_argument("--shard", type=int, default=100_000, help="passages of a shard")
    options = parser.parse_args()
    experiment = load_experiment(_FILE, _KEYS)
    order = topological(stages.build(experiment).stages)
    pieces = -(-options.passages // options.shard)
    hours = _hours(options)
    counts = Counter(stage.kind for stage in order if not _is_of_world(stage))
    lines = ["| stages | count | hours of one machine each | hours in all |", "|---|---|---|---|"]
    for kind, each in hours.items():
        if counts[kind]:
            total = counts[kind] * each
            lines.append(f"| {kind} | {counts[kind]} | {each:,.2f} | {total:,.1f} |")
    lines += ["", "| machines | hours | speed-up |", "|---|---|---|"]
    spans = {machines: _makespan(order, hours, machines, pieces) for machines in _MACHINES}
    for machines, span in spans.items():
        lines.append(f"| {machines} | {span:,.1f} | {spans[1] / span:.1f} |")
    sys.stdout.write("\n".join(lines) + "\n")


def _is_of_world(stage: Stage) -> bool:
    """Return whether a stage only replaces the general pre-training of a downloaded model."""
    return "general" in (stage.kind, stage.label)


def _hours(options: argparse.Namespace) -> dict[str, float]:
    """Return the hours that one stage of each kind takes; kinds that are left out take none."""
    intermediate = options.steps * options.tokens / options.training
    finetune = options.finetune_steps * options.finetune_tokens / options.training
    seconds = {
        "corpus": options.passages / options.corpus,
        "annotate": options.passages / options.annotate,
        "fit": finetune,
        "intermediate": intermediate,
        "finetune": finetune,
    }
    if options.answers:
        seconds["evaluate"] = options.questions / options.answers
    return {kind: value / _HOUR for kind, value in seconds.items()}


def _makespan(order: list[Stage], hours: Mapping[str, float], machines: int, pieces: int) -> float:
    """Return the hours until all stages are done, the longest remaining path first.

    `corpus` and `annotate` are computed in `pieces` shards, each by whichever machine is free.
    """
    users = users_of(order)
    cost = {s.key: 0.0 if _is_of_world(s) else hours.get(s.kind, 0.0) for s in order}
    parts = {s.key: pieces if s.kind in ("corpus", "annotate") else 1 for s in order}
    rest: dict[str, float] = {}
    for stage in reversed(order):
        longest = max((rest[user.key] for user in users[stage.key]), default=0.0)
        rest[stage.key] = longest + cost[stage.key] / parts[stage.key]
    missing = {s.key: len({needed.key for needed in s.inputs.values()}) for s in order}
    ready = [
        (-rest[key], key, part) for key in missing if not missing[key] for part in range(parts[key])
    ]
    heapq.heapify(ready)
    left = dict(parts)
    running: list[tuple[float, str]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < machines:
            _, key, _ = heapq.heappop(ready)
            heapq.heappush(running, (now + cost[key] / parts[key], key))
        now, key = heapq.heappop(running)
        left[key] -= 1
        for user in users[key] if not left[key] else ():
            missing[user.key] -= 1
            for part in range(parts[user.key]) if not missing[user.key] else ():
                heapq.heappush(ready, (-rest[user.key], user.key, part))
    return now


if __name__ == "__main__":
    main()
