"""`python -m benchmarks.paper_budget` computes what experiments/paper/ takes over one store.

Nothing is trained and no data is read: the trainings of the files are counted, those that several
files share once. `maskpolicy plan --hardware` counts the stages of one file by the same rates.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.measure import one_line_of_error
from maskpolicy.core import keys
from maskpolicy.core.types import Denoising
from maskpolicy.experiment import yaml_file
from maskpolicy.experiment.budgets import Training, training_blocks
from maskpolicy.experiment.definition import NONE, SEQ2SEQ
from maskpolicy.pipeline.graph.preflight import Machine, flop

_FOLDER = Path(__file__).resolve().parent.parent / "experiments" / "paper"
_FIRST = ("efficiency",)  # the others are in alphabetical order
_OWN = ("forty-hours",)  # counted alone: it is another run
_TRAIN = {  # official train examples
    **{"cola": 8_551, "sst2": 67_349, "mrpc": 3_668, "stsb": 5_749, "qqp": 363_846},
    **{"mnli": 392_702, "qnli": 104_743, "rte": 2_490, "squad_v2": 130_319},
}


@dataclass
class _Count:
    """Trainings of one experiment that no earlier one has, and what they compute."""

    runs: Counter[str] = field(default_factory=Counter)  # intermediate, and fine-tunings
    flop: float = 0.0

    def add(self, place: str, seen: set[str], kind: str, amount: float) -> None:
        """Count a training that is not among those `seen`, and add it to them."""
        if place not in seen:
            seen.add(place)
            self.runs[kind] += 1
            self.flop += amount


@one_line_of_error()
def main() -> None:
    """Print the trainings and GPU-hours of each experiment; fits and answers are left out."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper_budget", description=__doc__)
    parser.add_argument("--hardware", default="h100", help="as of `maskpolicy plan`")
    machine = Machine.of(parser.parse_args().hardware)
    paths = sorted(_FOLDER.glob("*.yaml"), key=lambda path: (path.stem not in _FIRST, path.stem))
    lines = ["| experiment | intermediate runs | fine-tunings | FLOP | hours |"]
    lines.append("|---|" + "---:|" * 4)
    seen: set[str] = set()
    total = 0.0
    for path in paths:
        block = yaml_file.values(yaml_file.read_text(path), "")
        is_own = path.stem in _OWN
        count = counted(block, set() if is_own else seen)
        hours = machine.hours(count.flop)
        total += 0 if is_own else hours
        cells = (path.stem, count.runs["intermediate"], count.runs["finetune"])
        lines.append(f"| {' | '.join(map(str, cells))} | {count.flop:.1e} | {hours:,.1f} |")
    without = f"all but {', '.join(_OWN)}"
    sys.stdout.write("\n".join([*lines, f"| {without} | | | | {total:,.0f} |"]) + "\n")


def counted(block: dict[str, Any], seen: set[str]) -> _Count:
    """Return the trainings of an experiment that are not among those `seen`, and add them."""
    budgets = training_blocks(block, is_scratch=False, where="")
    kind, corpus = block["model"].get("kind", SEQ2SEQ), {"words": 100, **block["corpus"]}
    count, where = _Count(), keys.canonical([block["model"], block["corpus"]])
    tuned = math.prod(len(each) for each in block.get("tune", {}).values() if each != "dev")
    for row in block["policies"]:
        own = {key: row[key] for key in row if key != "label"} if isinstance(row, dict) else row
        named, staged = keys.canonical([where, own]), row != NONE
        how = _objective(row)
        for run in range(block["intermediate_seeds"]) if staged else ():
            work = flop(budgets["intermediate"], how, corpus, kind)
            count.add(f"{named} {run}", seen, "intermediate", work)
        steps = (0, *(block.get("checkpoint_steps", ()) if staged else ()))
        for task, seed, step, choice in (
            (task, seed, step, choice)
            for task in block["tasks"]
            for seed in block["seeds"]
            for step in steps
            for choice in range(tuned)
        ):
            work = flop(_finetuning(budgets["finetune"], task), None, corpus, kind)
            place = keys.canonical([named, task, seed, step, choice])
            count.add(place, seen, "finetune", work)
    return count


def _objective(row: Any) -> Denoising:
    """Return what matters for the cost of a row: its targets, and MAE-LM's decoder."""
    own = row if isinstance(row, dict) else {"name": row}
    target = own.get("target", "full" if own["name"] == "original" else "spans")
    shallow = own.get("shallow_decoder", False)
    return Denoising(
        target=target, mask_exclusion=own.get("mask_exclusion", 0.0), shallow_decoder=shallow
    )


def _finetuning(usual: Training, task: Any) -> Training:
    """Return the budget of a task's fine-tuning, epochs turned into steps."""
    own = dict(task.get("finetune", {})) if isinstance(task, dict) else {}
    epochs = own.pop("epochs", None)
    spec = replace(usual, **own)
    if epochs is None:
        return spec
    return replace(spec, steps=math.ceil(epochs * _TRAIN[task["name"]] / spec.batch_size))


if __name__ == "__main__":
    main()
