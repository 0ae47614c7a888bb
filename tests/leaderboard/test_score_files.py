"""Scores of single examples from tables, predictions and real logs of evaluation programs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import maskpolicy as mp
from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.leaderboard import report, score_files
from maskpolicy.leaderboard.given_scores import build_board
from maskpolicy.leaderboard.score_files import named, read_scores

LINES = [
    {"model": model, "task": "qa", "id": n, "score": float(n % (2 + at) == 0), "kind": f"g{n // 2}"}
    for at, model in enumerate(("one", "two"))
    for n in range(12)
]
COLUMNS = {"system": "model", "example": "id", "group": "kind"}
WRITERS = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "parquet": lambda frame, path: frame.set_index(frame.columns[0]).to_parquet(path),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
}


def board_of(*paths, **settings):
    frame, notes = read_scores(paths, **settings)
    return report.to_json(build_board(frame, notes=notes, title="same"))


def test_all_forms_of_a_table_give_one_board(tmp_path):
    frame = pd.DataFrame(LINES)
    boards = []
    for kind, write in WRITERS.items():
        write(frame, tmp_path / f"scores.{kind}")
        boards.append(board_of(tmp_path / f"scores.{kind}", columns=COLUMNS))
    assert boards == [boards[0]] * len(WRITERS)
    assert [row["policy"] for row in boards[0]["rows"]] == ["one", "two"]
    assert boards[0]["rows"][0]["scores"]["qa"]["mean"] == 50.0


def test_files_without_systems_are_systems_and_their_lines_are_examples(tmp_path):
    right, wrong = ("Paris", ["Paris", "Lutetia"]), ("Rome", ["Oslo"])
    for name, pairs in {"good": [right, right, right], "bad": [right, wrong, wrong]}.items():
        rows = [json.dumps({"prediction": one, "reference": of}) + "\n" for one, of in pairs]
        (tmp_path / f"{name}.jsonl").write_text("".join(rows))
    found = board_of(tmp_path / "bad.jsonl", tmp_path / "good.jsonl")
    scores = {row["policy"]: row["scores"]["task"] for row in found["rows"]}
    assert [scores[name]["mean"] for name in ("good", "bad")] == [100.0, pytest.approx(33.3333)]
    assert scores["good"]["metric"] == "exact_match"
    with pytest.raises(ConfigError, match="is a number of all examples together"):
        read_scores([tmp_path / "good.jsonl"], metric="matthews")
    (tmp_path / "numbers.jsonl").write_text('{"prediction": 1, "reference": 1}\n')
    assert read_scores([tmp_path / "numbers.jsonl"])[0]["score"].tolist() == [1.0]
    overlap = board_of(tmp_path / "bad.jsonl", tmp_path / "good.jsonl", metric="f1")
    assert overlap["rows"][0]["scores"]["task"]["metric"] == "f1"


def test_a_column_metric_says_which_score_a_line_is_and_how_predictions_are_scored():
    words = [("A", "a", "Ada Lovelace", "Ada"), ("B", "a", "Ada", "Ada")]
    frame = pd.DataFrame(words, columns=["system", "example", "prediction", "reference"])
    frame = frame.assign(task="t", metric="f1")
    given = mp.board(frame).scores().set_index("policy")["score"]
    assert given["A"] == pytest.approx(200 / 3) and given["B"] == 100
    both = pd.concat([frame, frame.assign(metric="exact_match")])
    assert set(mp.board(both, metric="exact_match").scores()["score"]) == {0, 100}
    assert set(mp.board(both.assign(score=0.5), metric="f1").scores()["score"]) == {50}
    with pytest.raises(DataError, match="metric=NAME chooses one"):
        mp.board(both)
    with pytest.raises(ConfigError, match="no line has it: choose from exact_match, f1"):
        mp.board(both, metric="bleu")
    both.iloc[3, 2] = None
    with pytest.raises(DataError, match="line 4 of the table has no prediction"):
        mp.board(both, metric="exact_match")


def test_files_with_and_without_seeds_and_groups_are_joined(tmp_path):
    one = pd.DataFrame(LINES[:12]).assign(seed=3)
    two = pd.DataFrame(LINES[12:]).drop(columns="kind")
    one.to_csv(tmp_path / "one.csv", index=False)
    two.to_csv(tmp_path / "two.csv", index=False)
    with pytest.raises(DataError, match=r"two.csv: no column kind \(there are: "):
        read_scores([tmp_path / "one.csv", tmp_path / "two.csv"], COLUMNS)
    names = {"system": "model", "example": "id"}
    frame, _ = read_scores([tmp_path / "one.csv", tmp_path / "two.csv"], names)
    assert list(frame["seed"]) == ["3"] * 24
    one.assign(seed=[1, 2] * 6).to_csv(tmp_path / "one.csv", index=False)
    with pytest.raises(DataError, match=r"two.csv: no column seed, and other files have one"):
        read_scores([tmp_path / "one.csv", tmp_path / "two.csv"], names)


def test_a_column_may_be_called_as_another_name(tmp_path):
    frame = pd.DataFrame(LINES).rename(columns={"model": "run", "id": "example", "kind": "score2"})
    swapped = frame.rename(columns={"task": "score", "score": "task"})
    for table, columns in ((frame, {}), (swapped, {"task": "score", "score": "task"})):
        columns = {"system": "run", **columns}
        for kind, write in WRITERS.items():
            write(table, tmp_path / f"scores.{kind}")
            rows = board_of(tmp_path / f"scores.{kind}", columns=columns)["rows"]
            assert [(row["policy"], [*row["scores"]]) for row in rows] == [
                ("one", ["qa"]),
                ("two", ["qa"]),
            ]
    assert set(mp.board(frame, columns={"system": "run"}).scores()["policy"]) == {"one", "two"}
    with pytest.raises(ConfigError, match="system=run: two names have this column"):
        mp.board(frame, columns={"system": "run", "seed": "run"})


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize(("name", "own"), [("example", "id"), ("system", "model")])
def test_a_line_without_a_name_is_the_line_of_its_file(tmp_path, refused, kind, name, own):
    paths = [tmp_path / f"{file}.{kind}" for file in "ab"]
    lacking = pd.DataFrame(LINES[12:]).astype({own: object})
    lacking.loc[3, own] = None
    for path, frame in zip(paths, (pd.DataFrame(LINES[:12]), lacking), strict=True):
        WRITERS[kind](frame, path)
    words = [word for pair in COLUMNS.items() for word in ("--column", "=".join(pair))]
    said = refused("board", *paths, *words)
    assert f"{paths[1]}: line 4 of the table" in said and name in said
    frame = lacking.assign(metric=["f1"] + ["acc"] * 11)
    with pytest.raises(DataError, match=f"^line 4 of the table has no {name}: give it one"):
        mp.board(frame, columns=COLUMNS, metric="acc")


def test_the_command_writes_all_forms(tmp_path, call, refused):
    pd.DataFrame(LINES).to_csv(tmp_path / "scores.csv", index=False)
    named = [word for name, own in COLUMNS.items() for word in ("--column", f"{name}={own}")]
    words = ["board", tmp_path / "scores.csv", *named, "--baseline", "two"]
    code, out, _ = call(*words, "--out", tmp_path / "out", "--pairs")
    assert code == 0 and out.startswith("The tests generalise to other examples") and "1-2 =" in out
    forms = {path.suffix for path in (tmp_path / "out").iterdir()}
    assert forms == {".html", ".json", ".md", ".csv", ".tex"}
    assert call("verify", tmp_path / "out")[:2] == (0, f"2 results, 0 faults: {tmp_path / 'out'}\n")
    code, out, _ = call(*words, "--json")
    assert json.loads(out) == json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert "choose from" in refused(*words[:-1], "three")
    for option in ("x=y", "system"):
        assert "NAME is one of system, task" in refused(*words, "--column", option)
    assert "the table has no column metric: leave it out" in refused(*words, "--metric", "acc")
    assert "--scale: must be a finite number" in refused(*words, "--scale", "inf")
    line = refused("board", tmp_path / "scores.csv", "--column", "system=foo")
    assert f"no column foo (there are: {', '.join(LINES[0])})" in line
    verified = call("verify", tmp_path / "scores.csv")[1]
    assert f"0 results, 1 fault: {tmp_path / 'scores.csv'}" in verified
    assert "no such file or folder" in refused("board", tmp_path / "none.csv")


@pytest.fixture(scope="session")
def evals() -> Path:
    """A Python that has lm-evaluation-harness, inspect_ai and what maskpolicy needs."""
    python = os.environ.get("MASKPOLICY_EVALS")
    if not python:
        pytest.skip("MASKPOLICY_EVALS names no Python with lm-eval and inspect-ai")
    return Path(python)


def write_logs(evals, program, folder):
    """Let a program evaluate models; return the folder of its logs."""
    made = Path(__file__).with_name("evaluations.py")
    subprocess.run([evals, made, program, folder], check=True, capture_output=True, timeout=1200)
    return folder / "logs"


@pytest.mark.slow
def test_real_logs_of_lm_evaluation_harness(evals, tmp_path, refused):
    logs = write_logs(evals, "lm-eval", tmp_path)
    found = board_of(logs)
    rows = {row["policy"]: row["scores"] for row in found["rows"]}
    assert {"capitals 0", "free_capitals 0"} < {*read_scores([logs])[0]["example"]}
    assert {name: one["capitals"]["mean"] for name, one in rows.items()} == {
        "org/good": 50.0,
        "org/bad": pytest.approx(33.3333),
    }
    assert rows["org/good"]["free_capitals"]["metric"] == "exact_match,whole"
    letters = board_of(logs, metric="exact_match,capital-letter")["rows"][0]["scores"]
    assert (letters["free_capitals"]["mean"], letters["capitals"]["metric"]) == (0.0, "acc")
    normed = board_of(logs, metric="acc_norm")["rows"][0]["scores"]
    assert normed["capitals"]["metric"] == "acc_norm"
    for metric in ("bleu", "exact_match,capital"):  # no score, and no filter of any task
        with pytest.raises(ConfigError, match="choose from acc; acc_norm; exact_match,whole; exac"):
            read_scores([logs], metric=metric)
    samples = sorted(logs.rglob("samples_capitals_*.jsonl"))[0]
    older = samples.with_name("samples_capitals_2020-01-01T00-00-00.000000.jsonl")
    older.write_bytes(samples.read_bytes())
    assert f"older logs of a system and task are left out: {older.name}" in read_scores([logs])[1]
    results = samples.with_name(samples.name.replace("samples_capitals", "results"))
    about = json.loads(results.with_suffix(".json").read_text())
    about["higher_is_better"]["capitals"]["acc"] = False
    results.with_suffix(".json").write_text(json.dumps(about))
    notes = board_of(logs)["notes"]
    assert [n for n in notes if "left out: a lower acc is better" in n] and len(found["rows"]) == 2
    results.with_suffix(".json").write_text(json.dumps({**about, "higher_is_better": [0]}))
    assert len(board_of(logs)["rows"]) == 2
    samples.write_bytes(samples.read_bytes()[:-40])
    assert "cut off, or not written by lm-evaluation-harness" in refused("board", logs)


BOARDS = """
import sys
from maskpolicy.app.commands import app

codes = [app(["board", logs, "--json"], standalone_mode=False) for logs in sys.argv[1:]]
assert codes == [None, 2], codes
"""


@pytest.mark.slow
def test_real_logs_of_inspect_ai(evals, tmp_path, refused):
    logs = write_logs(evals, "inspect", tmp_path)
    if "inspect_ai" not in sys.modules:
        assert "pip install 'maskpolicy[inspect]'" in refused("board", logs)
    whole, cut = sorted(logs.glob("*.eval"))[0], tmp_path / "cut"
    cut.mkdir()
    (cut / whole.name).write_bytes(whole.read_bytes()[:900])
    older = logs / "z" / "2000-01-01_capitals.eval"  # by its name, whatever its folder
    older.parent.mkdir()
    older.write_bytes(whole.read_bytes())
    command = [evals, "-c", BOARDS, logs, cut]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    found = json.loads(done.stdout)
    scores = {row["policy"]: row["scores"]["capitals"] for row in found["rows"]}
    assert scores.keys() == {"mockllm/good", "mockllm/bad"}
    assert (scores["mockllm/good"]["mean"], scores["mockllm/good"]["metric"]) == (50.0, "match")
    assert list(scores["mockllm/good"]["seeds"]) == ["1", "2", "3"]
    assert any("its evaluation has the status error" in note for note in found["notes"])
    assert f"older logs of a system and task are left out: {older.name}" in found["notes"]
    assert "not a complete log of inspect_ai" in done.stderr.splitlines()[-1]


def test_a_quote_that_opens_a_text_joins_no_lines_in_silence(tmp_path):
    rows = [("y", '"y'), ("a", "a"), ("y", '"y'), ("c", "c")]
    text = "".join(f"{said}\t{answer}\n" for said, answer in [("prediction", "reference"), *rows])
    path = tmp_path / "ours.tsv"
    path.write_text(text)
    with pytest.raises(DataError, match=r"ours.tsv, after line 1: .*write each quote"):
        read_scores([path])
    pd.DataFrame({"prediction": ["a\nb"], "reference": ['a\n"b"']}).to_csv(path, sep="\t")
    assert list(read_scores([path])[0]["score"]) == [1.0]


@pytest.mark.parametrize(
    ("said", "answers", "right"),
    [
        (["", "B"], ["A", "B"], None),  # SQuAD's rules leave nothing of a letter that is an article
        (["5", "2"], ["-5", "2"], None),
        (["35", "2"], ["3.5", "2"], None),
        (["305", "2"], ["3.05", "2"], None),
        (["500", "2"], ["5.00", "2"], None),
        (["", "Ada"], [["a", "an apple"], "Ada"], [1.0, 1.0]),
        ([1, 0], [1.0, 1.0], [1.0, 0.0]),
        (["1", "0"], ["1.0", "0.0"], [1.0, 1.0]),
    ],
)
def test_a_reference_that_the_usual_metric_cannot_see_is_refused(said, answers, right):
    frame = pd.DataFrame({"prediction": said, "reference": answers, "example": [1, 2]})
    frame = frame.assign(system="A", task="t")
    exact = named(frame, {}, metric="exact_match")["score"]
    if right is None:
        with pytest.raises(DataError, match="line 1 of the table: exact_match leaves"):
            named(frame, {})
        assert named(frame, {}, metric="accuracy")["score"][0] == 0 == 1 - exact[0]
    else:
        assert list(named(frame, {})["score"]) == right == list(exact)


def test_numbers_and_dates_of_json_lines_are_compared_as_they_are_written(tmp_path):
    path = tmp_path / "ours.jsonl"
    rows = [(3, 3), (3.5, 3), (4, [4, 5]), (True, "true"), ("2020-05-01", ["2020-05-01", "May"])]
    for kept in (rows[:2], rows[2:3], rows[3:4], rows[4:]):
        lines = [json.dumps({"prediction": said, "reference": right}) for said, right in kept]
        path.write_text("\n\n".join(lines))
        found = list(read_scores([path], metric="accuracy")[0]["score"])
        assert found == [1.0, 0.0][: len(kept)]


def test_a_table_that_memory_cannot_hold_is_one_line(tmp_path, refused):
    path = tmp_path / "scores.parquet"
    parquet.write_table(pa.table({"score": pa.nulls(10**7)}), path)
    about = parquet.read_metadata(path)
    for _ in range(14):
        about.append_row_groups(about)
    about.write_metadata_file(path)
    line = refused("board", path)
    assert "scores.parquet: 163,840,000,000 lines need 15,259 GiB of memory or more" in line


def test_references_may_be_in_any_collection():
    row = {"system": "a", "task": "t", "example": 1, "prediction": "x"}
    kinds = (list, tuple, frozenset, pd.Index, pd.Series)
    rows = [{**row, "reference": kind(["x", "y"])} for kind in kinds]
    assert score_files.named(pd.DataFrame(rows), {})["score"].tolist() == [1.0] * len(kinds)
    with pytest.raises(DataError, match="line 6 of the table has no prediction or no reference"):
        score_files.named(pd.DataFrame([*rows, {**row, "reference": pd.NA}]), {})
