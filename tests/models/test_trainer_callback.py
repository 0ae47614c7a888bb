"""MaskingCollator in a Transformers Trainer: each batch has the masks of its step."""

import json
import socket
from types import SimpleNamespace

import clusters
import encoders
import forked
import pytest
import small
import text_to_text
import trainers
from refusals import refused
from transformers import Trainer, TrainingArguments

from maskpolicy.core.errors import ConfigError

RESUMED = 3  # the step of the checkpoint, within the first epoch


def check(family, batches, first=0):
    """Check that the batches of a training from step `first` on have the masks of their steps."""
    assert len(batches) == trainers.ACCUMULATED * (trainers.STEPS - first)
    for number, batch in enumerate(batches):
        assert batch == trainers.wanted(family, batch, first + number // trainers.ACCUMULATED)


@pytest.fixture(scope="module", params=["bert", "bart"])
def whole(request, tmp_path_factory):
    """Return the family, folder and batches of a training that evaluates."""
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, folder, trainers.train(request.param, folder, evaluate=True)


def test_the_masks_of_a_step_do_not_depend_on_evaluations(whole):
    family, _, (batches, _) = whole
    check(family, batches)


def test_an_evaluation_masks_the_same_each_time(whole):
    _, _, (_, evaluations) = whole
    assert len(evaluations) > 1
    assert all(batch == evaluations[0] for batch in evaluations)


def test_a_callback_may_be_added_later(whole, tmp_path):
    family, _, batches = whole
    keys = {"late": True, "evaluate": True, "remove_unused_columns": False}
    assert trainers.train(family, tmp_path, **keys) == batches


def test_a_resumed_training_masks_what_an_uninterrupted_one_does(whole):
    family, folder, (batches, _) = whole
    resumed, _ = trainers.train(family, folder, resume=RESUMED)
    assert resumed == batches[trainers.ACCUMULATED * RESUMED :]


@pytest.mark.slow
def test_workers_of_a_dataloader_know_the_step_of_their_batches(tmp_path):
    batches, _ = trainers.train("bert", tmp_path, dataloader_num_workers=2)
    check("bert", batches)


def test_a_resumed_stream_masks_the_batches_that_it_skips(tmp_path):
    batches, _ = trainers.train("bert", tmp_path, stream=True)
    check("bert", batches)
    resumed, _ = trainers.train("bert", tmp_path, stream=True, resume=RESUMED)
    check("bert", resumed, RESUMED)


@pytest.mark.slow
def test_two_processes_mask_their_rows_as_one_would(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    folder = encoders.saved("bert", tmp_path / "model")
    keys = {"family": "bert", "saved": str(folder), "ddp_backend": "gloo"}
    argv = [trainers.__file__, str(tmp_path), json.dumps(keys)]
    code = f"import runpy, sys\nsys.argv = {argv!r}\nrunpy.run_path(sys.argv[0], None, '__main__')"
    running = [forked.Script(code, **shared, RANK=f"{n}", LOCAL_RANK=f"{n}") for n in range(2)]
    for process in running:
        clusters.finish(process)
    both = [json.loads((tmp_path / f"rank{rank}.json").read_text())[0] for rank in range(2)]
    for batches in both:
        check("bert", batches)
    assert both[0] != both[1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"data_collator": trainers.collator_of("bert")}, "give it the collator of the callback"),
        (
            {"dataloader_num_workers": 1, "dataloader_persistent_workers": True},
            "set dataloader_persistent_workers=False",
        ),
        ({"model": text_to_text.model("bart")}, "the model is text-to-text: give the collator"),
    ],
)
def test_a_trainer_that_the_collator_cannot_follow_raises(tmp_path, change, says):
    given = dict(change)
    collator = trainers.collator_of("bert")
    model = given.pop("model", None) or encoders.model("bert")
    data_collator = given.pop("data_collator", collator)
    arguments = TrainingArguments(str(tmp_path), report_to=[], use_cpu=True, **given)
    trainer = Trainer(
        model,
        arguments,
        train_dataset=[{"text": text} for text in small.TEXTS],
        data_collator=data_collator,
        callbacks=[collator.callback()],
    )
    assert says in refused(trainer.train, match="MaskingCollator: ")


def test_one_process_that_reads_for_all_raises():
    collator = trainers.collator_of("bert")
    loader = type("DataLoaderDispatcher", (), {"collate_fn": collator})()
    arguments = SimpleNamespace(dataloader_num_workers=0, world_size=2)
    with pytest.raises(ConfigError, match="set accelerator_config="):
        collator.callback().on_train_begin(
            arguments, None, None, train_dataloader=loader, model=encoders.model("bert")
        )
