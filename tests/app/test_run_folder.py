"""The folder of a run belongs to its experiment."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import small

from maskpolicy.app import contents
from maskpolicy.app.arguments import ExperimentOptions
from maskpolicy.app.file_to_folder import _default_folder, compute, prepare, write
from maskpolicy.core.errors import StoreError
from maskpolicy.experiment import verbatim
from maskpolicy.pipeline.executors.engines import Executor
from maskpolicy.pipeline.graph.events import silent

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("paper/closed-book", "runs/paper/closed-book"),
        ("findings/closed-book", "runs/findings/closed-book"),
        (ROOT / "experiments" / "findings" / "closed-book.yaml", "runs/findings/closed-book"),
        ("smoke", "runs/smoke"),
        ("mine/closed-book.yaml", "runs/closed-book"),
    ],
)
def test_experiments_of_one_file_name_have_folders_of_their_own(tmp_path, file, folder):
    Path("mine").mkdir()
    Path("mine/closed-book.yaml").write_text("model: mini\n")
    written = verbatim.read_experiment(Path(file))
    assert _default_folder(written) == Path(folder)
    verbatim.save(written, tmp_path / "kept")
    kept = verbatim.read_experiment(tmp_path / "kept" / verbatim.WRITTEN)
    assert _default_folder(kept) == tmp_path / "kept"


@pytest.fixture
def two(here):
    """Two experiments of one name."""
    for name in ("a", "b"):
        Path(name).mkdir()
        Path(name, "it.yaml").write_text(f"# {name}{small.EXPERIMENT}")


@pytest.mark.usefixtures("two")
def test_the_folder_of_another_experiment_is_an_error_in_run_and_a_note_in_plan(call, refused):
    verbatim.save(verbatim.read_experiment(Path("a/it.yaml")), Path("runs/it"))
    says = "error: runs/it: holds the results of a/it.yaml: choose another --out"
    assert says in refused("run", "b/it.yaml")
    assert [path.name for path in Path("runs/it").iterdir()] == [verbatim.WRITTEN]
    assert not Path(".maskpolicy").exists()
    said = call("plan", "b/it.yaml")[1]
    assert "`run` writes runs/it, which holds the results of a/it.yaml: give `run` anoth" in said
    assert json.loads(call("plan", "a/it.yaml", "--json")[1])["folder"] == "runs/it"


@pytest.mark.usefixtures("two")
def test_a_folder_that_another_command_claims_meanwhile_is_an_error():
    prepared = prepare(ExperimentOptions(Path("b/it.yaml"), store="store"))
    verbatim.save(verbatim.read_experiment(Path("a/it.yaml")), prepared.folder)
    with pytest.raises(StoreError, match=r"runs/it: holds the results of a/it\.yaml: choose"):
        compute(prepared, Executor(), nullcontext(silent))
    kept = verbatim.read_experiment(prepared.folder / verbatim.WRITTEN)
    assert kept.file == Path("a/it.yaml").resolve()


@pytest.mark.parametrize(("lost", "keys"), [(False, ()), (True, ("seeds=[1]",))])
@pytest.mark.usefixtures("two")
def test_a_stopped_run_leaves_the_experiment_of_the_results(lost, keys):
    verbatim.save(verbatim.read_experiment(Path("a/it.yaml")), Path("runs/it"))
    Path("runs/it/experiment.json").write_text("{}")
    if lost:
        Path("runs/it", verbatim.WRITTEN).write_text("")
    prepared = prepare(ExperimentOptions(Path("a/it.yaml"), keys=["seeds=[1]"], store="store"))

    def stop(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compute(prepared, Executor(), nullcontext(stop))
    assert verbatim.read_experiment(prepared.folder / verbatim.WRITTEN).keys == keys


@pytest.mark.usefixtures("two")
def test_the_experiment_is_of_the_command_that_wrote_the_rest(monkeypatch):
    first = prepare(ExperimentOptions(Path("a/it.yaml"), keys=["seeds=[1]"], store="store"))
    verbatim.save(verbatim.read_experiment(Path("a/it.yaml"), ["seeds=[2]"]), first.folder)
    kept = {verbatim.WRITTEN: contents.CONTENTS[verbatim.WRITTEN]}
    monkeypatch.setattr(contents, "CONTENTS", kept)
    write(first, {}, 0.0, 1)
    kept = verbatim.read_experiment(first.folder / verbatim.WRITTEN)
    assert kept.keys == ("seeds=[1]",)


@pytest.mark.usefixtures("two")
def test_a_store_inside_the_folder_of_a_run_may_be_there_before_the_run():
    Path("runs/it/store/artifacts").mkdir(parents=True)
    asked = ExperimentOptions(Path("a/it.yaml"), store="runs/it/store")
    assert prepare(asked).folder == Path("runs/it")
    with pytest.raises(StoreError, match="runs/it: holds other files"):
        prepare(ExperimentOptions(Path("a/it.yaml"), store="store"))
