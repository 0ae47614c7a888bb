"""A small slice of BabyLM's corpus and of its evaluation data, in their formats."""

from pathlib import Path

from official import write

PARADIGMS = ("wh_island", "transitive")
SPEECH = "*MOT:\twhere did {0} go ?\n*CHI:\t{0} went to the {1} .\n"
NAMES, PLACES = ("Ada", "Bob", "Eve", "Max"), ("mill", "river", "town", "bridge")
PAIRS = [
    (f"{name} is in the {place}.", f"{name} are in the {place}.")
    for name in NAMES
    for place in PLACES
]
EQUAL = "Ada saw it."  # both sides of a pair, as seven official rows have
GLUE = {  # task -> the texts of a row
    "boolq": ("question", "passage"),
    "mnli": ("premise", "hypothesis"),
    "mrpc": ("sentence1", "sentence2"),
    "multirc": ("paragraph", "question", "answer"),
    "qqp": ("question1", "question2"),
    "rte": ("sentence1", "sentence2"),
    "wsc": ("text", "span1_text", "span2_text"),
}


def slice_into(folder: Path) -> Path:
    """Write train_10M/ and evaluation_data/ to a folder, and return it."""
    texts = [SPEECH.format(name, place) for name in NAMES for place in PLACES]
    for name in ("childes", "bnc_spoken"):
        write(folder / "train_10M" / f"{name}.train", *texts)
    for which, ending in (("fast", "fast"), ("full", "filtered")):
        home = folder / "evaluation_data" / f"{which}_eval"
        for place, paradigm in enumerate(PARADIGMS):
            rows = [blimp(paradigm, *pair) for pair in PAIRS[place::4]]
            rows.insert(1 + place, blimp(paradigm, EQUAL, EQUAL))
            write(home / f"blimp_{ending}" / f"{paradigm}.jsonl", *rows)
        rows = [{"sentence_good": good, "sentence_bad": bad} for good, bad in PAIRS[2::4]]
        write(home / f"supplement_{ending}" / "hypernym.jsonl", *rows)
        write(home / f"ewok_{ending}" / "spatial-relations.jsonl", *map(ewok, PLACES))
    for task, keys in GLUE.items():
        for number, part in enumerate(("train", "valid")):
            rows = [glue(task, keys, number + 2 * row) for row in range(8)]
            write(folder / f"evaluation_data/full_eval/glue_filtered/{task}.{part}.jsonl", *rows)
    return folder


def blimp(paradigm: str, good: str, bad: str) -> dict[str, str]:
    about = {"field": "syntax", "linguistics_term": "agreement", "UID": paradigm}
    return {"sentence_good": good, "sentence_bad": bad, **about}


def ewok(place: str) -> dict[str, str]:
    about = {"Domain": "spatial-relations", "ContextType": "direct"}
    return {
        **about,
        **{"ContextDiff": "antonym", "TargetDiff": "concept swap"},
        "Context1": f"Ada is in the {place}.",
        "Context2": f"Ada is not in the {place}.",
        "Target1": f"The {place} has Ada in it.",
        "Target2": f"The {place} is without Ada.",
    }


def glue(task: str, keys: tuple[str, ...], number: int) -> dict[str, object]:
    name, place = NAMES[number % 4], PLACES[number // 4 % 4]
    texts = [f"{name} went to the {place} {task} {number}, said {key}." for key in keys]
    about = {"idx": number, "label": number // 2 % (3 if task == "mnli" else 2)}
    if task == "wsc":
        texts = [texts[0], name, place]
        about |= {"span1_index": 0, "span2_index": 4}
    return {**dict(zip(keys, texts, strict=True)), **about}
