"""Analyses of results that these tests write, their files, and their plots."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
from payloads import SCRIPT

from maskpolicy import analyses as findings
from maskpolicy.analyses import Findings, cache, plots
from maskpolicy.analyses.builtin import frequency
from maskpolicy.analyses.builtin.answers import Hits
from maskpolicy.analyses.builtin.differences import Transfer
from maskpolicy.analyses.builtin.masked_tokens import Coverage
from maskpolicy.analyses.plots import Bars, Grid, Lines, Marked, Series, drawing, look
from maskpolicy.core.metrics import Total
from maskpolicy.core.ragged import Ragged
from maskpolicy.core.types import Json
from maskpolicy.leaderboard.results.cell import Result, Run
from maskpolicy.pipeline.store.artifacts import Store

WORK = {
    "passages": 40,
    "passages_without_span": 10,
    "spans": 60,
    "hidden_tokens": 90,
    "source_tokens": 900,
    "target_tokens": 210,
}


def cell(policy: str, seed: int, work: Json, number: int = 0) -> Result:
    about: Json = {"task": {"name": "zsre"}, "finetune": {"steps": 1}}
    config: dict[str, Json] = {"policy": {"name": policy}, **about}
    if policy != "none":
        config |= {"intermediate": {}, "intermediate_seed": number}
    return Result(policy, "zsre", seed, "group", config, {}, None, work)


def run(*results: Result, name: str = "a") -> Run:
    return Run(Path(name), results, "none", tuple(dict.fromkeys(r.policy for r in results)))


@pytest.fixture
def analyse(tmp_path):
    return lambda *runs: Coverage().analyse(runs, Store(tmp_path))


def test_a_policy_is_told_by_spans_tokens_and_passages_without_a_span(analyse):
    found = analyse(run(cell("none", 0, None), cell("random", 0, WORK)))
    counts = {name: WORK[name] for name in ("passages", "spans", "hidden_tokens", "target_tokens")}
    means = {"without_span": 0.25, "spans_per_passage": 1.5, "tokens_per_span": 1.5}
    assert found.rows == ({"run": "a", "policy": "random", "stage": 0, **counts, **means},)
    assert found.notes == ()
    other = {**WORK, "spans": 20}  # seeds that share a stage are one row
    cells = [cell("random", 0, WORK, 0), cell("random", 1, other, 1), cell("random", 2, WORK, 0)]
    assert [(row["stage"], row["spans"]) for row in analyse(run(*cells)).rows] == [(0, 60), (1, 20)]


def test_findings_are_written_as_json_and_markdown(tmp_path):
    rows = ({"policy": "a|b", "share": 0.12345}, {"policy": "<b>"})
    found = Findings(("policy", "share"), rows, ("a note",))
    paths = findings.save(found, "mine", tmp_path / "out")
    assert [path.name for path in paths] == ["mine.json", "mine.md"]
    assert json.loads(paths[0].read_text()) == {
        "version": 1,
        "analysis": "mine",
        "columns": ["policy", "share"],
        "plots": [],
        "rows": [{"policy": "a|b", "share": 0.12345}, {"policy": "<b>", "share": None}],
        "notes": ["a note"],
    }
    end = ["| a\\|b | 0.123 |", "| &lt;b&gt; | – |", "", "* a note"]
    assert paths[1].read_text().splitlines()[2:] == end


def test_only_files_of_earlier_findings_are_removed(tmp_path):
    found, picture = Findings(("policy",), ({"policy": "a"},)), tmp_path / "mine.svg"
    picture.write_text("of the user")
    for text in ('{"totals": {}}', "[", '["mine"]'):  # other tools write files of such names, too
        (tmp_path / "mine.json").write_text(text)
        findings.save(found, "mine", tmp_path)
        assert picture.exists()
    findings.save(found, "mine", tmp_path)
    assert not picture.exists()


def learned(policy: str, task: str, seed: int, score: float, train_on: Json = None) -> Result:
    config: dict[str, Json] = {"policy": {"name": policy.partition(" ")[0]}}
    if train_on is not None:
        config["policy"]["train_on"] = train_on
    metrics = Total("f1", score, 10, 1)
    return Result(policy, task, seed, "group", config, {}, metrics)


def test_transfer_takes_the_seeds_that_both_rows_have(tmp_path):
    cells = [
        learned("salient-span", "a", 0, 0.5),
        learned("salient-span", "a", 1, 0.7),
        learned("salient-span", "b", 0, 0.1),
        learned("meta one", "a", 0, 0.6, ["a"]),
        learned("meta one", "b", 0, 0.4, ["a"]),
        learned("meta two", "a", 1, 0.5, ["b", "c"]),
    ]
    made = Run(Path("r"), tuple(cells), "none", tasks=("a", "b"))
    found = Transfer().analyse([made], Store(tmp_path))
    rows = {(row["policy"], row["task"]): row for row in found.rows}
    assert rows["meta one", "a"]["difference"] == pytest.approx(10)
    assert rows["meta one", "b"]["difference"] == pytest.approx(30)
    assert rows["meta two", "a"]["difference"] == pytest.approx(-20)
    assert rows["meta two", "b"]["difference"] is None
    assert rows["meta one", "a"]["own"] == "yes"
    assert rows["meta two", "a"]["learnt_on"] == "b, c"
    inner = {"policy": {"name": "m", "init": {"name": "s", "train_on": ["b"]}, "train_on": ["a"]}}
    both = replace(cells[3], config={**cells[3].config, **inner})
    found = Transfer().analyse([replace(made, results=(*cells[:3], both))], Store(tmp_path))
    assert {row["learnt_on"] for row in found.rows} == {"a, b"}
    named = [replace(one, config={**one.config, "task": {"name": "c"}}) for one in cells]
    found = Transfer().analyse([replace(made, results=tuple(named))], Store(tmp_path))
    assert [row["own"] for row in found.rows] == ["yes", "", "yes", "yes"]  # a label of its own
    assert Transfer().analyse([replace(made, tasks=())], Store(tmp_path)).rows
    (grid,) = found.plots
    assert grid.values == [[pytest.approx(10), pytest.approx(30)], [pytest.approx(-20), None]]
    (note,) = Transfer("other").analyse([made], Store(tmp_path)).notes
    assert note == "r: has no row 'other': set another with reference=ROW"


def test_the_slope_over_ranks_and_its_fit_are_those_of_a_regression():
    assert frequency._line(np.asarray([10, 10]), 1000) is None
    assert frequency._line(np.full(40, 9), 40) == (0.0, None)
    counts = np.random.default_rng(0).integers(0, 99, 60)
    falling = np.log(np.sort(counts)[::-1][:40])
    found = scipy.stats.linregress(np.log(np.arange(1, 41)), falling)
    assert frequency._line(counts, 40) == pytest.approx((found.slope, found.rvalue**2))


def test_findings_are_remembered_by_result_unless_they_are_partial(tmp_path, monkeypatch):
    calls: list[bool] = []

    def analyse(self, runs, store):
        calls.append(True)
        return Findings(("n",), ({"n": len(calls)},), partial=len(calls) < 2)

    def number(made):
        (row,) = cache.analyse("coverage", Coverage(), [made], Store(tmp_path)).rows
        return row["n"]

    monkeypatch.setattr(Coverage, "analyse", analyse)
    made, other = (run(cell("random", 1, {**WORK, "spans": spans})) for spans in (60, 1))
    renamed = replace(other, folder=Path("b"))  # findings name their runs
    assert [number(made) for _ in range(4)] == [1, 2, 2, 2]
    assert [number(one) for one in (other, other, renamed, renamed)] == [3, 3, 4, 4]
    monkeypatch.setattr(cache, "version_of", lambda kind: 99)
    assert number(renamed) == 5


def test_a_learned_policy_is_told_by_how_often_its_spans_are_answers(tmp_path):
    store = Store(tmp_path)
    shares = {"hits": {"1": 0.5, "5": 0.75, "20": 1.0}, "precision": {"1": 0.6, "5": 0.4, "20": 0}}
    ways = {"policy": shares, "salient-span": shares, "random": shares}
    english = {"contexts": 8, "without_answer": 2, **ways}
    report = {"dev": {"zsre": english, "german": {**english, "salient-span": None}}}
    with store.write("a" * 64, {}) as out:
        (out / "report.json").write_text(json.dumps(report))
    cells = []
    for label, number, key in (("mine", 0, "a" * 64), ("mine", 1, "b" * 64)):
        made = cell(label, number, WORK, number)
        stages = {f"fit {label}, run {number}": key, "fit mine: other, run 0": "c" * 64}
        stages |= {"fit mine, member 1 (supervised), run 1": "a" * 64}  # of cell 1
        cells.append(replace(made, config={**made.config, "fit": {}}, stages=stages))
    found = Hits().analyse([run(cell("random", 0, WORK), *cells)], store)
    row, *others = [one for one in found.rows if one["policy"] == "mine"]
    of_member = [one["stage"] for one in found.rows if one not in (row, *others)]
    assert of_member == [1] * 5
    assert [one["spans"] for one in others] == ["salient-span", "random", "its own", "random"]
    assert (row["policy"], row["stage"], row["task"]) == ("mine", 0, "zsre")
    assert (row["contexts"], row["without_answer"]) == (8, 2)
    assert (row["spans"], row["hits_5"], row["precision_1"]) == ("its own", 0.75, 0.6)
    (note,) = found.notes
    assert note.startswith(f"a, mine: its fitted policy is not in the store {store.root}: ")
    assert "name the store of that run with --store" in note
    assert found.partial
    assert set(found.columns) <= set(row)


def test_the_docs_have_a_row_for_each_analysis():
    root = Path(__file__).parents[2]
    text = (root / "docs" / "commands.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|", text, flags=re.MULTILINE)
    code = "".join(path.read_text() for path in (root / "maskpolicy/analyses/builtin").glob("*.py"))
    assert sorted(rows) == sorted(re.findall(r'@analysis\(\s*"([a-z0-9-]+)"', code))


PLOTS = {
    "lines": Lines("a", "x", "y", [Series(SCRIPT, [1, None, 2], [1, 2, 3], [0, 0, 1], [2, 2, 3])]),
    "log": Lines("", "x", "y", [Series("$x$", [3.0, 2.0], [1, 10])], True, False),
    "bars": Bars("", "y", ["a", SCRIPT], [Series("1", [1, None]), Series("2", [2], (), [1], [3])]),
    "grid": Grid("", [SCRIPT, "b"], ["c"], [[1.0], [None]], diverging=True),
    "marked": Marked(SCRIPT, "Ada wrote\nnotes. " * 20, [(0, 3, 1.0), (100, 130, 0.2)]),
}  # fmt: skip
PANELS = tuple(plot for plot in PLOTS.values() if not isinstance(plot, Marked))


@pytest.mark.parametrize("shown", [PANELS, (PLOTS["marked"],)], ids=["panels", "marked"])
def test_plots_have_the_same_bytes_every_time_and_no_script_font_date_or_address(shown):
    first = plots.draw(shown, "title")
    assert first == plots.draw(shown, "title")
    assert first["png"].startswith(b"\x89PNG")
    assert set(first) == {"svg", "png"}
    svg = first["svg"].decode()
    assert svg.startswith('<svg class="maskpolicy-plot"')
    assert "currentColor" in svg  # text takes the colour of the page
    assert svg.count(look.INK) == 1  # what it is on no page
    assert "<script" not in svg
    assert "<text" not in svg
    assert "dc:date" not in svg
    assert not re.search(r'(href|src)="(?!#)', svg)


def test_no_plot_at_all_can_be_drawn():
    with pytest.raises(ValueError, match="not both"):
        plots.draw([PLOTS["marked"], PLOTS["grid"]])
    assert plots.draw([])["svg"].startswith(b"<svg")
    assert plots.draw([Lines("", "", "", [])])["png"]
    assert plots.draw([Grid("", [], [], [])])["png"]


def test_colours_differ_and_are_seen_on_white_and_on_a_dark_page():
    for color in (*map(look.color, range(60)), look.INK):
        assert look.contrast(color, "#ffffff") >= 3
        assert look.contrast(color, "#16181d") >= 3
    assert len({look.color(place) for place in range(-1, 60)}) == 61


def test_findings_with_plots_are_written_with_their_pictures_and_read_back(tmp_path):
    for shown in (PANELS, (PLOTS["marked"],)):
        found = Findings(("a",), ({"a": 1},), ("a note",), shown)
        path, _ = findings.save(found, "mine", tmp_path, pictures=False)
        document = json.loads(path.read_text())
        assert findings.to_json(findings.from_json(document), "mine") == document
    paths = findings.save(found, "mine", tmp_path)
    assert [path.name for path in paths] == ["mine.json", "mine.md", "mine.svg", "mine.png"]


def test_a_row_has_one_colour_in_every_figure_of_a_run():
    rows = ["none", "original", "random"]
    labels = ["random", "a line of its own", "none"]
    drawn = [Lines("", "x", "y", [Series(label, [1.0, 2.0], [1, 2]) for label in labels])]
    lines = drawing.figure(drawn, rows=rows).axes[0].lines
    assert [line.get_color() for line in lines] == [look.color(place) for place in (2, 1, 0)]
    drawn = [Lines("", "x", "y", [Series(label, [1.0], [1], color=1) for label in labels])]
    lines = drawing.figure(drawn).axes[0].lines  # of rows of several runs
    assert [line.get_color() for line in lines] == [look.color(place) for place in (1, 0, 2)]


def test_an_interval_is_drawn_whole():
    drawn = [Lines("", "x", "y", [Series("a", [0.5, 1.0], [0, 1], [-3.0, -2.0], [4.0, 4.0])])]
    assert drawing.figure(drawn).axes[0].get_ylim()[0] < -3


def test_draws_of_a_passage_are_neither_more_text_nor_more_passages(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    tokens = Ragged.of_arrays([rng.zipf(1.5, 40).clip(max=50) for _ in range(30)])
    row = SimpleNamespace(corpus="c", label="random", color=0, number=0)

    def found(draws: int) -> dict[str, Json]:
        again = tokens.take(np.tile(np.arange(30), draws))
        masked = np.tile(np.arange(len(tokens.flat)) % 2 > 0, draws)
        places = np.tile(np.arange(30), draws)
        sample = SimpleNamespace(row=row, tokens=again, is_masked=masked, places=places)
        monkeypatch.setattr(frequency, "samples", lambda *_, **__: ([sample], [], False))
        rows = frequency.Frequency(draws=draws, least=2).analyse([], Store(tmp_path)).rows
        return {each["policy"]: each for each in rows}

    once, thrice = found(1), found(3)
    assert thrice["(corpus)"] == once["(corpus)"]
    assert thrice["random"]["tokens"] == 3 * once["random"]["tokens"]
    one, other = (each["random"]["high"] - each["random"]["low"] for each in (once, thrice))
    assert other > 0.8 * one  # the same masks again tell nothing new
