"""Boards of given scores: their tests by hand and beside those of runs, their words, bad lines."""

import json
import re
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import polars
import pytest
from refusals import refused
from scipy.stats import t as student
from scipy.stats import ttest_rel
from statsmodels.stats.multitest import multipletests

import maskpolicy as mp
from benchmarks.simulation_of_given_scores import KINDS, rates
from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.leaderboard import report, stats
from maskpolicy.leaderboard.comparisons import SAME
from maskpolicy.leaderboard.given_scores import build_board
from maskpolicy.leaderboard.page import render, save_forms
from maskpolicy.leaderboard.stored_board import read_board

SYSTEMS, TASKS = ("base", "near", "far"), ("nli", "qa")


def scores(seeds=1, examples=40, groups=0, tasks=TASKS):
    """Return a frame with scores of SYSTEMS, and seeds and groups of examples if there are any."""
    rng = np.random.default_rng(0)
    lines = [
        {"system": system, "task": task, "example": example, "score": float(score), "seed": seed}
        for task in tasks
        for place, system in enumerate(SYSTEMS)
        for seed in range(seeds)
        for example, score in enumerate(rng.random(examples) < 0.4 + 0.2 * place)
    ]
    frame = pd.DataFrame(lines)
    if groups:
        frame["group"] = frame["task"] + (frame["example"] % groups).astype(str)
    return frame if seeds > 1 else frame.drop(columns="seed")


def array(frame, system, task):
    """Return a system's scores (seeds, examples) on a task."""
    of = frame[(frame.system == system) & (frame.task == task)]
    return of.score.to_numpy().reshape(-1, of.example.nunique())


def without(frame, system, task, seeds=None, example=3):
    """Return a frame in which a system lacks an example of a task, in all seeds or in some."""
    gone = (frame.system == system) & (frame.task == task) & (frame.example == example)
    return frame[~(gone & frame.seed.isin(seeds) if seeds else gone)]


def compared(board, column):
    """Return the comparisons of all pairs on a column by the pair's systems."""
    return {frozenset((v.row, v.other)): v.comparison for v in board.pairs if v.column == column}


def row_of(board, system):
    return next(row for row in board.rows if row.label == system)


def test_without_seeds_the_test_is_the_paired_t_test_of_examples_and_holm_over_all():
    frame = scores()
    board = build_board(frame)
    cells = [
        (row.scores[task].comparison, array(frame, row.label, task), array(frame, "base", task))
        for row in board.rows
        for task in TASKS
        if not row.is_baseline
    ]
    found = [ttest_rel(mine[0], base[0]) for _, mine, base in cells]
    means = [row.averages["all tasks"] for row in board.rows if not row.is_baseline]
    assert [one.estimate.p for one, _, _ in cells] == pytest.approx([each.pvalue for each in found])
    alone = [each.pvalue for each in found] + [mean.estimate.p for mean in means]
    adjusted = multipletests(alone, method="holm")[1].tolist()
    assert [one.p_holm for one, _, _ in cells] == pytest.approx(adjusted[:4])
    assert [mean.p_holm for mean in means] == pytest.approx(adjusted[4:])
    for (one, _, _), each in zip(cells, found, strict=True):
        low, high = each.confidence_interval()
        assert (one.estimate.low, one.estimate.high) == pytest.approx((100 * low, 100 * high))


@pytest.mark.parametrize(
    ("seeds", "groups", "apart"),
    [(1, 0, False), (1, 0, True), (1, 10, True), (3, 0, False), (4, 7, True)],
)
def test_all_pairs_are_tested_as_those_of_runs(seeds, groups, apart):
    frame = scores(seeds, groups=groups)
    if apart:
        frame["example"] = frame["task"] + frame["example"].astype(str)
    board = build_board(frame)
    numbers = np.arange(40) % groups if groups else np.arange(40)
    pairs = {
        (task, *both): stats.pair(
            array(frame, both[0], task), array(frame, both[1], task), numbers, both
        )
        for task in TASKS
        for both in combinations(SYSTEMS, 2)
    }
    means = {both: [pairs[task, *both] for task in TASKS] for both in combinations(SYSTEMS, 2)}
    averages = [stats.average(each, apart=apart) for each in means.values()]
    verdicts = stats.assess_family([*pairs.values(), *averages])
    places = [*pairs, *(("mean of all tasks", *both) for both in means)]
    for (column, *both), verdict in zip(places, verdicts, strict=True):
        one = compared(board, column)[frozenset(both)]
        assert one.estimate.p == pytest.approx(float(verdict.p))
        assert one.p_holm == pytest.approx(float(verdict.p_holm))


def test_a_mean_over_tasks_adds_variances_unless_tasks_share_groups():
    frame = scores(groups=10)
    differences = [array(frame, "far", task)[0] - array(frame, "base", task)[0] for task in TASKS]
    variances = [np.var(each.reshape(4, 10).mean(0), ddof=1) / 10 for each in differences]
    mean = np.mean(differences)
    for shares, error in ((False, np.sqrt(sum(variances)) / 2), (True, np.sqrt(variances).mean())):
        group = frame["group"].str[-1] if shares else frame["group"]
        board = build_board(frame.assign(group=group))
        test = compared(board, "mean of all tasks")[frozenset(("far", "base"))].estimate
        assert test.p == pytest.approx(2 * student.sf(mean / error, 9))


def test_the_words_above_the_table_say_what_the_tests_generalise_to(tmp_path):
    held = report.to_markdown(build_board(scores()))
    assert held.startswith("The tests generalise to other examples of the same kind, and to noth")
    drawn, two = build_board(scores(3)), build_board(scores(2))
    text, page = report.to_markdown(drawn), render(drawn)
    assert text.startswith("The tests generalise to other seeds and other examples")
    assert "With 3 seeds, this board marks a true difference to base with a probability of" in text
    assert f"% {drawn.given.above[0]}" in report.to_latex(drawn)
    assert page.index(drawn.given.above[0]) < page.index('<table id="board"')
    assert "masked" not in page[: page.index("<script>")].split("</style>")[1]
    need = "need 3 complete ones that two systems have (base has 2 of 2 seeds on nli, near"
    assert need in two.given.above[0]
    assert "over examples, after Holm" in render(two)
    assert "over seeds and examples, after Holm" in text


def test_a_run_is_the_mean_of_its_seeds():
    frame = scores(6)
    runs = frame.assign(run=frame.seed // 2)
    means = frame.groupby(["system", "task", "example", frame.seed // 2], sort=False).score.mean()
    whole = build_board(means.reset_index())
    board = build_board(runs)
    for form in (report.to_markdown, report.to_csv, report.to_latex, render):
        text = re.sub(r"<(script|style).*?</\1>|<[^>]*>", "", form(board), flags=re.DOTALL)
        assert "seed" not in text
    pairs = zip(board.pairs, whole.pairs, strict=True)
    assert all(a.comparison.estimate.p == b.comparison.estimate.p for a, b in pairs)


def test_a_pair_is_compared_on_the_seeds_that_both_systems_have():
    frame, of_pair = scores(4), lambda name: frozenset((name, "base"))
    whole, lacking = build_board(frame), build_board(without(frame, "near", "qa", seeds=(1,)))
    columns = (*TASKS, "mean of all tasks")
    for column, seeds in zip(columns, (4, 3, 3), strict=True):
        found, before = compared(lacking, column), compared(whole, column)
        assert (found[of_pair("near")].seeds, found[of_pair("far")].seeds) == (seeds, 4)
        far, of_all = found[of_pair("far")].estimate, before[of_pair("far")].estimate
        assert far.difference == pytest.approx(of_all.difference)
    near = [array(frame, "near", task)[[0, 2, 3]] for task in TASKS]
    base = [array(frame, "base", task)[[0, 2, 3]] for task in TASKS]
    mean = compared(lacking, columns[2])[of_pair("near")].estimate
    assert mean.difference == pytest.approx(100 * (np.mean(near) - np.mean(base)), abs=1e-9)
    row = row_of(lacking, "near")
    assert [*row.scores["qa"].seeds] == [0, 2, 3] and [*row.scores["nli"].seeds] == [0, 1, 2, 3]
    said = "near, qa, seed 1: has 39 of 40 examples (--shared compares the 39 that all have)"
    assert said in lacking.notes
    said = "two systems are compared on the seeds that both have (near has 3 of 4 seeds on qa)"
    assert said in lacking.given.above[0]
    assert lacking.given.above[1].startswith("With 3 to 4 seeds, this board")
    gone = build_board(frame[(frame.system != "near") | (frame.seed > 0)])
    assert [*row_of(gone, "near").scores["qa"].seeds] == [1, 2, 3]


def test_a_pair_with_too_few_seeds_is_not_tested_and_the_others_are():
    frame = without(scores(3), "near", "qa", seeds=(1,))
    board = build_board(frame)
    whole = build_board(frame[frame.system != "near"])
    for column in (*TASKS, "mean of all tasks"):
        found, tests = compared(board, column), column == "nli"
        for other in ("base", "far"):
            assert (found[frozenset(("near", other))].estimate is not None) == tests
        far, alone = (compared(each, column)[frozenset(("far", "base"))] for each in (board, whole))
        assert far.seeds == 3 and far.estimate.difference == alone.estimate.difference
    reason = "2 complete seeds in both systems: a test needs 3"
    assert f"qa (near), mean of all tasks (near): {reason}" in board.untested
    ranks = {row.label: report.ranks_of(board, row) for row in board.rows}
    assert ranks["near"][1:] == ["no test", "no test"]
    assert not row_of(board, "near").averages["all tasks"].estimate


@pytest.mark.parametrize(
    ("near", "far", "common"),
    [("bcde", "efgh", (3, 0)), ("abcd", "efgh", (4, 0)), ("cdef", "efgh", ())],
)
def test_seeds_are_paired_by_name(near, far, common):
    frame = scores(4)
    names = {"base": "abcd", "near": near, "far": far}
    named = [names[s][seed] for s, seed in zip(frame.system, frame.seed, strict=True)]
    board = build_board(frame.assign(seed=named))
    found = compared(board, "qa")
    pairs = [found[frozenset(("base", name))] for name in ("near", "far")]
    assert [each.seeds for each in pairs] == [*(common or (1, 1))]
    first = "a, 1 is b, 2 is c" if common else "number 1 of each system, 1 is number 2 of each"
    assert board.given.facts["seeds"].startswith(f"4 (0 is {first}")
    said = "systems have seeds of different names"
    if not common:
        assert f"two systems have ({said}), so seeds are averaged" in board.given.above[0]
        return
    assert f"two systems are compared on the seeds that both have ({said})" in board.given.above[0]
    assert board.best()["qa"] == {"far"}
    lacks = "0 complete seeds in both systems: a test needs 3"
    assert f"qa (far), mean of all tasks (far): {lacks}" in "; ".join(board.untested)
    mine, base = (array(frame, name, "qa") for name in ("near", "base"))
    shift = 4 - common[0]
    by_name = mine[: common[0]].mean() - base[shift:].mean()
    assert pairs[0].estimate.difference == pytest.approx(100 * by_name)


def test_seeds_1_and_01_are_two():
    frame = scores(3)
    board = build_board(frame.assign(seed=frame.seed.map({0: "1", 1: "01", 2: "2"})))
    assert all([*row.scores["qa"].seeds] == [0, 1, 2] for row in board.rows)
    far = frame.seed.astype(str).where(frame.system != "far", frame.seed.astype(float).astype(str))
    assert report.to_json(build_board(frame.assign(seed=far))) == report.to_json(build_board(frame))


def test_a_system_that_lacks_examples_has_no_score_there_unless_they_are_left_out():
    frame = scores()
    lacking = without(frame, "far", "qa")
    board = build_board(lacking)
    far = row_of(board, "far")
    assert far.scores["qa"] is None and far.scores["nli"] is not None
    assert "far, qa: has 39 of 40 examples (--shared compares the 39 that all have)" in board.notes
    cut = build_board(frame[~((frame.task == "qa") & (frame.example == 3))])
    shared = build_board(lacking, shared=True)
    assert shared.notes[-1] == "left out, as some system lacks them: 1 of 40 examples of qa"
    whole = replace(shared, notes=shared.notes[:-1])
    assert report.to_json(whole) == report.to_json(cut)


def test_equal_systems_and_tasks_of_one_group_have_no_test():
    frame = scores(tasks=("qa",))
    twin = frame[frame.system == "base"].assign(system="twin")
    board = build_board(pd.concat([frame, twin]))
    assert compared(board, "qa")[frozenset(("base", "twin"))].reason is not None
    assert sum(v.comparison.estimate is not None for v in board.pairs) == 5
    one = build_board(frame.assign(group="g"))
    assert not one.pairs and "no test on qa: all examples share one group" in one.notes
    no_test = "This board has no test, so it says nothing about other examples: "
    assert one.given.above == (f"{no_test}all examples share one group.",)
    assert "two groups of examples" in str(report.to_pairs(one))
    alone = build_board(frame[frame.system == "base"])
    assert alone.given.above == (f"{no_test}there is only one system.",)
    assert "there is only one row" in str(report.to_pairs(alone))
    assert one.given.facts["examples"] == "qa 40 in 1 group"
    alike = build_board(frame.assign(score=1.0))
    assert {str(each) for each in alike.standings["qa"].values()} == {"1-3"}
    assert alike.untested == (f"qa: {SAME}",)


def test_two_groups_with_one_difference_have_at_least_the_error_of_their_examples():
    """Both documents have the difference 0.2, so that their variance is 0."""
    right = {"base": (5, 4), "near": (7, 6), "far": (7, 5)}
    lines = [
        {"system": name, "task": "qa", "example": f"{d} {n}", "group": d, "score": float(n < count)}
        for name, counts in right.items()
        for d, count in enumerate(counts)
        for n in range(10)
    ]
    board = build_board(pd.DataFrame(lines))
    test = compared(board, "qa")[frozenset(("near", "base"))].estimate
    variances = [0.2 * 0.8 / 9] * 2  # of the mean of ten differences, of which two are 1
    assert test.p == pytest.approx(2 * student.sf(0.2 / np.sqrt(sum(variances) / 4), 1))
    whole = build_board(pd.DataFrame(lines).assign(score=lambda each: each.system == "near"))
    assert compared(whole, "qa")[frozenset(("near", "base"))].reason == SAME


def test_a_board_of_many_systems_and_two_groups_is_read_again(tmp_path):
    rng = np.random.default_rng(0)
    lines = [
        {"system": s, "task": t, "example": n, "group": n % 2, "score": float(rng.random() < 0.5)}
        for t in range(10)
        for s in range(12)
        for n in range(20)
    ]
    board = build_board(pd.DataFrame(lines))
    save_forms(board, tmp_path)
    assert len(read_board(tmp_path).pairs) == len(board.pairs) == 11 * 6 * 11
    tested = [v.comparison.estimate for v in board.pairs if v.comparison.estimate]
    assert max(one.detectable for one in tested) == 1000


@pytest.mark.parametrize(("p_holm", "marked"), [(0.049997, True), (0.050003, False)])
def test_a_mark_at_the_boundary_is_read_again_as_it_was_written(tmp_path, p_holm, marked):
    board = build_board(scores())
    at_it = (replace(v, comparison=replace(v.comparison, p_holm=p_holm)) for v in board.pairs)
    pairs = [
        moved if v.comparison.is_significant else v
        for v, moved in zip(board.pairs, at_it, strict=True)
    ]
    board = replace(board, pairs=tuple(pairs))
    save_forms(board, tmp_path)
    again = read_board(tmp_path)
    for each in (board, again):
        assert any(v.comparison.is_significant for v in each.pairs) == marked
    assert again.standings == board.standings
    assert report.to_json(again)["pairs"] == report.to_json(board)["pairs"]


def test_where_shared_cannot_help_a_line_says_so():
    frame = scores()
    half = (frame.task == "qa") & ((frame.system == "far") == (frame.example < 20))
    board = build_board(frame[~half])
    because = "no example has scores of all systems"
    (said,) = (note for note in board.notes if "20 of 40 examples" in note)
    assert "--shared" not in said
    shared = build_board(frame[~half], shared=True)
    assert shared.tasks == ("nli",) and f"left out: qa: {because}" in shared.notes
    for is_shared in (False, True):
        with pytest.raises(DataError, match="leave systems out, or use --shared if some examples"):
            build_board(frame[~half & (frame.task == "qa")], shared=is_shared)


def test_a_baseline_without_a_score_leaves_a_line():
    board = build_board(without(scores(), "base", "qa"))
    assert all(row.scores["qa"] is None or row.scores["qa"].delta is None for row in board.rows)
    note = "no difference on qa and on the mean of all tasks: base, the baseline, has no complete"
    assert any(each.startswith(note) for each in board.notes)


def test_the_highest_score_is_that_of_own_seeds_where_their_names_pair_nothing(tmp_path):
    seeds = {"A": [50, 50, 50, 90, 90], "B": [60, 60, 60]}
    board = build_board(pd.DataFrame(_seeds(seeds, str)))
    save_forms(board, tmp_path)
    for each in (board, read_board(tmp_path)):
        assert each.best() == {"qa": {"A"}} and not each.given.paired
    apart = {"A": [90, 50], "B": [None, 55]}  # one seed in common: seeds are averaged
    board = build_board(pd.DataFrame(_seeds(apart, lambda name: "")))
    assert board.best() == {"qa": {"A"}} and not board.given.paired
    seeds = {"A": [78, 80, 81, 81], "B": [79, 75, 75, 75], "C": [40]}  # C shares one seed
    assert build_board(pd.DataFrame(_seeds(seeds, lambda name: ""))).best() == {"qa": {"A"}}
    thirds = {"A": [100 / 3] * 3, "B": [0, 100 / 3, 200 / 3]}
    save_forms(build_board(pd.DataFrame(_seeds(thirds, lambda name: ""))), tmp_path)
    assert read_board(tmp_path).best() == {"qa": set()}  # rounded scores do not part them


def _seeds(percent, prefix):
    """Return lines of two examples in each seed of each system, with these mean scores."""
    return [
        {"system": name, "task": "qa", "example": e, "seed": f"{prefix(name)}{n}", "score": s / 100}
        for name, values in percent.items()
        for n, s in enumerate(values)
        if s is not None
        for e in range(2)
    ]


def test_a_task_that_is_too_small_is_named():
    few = scores(examples=2, tasks=["few"]).assign(score=[0, 1, 1, 1, 0, 0])
    said = build_board(pd.concat([scores(examples=400), few])).given.above[1]
    assert said.endswith("; on few, none.") and "100" not in said


def test_two_examples_find_nothing():
    board = build_board(scores(examples=2).assign(score=[0, 1, 1, 1, 0, 0, 1, 0, 0.5, 0.2, 1, 0]))
    tests = [each.comparison.estimate for each in board.pairs]
    assert all(-100 <= test.low < test.high <= 100 for test in tests if test)
    assert any(test.low == -100 or test.high == 100 for test in tests if test)
    assert "This board is too small to mark any difference to base" in board.given.above[1]
    assert "| none |" in report.to_markdown(board)


def test_all_forms_have_ranks_pairs_and_the_test_of_the_mean(tmp_path):
    board = build_board(scores(examples=200))
    assert any(row.averages["all tasks"].is_significant for row in board.rows[:2])
    report.save_report(board, tmp_path)
    texts = {path.suffix: path.read_text() for path in tmp_path.iterdir() if path.stem != "pairs"}
    far = next(line for line in texts[".md"].splitlines() if line.startswith("| far |"))
    assert far.count("†") == 3 and texts[".md"].count("†)") == 6
    ranks = [report.ranks_of(board, row) for row in board.rows]
    table = pd.read_csv(tmp_path / "leaderboard.csv")
    assert [*table.task] == [*TASKS, "mean of all tasks"] * 3
    found = [
        str(low) if low == high else f"{low}-{high}"
        for low, high in zip(table.rank_low, table.rank_high, strict=True)
    ]
    assert found == [each.removesuffix(" =") for row in ranks for each in row]
    assert table["p_holm"].notna().sum() == 6
    assert r"\begin{tabular}{lrrr}" in texts[".tex"].split(r"\end{tabular}")[1]
    assert texts[".tex"].count(r"^{\dagger}") == 6
    pairs = pd.read_csv(tmp_path / "pairs.csv")
    assert len(pairs) == len(board.pairs) == 9 and pairs.p_holm.notna().all()
    page = render(board).split("</style>")[1].split("<script")[0]
    assert page.count('class="mark"') == 6
    assert "all\n9 tests" in page or "6 tests of this page" in page


def test_the_order_of_lines_does_not_matter():
    frame = scores(3, groups=8)
    found = report.to_json(build_board(frame, baseline="near"))
    mixed = report.to_json(build_board(frame.sample(frac=1, random_state=1), baseline="near"))
    key = lambda pair: (pair["column"], pair["row"], pair["other"])  # noqa: E731
    assert sorted(mixed["pairs"], key=key) == sorted(found["pairs"], key=key)
    assert {json.dumps(row["scores"], sort_keys=True) for row in mixed["rows"]} == {
        json.dumps(row["scores"], sort_keys=True) for row in found["rows"]
    }


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"system": range(1000), "example": 0}, "are too many to test together"),
        ({"system": "a", "example": [[0], [1]]}, "column example: must hold texts or numbers"),
    ],
)
def test_a_frame_that_no_file_holds_or_memory_does_not_suffice_for_is_refused(columns, says):
    frame = pd.DataFrame({**columns, "task": "t", "score": 1.0})
    assert says in refused(build_board, frame, error=DataError)


def test_python_takes_frames_of_pandas_and_polars(tmp_path):
    frame = scores(3).rename(columns={"system": "model"})
    named = {"columns": {"system": "model"}, "baseline": "near"}
    found = mp.board(frame, **named, scale=np.int64(1))
    assert found.board.baseline == "near"
    table = found.leaderboard()
    assert set(table["policy"]) == set(SYSTEMS)
    assert [*table["task"]] == [*TASKS, "mean of all tasks"] * 3
    assert table["p_holm"].notna().sum() == 6
    assert len(found.scores()) == 3 * 3 * 2 and {*found.scores()["run"]} == {"a frame"}
    with pytest.raises(ConfigError, match="have no answers"):
        found.answers()
    assert "leaderboard.html" in {path.name for path in found.save(tmp_path).iterdir()}
    with pytest.raises(ConfigError, match="have no store"):
        found.masks("near")
    for given in (None, "scores.csv", {"score": [1.0]}):
        with pytest.raises(ConfigError, match="must be a pandas or polars frame"):
            mp.board(given)
    with pytest.raises(ConfigError, match="did you mean 'near'"):
        mp.board(frame, **named | {"baseline": "nera"})
    for kind in (polars.from_pandas(frame), polars.from_pandas(frame).lazy()):
        assert report.to_json(mp.board(kind, **named).board) == report.to_json(found.board)


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[9]], ids=lambda kind: kind.name)
def test_boards_without_a_difference_are_rarely_marked(kind):
    marked, missed = rates(kind, 300)
    assert marked < 8.5  # 5%, and nearly three standard errors
    assert missed < 8.5


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"scale": 0}, "scale: must be > 0"),
        ({"scale": "100"}, "scale: must be a number, not text"),
        ({"columns": ["system"]}, "columns: must be a block of keys, not a list"),
    ],
)
def test_a_wrong_argument_of_a_board_is_named(more, says):
    assert says in refused(mp.board, scores(), **more)


def test_systems_without_a_test_lend_a_pair_no_degrees_of_freedom():
    frame = scores(3)
    frame = frame[(frame.system != "far") | (frame.seed == 0)]
    alone = build_board(frame[frame.system != "far"])
    for column in (*TASKS, "mean of all tasks"):
        found, same = (compared(each, column) for each in (build_board(frame), alone))
        pair = frozenset(("near", "base"))
        assert found[pair].estimate.p == pytest.approx(same[pair].estimate.p)
        assert [one.estimate for both, one in found.items() if both != pair] == [None, None]


def test_a_mark_of_a_mean_that_needs_steady_runs_is_named():
    rng = np.random.default_rng(11)
    shares = {"base": 0.4, "near": 0.58}
    places = [(name, task, run) for name in shares for task in "xyz" for run in range(5)]
    lines = [
        {"system": name, "task": task, "example": f"{task}{n}", "score": float(right), "seed": run}
        for name, task, run in places
        for n, right in enumerate(rng.random(60) < shares[name])
    ]
    board = build_board(pd.DataFrame(lines))
    assert row_of(board, "near").averages["all tasks"].is_significant
    said = "the mark of near on mean of all tasks holds if runs vary normally, but not if"
    assert said in " ".join(board.notes)


def test_a_missing_run_is_called_a_run(tmp_path):
    frame = without(scores(3), "near", "qa", [1]).rename(columns={"seed": "run"})
    board = build_board(frame)
    save_forms(board, tmp_path / "board")
    for each in (board, read_board(tmp_path / "board")):
        said = "near, qa, run 1: has 39 of 40 examples (--shared compares the 39 that all have)"
        assert said in each.notes and each.gaps == (said,)
        assert '"unit":"run"' in render(each)
