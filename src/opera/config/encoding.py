"""Settings of how the model reads texts: lengths, prompts, precision."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator

from opera.config.optimisation import MOST_AT_ONCE
from opera.core.arguments import MOST
from opera.core.settings import Settings, setting

MOST_OF_A_PROMPT = 10_000
"""Characters."""


def _check_prompt(prompt: str) -> str:
    """Refuse what no tokenizer reads: halves of characters, and NUL."""
    if "\0" in prompt or (not prompt.isascii() and re.search("[\ud800-\udfff]", prompt)):
        raise ValueError("must be text in UTF-8, without NUL")
    if len(prompt) > MOST_OF_A_PROMPT:
        raise ValueError(f"must have at most {MOST_OF_A_PROMPT:,} characters")
    return prompt


Prompt = Annotated[str, AfterValidator(_check_prompt)]


class EncodingSettings(Settings):
    """How the model reads texts, in training and in encoding."""

    max_query_length: int = setting(
        128, "tokens of a query, at most the model's own limit", "Appendix C.2", ge=1, le=MOST
    )
    max_passage_length: int = setting(
        512, "tokens of a document, at most the model's own limit", "Appendix C.2", ge=1, le=MOST
    )
    save_lengths: bool = setting(
        False,
        "write these lengths into the saved model, which otherwise keeps its own limit",
        "OPERA",
    )
    query_prompt: Prompt | None = setting(
        None,
        "text before each query, kept as it is; empty for none; auto: the model's own",
        "docs/models.md",
    )
    document_prompt: Prompt | None = setting(
        None, "text before each document, likewise", "docs/models.md"
    )
    prompt_phases: Literal["all", "search"] = setting(
        "all",
        "where prompts hold: in all phases, as in the release, or in search alone (mining, evaluation, the guard) and "
        "not in training and pair scores, as in an earlier version of it",
        "the release",
    )
    corpus_text: Literal["title_text", "text"] = setting(
        "title_text",
        "what of a document is encoded; the release encodes the text alone",
        "paper.md, row 11",
    )
    encode_batch_size: int = setting(
        128,
        "texts of 128 tokens per batch when encoding, or as many tokens",
        "OPERA",
        ge=1,
        le=MOST_AT_ONCE,
    )
    stored_embeddings: Literal["fp32", "fp16"] = setting(
        "fp32", "how embeddings are kept in the cache; fp16 takes half the disk", "OPERA"
    )
    search_memory: int = setting(
        256,
        "megabytes that a search takes at most, besides queries, ranking and what reads the corpus; many queries are "
        "searched in parts, and the corpus is read once per part",
        "OPERA",
        effect=False,
        ge=16,
        le=2**20,
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = setting(
        "auto",
        "autocast in training and encoding; auto: bf16 where the device computes in it",
        "OPERA",
    )
    dropout: float | None = setting(
        None, "dropout rate in training; auto: the model's own", "OPERA", ge=0, lt=1
    )
    attn_implementation: Literal["eager", "sdpa", "flash_attention_2"] | None = setting(
        None, "how attention is computed; auto: what transformers picks", "transformers"
    )
    gradient_checkpointing: bool = setting(False, "trade speed for memory", "transformers")

    @property
    def search_bytes(self) -> int:
        """``search_memory`` in bytes."""
        return self.search_memory * 2**20
