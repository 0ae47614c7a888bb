"""How the packages are organised; `lint-imports` (make lint) checks the layers between them."""

import re
from collections import Counter, defaultdict
from pathlib import Path

from pages import imports

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "maskpolicy"
MODULES = sorted(PACKAGE.rglob("*.py"))
NAMED_FOR_USERS = ("builtin", "commands")  # modules there are named for an analysis or a command
ENDINGS = re.compile(r"(ing|ings|ed|er|ers|es|e|s|ion|ions)$")
NAMES = [
    path.parent.name if path.stem == "__init__" else path.stem
    for path in MODULES
    if path.parent.name not in NAMED_FOR_USERS
]


def test_the_framework_names_no_plugin():
    for path in MODULES:
        full = (".".join(words) for words in imports(path.read_text(encoding="utf-8")))
        names = {name.removeprefix("maskpolicy.").partition(".")[0] for name in full}
        assert not names & {"policies", "tasks", "tests", "benchmarks"}, path


def test_the_top_level_holds_rooms_alone():
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_no_two_names_differ_only_in_their_ending():
    stems = defaultdict(set)
    for name in NAMES:
        stems[ENDINGS.sub("", name)].add(name)
    assert not [names for names in stems.values() if len(names) > 1]


def test_no_two_modules_have_the_same_name():
    assert not [name for name, count in Counter(NAMES).items() if count > 1]


def test_the_architecture_names_every_room():
    text = (ROOT / "docs" / "development" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([a-z]+)/` \|", text, flags=re.MULTILINE)
    rooms = (path.parent for path in PACKAGE.rglob("__init__.py"))
    assert sorted(named) == sorted(room.name for room in rooms if room.parent == PACKAGE)
