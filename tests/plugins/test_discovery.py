"""Plugins in files, experiments and installed packages."""

import importlib
import json
import linecache
import sys
from pathlib import Path

import pytest
import small
from refusals import messages

from maskpolicy.core.errors import ConfigError
from maskpolicy.plugins import discovery, isolation, registry


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Each test works beside its files, and leaves no plugin behind."""
    monkeypatch.chdir(tmp_path)
    for kind in discovery.PACKAGES:
        discovery.load_builtin(kind)
    for name in ("_ENTRIES", "_CLASHES"):
        monkeypatch.setattr(registry, name, {**getattr(registry, name)})
    before = {*sys.modules}
    yield
    isolation.forget(isolation.home_of(tmp_path.resolve()))
    for name in {*sys.modules} - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write a package as pip installs it: a module, METADATA, entry_points.txt, RECORD."""
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(site)

    def package(name: str, code: str, module: str | None = None) -> Path:
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (site / f"{name}.py").write_text(code)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        points = f"[maskpolicy.plugins]\n{name} = {module or name}\n"
        (info / "entry_points.txt").write_text(points)
        (info / "RECORD").write_text(f"{name}.py,,\n{info.name}/METADATA,,\n")
        return site / f"{name}.py"

    return package


def plan(policy: str, file: str = "") -> tuple[str, str]:
    """Write an experiment with a policy and a plugin file; return the words that plan it."""
    keys = {"policies": ["none", policy], "plugins": [file] if file else []}
    Path("my.yaml").write_text(small.experiment(**keys))
    return "plan", "my.yaml"


def test_a_neighbour_that_is_no_python_is_no_fault_where_a_file_does_without(done):
    Path("broken.py").write_text("def (")
    careful = "try:\n    import broken\nexcept SyntaxError:\n    broken = None\n"
    Path("mine.py").write_text(careful + small.POLICY.format(name="mine"))
    assert "mine" in done(*plan("mine", "mine.py"))[0]


def test_a_broken_package_hides_no_other(done, package):
    package("a_broken", "import no_such_module_at_all\n")
    package("b_exits", "raise SystemExit(3)\n")
    package("c_theirs", small.POLICY.format(name="theirs"))
    package("d_absent", "", module="not_there_at_all")
    out, err = done("list", "policies", "--json")
    assert "theirs" in {entry["name"] for entry in json.loads(out)}
    warnings = err.splitlines()
    assert [line.split(" (")[0] for line in warnings] == [
        f"warning: plugin {name!r} of {name}" for name in ("a_broken", "b_exits", "d_absent")
    ]
    assert "no_such_module_at_all" in warnings[0]


def test_an_unknown_name_says_which_package_failed(refused, package):
    package("broken", "raise RuntimeError('out of luck')\n")
    line = refused(*plan("radnom"))
    assert "my.yaml: policies[1]: unknown policy 'radnom': did you mean 'random'?" in line
    assert "out of luck" in line


def test_a_name_that_two_packages_define_raises_with_both_places(refused, package):
    places = [package(name, small.POLICY.format(name="theirs")) for name in ("a_masks", "b_masks")]
    line = refused(*plan("theirs"))
    assert all(f"{place}:7" in line for place in places)


def test_a_package_that_takes_a_built_in_name_changes_nothing_and_is_named(done, package):
    package("masks", small.POLICY.format(name="random"))
    out, err = done("list", "policies", "--json")
    (random,) = (entry for entry in json.loads(out) if entry["name"] == "random")
    assert "ratio" in random["fields"]
    assert "defined twice" in err


TASK = """
from maskpolicy.plugins.registry import task


@task("mine", group="own", metric="exact_match", files={"dev": "dev.jsonl"})
class Mine:
    \"\"\"Asks.\"\"\"

    def example(self, row):
        return None
"""


@pytest.mark.parametrize(("change", "says"), messages(__file__, "tasks.txt"))
def test_a_task_that_cannot_be_used_is_one_line_with_its_place(refused, tmp_path, change, says):
    old, _, new = change.partition(" -> ")
    Path("mine.py").write_text(TASK.replace(old, new))
    Path("dev.jsonl").write_text("{}\n")
    line = refused(*plan("random", "mine.py"), "tasks=[{name: mine, data: .}]")
    assert says in line and f"{tmp_path / 'mine.py'}:5: " in line


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n", "mine.py: registers nothing: put @policy(NAME)"),
        ("\nraise RuntimeError('boo')\n", "failed: RuntimeError: boo ({file}:2)"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line_with_its_name(refused, tmp_path, text, says):
    Path("mine.py").write_text(text)
    assert says.format(file=tmp_path / "mine.py") in refused(*plan("random", "mine.py"))


def test_a_file_or_a_list_in_place_of_a_name_is_told_how_to_write_it():
    with pytest.raises(ConfigError, match=r"'mine\.py' is a file: give --plugin mine\.py"):
        discovery.find_plugin("policy", "mine.py")
    with pytest.raises(ConfigError, match=r"^here: .* is several: write \[none, random\]"):
        discovery.find_plugin("policy", "none, random", where="here")


def test_a_policy_that_an_import_alone_knows_is_in_keys_as_it_was_imported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "import beside_mine\n" + small.POLICY.format(name="imported")
    Path("imported.py").write_text(text)
    Path("beside_mine.py").write_text("")
    __import__("imported")
    entry = registry.entry("policy", "imported")
    Path("imported.py").write_text(f"{text}X = 1\n")
    with pytest.raises(ConfigError, match="was edited since it was imported"):
        discovery.code_digests(entry)
    Path("imported.py").write_text(f"{text}# a comment\n")
    assert set(discovery.code_digests(entry)) == {"imported.py", "beside_mine.py"}
    for name, more in (("beside_mine.py", "N = 2\n"), ("imported.py", f"{text}X = 2\n")):
        before = Path(name).read_text()
        Path(name).write_text(more)  # after a first run
        with pytest.raises(ConfigError, match=rf"{name}: was edited since it was imported"):
            discovery.code_digests(entry)
        Path(name).write_text(before)
    typed = {"__module__": "a_cell", "select": lambda self, passage, rng: passage.words[:1]}
    registry.policy("typed")(type("Typed", (), typed))
    with pytest.raises(ConfigError, match=r"policy 'typed': is in no file"):
        discovery.code_digests(registry.entry("policy", "typed"))


def test_a_plugin_file_that_failed_can_be_mended_in_the_same_process():
    path, text = Path("mine.py"), small.POLICY.format(name="mended")
    for broken in ("def (", text.replace("@policy('mended')", "")):
        path.write_text(broken)
        with pytest.raises(ConfigError, match=r"mine.py( failed: SyntaxError|: registers nothing)"):
            discovery.load_files([path], fresh=True)
    path.write_text(text)
    discovery.load_files([path], fresh=True)
    assert "mended" in registry.names("policy")


def test_a_plugin_file_may_be_renamed_or_left_behind_in_the_same_process():
    first, second, folder = Path("first.py"), Path("second.py"), Path("other").absolute()
    first.write_text(small.POLICY.format(name="renamed"))
    discovery.load_files([first], fresh=True)
    first.rename(second)
    discovery.load_files([second], fresh=True)
    assert registry.entry("policy", "renamed").file == str(second.absolute())
    second.write_text(f"{second.read_text()}X = 1\n")
    folder.mkdir()
    third = folder / "third.py"
    third.write_text(small.POLICY.format(name="third"))
    discovery.load_files([third], fresh=True)
    assert isolation.state().roots == (third,)  # a process would refuse the edited second.py
    isolation.forget(isolation.home_of(folder))


def test_a_plugin_file_that_is_imported_after_an_edit_is_in_keys_as_edited(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    path, text = Path("both_ways.py"), small.POLICY.format(name="both")
    path.write_text(text)
    discovery.load_files([path], fresh=True)
    before = discovery.code_digests(registry.entry("policy", "both"))
    path.write_text(text.replace("count: int = 1", "count: int = 2"))
    made = __import__("both_ways").Mine
    entry = registry.entry("policy", "both")
    assert entry.plugin is made and discovery.code_digests(entry).keys() == before.keys()
    assert discovery.code_digests(entry) != before


def test_a_policy_may_be_defined_again_and_a_clash_ends_with_its_file(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    path, text = Path("reloaded.py"), small.POLICY.format(name="again")
    path.write_text(text)
    module = __import__("reloaded")
    path.write_text("import os\n" + text.replace("count: int = 1", "count: int = 22"))
    importlib.reload(module)
    discovery.load_files([path], fresh=True)  # the lines of the first import are no other place
    path.write_text(f"{path.read_text()}X = 1\n")
    discovery.load_files([], fresh=True)
    importlib.reload(module)
    assert discovery.find_plugin("policy", "again").plugin is module.Mine
    other = Path("other.py")
    other.write_text(text)
    with pytest.raises(ConfigError, match=r"reloaded.py:8 and .*other.py:7; rename one of them"):
        discovery.load_files([other], fresh=True)
    assert discovery.find_plugin("policy", "again").plugin is module.Mine
    for name in ("First", "Second"):  # two cells of a notebook
        cell = {"__module__": "a_cell", "select": lambda self, passage, rng: passage.words[:1]}
        typed = registry.policy("a cell's")(type(name, (), cell))
    assert discovery.find_plugin("policy", "a cell's").plugin is typed


def test_further_processes_import_the_plugins_that_were_imported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(isolation, "IMPORTED", {*isolation.IMPORTED, "not_on_this_host"})
    Path("by_import.py").write_text(small.POLICY.format(name="by-import"))
    __import__("by_import")
    state = isolation.state()
    del sys.modules["by_import"], registry._ENTRIES["policy", "by-import"]
    monkeypatch.setattr(isolation, "IMPORTED", set())
    isolation.take(state)
    assert discovery.find_plugin("policy", "by-import").plugin.__module__ == "by_import"


def test_a_package_is_read_without_the_packages_that_it_imports(tmp_path):
    site = tmp_path / "site-packages"
    for name, text in (("mine/a.py", "import torch\nfrom mine import b"), ("mine/b.py", "x = 1")):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    (site / "torch.py").write_text("import mine.b\n")
    found = isolation.imported_code(site / "mine" / "a.py", site, "mine")
    assert found.keys() == {site / "mine" / "a.py", site / "mine" / "b.py"}


def test_what_an_installed_plugin_prints_is_not_in_the_output_of_a_command(package, capsys):
    package("talks", f"{small.POLICY.format(name='talks')}\n\ndef say():\n    print('hello')\n")
    entry = discovery.find_plugin("policy", "talks")
    sys.modules[entry.plugin.__module__].say()
    assert capsys.readouterr() == ("", "hello\n")


def test_two_classes_of_one_name_in_a_plugin_file_are_two_plugins_of_one_name():
    path, text = Path("twice.py"), small.POLICY.format(name="twice in a file")
    path.write_text(f"{text}\n{text.replace('count: int = 1', 'count: int = 2')}")
    with pytest.raises(ConfigError, match=r"is defined twice: .*twice.py:[0-9]+ and .*twice.py:"):
        discovery.load_file(path.absolute())


def test_a_metric_of_a_notebook_may_be_defined_again():
    """A cell that is run again has a file name of its own, which names no file."""
    code = "from maskpolicy import metric\n\n@metric('nearly')\ndef nearly(*_): return 1 + 1e-12\n"
    for cell in ("ipykernel/1.py", "ipykernel/2.py"):
        linecache.cache[cell] = (len(code), None, code.splitlines(keepends=True), cell)
        names = {"__name__": "a_cell"}
        exec(compile(code, cell, "exec"), names)
        assert registry.entry("metric", "nearly").plugin is names["nearly"]
        assert registry.METRICS["nearly"].score("a", ["b"]) == 1.0  # rounding is cut
    del registry.METRICS["nearly"]
