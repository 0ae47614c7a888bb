"""Stages that train the text-to-text model: general, intermediate, fine-tuning."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from maskpolicy import hardware, hub
from maskpolicy import model as models
from maskpolicy import plugins as plugin_files
from maskpolicy.budgets import Training
from maskpolicy.config import instance
from maskpolicy.corpus import Passages
from maskpolicy.errors import DataError
from maskpolicy.graph import Commit, Run, stage
from maskpolicy.objectives import ExampleSteps, MaskedSteps, Specials
from maskpolicy.results import slug
from maskpolicy.stages.answers import answer, read_examples
from maskpolicy.tracking import tracked
from maskpolicy.training import train
from maskpolicy.types import How, Json

WORK = "work.json"
_SLACK = 8  # tokens that an answer may be longer than the longest one in train


@stage("pretrained")
def pretrained(params: Json, inputs: Mapping[str, Path], out: Path, run: Run) -> None:
    """Take a model that has been pre-trained elsewhere. params: {"name", "revision"}."""
    models.load(run.local.get("folder") or params["name"], params["revision"]).save_pretrained(out)
    if params["name"]:
        hub.note("model", params["name"], run.local.get("revision"), params["revision"])


@stage("general", version=2, shared=True)
def general(params: Json, inputs: Mapping[str, Path], out: Path, run: Run) -> None:
    """Build a preset and pre-train it with random masks. params: {"preset", ..} as intermediate."""
    tokenizer = models.load_tokenizer(str(inputs["tokenizer"]))
    model = models.build(params["preset"], tokenizer, params["spec"]["seed"])
    _pretrain(model, tokenizer, params, inputs, out, run)


@stage("intermediate", version=2, shared=True)
def intermediate(params: Json, inputs: Mapping[str, Path], out: Path, run: Run) -> None:
    """Pre-train on masked passages. params: {"policy", "fields", "how", "spec"}.

    {"until"} ends the training of `spec` before its last step. A by-product is called by the
    number of steps after which the model is kept.
    """
    tokenizer = models.load_tokenizer(str(inputs["tokenizer"]))
    model = models.load(str(inputs["model"]))
    _pretrain(model, tokenizer, params, inputs, out, run)


def _pretrain(
    model: Any, tokenizer: Any, params: Json, inputs: Mapping[str, Path], out: Path, run: Run
) -> None:
    plugin_files.load_files(run.local.get("plugins", ()))
    spec = _spec(params, model, run)
    annotations = [inputs["annotate"]] if "annotate" in inputs else []
    steps = MaskedSteps(
        Passages.open(inputs["corpus"], *annotations),
        instance("policy", params["policy"], params["fields"]),
        How(**params["how"]),
        Specials.of(tokenizer, model.config.decoder_start_token_id),
        spec,
    )
    if spec.steps and steps.hide_nothing():
        raise DataError(
            f"policy {params['policy']}: hides nothing in the {spec.steps} steps of its training: "
            "change its fields, or give it a corpus in which there is something to hide"
        )
    keep = {int(name): _keeping(commit) for name, commit in run.byproducts.items()}
    done = _train(model, steps, spec, run, until=params.get("until", 0), keep=keep)
    _save(model, done["work"], out)


def _keeping(commit: Commit) -> Callable[[Any, Mapping[str, int]], None]:
    return lambda model, work: commit(partial(_save, model, work))


def _save(model: Any, work: Mapping[str, int], out: Path) -> None:
    model.eval()
    model.save_pretrained(out)
    (out / WORK).write_text(json.dumps(work, indent=1, sort_keys=True))


@stage("finetune", version=2, shared=True)
def finetune(params: Json, inputs: Mapping[str, Path], out: Path, run: Run) -> None:
    """Fine-tune on a task's train examples. params: {"spec", "keep", "metric", ..}.

    With spec.eval_every the weights that are best on dev stay.
    """
    tokenizer = models.load_tokenizer(str(inputs["tokenizer"]))
    model = models.load(str(inputs["model"]))
    spec = _spec(params, model, run)
    specials = Specials.of(tokenizer, model.config.decoder_start_token_id)
    examples = read_examples(inputs["examples"], "train")
    steps = ExampleSteps.of(examples, tokenizer, specials, spec, params["keep"])
    longest = int(steps.pairs.targets.lengths.max())
    positions = model.config.max_position_embeddings
    model.generation_config.max_new_tokens = min(longest + _SLACK, positions - 1)
    dev = read_examples(inputs["examples"], "dev") if spec.eval_every else []

    def validate(module: Any) -> float:
        _, scores = answer(module, tokenizer, dev, params, spec)
        return sum(scores) / len(scores)

    _train(model, steps, spec, run, validate)
    model.save_pretrained(out)


def _spec(params: Json, model: Any, run: Run) -> Training:
    every = run.local.get("checkpoint_every", Training.checkpoint_every)
    return models.bounded(Training(**params["spec"], checkpoint_every=every), model)


def _train(
    model: Any,
    steps: Any,
    spec: Training,
    run: Run,
    validate: Callable[[Any], float] | None = None,
    **more: Any,
) -> dict[str, Any]:
    import torch

    model.set_attn_implementation(spec.attention)
    models.set_dropout(model, spec.dropout)
    run.facts["threads"] = torch.get_num_threads()
    cpu = hardware.device().type == "cpu"
    with tracked(run.local.get("tracker"), run.logs, slug(run.name), cpu) as log:
        done = train(
            model,
            steps,
            models.token_loss,
            spec,
            run.checkpoints,
            run.progress,
            workers=run.workers - 1,
            validate=validate,
            log=log,
            **more,
        )
    run.facts["loss"] = done["loss"]
    return done
