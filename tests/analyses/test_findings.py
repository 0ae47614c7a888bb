"""The table of the papers' findings, its page, and the experiments behind it."""

import json
from functools import cache
from pathlib import Path

import pytest
from claimed import run

from maskpolicy import analyses as findings
from maskpolicy.analyses import Findings
from maskpolicy.analyses.builtin.findings import CLAIMS, COLUMNS, FIGURES, PaperFindings, _figures
from maskpolicy.analyses.paper_claims.contrast_evidence import Evidences
from maskpolicy.analyses.paper_claims.contrasts import Measured, Trend
from maskpolicy.analyses.paper_claims.stated_claims import FURTHER
from maskpolicy.analyses.paper_claims.verdicts import RUNS
from maskpolicy.analyses.plots import Lines, Series
from maskpolicy.experiment.definition import Experiment
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.leaderboard.results.cell import Run
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.nodes import Stage, topological

SUPERVISED = "supervised-TQA"
SCORES = {
    "closed-book": {"none": 0.05, "original": 0.3, "salient-span": 0.5, SUPERVISED: 0.8},
    "zsre": {"none": 0.05, "salient-span": 0.7, "supervised-zsRE": 0.2},
}
TASKS = {"closed-book": ("triviaqa", "webquestions", "nq"), "zsre": ("zsre",)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Run]:
    place = tmp_path_factory.mktemp("findings")
    return [run(place / name, rows, TASKS[name], name=name, n=90) for name, rows in SCORES.items()]


def test_every_claim_has_a_verdict_and_only_comparisons_with_runs_are_tested(runs, store):
    found = PaperFindings().analyse(runs, store)
    verdicts = {row["finding"]: row["verdict"] for row in found.rows if row["verdict"]}
    assert list(verdicts) == [claim.number for claim in CLAIMS]
    assert len(verdicts) == 14
    assert (verdicts["F1"], verdicts["F5"], verdicts["F7"]) == ("shown",) * 3
    assert verdicts["F8"] == "shown"
    assert verdicts["F2"] == "undecided: no run of multiple-choice"
    assert verdicts["M1"] == "undecided: no run of mae-lm"
    tested = [row["finding"] for row in found.rows if row.get("p") not in (None, "")]
    assert {"F1", "F8"} <= set(tested)
    assert "M1" not in tested
    assert any(f"over all {len(tested)} findings" in note for note in found.notes)
    assert any(note.startswith("The test generalises") for note in found.notes)
    json.dumps(findings.to_json(found, "findings"), allow_nan=False)


def test_runs_without_rows_that_a_claim_compares_have_no_table(tmp_path, store):
    other = run(tmp_path / "mine", {"none": 0.1, "random": 0.2}, ("zsre",), name="mine", n=30)
    found = PaperFindings().analyse([other], store)
    assert (found.rows, found.figures) == ((), ())
    assert "no run has rows that a claim compares" in found.notes[0]


def test_the_smallest_effect_is_a_setting_of_claims_about_scores_alone(runs, store):
    rows = PaperFindings(least=1.5).analyse(runs, store).rows
    least = {row["finding"]: row["least"] for row in rows}
    assert (least["F1"], least["F8"]) == ("1.5 points", "1.5 points")
    assert least["F9"] == "0.1 of the masked words"


def test_the_page_holds_overview_table_notes_and_figures_and_loads_nothing(tmp_path):
    lines = Lines("a title (1a)", "layer", "rank", [Series("MLM", [1.0, 2.0], [0, 1])])
    figure = findings.Figure("Figure <1a>", "maskpolicy analyze rank runs/mae-lm", (lines,))
    row = dict.fromkeys(COLUMNS) | {"finding": "F1", "verdict": "undecided: 3 runs", "p": 0.25}
    found = Findings(
        COLUMNS, (row,), ("a <note>",), about=("A heading", "A paragraph."), figures=(figure,)
    )
    paths = findings.save(found, "findings", tmp_path)
    assert [path.suffix for path in paths] == [".json", ".md", ".html"]
    page = (tmp_path / "findings.html").read_text(encoding="utf-8")
    assert '<td class="undecided">undecided: 3 runs</td>' in page
    assert "<h1>A heading</h1>" in page
    assert "<h2>Figure &lt;1a&gt;</h2>" in page
    assert "a &lt;note&gt;" in page
    assert page.count("<svg ") == 1
    assert "http-equiv" in page
    assert "<script" not in page
    assert not [each for each in ("src=", "<link", "url(http") if each in page]
    text = Path(tmp_path / "findings.md").read_text(encoding="utf-8")
    assert text.startswith("# A heading\n\nA paragraph.\n\n| finding |")
    again = findings.from_json(json.loads((tmp_path / "findings.json").read_text()))
    assert again.about == found.about
    assert json.dumps(findings.to_json(again, "x")) == json.dumps(findings.to_json(found, "x"))
    # an overview comes first, and its columns are not repeated
    rows = (
        {"finding": "F1", "verdict": "shown", "on": "nq", "p": 0.01},
        {"finding": "F1", "verdict": "", "on": "wow", "p": 0.5},
    )
    columns = ("finding", "verdict", "on", "p")
    values = ({"policy": "MLM", "stage": 3, "value": 41.5},)
    found = Findings(columns, rows, ("a note",), overview=("finding", "verdict"), values=values)
    assert findings.to_markdown(found) == (
        "| finding | verdict |\n| --- | --- |\n| F1 | shown |\n\n"
        "| finding | on | p |\n| --- | --- | --- |\n| F1 | nq | 0.01 |\n| F1 | wow | 0.5 |\n\n"
        "* a note\n"
    )
    assert findings.to_table(found).row_count == 1
    page = findings.render(found, "findings")
    assert page.count("<table>") == 2
    assert page.count("verdict") == page.count('<th scope="col">verdict</th>') == 1
    assert page.count('<tr class="first">') == 2
    assert findings.from_json(json.loads(json.dumps(findings.to_json(found, "x")))) == found


class OneTable(Evidences):
    """Evidence with one table for every analysis."""

    made: Findings

    def table(self, name, settings, run):
        return self.made if name == "rank" else None


def test_a_figure_has_its_panels_of_the_analysis_and_names_its_command(tmp_path, store):
    panels = tuple(Lines(f"rank ({name})", "layer", "rank", ()) for name in ("1a", "5a"))
    evidences = OneTable([run(tmp_path / "mae-lm", name="mae-lm")], store)
    evidences.made = Findings((), (), plots=panels)
    drawn = {each.title.split(":")[0]: each for each in _figures(evidences)}
    assert list(drawn) == [f"Meng et al. 2024, figure {name}" for name in ("1a", "5a")]
    only = drawn["Meng et al. 2024, figure 5a"]
    assert only.plots == panels[1:]
    assert only.about == "maskpolicy analyze rank mae-lm"


FOLDER = Path(__file__).parents[2] / "experiments" / "findings"
SHARED = {
    "salient-span": ("closed-book", "efficiency", "knowledge-intensive", "zsre"),
    "original": ("closed-book", "knowledge-intensive", "long-answers"),
    "supervised-TQA": ("closed-book", "efficiency"),
}
CONTRASTS = [
    pytest.param(each, id=f"{claim.number}: {each.compared} on {each.on}")
    for claim in (*CLAIMS, *FURTHER)
    for each in claim.contrasts
]


@cache
def experiment_of(name: str) -> Experiment:
    return load_experiment(FOLDER / f"{name}.yaml")


@pytest.mark.parametrize("contrast", CONTRASTS)
def test_an_experiment_has_the_rows_tasks_and_runs_of_a_contrast(contrast):
    experiment = experiment_of(contrast.experiment)
    rows = contrast.rows if isinstance(contrast, Trend) else (contrast.row, contrast.other)
    tasks = () if isinstance(contrast, Measured) else contrast.tasks
    assert {*rows} - {None} <= {block.label for block in experiment.policies}
    assert {*tasks} <= {block.label for block in experiment.tasks}
    assert len(experiment.seeds) == len(experiment.runs) == RUNS


def test_every_figure_has_an_experiment_and_learning_efficiency_has_checkpoints():
    names = {path.stem for path in FOLDER.glob("*.yaml")}
    assert {figure.experiment for figure in FIGURES} <= names
    assert experiment_of("efficiency").checkpoint_steps


@cache
def models_of(name: str) -> list[Stage]:
    """Return the intermediate stages of an experiment."""
    order = topological(stages.build(experiment_of(name)).targets)
    return [stage for stage in order if stage.kind == "intermediate"]


@pytest.mark.slow
@pytest.mark.parametrize("row", SHARED)
def test_experiments_about_entities_share_the_models_of_a_policy(row):
    keys = [
        {
            stage.key
            for stage in models_of(name)
            if stage.label.startswith(f"{row}, run") and "first" not in stage.label
        }
        for name in SHARED[row]
    ]
    assert len(keys[0]) == RUNS
    assert all(each == keys[0] for each in keys[1:])
