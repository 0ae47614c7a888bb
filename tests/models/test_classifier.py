"""Classifiers, scores of pairs, and the contexts that policies learn from."""

import shutil
from dataclasses import replace
from pathlib import Path

import encoders
import numpy as np
import pytest
import small
import text_to_text
import torch
from official import rows_of
from official import write as write_rows
from torch.nn.functional import cross_entropy

from maskpolicy.core.errors import ConfigError, DataError, StageError
from maskpolicy.core.types import Example, as_spans
from maskpolicy.data.world import make, write
from maskpolicy.experiment import learned_policies
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import TaskBlock
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.experiment.task_kinds import AnswerParams
from maskpolicy.experiment.world_settings import SUBJECT_KINDS
from maskpolicy.models.finetuning import TASK_HEADS, pair_scores
from maskpolicy.models.finetuning.encoder_tasks import outputs
from maskpolicy.models.learned import Context
from maskpolicy.models.learned import fit_tools as contexts
from maskpolicy.models.learned.fit_tools import Classifier, readable
from maskpolicy.models.text_to_text import label_logits
from maskpolicy.models.training.batching import IGNORE
from maskpolicy.plugins import discovery

SPEC = Training(batch_size=4, micro_tokens=4096, max_source=64, precision="fp32")
CHOICES = ("no", "yes", "perhaps")
EXAMPLES = [
    Example("a", "a", "Boats go down it.", ("yes",), choices=CHOICES),
    Example("b", "b", "The river Oder.", ("no",), context="He was nine.", choices=CHOICES),
    Example("c", "c", "Boats.", ("yes",), choices=CHOICES),
]


LABEL = ("roberta", "modernbert")
TEXT = ("bart", "t5", "bert2bert")


@pytest.fixture(params=[*LABEL, *TEXT])
def judge(request, tmp_path):
    """Return a classifier that is an encoder, or a text-to-text model, of several families."""
    kind, families = ("label", encoders) if request.param in LABEL else ("text", text_to_text)
    families.model(request.param).save_pretrained(tmp_path / "model")
    tokenizer = families.tokenizer(request.param)
    tokenizer.save_pretrained(tmp_path / "model")
    model = TASK_HEADS[kind].start(tmp_path / "model", EXAMPLES, 0)
    model.save_pretrained(tmp_path / "tuned")
    found = Classifier.load(tmp_path / "tuned", tokenizer, CHOICES, SPEC)
    assert found.params.head == kind
    return found


def test_probabilities_of_the_labels_add_up_to_one_and_rank_as_answers_do(judge):
    found = judge.log_probabilities(EXAMPLES)
    assert found.shape == (3, 3)
    assert np.exp(found).sum(1) == pytest.approx(np.ones(3))
    assert judge.log_probabilities([]).shape == (0, 3)
    one = judge.log_probabilities(EXAMPLES[1:2])
    assert one[0] == pytest.approx(found[1], abs=1e-5)  # whatever shares its batch
    params = AnswerParams(head=judge.params.head, keep="start", choose="likelihood")
    given = readable(EXAMPLES, judge.params.head)
    answers = judge.head.answer(judge.model, judge.tokenizer, given, params, SPEC)
    if judge.params.head == "label":  # a text's mean over its tokens may rank otherwise
        assert answers == [CHOICES[row.argmax()] for row in found]


def test_a_label_has_the_likelihood_of_its_text(tmp_path):
    small.bart().save_pretrained(tmp_path)
    judge = Classifier.load(tmp_path, small.tokenizer(), CHOICES, SPEC)
    example = EXAMPLES[0]
    scores = []
    for choice in CHOICES:
        batch = judge.steps([replace(example, targets=(choice,))])(0).batches[0]
        total, tokens = judge.head.loss(judge.model, batch)
        copies = len(batch.source)  # of the one example
        assert tokens == copies * (len(small.tokenizer()(choice).input_ids))
        scores.append(-total.item() / copies)
    weights = np.exp(scores)
    assert np.exp(judge.log_probabilities([example]))[0] == pytest.approx(
        weights / weights.sum(), rel=1e-4
    )


def exact_loss(judge, batch):
    """Return a batch's loss in float64, without the rounding of the loss of training."""
    if judge.params.head == "label":
        logits, labels = outputs(judge.model, batch).logits, batch.labels[:, 0]
    else:
        logits, labels = label_logits(judge.model, batch), batch.labels[batch.labels != IGNORE]
    assert logits.dtype == torch.float64
    return cross_entropy(logits, labels, reduction="sum").item()


def test_gradients_equal_finite_differences(judge):
    batch = judge.steps(EXAMPLES)(0).batches[0]
    found = judge.gradients(batch)
    assert found.shape == tuple(batch.source.shape)
    judge.model.double()
    reader = judge.model.get_encoder() if judge.params.head == "text" else judge.model

    def loss(row, place, entry):
        def scaled(module, given, out):
            done = out.clone()
            done[row, place] *= entry
            return done

        hook = reader.get_input_embeddings().register_forward_hook(scaled)
        with torch.no_grad():
            value = exact_loss(judge, batch)
        hook.remove()
        return value

    for row, place in ((0, 0), (1, 2), (len(found) - 1, 1)):
        slope = (loss(row, place, 1.001) - loss(row, place, 0.999)) / 0.002
        assert found[row, place] == pytest.approx(slope, rel=1e-3, abs=3e-4)


def test_a_shortened_example_has_the_words_that_are_kept():
    first, second = small.words("Boats go down, it!"), small.words("He was nine")
    text = "Boats go down, it!"
    made = Context("i", "g", text, ("yes",), first, as_spans([]), CHOICES, second)
    assert made.words == ["Boats", "go", "down,", "it!", "He", "was", "nine"]
    assert made.example == Example("i", "g", text, ("yes",), context="He was nine", choices=CHOICES)
    kept = np.asarray([False, True, False, True, True, False, False])
    short = made.shortened(kept)
    assert (short.source, short.context) == ("go it!", "He")
    assert replace(made, second=None).shortened(kept[:4]).context is None
    without_words = replace(made, second=small.passage(""))
    assert without_words.shortened(kept[:4]).context == ""


def test_a_text_to_text_model_reads_both_texts_as_two_lines():
    assert readable(EXAMPLES, "label") == EXAMPLES
    assert [one.source for one in readable(EXAMPLES, "text")] == [
        "Boats go down it.",
        "The river Oder.\nHe was nine.",
        "Boats.",
    ]


PAIR_SPEC = Training(max_source=64, micro_tokens=256)
TEXTS = [("", text) for text in small.TEXTS] + [(small.TEXTS[5], small.TEXTS[6])]
STARTS = {"bart": ["<s>", "<mask>"], "t5": ["<pad>", "<extra_id_0>"]}  # of a decoder


def likelihood(model, places, tokens, **inputs):
    """Return the summed log-likelihood of a token in each row, at its place."""
    with torch.no_grad():
        logits = model(**{name: torch.tensor(ids) for name, ids in inputs.items()}).logits
    rows = torch.arange(len(tokens))
    return logits[rows, places].log_softmax(-1)[rows, tokens].sum().item()


def check_scores(model, tokenizer, choose, wanted):
    """Check the scores of all texts against a function of the text before and the text."""
    found = pair_scores.scores(model, tokenizer, TEXTS, choose, PAIR_SPEC)
    assert found == pytest.approx([wanted(*texts) for texts in TEXTS], abs=1e-4)


def copies(tokenizer, before, text, mask, rest_of_word=False):
    """Return places, true tokens and masked copies of a text, as minicons and BabyLM do."""
    whole = f"{before} {text}" if before else text
    made = tokenizer(whole, return_offsets_mapping=True, return_special_tokens_mask=True)
    ids, words, special = made["input_ids"], made.word_ids(), made["special_tokens_mask"]
    masked = []
    for place, (_, end) in enumerate(made["offset_mapping"]):
        if not special[place] and (not before or end > len(before)):
            copy = list(ids)
            copy[place] = mask
            for later in range(place + 1, len(ids)):
                if rest_of_word and words[later] == words[place]:
                    copy[later] = mask
            masked.append((place, ids[place], copy))
    return map(list, zip(*masked, strict=True))


@pytest.mark.parametrize(
    ("family", "choose"),
    [*((family, "within_word_l2r") for family in encoders.TOKENIZERS), ("bert", "pll")],
)
def test_pseudo_log_likelihoods_equal_those_of_a_plain_loop(family, choose):
    model, tokenizer = encoders.model(family), encoders.tokenizer(family)

    def wanted(before, text):
        mask, is_whole = tokenizer.mask_token_id, choose != "pll"
        places, tokens, ids = copies(tokenizer, before, text, mask, is_whole)
        return likelihood(model, places, tokens, input_ids=ids)

    check_scores(model, tokenizer, choose, wanted)


@pytest.fixture
def published():
    """minicons' scorers: a package of the extra `published`, or skip."""
    return pytest.importorskip("minicons.scorer")


@pytest.mark.published
@pytest.mark.parametrize("family", ["bert", "modernbert", "roberta"])
def test_pseudo_log_likelihoods_equal_those_of_minicons(published, monkeypatch, family):
    model, tokenizer = encoders.model(family), encoders.tokenizer(family)
    # minicons calls a method that Transformers 5 has removed
    monkeypatch.setattr(tokenizer, "batch_encode_plus", tokenizer.__call__, raising=False)
    scorer = published.MaskedLMScorer(model, "cpu", tokenizer=tokenizer)
    for ours, theirs in (("pll", "original"), ("within_word_l2r", "within_word_l2r")):
        found = pair_scores.scores(model, tokenizer, TEXTS[:-1], ours, PAIR_SPEC)
        wanted = scorer.sequence_score(small.TEXTS, lambda s: s.sum().item(), PLL_metric=theirs)
        assert found == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("family", STARTS)
def test_a_text_to_text_model_fills_a_mask_behind_bos(family):
    model, tokenizer = text_to_text.model(family), text_to_text.tokenizer(family)
    starts = tokenizer.convert_tokens_to_ids(STARTS[family])

    def wanted(before, text):
        _, tokens, ids = copies(tokenizer, before, text, starts[1])
        decoder = [starts] * len(ids)
        ones = [1] * len(ids)
        return likelihood(model, ones, tokens, input_ids=ids, decoder_input_ids=decoder)

    check_scores(model, tokenizer, "enc_dec_mask", wanted)


@pytest.mark.parametrize("family", STARTS)
def test_a_decoder_scores_a_text_after_its_prefix(family):
    model, tokenizer = text_to_text.model(family), text_to_text.tokenizer(family)
    starts = tokenizer.convert_tokens_to_ids(STARTS[family])
    first = [] if family == "t5" else [tokenizer.cls_token_id]

    def wanted(before, text):
        prefix, tokens = (
            tokenizer(part, add_special_tokens=False)["input_ids"]
            for part in (before, f" {text}" if before else text)
        )
        decoder = [[*starts, *tokens[:-1]]] * len(tokens)
        source = [[*first, *prefix, starts[1], tokenizer.eos_token_id]] * len(tokens)
        places = list(range(1, len(tokens) + 1))
        return likelihood(model, places, tokens, input_ids=source, decoder_input_ids=decoder)

    check_scores(model, tokenizer, "enc_dec_prefix", wanted)


def test_the_likelier_text_is_the_answer_and_of_equal_ones_the_wrong_one():
    model, tokenizer = encoders.model("bert"), encoders.tokenizer("bert")
    low, high = sorted(small.TEXTS[:2], key=lambda text: score_of(model, tokenizer, text))
    rows = [(low, high), (high, low), (low, f"{low} "), (f"{low} ", low)]
    examples = [
        Example(str(n), "", "", (rows[n % 3][0],), choices=row) for n, row in enumerate(rows)
    ]
    params = AnswerParams(keep="start", head="pairs", choose="pll")
    found = pair_scores.answer(model, tokenizer, examples, params, PAIR_SPEC)
    assert found == [high, high, f"{low} ", f"{low} "]


def score_of(model, tokenizer, text):
    return pair_scores.scores(model, tokenizer, [("", text)], "pll", PAIR_SPEC)[0]


def test_texts_that_cannot_be_scored_raise_one_line():
    model, tokenizer = encoders.model("bert"), encoders.tokenizer("bert")
    spec = Training(max_source=8, micro_tokens=64)
    with pytest.raises(DataError, match=r"the text 'Boats .*' has 9 tokens, and the model reads 8"):
        pair_scores.scores(model, tokenizer, [("", "Boats " * 7)], "pll", spec)
    with pytest.raises(DataError, match="has no token that could be scored: leave it out"):
        pair_scores.scores(model, tokenizer, [("", "\u200b")], "pll", spec)
    with pytest.raises(DataError, match="has no token that could be scored: leave it out"):
        pair_scores.scores(model, tokenizer, [("Boats", "\u200b")], "pll", spec)
    next(model.parameters()).data[:] = torch.nan
    with pytest.raises(StageError, match="its weights may be damaged"):
        pair_scores.scores(model, tokenizer, [("", "Boats.")], "pll", spec)


def test_an_encoder_without_its_head_raises_one_line(tmp_path):
    encoders.model("bert").base_model.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"no head for .*: set model.head: own"):
        pair_scores.load(tmp_path)


PAPER = sorted((Path(__file__).parents[2] / "experiments" / "paper").glob("*.yaml"))
NINE = (
    *("triviaqa", "nq", "webquestions", "zsre", "wow"),
    *("aidayago2", "ropes", "wiqa", "quartz"),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    write(make({"people": 24, "general_people": 6, "kinds": list(SUBJECT_KINDS)}), folder)
    return folder


@pytest.mark.parametrize("task", NINE)
def test_every_task_has_contexts_and_marks_the_answers_in_them(world, task):
    for split in contexts.SPLITS:
        rows, counts = contexts.find_contexts(TaskBlock(task, task), split, world / "tasks")
        assert counts["examples"] == len(rows) + counts["without_context"] > 0
        assert counts["without_answer"] == sum(not row["answers"] for row in rows)
        assert counts["answers"] == sum(len(row["answers"]) for row in rows)
        for row in rows:
            assert row["context"].strip()
            for start, end in row["answers"]:
                assert row["context"][start:end].strip()
                if task != "aidayago2":
                    found = row["context"][start:end].lower()
                    assert found in " | ".join(row["targets"]).lower()


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_contexts_of_the_papers_policies_hold_answers(world, path):
    source = world / "tasks" / "kilt_knowledgesource.json"
    files = [f"corpus.files=[{source}]"]
    if path.stem == "multiple-choice":
        files.append(f"policies.2.corpus.mix.other.files=[{source}]")
    if path.stem == "mae-lm":  # its epochs become steps in commands
        files.append("tasks=[cola]")
    made = load_experiment(path, [f"data={world / 'tasks'}", *files])
    for block in filter(learned_policies.is_learned, made.policies):
        first = learned_policies.start(block) or block
        for task in learned_policies.tasks(first, made.tasks, made.data):
            rows, _ = contexts.find_contexts(task, "train", world / "tasks")
            assert sum(bool(row["answers"]) for row in rows) >= 0.2 * len(rows), block.label


def test_without_dprs_file_the_best_passage_with_an_answer_is_retrieved(world, tmp_path):
    folder = shutil.copytree(world / "tasks", tmp_path / "tasks")
    for path in folder.glob("biencoder-*"):
        path.unlink()
    block = TaskBlock("nq", "nq")
    with pytest.raises(DataError, match="no train example of task 'nq' has a context: put"):
        contexts.find_contexts(block, "train", folder)
    texts = [row["text"] for row in rows_of(world / "intermediate.jsonl")]
    rows, counts = contexts.find_contexts(block, "train", folder, texts)
    assert counts["retrieved"] == len(rows) > 0
    assert counts["without_answer"] == 0
    assert {row["context"] for row in rows} <= set(texts)


def test_a_passage_that_shares_no_word_with_the_question_is_not_retrieved(tmp_path):
    rows = [{"question": f"who met anna {n}", "answer": ["Ulm"]} for n in range(20)]
    write_rows(tmp_path / "NQ-open.train.jsonl", *rows)
    texts = ["Ulm is a town.", "Anna lives there.", "Ulm is where Anna lives."]
    found, counts = contexts.find_contexts(TaskBlock("nq", "nq"), "train", tmp_path, texts)
    assert {row["context"] for row in found} == {texts[2]}
    assert counts["retrieved"] == len(found) == counts["examples"]
    with pytest.raises(DataError, match="has a context"):
        contexts.find_contexts(TaskBlock("nq", "nq"), "train", tmp_path, texts[:2])


def test_an_empty_context_and_one_without_the_answer_are_counted(tmp_path):
    choices = [{"label": label, "text": text} for label, text in (("A", "Ulm"), ("B", "Rome"))]
    question = {"stem": "Where?", "choices": choices}
    for split in contexts.SPLITS:
        rows = [
            {"id": f"{number}", "para": text, "question": question, "answerKey": "A"}
            for number, text in enumerate(["Ulm, in the Ulm area.", " ", "Bonn.", "ulm!"] * 2)
        ]
        write_rows(tmp_path / f"{split}.jsonl", *rows)
    found = [
        contexts.find_contexts(TaskBlock("quartz", "it"), side, tmp_path)
        for side in contexts.SPLITS
    ]
    total = {name: sum(counts[name] for _, counts in found) for name in found[0][1]}
    assert total["examples"] == 16
    assert total["without_context"] == 4
    assert total["without_answer"] == 4
    assert total["answers"] == 12


@pytest.mark.parametrize(("language", "answer"), [("en", "他在巴黎出生"), ("zh", "巴黎")])
def test_an_answer_is_of_whole_words_of_the_language(tmp_path, language, answer):
    row = {"id": "a", "group": "a", "source": "?", "targets": ["巴黎"], "context": "他在巴黎出生"}
    for split in contexts.SPLITS:
        write_rows(tmp_path / f"{split}.jsonl", {**row, "answers": [[2, 4]]})
    write_rows(tmp_path / contexts.COUNTS, {"task": "nq", "counts": {}})
    loaded = contexts.load_contexts(tmp_path, small.tokenizer(), language=language)
    (one,) = loaded.train
    assert one.passage.texts(one.answers) == [answer]


def test_an_alias_inside_a_longer_one_is_no_answer_of_its_own(tmp_path):
    answers = ["Burmley", "Burmley College", "the College"]
    rows = [{"question": f"who met anna {n}", "answer": answers} for n in range(9)]
    write_rows(tmp_path / "NQ-open.train.jsonl", *rows)
    text = "Anna saw Burmley College, and Burmley."
    found, _ = contexts.find_contexts(TaskBlock("nq", "nq"), "train", tmp_path, [text, "Anna."])
    spans = [text[start:end] for start, end in found[0]["answers"]]
    assert spans == ["Burmley College", "Burmley"]


@pytest.mark.parametrize("task", ["ropes", "wiqa", "quartz"])
def test_real_rows_have_contexts(real_data, task):
    rows, counts = contexts.find_contexts(TaskBlock(task, task), "train", real_data)
    assert len(rows) == counts["examples"] - counts["without_context"] > 0
    if task == "ropes":  # the answers of the others are choices, mostly not in them
        assert counts["answers"] >= len(rows) - counts["without_answer"] > 0


def test_a_blank_ends_a_word_also_where_the_tokenizer_does_not_split_at_blanks():
    tokenizer, texts = text_to_text.tokenizer("t5gemma"), [("The little", "birds go.")]  # mmBERT's
    model = encoders.model("bert", vocab_size=len(tokenizer))
    asked = pair_scores._Texts(model, tokenizer, texts, PAIR_SPEC).masked("within_word_l2r")
    left = {tokenizer.decode(ids, skip_special_tokens=True) for b, *_ in asked for ids in b.source}
    assert {"The little go.", "The little birds"} <= left


READS = """
from maskpolicy import Example, task

@task("reads", group="own", metric="f1", files={"train": "a.jsonl", "dev": "b.jsonl"})
class Reads:
    def example(self, row):
        return Example("", row["q"], row["q"], ("Ulm",))

    def reading(self, row):
        return "Anna is from Ulm.", "Ulm"
"""


def test_an_answer_to_read_is_in_a_tuple_because_its_letters_would_be_answers(tmp_path):
    (tmp_path / "reads.py").write_text(READS)
    discovery.load_file(tmp_path / "reads.py")
    write_rows(tmp_path / "a.jsonl", *({"q": f"where {n}"} for n in range(9)))
    with pytest.raises(DataError, match=r"a\.jsonl, line \d: reading: give 'Ulm' in a tuple"):
        contexts.find_contexts(TaskBlock("reads", "reads"), "train", tmp_path)


def test_one_blank_is_between_a_prefix_and_its_text():
    model, tokenizer = encoders.model("roberta"), encoders.tokenizer("roberta")
    texts = [(before, small.TEXTS[6]) for before in ("Boats.", "Boats. ", "Boats.\n")]
    found = pair_scores.scores(model, tokenizer, texts, "pll", PAIR_SPEC)
    assert found == pytest.approx(found[:1].repeat(3), abs=1e-4)
