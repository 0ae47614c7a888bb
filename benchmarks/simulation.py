"""Simulated leaderboards: how often a test marks differences that are not there, and that are.

python -m benchmarks.simulation WHAT:
boards --seeds 3 --tests 21 --experiments 400   one kind of board
size    the share of boards without a difference that carry a mark
power   the share of true differences that are marked
worlds --worlds 3 --seeds 3   the same of `analyze worlds`, several runs

docs/development/simulations.md holds the tables. A board has one baseline that all rows share;
every answer is right or wrong; a policy varies between runs, and suits some groups of examples more
than others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, polygamma
from scipy.stats import t as student

from benchmarks.measure import at_least
from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.comparisons import FEWEST
from maskpolicy.leaderboard.stats import LEVEL, Difference

Floats: TypeAlias = NDArray[Any]
OF_EXAMPLES, OF_GROUPS = 1.0, 0.8  # by which the ease of examples and of groups differs, in logits
EASE_VARIANCE = OF_EXAMPLES**2 + OF_GROUPS**2
LOGIT = 1.702  # logits in one standard deviation of the normal curve nearest to the logistic
AT_ONCE = 4_000_000  # answers in memory
RESAMPLES = 199  # of a bootstrap
SIZES: Mapping[str, tuple[int, ...]] = {
    "100 x 3": (3,) * 100,
    "40 x 3": (3,) * 40,
    "400 x 1": (1,) * 400,
    "100 x 1": (1,) * 100,
    "8 x 20": (20,) * 8,
    "8, 2 to 60": (2, 4, 6, 10, 15, 25, 40, 60),
    "20, 1 to 40": (1,) * 8 + (5,) * 8 + (40,) * 4,
    "40, 1 to 15": (1,) * 20 + (4,) * 12 + (15,) * 8,
}
EASE = (-2.5, 1.5)  # of tasks with scores of 12 to 76%, on average 42%
EASES: Mapping[str, tuple[float, float]] = {"5%": (-4.0, -3.0), "0.5%": (-6.0, -5.0)}  # by score
LOW = ((1, 1), (1, 9), (1, 20), (3, 3))  # rows and tasks of boards with low scores
SAME = "all alike"
LOUDER = (
    "one row",
    "one task",
    "one cell",
    "baseline",
    "quiet baseline",
    "every cell",
    "every row",
)
KINDS = ("tests", "groups", "louder", "shapes", "scores")
QUIET, LOUD = 0.05, 0.4  # run noise where one row, task or the baseline differs from the others


@dataclass(frozen=True)
class Design:
    """A kind of board; noise and differences are in logits."""

    seeds: int = 3
    rows: int = 7  # besides the baseline
    tasks: int = 3
    sizes: tuple[int, ...] = SIZES["100 x 3"]  # examples in each group
    noise: float = 0.2  # standard deviation between intermediate runs
    fine: float = 0.05  # between fine-tunings of one model
    taste: float = 0.2  # by which a row suits a group
    common: float = 0.5  # share of the variance between runs that all tasks have in common
    louder: str = SAME  # whose runs differ by LOUD, all others' by QUIET
    gain: float = 0.0  # true difference of the first half of the rows
    ease: tuple[float, float] = EASE  # of a task, drawn between these
    varied: float = 1.0  # by how much the ease of examples and groups differs; 0: equally hard
    general: float = 0.0  # standard deviation of what a general model adds to a row
    models: int = 1  # general models: one for all seeds, or as many as there are seeds
    failing: float | None = None  # chance that a run fails; its noise then has these two values
    steady: bool = False  # single answers of the baseline fail so, and not whole runs
    shared: bool = False  # the groups of all tasks are the same subjects
    repeated: bool = False  # the tasks are steps of a training, with the same examples and tastes

    @property
    def better(self) -> int:
        """How many rows truly differ from the baseline."""
        return (self.rows + 1) // 2 if self.gain else 0


def draw(rng: np.random.Generator, design: Design, boards: int) -> list[Floats]:
    """Return for each task the answers (boards, 1 + rows, seeds, examples), the baseline first.

    Thresholds are normal, so rows whose runs differ more have the same expected score exactly.
    """
    arms, tasks, seeds = 1 + design.rows, design.tasks, design.seeds
    spread = _spread(rng, design, boards)
    noise = np.sqrt(design.common) * rng.normal(size=(boards, arms, 1, seeds))
    noise = noise + np.sqrt(1 - design.common) * rng.normal(size=(boards, arms, tasks, seeds))
    if design.failing is not None:
        noise = _learnt_or_failed(rng, design.failing, (boards, arms, 1, seeds))
        noise = np.repeat(noise, tasks, 2) * (np.arange(arms) >= design.steady)[:, None, None]
    noise = spread[..., None] * noise + design.fine * rng.normal(size=noise.shape)
    noise = noise + design.general * rng.normal(size=(boards, arms, 1, design.models))
    variance = spread**2 * (design.failing is None) + design.fine**2 + design.taste**2
    wide = np.sqrt(1 + (variance + design.general**2) / LOGIT**2)
    groups = np.repeat(np.arange(len(design.sizes)), design.sizes)
    gains = np.where(np.arange(arms) > design.better, 0, design.gain) * (np.arange(arms) > 0)
    made = []
    tastes = (boards, arms, len(design.sizes))
    subjects = rng.normal(0, design.taste, tastes) if design.shared else None
    for task in range(tasks):
        if task == 0 or not design.repeated:
            ease = rng.uniform(*design.ease, (boards, 1))
            harder = rng.normal(0, OF_EXAMPLES, (boards, len(groups)))
            harder = harder + rng.normal(0, OF_GROUPS, (boards, len(design.sizes)))[:, groups]
            ease = ease + design.varied * harder
            taste = rng.normal(0, design.taste, tastes) if subjects is None else subjects
            suits = taste[..., groups]
        drift = wide[:, :, task, None] * (ease[:, None] + gains[:, None]) + suits
        drift = drift[:, :, None] + noise[:, :, task, :, None]
        if design.steady and design.failing is not None:
            answer = _learnt_or_failed(rng, design.failing, (boards, seeds, len(groups)))
            drift[:, 0] += design.noise * answer
        chance = (drift / LOGIT).astype(np.float32)
        answers = rng.standard_normal(chance.shape, dtype=np.float32) < chance
        made.append(answers.astype(np.float32))
    return made


def _learnt_or_failed(rng: np.random.Generator, failing: float, shape: tuple[int, ...]) -> Floats:
    """Return noise of mean 0 and variance 1 that has two values, the lower one for a failure."""
    low, high = -np.sqrt((1 - failing) / failing), np.sqrt(failing / (1 - failing))
    return np.where(rng.random(shape) < failing, low, high)


def _spread(rng: np.random.Generator, design: Design, boards: int) -> Floats:
    """Return the noise between runs of each row on each task (boards, 1 + rows, tasks)."""
    shape = (boards, 1 + design.rows, design.tasks)
    spread = np.full(shape, design.noise if design.louder == SAME else QUIET)
    places: dict[str, Any] = {
        "one row": np.s_[:, 1],
        "one task": np.s_[:, :, 0],
        "one cell": np.s_[:, 1, 0],
        "baseline": np.s_[:, 0],
    }
    if design.louder in places:
        spread[places[design.louder]] = LOUD
    elif design.louder == "quiet baseline":  # as `none`, which has no intermediate stage
        spread[:], spread[:, 0] = design.noise, 0
    elif design.louder == "every cell":
        spread = design.noise * np.exp(rng.normal(0, 0.7, shape))
    elif design.louder == "every row":
        spread = design.noise * np.exp(rng.normal(0, 0.7, (boards, 1 + design.rows, 1)))
        spread = np.broadcast_to(spread, shape)
    elif design.louder != SAME:
        raise ValueError(design.louder)
    return spread


def pairs(made: Sequence[Floats], sizes: Sequence[int]) -> list[Difference]:
    """Return every row's difference to the baseline on every task, row by row."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    rows = range(1, made[0].shape[1])
    return [
        stats.pair(answers[:, row], answers[:, 0], groups, (str(row), "baseline"))
        for row in rows
        for answers in made
    ]


Method: TypeAlias = Callable[[Sequence[Difference]], Floats]
"""From the pairs of a family to their adjusted p (tests, boards)."""


def ours(family: Sequence[Difference]) -> Floats:
    """Return what the page marks by."""
    return np.stack([verdict.p_holm for verdict in stats.assess_family(family)])


def satterthwaite(family: Sequence[Difference]) -> Floats:
    """Each pair by its own noise; degrees of freedom between those of seeds and of groups."""
    return _student(family, [each.runs for each in family], np.inf)


def bounded(family: Sequence[Difference]) -> Floats:
    """The same, with no more degrees of freedom than the seeds have."""
    return _student(family, [each.runs for each in family], 1)


def floored(family: Sequence[Difference]) -> Floats:
    """The same, where noise is at least what single examples explain."""
    return _student(family, [np.maximum(each.runs, each.chance) for each in family], 1)


def moderated(family: Sequence[Difference]) -> Floats:
    """Shrink noise to the family's, as far as the family is found to be alike (Smyth 2004)."""
    free = family[0].seeds - 1
    whole = _of_family(family)
    own = np.stack([each.runs for each in family])
    logs = np.log(np.maximum(own / np.maximum(whole, 1e-9), 1e-3))
    beyond = logs.var(0, ddof=1) - polygamma(1, free / 2) if len(family) > 1 else np.full(1, 9.0)
    half = np.exp(np.linspace(np.log(0.05), np.log(500), 4000))
    prior = 2 * np.interp(-beyond, -polygamma(1, half), half)
    centre = logs.mean(0) - digamma(free / 2) + np.log(free / 2)
    centre = np.exp(centre + digamma(prior / 2) - np.log(prior / 2))
    shrunk = (free * own + prior * centre * whole) / (free + prior)
    return _student(family, list(shrunk), 1 + prior / free)


def sign_flips(family: Sequence[Difference], of_seeds: Floats) -> Floats:
    """Exchange the two rows in whole seeds, in all cells together; largest |t| of the family.

    `of_seeds` (tests, boards, seeds) are the seeds' mean differences.
    """
    seeds = of_seeds.shape[-1]
    signs = np.array(list(product((1.0, -1.0), repeat=seeds)))
    length = np.sqrt((of_seeds**2).sum(-1))
    length = np.where(length == 0, 1, length)
    highest = (np.abs(of_seeds @ signs.T) / length[..., None]).max(0)
    found = np.abs(of_seeds.sum(-1)) / length
    return (highest >= found[..., None] - 1e-9).mean(-1)


def bootstrap(rng: np.random.Generator, made: Sequence[Floats], sizes: Sequence[int]) -> Floats:
    """Draw seeds and groups anew; studentised, largest |t| of the family (tests, boards)."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    tables = np.stack([stats.by_group(a[:, 1:] - a[:, :1], groups) for a in made], 2)
    weights = np.array(sizes) / sum(sizes)
    boards, seeds = len(tables), tables.shape[-2]
    mean, error = _mean_error(tables, np.broadcast_to(weights, (boards, 1, 1, len(sizes))))
    highest = np.empty((RESAMPLES, boards))
    for number in range(RESAMPLES):
        which = rng.integers(seeds, size=(boards, 1, 1, seeds, 1))
        where = rng.integers(len(sizes), size=(boards, 1, 1, 1, len(sizes)))
        again = np.take_along_axis(np.take_along_axis(tables, which, -2), where, -1)
        drawn = weights[where[..., 0, :]]
        other, its_error = _mean_error(again, drawn / drawn.sum(-1, keepdims=True))
        highest[number] = (np.abs(other - mean) / np.maximum(its_error, 1e-9)).max((1, 2))
    size = np.where(mean == 0, 0, np.abs(mean) / np.maximum(error, 1e-9))
    above = (highest[:, :, None, None] >= size).sum(0)
    return ((1 + above) / (1 + RESAMPLES)).reshape(boards, -1).T


def _mean_error(tables: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return mean and standard error of tables (.., seeds, groups) with both factors random."""
    seeds, groups = tables.shape[-2:]
    of_seed, of_group = (tables * weights[..., None, :]).sum(-1), tables.mean(-2)
    mean = of_seed.mean(-1)
    rest = tables - of_group[..., None, :] - of_seed[..., None] + mean[..., None, None]
    chance = ((rest**2).sum(-2) * weights**2).sum(-1) / (seeds - 1)
    between = ((of_group - mean[..., None]) ** 2 * weights**2).sum(-1)
    taste = np.maximum(0, between - chance / seeds) * groups / (groups - 1)
    return mean, np.sqrt(of_seed.var(-1, ddof=1) / seeds + taste)


def _of_family(family: Sequence[Difference]) -> Floats:
    noise = stats.run_noise(family)
    return np.stack([noise * each.slope + each.chance for each in family])


def _student(family: Sequence[Difference], runs: Sequence[Floats], most: Floats | float) -> Floats:
    """Return Holm's p by Satterthwaite's degrees of freedom, at most `most` times the seeds'."""
    found = []
    for each, own in zip(family, runs, strict=True):
        free = each.seeds - 1
        parts = own / each.seeds, each.interaction
        own_free = free if np.ndim(most) == 0 else free * np.asarray(most)
        with np.errstate(divide="ignore", invalid="ignore"):
            freedom = sum(parts) ** 2 / (
                parts[0] ** 2 / own_free + parts[1] ** 2 / (each.groups - 1)
            )
            size = np.where(each.mean == 0, 0, np.abs(each.mean) / np.sqrt(sum(parts)))
        freedom = np.where(np.isfinite(freedom), freedom, free)
        found.append(2 * student.sf(size, np.minimum(freedom, most * free)))
    return stats.holm(np.stack(found))


def careful(family: Sequence[Difference]) -> Floats:
    """Return what the page marks by without a note that it takes runs that vary normally."""
    verdicts = stats.assess_family(family), stats.assess_family(family, least=stats.FAILING)
    return np.maximum(*(np.stack([verdict.p_holm for verdict in each]) for each in verdicts))


METHODS: Mapping[str, Method] = {
    "ours": ours,
    "careful": careful,
    "satterthwaite": satterthwaite,
    "bounded": bounded,
    "floored": floored,
    "moderated": moderated,
}
RESAMPLED = ("sign flips", "bootstrap")


def batches(
    design: Design, experiments: int, seed: int, together: int = 1
) -> Iterator[tuple[Any, list[Floats]]]:
    """Yield boards in batches that fit into memory, each with a generator of its own.

    So many boards `together` are in one batch.
    """
    answers = (1 + design.rows) * design.tasks * design.seeds * sum(design.sizes)
    at_once = max(1, min(experiments, AT_ONCE // answers) // together) * together
    for number, start in enumerate(range(0, experiments, at_once)):
        rng = np.random.default_rng([seed, number])
        yield rng, draw(rng, design, min(at_once, experiments - start))


def rates(
    design: Design, experiments: int, names: Sequence[str] = ("ours",), seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Return by method the share of boards with a false mark, and of true differences marked."""
    wrong, right = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    true = design.better * design.tasks
    for rng, made in batches(design, experiments, seed):
        family = pairs(made, design.sizes)
        for name in names:
            marked = _adjusted(name, family, made, design.sizes, rng) < LEVEL
            wrong[name] += marked[true:].any(0).sum()
            right[name] += marked[:true].mean(0).sum() if true else 0
    return {name: (wrong[name] / experiments, right[name] / experiments) for name in names}


def _adjusted(
    name: str, family: Sequence[Difference], made: Sequence[Floats], sizes: Sequence[int], rng: Any
) -> Floats:
    if name == "bootstrap":
        return bootstrap(rng, made, sizes)
    if name == "sign flips":
        each = [
            (answers[:, row] - answers[:, 0]).mean(-1, dtype=np.float64)
            for row in range(1, made[0].shape[1])
            for answers in made
        ]
        return sign_flips(family, np.stack(each))
    return METHODS[name](family)


def shape(tests: int) -> tuple[int, int]:
    """Return rows and tasks of a board with so many tests, as square as it can be."""
    tasks = max(n for n in range(1, int(tests**0.5) + 1) if tests % n == 0)
    return tests // tasks, tasks


def grid() -> Iterator[tuple[str, Design]]:
    """Yield the boards of the table of sizes, each with what it varies."""
    for seeds in (3, 5, 8):
        for tests, noise in product((1, 9, 21, 81), (0.0, 0.2, 0.4)):
            rows, tasks = shape(tests)
            yield "tests", Design(seeds, rows, tasks, sizes=SIZES["40 x 3"], noise=noise)
        for sizes, taste in product(SIZES.values(), (0.0, 0.4)):
            yield "groups", Design(seeds, 7, 3, sizes=sizes, noise=0.1, taste=taste)
        board = Design(seeds, sizes=SIZES["40 x 3"])
        for who, common in product(LOUDER, (0.5, 1.0)):
            yield "louder", replace(board, louder=who, common=common)
        for (rows, tasks), who in product(
            ((1, 9), (2, 4), (3, 7), (9, 9)), ("one row", "one task")
        ):
            yield "shapes", replace(board, rows=rows, tasks=tasks, louder=who)
        for ease, (rows, tasks), noise in product(EASES.values(), LOW, (0.0, 0.2)):
            yield "scores", Design(seeds, rows, tasks, SIZES["100 x 1"], noise, ease=ease)


def size(experiments: int, names: Sequence[str], kinds: Sequence[str]) -> None:
    """Print, in percent, how many boards without any true difference carry a mark."""
    about = "| seeds | rows x tasks | groups | noise | taste | common | score |"
    print(about, " | ".join(names), "|")
    scores = {EASE: "42%"} | {ease: score for score, ease in EASES.items()}
    for kind, design in grid():
        if kind in kinds:
            found = rates(design, experiments, names)
            groups = next(name for name, sizes in SIZES.items() if sizes == design.sizes)
            noise = design.noise if design.louder == SAME else design.louder
            board = f"{design.rows} x {design.tasks}"
            cells = [str(design.seeds), board, groups, str(noise)]
            cells += [str(design.taste), str(design.common), scores[design.ease]]
            cells += [f"{100 * found[name][0]:.1f}" for name in names]
            print("|", " | ".join(cells), "|", flush=True)


def power(experiments: int, names: Sequence[str]) -> None:
    """Print, in percent, how many true differences of so many logits are marked."""
    print("| seeds | rows x tasks | noise | gain |", " | ".join(names), "|")
    for seeds, noise, gain in product((3, 5, 8), (0.05, 0.2, 0.4, 0.8), (0.3, 0.6, 1.2)):
        for rows, tasks in ((1, 1), (7, 3)):
            design = Design(seeds, rows, tasks, noise=noise, gain=gain)
            found = rates(design, experiments, names)
            cells = [f"{100 * found[name][1]:.0f}" for name in names]
            print(f"| {seeds} | {rows} x {tasks} | {noise} | {gain} |", " | ".join(cells), "|")


def world_rates(
    design: Design, worlds: int, spread: float, experiments: int, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Return what `rates` does for experiments that are run in several worlds.

    In each world a row is better or worse on a task by a normal draw of `spread` (a share of the
    score). "nested" counts each world once, as `analyze worlds` does; "seeds" takes the seeds of
    all worlds as if each had been drawn alone.
    """
    marked: dict[str, list[Floats]] = {"nested": [], "seeds": []}
    for rng, made in batches(design, experiments * worlds, seed, worlds):
        of_seed = np.stack(
            [
                (answers[:, row] - answers[:, 0]).mean(-1, dtype=np.float64)
                for row in range(1, 1 + design.rows)
                for answers in made
            ]
        )
        of_seed = of_seed + spread * rng.normal(size=(*of_seed.shape[:2], 1))
        values = of_seed.reshape(len(of_seed), -1, worlds, design.seeds)
        units = {"nested": values.mean(-1), "seeds": values.reshape(*values.shape[:2], -1)}
        for name, each in units.items():
            verdicts = stats.replicated(each)
            marked[name].append(np.stack([verdict.p_holm for verdict in verdicts]) < LEVEL)
    true = design.better * design.tasks
    both = {name: np.concatenate(each, axis=1) for name, each in marked.items()}
    return {
        name: (each[true:].any(0).mean(), each[:true].mean() if true else 0.0)
        for name, each in both.items()
    }


def in_worlds(experiments: int, seeds: int, worlds: int) -> None:
    """Print, in percent, marks without a true difference, and those of true differences."""
    print("| worlds | rows x tasks | spread | gain | nested | seeds |")
    for tests, spread, gain in product((1, 21), (0.0, 0.03), (0.0, 0.6, 1.2)):
        rows, tasks = shape(tests)
        design = Design(seeds, rows, tasks, SIZES["40 x 3"], gain=gain)
        found = world_rates(design, worlds, spread, experiments)
        cells = [f"{100 * found[name][gain > 0]:.1f}" for name in ("nested", "seeds")]
        print(f"| {worlds} | {rows} x {tasks} | {spread} | {gain} |", " | ".join(cells), "|")


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = parser.add_subparsers(dest="what", required=True)
    boards, sizes, powers, several = map(kinds.add_parser, ("boards", "size", "power", "worlds"))
    for each in (boards, sizes, powers, several):
        each.add_argument("--experiments", type=at_least(1), default=400)
    for each in (boards, sizes, powers):
        each.add_argument("--methods", nargs="+", choices=(*METHODS, *RESAMPLED))
    boards.add_argument("--seeds", type=at_least(FEWEST), default=3)  # with fewer: no test
    boards.add_argument("--tests", type=at_least(1), default=21)
    boards.add_argument("--groups", choices=SIZES, default="100 x 3")
    boards.add_argument("--noise", type=float, default=0.2)
    boards.add_argument("--louder", choices=(SAME, *LOUDER), default=SAME)
    boards.add_argument("--seed", type=at_least(0), default=0, help="of the simulation itself")
    sizes.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    several.add_argument("--seeds", type=at_least(1), default=3)
    several.add_argument("--worlds", type=at_least(FEWEST), default=3)
    given = parser.parse_args()
    if given.what == "size":
        size(given.experiments, given.methods or tuple(METHODS), given.kinds)
    elif given.what == "worlds":
        in_worlds(given.experiments, given.seeds, given.worlds)
    elif given.what == "power":
        power(given.experiments, given.methods or tuple(METHODS))
    else:
        rows, tasks = shape(given.tests)
        design = Design(given.seeds, rows, tasks, SIZES[given.groups], given.noise)
        design = replace(design, louder=given.louder)
        for name, (wrong, _) in rates(
            design, given.experiments, given.methods or ("ours",), given.seed
        ).items():
            print(json.dumps({"method": name, **_about(design), "experiments": given.experiments}))
            print(json.dumps({"marked": wrong}))


def _about(design: Design) -> dict[str, Any]:
    return {"seeds": design.seeds, "rows": design.rows, "tasks": design.tasks}


if __name__ == "__main__":
    _main()
