"""Stages that train the model: general, intermediate, fine-tuning."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from maskpolicy.core import hardware, hub, metrics
from maskpolicy.core.errors import ConfigError, DataError, StageError
from maskpolicy.core.files import read_json
from maskpolicy.core.types import Example, Json
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import ENCODER, SEQ2SEQ
from maskpolicy.experiment.task_kinds import TEXT
from maskpolicy.masking.selection import Masker
from maskpolicy.models import scratch
from maskpolicy.models.families import bounded
from maskpolicy.models.finetuning import TASK_HEADS
from maskpolicy.models.guesses import in_training, smoothed
from maskpolicy.models.learned.fit_tools import readable
from maskpolicy.models.loading import (
    FLASH,
    load_tokenizer,
    set_attention,
    set_dropout,
)
from maskpolicy.models.model_kinds import MODEL_KINDS, Kind
from maskpolicy.models.text_to_text import complete_generation
from maskpolicy.models.training.batching import Loss
from maskpolicy.models.training.loop import held_out_losses
from maskpolicy.models.training.optimization import Keep, Start, shared
from maskpolicy.models.training.specials import Specials, check_vocabulary
from maskpolicy.models.training.steps import MaskedSteps
from maskpolicy.pipeline.graph.nodes import Commit, Folders, StageRun, stage
from maskpolicy.pipeline.stages.evaluation import read_examples
from maskpolicy.pipeline.stages.params import (
    FinetuneParams,
    GeneralParams,
    IntermediateParams,
    PretrainedParams,
    PretrainingParams,
)
from maskpolicy.pipeline.stages.training_text import (
    FEEDBACK,
    LIMITS_FACT,
    ROOM_FACT,
    STEPS_FACT,
    VALIDATION_FACT,
    VALIDATION_PREFIX,
    open_statistics,
    open_views,
)
from maskpolicy.plugins import hooks
from maskpolicy.plugins.discovery import instance

WORK = "work.json"
_EXAMPLES = 1024  # the most examples to validate on
_BATCH = 32  # the most examples of a batch
_BOUND = "diffusion"  # the policy whose masks give the NELBO
_EPOCHS = 100  # a training of more epochs gets a warning


@stage("pretrained")
def pretrained(params: PretrainedParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Load a model that was pre-trained elsewhere."""
    load = MODEL_KINDS[params.kind].load
    load(run.local.folder or params.name, params.revision, params.head).save_pretrained(out)
    if params.name:
        hub.note("model", params.name, run.local.revision, params.revision)


@stage("general", version=7)
def general(params: GeneralParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Build a model and pre-train it on the general corpus with a policy."""
    _pretrain(params, inputs, out, run)


@stage("intermediate", version=8)
def intermediate(params: IntermediateParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Pre-train on masked passages, or with the input "state" the last part of a training.

    The name of a by-product is the number of steps after which the model is kept.
    """
    _pretrain(params, inputs, out, run)


@stage("intermediate-part", version=6)
def intermediate_part(
    params: IntermediateParams, inputs: Folders, out: Path, run: StageRun
) -> None:
    """Pre-train from step `first` to step `until`, and write the whole state of the training."""
    _pretrain(params, inputs, out, run, is_part=True)


def _pretrain(
    params: PretrainingParams, inputs: Folders, out: Path, run: StageRun, *, is_part: bool = False
) -> None:
    kind, tokenizer = MODEL_KINDS[params.kind], load_tokenizer(str(inputs["tokenizer"]))
    if not isinstance(params, GeneralParams):
        model = kind.load(str(inputs["model"]))
    elif params.config is None:
        model = kind.build(params, tokenizer, params.spec.seed)
    else:
        model = scratch.build(params.config, tokenizer, params.spec.seed)
    check_vocabulary(tokenizer, model)
    spec = _bounded(params.spec, model, run)
    policy: Any = params.instance()
    specials = kind.specials(tokenizer, model)
    if params.kind == SEQ2SEQ:
        complete_generation(model, specials)
    read = policy, specials, spec, params
    steps, validation = masked_steps(*read, inputs), Validation.of(*read, inputs)
    if steps.is_cut:
        run.facts[ROOM_FACT] = steps.room
    run.facts[LIMITS_FACT] = steps.limits
    if spec.steps and not params.first:
        own = (FEEDBACK in inputs and params.until) or spec.steps  # the steps with columns
        _check_steps(steps, own, params, run)
    set_dropout(model, spec.dropout)
    has_new_head = kind.has_new_head(model, params.how)
    module = kind.training_module(model, params.how, params.decoder_layers, spec.seed)
    set_attention(module, spec.attention, fp32=True)
    before = None
    if validation is not None and not has_new_head:
        run.progress(params.first, spec.steps, "measures the loss before")
        before = validation(module.to(hardware.device()))
    if spec.attention == FLASH:
        set_attention(module, FLASH)
    asked = read_json(inputs[FEEDBACK] / WORK) if FEEDBACK in inputs else {}  # by `reannotate`
    keep = {int(name): _keeping(kind, params, commit) for name, commit in run.byproducts.items()}
    done = run.train(
        module,
        steps,
        _loss(policy, kind, params, inputs, spec),
        spec,
        workers=run.workers - 1,
        validate=validation and (lambda module: -validation(module)),
        until=params.until,
        keep=keep,
        start=Start(params.first, inputs.get("state"), asked),
        state=out if is_part else None,
    )
    if validation is not None:
        if spec.attention == FLASH:
            set_attention(module, FLASH, fp32=True)
        after = validation(module)
        run.facts[VALIDATION_FACT] = validation.facts(before, after, done)
        _warn_of_loss(before, after, run)
    if not is_part:
        _save(kind.kept(module, params.keeps_head), done["work"], out)


def _loss(
    policy: Any,
    kind: Kind,
    params: PretrainingParams,
    inputs: Folders,
    spec: Training,
) -> Loss:
    """Return the loss; a policy may smooth its labels with the model's guesses.

    The guesses are those of the model at the beginning of the part.
    """
    share = hooks.SMOOTHING.of(policy) if FEEDBACK in inputs else 0.0
    if not share:
        return kind.training_loss()
    model, state = kind.load(str(inputs["model"])), inputs.get("state")
    reference = in_training(kind, model, params.how, params.decoder_layers, spec, state)
    return kind.training_loss() if reference is None else smoothed(kind, reference, share)


def _check_steps(steps: MaskedSteps, count: int, params: PretrainingParams, run: StageRun) -> None:
    """Check the first `count` steps before a training, and warn of repeated or truncated text.

    Raises ConfigError if the policy masks or weighs otherwise when it is called again, and
    DataError if the steps mask nothing or everything.
    """
    _check_room(steps.specials, steps.spec, run)
    steps.check_repeats(count)
    _check_masks(steps, params.policy, count, run)
    _warn_of_repetition(steps, run)
    _warn_of_truncation(steps, params.spec, run)
    _warn_of_visible_spans(steps, run)


def _check_room(specials: Specials, spec: Training, run: StageRun) -> None:
    """Raise ConfigError for sources or targets that hold no text."""
    if problem := specials.without_room(spec):
        raise ConfigError(f"{run.name}: {problem}" if run.name else problem)


def _check_masks(steps: MaskedSteps, policy: str, count: int, run: StageRun) -> None:
    """Raise DataError if the steps mask nothing; warn, or raise it, if they mask everything."""
    if steps.masks_nothing(count):
        weighed = " with a weight above 0" if steps.masker.weighs else ""
        raise DataError(
            f"policy {policy}: masks nothing{weighed} in the {count} steps of its training: "
            "change its fields, or use a corpus in which it masks something"
        )
    if not steps.masks_everything(count):
        return
    if steps.denoising.mask_exclusion:
        raise DataError(
            f"policy {policy}: masks every token of every passage, so with mask_exclusion "
            "the encoder would read no words: change its fields to mask less"
        )
    run.warn(
        f"policy {policy} masks every token of every passage, so the model reads no words: change "
        "its fields to mask less"
    )


def _warn_of_repetition(steps: MaskedSteps, run: StageRun) -> None:
    """Warn if each passage is read very often."""
    spec, count = steps.spec, len(steps.order.lengths)
    times = spec.steps * spec.batch_size / count
    if int(times) > _EPOCHS:  # budgets in epochs are rounded up to whole steps
        what = "passages" if steps.examples is None else "examples"
        run.warn(
            f"reads each of {count} {what} {times:.0f} times ({spec.steps} steps of "
            f"{spec.batch_size} passages): give more text, or lower {run.block}.steps"
        )


def _warn_of_truncation(steps: MaskedSteps, asked: Training, run: StageRun) -> None:
    """Warn of truncated passages, and name the settings that avoid them."""
    (cut, key), count = steps.too_long(), len(steps.passages)
    if not cut:
        return
    most = getattr(steps.spec, key)
    lower = "" if run.block == "general" else "lower corpus.words or corpus.tokens"
    higher = f"raise {run.block}.{key}" if getattr(asked, key) == most else ""
    advice = ", or ".join(filter(None, [lower, higher])) or "the model has no more positions"
    run.warn(
        f"{cut} of {count} passages ({100 * cut / count:.3g}%) are longer than {most} tokens and "
        f"are truncated: {advice}"
    )


def _warn_of_visible_spans(steps: MaskedSteps, run: StageRun) -> None:
    """Warn if passages have more spans than there are sentinels, or than fit into a target."""
    if not (steps.spec.steps and run.name):
        return
    written, most = steps.written(0), steps.specials.most
    reasons = (
        (written.left_out, f"as a source has at most {most} sentinels: mask longer spans"),
        (
            written.without_room,
            f"wholly or in part, as a target has at most {steps.spec.max_target} tokens: raise "
            f"{run.block}.max_target",
        ),
    )
    for count, reason in reasons:
        if count:
            run.warn(
                f"{count} spans of the first {steps.spec.batch_size} passages stay visible, "
                f"{reason}, mask less, or lower corpus.words or corpus.tokens"
            )


def _warn_of_loss(before: float | None, after: float, run: StageRun) -> None:
    """Warn if the training did not lower the validation loss."""
    if before is not None and after >= before:
        run.warn(
            f"the validation loss did not fall ({before:.3f} before, {after:.3f} after): lower "
            "intermediate.lr, or use a corpus that is more like the validation text"
        )


def _keeping(kind: Kind, params: PretrainingParams, commit: Commit) -> Keep:
    return lambda module, work, loss: commit(
        partial(_save, kind.kept(module, params.keeps_head), work), {"loss": loss}
    )


def _save(model: Any, work: Mapping[str, int], out: Path) -> None:
    model.eval()
    model.save_pretrained(out)
    (out / WORK).write_text(json.dumps(work, indent=1, sort_keys=True))


def masked_steps(
    policy: Any,
    specials: Specials,
    spec: Training,
    params: PretrainingParams,
    inputs: Folders,
) -> MaskedSteps:
    """Return the steps over the corpus, with the columns and statistics that the policy reads."""
    leaves = len(Masker.of(policy, params.how).leaves)
    views, statistics = open_views(inputs, leaves), open_statistics(inputs, leaves)
    pairs = MODEL_KINDS[params.kind].pairs
    return MaskedSteps(views[0], policy, params.how, specials, spec, pairs, views, statistics)


@dataclass(frozen=True)
class Validation:
    """The loss of a model on validation text, always with the same masks.

    If an objective weighs passages by their rates, as masked diffusion does, the masks are those
    of the policy `diffusion` for all rows. The loss is then the bound on the negative
    log-likelihood of a token (NELBO), and rows with other orders of tokens can be compared.

    The text has up to 1,024 passages, or examples, drawn at random, in batches of equal size, so
    that a few may be left over.
    """

    steps: MaskedSteps
    count: int  # batches
    loss: Loss
    is_bound: bool = False  # the loss is the NELBO

    @classmethod
    def of(
        cls,
        policy: Any,
        specials: Specials,
        spec: Training,
        params: PretrainingParams,
        inputs: Folders,
    ) -> Validation | None:
        """Return the validation of a training; None without text for it.

        Raises DataError if no token of that text is masked.
        """
        own = {
            name.removeprefix(VALIDATION_PREFIX): path
            for name, path in inputs.items()
            if name.startswith(VALIDATION_PREFIX)
        }
        if not own:
            return None
        leaves = Masker.of(policy, params.how).leaves
        weighs = any(leaf.denoising.loss_weight != "equal" for leaf in leaves)
        is_bound = params.kind == ENCODER and weighs
        if is_bound:
            policy = instance("policy", _BOUND, {})
            how = replace(params.how, loss_weight="likelihood", replacement=None)
            params = replace(params, how=how)
        steps = masked_steps(policy, specials, spec, params, {**inputs, **own})
        examples = min(_EXAMPLES, len(steps.order.lengths))
        count = -(-examples // _BATCH)
        # a step for each batch, so that a policy's schedule runs from its beginning to its end
        size = examples // count
        steps = replace(steps, spec=replace(spec, steps=count, batch_size=size, seed=0))
        if not any(steps(number).work["target_tokens"] for number in range(count)):
            raise DataError(
                f"policy {params.policy}: masks nothing in the validation text, or only what is "
                "truncated: give more text, or lower corpus.words or corpus.tokens"
            )
        return cls(steps, count, MODEL_KINDS[params.kind].token_loss, is_bound)

    def __call__(self, module: Any) -> float:
        """Return the mean loss of a target token, in nats; raises StageError if it is not finite.

        The module is in evaluation mode afterwards.
        """
        sums, tokens = held_out_losses(module, self.loss, self.steps, self.count)
        found = sum(sums) / sum(tokens)
        if not math.isfinite(found):
            raise StageError(f"the validation loss became {found}: lower intermediate.lr")
        return found

    def facts(self, before: float | None, after: float, done: Mapping[str, Any]) -> Json:
        """Return the facts of a training with the result `done` for its manifest.

        `before` and `after` are the losses before the training, if measured, and of the kept model.
        """
        return {
            "passages": self.count * self.steps.spec.batch_size,
            "before": before,
            "after": after,
            "step": done["best_step"],
            "steps": done["steps"],
            "losses": [[step, -score] for step, score in done["scores"]],
            **({"bound": True} if self.is_bound else {}),
            **({} if self.steps.examples is None else {"unit": "example"}),
            **({"detects": True} if self.steps.denoising.replaced_token_detection else {}),
        }


@stage("finetune", version=8)
def finetune(params: FinetuneParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Fine-tune on a task's train examples.

    With spec.eval_every, the result has the weights with the best score on dev.
    """
    train, dev = (read_examples(inputs["examples"], split) for split in ("train", "dev"))
    _finetune(params, train, dev, inputs, out, run)


@stage("finetune-classifier", version=7)
def finetune_classifier(params: FinetuneParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Fine-tune on a label task for a learned policy, without its test examples.

    inputs: "model", "tokenizer", and the task's contexts as "examples".
    """
    splits = (read_examples(inputs["examples"], split) for split in ("train", "dev"))
    train, dev = (readable(examples, params.head) for examples in splits)
    _finetune(params, train, dev, inputs, out, run)


def _finetune(
    params: FinetuneParams,
    examples: list[Example],
    dev: list[Example],
    inputs: Folders,
    out: Path,
    run: StageRun,
) -> None:
    head = TASK_HEADS[params.head]
    tokenizer = load_tokenizer(str(inputs["tokenizer"]))
    model = head.start(inputs["model"], examples, params.spec.seed)
    check_vocabulary(tokenizer, model)
    spec = _bounded(params.spec, model, run)
    specials = Specials.of(tokenizer)
    _check_room(specials if params.head == TEXT else replace(specials, start=None), spec, run)
    steps = head.steps(model, tokenizer, examples, spec, params)
    set_dropout(model, spec.dropout)

    def validate(module: Any) -> float:
        predictions = shared(dev, lambda own: head.answer(module, tokenizer, own, params, spec))
        return metrics.score(params.metric, predictions, dev).score

    set_attention(model, spec.attention)
    loss, workers = head.training_loss(), run.workers - 1
    done = run.train(model, steps, loss, spec, workers=workers, validate=validate)
    run.facts[STEPS_FACT] = done["steps"]
    model.save_pretrained(out)


def _bounded(spec: Training, model: Any, run: StageRun) -> Training:
    """Return the budget with lengths limited to the model's positions and local checkpointing."""
    return bounded(replace(spec, checkpoint_every=run.local.checkpoint_every), model)
