"""Numbers that the paper reports, shown beside the table and never ranked (reported.json)."""

from __future__ import annotations

import json
from importlib import resources

from maskpolicy.page.view import Table
from maskpolicy.types import Json


def beside(table: Table) -> Json:
    """Return the reported rows that have a number for a column of the table, or None."""
    known = load()
    tasks = [None if column.context else column.task for column in table.columns]
    rows = [
        {"policy": row["policy"], "cells": [row["scores"].get(task) for task in tasks]}
        for row in known["rows"]
    ]
    shown = [row for row in rows if any(row["cells"])]
    return {**known, "rows": shown} if shown else None


def load() -> Json:
    """Return reported.json: {"source", "url", "about", "rows": [{"policy", "scores"}]}."""
    text = resources.files("maskpolicy").joinpath("page", "reported.json").read_text("utf-8")
    return json.loads(text)
