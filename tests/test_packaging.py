"""Only `maskpolicy` is installed, and it is whole and the same in every form of installation."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from configparser import ConfigParser
from functools import cache
from pathlib import Path

import pytest
import yaml
from packaging.version import Version
from pages import imports

import maskpolicy

ROOT = Path(__file__).parent.parent
SETUP = ROOT / "setup.cfg"
FORMS = ("wheel", "editable", "checkout")  # an sdist makes the same wheel
MOVED = ("policies/", "tasks/", "experiments/")  # installed below maskpolicy/
ENDS = (".py", ".yaml")
PIP = ("-m", "pip", "--disable-pip-version-check", "-q")
ABOUT = """
import json, sys
from maskpolicy.experiment import verbatim
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.plugins import discovery, registry
from maskpolicy.pipeline.stages import build
for kind in discovery.PACKAGES:
    discovery.load_builtin(kind)
entries = registry.entries()
graph = build(load_experiment("quickstart"))
tops = {name.partition(".")[0] for name in sys.modules}
print(json.dumps({
    "plugins": sorted([each.kind, each.name] for each in entries),
    "files": [each.file for each in entries] + [str(each.path) for each in verbatim.shipped()],
    "foreign": [one.name for one in entries if not registry.is_builtin(one.plugin)],
    "keys": [stage.key for stage in graph.stages],
    "tops": sorted(tops & {"policies", "tasks", "experiments"}),
}))
"""


@cache
def tracked() -> frozenset[str]:
    """Return the files of the repository, or of the sdist that the tests are run from."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"],
        capture_output=True,
        text=True,
    )
    if done.returncode == 0 and done.stdout:
        return frozenset(name for name in done.stdout.split("\n") if (ROOT / name).is_file())
    below = (path for path in ROOT.rglob("*") if path.is_file())
    return frozenset(path.relative_to(ROOT).as_posix() for path in below)


def shipped() -> dict[str, Path]:
    """Return the files that must be installed, by their paths in site-packages."""
    own = {name: ROOT / name for name in tracked() if name.startswith("maskpolicy/")}
    moved = [name for name in tracked() if name.startswith(MOVED) and name.endswith(ENDS)]
    return own | {f"maskpolicy/{name}": ROOT / name for name in moved}


def python(*words: object, cwd: Path) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the repository, as `git clone` makes it."""
    folder = tmp_path_factory.mktemp("clone") / "maskpolicy"
    for name in tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def sdist(checkout, tmp_path_factory) -> Path:
    """The sdist, unpacked."""
    out = tmp_path_factory.mktemp("sdist")
    code = f"from setuptools.build_meta import build_sdist; build_sdist({str(out)!r})"
    python(sys.executable, "-c", code, cwd=checkout)
    shutil.unpack_archive(next(out.glob("*.tar.gz")), out)
    return next(path for path in out.iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def wheels(checkout, sdist, tmp_path_factory) -> dict[str, Path]:
    """The wheels that are made of the checkout and of the sdist."""
    made = {}
    for form, source in (("wheel", checkout), ("sdist", sdist)):
        out = tmp_path_factory.mktemp(form)
        words = ("wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", out, source)
        python(sys.executable, *PIP, *words, cwd=out)
        made[form] = next(out.glob("*.whl"))
    return made


@pytest.fixture(scope="module", params=FORMS)
def installed(request, checkout, wheels, tmp_path_factory) -> tuple[str, Path, Path]:
    """A form of installation, its interpreter and the folder where it was installed.

    The dependencies are those of this interpreter, without what its own .pth files add.
    """
    form, home = request.param, tmp_path_factory.mktemp(request.param)
    python(sys.executable, "-m", "venv", "--without-pip", home / "venv", cwd=home)
    interpreter = home / "venv" / "bin" / "python"
    found = python(
        interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home
    )
    site = Path(found.strip())
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    if form != "checkout":
        what = ("-e", checkout) if form == "editable" else (wheels[form],)
        words = ("--python", interpreter, "install", "--no-deps", "--no-index", *what)
        python(sys.executable, *PIP, *words, "--no-build-isolation", cwd=home)
    return form, interpreter, site


@pytest.fixture(scope="module")
def here() -> dict:
    """What this interpreter says of the same things."""
    code = f"import sys; sys.path[:0] = [{str(ROOT)!r}]{ABOUT}"
    return json.loads(python(sys.executable, "-c", code, cwd=ROOT))


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_wheel_holds_each_file_of_ours_and_nothing_else(wheels):
    files = contents(wheels["wheel"])
    info = {name for name in files if name.startswith("maskpolicy-")}
    assert files.keys() - info == shipped().keys()
    assert any(name.endswith("licenses/LICENSE") for name in info)
    assert wheels["wheel"].stat().st_size < 2_000_000
    (about,) = (files[name].decode() for name in info if name.endswith("/METADATA"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "](docs/" in readme
    assert "](docs/" not in about and about.count("](") == readme.count("](")


def test_the_sdist_makes_the_same_wheel_and_holds_all_that_its_tests_need(wheels, sdist):
    assert contents(wheels["sdist"]) == contents(wheels["wheel"])
    unpacked = {path.relative_to(sdist).as_posix() for path in sdist.rglob("*") if path.is_file()}
    wanted = ("tests/", "docs/", "maskpolicy/", "benchmarks/", *MOVED)
    needed = {name for name in tracked() if name.startswith(wanted) or "/" not in name}
    assert needed - unpacked <= {".gitignore", ".pre-commit-config.yaml", ".dockerignore"}


def test_only_maskpolicy_is_installed(installed):
    form, _, site = installed
    mine = {path.name for path in site.iterdir()} - {"dependencies.pth"}
    expected = {
        "wheel": r"maskpolicy|maskpolicy-.*\.dist-info",
        "editable": r"__editable__.*|__pycache__|maskpolicy-.*\.dist-info",
        "checkout": "",
    }[form]
    assert all(re.fullmatch(expected, name) for name in mine), mine


def test_every_form_has_the_same_plugins_experiments_keys_and_command(
    installed, checkout, here, tmp_path
):
    form, interpreter, site = installed
    is_checkout = form == "checkout"
    # what another distribution may install under these names, or a user's folder hold
    for name in [place / moved for place in (site, tmp_path) for moved in MOVED]:
        name.mkdir(exist_ok=True)
        (name / "__init__.py").write_text("raise RuntimeError('not ours')\n")
    where = checkout if is_checkout else tmp_path
    found = json.loads(python(interpreter, "-c", ABOUT, cwd=where))
    place = site / "maskpolicy" if form == "wheel" else checkout
    assert all(Path(file).is_relative_to(place) for file in found.pop("files"))
    assert found == {name: value for name, value in here.items() if name != "files"}
    assert found["foreign"] == found["tops"] == []
    script = (interpreter.parent / "maskpolicy",)
    command = (interpreter, "-m", "maskpolicy") if is_checkout else script
    assert "quickstart" in python(*command, "list", "experiments", cwd=where)


def stated() -> tuple[str, dict[str, str]]:
    """Return the packages that setup.cfg requires, and those of each extra."""
    config = ConfigParser()
    config.read(SETUP)
    return config["options"]["install_requires"], dict(config["options.extras_require"])


def test_each_extra_is_in_the_docs_and_the_base_has_none_of_them():
    base, extras = stated()
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    table = page.partition("## Extras")[2].partition("##")[0]
    listed = re.findall("`([^`]+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.M)))
    assert sorted(listed) == sorted(extras)
    assert not set(re.findall(r"^[\w-]+", base, re.M)) & {"obstore", "ray", "spacy", "submitit"}


@cache
def required() -> dict[str, str]:
    """Return the lowest version that setup.cfg allows of each dependency, optional ones too.

    Those of the tools for developers, of the site's generator and of tests are not tested.
    """
    base, extras = stated()
    lines = [base, *(extras[name] for name in extras if name not in ("dev", "docs", "published"))]
    return dict(re.split(">=|==", line, maxsplit=1) for line in "\n".join(lines).split())


def test_what_is_imported_is_required():
    known = {"yaml": "pyyaml", "inspect_ai": "inspect-ai"}
    sources = [path.read_text("utf-8") for path in shipped().values() if path.suffix == ".py"]
    imported = {module.partition(".")[0] for each in sources for module, _ in imports(each)}
    thirds = {known.get(top, top) for top in imported - sys.stdlib_module_names - {"maskpolicy"}}
    assert thirds == required().keys()


def test_the_floors_are_those_that_are_tested():
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    tested = dict(line.split("==") for line in lines if not line.startswith("#"))
    floors = {name: Version(text.partition(",")[0]) for name, text in required().items()}
    assert {name: Version(version) for name, version in tested.items()} == floors


def test_the_workflows_test_the_stated_versions_of_python():
    known = re.findall(r"Programming Language :: Python :: (3\.\d+)", SETUP.read_text())
    texts = [(ROOT / f".github/workflows/{name}.yml").read_text() for name in ("release", "ci")]
    matrices = [yaml.safe_load(each)["jobs"]["test"]["strategy"]["matrix"] for each in texts]
    assert [each["python"] for each in matrices] == [known, known]
    matrix = matrices[1]
    files = {*matrix["dependencies"], *(each["dependencies"] for each in matrix["include"])}
    assert all((ROOT / f"{name}.txt").is_file() for name in files - {"newest"})


def test_the_version_is_the_same_in_every_file():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == maskpolicy.__version__
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_ci_runs_the_tests_of_make_test_all():
    (command,) = re.findall("pytest .*no-loadscope.*", (ROOT / "Makefile").read_text())
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    assert command in workflow
    assert '.ci/evals "$RUNNER_TEMP/evals"' in workflow  # else tests of real logs are skipped
    assert "MASKPOLICY_EVALS: ${{ runner.temp }}/evals/bin/python" in workflow
