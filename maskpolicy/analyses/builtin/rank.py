"""Effective rank of representations by layer, over pre-training loss and over fine-tuning."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from maskpolicy import (
    ConfigError,
    Count,
    Findings,
    Json,
    Passage,
    Result,
    Run,
    Seed,
    Share,
    Store,
    StoreError,
    analysis,
)
from maskpolicy.analyses import representations
from maskpolicy.analyses.cache import lacking
from maskpolicy.analyses.representations import KINDS, Ranks, figures, model_number
from maskpolicy.analyses.representations.figures import MeasuredModel
from maskpolicy.core.keys import canonical
from maskpolicy.data import world
from maskpolicy.data.corpus import documents
from maskpolicy.data.corpus.passages import Document, Passages, build_passages
from maskpolicy.experiment.definition import CorpusBlock
from maskpolicy.experiment.model_and_corpus import MIX
from maskpolicy.leaderboard.comparisons import baselines_of
from maskpolicy.leaderboard.results.cell import STEP
from maskpolicy.models.loading import load_tokenizer
from maskpolicy.models.training.specials import check_vocabulary
from maskpolicy.pipeline.stages.training_text import STEPS_FACT
from maskpolicy.plugins.registry import CORPUS

COLUMNS = (
    *("run", "model", "task", "finetune_steps", "loss", "tau", "centred", "layer"),
    *(*representations.SETS, "gap"),
)


@dataclass
class _Seen:
    """The models measured so far."""

    models: list[tuple[MeasuredModel, Ranks]] = field(default_factory=list)
    known: set[str] = field(default_factory=set)  # keys of models; runs may share them
    notes: list[str] = field(default_factory=list)
    lacks_tuned: bool = False  # whether a fine-tuned model was not kept


@analysis("rank", heading="Effective rank of the representations", place=120, version=8)
@dataclass(frozen=True)
class Rank:
    """Effective rank by layer, of token sets (Meng et al. 2024, figures 1a, 1b, 5a, 5b).

    The rank is the smallest number of singular values whose squares have a share `tau` of the sum
    of all squares, for uncentred states and for centred ones (less the mean of the set). Sets:
    `<mask>`; real tokens with masks present, without masks, and both; all tokens of the masked
    input, and of the unmasked input, whose difference is `gap`. Passages come from each row's
    corpus (the first ones, before texts that are mixed into it), from `text`, or from the embedded
    world. A folder with an encoder or a BART model can stand in for a run. Figure 5b needs
    fine-tuned models (`keep_models: [finetune]`) and one run for each point. Checkpoints
    (`checkpoint_steps`) give ranks over the loss, to compare models of different loss; `loss` is
    the mean over the last steps of their pre-training. `over_runs=true` gives a table of means over
    intermediate runs: the ranks by layer, how far the rank of `<mask>` rises from the first layer
    to the last, and how the gap differs from that of the baseline's model with the nearest loss.
    The last two are tested over runs.
    """

    takes_models: ClassVar[bool] = True
    text: tuple[str, ...] = ()  # files in the formats of a corpus, instead of a run's corpus
    passages: Count = 256
    words: Count = 100  # in a passage of `text`
    tau: tuple[Share, ...] = (0.9, 0.99)  # a table row and a figure 5a for each
    share: Share = 0.15  # of the tokens, masked one by one
    seed: Seed = 0
    over_runs: bool = False  # a table of means and tests over intermediate runs

    def __post_init__(self) -> None:
        """Raise ConfigError for an empty list of thresholds."""
        if not self.tau:
            raise ConfigError("tau: is empty: name at least one threshold")

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Measure every row's checkpoints, pre-trained model, and kept fine-tuned models."""
        seen = _Seen()
        for run in runs:
            if run.results:
                self._of_run(run, store, seen)
            else:
                bare = MeasuredModel(run.name, run.name, str(run.folder), run.name)
                self._add(bare, run.folder, run.folder, None, seen)
        values = figures.values(seen.models, self.tau, baselines_of(runs))
        rows = [row for each in seen.models for row in _rows(*each, self.tau)]
        has_folders = any(not run.results for run in runs)
        return Findings.of_runs(
            {model.run for model, _ in seen.models},
            figures.COLUMNS if self.over_runs else COLUMNS,
            figures.table(values) if self.over_runs else rows,
            (*seen.notes, *_thin(seen)),
            figures.panels(seen.models, self.tau) if seen.models else (),
            partial=has_folders or seen.lacks_tuned or bool(seen.notes or self.text),
            values=values,
        )

    def _of_run(self, run: Run, store: Store, seen: _Seen) -> None:
        """Measure the models of one run that have not been measured yet."""
        places = {label: place for place, label in enumerate(run.policies)}
        results = (*run.results, *run.early)
        models = {(one.policy, model_number(one)) for one in results}
        count = Counter(policy for policy, _ in models)
        if len({_text(result) for result in results} - {""}) > 1 and not self.text:
            seen.notes.append(
                f"{run.name}: rows read different corpora, and each is measured on its own: set "
                "text='[FILE]' to measure all on the same text"
            )
        lines: dict[str, str] = {}  # the model at the end of each row's pre-training
        for result in sorted(results, key=lambda one: places.get(one.policy, len(places))):
            base = next(filter(None, map(result.stage_key, KINDS)), None)
            what, number = model_number(result)  # in the label if the row has several
            row = result.policy
            label = f"{row}, {what} {number}" if number or count[row] > 1 else row
            model = MeasuredModel(
                run.name,
                label,
                lines.setdefault(label, base or label),
                row,
                kept_at=result.config.get(STEP, 0),
                loss=_fact(store, base, "loss"),
                stage=number,
            )
            tuned_key = result.stage_key("finetune")
            steps = _fact(store, tuned_key, STEPS_FACT) or result.config["finetune"]["steps"]
            wanted = {base: model, tuned_key: replace(model, task=result.task, steps=steps)}
            for key, model in wanted.items():
                if key is None or key in seen.known:
                    continue
                seen.known.add(key)
                try:
                    keys = (key, result.stage_key("tokenizer"))
                    folder, tokenizer = (_path(store, each, result) for each in keys)
                    self._add(model, folder, tokenizer, _corpus(store, result, run.results), seen)
                except StoreError as error:
                    if model.task:  # fine-tuned models are only kept on request
                        seen.lacks_tuned = True
                    else:
                        seen.notes.append(f"{model.name}: {error}")

    def _add(
        self, model: MeasuredModel, folder: Path, tokenizer: Path, corpus: Path | None, seen: _Seen
    ) -> None:
        """Measure the model in a folder."""
        vocabulary = load_tokenizer(str(tokenizer.absolute()))
        passages = self._passages(vocabulary, corpus)
        encoder = representations.load_encoder(folder.absolute())
        check_vocabulary(vocabulary, encoder, f"model {folder}")
        ranks = representations.measure(
            encoder, vocabulary, passages, share=self.share, seed=self.seed
        )
        seen.models.append((model, ranks))

    def _passages(self, tokenizer: Any, corpus: Path | None) -> Sequence[Passage]:
        """Return the first passages of the corpus or text, tokenised."""
        if corpus is not None and not self.text:
            passages = Passages.open(corpus)
        else:
            passages = build_passages(self._documents(), tokenizer, self.words, self.passages)
        return [passages[i] for i in range(min(len(passages), self.passages))]

    def _documents(self) -> Iterator[Document]:
        """Return the documents of files in any format of a corpus, or the world's first ones."""
        if self.text:
            corpus = CorpusBlock(files=self.text)
            source = documents.identify(corpus, str)  # nothing is stored, so no digest is needed
            return documents.read(source, {}, corpus)
        with tempfile.TemporaryDirectory() as folder:
            world.write(world.Settings(evidence=False), Path(folder))
            entries = list(documents.world(Path(folder) / "intermediate.jsonl"))
        return (Document(one.id, one.text) for one in entries[: self.passages])


def _fact(store: Store, key: str | None, name: str) -> Json:
    """Return a fact of a model's training; None if it is unknown or there was no step."""
    manifest = store.peek(key) if key else None
    return None if manifest is None else manifest["record"]["facts"].get(name) or None


def _path(store: Store, key: str | None, result: Result) -> Path:
    artifact = store.get(key) if key else None
    if artifact is None:
        if result.error is not None:
            raise StoreError(f"its training did not finish: {result.error}")
        raise StoreError(lacking(store, "its model"))
    return artifact.path


def _corpus(store: Store, result: Result, results: Sequence[Result]) -> Path:
    """Return the folder of the passages of a row's intermediate stage.

    For a row without this stage, the corpus that the experiment file sets for all rows.
    """
    usual = sorted(results, key=lambda one: CORPUS in one.config.get("trainings", {}))
    keys = (one.corpus_key for one in (result, *usual))
    key = next(filter(None, keys), None) or result.stage_key("corpus")
    artifact = store.get(key) if key else None
    if artifact is None:
        raise StoreError(f"its corpus is not in the store {store.place}: set text='[FILE]'")
    return artifact.path


def _text(result: Result) -> str:
    """Return the corpus of a result's row without what is mixed into it; "" if it has none."""
    corpus = result.config.get("corpus", {})
    return canonical({**corpus, MIX: None}) if corpus else ""


def _rows(model: MeasuredModel, found: Ranks, taus: Sequence[float]) -> list[Json]:
    head: dict[str, Json] = {"run": model.run, "model": model.name, "task": model.task or None}
    head |= {"finetune_steps": model.steps, "loss": model.loss}
    return [
        {**head, "tau": tau, "centred": centred, "layer": number, **layer}
        for tau in taus
        for centred in (False, True)
        for number, layer in enumerate(found.layers(tau, centred))
    ]


def _thin(seen: _Seen) -> list[str]:
    """Return a note for each set with too few tokens; a rank cannot exceed their number."""
    thin = {
        f"{model.name}: only {found.tokens[name]} tokens in the set {name} for {found.width} "
        "dimensions: raise passages"
        for model, found in seen.models
        for name in representations.SETS
        if found.tokens[name] < 4 * found.width
    }
    return sorted(thin)
