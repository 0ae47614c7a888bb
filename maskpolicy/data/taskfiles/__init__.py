"""The files of data sets, as their authors publish them, become examples of tasks.

What a model makes of them is in `finetuning`.
"""

from maskpolicy.data.datafiles.fields import alike, block, digest, optional, records, text, texts
from maskpolicy.data.datafiles.rows import existing, opened
from maskpolicy.data.taskfiles import choices, dpr, glue, kilt, minimal_pairs
from maskpolicy.data.taskfiles.evidence import window

__all__ = [
    "alike",
    "block",
    "choices",
    "digest",
    "dpr",
    "existing",
    "glue",
    "kilt",
    "minimal_pairs",
    "opened",
    "optional",
    "records",
    "text",
    "texts",
    "window",
]
