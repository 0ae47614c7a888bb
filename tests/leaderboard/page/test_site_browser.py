"""A site of many runs in a real browser: it is searched and filtered, and asks nobody."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import folders
import pandas as pd
import pytest
import small
from payloads import HTML

from maskpolicy.app import packing, site
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.leaderboard.given_scores import build_board
from maskpolicy.leaderboard.page import save_forms, site_index
from maskpolicy.leaderboard.results.cell import read_run

MODELS = ("t5-small", "roberta-base")
PAGES, RUNS = 12, 200  # made from runs, and in the index, where several lead to one page


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Path:
    """The folder of a real run."""
    return folders.run_experiment(tmp_path_factory.mktemp("real"), small.EXPERIMENT) / "run"


def altered(real: Path, target: Path, texts: tuple[str, str, str], steps: int) -> Path:
    """Copy a run under another name, model and policy, and with other steps and scores."""
    name, model, policy = texts
    shutil.copytree(real, target, ignore=shutil.ignore_patterns("*.html", "predictions"))
    for path in (target / "results").iterdir():
        result = json.loads(path.read_text())
        result["config"]["model"]["name"] = model
        result["metrics"]["score"] = steps % 7 / 10
        if result["policy"] == "random":
            result["policy"] = result["config"]["policy"]["name"] = policy
            result["config"]["intermediate"]["steps"] = steps
        path.write_text(json.dumps(result))
    settings = json.loads((target / "experiment.json").read_text())
    settings["name"] = name
    del settings["seeds"]  # the files of the cells have other names than their rows
    settings["policies"][1]["label"] = policy
    (target / "experiment.json").write_text(json.dumps(settings))
    return target


@pytest.fixture(scope="module")
def written(real, tmp_path_factory) -> Path:
    """The index of many runs, some of them packed, and of a board; it names most pages often."""
    home = tmp_path_factory.mktemp("many")
    places = [
        altered(
            *(real, home / f"run-{number}"),
            (f"experiment {number}", MODELS[number // 4 % 2], f"policy-{number % 4}"),
            10 * (number // 8 + 1),
        )
        for number in range(PAGES)
    ]
    entries = [site_index.entry(build_leaderboard([read_run(run)]), run.name) for run in places]
    places[::6] = [packing.pack(run, run.with_suffix(".zip")) for run in places[::6]]
    rows = [(system, n, float(n % 3 == 0)) for system in ("a", "b") for n in range(30)]
    frame = pd.DataFrame(rows, columns=["system", "example", "score"]).assign(task="qa")
    given = build_board(frame, title="given")
    save_forms(given, home / "board")
    index = home / "site" / "index.html"
    places.append(home / "board")
    count = site.write([*map(str, places)], index.parent, "All", print, unverified=True)
    assert count == PAGES + 1
    more = (replace(entries[n % PAGES], title=f"experiment {n}") for n in range(PAGES, RUNS))
    site_index.save_index([*entries, *more, site_index.entry(given, "board")], index, "All")
    return index


def shown(browser) -> list[str]:
    """Return the titles of the visible entries."""
    script = "[...document.querySelectorAll('#entries > li')].filter(e => e.checkVisibility())"
    return browser.run(f"{script}.map(e => e.querySelector('a').textContent)")


def choose(browser, name: str, text: str) -> None:
    """Write a text into the search field, or choose the value of a filter that begins with it."""
    browser.run(
        f"(() => {{ const e = document.querySelector('[name={name}]'), text = {json.dumps(text)};"
        "const option = [...e.options ?? []].find(o => o.text.startsWith(text));"
        "e.value = option ? option.value : text;"
        "e.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


@pytest.mark.parametrize("width", [1280, 420])
def test_runs_are_searched_and_filtered(browser, written, width):
    browser.open(written.as_uri(), width=width)
    assert len(shown(browser)) == RUNS + 1
    assert browser.run("document.documentElement.scrollWidth") <= width
    choose(browser, "words", "policy-3 EXPERIMENT")
    assert shown(browser) == [f"experiment {n}" for n in range(3, RUNS, 4)]
    choose(browser, "model", "t5-small")
    assert shown(browser) == [f"experiment {n}" for n in range(3, RUNS, 4) if n % PAGES != 7]
    choose(browser, "budget", "20 steps of 4 passages")
    assert shown(browser) == [f"experiment {n}" for n in range(11, RUNS, PAGES)]
    said = browser.run("document.querySelector('#said').textContent")
    assert said == f"16 of {RUNS + 1} results"
    choose(browser, "policy", "policy-1")
    assert shown(browser) == []
    browser.run("document.querySelector('#filters').reset()")
    choose(browser, "task", "qa")
    assert shown(browser) == ["given"]
    assert browser.errors == []
    assert browser.requests == [written.as_uri()]
    assert browser.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    ("title", "width"), [("experiment 0", 1280), ("experiment 7", 420), ("given", 420)]
)
def test_each_entry_leads_to_its_page_and_that_one_back(browser, written, width, title):
    browser.open(written.as_uri(), width=width)
    browser.run(f"[...document.links].find(a => a.text === {json.dumps(title)}).click()")
    browser.wait("document.querySelector('#board') && document.readyState === 'complete'")
    assert browser.run("document.querySelector('h1').textContent") == title
    assert browser.run("document.documentElement.scrollWidth") <= width
    browser.click('[data-cell="0/0"]')
    browser.wait("document.querySelector('#details').open")
    browser.press("Escape")
    browser.click("header a")
    browser.wait("document.querySelector('#entries') && document.readyState === 'complete'")
    assert browser.errors == []
    assert all(url.startswith(written.parent.as_uri()) for url in browser.requests)


def test_no_text_of_a_run_becomes_markup_or_a_script(browser, real, tmp_path):
    places = [
        altered(real, tmp_path / f"run-{at}", (text, text, text), 10)
        for at, text in enumerate(HTML)
    ]
    (places[0] / "leaderboard.html").write_text(f"<p>theirs{HTML[0]}")
    site.write([*map(str, places)], tmp_path / "site", HTML[0], print, unverified=True)
    index = tmp_path / "site/index.html"
    browser.open(index.as_uri())
    browser.run("window.alerts = 0; window.alert = () => window.alerts++")
    scripts = browser.run("document.querySelectorAll('script, iframe, object, [onerror]').length")
    assert scripts == 2
    kept = [" ".join(text.split()) for text in shown(browser)]
    assert kept == [" ".join(text.split()) for text in HTML]
    hrefs = browser.run("[...document.links].map(a => a.getAttribute('href')).slice(1)")
    assert hrefs == [f"run-{at}/leaderboard.html" for at in range(len(HTML))]
    options = browser.run("document.querySelectorAll('select[name=model] option').length")
    assert options == len(HTML) + 1
    assert browser.run("window.alerts") == 0
    assert browser.errors == []
    assert browser.requests == [index.as_uri()]
    assert "theirs" not in (tmp_path / "site/run-0/leaderboard.html").read_text()


def test_filters_have_names_and_counts_and_need_javascript(browser, written):
    browser.open(written.as_uri())
    names = browser.names()
    facets = [name.capitalize() for name in site_index.FACETS]
    assert [name for role, name in names if role == "combobox"] == facets
    texts = browser.run("[...document.querySelectorAll('option')].map(o => o.text)")
    assert {"t5-small (132)", "policy-3 (50)", "10 steps of 4 passages (136)", "qa (1)"} <= {*texts}
    names = browser.names_without_scripts(written.as_uri(), ("link", "experiment 199"))
    roles = [role for role, _ in names]
    assert not {"searchbox", "combobox"} & {*roles}  # what needs a script is not offered
    assert roles.count("link") == RUNS + 2
