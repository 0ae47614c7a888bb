"""Model cards: what a pre-trained folder says of itself, with the Hub's front matter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from maskpolicy import plugins
from maskpolicy.experiment import Experiment
from maskpolicy.types import Json

if TYPE_CHECKING:
    from maskpolicy.nodes import Stage
    from maskpolicy.store import Artifact

_TAGS = ("maskpolicy", "intermediate-pre-training")
_KINDS = {"seq2seq": ("bart", "AutoModelForSeq2SeqLM"), "encoder": ("roberta", "AutoModel")}
_SHOWN = 20  # corpus files


def card(made: Experiment, stage: Stage, artifact: Artifact, name: str) -> str:
    """Return README.md of a folder called `name` that holds the model of an intermediate stage."""
    block = made.policies[0]
    factory = _KINDS[made.model.kind][1]
    summary = plugins.find("policy", block.name).summary
    record = artifact.manifest
    work = json.loads((artifact.path / "work.json").read_text())
    sections = [
        _front(made),
        f"# {name}",
        f"{_base(made, stage)}, pre-trained further on masked passages with the policy "
        f"`{block.name}`: {_sentence(summary)} It is an ordinary Transformers folder:",
        f"```python\nfrom transformers import {factory}, AutoTokenizer\n\n"
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")\n'
        f'model = {factory}.from_pretrained("{name}")\n```',
        "It has been fine-tuned on no task, and nothing is measured of it here.",
        "## Policy",
        _table({"name": block.name, **stage.params["fields"], **stage.params["how"]}),
        "## Corpus",
        _corpus(made, stage),
        "## Budget",
        _table(stage.params["spec"]),
        "## Work done",
        _table(work),
        "## How it was made",
        f"`maskpolicy pretrain`, with {_versions(record['versions'])}. `maskpolicy.json` holds all "
        "settings; the same command on the same files makes it again.",
    ]
    return "\n\n".join(sections) + "\n"


def _front(made: Experiment) -> str:
    lines = ["---", "library_name: transformers"]
    base = made.model.name
    if not made.model.is_scratch:
        lines.append(f"base_model: {json.dumps(Path(base).name if _is_local(made) else base)}")
    tags = (*_TAGS, _KINDS[made.model.kind][0])
    lines += ["tags:", *(f"- {tag}" for tag in tags)]
    return "\n".join([*lines, f"- policy:{made.policies[0].name}", "---"])


def _base(made: Experiment, stage: Stage) -> str:
    name = made.model.name
    if made.model.is_scratch:
        return f"`{name}`, built from scratch on the embedded world"
    if _is_local(made):
        return (
            f"The model of a local folder, `{Path(name).name}` (`base_model` is the folder's name: "
            "put the model's name on the Hub there before you publish this one)"
        )
    return f"`{name}` at commit `{stage.inputs['model'].params['revision']}`"


def _is_local(made: Experiment) -> bool:
    return Path(made.model.name).is_absolute()


def _corpus(made: Experiment, stage: Stage) -> str:
    block = stage.inputs["corpus"].params["corpus"]
    settings = {"words in a passage": block["words"], "most documents": block["limit"] or "all"}
    paths = made.corpus.files
    if not paths:
        settings = {"source": made.corpus.hub or "the embedded world", **settings}
        return _table(settings | {"revision": block["revision"]} if made.corpus.hub else settings)
    rows = [f"| {_cell(name)} | `{digest}` |" for name, digest in block["files"][:_SHOWN]]
    more = [f"| and {len(paths) - _SHOWN} more | see maskpolicy.json |"] if paths[_SHOWN:] else []
    return "\n".join([_table(settings), "", "| file | sha256 |", "|---|---|", *rows, *more])


def _versions(versions: Json) -> str:
    wanted = ("maskpolicy", "torch", "transformers")
    return ", ".join(f"{name} {versions[name]}" for name in wanted if name in versions)


def _sentence(text: str) -> str:
    return text if not text or text.endswith(".") else f"{text}."


def _table(values: Json) -> str:
    rows = [f"| {name.replace('_', ' ')} | {_cell(value)} |" for name, value in values.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _cell(value: Json) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("|", "\\|")
