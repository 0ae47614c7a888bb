from __future__ import annotations

import re

import folders

from maskpolicy.leaderboard import latex
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.results.cell import read_run


def table(folder, policies, tasks=("triviaqa", "nq")):
    made = folders.write(folder, policies, tasks, seeds=3)
    return latex.render(build_leaderboard([read_run(made)]))


def test_a_row_for_each_policy_and_a_column_for_each_task_and_average(tmp_path):
    lines = table(tmp_path, {"none": 0.2, "random": 0.9}).splitlines()
    assert r"\begin{tabular}{lrrr}" in lines
    body = lines[lines.index(r"\midrule") + 1 : lines.index(r"\bottomrule")]
    assert [line.split(" & ")[0] for line in body] == ["none", "random"]
    assert all(line.count(" & ") == 3 and line.endswith(r" \\") for line in body)
    assert r"\mathbf{" in body[1]
    assert r"\mathbf{" not in body[0]
    assert body[1].count(r"^{\dagger}$)") == 2
    assert "(" not in body[0]


def test_names_are_escaped(tmp_path):
    text = table(tmp_path, {"none": 0.2, r"50% of_a {b} \d ~^ <x> & $": 0.9})
    row = next(line for line in text.splitlines() if line.startswith("50"))
    assert r"50\% of\_a \{b\} \textbackslash{}d \textasciitilde{}\textasciicircum{}" in row
    assert r"\textless{}x\textgreater{} \& \$ & " in row
    assert len(re.findall(r"(?<!\\)&", row)) == 3


def test_a_baseline_of_two_lines_stays_in_its_comment(tmp_path):
    text = table(tmp_path, {"a\nb": 0.2, "random": 0.9})
    assert "% (difference to a b;" in text


def test_a_missing_cell_is_a_dash(tmp_path):
    folders.write(tmp_path, {"none": 0.2, "random": 0.9}, seeds=1)
    (tmp_path / "results" / "random--zsre--0.json").unlink()
    text = latex.render(build_leaderboard([read_run(tmp_path)]))
    assert next(line for line in text.splitlines() if line.startswith("random")).endswith(
        r"& -- \\"
    )
