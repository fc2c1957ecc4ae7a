"""Settings of encoding and search."""

from __future__ import annotations

from typing import Literal

from opera.core.arguments import MOST
from opera.core.settings import Settings, setting

LONGEST_PROMPT = 10_000
"""Characters."""


class EncodingSettings(Settings):
    """How the model reads texts, in training and when it encodes a corpus."""

    max_query_length: int = setting(
        128, "most tokens of a query, up to the model's limit", "Appendix C.2", ge=1, le=MOST
    )
    max_passage_length: int = setting(
        512,
        "most tokens of a document, up to the model's limit",
        "Appendix C.2",
        ge=1,
        le=MOST,
    )
    query_prompt: str | None = setting(
        None,
        "prompt before each query, used verbatim; empty for none; auto: the model's prompt",
        "docs/models.md",
        max_length=LONGEST_PROMPT,
    )
    document_prompt: str | None = setting(
        None,
        "prompt before each document, used verbatim; empty for none; auto: the model's prompt",
        "docs/models.md",
        max_length=LONGEST_PROMPT,
    )
    corpus_text: Literal["title_text", "text"] = setting(
        "title_text",
        "the parts of a document that are encoded; the release encodes only the text",
        "erratum 11",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = setting(
        "auto",
        "autocast in training and encoding; auto: bf16 if the device supports it",
        "OPERA",
    )
    dropout: float | None = setting(
        None, "dropout rate in training; auto: the model's rate", "OPERA", ge=0, lt=1
    )
