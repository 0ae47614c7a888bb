"""A small random model and a tokenizer of each family of encoders, made from its own classes."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import small
import text_to_text
import torch
import transformers
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoConfig, AutoModelForMaskedLM, BertTokenizer, MPNetTokenizer

from maskpolicy.models.scratch import train_tokenizer

WIDTH, HEADS, LONGEST = 16, 2, 66
_SHAPE = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": 32,
    "max_position_embeddings": LONGEST,
    "initializer_range": 0.3,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
_DEBERTA = {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}
_OWN: Mapping[str, dict[str, Any]] = {
    "albert": {"embedding_size": 8},
    "electra": {"embedding_size": 8},
    "deberta": {**_DEBERTA, "max_relative_positions": -1},
    "deberta-v2": {
        **_DEBERTA,
        "position_buckets": 4,
        "max_relative_positions": -1,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
    },
    "distilbert": {
        "dim": WIDTH,
        "n_layers": 2,
        "n_heads": HEADS,
        "hidden_dim": 32,
        "max_position_embeddings": LONGEST,
        "initializer_range": 0.3,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "modernbert": {
        **{key: value for key, value in _SHAPE.items() if not key.endswith("prob")},
        "num_hidden_layers": 3,
        "global_attn_every_n_layers": 3,
        "local_attention": 6,
    },
    "rembert": {"input_embedding_size": 8, "output_embedding_size": 12},
    "gte": {"head_dim": 8, "num_key_value_heads": HEADS},
    "eurobert": {"num_key_value_heads": HEADS},
}
FAMILIES = (
    *("bert", "electra", "albert", "distilbert", "mpnet", "deberta", "deberta-v2", "modernbert"),
    "roberta",
)
LIKE_THEM = (
    *("xlm-roberta", "camembert", "ernie", "rembert", "megatron-bert", "data2vec-text"),
    *("roberta-prelayernorm", "xlm-roberta-xl", "eurobert", "nomic_bert", "gte"),
)
"""Further families, whose rows say the same as those of one in FAMILIES."""
TOKENIZERS = (
    *("bert", "albert", "mpnet", "deberta-v2", "modernbert"),
    *("roberta", "xlm-roberta", "camembert"),
)
"""Families whose tokenizers differ; that of all others is BERT's."""
EVERY = (*FAMILIES, *LIKE_THEM)


def config(family: str, **settings: Any) -> Any:
    """Return the configuration of a small model with the family's tokenizer, see `tokenizer`."""
    made = tokenizer(family)
    replaces = family in ("distilbert", "modernbert")
    shape = _OWN[family] if replaces else {**_SHAPE, **_OWN.get(family, {})}
    ends = {"cls_token_id": made.cls_token_id, "sep_token_id": made.sep_token_id}
    given = {"vocab_size": len(made), "pad_token_id": made.pad_token_id, **shape, **settings}
    return AutoConfig.for_model(family, **(ends if family == "modernbert" else {}), **given)


def model(family: str, **settings: Any) -> Any:
    """Return a masked language model, its weights drawn from seed 0, for evaluation."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForMaskedLM.from_config(config(family, **settings)).eval()


def saved(family: str, folder: Path, **settings: Any) -> Path:
    """Save a masked language model and its tokenizer to a folder, and return it."""
    model(family, **settings).save_pretrained(folder)
    tokenizer(family).save_pretrained(folder)
    return folder


@cache
def tokenizer(family: str) -> Any:
    """Return a tokenizer of the family's own class, trained on the texts of `small`."""
    return _KINDS.get(family, _wordpiece)()


def _wordpiece(cased: bool = False) -> Any:
    """Return BERT's tokenizer: WordPiece, lower case, accents stripped."""
    return BertTokenizer(vocab=_pieces(cased), do_lower_case=not cased)


def _mpnet() -> Any:
    names = {"[CLS]": "<s>", "[PAD]": "<pad>", "[SEP]": "</s>", "[MASK]": "<mask>"}
    order = ("<s>", "<pad>", "</s>", "[UNK]", "<mask>")  # the padding has id 1
    pieces = [piece for piece in _pieces(cased=False) if piece not in names]
    pieces.remove("[UNK]")
    return MPNetTokenizer(vocab={piece: i for i, piece in enumerate((*order, *pieces))})


@cache
def _pieces(cased: bool) -> dict[str, int]:
    texts = small.TEXTS if cased else [text.lower() for text in small.TEXTS]
    found: dict[str, int] = train_tokenizer(texts, 250, "wordpiece", "bert").get_vocab()
    return dict(sorted(found.items(), key=lambda pair: pair[1]))


def _sentencepiece(name: str, special: tuple[str, ...]) -> Callable[[], Any]:
    """Return a function that makes a tokenizer of a class; its first tokens are `special`."""

    def make() -> Any:
        vocabulary = [*((token, 0.0) for token in special), *text_to_text.pieces()]
        return getattr(transformers, name)(vocab=vocabulary)

    return make


def _byte_level() -> Any:
    """Return a tokenizer as ModernBERT's: byte-level, offsets include the blank before a word."""
    made = train_tokenizer(small.TEXTS, 330, "bpe", "bert")
    made.backend_tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    return made


_ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_DEBERTA_TOKENS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")
_KINDS: Mapping[str, Callable[[], Any]] = {
    "mpnet": _mpnet,
    "modernbert": _byte_level,
    "eurobert": _byte_level,
    "roberta": small.tokenizer,
    "data2vec-text": small.tokenizer,
    "roberta-prelayernorm": small.tokenizer,
    "xlm-roberta": _sentencepiece("XLMRobertaTokenizer", _ROBERTA),
    "xlm-roberta-xl": _sentencepiece("XLMRobertaTokenizer", _ROBERTA),
    "camembert": _sentencepiece("CamembertTokenizer", _ROBERTA),
    "albert": _sentencepiece("AlbertTokenizer", ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")),
    "deberta-v2": _sentencepiece("DebertaV2Tokenizer", _DEBERTA_TOKENS),
    "cased": lambda: _wordpiece(cased=True),
}
