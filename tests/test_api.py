"""The stable API: its names, their documentation, and that the built-in plugins need no more."""

import ast
import inspect
import re
import subprocess
import sys
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path

import pytest
from pages import PAGES, imports

import maskpolicy
from maskpolicy.data.taskfiles.sources import TaskFacts

ROOT = Path(__file__).parent.parent
API = {  # a name that leaves, or comes, is a change of the stable API: CHANGELOG.md says so
    "maskpolicy": {
        *("policy", "task", "metric", "analysis"),
        *("Passage", "Spans", "Example", "Json", "Statistics", "as_spans"),
        *("Count", "Positive", "Range", "Rate", "Schedule", "Seed", "Share", "Steps", "Weight"),
        *("MaskpolicyError", "ConfigError", "DataError", "StageError", "StoreError", "unknown"),
        *("Distribution", "omitted"),
        *("choose", "draw", "draw_highest", "draw_weighted", "fill", "scatter", "file_of", "Hub"),
        *("Findings", "Run", "Result", "Store"),
        *("Runs", "board", "load", "mask", "pretrain", "run"),
        *("MaskingCollator", "__version__"),
    },
    "maskpolicy.data.corpus": {
        *("Labelled", "entity_labels", "find_entities", "find_phrases", "pipeline_identity"),
        *("TAGS", "content_word", "content_words", "ngrams", "spacy_version", "stop_words"),
        "tag_words",
    },
    "maskpolicy.data.taskfiles": {
        *("text", "optional", "texts", "block", "records", "alike", "digest"),
        *("existing", "opened", "window", "choices", "dpr", "glue", "kilt", "minimal_pairs"),
    },
    "maskpolicy.models.learned": {
        *("Classifier", "Context", "Contexts", "Tools", "Training", "Specials", "bounded"),
        *("candidates", "episodes", "extractor", "hits", "innerloop", "meta", "tagger", "windows"),
        "require",
        *("Current", "Guesses"),
    },
    "maskpolicy.analyses": {
        *(
            "Figure",
            "Findings",
            "Sample",
            "Sampling",
            "samples",
            "IntermediateStage",
            "intermediate_stages",
            "derive",
        ),
        *("ColumnExamples", "column_examples", "answers", "Point", "points", "panels"),
    },
    "maskpolicy.analyses.plots": {"Lines", "Bars", "Grid", "Marked", "Series", "GREY"},
}
ENGINE = {"analysis", "Findings", "Run", "Result", "Store"}
PLUGINS = [*(ROOT / "policies").glob("*.py"), *(ROOT / "tasks").glob("*.py")]


@pytest.mark.parametrize("module", API)
def test_a_package_offers_the_stable_names(module):
    package = import_module(module)
    assert API[module] <= set(package.__all__) <= set(dir(package))
    for name in API[module]:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # noqa: B018


@pytest.mark.parametrize("module", API)
def test_every_name_is_documented(module):
    pages = (ROOT / "docs" / "api.md", ROOT / "docs" / "development" / "api.md")
    page = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    section = page.partition(f"## `{module}`\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)(?:\((.*?)\))?` \|", section, re.MULTILINE))
    assert rows.keys() == API[module] - {"__version__"}
    for name, given in rows.items():
        found = getattr(import_module(module), name)
        if inspect.isclass(found) or inspect.isfunction(found):
            assert inspect.getdoc(found), name
        if given:
            stated = [each.partition("=")[0].strip("* ") for each in given.split(",")]
            taken = list(inspect.signature(found).parameters)
            assert [each for each in taken if each in stated] == [s for s in stated if s.strip(".")]


def test_every_fact_of_a_task_is_documented():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|(.*?)\|", page.partition("## Facts of a task\n")[2], re.M)
    facts = {each.name: each for each in fields(TaskFacts)}
    assert dict(rows).keys() == facts.keys()
    for name, default in rows:
        fact = facts[name]
        made = fact.default_factory() if fact.default_factory is not MISSING else fact.default
        stated = ast.literal_eval(default.strip(" `")) if default.strip() else MISSING
        assert stated == made, name


@pytest.mark.parametrize("path", PLUGINS, ids=lambda path: path.stem)
def test_a_built_in_plugin_imports_nothing_else(path):
    for module, name in imports(path.read_text(encoding="utf-8")):
        is_ours = module.partition(".")[0] == "maskpolicy"
        assert not is_ours or name in API.get(module, ()), f"from {module} import {name}"
        assert name not in ENGINE, f"{name} is for analyses"


def test_the_documentation_imports_nothing_else():
    for page in PAGES:
        for module, names in re.findall(
            r"^from (maskpolicy[\w.]*) import (.+)$", page.read_text(), re.M
        ):
            assert set(names.split(", ")) <= API[module], page


def test_importing_maskpolicy_loads_no_other_module_of_ours():
    ours = "m.startswith(('maskpolicy.', 'numpy', 'torch', 'transformers'))"
    code = f"import sys, maskpolicy; print([m for m in sys.modules if {ours}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = ["maskpolicy.core", "maskpolicy.core.lazy", "maskpolicy.core.version"]
    assert done.stdout.strip() == str(loaded)
    assert maskpolicy.__version__
