"""Simulated leaderboards that break what the test takes for granted: where its marks are wrong.

python -m benchmarks.simulation_of_limits [WHAT ..] --experiments 1000
general   a general model suits one row more than another, and all seeds share it or have their own
failing   a run learns or fails, so that runs differ by two values and not normally
subjects  the questions of several tasks are about the same subjects: coverage of mean differences
looks     seeds are added until there is a mark
pilots    plan says from two or three seeds what five would find: how often its range holds it
defaults  plan says without any run what seeds would find: how often a test finds that difference

docs/development/simulations.md holds the tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
from scipy.special import ndtri

from benchmarks.measure import at_least
from benchmarks.simulation import EASE_VARIANCE, LOGIT, SIZES, Design, batches, pairs, rates
from maskpolicy.leaderboard import power, stats

BOARD = Design(sizes=SIZES["40 x 3"])
LOOKS = (3, 5, 8)  # seeds at which somebody looks
SHAPES = ((1, 1), (3, 1), (3, 3), (7, 3))
FEW = ((1, 1), (2, 1), (3, 1), (3, 3), (7, 1), (7, 3), (21, 1))


def general(experiments: int) -> None:
    """Print the percent of boards with a mark where only a general model tells rows apart."""
    print("| seeds | rows x tasks | general | one model | a model for each seed |")
    for seeds, (rows, tasks), size in product((3, 5, 8), ((1, 1), (7, 3)), (0.0, 0.15, 0.3)):
        board = replace(BOARD, seeds=seeds, rows=rows, tasks=tasks, general=size, noise=0.1)
        found = [rates(replace(board, models=n), experiments)["ours"][0] for n in (1, seeds)]
        _row(seeds, f"{rows} x {tasks}", size, *(f"{100 * rate:.1f}" for rate in found))


def failing(experiments: int) -> None:
    """Print the percent of boards with a mark where runs learn or fail; the mean is the same.

    The baseline's runs do so too, or it is steady: it has no intermediate runs, as `none`. Before
    the slash any mark counts, behind it those without the note that they take normal runs.
    """
    print("| seeds | rows x tasks | baseline | fails 10% | 30% | 50% | 70% | 90% |")
    gap = 2.0
    for seeds, (rows, tasks), steady in product((3, 5, 8), FEW, (False, True)):
        cells = []
        for share in (0.1, 0.3, 0.5, 0.7, 0.9):
            # the two values of `failing` are 1 / sqrt(share (1 - share)) standard deviations apart
            noise = gap * np.sqrt(share * (1 - share))
            board = replace(BOARD, seeds=seeds, rows=rows, tasks=tasks, noise=noise)
            board = replace(board, failing=share, steady=steady)
            found = rates(board, experiments, ("ours", "careful"))
            cells.append(" / ".join(f"{100 * rate:.1f}" for rate, _ in found.values()))
        _row(seeds, f"{rows} x {tasks}", "steady" if steady else "as the rows", *cells)


def subjects(experiments: int) -> None:
    """Print the coverage of intervals of a row's mean difference over three tasks, in percent."""
    print("| seeds | taste | noise | subjects of each task its own | the same |")
    for seeds, taste, noise in product((3, 5, 8), (0.2, 0.6, 1.0), (0.05, 0.2)):
        board = replace(BOARD, seeds=seeds, rows=3, taste=taste, noise=noise)
        found = [coverage(replace(board, shared=same), experiments) for same in (False, True)]
        _row(seeds, taste, noise, *(f"{100 * rate:.1f}" for rate in found))


def coverage(design: Design, experiments: int) -> float:
    """Return how many intervals of mean differences over all tasks hold the true one, 0."""
    covered = 0.0
    for _, made in batches(design, experiments, 0):
        family = pairs(made, design.sizes)
        rows = [family[n : n + design.tasks] for n in range(0, len(family), design.tasks)]
        means = [stats.average(row) for row in rows]
        for mean, (error, freedom) in zip(means, stats.errors(means, family), strict=True):
            _, high = stats.interval(0.0, 1.0, freedom)
            covered += (np.abs(mean.mean) <= high * error).sum() / len(means)
    return covered / experiments


def looks(experiments: int) -> None:
    """Print the percent of boards with a mark at the last look alone, and at any look."""
    print("| rows x tasks | noise | eight seeds, one look | three, then five, then eight |")
    for (rows, tasks), noise in product(SHAPES, (0.05, 0.2, 0.4)):
        board = replace(BOARD, seeds=max(LOOKS), rows=rows, tasks=tasks, noise=noise)
        once = often = 0
        for _, made in batches(board, experiments, 0):
            marks = [
                stats.assess_family(pairs([a[:, :, :seeds] for a in made], board.sizes))
                for seeds in LOOKS
            ]
            marked = [(np.stack([v.p_holm for v in each]) < stats.LEVEL).any(0) for each in marks]
            once += marked[-1].sum()
            often += np.any(marked, axis=0).sum()
        _row(
            f"{rows} x {tasks}",
            noise,
            *(f"{100 * count / experiments:.1f}" for count in (once, often)),
        )


def pilots(experiments: int) -> None:
    """Print what `plan` says from small pilots that five seeds find, in points, for 30% scores.

    For 8 of 10 pilots it lies in the range of the fifth column. The last one has the percent of
    pilots whose own range holds the true value, 80 is the aim.
    """
    print("| seeds of the pilot | rows x tasks | noise | true | planned, 8 of 10 | in its range |")
    for seeds, (rows, tasks), noise in product((2, 3), ((1, 1), (3, 3), (7, 3)), (0.05, 0.2, 0.8)):
        board = replace(BOARD, seeds=seeds, rows=rows, tasks=tasks, noise=noise, ease=(-1, -1))
        find = partial(power.finds, rows=rows, tests=rows * tasks)
        known = []
        for _, made in batches(board, experiments, 0):
            family = pairs(made, board.sizes)
            spread = stats.run_noise(family)
            known += [_pilot(family[::tasks], spread, place) for place in range(len(spread))]
        interaction = float(np.mean([parts.interaction for parts, _ in known]))
        runs = float(np.mean([own for _, own in known]))
        true = find(replace(known[0][0], runs=runs, interaction=interaction), LOOKS[1])
        planned = [find(parts, LOOKS[1]) for parts, _ in known]
        ranges = [power.between(parts, LOOKS[1], find) for parts, _ in known]
        held = np.mean([ends is not None and ends[0] <= true <= ends[1] for ends in ranges])
        low, high = np.percentile(planned, [10, 90])
        shape, both = f"{rows} x {tasks}", f"{low:.1f} to {high:.1f}"
        _row(seeds, shape, noise, f"{true:.1f}", both, f"{100 * held:.0f}")


def defaults(experiments: int) -> None:
    """Print how often tests find the difference that `plan` says without runs, in percent.

    80 is the aim. Scores are near 30%, and questions are equally hard or differ.
    """
    print("| seeds | rows x tasks | examples | plan says | equally hard | they differ |")
    sizes = {"100": (1,) * 100, "300": (1,) * 300, "100 x 3": SIZES["100 x 3"]}
    for seeds, (rows, tasks), (name, size) in product((3, 5, 8), SHAPES, sizes.items()):
        groups = [str(group) for group, many in enumerate(size) for _ in range(many)]
        parts = power.defaults(power.NOISE**2, groups)
        points = power.finds(parts, seeds, rows, rows * tasks)
        found = []
        for varied in (0.0, 1.0):
            wide = np.sqrt(LOGIT**2 + varied**2 * EASE_VARIANCE)
            start, end = (
                float(wide * ndtri(share)) for share in (power.SHARE, power.SHARE + points / 100)
            )
            board = Design(seeds, rows, tasks, size, power.NOISE, fine=0.0, varied=varied)
            board = replace(board, ease=(start, start), gain=end - start)
            found.append(rates(board, experiments)["ours"][1])
        shares = (f"{100 * share:.0f}" for share in found)
        _row(seeds, f"{rows} x {tasks}", name, f"{points:.1f}", *shares)


def _pilot(
    row: Sequence[stats.Difference], noise: stats.Floats, place: int
) -> tuple[power.Parts, float]:
    """Return what `plan` takes of one simulated board, and the mean variance of its runs."""
    arrays = ("of_seed", "chance", "interaction", "slope")
    own = [each._replace(**{name: getattr(each, name)[place] for name in arrays}) for each in row]
    stored = [power.StoredDifference(each, (0.3, 0.3)) for each in own]
    runs = float(np.mean([each.runs for each in own]))
    return power.stored_parts(stored, float(noise[place])), runs


def _row(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|", flush=True)


KINDS: dict[str, Callable[[int], None]] = {
    "general": general,
    "failing": failing,
    "subjects": subjects,
    "looks": looks,
    "pilots": pilots,
    "defaults": defaults,
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", choices=(*KINDS, []), default=[])
    parser.add_argument("--experiments", type=at_least(1), default=1000)
    given = parser.parse_args()
    for name in given.what or KINDS:
        print(f"\n{name}: {KINDS[name].__doc__}")
        KINDS[name](given.experiments)
