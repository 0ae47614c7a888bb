"""Templates and files of a page."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError

from maskpolicy.leaderboard.page.html_assets import asset, templates

PACKAGE = "maskpolicy.findings"


def test_a_template_escapes_texts_but_no_assets():
    page = templates(PACKAGE).from_string("{{ text }} {{ style }}")
    style = asset(PACKAGE, "page.css")
    assert page.render(text="<b>", style=style).startswith("&lt;b&gt; ")
    assert page.render(text="", style=style).strip() == str(style).strip()


def test_a_name_that_a_template_was_not_given_is_an_error():
    with pytest.raises(UndefinedError, match="title"):
        templates(PACKAGE).from_string("{{ title }}").render()
