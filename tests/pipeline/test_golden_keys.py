"""The keys of all stages of every experiment, pinned: a changed key makes stores worthless.

`PYTHONPATH=tests python tests/pipeline/test_golden_keys.py` writes them anew, after a VERSION was
raised or an experiment was changed on purpose.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import folders
import pytest
from pytest import MonkeyPatch

from maskpolicy.core import hardware, hub
from maskpolicy.core.keys import to_json
from maskpolicy.core.types import Json
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.experiment.policy_blocks import policy_block, policy_versions
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.nodes import Stage, params_of, topological
from maskpolicy.plugins.discovery import find_plugin

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
GOLDEN = Path(__file__).parents[1] / "fixtures" / "golden_keys.json"
ENCODER = "model={kind: encoder, name: mini, relative_positions: true, layers: 3}"
HUB = ("data=hub", "tasks=[nq, triviaqa]")
OTHERS = {
    "multiple-choice": ("policies.2.corpus.mix.other.files=[DATA/text.txt]",),
    # epochs become steps in commands, which count the examples
    "mae-lm": ("tasks=[cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, squad_v2]",),
}
VARIANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    **{path.stem: (path.name, ()) for path in sorted(EXPERIMENTS.glob("*.yaml"))},
    **{
        f"paper/{path.stem}": (
            f"paper/{path.name}",
            ("data=DATA", "corpus.files=[DATA/text.jsonl]", *OTHERS.get(path.stem, ())),
        )
        for path in sorted((EXPERIMENTS / "paper").glob("*.yaml"))
    },
    "relative": (
        "mae.yaml",
        (ENCODER, "general.steps=5", "general_seeds=3", "intermediate_seeds=3"),
    ),
    "eps": ("quickstart.yaml", ("finetune.eps=1e-6", "intermediate.betas=[0.8,0.9]")),
    "judged": ("quickstart.yaml", ("finetune.eval_every=5", "finetune.patience=2")),
    "early": (
        "quickstart.yaml",
        (
            *("checkpoint_steps=[3,5]", "intermediate_seeds=2", "general_seeds=1"),
            "keep_models=[finetune]",
        ),
    ),
    "chosen": ("nine-tasks.yaml", ("finetune.eval_every=5", "tasks=[{name: quartz}, wiqa]")),
    "swept": (
        "quickstart.yaml",
        ("grid.finetune.lr=[1e-4,1e-3]", "policies.2.grid.ratio=[0.1,0.2]", "tasks=[zsre]"),
    ),
    "tuned": (
        "quickstart.yaml",
        ("tune.intermediate.lr=[1e-4,1e-3]", "checkpoint_steps=[3]", "tasks=[zsre, wow]"),
    ),
    "mixed": (
        "quickstart.yaml",
        (
            "general.policy={name: mixture, members: [original, salient-span]}",
            "corpus.mix={general: 0.2, situations: 0.1}",
            "world.situations=0.3",
            "policies=[none, pmi, {name: original, corpus: {words: 50, mix: {general: 0}}}]",
            "tasks=[zsre]",
        ),
    ),
    "likely": ("nine-tasks.yaml", ("tasks=[{name: wiqa, choose: likelihood}]",)),
    "files": ("quickstart.yaml", ("corpus={files: [DATA/text.jsonl, DATA/text.txt], words: 50}",)),
    "hub": ("quickstart.yaml", ("corpus={hub: our/text, split: test, column: body}", *HUB)),
    "folder": ("quickstart.yaml", ("model=DATA/model", "data=DATA")),
    "learned from the hub": ("learned.yaml", ("model=facebook/bart-base", "general_seeds=1")),
    "encoder of the hub": ("mae.yaml", ("model={kind: encoder, name: some/roberta}",)),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with files of all tasks, two of text and a model's."""
    return fill(tmp_path_factory.mktemp("golden"))


def fill(folder: Path) -> Path:
    tasks = folders.official(folder)
    (tasks / "model").mkdir()
    for name in ("text.jsonl", "text.txt", "model/config.json", "model/model.safetensors"):
        (tasks / name).write_text("text")
    return tasks


def stages_of(variant: str, data: Path, patch: MonkeyPatch) -> list[Stage]:
    """Return the stages of a variant as any machine, at any time, makes them.

    A digest stands for a file's name, and a commit for a Hub name.
    """
    patch.setattr(hardware, "cpu_flags", set)
    patch.setattr(hardware, "device", lambda: SimpleNamespace(type="cpu"))
    patch.setattr(
        hub, "commit", lambda kind, name, revision, where: digest(f"{name} {revision}")[:40]
    )
    name, overrides = VARIANTS[variant]
    given = [override.replace("DATA", str(data)) for override in overrides]
    made = stages.build(load_experiment(EXPERIMENTS / name, given), lambda path: digest(path.name))
    found = topological((*made.targets, *made.pretrained.values()))
    return found + [each for stage in found for each in stage.byproducts.values()]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def digests(found: list[Stage]) -> dict[str, str]:
    """Return a digest of all labels and keys of each kind of stage."""
    lines: Mapping[str, set[str]] = defaultdict(set)
    for stage in found:
        lines[stage.kind].add(f"{stage.label}: {stage.key}\n")
    return {kind: digest("".join(sorted(each)))[:16] for kind, each in sorted(lines.items())}


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_key_of_an_experiment_changes_and_records_and_files_are_those_of_the_keys(
    variant, data, monkeypatch
):
    """Each data file in a key is compared when its stage is computed."""
    golden: dict[str, Json] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    found = stages_of(variant, data, monkeypatch)
    assert digests(found) == golden[variant]
    for stage in found:
        record = json.loads(json.dumps(stage.record()))
        assert to_json(params_of(record, type(stage.params))) == stage.keyed
        assert {digest(path.name) for path in stage.files} == set(stage.files.values())
        own, keyed = set(stage.files.values()), set(files_in(dict(stage.keyed)))
        below = {each for needed in stage.inputs.values() for each in needed.files.values()}
        assert own <= keyed
        assert keyed <= (own | below if "mix" in stage.keyed else own)


def files_in(value: Json) -> Iterator[str]:
    """Yield the digests of the data files in a stage's key."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        yield from files_in(part)
    named = value.get("files") if isinstance(value, dict) else None
    yield from named.values() if isinstance(named, dict) else [known for _, known in named or ()]


def test_the_version_of_a_policy_is_in_the_keys_of_stages_that_mask_alone(data, monkeypatch):
    before = {one.key for one in stages_of("mixed", data, monkeypatch)}
    monkeypatch.setattr(find_plugin("policy", "pmi").plugin, "version", 99)
    found = stages_of("mixed", data, monkeypatch)
    changed = {one.kind: one for one in found if one.key not in before}
    assert changed.keys() == {"intermediate", "finetune", "evaluate"}
    assert changed["intermediate"].keyed["versions"] == {"pmi": 99}
    mixture = policy_block({"name": "mixture", "members": ["random", "pmi"]}, "", {})
    assert policy_versions(mixture) == {"pmi": 99}


def test_trainings_whose_targets_were_cut_are_computed_again(data, monkeypatch):
    for more, says in ((), None), (("intermediate.max_target=99",), True):
        monkeypatch.setitem(VARIANTS, "short", ("quickstart.yaml", more))
        found = stages_of("short", data, monkeypatch)
        keyed = [one.keyed for one in found if one.kind in ("general", "intermediate")]
        assert [one.get("whole_targets") for one in keyed] == [None, *[says] * (len(keyed) - 1)]


def write_golden() -> None:
    found: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        data = fill(Path(folder))
        for variant in VARIANTS:
            with MonkeyPatch.context() as patch:
                found[variant] = digests(stages_of(variant, data, patch))
    GOLDEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_golden()
