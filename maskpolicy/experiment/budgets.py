"""Training budgets with their defaults, and resources of stages: processes, GPUs, cores, Slurm."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from maskpolicy.core import hardware, schema
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.schema import Count, NotNegative, Positive, Range, Seed, Steps, at, omitted

T = TypeVar("T")
log = logging.getLogger(__name__)

TRAININGS = ("general", "fit", "intermediate", "finetune")  # the stages that train a model
GENERAL_ONLY = ("policy", "corpus")  # keys of the block `general` that no other training has
Own: TypeAlias = Callable[[Mapping[str, Any], str], Mapping[str, Mapping[str, Any]]]
"""own(blocks, place) -> settings of a row or column instead of the file's; see `row_trainings`."""
Momentum = Annotated[float, Range(ge=0, lt=1)]


def block_of(kind: str) -> str:
    """Return the block of a kind of stage: "intermediate" for "intermediate-part"."""
    return kind.partition("-")[0]


@dataclass(frozen=True)
class Training:
    """One training budget: of the general, fit, intermediate or fine-tuning stage."""

    steps: Steps = 1000  # optimizer steps
    # passages (or examples) per optimizer step, the same for every policy
    batch_size: Count = schema.renamed("passages", 32)
    lr: Positive = 5e-4  # peak learning rate
    # linear warm-up steps (if omitted and the default would be half of `steps` or more: a tenth
    # of `steps`)
    warmup: Steps = 100
    schedule: Literal["linear", "cosine", "constant"] = "linear"  # after warm-up; linear: to zero
    weight_decay: NotNegative = 0.01  # AdamW's weight decay, only on matrices
    betas: tuple[Momentum, Momentum] = (0.9, 0.999)  # AdamW's betas
    eps: Positive = omitted(1e-8)  # AdamW's epsilon, added to the root of the second moment
    # gradients with a larger norm are scaled down to it; 0 turns clipping off
    max_grad_norm: NotNegative = schema.renamed("clip", 1.0)
    # auto: bf16 if the machine has matrix units for it
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    # auto: eager on a CPU, else sdpa; flash_attention_2 needs its package and bf16
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2", "flex_attention"] = "auto"
    # torch.compile the loss; auto: on a GPU, in a pre-training of 5,000 steps or more
    compile: Literal["auto"] | bool = "auto"
    dropout: Momentum | None = None  # dropout of every layer; null: the model's own
    # padded tokens in a micro-batch; 0: 4096 on a CPU, as many as fit on a GPU; halved if memory
    # runs out
    micro_tokens: Steps = 0
    max_source: Count = 512  # most tokens of a source; passages are cut to it before masking
    # most tokens of a target; longer targets of a task are cut. In pre-training, spans that do not
    # fit into the target are not masked; if the target is the full text, the passage is cut
    max_target: Count = 512
    # seconds between resumable checkpoints, but at least 50 times the seconds to write one
    checkpoint_every: Positive = schema.unkeyed(60.0)
    seed: Seed = 0  # seed of all random draws; fine-tuning uses the file's `seeds` instead
    # steps between two evaluations, on dev (fit, fine-tuning), whose best weights are kept, or on
    # the text of `pretrain --validation`; 0: none
    eval_every: Steps = 0
    patience: Steps = 0  # evaluations without improvement before stopping; 0: never

    @property
    def batch_tokens(self) -> int:
        """Padded tokens of a batch outside of trainings, which may be larger on a GPU."""
        return self.micro_tokens or 32768


GENERAL = Training(steps=500, lr=2e-3)
INTERMEDIATE = Training(steps=1000, lr=1e-3)
FINETUNE = Training(steps=120, lr=3e-4, warmup=20)
FIT = Training(steps=200, batch_size=16, lr=1e-3, warmup=20, eval_every=50)


def warmup(default: int, steps: int) -> int:
    """Return `default`, or a tenth of the steps if the default is at least half of them."""
    return steps // 10 if steps and 2 * default >= steps else default


def with_warmup(spec: T, stated: Any) -> T:
    """Return a budget with a warm-up that fits its steps, unless the user's block `stated` sets it.

    Any dataclass with `steps` and `warmup` is a budget; other values are returned unchanged.
    """
    budget: Any = spec
    known = vars(budget) if is_dataclass(spec) else {}
    if not {"steps", "warmup"} <= known.keys() or "warmup" in stated:
        return spec
    return replace(budget, warmup=warmup(budget.warmup, budget.steps))


def warn_of_long_warmup(warmup: int, steps: int, where: str) -> None:
    """Log a warning about the block at `where` if its warm-up is longer than the training."""
    if steps and warmup > steps:
        told = "%s: %d is more than the %d steps: the learning rate never reaches its peak"
        log.warning(told, at(where, "warmup"), warmup, steps)


def defaults(is_scratch: bool) -> dict[str, Training]:
    """Return the default budgets by stage, for a model built from scratch or for another one.

    The general stage of a pre-trained model has no steps. Its other budgets are our choice for
    models of the base size; we do not know those of the paper.
    """
    if is_scratch:
        return {"general": GENERAL, "fit": FIT, "intermediate": INTERMEDIATE, "finetune": FINETUNE}
    return {
        "general": Training(steps=0),
        "fit": Training(steps=2000, lr=1e-3, eval_every=200),
        "intermediate": Training(steps=20_000, batch_size=64, lr=1e-4, warmup=1000),
        "finetune": Training(steps=3000, batch_size=32, lr=3e-5, warmup=300),
    }


def training_blocks(given: Mapping[str, Any], is_scratch: bool, where: str) -> dict[str, Training]:
    """Return the four budgets of an experiment file; their defaults depend on the model.

    Raises ConfigError at `where`. Logs a warning about a warm-up that is too long and about
    fine-tuning without steps, but not about a warm-up that all tasks have their own steps for.
    """
    found = {}
    columns = [block.get("finetune") for block in blocks_of_columns(given)]
    own_steps = [isinstance(block, Mapping) and "steps" in block for block in columns]
    for stage, default in defaults(is_scratch).items():
        block, place = given.get(stage, {}), at(where, stage)
        others: tuple[str, ...] = ()
        if stage == "general" and isinstance(block, Mapping):
            others = GENERAL_ONLY
            block = {key: value for key, value in block.items() if key not in others}
        values = schema.block(Training, block, place, vars(default), others, _elsewhere)
        spec = Training(**values)
        found[stage] = spec = with_warmup(spec, block)
        if stage != "finetune" or not (own_steps and all(own_steps)):
            warn_of_long_warmup(spec.warmup, spec.steps, place)
    if not found["finetune"].steps:
        log.warning(
            "%sfinetune.steps: is 0: every model is evaluated as pre-trained, without fine-tuning "
            "on the task",
            where,
        )
    return found


def blocks_of_columns(given: Mapping[str, Any]) -> list[Any]:
    """Return the blocks of the tasks of a file; {} for one that is a name alone."""
    items = given.get("tasks")
    items = items if isinstance(items, list | tuple) else []
    return [item if isinstance(item, Mapping) else {} for item in items]


def _elsewhere(key: str) -> str | None:
    """Return where epochs and words may replace the steps of a training."""
    name = schema.SYNONYMS.get(key, key)
    if name not in ("epochs", "words"):
        return None
    more = ", and in `finetune` of the file or a task" if name == "epochs" else ""
    places = f"in `intermediate` of the file or a row{more}"
    return f"`{name}` can stand {places}: write it there, or steps here"


def row_trainings(
    own: Mapping[str, Any],
    given: Mapping[str, Any],
    is_scratch: bool,
    where: str,
    columns: Sequence[Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Return the settings of a row's trainings that replace the file's, by training.

    `own` holds the row's blocks, `given` the keys of the file, `columns` the block `finetune` of
    each task. The result has the row's keys, and the default warm-up if they change that of the
    file or of a column, but no column's stated warm-up. Raises ConfigError at `where`.
    """
    found: dict[str, dict[str, Any]] = {}
    others = [block for block in columns if "warmup" not in block]
    for stage, stated in own.items():
        place, default = at(where, stage), vars(defaults(is_scratch)[stage])
        schema.block(Training, stated, place, elsewhere=_elsewhere)
        usual = given.get(stage, {})
        base, spec = (
            with_warmup(Training(**schema.block(Training, block, place, default)), block)
            for block in (usual, {**usual, **stated})
        )
        warn_of_long_warmup(spec.warmup, spec.steps, place)
        found[stage] = {
            key: value
            for key, value in vars(spec).items()
            if key in stated or value != getattr(base, key)
        }
        if stage != "finetune" or "steps" not in stated or "warmup" in {**usual, **stated}:
            continue
        steps = [block.get("steps", base.steps) for block in others]
        if any(warmup(default["warmup"], each) != spec.warmup for each in steps):
            if len(others) < len(columns):
                raise ConfigError(
                    f"{at(place, 'steps')}: the default of finetune.warmup depends on it, and only "
                    "some tasks state their own: set the warm-up too"
                )
            found[stage]["warmup"] = spec.warmup
        elif len(others) < len(columns):
            found[stage].pop("warmup", None)
    return found


ON_GPU = (*TRAININGS, "evaluate")  # kinds of stages that use a GPU where there is one


@dataclass(frozen=True)
class Need:
    """The resources of one stage."""

    # GPUs of one machine; null: one for each process if the machine has GPUs and the stage uses
    # them. If a training states GPUs, `auto` is resolved for GPUs in all that do not state 0
    gpus: Steps | None = None
    # processes of a training, which share its batches on one machine; null: one for each GPU
    processes: Count | None = None
    cpus: Count = 1  # cores that Ray and Slurm reserve for a stage, which uses as many threads

    @property
    def members(self) -> int:
        """The number of processes."""
        return self.processes or max(1, self.gpus or 1)


@dataclass(frozen=True)
class Resources:
    """The resources of each kind of stage; `others` are all kinds without a block of their own."""

    general: Need = field(default_factory=Need)
    fit: Need = field(default_factory=Need)
    intermediate: Need = field(default_factory=Need)
    finetune: Need = field(default_factory=Need)
    evaluate: Need = field(default_factory=Need)
    corpus: Need = field(default_factory=Need)
    annotate: Need = field(default_factory=Need)
    count: Need = field(default_factory=Need)
    others: Need = field(default_factory=Need)

    def of(self, kind: str) -> Need:
        """Return the resources of a kind of stage; KIND-OTHER, such as a shard, has KIND's."""
        return getattr(self, block_of(kind), self.others)

    def gpus(self, kind: str, there: bool) -> int:
        """Return the number of GPUs of a stage; `there`: the machine or cluster has GPUs."""
        need = self.of(kind)
        if need.gpus is not None:
            return need.gpus
        return need.members if there and block_of(kind) in ON_GPU else 0

    def states_gpus(self, kind: str) -> bool:
        """Return whether a kind of training states GPUs, or another one does and it states none."""
        own = self.of(kind).gpus
        return bool(any(self.of(each).gpus for each in TRAININGS) if own is None else own)


_PLAIN = Resources()
_COMPILED = 5000  # steps that are worth the minute or more in which a loss is compiled


def settled(
    spec: Training, stage: str, resources: Resources = _PLAIN, *, has_text: bool = False
) -> Training:
    """Return a budget as a training's key holds it: "auto" resolved, settings without effect 0.

    Only `fit` and `finetune` are validated, and an intermediate stage that `has_text` for it. In
    `finetune`, `eval_every` has no effect if no evaluation comes before the last step, because
    there is then only one set of weights to choose from. `fit` and the intermediate stage report
    even that of the last step. `patience` has no effect if it cannot stop the training early.
    """
    if spec.compile == "auto" and (stage in ("fit", "finetune") or spec.steps < _COMPILED):
        spec = replace(spec, compile=False)
    spec = resolve_auto(spec, resources.states_gpus(stage))
    last = {"fit": spec.steps, "finetune": spec.steps - 1}.get(stage, spec.steps * has_text)
    every = spec.eval_every if spec.eval_every <= last else 0
    earliest = (spec.patience + 1) * every  # the first step after which patience may end
    patience = spec.patience if every and earliest < spec.steps else 0
    return replace(spec, eval_every=every, patience=patience)


def resolve_auto(spec: Training, states_gpus: bool = False) -> Training:
    """Replace "auto" in `spec` by the choice for this machine, or for a GPU that the file states.

    Precision is bf16 if matrix units compute in it (2 to 4 times as fast as fp32 on such a CPU);
    a machine without GPUs assumes that the stated ones do. Attention is eager on a CPU, where the
    backward pass of scaled-dot-product attention is the slowest kernel at the lengths of passages
    (docs/development/log.md), and sdpa elsewhere. On a GPU, `micro_tokens` stays 0, and no key
    depends on its memory (see `loop.train`).
    """
    is_here = hardware.is_cuda()
    on_gpu = is_here or states_gpus
    if spec.precision == "auto":
        has_bf16 = hardware.has_bf16() if is_here or not on_gpu else True
        spec = replace(spec, precision="bf16" if has_bf16 else "fp32")
    if spec.attention == "auto":
        spec = replace(spec, attention="sdpa" if on_gpu else "eager")
    if spec.compile == "auto":
        spec = replace(spec, compile=on_gpu)
    if not on_gpu:
        spec = replace(spec, micro_tokens=spec.micro_tokens or 4096)
    return spec


@dataclass(frozen=True)
class Slurm:
    """The jobs that `--executor slurm` submits; GPUs and cores are those of `resources`."""

    partition: str | None = None  # partition of the jobs; null: the cluster's default
    gpu_partition: str | None = None  # partition of jobs with GPUs; null: `partition`
    gpus: bool = True  # whether trainings and `evaluate` have a GPU by default, without `resources`
    time: Count = 240  # minutes until a job is stopped; it is then queued again, and resumes
    requeues: Steps = 100  # how many times a job is queued again after such a stop
    tasks: Count = 16  # the most tasks of an array at a time
    memory: Positive | None = None  # GB for a task; null: the cluster's default
    account: str | None = None  # the account that pays for the jobs
    qos: str | None = None  # quality of service
    constraint: str | None = None  # features that a node must have
    setup: tuple[str, ...] = ()  # lines of shell before a task starts, e.g. module load cuda
    more: dict[str, Any] = field(default_factory=dict)  # other options of sbatch, by name


KINDS = tuple(each.name for each in fields(Resources))


def resources_block(given: Any, where: str) -> Resources:
    """Return the checked resources of an experiment file; raises ConfigError at `where`."""
    for key in given if isinstance(given, Mapping) else ():
        if key in schema.fields_of(Need):
            block = f"{{intermediate: {{{key}: {given[key]}}}}}"
            raise ConfigError(f"{at(where, key)}: is for a kind of stage: write e.g. {block}")
    blocks = schema.block(Resources, given, where)
    for kind, need in blocks.items():
        place, key = at(where, kind), "processes" if need.processes else "gpus"
        if kind not in TRAININGS and need.members > 1:
            raise ConfigError(
                f"{at(place, key)}: only trainings ({', '.join(TRAININGS)}) are computed by "
                "several processes: leave it out"
            )
        if kind in TRAININGS and need.gpus and need.processes not in (None, need.gpus):
            raise ConfigError(
                f"{place}: {need.processes} processes cannot share {need.gpus} GPUs: give each "
                "process one GPU, or leave `processes` out"
            )
    return Resources(**blocks)


def widest(resources: Resources) -> int:
    """Return the most GPUs that a stage uses on a machine with GPUs."""
    return max(resources.gpus(kind, there=True) for kind in KINDS)


def check_machine(resources: Resources, kinds: Iterable[str], gpus: int) -> None:
    """Raise ConfigError if a stage of one of `kinds` needs more GPUs than this machine has."""
    for kind in kinds:
        wanted = resources.gpus(kind, gpus > 0)
        if wanted > gpus:
            key = block_of(kind)
            raise ConfigError(
                f"resources.{key}: needs {wanted} GPUs, and this machine has {gpus}: lower it, or "
                "compute these stages on another machine"
            )
