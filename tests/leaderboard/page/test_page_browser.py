"""The page in a real browser: sorts, filters, switches, opens cells; asks nobody.

test_site_browser.py opens the pages of real runs.
"""

import json
from pathlib import Path

import browser as chromium
import folders
import pandas as pd
import pytest
from payloads import HTML, SCRIPT

from maskpolicy.leaderboard.comparisons import points
from maskpolicy.leaderboard.given_scores import build_board
from maskpolicy.leaderboard.page import SCRIPTS, save_page

CONTRAST = """
(() => {
  const part = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const under = (e) => {
    for (; e; e = e.parentElement) {
      const c = numbers(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] === 1) return c;
    }
  };
  const texts = [...document.querySelectorAll('#board *, .legend *, h1, h2, p, li, .kicker')]
    .filter((e) => e.checkVisibility())
    .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
  return texts.map((e) => {
    const style = getComputedStyle(e), back = under(e);
    const o = style.opacity;
    const ink = numbers(style.color).map((c, i) => c * o + back[i] * (1 - o));
    const [a, b] = [light(ink), light(back)].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), e.textContent.trim().slice(0, 40)];
  }).sort((x, y) => x[0] - y[0])[0];
})()
"""


@pytest.fixture(scope="module")
def strong(tmp_path_factory) -> Path:
    """A page with differences of every size, tests, a failure, and an analysis."""
    shares = {"none": 0.4, "worst": 0.05, "worse": 0.3, "same": 0.4, "better": 0.5, "best": 0.95}
    tasks = ("triviaqa", "nq", "zsre", "wow", "ropes")
    settings = {"seeds": 5, "n": 90, "data": "hub", "model": {"name": "facebook/bart-base"}}
    folder = folders.write(tmp_path_factory.mktemp("strong"), shares, tasks, **settings)
    folders.change(folder, "worse--nq--2.json", metrics=None, error="it broke")
    folders.put_viewer(folder, "Ada met Bob in Rome.", "best")
    plot = folders.put_analysis(folder, "coverage", rows=[{"policy": "best"}]) / "hidden.svg"
    plot.write_text('<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40"><rect/></svg>')
    folders.change(folder, "best--*.json", work={"source_tokens": 9000, "target_tokens": 350})
    folders.change(
        folder,
        "*--nq--*.json",
        config={"finetune": {"steps": 77}, "task": {"finetune": {"steps": 77}}},
    )
    save_page(folders.board(folder), folder / "it.html")
    return folder / "it.html"


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> Path:
    """A page with 27 policies and nine tasks."""
    shares = {f"policy-number {index}": 0.2 + index / 50 for index in range(27)}
    folder = folders.write(
        tmp_path_factory.mktemp("wide"), shares, tuple(folders.GROUPS), seeds=1, n=3
    )
    save_page(folders.board(folder), folder / "it.html")
    return folder / "it.html"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    """A page whose labels, answers, errors, findings and experiment are attacks."""
    folder = tmp_path_factory.mktemp("hostile")
    shares = {f"{index} {text}": 0.3 for index, text in enumerate(HTML)}
    folders.write(folder, shares, seeds=1, text=" ".join(HTML))
    for result in folders.edited(folder / "results"):
        result["config"]["policy"]["note"] = result["policy"]
        if result["task"] == "zsre":
            result |= {"metrics": None, "error": result["policy"]}
    text = " ".join(HTML)
    place = folders.put_viewer(folder, text, next(iter(shares))).parent / "coverage"
    place.mkdir()
    (place / "coverage.svg").write_text(f"<svg onload='alert(1)'>{SCRIPT}</svg>")
    found = {"about": [text, text], "notes": [text], "rows": [{text: text}]}
    (place / "coverage.json").write_text(json.dumps(found))
    experiment = {"name": "x", "experiment": f"# {text}\nmodel: mini\n", "keys": [text]}
    (folder / "experiment.yaml").write_text(json.dumps(experiment))
    save_page(folders.board(folder), folder / "it.html")
    return folder / "it.html"


def labels(browser: chromium.Browser) -> list[str]:
    """Return the visible rows from top to bottom."""
    return browser.run(
        "[...document.querySelectorAll('#ranked tr:not([hidden]) th span')].map(e => e.textContent)"
    )


def shown(browser: chromium.Browser, selector: str) -> list[str]:
    """Return the texts of visible elements."""
    return browser.run(
        f"[...document.querySelectorAll({json.dumps(selector)})]"
        ".filter(e => e.checkVisibility()).map(e => e.innerText.trim())"
    )


def column(browser: chromium.Browser, index: int, part: str = "score") -> list[float]:
    """Return a column's numbers from top to bottom."""
    texts = browser.run(
        f"[...document.querySelectorAll('#ranked td:nth-child({index + 2})')]"
        f".map(e => e.dataset.{part})"
    )
    return [float(text) for text in texts if text]


def test_a_page_of_given_scores_opens_and_shows_ranks_and_what_the_tests_hold(browser, tmp_path):
    scores = [
        (system, n, float(n % 3 == 0 or system == SCRIPT))
        for system in ("a", SCRIPT)
        for n in range(30)
    ]
    frame = pd.DataFrame(scores, columns=["system", "example", "score"]).assign(task="qa")
    save_page(build_board(frame), tmp_path / "board.html")
    browser.open((tmp_path / "board.html").as_uri(), width=390)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    browser.click('[data-cell="0/0"]')
    browser.wait("document.querySelector('#details').open")
    assert browser.errors == []
    assert browser.requests == [(tmp_path / "board.html").as_uri()]
    assert "to nothing else" in shown(browser, "header")[0]
    assert SCRIPT in shown(browser, "#ranks tbody")[0]


def test_no_text_of_a_run_becomes_markup_or_a_script(browser, hostile):
    browser.open(hostile.as_uri())
    browser.run("window.alerts = 0; window.alert = () => window.alerts++")
    for index in range(len(HTML)):
        browser.run(f"document.querySelector('[data-cell=\"{index}/0\"]').click()")
        browser.run(f"document.querySelector('[data-cell=\"{index}/1\"]').click()")
        assert HTML[index].split()[0] in browser.run(
            "document.querySelector('#details-title').textContent"
        )
    browser.press("Escape")
    browser.wait("!document.querySelector('#details').open")
    browser.hover('a.row[href="#policy-0"]')
    assert "parent.alert" in shown(browser, "#tip")[0]
    kinds = "script:not([type]), iframe, object, [onload], [onerror], [onmouseover]"
    scripts = len(SCRIPTS)
    assert browser.run(f"document.querySelectorAll({json.dumps(kinds)}).length") == scripts
    links = browser.run("[...document.links].map(e => e.getAttribute('href'))")
    assert all(link.startswith("#") for link in links)
    assert browser.run("window.alerts") == 0
    assert browser.errors == []
    assert browser.requests == [hostile.as_uri()]


def test_columns_sort_down_up_and_back_and_by_differences(browser, strong):
    browser.open(strong.as_uri())
    given = labels(browser)
    head = '.sort[data-column="0"]'
    browser.click(head)
    down = column(browser, 0)
    assert down == sorted(down, reverse=True)
    assert browser.run(f"document.querySelector('{head}').closest('th').ariaSort") == "descending"
    browser.click(head)
    assert column(browser, 0) == sorted(down)
    browser.click(head)
    assert labels(browser) == given
    browser.click('.sort[data-column="-1"]')
    assert labels(browser) == sorted(given)
    assert "± " in shown(browser, '[data-cell="5/0"]')[0]
    browser.click('input[value="difference"]')
    text = shown(browser, '[data-cell="5/0"]')[0]
    assert "±" not in text
    assert text.startswith("▲")
    assert " to " in text  # the interval
    browser.click('.sort[data-column="0"]')
    assert labels(browser)[0] == "best"
    assert labels(browser)[-1] == "worst"
    assert browser.errors == []
    assert browser.requests == [strong.as_uri()]


def test_rows_and_groups_are_filtered_and_reported_numbers_never_sorted(browser, strong):
    browser.open(strong.as_uri())
    assert shown(browser, "input[name=policy]") == []  # folded away
    browser.click("#choice summary")
    browser.click('input[name="policy"][value="1"]')
    assert "worst" not in labels(browser)
    assert "5 of 6 policies are shown" in shown(browser, "#choice summary")[0]
    browser.click('[data-all=""]')
    assert labels(browser) == ["none"]
    browser.click('[data-all="yes"]')
    assert len(labels(browser)) == 6
    before = len(shown(browser, "#board .sort"))
    browser.click('input[name="group"][value="closed-book"]')
    assert len(shown(browser, "#board .sort")) == before - 3  # two tasks and their average
    assert "closed-book" not in shown(browser, "#board th.group")
    browser.click('input[name="group"][value="closed-book"]')
    assert len(shown(browser, "#board .sort")) == before
    assert shown(browser, "#reported td") == []
    browser.click('input[name="reported"]')
    before = shown(browser, "#reported tr")
    assert any("53.71" in row for row in before)
    browser.click('.sort[data-column="0"]')
    assert shown(browser, "#reported tr") == before
    assert not any("Meta" in label for label in labels(browser))


def test_what_stands_behind_a_cell(browser, strong):
    browser.open(strong.as_uri())
    browser.hover('[data-cell="5/0"]')
    lines = shown(browser, "#tip")[0].splitlines()
    assert [line.split()[0] for line in lines] == ["seed"] * 5 + ["95%"]
    assert lines[0].startswith("seed 0: ")
    browser.press("Escape")
    assert shown(browser, "#tip") == []
    browser.hover('[data-cell="2/1"]')
    assert "seed 2: it broke" in shown(browser, "#tip")[0]
    browser.click('[data-cell="5/0"]')
    text = browser.run("document.querySelector('#details-body').textContent")
    for word in ("intermediate.steps", "1000", "torch", "2.13.0", "95% interval", "after Holm"):
        assert word in text
    assert "It is significant." in text
    assert "finetune.steps1000" in text
    browser.run("document.querySelector('[data-cell=\"5/1\"]').click()")
    text = browser.run("document.querySelector('#details-body').textContent")
    assert "finetune.steps77" in text and "intermediate.steps1000" in text
    browser.run("document.querySelector('[data-cell=\"5/0\"]').click()")
    said = "document.querySelector('#details [role=status]').textContent"
    assert browser.run(said).startswith("best scores higher on ")
    assert len(shown(browser, ".example")) > 3
    browser.run(
        "(() => { const s = document.querySelectorAll('#details select')[1];"
        "s.value = '1'; s.dispatchEvent(new Event('change')); })()"
    )
    assert "worst on 0" in browser.run(said)
    assert "what of triviaqa" in shown(browser, ".example")[0]


def test_the_keyboard_reaches_everything(browser, strong):
    browser.open(strong.as_uri())
    focused = "document.activeElement"
    for _ in range(80):
        browser.press("Tab")
        if browser.run(f"{focused}.dataset.cell || ''"):
            break
    assert browser.run(f"{focused}.dataset.cell") == "0/0"
    assert shown(browser, "#tip")
    browser.press("ArrowDown")
    browser.press("ArrowRight")
    assert browser.run(f"{focused}.dataset.cell") == "1/1"
    browser.press("Enter")
    browser.wait("document.querySelector('#details').open")
    browser.press("Escape")
    browser.wait("!document.querySelector('#details').open")
    assert browser.run(f"{focused}.dataset.cell") == "1/1"  # back where it was
    browser.run("document.querySelector('.sort[data-column=\"0\"]').focus()")
    browser.press("Enter")
    assert labels(browser)[0] == "best"


def test_a_screen_reader_reads_what_colours_and_arrows_say(browser, strong):
    browser.open(strong.as_uri())
    names = browser.names()
    buttons = [name for role, name in names if role == "button"]
    best = next(name for name in buttons if "best of its column" in name)
    assert "significant" in best
    assert "★" not in best
    assert any(name.startswith("Scores of masking policies") for role, name in names)
    assert ("columnheader", "closed-book") in names
    assert ("rowheader", "worst") in names
    assert any("seed 2: it broke" in name for name in buttons)
    assert all(name.strip() for role, name in names if role in ("button", "checkbox", "radio"))
    images = [name for role, name in names if role in ("image", "img")]
    assert any(name.startswith("How much each policy masked: hidden") for name in images)


def test_texts_stand_out_from_what_is_under_them_in_both_themes(browser, strong):
    for dark in (True, False):
        browser.open(strong.as_uri(), dark=dark)
        browser.click('input[name="reported"]')
        for show in ("score", "difference"):
            browser.click(f'input[value="{show}"]')
            ratio, text = browser.run(CONTRAST)
            assert ratio >= 4.5, text  # WCAG 2.1, AA
    paper = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(paper)
    browser.click("#theme")
    browser.click("#theme")
    assert browser.run("document.querySelector('#theme').textContent") == "Theme: dark"
    assert browser.run(paper) != light
    browser.click("#theme")
    assert browser.run(paper) == light
    # on a phone, nothing but tables is wider than the screen
    browser.open(strong.as_uri(), width=390)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    browser.run("document.querySelector('.scroll').scrollLeft = 300")
    left = browser.run("document.querySelector('#ranked th').getBoundingClientRect().left")
    assert 0 <= left < 30  # the policy's name stays


def test_a_rows_name_leads_to_its_policy_and_its_cost_stands_beside_its_scores(browser, strong):
    browser.open(strong.as_uri())
    browser.hover('a.row[href="#policy-0"]')
    assert "No intermediate stage" in shown(browser, "#tip")[0]
    browser.hover('a.row[href="#policy-5"]')
    assert "ratio: 0.15\nAda met Bob in Rome." in shown(browser, "#tip")[0].replace("\n\n", "\n")
    assert shown(browser, "#tip mark.masked") == ["Ada"]
    browser.click('a.row[href="#policy-5"]')
    assert browser.run("document.querySelector(':target dt').textContent") == "best"
    top = browser.run("document.querySelector(':target').getBoundingClientRect().top")
    assert 0 <= top < 900
    rows = shown(browser, "#ranked tr")
    assert rows[0].endswith("–\t–")
    assert rows[5].endswith("9.35 k\t< 0.1")  # five runs of 1.25 seconds
    heads = browser.run("[...document.querySelectorAll('.sort')].map(e => e.innerText.trim())")
    tokens = next(i for i, text in enumerate(heads) if text.startswith("tokens")) - 1
    browser.click(f'.sort[data-column="{tokens}"]')
    assert labels(browser)[0] == "best"
    browser.click('input[value="difference"]')
    assert labels(browser)[0] == "best"


SHADOWS = "[...document.querySelector('#board').closest('.frame').classList].sort().join(' ')"


@pytest.mark.parametrize("width", [1280, 400])
def test_a_wide_table_shows_that_it_goes_on_and_cuts_no_header(browser, wide, width):
    browser.open(wide.as_uri(), width=width)
    browser.wait(f"{SHADOWS} === 'frame more-below more-right'")
    shadow = "getComputedStyle(document.querySelector('.more-right'), '::after').boxShadow"
    assert "inset" in browser.run(shadow)
    assert browser.run("document.documentElement.scrollWidth") <= width
    cut = browser.run(
        "[...document.querySelectorAll('#board thead .sort, #board tbody .policy')]"
        ".filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)"
    )
    assert cut == []
    scroll = "document.querySelector('.scroll.tall')"
    browser.run(f"{scroll}.scrollTo({{left: 9999, top: 400, behavior: 'instant'}})")
    browser.wait(f"{SHADOWS} === 'frame more-below more-left'")
    head = browser.run("document.querySelector('#board thead').getBoundingClientRect().top")
    frame = browser.run(f"{scroll}.getBoundingClientRect().top")
    assert abs(head - frame) < 2  # the header stays
    seen = browser.run(
        "[...document.querySelectorAll('#board thead .sort')].map(e => e.getBoundingClientRect())"
        f".filter(r => r.left > 0 && r.right <= {width} && r.width).length"
    )
    assert seen >= (9 if width == 1280 else 3)


def test_without_javascript_the_scores_are_there(browser, strong):
    names = browser.names_without_scripts(strong.as_uri(), ("rowheader", "best"))
    roles = [role for role, _ in names]
    assert roles.count("cell") > 30
    assert not {"radio", "checkbox"} & set(roles)  # what needs a script is not offered


def test_details_round_as_the_table(browser, strong):
    browser.open(strong.as_uri())
    scores = [100 * n / 16 for n in range(-16, 17)] + [0.15, 12.35, 33.333, 100 * (109 / 400)]
    found = browser.run(f"{json.dumps(scores)}.map((score) => Page.number(score))")
    assert found == [points(score).replace("-", "−") for score in scores]


def test_rows_without_a_difference_do_not_lack_room_for_examples(browser, tmp_path):
    folder = folders.write(tmp_path / "run", {"none": 1.0, "random": 1.0}, seeds=1, n=6)
    save_page(folders.board(folder), tmp_path / "it.html")
    browser.open((tmp_path / "it.html").as_uri())
    browser.click('[data-cell="1/0"]')
    said = "random scores higher on 0 of 6 examples, none on 0, both the same on 6"
    (told,) = [each for each in shown(browser, "#details p") if each.startswith(said)]
    assert told.endswith("; 0 shown.")
