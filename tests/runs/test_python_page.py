"""The code of docs/python.md runs as it stands there, with smaller trainings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import maskpolicy as mp

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
SMALL = (
    *("world.people=8", "world.general_people=4", "seeds=[0,1]"),
    *(
        f"{name}.{key}"
        for name in ("general", "intermediate", "finetune")
        for key in ("steps=2", "warmup=1", "batch_size=2", "precision=fp32")
    ),
)


@pytest.mark.slow
def test_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 5
    known = {}
    run = mp.run
    monkeypatch.setattr(mp, "run", lambda what, *_, **more: run(what, *SMALL, **more, jobs=1))
    for block in blocks:
        exec(block, known)
    found = known["found"]
    assert set(found.scores().policy) == {"none", "random", "salient-span target=full"}
    assert isinstance(found.plot(), Figure)
    assert (tmp_path / "board.html").is_file() and (tmp_path / "runs" / "mine").is_dir()
    masked = {part for *_, part in known["masked"].spans}
    assert len(masked) == 2 and masked < {"Ada Lovelace", "London", "1815"}
