"""Control characters in texts of users and strangers do not reach the terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from maskpolicy.cli.arguments import console

EVIL = "\x1b[31mred\x1b]8;;http://evil.example\x07\x9b1m"


def test_no_control_character_reaches_the_terminal(capsys):
    screen, table = console(), Table(EVIL)
    table.add_row(EVIL)
    for each in (EVIL, Text(EVIL), table):
        screen.print(each)
    said = capsys.readouterr().out
    assert said.count("[31mred") == 4
    assert said.replace("\n", "").isprintable()


def test_what_is_no_control_character_stays(capsys):
    console().print("é 中 \u200d\xa0a\tb\nc")
    assert capsys.readouterr().out.split("a")[0] == "é 中 \u200d\xa0"
