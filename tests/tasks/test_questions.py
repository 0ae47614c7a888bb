"""triviaqa, nq and webquestions over rows in their official formats, the Hub's, the real files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from official import block, carved, files, groups, read, rows_of, split, write

from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.data.taskfiles import sources

NQ = {"question": "where is the  minster", "answer": ["Ulm", " Ulm, Germany"], "extra": 1}
KILT = {
    "id": "-7",
    "input": "where is the minster",
    "output": [
        {"answer": "Ulm", "provenance": [{"wikipedia_id": "7", "start_paragraph_id": 1}]},
        {"provenance": [{"wikipedia_id": "9", "meta": {"annotation_id": 13591449469826568799}}]},
    ],
}
TRAIN, TEST = "webquestions.examples.train.json", "webquestions.examples.test.json"


def question(number, value="Ulm", **more):
    return {
        "Question": f"Where was person {number} born?",
        "QuestionId": f"tc_{number}",
        "QuestionSource": "http://example.org/",
        "EntityPages": [],
        "Answer": {"Value": value, "Aliases": [], "NormalizedAliases": [], "Type": "FreeForm"},
        **more,
    }


def trivia(path, *rows):
    return write(path, {"Data": rows, "Version": 1.0})


def evidence(root, name, text):
    write(root / "evidence" / name, text)


def asked(number, *answers, url=None):
    listed = " ".join(f'(description "{answer}")' for answer in answers)
    return {
        "url": url or f"http://www.freebase.com/view/en/town_{number}",
        "targetValue": f"(list {listed})",
        "utterance": f"where is town {number}?",
    }


def test_answers_of_triviaqa_are_value_then_aliases_each_once(tmp_path):
    answer = {"Value": " Ulm", "Aliases": ["Ulm ", "City of Ulm", "", "Ulm, Germany"]}
    unlabelled = {key: value for key, value in question(2).items() if key != "Answer"}
    trivia(tmp_path / "qa" / "web-dev.json", question(1, Answer=answer), unlabelled)
    found = split("triviaqa", tmp_path)
    (example,) = found.examples
    assert example.targets == ("Ulm", "City of Ulm", "Ulm, Germany") and found.unlabelled == 1
    assert (example.id, example.source) == ("tc_1", "Where was person 1 born?")
    assert example.context is None


def test_unfiltered_is_preferred_and_an_edition_can_be_chosen(tmp_path):
    trivia(tmp_path / "triviaqa-unfiltered" / "unfiltered-web-dev.json", question(1))
    trivia(tmp_path / "qa" / "web-dev.json", question(2))
    trivia(tmp_path / "qa" / "web-train.json", question(3), question(4))
    found = [read("triviaqa", tmp_path, fields=f) for f in ({}, {"edition": "web"})]
    assert [one.id for (one,) in found] == ["tc_1", "tc_2"]
    with pytest.raises(DataError, match=r"has no unfiltered-web-train\.json"):
        read("triviaqa", tmp_path, "train")
    with pytest.raises(ConfigError, match="did you mean 'web'"):
        read("triviaqa", tmp_path, fields={"edition": "webb"})


def test_the_context_is_of_the_first_document_by_rank_that_holds_an_answer(tmp_path):
    pages = [{"Filename": "Gone.txt", "Title": "Gone"}, {"Filename": "Ohm.txt", "Title": "Ohm"}]
    ranked = [{"Filename": "2/2_9.txt", "Rank": 9}, {"Filename": "1/1_3.txt", "Rank": 3}]
    row = question(1, EntityPages=pages, SearchResults=ranked)
    trivia(tmp_path / "qa" / "web-dev.json", row)
    evidence(tmp_path, "wikipedia/Ohm.txt", "Born in Erlangen.")
    evidence(tmp_path, "web/2/2_9.txt", "He was born in Ulm. Rank nine.")
    evidence(tmp_path, "web/1/1_3.txt", "Ulm's son, rank three.")
    for folder in (tmp_path, tmp_path / "qa"):
        assert read("triviaqa", folder)[0].context == "Ulm's son, rank three."
    assert files("triviaqa", tmp_path) == ["web-dev.json", "Ohm.txt", "1_3.txt", "2_9.txt"]
    bare = {"fields": {"documents": False}}
    assert read("triviaqa", tmp_path, **bare)[0].context is None
    assert files("triviaqa", tmp_path, **bare) == ["web-dev.json"]


def test_questions_on_one_page_belong_together(tmp_path):
    rows = [question(n, EntityPages=[{"Filename": f"Town_{n % 2}.txt"}]) for n in range(4)]
    trivia(tmp_path / "web-dev.json", *rows, question(4))
    pages = ["Town_0.txt", "Town_1.txt"]
    assert groups("triviaqa", tmp_path) == [*pages, *pages, "where was person 4 born?"]


@pytest.mark.parametrize("key", ["EntityPages", "SearchResults"])
@pytest.mark.parametrize(
    ("name", "link"),
    [
        *(("../../../secret.txt", ""), ("a/../../../secret.txt", ""), ("..", "")),
        *(("Own.txt", "{key}/Own.txt"), ("Own.txt", "{key}")),
    ],
)
def test_a_document_outside_the_evidence_folder_is_an_error(tmp_path, key, name, link):
    (tmp_path / "secret.txt").write_text("The secret of Ulm.")
    folder = {"EntityPages": "wikipedia", "SearchResults": "web"}[key]
    write(tmp_path / "outside" / folder / "Own.txt", "The secret of Ulm.")
    if link:
        at = tmp_path / "qa" / "evidence" / link.format(key=folder)
        at.parent.mkdir(parents=True)
        at.symlink_to(tmp_path / "outside" / link.format(key=folder))
    else:
        evidence(tmp_path / "qa", f"{folder}/Ohm.txt", "Erlangen")
    row = question(1, **{key: [{"Filename": name, "Rank": 1}]})
    trivia(tmp_path / "qa" / "web-dev.json", question(0), row)
    with pytest.raises(DataError, match=r"Data\[1\]: key 'Filename': .* leads out of the evidence"):
        read("triviaqa", tmp_path)
    found = split("triviaqa", tmp_path, on_error="skip")
    assert [one.id for one in found.examples] == ["tc_0"] and found.malformed == 1
    assert files("triviaqa", tmp_path) == ["web-dev.json"]


def test_rows_of_nq_open_and_their_groups(tmp_path):
    write(tmp_path / "nq_open" / "NQ-open.dev.jsonl", NQ, {"question": "unlabelled"})
    found = split("nq", tmp_path)
    (example,) = found.examples
    assert (example.id, example.source) == ("dev-1", "where is the  minster")
    assert (example.targets, found.unlabelled) == (("Ulm", "Ulm, Germany"), 1)
    rows = [{"question": f"Question {n}", "answer": ["Ulm"], "subject": "Ulm"} for n in range(2)]
    write(tmp_path / "NQ-open.dev.jsonl", *rows, NQ)
    assert groups("nq", tmp_path) == ["Ulm", "Ulm", "where is the minster"]
    rows = [{"question": f"question {n // 2}", "answer": ["Ulm"]} for n in range(80)]
    write(tmp_path / "NQ-open.train.jsonl", *rows)
    train, dev = carved("nq", tmp_path)
    assert not {e.source for e in train} & {e.source for e in dev}


def test_editions_of_nq(tmp_path):
    write(tmp_path / "NQ-open.dev.jsonl", NQ)
    write(tmp_path / "kilt" / "nq-dev-kilt.jsonl", KILT)
    rated = {"def_correct_predictions": ["In Ulm"], "answer_and_def_correct_predictions": ["Ulm"]}
    efficient = {**NQ, "question": "efficient", **rated}
    write(tmp_path / "NQ-open.efficientqa.test.1.1.jsonl", efficient)
    found = {
        edition: read("nq", tmp_path, fields={"edition": edition})[0]
        for edition in ("auto", "open", "kilt", "efficientqa")
    }
    assert found["auto"] == found["open"]
    assert (found["kilt"].id, found["kilt"].targets) == ("-7", ("Ulm",))
    assert (found["efficientqa"].source, found["efficientqa"].id) == ("efficient", "test-1")
    assert found["efficientqa"].targets == ("Ulm", "Ulm, Germany")


def test_efficientqa_has_an_official_dev_and_all_of_nq_opens_train(tmp_path):
    rows = [{"question": f"question {n}", "answer": ["Ulm"]} for n in range(30)]
    write(tmp_path / "NQ-open.train.jsonl", *rows)
    for part in ("dev", "test"):
        path = tmp_path / f"NQ-open.efficientqa.{part}.1.1.jsonl"
        write(path, {"question": f"of {part}", "answer": ["Ulm"]})
    own = {"fields": {"edition": "efficientqa"}}
    for how in (own, {}):  # also if the folder holds no other edition's own file
        found = [[e.source for e in read("nq", tmp_path, part, **how)] for part in sources.SPLITS]
        assert (len(found[0]), *found[1:]) == (30, ["of dev"], ["of test"])
    path.unlink()
    with pytest.raises(DataError, match=r"has no NQ-open.efficientqa.test.1.1.jsonl"):
        read("nq", tmp_path, **own)


def test_a_file_that_editions_share_does_not_mix_them(tmp_path):
    rows = [{"question": f"question {n}", "answer": ["Ulm"]} for n in range(30)]
    write(tmp_path / "NQ-open.train.jsonl", *rows)
    assert len(read("nq", tmp_path, "train")) < 30
    write(tmp_path / "nq-dev-kilt.jsonl", KILT)
    with pytest.raises(DataError, match=r"has no nq-train-kilt.jsonl"):
        read("nq", tmp_path, "train")
    write(tmp_path / "nq-train-kilt.jsonl", *({**KILT, "id": f"{n}"} for n in range(2)))
    found = [[one.id for one in read("nq", tmp_path, part)] for part in ("train", "test")]
    assert found == [["0", "1"], ["-7"]]


def test_contexts_from_kilt_and_from_dpr(tmp_path):
    write(tmp_path / "nq-dev-kilt.jsonl", KILT, {**KILT, "id": "-8", "output": [{"answer": "Ulm"}]})
    page = {"wikipedia_id": "7", "text": ["Ulm\n", "The minster is in Ulm.\n"]}
    write(tmp_path / "kilt_knowledgesource.json", page)
    item = {"question": KILT["input"], "positive_ctxs": [{"title": "U", "text": "Ulm has it."}]}
    write(tmp_path / "biencoder-nq-dev.json", [item])
    found = [example.context for example in read("nq", tmp_path)]
    assert found == ["The minster is in Ulm.", "Ulm has it."]
    assert len(files("nq", tmp_path)) == 3
    write(tmp_path / "NQ-open.dev.jsonl", NQ)
    assert read("nq", tmp_path)[0].context == "Ulm has it."
    assert len(files("nq", tmp_path)) == 2


def values(expression):
    row = {"utterance": "q?", "targetValue": expression}
    return list(sources.task(block("webquestions")).plugin.example(row).targets)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("(list (description Ulm))", ["Ulm"]),
        ('(list (description "Ulm Minster") (description Ulm))', ["Ulm Minster", "Ulm"]),
        ('(list (description "Evita (1979 cast)"))', ["Evita (1979 cast)"]),
        ('(list (description "Mix ("One"): Two") (description B))', ['Mix ("One"): Two', "B"]),
        ('(list (description A) (description ""C" is a note"))', ["A", '"C" is a note']),
        ('(list (description ""All of it is quoted.""))', ['"All of it is quoted."']),
        ('(list (description "ends with (one)"))', ["ends with (one)"]),
        ("(list (description /m/0dm9yv1) (description 5.5))", ["/m/0dm9yv1", "5.5"]),
    ],
)
def test_values_of_an_s_expression(expression, expected):
    assert values(expression) == expected


WORDS = st.text('ab ()".,:', min_size=1, max_size=9)


@given(st.lists(WORDS.filter(lambda word: not word.endswith('"')), min_size=1, max_size=5))
def test_any_quoted_values_come_back(words):
    listed = " ".join(f'(description "{word}")' for word in words)
    assert values(f"(list {listed})") == words


def test_webquestions(tmp_path):
    rows = [asked(n, "Ulm", url=f"http://www.freebase.com/view/en/e{n // 3}") for n in range(90)]
    write(tmp_path / TRAIN, rows)
    assert sum(map(len, carved("webquestions", tmp_path))) == 90
    write(tmp_path / TEST, [asked(0, "Ulm", "Neu-Ulm"), asked(1, "Bonn")])
    passages = [{"title": "A", "text": "No answer."}, {"title": "B", "text": "It is in Ulm. "}]
    item = {"question": "Where is  town 0", "answers": ["Ulm"], "positive_ctxs": passages}
    write(tmp_path / "biencoder-webquestions-test.json", [item])
    first, second = read("webquestions", tmp_path)
    assert (first.id, first.source) == ("test-0", "where is town 0?")
    assert (first.targets, first.context) == (("Ulm", "Neu-Ulm"), "It is in Ulm.")
    assert second.context is None
    assert files("webquestions", tmp_path) == [TEST, "biencoder-webquestions-test.json"]


def test_the_hubs_columns_give_the_same_examples():
    row = {
        "question": "Where was person 1 born?",
        "question_id": "tc_1",
        "entity_pages": {"filename": ["Ohm.txt"], "wiki_context": ["Ohm was born in Ulm."]},
        "search_results": {"filename": [], "rank": [], "search_context": []},
        "answer": {"value": "Ulm", "aliases": ["City of Ulm"], "type": "FreeForm"},
    }
    plugin = sources.task(block("triviaqa")).plugin
    example = plugin.example(row)
    assert example.targets == ("Ulm", "City of Ulm")
    assert plugin.evidence([row], (), "train")(row, example) == "Ohm was born in Ulm."
    assert plugin.example({**row, "answer": {"value": "<unk>", "aliases": []}}) is None
    row = {"url": "http://x", "question": "where is town 0?", "answers": ["Ulm", "Neu-Ulm"]}
    plugin = sources.task(block("webquestions")).plugin
    assert plugin.example(row).targets == ("Ulm", "Neu-Ulm")
    assert plugin.example({**row, "answers": []}) is None


BARE_WIKIPEDIA = {"edition": "wikipedia", "documents": False}


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("triviaqa", {}, "mandarjoshi/trivia_qa: unfiltered"),
        ("triviaqa", BARE_WIKIPEDIA, "mandarjoshi/trivia_qa: rc.wikipedia.nocontext"),
        ("nq", {}, "google-research-datasets/nq_open: "),
        ("nq", {"edition": "kilt"}, "facebook/kilt_tasks: nq"),
        ("webquestions", {}, "stanfordnlp/web_questions: "),
    ],
)
def test_the_hubs_dataset_depends_on_the_tasks_fields(name, fields, expected):
    assert ": ".join(sources.hub_config(sources.task(block(name, fields)))) == expected


@pytest.mark.parametrize("edition", ["unfiltered-web", "web", "wikipedia"])
def test_the_real_files_of_triviaqa(real_data, edition):
    folder = real_data / "triviaqa"
    for part in ("train", "test"):
        for example in read("triviaqa", folder, part, fields={"edition": edition}):
            assert example.source.endswith("?") and example.targets
            assert len((example.context or "").split()) <= 100


def test_real_contexts_come_from_web_and_wikipedia(real_data):
    found = read("triviaqa", real_data / "triviaqa" / "qa", fields={"edition": "web"})
    contexts = {example.id: example.context for example in found}
    assert "David Seville" in contexts["tc_2"] and contexts["tc_33"] is None
    assert "Richard Marx" in contexts["tc_276"]


@pytest.mark.parametrize(
    ("edition", "name"), [("auto", "nq_open/NQ-open.dev"), ("kilt", "kilt/nq-dev-kilt")]
)
def test_every_real_row_of_nq(real_data, edition, name):
    rows = rows_of(real_data / f"{name}.jsonl")
    found = read("nq", real_data, fields={"edition": edition})
    for row, example in zip(rows, found, strict=True):
        answers = row.get("answer") or [o["answer"] for o in row["output"] if "answer" in o]
        assert example.targets == tuple(dict.fromkeys(answer.strip() for answer in answers))


@pytest.mark.parametrize(("name", "parts"), [(TRAIN, ("train", "dev")), (TEST, ("test",))])
def test_every_real_row_of_webquestions(real_data, name, parts):
    rows = rows_of(real_data / "webquestions" / name)
    found = [e for part in parts for e in read("webquestions", real_data, part)]
    by_question = {example.source: example for example in found}
    assert len(by_question) == len(rows) == len(found)
    for official in rows:
        targets = by_question[official["utterance"]].targets
        stated = official["targetValue"]
        shown = (f'"{t}"' if f'(description "{t}")' in stated else t for t in targets)
        assert stated == f"(list {' '.join(f'(description {part})' for part in shown)})"
    if name == TRAIN:
        first, books, third, fourth = (values(row["targetValue"]) for row in rows[-4:])
        assert len(books) == 10 and books[1:3] == ['"Hope" is the thing with feathers', "Success"]
        for (only,) in (first, third, fourth):
            assert only.count('"') == 2 and only.startswith('"') and only.endswith('."')
