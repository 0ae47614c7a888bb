import folders
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.core.types import Example
from maskpolicy.data.taskfiles import audit
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.task_kinds import AnswerParams, HeadParams
from maskpolicy.models.finetuning import TASK_HEADS
from maskpolicy.models.finetuning.encoder_tasks import TwoTexts
from maskpolicy.models.training.steps import tokenize

ENDS, BETWEEN = 2, len(TwoTexts.of(small.tokenizer()))  # special tokens of one text and of two

LONG = " ".join(small.TEXTS)


def ask(source: str, name: str = "", **more) -> Example:
    return Example(name or source, "g", source, ("Rome",), **more)


@pytest.mark.parametrize(
    ("train", "test", "contexts", "same"),  # examples of test with the same text, the same id alone
    [
        (
            [ask("Who wrote  The Red River?"), ask("Where is Lindau?")],
            [ask("who wrote the red river"), ask("Where is Rome?")],
            False,
            (1, 0),
        ),
        ([ask("a", "1"), ask("b", "2")], [ask("c", "1"), ask("b", "2")], False, (1, 1)),
        ([ask("Who?", "1", context="A.")], [ask("Who?", "2", context="B.")], True, (0, 0)),
        ([ask("Who?", "1", context="A.")], [ask("Who?", "2", context="B.")], False, (1, 0)),
        ([ask("The cat sat.")], [ask("Cat sat.")], False, (0, 0)),
    ],
)
def test_examples_of_test_that_stand_in_train_are_counted(train, test, contexts, same):
    found = audit.overlap(train, test, contexts)
    assert found == {"examples": len(test), "same_text": same[0], "same_id": same[1]}


@given(st.lists(st.text(), max_size=6), st.lists(st.text(), max_size=6))
def test_equal_splits_overlap_whole_and_none_where_train_is_empty(train, test):
    rows = [ask(text, f"id {index}") for index, text in enumerate(test)]
    others = [ask(text, f"other {index}") for index, text in enumerate(train)]
    assert audit.overlap(rows + others, rows, False)["same_text"] == len(rows)
    assert audit.overlap([], rows, False)["same_text"] == 0


def lengths(*texts: str) -> list[int]:
    return tokenize(texts, small.tokenizer()).lengths.tolist()


@pytest.mark.parametrize("spare", [0, -1])
def test_what_is_counted_is_what_training_cuts(spare):
    source, target = lengths(LONG, "Rome")
    spec = Training(max_source=source + ENDS + spare, max_target=target + ENDS + spare)
    rows = [ask(LONG), ask("Who?")]
    found = TASK_HEADS["text"].cuts(small.tokenizer(), rows, spec, HeadParams(), True)
    steps = TASK_HEADS["text"].steps(
        small.bart(), small.tokenizer(), rows, spec, AnswerParams(keep="start")
    )
    assert [(cut.what, cut.count, cut.texts) for cut in found] == [
        ("sources", -spare, 2),
        ("targets", -2 * spare, 2),
    ]
    kept = steps.pairs.sources.lengths.sum()
    assert kept == sum(lengths(LONG, "Who?")) + 2 * ENDS + spare


@pytest.mark.parametrize(("context", "room"), [(None, ENDS), ("Boats.", BETWEEN)])
def test_a_label_tasks_texts_are_counted_together(context, room):
    rows = [ask(LONG, context=context)]
    size = sum(lengths(LONG, context or "")) + room
    counts = [
        TASK_HEADS["label"].cuts(
            small.tokenizer(), rows, Training(max_source=most), HeadParams(), True
        )
        for most in (size, size - 1)
    ]
    assert [cut.count for (cut,) in counts] == [0, 1]


def test_notes_say_what_was_found_and_nothing_of_what_is_well():
    shared = {"examples": 40, "same_text": 3, "same_id": 0}
    cuts = [
        {"split": "train", "what": "sources", "count": 3, "texts": 40, "limit": 64, "key": key}
        for key in ("max_source", "positions")
    ]
    found = audit.notes("ropes", {"test_in_train": shared, "cuts": cuts})
    assert [note.removeprefix("ropes: 3 of 40 (7.5%) ") for note in found] == [
        "test questions are also in train",
        "train sources were cut to 64 tokens: finetune.max_source is the limit",
        "train sources were cut to 64 tokens: the model has no more positions",
    ]
    nothing = {"test_in_train": {**shared, "same_text": 0}, "cuts": [{**cuts[0], "count": 0}]}
    assert audit.notes("ropes", nothing) == []


def test_notes_are_on_the_board_of_a_run(tmp_path):
    shared = {"examples": 40, "same_text": 3, "same_id": 0}
    folder = folders.write(tmp_path, {"none": 0.2, "random": 0.6}, ("zsre",), seeds=1)
    folders.change(folder, "*", audit={"test_in_train": shared, "cuts": []})
    note = "zsre: 3 of 40 (7.5%) test questions are also in train"
    assert note in folders.board(folder).notes
