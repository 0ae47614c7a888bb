from __future__ import annotations

import itertools
import json
import re

import pytest

from maskpolicy import analyses as findings
from maskpolicy.analyses import Findings, plots
from maskpolicy.analyses.plots import Bars, Grid, Lines, Marked, Series, drawing, look

SCRIPT = "<script>alert(1)</script>"
PLOTS = {
    "lines": Lines("a", "x", "y", [Series(SCRIPT, [1, None, 2], [1, 2, 3], [0, 0, 1], [2, 2, 3])]),
    "log": Lines("", "x", "y", [Series("$x$", [3.0, 2.0], [1, 10])], True, False),
    "bars": Bars("", "y", ["a", SCRIPT], [Series("1", [1, None]), Series("2", [2], (), [1], [3])]),
    "grid": Grid("", [SCRIPT, "b"], ["c"], [[1.0], [None]], diverging=True),
    "marked": Marked(SCRIPT, "Ada wrote\nnotes. " * 20, [(0, 3, 1.0), (100, 130, 0.2)]),
}  # fmt: skip


@pytest.mark.parametrize("name", PLOTS)
def test_the_same_plot_gives_the_same_bytes(name):
    first = plots.draw([PLOTS[name]], "title")
    assert first == plots.draw([PLOTS[name]], "title")
    assert first["png"].startswith(b"\x89PNG")
    assert set(first) == {"svg", "png"}


@pytest.mark.parametrize("name", PLOTS)
def test_an_svg_holds_no_script_no_font_no_date_and_no_address_to_fetch(name):
    svg = plots.draw([PLOTS[name]])["svg"].decode()
    assert svg.startswith('<svg class="maskpolicy-plot"')
    assert "<script" not in svg
    assert "<text" not in svg
    assert "dc:date" not in svg
    assert not re.search(r'(href|src)="(?!#)', svg)


def test_figures_stand_below_each_other_with_title_panels_and_legend():
    figure = drawing.figures(
        [("First", [PLOTS["lines"], PLOTS["log"]]), ("Second", [PLOTS["bars"], PLOTS["grid"]])]
    )
    assert [part.get_suptitle() for part in figure.subfigs] == ["First", "Second"]
    assert [len(part.axes) >= 2 for part in figure.subfigs] == [True, True]
    assert [len(part.legends) for part in figure.subfigs] == [1, 1]
    figure.canvas.draw()
    tops = [part.get_window_extent().y1 for part in figure.subfigs]
    assert tops[0] > tops[1]


def test_text_takes_the_colour_of_the_page():
    svg = plots.draw([PLOTS["lines"]])["svg"].decode()
    assert "currentColor" in svg
    assert svg.count(look.INK) == 1  # what it is on no page


def test_no_plot_at_all_can_be_drawn():
    assert plots.draw([])["svg"].startswith(b"<svg")
    assert plots.draw([Lines("", "", "", [])])["png"]
    assert plots.draw([Grid("", [], [], [])])["png"]


def test_colours_are_seen_on_white_and_on_a_dark_page():
    for color in (*map(look.color, range(60)), look.INK):
        assert look.contrast(color, "#ffffff") >= 3
        assert look.contrast(color, "#16181d") >= 3


def test_no_two_series_share_a_colour():
    assert len({look.color(place) for place in range(-1, 60)}) == 61


def test_labels_that_differ_at_the_end_differ_in_a_plot():
    start = "random ratio=0.15 target=full intermediate.lr="
    for shown in (look.lines, look.short):
        assert shown(f"{start}0.0001") != shown(f"{start}0.001")


def test_a_legend_is_no_wider_than_its_figure():
    long = "a label of some length, number "
    series = [Series(f"{long}{index}", [1.0, 2.0], [1, 2]) for index in range(27)]
    found = drawing.figure([Lines("", "x", "y", series)])
    found.draw_without_rendering()
    (legend,) = found.legends
    assert len(legend.get_texts()) == 27
    assert legend.get_window_extent().width <= 1.1 * found.bbox.width


def test_findings_with_plots_are_written_with_their_pictures_and_read_back(tmp_path):
    panels = tuple(plot for plot in PLOTS.values() if not isinstance(plot, Marked))
    for shown in (panels, (PLOTS["marked"],)):
        found = Findings(("a",), ({"a": 1},), ("a note",), shown)
        paths = findings.save(found, "mine", tmp_path)
        assert [path.name for path in paths] == ["mine.json", "mine.md", "mine.svg", "mine.png"]
        document = json.loads(paths[0].read_text())
        again = findings.from_json(document)
        assert plots.draw(again.plots) == plots.draw(shown)
        assert findings.to_json(again, "mine") == document


def test_texts_and_panels_are_figures_of_their_own():
    with pytest.raises(ValueError, match="not both"):
        plots.draw([PLOTS["marked"], PLOTS["grid"]])


def test_marks_stand_at_their_characters_when_text_is_wrapped():
    text = "one two  three\nfour " * 20
    for start, line in drawing._wrapped(text):
        flat = "".join(" " if char.isspace() else char for char in text)
        assert flat[start : start + len(line)] == line
    starts = [start for start, _ in drawing._wrapped(text)]
    assert all(a < b for a, b in itertools.pairwise(starts))


def test_a_row_has_one_colour_in_every_figure_of_a_run():
    rows = ["none", "original", "random"]
    labels = ["random", "a line of its own", "none"]
    drawn = [Lines("", "x", "y", [Series(label, [1.0, 2.0], [1, 2]) for label in labels])]
    lines = drawing.figure(drawn, rows=rows).axes[0].lines
    assert [line.get_color() for line in lines] == [look.color(place) for place in (2, 1, 0)]


def test_whole_numbers_have_whole_ticks():
    found = drawing.figure([Lines("", "layer", "y", [Series("a", [1.0, 2.0, 3.0], [0, 1, 2])])])
    found.draw_without_rendering()
    assert all(float(tick).is_integer() for tick in found.axes[0].get_xticks())


def test_wide_panels_stand_below_each_other():
    names = [f"row {index}" for index in range(27)]
    wide = [Bars("", "y", names, [Series("a", [1.0] * 27)])] * 2
    narrow = [Bars("", "y", names[:3], [Series("a", [1.0] * 3)])] * 2
    for bars, tops in ((wide, 2), (narrow, 1)):
        found = drawing.figure(bars)
        assert len({axes.get_subplotspec().rowspan.start for axes in found.axes}) == tops
        assert found.get_figwidth() <= 14


def test_bars_that_are_all_zero_stand_on_their_axis():
    found = drawing.figure([Bars("", "y", ["a", "b"], [Series("one", [0.0, None])])])
    assert found.axes[0].get_ylim() == (0.0, 1.0)
