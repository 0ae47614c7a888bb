"""Local folders are checked before a run; presets and names on the Hub are not."""

from __future__ import annotations

import pytest

from maskpolicy.config.experiment import ModelBlock
from maskpolicy.errors import ConfigError
from maskpolicy.models.model_kinds import check_folder


def test_a_folder_with_the_name_of_a_preset_is_not_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mini").mkdir()
    check_folder(ModelBlock("mini"))
    with pytest.raises(ConfigError, match="cannot be loaded"):
        check_folder(ModelBlock(str(tmp_path / "mini")))
