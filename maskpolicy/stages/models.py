"""Stages that train the model: general, intermediate, fine-tuning."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from maskpolicy import hardware, heads, hub
from maskpolicy.config.budgets import Training
from maskpolicy.config.experiment import SEQ2SEQ
from maskpolicy.corpus.passages import Passages
from maskpolicy.errors import DataError
from maskpolicy.files import slug
from maskpolicy.graph.nodes import Commit, Run, stage
from maskpolicy.models import seq2seq as models
from maskpolicy.models.kinds import MODEL_KINDS, Kind
from maskpolicy.plugins import discovery as plugin_files
from maskpolicy.plugins.discovery import instance
from maskpolicy.stages.answers import read_examples, score
from maskpolicy.training.interfaces import Keep, Loss
from maskpolicy.training.loop import train
from maskpolicy.training.objectives import MaskedSteps
from maskpolicy.training.tracking import tracked
from maskpolicy.types import Denoising, Json

WORK = "work.json"
log = logging.getLogger(__name__)


@stage("pretrained")
def pretrained(params: Json, inputs: Mapping[str, Path], out: Path, run: Run) -> None:
    """Take a model that has been pre-trained elsewhere. params: {"name", "revision", "kind"}.

    Without "kind", here and below, it is a text-to-text model.
    """
    kind = _kind(params)
    kind.load(run.local.get("folder") or params["name"], params["revision"]).save_pretrained(out)
    if params["name"]:
        hub.note("model", params["name"], run.local.get("revision"), params["revision"])


@stage("general", version=2, shared=True)
def general(params: Json, inputs: Mapping[str, Path], out: Path, run: Run) -> None:
    """Build a preset and pre-train it with random masks. params: {"preset", ..} as intermediate."""
    tokenizer = models.load_tokenizer(str(inputs["tokenizer"]))
    model = _kind(params).build(params, tokenizer)
    _pretrain(model, tokenizer, params, inputs, out, run)


@stage("intermediate", version=3, shared=True)
def intermediate(params: Json, inputs: Mapping[str, Path], out: Path, run: Run) -> None:
    """Pre-train on masked passages. params: {"policy", "fields", "how", "spec", "kind", ..}.

    {"until"} ends the training of `spec` before its last step. A by-product is called by the
    number of steps after which the model is kept.
    """
    tokenizer = models.load_tokenizer(str(inputs["tokenizer"]))
    model = _kind(params).load(str(inputs["model"]), None)
    _pretrain(model, tokenizer, params, inputs, out, run)


def _pretrain(
    model: Any, tokenizer: Any, params: Json, inputs: Mapping[str, Path], out: Path, run: Run
) -> None:
    plugin_files.load_files(run.local.get("plugins", ()))
    models.check_vocabulary(tokenizer, model)
    kind, how = _kind(params), Denoising(**params["how"])
    spec = _spec(params, model, run)
    annotations = [inputs["annotate"]] if "annotate" in inputs else []
    steps = MaskedSteps(
        Passages.open(inputs["corpus"], *annotations),
        instance("policy", params["policy"], params["fields"]),
        how,
        kind.specials(tokenizer, model),
        spec,
        kind.pairs,
    )
    if spec.steps and steps.hide_nothing():
        raise DataError(
            f"policy {params['policy']}: hides nothing in the {spec.steps} steps of its training: "
            "change its fields, or give it a corpus in which there is something to hide"
        )
    if spec.steps and steps.show_nothing():
        raise DataError(
            f"policy {params['policy']}: hides every token of every passage: with mask_exclusion "
            "the encoder would be shown no word: let it hide less"
        )
    _tell_cut(steps, params, run)
    models.set_dropout(model, spec.dropout)
    module = kind.learner(model, how, params)
    keep = {int(name): _keeping(kind, commit) for name, commit in run.byproducts.items()}
    until = params.get("until", 0)
    done = _train(module, steps, kind.loss, spec, run, until=until, keep=keep)
    _save(kind.kept(module), done["work"], out)


def _tell_cut(steps: MaskedSteps, params: Json, run: Run) -> None:
    """Warn of passages whose ends are not learnt, and say what is to be set."""
    (cut, key), count = steps.too_long(), len(steps.passages)
    if not cut or not run.name:  # of several processes, the first one alone knows the name
        return
    stage, most = run.name.split()[0], getattr(steps.spec, key)
    lower = "" if stage == "general" else "lower corpus.words"  # its corpus is the world
    higher = f"raise {stage}.{key}" if params["spec"][key] == most else ""
    advice = " or ".join(filter(None, [lower, higher])) or "the model has no more positions"
    log.warning(
        "%s: %d of %d passages (%.3g%%) are longer than %d tokens and are cut: %s",
        *(run.name, cut, count, 100 * cut / count, most, advice),
    )


def _keeping(kind: Kind, commit: Commit) -> Keep:
    return lambda module, work, loss: commit(
        partial(_save, kind.kept(module), work), {"loss": loss}
    )


def _save(model: Any, work: Mapping[str, int], out: Path) -> None:
    model.eval()
    model.save_pretrained(out)
    (out / WORK).write_text(json.dumps(work, indent=1, sort_keys=True))


@stage("finetune", version=2, shared=True)
def finetune(params: Json, inputs: Mapping[str, Path], out: Path, run: Run) -> None:
    """Fine-tune on a task's train examples. params: {"spec", "keep", "metric", "head", ..}.

    With spec.eval_every the weights that are best on dev stay.
    """
    head = heads.of(params)
    tokenizer = models.load_tokenizer(str(inputs["tokenizer"]))
    examples = read_examples(inputs["examples"], "train")
    model = head.start(inputs["model"], examples, params["spec"]["seed"])
    models.check_vocabulary(tokenizer, model)
    spec = _spec(params, model, run)
    steps = head.steps(model, tokenizer, examples, spec, params)
    models.set_dropout(model, spec.dropout)
    dev = read_examples(inputs["examples"], "dev") if spec.eval_every else []

    def validate(module: Any) -> float:
        predictions = head.answer(module, tokenizer, dev, params, spec)
        return score(params, predictions, dev).score

    _train(model, steps, head.loss, spec, run, validate)
    model.save_pretrained(out)


def _kind(params: Json) -> Kind:
    return MODEL_KINDS[params.get("kind", SEQ2SEQ)]


def _spec(params: Json, model: Any, run: Run) -> Training:
    every = run.local.get("checkpoint_every", Training.checkpoint_every)
    return models.bounded(Training(**params["spec"], checkpoint_every=every), model)


def _train(
    model: Any,
    steps: Any,
    loss: Loss,
    spec: Training,
    run: Run,
    validate: Callable[[Any], float] | None = None,
    **more: Any,
) -> dict[str, Any]:
    import torch

    model.set_attn_implementation(spec.attention)
    run.facts["threads"] = torch.get_num_threads()
    cpu = hardware.device().type == "cpu"
    with tracked(run.local.get("tracker"), run.logs, slug(run.name), cpu) as log:
        done = train(
            model,
            steps,
            loss,
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
