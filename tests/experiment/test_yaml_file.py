"""An experiment file of any content is read, or refused with one line, and soon.

messages.txt has a case on each line: overrides of a small file, and a part of the message.
"""

import os

import pytest
from refusals import messages, refused

from maskpolicy.core.errors import ConfigError
from maskpolicy.experiment.yaml_file import matches, read_text, values

DEEP = 100_000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: " + "[" * DEEP + "]" * DEEP, "line 1: nested deeper than 50"),
        ("a: " + "{a: " * DEEP, "line 1: nested deeper than 50"),
        ("\n".join(" " * i + "a:" for i in range(200)), "line 51: nested deeper than 50"),
        ("- " * DEEP + "x", "line 1: nested deeper than 50"),
        ("a: &a [*a]", "not valid YAML: YAML recursive aliases"),
        ("a: " + "9" * 5000, "not valid YAML: Exceeds the limit (4300 digits)"),
        ("a: [1, -9223372036854775808]", "a[1]: an integer must be below 2^63"),
        ("a: 0" + "7" * 5000, "line 1: 0777"),
        ("a: 1" + ":1" * 5000, "line 1: 1:1:1"),
        (
            "b: 1\na: 0100",
            "line 2: 0100: YAML 1.1 and 1.2 read it as different values: write a num",
        ),
        ("a: [-01_0]", "line 1: -01_0: YAML 1.1 and"),
        ("a: 1:40", "line 1: 1:40: YAML 1.1 and"),
        ("a: 1_000", "line 1: 1_000: YAML 1.1"),
        ("a: [-1_0.5e3, 0b11]", "line 1: -1_0.5e3: YAML 1.1"),
        ("a: " + "${" * 400 + "x" + "}" * 400, "maximum recursion depth exceeded"),
        ("a: ${oc.env:HOME}", "a: ${oc.env:HOME} calls a function: only keys can be named"),
        ("a: {b: env}\nc: [x, '${oc.${a.b}:HOME}']", "c[1]: ${oc.:HOME} calls a function"),
        ("a: ${b}", "a: Interpolation key 'b' not found"),
        ("a: ${b.c}\nb: {c: '${a}'}", "Recursive interpolation"),
        ("a: {b: ['${a}']}", "Interpolation to parent node detected"),
        ("a: ${b", "not valid YAML"),
        ('a: "\\e[31mred"', "a: holds a control character"),
        ('"\\x07": 1', "holds a control character"),
        ('a: "x\\u202ey"', "a: holds a control character"),
        ("'1'", "must be a block of keys"),
        ("", "must be a block of keys"),
        ("a: !!int x", "not valid YAML"),
    ],
    ids=lambda text: text[:12],
)
def test_what_no_experiment_needs_is_refused(text, reason):
    line = refused(values, text, "it.yaml: ")
    assert line.startswith("it.yaml") and reason in line


def test_aliases_may_not_multiply_values():
    lists = [
        f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    with pytest.raises(ConfigError, match="node expansion exceeds"):
        values("a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(lists), "it.yaml: ")


def test_aliases_and_fifty_levels_are_read():
    nested = "a: &a " + "[" * 49 + "1" + "]" * 49 + "\nb: *a\nc: &c 9223372036854775807\nd: *c"
    found = values(nested, "it.yaml: ")
    assert found["a"] == found["b"] and found["c"] == found["d"] == 2**63 - 1


def test_only_regular_files_below_a_megabyte_are_read(tmp_path):
    names = ("pipe", "large.yaml", "missing.yaml", "latin.yaml", "mine.py")
    pipe, large, missing, latin, plugin = (tmp_path / name for name in names)
    os.mkfifo(pipe)
    large.write_text("#" * 1_000_001)
    latin.write_bytes(b"model: \xe9\n")
    for path, reason in [
        (plugin, "is Python: name an experiment file in YAML"),
        (pipe, "is not a regular file: name a YAML file"),
        (tmp_path, "is a folder: name a YAML file"),
        (large, "has more than 1,000,000 bytes"),
        (missing, "cannot be read: No such file"),
        (latin, "not UTF-8 text (byte 7)"),
    ]:
        assert refused(read_text, path).startswith(f"{path}: {reason}")


def test_an_index_may_be_written_as_in_messages():
    given = values("policies: [none, random]", "it", ["policies[1].ratio=0.3"])
    assert given["policies"] == ["none", {"name": "random", "ratio": 0.3}]
    assert given == values("policies: [none, random]", "it", ["policies.1.ratio=0.3"])


def test_a_value_may_be_that_of_another_key():
    text = "intermediate: {steps: 10, lr: 1e-3}\nfit: ${intermediate}\ncopies: ['${.0}x', a]\n"
    made = values(
        text.replace("'${.0}x'", "'${intermediate.steps} steps'"),
        "it: ",
        ["intermediate.steps=20", "finetune.steps=${intermediate.steps}", "escaped=\\${a}"],
    )
    assert made["fit"] == made["intermediate"] == {"steps": 20, "lr": 1e-3}
    assert made["finetune"] == {"steps": 20} and made["copies"] == ["20 steps", "a"]
    assert made["escaped"] == "${a}"


@pytest.mark.parametrize("sign", ["|", ">"])
def test_a_sign_that_begins_a_block_of_text_is_itself_on_the_command_line(sign):
    assert values("a: 1", "it", [f"separator={sign}"])["separator"] == sign


def test_numbers_that_all_versions_of_yaml_read_alike():
    text = "a: [0, 100, 1e3, .5, 0x1F, 00.5, '0100', \"1:40\", !!str 010, 0:40, a_1]"
    made = values(text, "it: ", ["b='010'"])
    assert made["a"] == [0, 100, 1000.0, 0.5, 31, 0.5, "0100", "1:40", "010", "0:40", "a_1"]
    assert made["b"] == "010"
    with pytest.raises(ConfigError, match=r"override 'b=010'.*010: YAML 1.1"):
        values(text, "it: ", ["b=010"])


MANY = list(range(1001))
LONG = [
    ("baseline=\udcff", "not valid YAML"),
    ("\udcff=1", "lone surrogate"),
    (f"policies.1={{name: regex, pattern: '{'(' * 9000}{')' * 9000}'}}", "pattern: is too large"),
    (f"policies.1={{name: random, grid: {{intermediate.seed: {MANY}}}}}", "makes 1,001 rows"),
    (f"policies.1={{name: random, tune: {{fit.seed: {MANY}}}}}", "makes 1,001 rows"),
    (f"grid={{finetune.eps: {MANY[1:502]}}}", "policies: 1,002 rows or more"),
]


@pytest.mark.parametrize(
    ("overrides", "says"), [*messages(__file__), *LONG], ids=lambda text: text[:60]
)
def test_a_mistake_is_one_line_with_key_and_suggestion(load, tmp_path, overrides, says):
    message = refused(load, *overrides.split(" ;; "))
    assert says in message
    assert message.startswith((f"{tmp_path / 'mine.yaml'}: ", "override "))


def test_a_link_keeps_the_ending_that_its_target_lacks(tmp_path):
    for name in ("blob", "real.txt"):
        (tmp_path / name).write_text("Text.")
    (tmp_path / "a.txt").symlink_to("blob")
    (tmp_path / "b.txt").symlink_to("real.txt")
    names = [path.name for path in matches("*.txt", [tmp_path])]
    assert names == ["a.txt", "real.txt", "real.txt"]
    assert matches("a.txt", [tmp_path]) == [tmp_path.resolve() / "a.txt"]


def test_a_number_sign_begins_no_comment_on_the_command_line():
    assert values("a: 1", "", ["b=#1 it's", "c= #", "d=1 # one"]) == dict(
        a=1, b="#1 it's", c="#", d=1
    )


def test_a_link_without_gz_names_its_gzipped_target(tmp_path):
    (tmp_path / "real.jsonl.gz").write_bytes(b"")
    (tmp_path / "a.jsonl").symlink_to("real.jsonl.gz")
    assert [path.name for path in matches("a.jsonl", [tmp_path])] == ["real.jsonl.gz"]
