"""The prompts of a sentence-transformers script, and vectors with these prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sentence_transformers import SentenceTransformer

from opera.adapter.model import encode_all
from opera.retrieval.encoder import Encoder, use_trained_similarity
from opera.retrieval.models import (
    with_separate_settings,
)
from opera.retrieval.prompts import Role
from opera.retrieval.vectors import (
    Vectors,
)
from opera.training.user_pairs import UserPairs

Prompts = str | Mapping[str, Any] | None
"""``args.prompts``: one prompt, or prompts by column, by data set, or by data set and column."""


def with_list_prompts(prompts: Any, lists: Mapping[str, list[str]]) -> Any:
    """Repeat the prompt of a column with lists for the columns that the lists have become."""
    if not isinstance(prompts, Mapping):
        return prompts
    repeated = {name: with_list_prompts(prompt, lists) for name, prompt in prompts.items()}
    for name in lists.keys() & prompts.keys():
        repeated.update(dict.fromkeys(lists[name], prompts[name]))
    return repeated


def prompt_of(prompts: Prompts, name: str, column: str) -> str:
    """Return the prompt for a column of the data set ``name``, as sentence-transformers' collator
    chooses it; empty for none."""
    if isinstance(prompts, Mapping):
        prompts = prompts.get(name, prompts) if name else prompts
    if isinstance(prompts, Mapping):
        prompts = prompts.get(column)
    return prompts if isinstance(prompts, str) else ""


def encode_texts(
    model: SentenceTransformer, data_set: UserPairs, prompts: Prompts
) -> dict[Role, Vectors]:
    """Encode the distinct queries and positives of a data set with the prompts of training, or read
    the cache."""
    was_training, encoder = model.training, Encoder(with_separate_settings(model))
    use_trained_similarity(encoder.model)
    query, document = (prompt_of(prompts, data_set.name, name) for name in data_set.columns[:2])
    encoder.prompts = {"query": query, "document": document}
    vectors = encode_all(encoder, data_set.data, "text")
    model.train(was_training)
    return vectors
