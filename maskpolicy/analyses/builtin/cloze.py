"""Cloze accuracy on values of the embedded world, with the right and with a wrong name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maskpolicy import ConfigError, Findings, Json, Run, Store, analysis
from maskpolicy.analyses import IntermediateStage, derive
from maskpolicy.analyses.masked_sample import rows_of_stages
from maskpolicy.analyses.plots import Bars, Series
from maskpolicy.experiment.definition import ENCODER
from maskpolicy.experiment.world_settings import Settings
from maskpolicy.pipeline.graph.nodes import params_of
from maskpolicy.pipeline.stages.cloze_answers import ClozeParams, read
from maskpolicy.pipeline.store.artifacts import available

COLUMNS = ("policy", "stage", "kind", "values", "right name", "wrong name", "most frequent")


@analysis("cloze", heading="Masked facts that the model fills in", place=70)
@dataclass(frozen=True)
class Cloze:
    """Share of masked values filled in correctly, with the subject's name and with another's.

    In percent, for each kind of subject of the embedded world. The values are those that questions
    ask for, each masked alone in its entry. "wrong name" replaces the name by that of another
    subject of the same kind and still expects the original value. "most frequent" always guesses
    the relation's most frequent value.
    """

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Evaluate the model of every intermediate stage."""
        rows, notes = rows_of_stages(runs, store, _rows)
        names = [f"{row['policy']}, {row['kind']}" for row in rows]
        panel = Bars(
            "",
            "masked values filled in correctly (%)",
            names,
            [
                Series("right name", [row["right name"] for row in rows], color=0),
                Series("wrong name", [row["wrong name"] for row in rows], color=6),
            ],
        )
        return Findings(COLUMNS, tuple(rows), tuple(notes), (panel,), partial=bool(notes))


def _rows(each: IntermediateStage, store: Store) -> list[Json]:
    """Return a row for each kind of subject, for one intermediate stage."""
    from maskpolicy.data.world.unasked_texts import blanks, majority

    if each.params.kind == ENCODER:
        raise ConfigError("cloze: needs text-to-text models, and those of this run are encoders")
    settings = _world(each, store)
    inputs = {"model": each.key, "tokenizer": each.inputs["tokenizer"]}
    params = ClozeParams(world=settings, how=each.params.how)
    answers = read(derive(store, "cloze", each.label, params, inputs).path)
    known = list(blanks(settings))
    rows = []
    for kind in dict.fromkeys(answer["kind"] for answer in answers):
        of_kind = [answer for answer in answers if answer["kind"] == kind]
        rows.append(
            {
                "policy": each.label,
                "stage": each.number,
                "kind": kind,
                "values": len(of_kind),
                "right name": 100 * sum(answer["own"] for answer in of_kind) / len(of_kind),
                "wrong name": 100 * sum(answer["other"] for answer in of_kind) / len(of_kind),
                "most frequent": 100 * majority([b for b in known if b.kind == kind]),
            }
        )
    return rows


def _world(each: IntermediateStage, store: Store) -> Settings:
    """Return the settings of the world that a stage was trained on; raises ConfigError."""
    corpus = available(store, each.corpus, "its corpus")
    key = corpus.manifest["record"]["inputs"].get("world")
    if key is None:
        raise ConfigError("cloze: tests facts of the embedded world and needs corpus: world")
    return params_of(available(store, key, "its world").manifest["record"], Settings)
