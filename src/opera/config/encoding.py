"""Settings of how the model reads texts and how a search finds them."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

from opera.core.arguments import MOST
from opera.core.errors import SettingError, nearest
from opera.core.extras import require
from opera.core.settings import Settings, setting
from opera.core.terminal import shown

MOST_OF_A_PROMPT = 10_000
"""Characters."""


class EncodingSettings(Settings):
    """How the model reads texts, in training and in encoding."""

    max_query_length: int = setting(
        128, "tokens of a query, at most the model's own limit", "Appendix C.2", ge=1, le=MOST
    )
    max_passage_length: int = setting(
        512,
        "tokens of a document, at most the model's own limit",
        "Appendix C.2",
        ge=1,
        le=MOST,
    )
    query_prompt: str | None = setting(
        None,
        "text before each query, kept as it is; empty for none; auto: the model's own",
        "docs/models.md",
        max_length=MOST_OF_A_PROMPT,
    )
    document_prompt: str | None = setting(
        None,
        "text before each document, likewise",
        "docs/models.md",
        max_length=MOST_OF_A_PROMPT,
    )
    corpus_text: Literal["title_text", "text"] = setting(
        "title_text",
        "what of a document is encoded; the release encodes the text alone",
        "erratum 11",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = setting(
        "auto",
        "autocast in training and encoding; auto: bf16 where the device computes in it",
        "OPERA",
    )
    dropout: float | None = setting(
        None, "dropout rate in training; auto: the model's own", "OPERA", ge=0, lt=1
    )


SearchIndex = Literal["exact", "hnsw", "ivf"]
SEARCH_INDEXES: tuple[SearchIndex, ...] = get_args(SearchIndex)


def checked_index(index: Any) -> SearchIndex:
    """Check the index that a function or a command was given.

    Raises:
        SettingError: if it is none.
        MissingExtraError: if it needs FAISS, which is not installed.
    """
    if index not in SEARCH_INDEXES:
        hint = nearest(str(index), SEARCH_INDEXES)
        raise SettingError(
            f"--index: must be one of {', '.join(SEARCH_INDEXES)}, got {shown(index)}{hint}"
        )
    if index != "exact":
        require("faiss", f"--index {index}")
    return cast(SearchIndex, index)
