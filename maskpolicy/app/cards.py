"""Model cards of exported folders, in the Hub's format."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.keys import to_json
from maskpolicy.core.markdown import plain, plain_table, table
from maskpolicy.core.types import Json
from maskpolicy.data.corpus.documents import HubSource, Source, WorldSource
from maskpolicy.data.corpus.mixing import TextShare
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import ENCODER, PRESETS, is_scratch
from maskpolicy.experiment.task_kinds import TASK_KINDS, TEXT
from maskpolicy.models.families import within
from maskpolicy.models.model_kinds import MODEL_KINDS
from maskpolicy.pipeline.stages.params import FinetuneParams, IntermediateParams
from maskpolicy.pipeline.stages.training_text import VALIDATION_FACT
from maskpolicy.plugins import hooks
from maskpolicy.plugins.discovery import plugin_of_run

_ORDINARY = "It is an ordinary Transformers folder:"
_RELATIVE = (
    "Its attention has relative positions, which stock models lack: Transformers loads the folder "
    "only after `maskpolicy.models.relative_positions` is imported:"
)
_IMPORT = "import maskpolicy.models.relative_positions\n"
_DATA_SETS = {"world": "maskpolicy-world-{}", "files": "local-files-{}"}  # not names on the Hub
_NAMES = {"world": "{} (world)", "files": "{} (local files)"}
_SOURCES = {
    "world": "invented data (the embedded world)",
    "files": "local files",
    "hub": "the Hub",
}
MASKED_LM = "AutoModelForMaskedLM"
_SHOWN = 20  # the most corpus files in a card
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CardScore:
    """The mean score of fine-tuned models on one task."""

    task: str
    metric: str
    value: float  # in [0, 1]
    n: int  # test examples
    seeds: tuple[int, ...]
    std: float | None = None
    source: str = ""  # of the questions: world, hub or files
    kind: str = TEXT  # of the task


@dataclass(frozen=True)
class ModelHistory:
    """The history of a checkpoint, from which its card is written."""

    name: str  # of the folder
    model: str  # a preset, an absolute folder or a Hub name
    revision: str | None  # the commit of a Hub name
    command: str  # one line for each command that made it
    manifest: Json  # of the artifact
    kind: str = "seq2seq"  # of the model
    family: str = ""  # of its architecture, in lower case; "": that of its kind's presets
    limits: tuple[int | None, int | None] = (None, None)  # of tokens of a source and a target
    auto_class: str = ""  # of Transformers, to load it; "": that of its kind or its task
    is_relative: bool = False  # whether it has relative positions, unlike a stock RoBERTa
    head: str | None = None  # kind of the task that it was fine-tuned on
    policy: str | None = None  # None if it has no intermediate stage
    intermediate: IntermediateParams | None = None
    corpus: Source | None = None  # of the intermediate stage
    mix: Sequence[TextShare] = ()  # of texts that are mixed into that corpus
    work: Json = None
    validation: Json = None  # `validation_of`, if there was text for it
    task: str | None = None  # what it was fine-tuned on
    finetune: FinetuneParams | None = None
    scores: Sequence[CardScore] = ()
    tuned_with: str = ""  # the fine-tuning budget of the scored models, in words
    choices: Sequence[str] = ()  # of a tuned row: what it chose on dev, and what that cost

    @property
    def is_scratch(self) -> bool:
        """Whether the model is a preset, built from scratch."""
        return is_scratch(self.model, self.kind)


def card(history: ModelHistory) -> str:
    """Return the README.md of an exported checkpoint."""
    from huggingface_hub import ModelCard

    kind = MODEL_KINDS[history.kind]
    factory = history.auto_class or kind.auto_class
    if history.head:
        factory = TASK_KINDS[history.head].auto_class
    recorded = history.manifest["versions"]
    wanted = [name for name in ("maskpolicy", "torch", "transformers") if name in recorded]
    versions = [f"{name} {recorded[name]}" for name in wanted]
    sections = [
        _front(history),
        f"# {history.name}",
        f"{_base(history)}{_trained(history)}. {_RELATIVE if history.is_relative else _ORDINARY}",
        f"```python\n{_IMPORT if history.is_relative else ''}"
        f"from transformers import {factory}, AutoTokenizer\n\n"
        f'tokenizer = AutoTokenizer.from_pretrained("{history.name}")\n'
        f'model = {factory}.from_pretrained("{history.name}")\n```',
        *_head(history, factory),
        *_trainings(history),
        "## Results",
        _results(history),
        "## How it was made",
        f"```\n{history.command}\n```",
        f"with {', '.join(versions)}. `maskpolicy.json` has all settings; "
        "with the same files in place, these commands reproduce the model.",
    ]
    return str(ModelCard("\n\n".join(sections) + "\n", ignore_metadata_errors=False))


def _head(history: ModelHistory, factory: str) -> list[str]:
    """Return what an encoder that is not fine-tuned has above its body, in a sentence."""
    if history.kind != ENCODER or history.task:
        return []
    if factory == MASKED_LM:
        return ["It has its head for masked language modelling, so it fills masks."]
    return [
        "It is the body alone and fills no masks: its head for masked language modelling was "
        "trained above MAE-LM's decoder, and both are left out."
    ]


def _trainings(history: ModelHistory) -> list[str]:
    """Return the sections about the intermediate stage and the fine-tuning."""
    params, sections = history.intermediate, list[str]()
    if history.policy is not None and params is not None and history.corpus is not None:
        sections = [
            "## Policy",
            _table({"name": history.policy, **_policy_settings(params)}),
            "## Corpus",
            _corpus(history.corpus, history.mix),
            "## Budget",
            _table(_budget(params.spec, history.limits)),
            "## Work done",
            _table(history.work),
            *_validation(history.validation),
        ]
    if history.finetune is not None:
        sections += ["## Fine-tuning", _table(_budget(history.finetune.spec, history.limits))]
    if history.choices:
        about = "These were chosen by their scores on the dev split. What that cost stands behind"
        lines = "\n".join(f"* {plain(choice)}" for choice in history.choices)
        sections += ["## Tuned settings", f"{about} each.", lines]
    return sections


def _front(history: ModelHistory) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    tags = ["maskpolicy", history.family or MODEL_KINDS[history.kind].family.lower()]
    tags += ["intermediate-pre-training", f"policy:{history.policy}"] if history.policy else []
    base = history.model
    facts: dict[str, Any] = {"library_name": "transformers", "tags": tags}
    if not history.is_scratch:
        facts["base_model"] = Path(base).name if Path(history.model).is_absolute() else base
    if history.scores:
        facts["model_name"] = history.name
        facts["eval_results"] = [
            EvalResult(
                task_type=TASK_KINDS[score.kind].hub,
                dataset_type=_DATA_SETS.get(score.source, "{}").format(score.task),
                dataset_name=_data_set(score),
                dataset_split="test",
                metric_type=score.metric,
                metric_name=score.metric.replace("_", " "),
                metric_value=round(100 * score.value, 2),
            )
            for score in history.scores
        ]
    return f"---\n{ModelCardData(**facts).to_yaml()}\n---"


def _base(history: ModelHistory) -> str:
    if history.is_scratch:
        world = " on the embedded world" if history.model in PRESETS[history.kind] else ""
        return f"`{Path(history.model).name}`, built from scratch{world}"
    if Path(history.model).is_absolute():
        return (
            f"The model of a local folder, `{Path(history.model).name}` (`base_model` is the "
            "folder's name: replace it by the model's name on the Hub before you publish this one)"
        )
    return f"`{history.model}` at commit `{history.revision}`"


def _trained(history: ModelHistory) -> str:
    text = ""
    if history.policy is not None:
        try:
            summary = plugin_of_run("policy", history.policy).summary.rstrip(".")
        except ConfigError as error:  # its plugin is not loaded
            log.warning("the model card does not describe the policy: %s", error)
            summary = ""
        text = (
            f", pre-trained further on masked passages with the policy `{history.policy}`"
            f"{f' ({summary})' if summary else ''}"
        )
    if not history.task:
        return text
    name = next(
        (_data_set(score) for score in history.scores if score.task == history.task), history.task
    )
    return f"{text}, then fine-tuned on {plain(name)}"


def _validation(validation: Json) -> list[str]:
    if validation is None:
        return []
    rows = [[str(step), f"{loss:.4f}"] for step, loss in validation["losses"]]
    return [
        "## Validation",
        validation_sentence(validation),
        table(["step", "loss"], rows, numbers=True),
    ]


def validation_of(manifest: Json) -> Json:
    """Return what the manifest of a training records of its validation, or None."""
    return manifest["record"]["facts"].get(VALIDATION_FACT)


def validation_sentence(record: Json) -> str:
    """Return what a validation found, in words; `record` is that of `validation_of`."""
    before = "" if record["before"] is None else f"{record['before']:.3f} before, "
    count, times = record["passages"], len(record["losses"])
    passages = f"{count} passage{'s' if count > 1 else ''}"
    lowest = f", the lowest of {times}" if times > 1 else ""
    what = "Validation loss (nats per target token"
    if record.get("bound"):
        what = "Bound on the negative log-likelihood (NELBO, nats per token"
    return (
        f"{what}, {passages}): {before}{record['after']:.3f} after "
        f"step {record['step']} of {record['steps']}{lowest}."
    )


def _policy_settings(params: IntermediateParams) -> dict[str, Json]:
    """Return the policy's fields and objective; members have their own, one line for each."""
    own, members = dict(params.fields), params.fields.get(hooks.MEMBERS.name)
    if members is None:
        return {**own, **to_json(params.how)}
    del own[hooks.MEMBERS.name]
    lines = {
        f"member {number}": ", ".join(f"{name} {_written(value)}" for name, value in each.items())
        for number, each in enumerate(members, 1)
    }
    return {**own, **lines}


def _budget(spec: Training, most: tuple[int | None, int | None]) -> dict[str, Json]:
    """Return a budget with the limits of sources and targets lowered to the model's."""
    return to_json(within(spec, most))


def _results(history: ModelHistory) -> str:
    if not history.scores:
        return "It has not been fine-tuned or evaluated on any task."
    about = "Of this model."
    if not history.task:
        tuned = f" ({history.tuned_with})" if history.tuned_with else ""
        about = f"Of this model after fine-tuning on each task{tuned}."
    if any(score.source == "world" for score in history.scores):
        about += (
            " Tasks of the embedded world use the file formats of the data sets of the same names. "
            "Their questions are about an invented world, so such a score is not one on the data "
            "set."
        )
    rows = [
        [
            plain(_data_set(score)),
            _SOURCES.get(score.source, "not known"),
            score.metric,
            f"{100 * score.value:.1f}" + ("" if score.std is None else f" ± {100 * score.std:.1f}"),
            ", ".join(map(str, score.seeds)),
            str(score.n),
        ]
        for score in history.scores
    ]
    head = ["task", "data", "metric", "score (%)", "seeds", "test examples"]
    return f"{about}\n\n{table(head, rows)}"


def _data_set(score: CardScore) -> str:
    """Return a task's name, marked if the questions are not from its data set on the Hub."""
    return _NAMES.get(score.source, "{}").format(score.task)


def _corpus(source: Source, mix: Sequence[TextShare]) -> str:
    unit = "tokens" if source.tokens else "words"
    settings = {f"{unit} in a passage": getattr(source, unit)}
    settings |= {"most documents": source.limit or "all"}
    settings |= {f"passages from {each.name}": f"{100 * each.share:g}%" for each in mix}
    if isinstance(source, WorldSource):
        return _table({"source": "the embedded world", **settings})
    files = source.files or ()
    if isinstance(source, HubSource) and not files:
        return _table({"source": source.hub, **settings, "revision": source.revision})
    rows = [[plain(name), f"`{digest}`"] for name, digest in files[:_SHOWN]]
    more = [[f"and {len(files) - _SHOWN} more", "see maskpolicy.json"]] if files[_SHOWN:] else []
    return f"{_table(settings)}\n\n{table(['file', 'sha256'], [*rows, *more])}"


def _table(values: Json) -> str:
    return plain_table(["", ""], [[k.replace("_", " "), _written(v)] for k, v in values.items()])


def _written(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
