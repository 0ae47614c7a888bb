"""Model cards of exported folders, from the template assets/card.md."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.keys import plain as json_of
from maskpolicy.core.keys import to_json, without_omitted
from maskpolicy.core.markdown import plain, plain_table, table
from maskpolicy.core.types import Json
from maskpolicy.data.corpus.documents import HubSource, Source, WorldSource
from maskpolicy.data.corpus.mixing import TextShare
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import PRESETS, is_scratch
from maskpolicy.experiment.task_kinds import TASK_KINDS, TEXT
from maskpolicy.leaderboard.page import templates
from maskpolicy.models.families import within
from maskpolicy.models.model_kinds import MODEL_KINDS
from maskpolicy.pipeline.stages.params import FinetuneParams, IntermediateParams
from maskpolicy.pipeline.stages.training_text import VALIDATION_FACT
from maskpolicy.plugins import hooks
from maskpolicy.plugins.discovery import changed_since, plugin_of_run

_DATA_SETS = {"world": "maskpolicy-world-{}", "files": "local-files-{}"}  # not names on the Hub
_NAMES = {"world": "{} (world)", "files": "{} (local files)"}
_SOURCES = {
    "world": "invented data (the embedded world)",
    "files": "local files",
    "hub": "the Hub",
}
MASKED_LM = "AutoModelForMaskedLM"
_SHOWN = 20  # corpus files listed in a card
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
    """The history of a checkpoint: what its card says."""

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
    mix: Sequence[TextShare] = ()  # texts that are mixed into that corpus
    work: Json = None
    validation: Json = None  # `validation_of`, if there was text for it
    task: str | None = None  # of the fine-tuning
    finetune: FinetuneParams | None = None
    scores: Sequence[CardScore] = ()
    tuned_with: str = ""  # the fine-tuning budgets of the scored models, in words
    choices: Sequence[str] = ()  # of a tuned row: the settings chosen on dev, and their cost

    @property
    def is_scratch(self) -> bool:
        """Whether the model is a preset, built from scratch."""
        return is_scratch(self.model, self.kind)


def card(history: ModelHistory) -> str:
    """Return the README.md of an exported checkpoint."""
    from huggingface_hub import ModelCard

    factory = history.auto_class or MODEL_KINDS[history.kind].auto_class
    if history.head:
        factory = TASK_KINDS[history.head].auto_class
    recorded = history.manifest["versions"]
    names = [name for name in ("maskpolicy", "torch", "transformers") if name in recorded]
    template = templates("maskpolicy.app").overlay(autoescape=False).get_template("card.md")
    text = template.render(
        it=history,
        front=_front(history),
        origin=f"{_base(history)}{_trained(history)}",
        factory=factory,
        fills_masks=factory == MASKED_LM,
        sections=_sections(history),
        choices=[plain(choice) for choice in history.choices],
        of_world=any(score.source == "world" for score in history.scores),
        scores=_scores(history.scores),
        versions=", ".join(f"{name} {recorded[name]}" for name in names),
    )
    return str(ModelCard(f"{text}\n", ignore_metadata_errors=False))


def _sections(history: ModelHistory) -> dict[str, str]:
    """Return the sections about the intermediate stage and the fine-tuning, by their headings."""
    params, sections = history.intermediate, dict[str, str]()
    if history.policy is not None and params is not None and history.corpus is not None:
        sections = {
            "Policy": _table({"name": history.policy, **_policy_settings(params)}),
            "Corpus": _corpus(history.corpus, history.mix),
            "Budget": _table(_budget(within(params.spec, history.limits))),
            "Work done": _table(history.work),
        }
        if history.validation is not None:
            rows = [[str(step), f"{loss:.4f}"] for step, loss in history.validation["losses"]]
            losses = table(["step", "loss"], rows, numbers=True)
            sections["Validation"] = f"{validation_sentence(history.validation)}\n\n{losses}"
    if history.finetune is not None:
        sections["Fine-tuning"] = _table(_budget(within(history.finetune.spec, history.limits)))
    return sections


def _front(history: ModelHistory) -> str:
    """Return the metadata of the card, as YAML."""
    from huggingface_hub import EvalResult, ModelCardData

    tags = ["maskpolicy", history.family or MODEL_KINDS[history.kind].family.lower()]
    tags += ["intermediate-pre-training", f"policy:{history.policy}"] if history.policy else []
    facts: dict[str, Any] = {"library_name": "transformers", "tags": tags}
    if not history.is_scratch:
        folder = Path(history.model)
        facts["base_model"] = folder.name if folder.is_absolute() else history.model
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
    return str(ModelCardData(**facts).to_yaml())


def _base(history: ModelHistory) -> str:
    """Return which model the training started from."""
    folder = Path(history.model)
    if history.is_scratch:
        world = " on the embedded world" if history.model in PRESETS[history.kind] else ""
        return f"`{folder.name}`, built from scratch{world}"
    if folder.is_absolute():
        return (
            f"The model of a local folder, `{folder.name}` (`base_model` is the folder's name: "
            "replace it by the model's name on the Hub before you publish this one)"
        )
    return f"`{history.model}` at commit `{history.revision}`"


def _trained(history: ModelHistory) -> str:
    """Return how the model was trained after that."""
    text = ""
    if history.policy is not None:
        try:
            entry = plugin_of_run("policy", history.policy)
            code = history.manifest["record"]["params"].get("code")
            changed = changed_since(entry, code) if code else []
            if changed:
                files = ", ".join(changed)
                log.warning("the model card does not describe the policy: %s changed", files)
            summary = "" if changed else f" ({entry.summary.rstrip('.')})"
        except ConfigError as error:  # its plugin is not loaded
            log.warning("the model card does not describe the policy: %s", error)
            summary = ""
        text = (
            f", pre-trained further on masked passages with the policy `{history.policy}`{summary}"
        )
    if history.task:
        names = {score.task: _data_set(score) for score in history.scores}
        text += f", then fine-tuned on {plain(names.get(history.task, history.task))}"
    return text


def validation_of(manifest: Json) -> Json:
    """Return what the manifest of a training records of its validation, or None."""
    return manifest["record"]["facts"].get(VALIDATION_FACT)


def validation_sentence(record: Json) -> str:
    """Return a sentence about a validation; `record` is that of `validation_of`."""
    before = "" if record["before"] is None else f"{record['before']:.3f} before, "
    count, times = record["passages"], len(record["losses"])
    passages = f"{count} {record.get('unit', 'passage')}{'s' if count > 1 else ''}"
    lowest = f", the lowest of {times}" if times > 1 else ""
    what = "Validation loss (nats per target token"
    if record.get("bound"):
        what = "Bound on the negative log-likelihood (NELBO, nats per token"
    if record.get("detects"):
        what = "Validation loss (of generator and encoder"
    return (
        f"{what}, {passages}): {before}{record['after']:.3f} after "
        f"step {record['step']} of {record['steps']}{lowest}."
    )


def _budget(spec: Training) -> dict[str, Json]:
    return without_omitted(Training, json_of(vars(spec)))


def _policy_settings(params: IntermediateParams) -> dict[str, Json]:
    """Return the policy's fields and objective, or a line for each member of a mixture."""
    own, members = dict(params.fields), params.fields.get(hooks.MEMBERS.name)
    if members is None:
        return {**own, **to_json(params.how)}
    del own[hooks.MEMBERS.name]
    lines = {
        f"member {number}": ", ".join(f"{name} {_written(value)}" for name, value in each.items())
        for number, each in enumerate(members, 1)
    }
    return {**own, **lines}


def _scores(scores: Sequence[CardScore]) -> str:
    rows = [
        [
            plain(_data_set(score)),
            _SOURCES.get(score.source, "not known"),
            score.metric,
            f"{100 * score.value:.1f}" + ("" if score.std is None else f" ± {100 * score.std:.1f}"),
            ", ".join(map(str, score.seeds)),
            str(score.n),
        ]
        for score in scores
    ]
    return table(["task", "data", "metric", "score (%)", "seeds", "test examples"], rows)


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
