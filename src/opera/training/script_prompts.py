"""The arguments of a sentence-transformers script, and vectors and scores with its prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder
from sentence_transformers.base.model import BaseModel
from sentence_transformers.base.sampler import BatchSamplers
from torch.nn import Identity

from opera.adapter.model import encode_all
from opera.core.arrays import IntArray
from opera.core.errors import SettingError
from opera.core.processes import process_index
from opera.core.progress import with_progress
from opera.core.terminal import shown
from opera.retrieval.encoder import Encoder, gather_parts
from opera.retrieval.kinds import Kind
from opera.retrieval.models import with_separate_settings
from opera.retrieval.prompts import Role
from opera.retrieval.reranker import CHUNK
from opera.retrieval.vectors import Vectors
from opera.training.callbacks import SamplerCallback
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
    model: BaseModel, data_set: UserPairs, prompts: Prompts, similarity: str
) -> dict[Role, Vectors]:
    """Encode the distinct queries and positives of a data set with the prompts of training, or read
    the cache. The ``similarity`` compares them."""
    was_training, encoder = model.training, Encoder(with_separate_settings(model))
    encoder.model.similarity_fn_name = similarity
    query, document = (prompt_of(prompts, data_set.name, name) for name in data_set.columns[:2])
    encoder.prompts = {"query": query, "document": document}
    vectors = encode_all(encoder, data_set.data, "text")
    model.train(was_training)
    return vectors


def score_pairs(
    model: CrossEncoder, data_set: UserPairs, prompts: Prompts, queries: IntArray, docs: IntArray
) -> NDArray[np.float32]:
    """Return a cross-encoder's logits of queries and documents ``[m]`` with the prompt of training.

    All processes share the work and must call this.
    """
    was_training, data = model.training, data_set.data
    prompt = prompt_of(prompts, data_set.name, "")

    def parts(share: slice) -> Iterator[NDArray[np.float32]]:
        starts, hidden = range(share.start, share.stop, CHUNK), process_index() > 0
        for start in with_progress(starts, "scoring pairs", len(starts), "parts", hidden=hidden):
            rows = slice(start, min(start + CHUNK, share.stop))
            texts = data.queries.texts(queries[rows], "text"), data.corpus.texts(docs[rows], "text")
            yield model.predict(
                list(zip(*texts, strict=True)),
                prompt=prompt,
                activation_fn=Identity(),
                show_progress_bar=False,
            )

    logits = np.concatenate(gather_parts(parts, len(queries), CHUNK))
    model.train(was_training)
    return logits


def check_arguments(args: Any, kind: type[Kind]) -> None:
    """Check the trainer's arguments.

    Raises:
        SettingError: if their class is wrong, or another batch sampler is set.
    """
    if not isinstance(args, kind.arguments_class):
        raise SettingError(
            f"args: must be {kind.arguments_class.__name__} for a {kind.title}, got {shown(args)}"
        )
    sampler = args.batch_sampler
    ours = isinstance(getattr(sampler, "__self__", None), SamplerCallback)
    if not ours and sampler != BatchSamplers.BATCH_SAMPLER:
        raise SettingError(
            f"args.batch_sampler={shown(sampler)}: PairPruning samples the batches itself; remove "
            "batch_sampler"
        )
