"""`python -m benchmarks.paper_budget` computes what experiments/paper/ takes over one store.

Nothing is trained: the trainings of the files are counted, those that several files share once, and
their tokens divided by the rate that the option names.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maskpolicy.core import keys
from maskpolicy.experiment import yaml_file
from maskpolicy.experiment.budgets import Training, training_blocks
from maskpolicy.experiment.definition import ENCODER, NONE

_FOLDER = Path(__file__).resolve().parent.parent / "experiments" / "paper"
_FIRST = ("efficiency",)  # the others are in alphabetical order
_HOUR = 3600.0


@dataclass
class _Count:
    """Trainings of one experiment that no earlier one has, and the tokens that they read."""

    runs: int = 0
    finetunings: int = 0
    tokens: float = 0.0
    seen: set[str] = field(default_factory=set)  # of all experiments so far


def main() -> None:
    """Print the trainings, tokens and hours of each experiment; fits and answers are left out."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper_budget", description=__doc__)
    parser.add_argument("--training", type=float, required=True, help="tokens/s of a GPU")
    parser.add_argument("--passage", type=int, default=150, help="tokens of one, with its target")
    parser.add_argument("--block", type=int, default=512, help="the same for the encoder's text")
    parser.add_argument("--example", type=int, default=50, help="tokens of one of a task")
    options = parser.parse_args()
    paths = sorted(_FOLDER.glob("*.yaml"), key=lambda path: (path.stem not in _FIRST, path.stem))
    lines = ["| experiment | intermediate runs | fine-tunings | tokens | hours |"]
    lines.append("|---|" + "---:|" * 4)
    seen: set[str] = set()
    total = 0.0
    for path in paths:
        block = yaml_file.values(yaml_file.read_text(path), "")
        count = _counted(block, options, seen)
        hours = count.tokens / options.training / _HOUR
        total += hours
        cells = (path.stem, count.runs, count.finetunings, f"{count.tokens / 1e9:,.1f} billion")
        lines.append(f"| {' | '.join(map(str, cells))} | {hours:,.0f} |")
    sys.stdout.write("\n".join([*lines, f"| all | | | | {total:,.0f} |"]) + "\n")


def _counted(block: dict[str, Any], options: argparse.Namespace, seen: set[str]) -> _Count:
    """Return the trainings of an experiment that are not among those `seen`, and add them."""
    budgets = training_blocks(block, is_scratch=False, where="")
    passage = options.block if block["model"].get("kind") == ENCODER else options.passage
    count = _Count(seen=seen)
    where = keys.canonical([block["model"], block["corpus"]])
    runs, seeds = range(block["intermediate_seeds"]), block["seeds"]
    for row in block["policies"]:
        named = keys.canonical([where, row])
        staged = row != NONE
        for run in runs if staged else ():
            count.runs += _add(count, f"{named} {run}", budgets["intermediate"], passage)
        steps = (0, *(block.get("checkpoint_steps", ()) if staged else ()))
        cells = [(task, seed, step) for task in block["tasks"] for seed in seeds for step in steps]
        for cell in cells:
            place = keys.canonical([named, *cell])
            count.finetunings += _add(count, place, budgets["finetune"], options.example)
    return count


def _add(count: _Count, place: str, spec: Training, tokens: int) -> int:
    """Count a training with so many tokens an example; return 0 if it has been counted before."""
    if place in count.seen:
        return 0
    count.seen.add(place)
    count.tokens += spec.steps * spec.batch_size * tokens
    return 1


if __name__ == "__main__":
    main()
