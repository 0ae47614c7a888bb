"""The reference of all keys of an experiment file: block, type, default and meaning of each."""

from __future__ import annotations

import dataclasses
import inspect
import io
import json
import re
import textwrap
import tokenize
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, replace
from typing import Any

from maskpolicy.core import keys, markdown, schema
from maskpolicy.core.types import Denoising, Json
from maskpolicy.experiment import budgets
from maskpolicy.experiment.budgets import KINDS, Need, Slurm, Training
from maskpolicy.experiment.definition import CorpusBlock, ModelBlock, PolicyBlock, TaskBlock
from maskpolicy.experiment.parse import File
from maskpolicy.experiment.policy_blocks import AT_POSITIONS, GeneralKeys
from maskpolicy.experiment.sweeps import RowKeys
from maskpolicy.experiment.text_budgets import TextBudget, TuningBudget
from maskpolicy.experiment.world_settings import Settings
from maskpolicy.plugins.registry import Registered

TRAININGS = ", ".join(budgets.defaults(False))
"""The heading for the blocks of the trainings."""

RESOURCES = "resources.KIND"
"""The heading for the blocks of the kinds of stages."""

_MADE = {"label": None}  # if omitted, made from the other keys of its block
_MAY_LACK = ("of", "defaults")
_RATE = "a number, a schedule or a distribution >= 0 and <= 1"
_SHORT = {_RATE: "rate", r"\ba (?=list|na|nu|t|w|b)": "", "list, of": "list of", " of keys": ""}
_SHORT |= {" >= ": " ≥", " <= ": " ≤", " < ": " <", " > ": " >", " and (?=[<≤])": ", "}
_HEAD = """\
# Every key of an experiment file

A file states what differs from the defaults. On the command line, write a key with the names of its
blocks: `intermediate.steps=4000`, `corpus.on_error=skip`. Unknown keys are errors.

A value may name another key, `warmup: ${intermediate.warmup}`, in a file and on the command line,
as in OmegaConf. It is resolved before keys are checked, so results and keys of stages hold the
value itself. Functions such as `${oc.env:HOME}` are errors: only files decide an experiment.

This page lists each key with its type and default. A rate is a number from 0 to 1, a
[schedule](policies.md#schedules) of such numbers or a
[distribution](policies.md#drawn-rates-and-weights) of them. `maskpolicy list keys` prints the keys,
with those of your own policies and tasks too (`--plugin FILE`); `--json` and `--markdown` are its
other forms, and the last one is this page, without the keys of single policies, which
`maskpolicy list policies --markdown` prints."""
_ABOUT = {
    "file": "The top of the file. The keys of any policy, `corruption` to "
    "`replaced_token_detection`, may stand here too: they apply to each row that does not set "
    "them itself.",
    "model": "`model: NAME` stands for `model: {name: NAME}`.",
    "corpus": "`corpus: world` stands for `corpus: {name: world}`.",
    TRAININGS: "Each of these four blocks is the budget of one training. All rows share it, except "
    "for the settings in the blocks `fit`, `intermediate` and `finetune` of a policy.",
    "general": "The block `general` also has these keys. They are for models built from "
    "scratch: [tasks.md](tasks.md#a-general-stage-on-several-objectives).",
    "intermediate": "The block `intermediate`, of the file or a row, may have one of these keys "
    "instead of `steps`. maskpolicy first reads the corpus and counts its words; results and the "
    "keys of stages hold the steps. A row's block counts the words of that row's corpus, the "
    "file's block those of the file's corpus.",
    "finetune": "The block `finetune`, of the file or a task, may have this key instead of "
    "`steps`. The number of steps of a task then depends on the number of its train examples.",
    RESOURCES: f"KIND is one of {', '.join(KINDS)}; the last one means all kinds of stages "
    "without their own block. `resources: {intermediate: {gpus: 4}}` computes each "
    "intermediate stage in four processes with a GPU each ([scale.md](scale.md)).",
    "slurm": "The jobs that `--executor slurm` submits ([scale.md](scale.md)). `resources` says "
    "what each job needs.",
    "policies": "[policies.md](policies.md) lists the policies with their keys. A block also takes "
    "these keys of any policy.",
    "tasks": "A block takes these keys of any task, and the keys of its task.",
    "world": "Settings of the embedded world: [tasks.md](tasks.md#the-embedded-world).",
}
_LINTERS = ("noqa", "type:", "pragma:", "fmt:")
_MODELS = {"built from scratch": True, "any other model": False}


@dataclass(frozen=True)
class Key:
    """One key of an experiment file.

    `default` is MISSING if the key is required, or if its default depends on the case.
    """

    block: str  # e.g. "corpus"; "policies" and "tasks" stand for each block in the list
    of: str  # the only policy or task with this key; "": all of them
    name: str  # with a dot for each nested block
    type: str
    default: Json
    meaning: str
    defaults: Mapping[str, Json] = field(default_factory=dict)  # where they differ, by case

    def to_json(self) -> dict[str, Json]:
        """Return the key as JSON, without missing properties."""
        known = {name: value for name, value in vars(self).items() if value is not MISSING}
        return {name: known[name] for name in known if known[name] or name not in _MAY_LACK}


_OF_POLICIES = (  # are not read from files
    *("fields", "denoising", "trainings", "tune", "candidates", "policy", "members"),
)


def listed(policies: Sequence[Registered], tasks: Sequence[Registered]) -> list[Key]:
    """Return all keys, including those of the given policies and tasks, in the order of a file."""
    return [
        *_keys("file", File),
        *_keys("model", ModelBlock),
        *_keys("corpus", CorpusBlock),
        *_trainings(),
        *_keys("general", GeneralKeys),
        *_keys("intermediate", TextBudget),
        *_keys("finetune", TuningBudget),
        *_keys(RESOURCES, Need),
        *_keys("slurm", Slurm),
        *_keys("policies", PolicyBlock, without=_OF_POLICIES),
        *_keys("policies", RowKeys),
        *_with(_objectives(policies), _keys("policies", Denoising)),
        *(key for each in policies for key in _keys("policies", each.plugin, each.name)),
        *_keys("tasks", TaskBlock, without=("fields",)),
        *(key for each in tasks for key in _keys("tasks", each.plugin, each.name)),
        *_keys("world", Settings),
    ]


def _keys(
    block: str, plugin: Any, of: str = "", without: Collection[str] = (), within: str = ""
) -> Iterator[Key]:
    """Yield the keys of a dataclass, and those of nested blocks one by one."""
    meanings = field_comments(plugin)
    for name, known in schema.fields_of(plugin).items():
        if name in without:
            continue
        path = f"{within}{name}"
        if dataclasses.is_dataclass(known.annotation):
            yield from _keys(block, known.annotation, of, within=f"{path}.")
            continue
        default = _MADE.get(name, known.default) if known.is_required else known.default
        value = default if default is MISSING else keys.plain(default, path)
        yield Key(block, of, path, schema.words(known.annotation), value, meanings.get(name, ""))


def _with(cases: Mapping[str, Mapping[str, Json]], found: Iterator[Key]) -> Iterator[Key]:
    """Add the default of each case to the keys whose default depends on the case."""
    for key in found:
        given = {case: values[key.name] for case, values in cases.items() if key.name in values}
        differs = any(value != key.default for value in given.values())
        yield replace(key, defaults=given if differs else {})


def _trainings() -> list[Key]:
    """Return the keys of a budget, with the default for each stage if they differ."""
    cases = {
        f"{stage}, {kind}": keys.plain(asdict(spec))
        for kind, is_scratch in _MODELS.items()
        for stage, spec in budgets.defaults(is_scratch).items()
    }
    found = _with(cases, _keys(TRAININGS, Training))
    return [replace(key, default=MISSING) if key.defaults else key for key in found]


def _objectives(policies: Sequence[Registered]) -> dict[str, dict[str, Json]]:
    """Return the settings that differ from Denoising's defaults, by policy and for encoders."""
    cases = {"any, for an encoder": asdict(AT_POSITIONS)}
    cases |= {entry.name: entry.facts for entry in policies}
    return {case: _unusual(facts) for case, facts in cases.items()}


def _unusual(facts: Mapping[str, Json]) -> dict[str, Json]:
    usual = asdict(Denoising())
    return {name: value for name, value in facts.items() if value != usual[name]}


def page(found: Sequence[Key]) -> str:
    """Return docs/settings.md for the given keys."""
    blocks = list(dict.fromkeys(key.block for key in found))
    return "\n\n".join([_HEAD, *(_section(block, found) for block in blocks)]) + "\n"


def default(key: Key) -> str:
    """Return the default of a key as in a file; without one, "by stage" or "required"."""
    if key.default is not MISSING:
        return written(key.default)
    return "by stage" if key.defaults else "required"


def written(value: Json) -> str:
    """Return a value as in a file; only an empty text has quotes."""
    is_bare = isinstance(value, str) and value
    return value if is_bare else json.dumps(value, ensure_ascii=False)


def policy_table(found: Sequence[Key], policies: Sequence[Registered]) -> str:
    """Return the table of docs/policies.md: the policies with their objectives and keys."""
    about = "Nothing: no intermediate stage, the row that others are compared with."
    rows = [['<a id="none"></a>`none`', about, ""]]
    for each in policies:
        objective = [f"`{k}: {written(v)}`" for k, v in _unusual(each.facts).items()]
        own = [_item(key).removeprefix("* ") for key in found if key.of == each.name]
        said = f"{each.summary} Default: {', '.join(objective)}." if objective else each.summary
        rows.append([f'<a id="{each.name}"></a>`{each.name}`', said, "<br>".join(own)])
    return markdown.table(["policy", "masks", "keys"], rows) + "\n"


def _section(block: str, found: Sequence[Key]) -> str:
    every = [key for key in found if key.block == block and not key.of]
    own = [key for key in found if key.block == block == "tasks" and key.of]
    parts = [f"## {block}", _ABOUT[block], "\n".join(map(_item, every))]
    if any(key.defaults for key in every):
        parts += ["Where defaults differ:", _defaults(every)]
    if own:
        tasks: dict[str, list[str]] = {}
        for key in own:
            tasks.setdefault(_item(key).removeprefix("* "), []).append(f"`{key.of}`")
        items = (f"* {', '.join(names)}: {item}" for item, names in tasks.items())
        parts += ["Keys of single tasks:", "\n".join(items)]
    return "\n\n".join(parts)


def _item(key: Key) -> str:
    """Return the list item of a key: name, type, default and meaning."""
    kind = key.type
    for pattern, words in _SHORT.items():
        kind = re.sub(re.escape(pattern) if pattern == _RATE else pattern, words, kind)
    value = f"`{default(key)}`" if key.default is not MISSING else default(key)
    is_brief = key.block == "policies" and key.of and "|" not in kind and key.default is not MISSING
    about = f"{kind}; {value}" if not is_brief else value if len(value) < 100 else "a long list"
    return f"* `{key.name}` ({about}): {markdown.unlinked(key.meaning)}"


def _defaults(found: Sequence[Key]) -> str:
    """Return a table of the defaults that depend on the case, with a row for each case."""
    changed = [key for key in found if key.defaults]
    cases = list(dict.fromkeys(case for key in changed for case in key.defaults))
    rows = [
        [case, *(written(key.defaults[case]) if case in key.defaults else "" for key in changed)]
        for case in cases
    ]
    return markdown.table(["", *(f"`{key.name}`" for key in changed)], rows)


def field_comments(plugin: Any) -> dict[str, str]:
    """Return the comment of each commented field, at the end of its line or on the lines above.

    Fields of base classes are included. If a class has no source file, the result is empty.
    """
    found: dict[str, str] = {}
    for each in reversed(inspect.getmro(plugin) if inspect.isclass(plugin) else ()):
        if "__dataclass_fields__" in vars(each):
            found |= _of_class(each)
    return found


def _of_class(plugin: type) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(plugin))
    except (OSError, TypeError):  # typed into an interpreter
        return {}
    left = {field.name for field in dataclasses.fields(plugin)}
    found: dict[str, str] = {}
    above: list[str] = []
    name = ""  # of the field on the present line
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_first = not token.line[: token.start[1]].strip()
        if token.type == tokenize.COMMENT:
            text = token.string.lstrip("#: ").strip()
            if text.startswith(_LINTERS):
                continue
            if is_first:
                above.append(text)
            elif name:
                found[name] = text
        elif token.type == tokenize.NAME and is_first and token.string in left:
            name = token.string
            left.discard(name)
            found[name] = " ".join(above)
        elif token.type == tokenize.NEWLINE:
            above, name = [], ""
    return {name: text for name, text in found.items() if text}
