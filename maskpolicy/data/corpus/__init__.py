"""Read a corpus, cut it into tokenised passages, and annotate them with columns.

Downstream tasks are in `taskfiles`.
"""

from typing import TYPE_CHECKING

from maskpolicy.core.lazy import offers

if TYPE_CHECKING:
    from maskpolicy.data.corpus.segmentation import content_word as content_word
    from maskpolicy.data.corpus.segmentation import content_words as content_words
    from maskpolicy.data.corpus.segmentation import ngrams as ngrams
    from maskpolicy.data.corpus.segmentation import spacy_version as spacy_version
    from maskpolicy.data.corpus.segmentation import stop_words as stop_words
    from maskpolicy.data.corpus.spacy_pipelines import TAGS as TAGS
    from maskpolicy.data.corpus.spacy_pipelines import Labelled as Labelled
    from maskpolicy.data.corpus.spacy_pipelines import entity_labels as entity_labels
    from maskpolicy.data.corpus.spacy_pipelines import find_entities as find_entities
    from maskpolicy.data.corpus.spacy_pipelines import find_phrases as find_phrases
    from maskpolicy.data.corpus.spacy_pipelines import pipeline_identity as pipeline_identity
    from maskpolicy.data.corpus.spacy_pipelines import tag_words as tag_words

__all__, __getattr__, __dir__ = offers(__name__)
