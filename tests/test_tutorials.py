"""Each tutorial and how-to page works as it stands there, with smaller trainings."""

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import babylm
import clusters
import encoders
import forked
import pytest
import small as sample
import text_to_text
import trainers
from pages import DOCS, SMALL, Block, blocks

SECTIONS = {"models": "### Compare MLM with MAE-LM\n", "scale": "## Try it on one machine\n"}
OTHERS = [DOCS / f"{name}.md" for name in ("pretraining", "site", *SECTIONS)]
TUTORIALS = [*sorted((DOCS / "tutorials").glob("*.md")), *OTHERS]
HOWTO = sorted((DOCS / "howto").glob("*.md"))
TRAINING = ("run", "plan", "status", "pretrain")  # they take the keys of an experiment
ONCE = {"seeds": "[0]", "intermediate_seeds": 1}  # unless a command gives its seeds
SIZES = {
    **{"model.layers": 1, "model.width": 16, "model.heads": 2},
    **{"model.feed_forward": 32, "model.vocabulary": 500},
}
INSTEAD = {  # of keys that a page gives
    **{**SIZES, "corpus.tokens": 20, "intermediate.epochs": 0.05},
    **{"finetune.epochs": 0.1, "seeds": "[0,1]", "intermediate_seeds": 2},
}
ELSEWHERE = re.compile(
    r"facebook/|s3://|ray=|^make |^source |^bash "
)  # needs a download or a cluster


@pytest.fixture(scope="module")
def computed(tmp_path_factory) -> Path:
    """The folder of the store of all pages, which have many stages in common."""
    return tmp_path_factory.mktemp("computed")


@pytest.fixture(autouse=True)
def here(tmp_path, computed, monkeypatch) -> None:
    """Each page is read in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MASKPOLICY_STORE", raising=False)
    Path(".maskpolicy").symlink_to(computed)


@pytest.mark.slow
@pytest.mark.usefixtures("in_forks")
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial(page, call, tmp_path):
    for named in re.findall(r"builds on the \[quickstart\]\((\w+\.md)\)", page.read_text("utf-8")):
        given(next(each for each in blocks(page.parent / named) if each.language == "sh"), call)
    printed = ""
    if page.stem == "babylm":
        babylm.slice_into(tmp_path)
    for block in blocks_of(page):
        if block.file:
            (tmp_path / block.file).write_text(smaller(block.text), encoding="utf-8")
        elif block.language == "python":
            clusters.finish(forked.Script(f"import sys\nsys.path.insert(0, '.')\n{block.text}"))
        elif block.language == "sh":
            printed = given(block, call)
        elif block.language == "text":
            assert [line for line in block.text.splitlines() if line not in printed] == []


def test_ten_passes_of_babylm_reach_all_its_checkpoints(call, tmp_path):
    """On a corpus of fewer words, and as many times fewer words before each checkpoint."""
    babylm.slice_into(tmp_path)
    (block,) = (block for block in blocks(DOCS / "tutorials/babylm.md") if block.file)
    words = sum(len(path.read_text().split()) for path in (tmp_path / "train_10M").iterdir())
    scaled = re.sub(r"\b(\d+)M\b", lambda found: str(int(found[1]) * words // 10), block.text)
    (tmp_path / block.file).write_text(scaled, encoding="utf-8")
    keys = (
        "corpus.tokens=20",
        "intermediate.batch_size=1",
        *(f"{k}={v}" for k, v in SIZES.items()),
    )
    code, out, err = call("plan", block.file, *keys, "--store", "own")
    assert code == 0, err
    assert "171 intermediate" in out  # of 3 rows in 3 runs: 18 checkpoints and the end


@pytest.fixture
def checkpoints(tmp_path) -> Path:
    """A folder in which the names of models on the Hub are folders of small models, with texts."""
    encoders.saved("bert", tmp_path / "google-bert" / "bert-base-uncased")
    for name, family in (("facebook/bart-base", "bart"), ("google-t5/t5-small", "t5")):
        text_to_text.model(family).save_pretrained(tmp_path / name)
        text_to_text.tokenizer(family).save_pretrained(tmp_path / name)
    lines = [f"{text} {number}.\n" for number in range(8) for text in sample.TEXTS]
    tsv = "".join(f"{line[:-1]}\t{number % 2}\n" for number, line in enumerate(lines))
    files = {"notes/one.txt": "\n".join(lines)}
    files |= {f"glue/SST-2/{split}.tsv": f"sentence\tlabel\n{tsv}" for split in ("train", "dev")}
    files["papers.csv"] = "text\n" + "".join(f'"{line[:-1]}"\n' for line in lines)
    files["held-out.csv"] = "text\n" + "".join(f'"Then: {line[:-1]}"\n' for line in lines)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", HOWTO, ids=lambda page: page.stem)
def test_a_how_to_page(page, call, checkpoints, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    text = page.read_text(encoding="utf-8")
    assert len(re.sub(r"^```.*?^```", "", text, flags=re.S | re.M).split()) <= 450
    if page.stem == "trainer":  # "Five lines train BERT"
        first = next(block.text for block in blocks(page) if block.language == "python")
        assert len([*filter(None, first.splitlines())]) == 5
    for block in blocks(page):
        if block.file:
            short = re.sub(r"epochs: \d+", "epochs: 0.05", smaller(block.text))
            short = re.sub(r"tokens: \d+", "tokens: 20", short)
            (checkpoints / block.file).write_text(short, encoding="utf-8")
        elif block.language == "python":
            exec(block.text, {"rows": trainers.ROWS})
        elif block.language == "sh":
            given(block, call, here=True)


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page, or of the section of it that is a tutorial."""
    if not (heading := SECTIONS.get(page.stem)):
        return list(blocks(page))
    before, _, after = page.read_text("utf-8").partition(heading)
    section = after.partition(f"\n{heading.partition(' ')[0]} ")[0]
    first = before.count("\n")
    return [block for block in blocks(page) if first < block.line <= first + section.count("\n")]


def smaller(text: str) -> str:
    """Return an experiment with the only checkpoint that two steps have."""
    shorter = text.replace("intermediate: {epochs: 10, ", "intermediate: {steps: 2, ")
    return re.sub(r"^checkpoint_words: .*$", "checkpoint_words: [1]", shorter, flags=re.MULTILINE)


def given(block: Block, call: Callable[..., tuple[int, str, str]], here: bool = False) -> str:
    """Give the commands of a block; return what they print.

    `here`: the Hub's names are folders.
    """
    printed = ""
    for written in block.commands:
        words = [word.replace("$PWD", str(Path.cwd())) for word in written]
        if not here and ELSEWHERE.search(" ".join(words)):
            continue
        if words[0] != "maskpolicy":
            subprocess.run(words, check=True, timeout=60)
            continue
        code, out, err = call(*small(words[1:]))
        assert code == 0, f"{block.name}: {words}\n{err}"
        printed += out
    return printed


def small(words: Sequence[str]) -> list[str]:
    """Return the words of a command with keys for a small world and short trainings."""
    if words[0] == "world":
        return [*words, "people=8", "general_people=4"]
    if words[0] not in TRAINING:
        return [*words]
    added = [key for key in SMALL if words[0] != "pretrain" or not key.startswith("finetune.")]
    text = " ".join([*words, *(Path(word).read_text() for word in words if Path(word).is_file())])
    for name in ("intermediate", "finetune"):
        if re.search(rf"{name}(\.|: {{)epochs[:=]", text):
            added.remove(f"{name}.steps=2")
    if "model: google-" in text or re.search(r"--model \S+/", text):
        added = [key for key in added if not key.startswith(("general.", "world."))]
    own = {key: value for key, value in INSTEAD.items() if f" {key}=" in text}
    own |= SIZES if "architecture: " in text else {}
    if words[0] != "pretrain":
        own = ONCE | own
    added += [f"{key}={value}" for key, value in own.items()]
    names = {word.partition("=")[0] for word in added}
    return [*(word for word in words if word.partition("=")[0] not in names), *added]
