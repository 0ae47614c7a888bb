from __future__ import annotations

import logging
from typing import get_args

import pytest

from maskpolicy.config.experiment import Tracker
from maskpolicy.errors import ConfigError
from maskpolicy.training.tracking import check_installed, tracked


def test_the_names_are_those_of_accelerate():
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    assert sorted(get_args(Tracker)) == sorted(LOGGER_TYPE_TO_CLASS)


def test_tensorboard_gets_the_values(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with tracked("tensorboard", tmp_path / "logs", "mine", cpu=True) as log:
        log(5, {"loss": 2.0})
        log(10, {"loss": 1.0})
    events = accumulator.EventAccumulator(str(tmp_path / "logs" / "mine")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(5, 2.0), (10, 1.0)]


def test_none_is_off(tmp_path):
    with tracked(None, tmp_path, "mine", cpu=True) as log:
        assert log is None
    with tracked("tensorboard", None, "mine", cpu=True) as log:
        assert log is None
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_one_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with (
        caplog.at_level(logging.WARNING, "maskpolicy"),
        tracked("tensorboard", tmp_path / "file" / "logs", "mine", cpu=True) as log,
    ):
        log(1, {"loss": 1.0})
    assert len(caplog.messages) == 1
    assert "tracker tensorboard is off" in caplog.messages[0]


def test_a_value_that_a_tracker_refuses_turns_it_off(tmp_path, caplog):
    pytest.importorskip("tensorboard")
    with (
        caplog.at_level(logging.WARNING, "maskpolicy"),
        tracked("tensorboard", tmp_path, "mine", cpu=True) as log,
    ):
        log(1, {"loss": object()})
        log(2, {"loss": object()})
    assert len(caplog.messages) <= 1


def test_what_the_training_raises_passes_through(tmp_path):
    with pytest.raises(KeyError), tracked("tensorboard", tmp_path, "mine", cpu=True):
        raise KeyError("a fault of the training")


def test_a_package_that_is_not_there_is_named(tmp_path, caplog):
    with (
        caplog.at_level(logging.WARNING, "maskpolicy"),
        tracked("aim", tmp_path, "mine", cpu=True) as log,
    ):
        log(1, {"loss": 1.0})
    assert "pip install aim" in caplog.messages[0]


def test_a_tracker_that_is_not_installed_is_refused(monkeypatch):
    check_installed(None)
    monkeypatch.setattr("accelerate.tracking.get_available_trackers", lambda: [])
    with pytest.raises(ConfigError, match=r"comet_ml is not installed: run `pip install comet-ml`"):
        check_installed("comet_ml")
