"""Users' text in Markdown: a parser finds no link, image or HTML in it."""

import folders
import pytest
from markdown_it import MarkdownIt
from payloads import PAYLOADS

from maskpolicy.core import markdown
from maskpolicy.leaderboard import report
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.leaderboard.results.cell import read_run

MARKUP = {"link_open", "image", "html_inline", "html_block"}


def kinds(text: str) -> set[str]:
    """Return the kinds of all tokens of a Markdown text with tables."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inner = [token for each in tokens for token in each.children or ()]
    return {token.type for token in (*tokens, *inner)}


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_text_becomes_a_link_an_image_or_html(payload):
    made = markdown.plain(payload)
    for text in (made, f"* {made}\n\n[evil]", markdown.plain_table(["a"], [[payload]])):
        assert not kinds(text) & MARKUP


@pytest.mark.parametrize(
    "text",
    [
        *("*a*", "a_b", "_a_", "__a__", "`a` b", "~~a~~", "a\\|b", "a\\", "[a]", "2 * 3 *", "a|b"),
        *("# a", "- a", "1. a", "12) a", "* a", "---", "-1 to 2", "1.5"),
    ],
)
def test_a_cell_of_a_table_and_a_note_show_their_text(text):
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens = parser.parse(markdown.plain_table(["name", "n"], [[text, "1"]]))
    cells = [each.children or () for each in tokens if each.type == "inline"]
    assert ["".join(child.content for child in cell) for cell in cells] == ["name", "n", text, "1"]
    assert all(child.type in ("text", "text_special") for cell in cells for child in cell)
    (item,) = [e for e in parser.parse(f"* {markdown.plain(text)}") if e.type == "inline"]
    assert "".join(child.content for child in item.children or ()) == text


def test_bare_addresses_are_no_links_on_github():
    made = markdown.plain("see https://evil.example, http://a.b and www.evil.example")
    assert not any(start in made for start in ("://", "www."))
    (inline,) = [token for token in MarkdownIt().parse(made) if token.type == "inline"]
    shown = "".join(child.content for child in inline.children or ())
    assert shown == "see https://evil.example, http://a.b and www.evil.example"


def test_labels_are_only_text_in_a_leaderboard(tmp_path):
    folder = folders.write(tmp_path / "x", dict.fromkeys(PAYLOADS, 0.5), seeds=3)
    found = kinds(report.to_markdown(build_leaderboard([read_run(folder)])))
    assert "table_open" in found
    assert not found & MARKUP
