"""The README and docs name files, modules, commands and options that exist."""

import ast
import re
from collections import Counter
from dataclasses import is_dataclass
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pages import DOCS, GENERATED, ROOT
from pages import PAGES as ALL_PAGES

from maskpolicy.app import commands as cli
from maskpolicy.experiment import reference

PAGES = [page for page in ALL_PAGES if page.name != "log.md"]  # history
GALLERY = DOCS / "pictures" / "gallery.svg"  # drawn by `make docs`
FOLDERS = (
    "maskpolicy",
    "policies",
    "tasks",
    "experiments",
    "tests",
    "benchmarks",
    ".github",
    "docs",
)
FILES = [
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.iterdir(), *(path for name in FOLDERS for path in (ROOT / name).rglob("*"))]
    if path.is_file()
]
MODULES = [  # policies/ and tasks/ are sub-packages
    re.sub(r"^(?!maskpolicy/)", "maskpolicy/", name.removesuffix(".py"))
    .removesuffix("/__init__")
    .replace("/", ".")
    for name in FILES
    if name.startswith(("maskpolicy/", "policies/", "tasks/")) and name.endswith(".py")
]
FIRST = {part for name in MODULES for part in name.split(".")}
EXAMPLES = (
    "my_*.py",
    "run_mlm.py",
    "helper.py",
    "numpy.py",
    "experiment.yaml",
)  # files of users and of runs
OTHER_NAMES = {"data.paragraphs.qas", "hooks.NAME.of"}  # of a file's rows, and for any name
CODE = re.compile(r"`([^`\n]+)`")
COMMANDS: dict[str, Any] = vars(typer.main.get_command(cli.app))["commands"]


def text_of(page: Path) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)


def is_file(name: str) -> bool:
    return any(fnmatch(path, name) or fnmatch(path, f"*/{name}") for path in FILES)


def has(module: str, names: list[str]) -> bool:
    """Whether a module has an attribute, or a class in it a field."""
    found: Any = import_module(module)
    for name in names:
        if is_dataclass(found) and name in found.__dataclass_fields__:
            return True
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True


def is_name(dotted: str) -> bool:
    """Whether a name is that of a module, or of something in one; modules may lack packages."""
    parts = dotted.split(".")
    return any(
        has(module, parts[size:])
        for size in range(len(parts), 0, -1)
        for module in MODULES
        if f".{module}".endswith(f".{'.'.join(parts[:size])}")
    )


@pytest.fixture(scope="module")
def keys() -> set[str]:
    """The keys of experiments, `block.name`."""
    return {f"{key.block}.{key.name}" for key in reference.listed((), ())}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_names_exist(page, keys):
    codes = set(CODE.findall(text_of(page)))
    files = {code for code in codes if re.fullmatch(r"[\w./*-]+\.(py|yaml|cfg|toml)", code)}
    own = [name for name in files if not any(fnmatch(name, example) for example in EXAMPLES)]
    assert [name for name in own if not is_file(name)] == []
    dotted = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+(?![\w/*.-])")
    names = {match[0].rstrip(".") for code in codes if (match := dotted.match(code))}
    ours = {name for name in names if name.split(".")[0] in FIRST} - keys - OTHER_NAMES
    endings = re.compile(r"\.(py|yaml|json|jsonl|html|md|csv|tex|txt)$")
    assert [name for name in sorted(ours) if not endings.search(name) and not is_name(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_their_options_exist(page):
    """In the text; test_code_blocks.py checks those of the blocks."""
    for call in CODE.findall(text_of(page)):
        words = re.sub(r"#.*| \|.*", "", call).split()
        if words[:1] != ["maskpolicy"] or len(words) < 2 or not re.match(r"[a-z]+$", words[1]):
            continue
        assert words[1] in COMMANDS, call
        command = COMMANDS[words[1]]
        if hasattr(command, "commands") and len(words) > 2:  # a group, such as `store`
            command = command.commands[words[2]]
        known = {name for each in command.params for name in each.opts}
        used = {word.strip("[]").partition("=")[0] for word in words if re.match(r"\[?--\w", word)}
        assert used - {"--help"} <= known, call


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and the site make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@pytest.mark.parametrize("page", [*ALL_PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if re.match(r"\w+:", link) or target in (GENERATED, GALLERY):
            continue
        headings = re.findall(r"^#+ (.*)$|id=\"([\w-]+)\"", text_of(target), re.M) if anchor else []
        if not target.exists() or (anchor and anchor not in map(slug, map("".join, headings))):
            lost.append(link)
    assert lost == []


def test_the_site_has_every_page():
    given = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    named = re.findall(r"[\w/-]+\.md", str(given))
    pages = [page.relative_to(DOCS).as_posix() for page in ALL_PAGES if DOCS in page.parents]
    assert sorted(named) == sorted([*pages, GENERATED.name]), "the navigation in mkdocs.yml"


def test_pictures_are_small_and_used():
    pictures = [path for path in (DOCS / "pictures").iterdir() if path != GALLERY]
    assert sum(path.stat().st_size for path in pictures if path.suffix != ".html") < 300_000
    text = "".join(page.read_text(encoding="utf-8") for page in ALL_PAGES)
    assert [path.name for path in pictures if f"pictures/{path.name}" not in text] == []


def test_verdicts_on_claims_are_those_of_the_findings():
    verdict = re.compile(r"^\| ([FM]\d+) \| [^|]+ \| (shown|refuted|undecided)", re.M)
    verdicts = dict(verdict.findall(text_of(DOCS / "development" / "findings.md")))
    assert len(verdicts) == 14
    claims = text_of(DOCS / "claims.md")
    assert dict(re.findall(r"^\*\*([FM]\d+) · (\w+)\.\*\*", claims, re.M)) == verdicts
    count = Counter(verdicts.values())
    counts = (
        f"{count['shown']} are shown, {count['refuted']} are refuted and {count['undecided']} are"
    )
    assert counts in claims and counts in text_of(DOCS / "masking.md")


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_code_names_pages_that_exist():
    code = [name for name in FILES if name.endswith((".py", ".yaml", ".yml"))]
    texts = [(name, (ROOT / name).read_text("utf-8")) for name in [*code, "Makefile", "setup.cfg"]]
    named = {(name, page) for name, text in texts for page in re.findall(r"docs/[\w/-]+\.md", text)}
    made = {"docs/changelog.md"}
    assert [each for each in sorted(named) if not (each[1] in made or is_file(each[1]))] == []


def written_in_the_code() -> list[str]:
    """Return the texts of the package's strings, with .. for what is filled in."""
    texts = []
    for path in (ROOT / "maskpolicy").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (str(v.value) if isinstance(v, ast.Constant) else ".." for v in node.values)
                texts.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(re.sub(r"%[sd]", "..", node.value))
    return texts


def test_the_messages_of_the_faq_are_those_of_the_code():
    rows = re.findall(r"^\| `(.*?)` \| ", (DOCS / "faq.md").read_text("utf-8"), re.M)
    pattern = {row: ".*".join(map(re.escape, row.strip(". ").split(".."))) for row in rows}
    texts = written_in_the_code()
    assert len(rows) > 30
    assert [row for row in rows if not any(re.search(pattern[row], text) for text in texts)] == []


def test_llms_txt_names_the_pages_of_the_site():
    links = re.findall(r"\]\(([\w/-]+)\.html\)", (DOCS / "llms.txt").read_text("utf-8"))
    pages = [page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")]
    assert [link for link in links if link not in pages] == []
    wanted = {page for page in pages if not page.startswith(("development/", "changelog"))}
    assert sorted(wanted - {*links}) == [], "name the page in docs/llms.txt"


def test_the_readme_cites_what_the_citation_file_names():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for each in (cited, *cited["references"]):
        assert f"{{{each['title']}}}" in readme and each["url"] in readme
    assert f"{{{cited['version']}}}" in readme


def test_a_reader_can_oversee_the_pages_of_use_and_science():
    pages = [
        page for page in ALL_PAGES if page.parent in (DOCS, DOCS / "howto", DOCS / "tutorials")
    ]
    assert len(pages) <= 30, "merge pages, or move what a user does not need to docs/development"
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in pages)
    assert words <= 45_000, f"{words} words: shorten, or move what a user does not need"
    given = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    first = [
        page
        for layer in given
        for page in next(iter(layer.values()))
        if "development/" in str(page)
    ]
    assert [list(each) for each in first] == [["Development"]], "below Home alone"
    assert (DOCS / "development" / ".meta.yml").read_text() == "search:\n  exclude: true\n"
