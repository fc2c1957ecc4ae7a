"""Cross-encoders in a sentence-transformers script: what they cannot do, and their base scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from sentence_transformers import CrossEncoder

from opera.core.errors import SettingError, raise_first
from opera.core.processes import process_count
from opera.core.rng import generator
from opera.core.settings import Settings
from opera.methods import Method, PairScores
from opera.methods.denoise import Denoise
from opera.training.documents import DocumentPool
from opera.training.loss_readers import BinaryReader, LossReader, RerankerReader
from opera.training.script_prompts import Prompts, score_pairs
from opera.training.trainer_batches import LEAST_RANKED
from opera.training.user_pairs import UserPairs


def check_method(method: type[Method[Any]], settings: Settings) -> None:
    """Raise a :class:`SettingError` if a method cannot train a cross-encoder."""
    if pool := method.cbs_pool_size(settings):
        raise SettingError(
            f"method={method.name}: CBS ranks each pair among {pool:,} documents, so a reranker "
            "would read as many pairs of texts for each; use sp, which ranks pairs by their score"
        )


def prepare(
    method: type[Method[Any]], data_set: UserPairs, reader: LossReader, batch_size: int | None
) -> None:
    """Check whether a loss of a cross-encoder can work, and keep or skip rows with label 0.

    Raises:
        SettingError: if it cannot.
    """
    check_ranks(method, data_set, reader, batch_size)
    if isinstance(reader, BinaryReader):
        _check_binary(method, data_set)
        data_set.keep_label_0()
    else:
        data_set.skip_label_0()


def _check_binary(method: type[Method[Any]], data_set: UserPairs) -> None:
    """Check whether the loss over single pairs can work."""
    with_label_0 = len(data_set.rows_without_pair) > 0
    raise_first(
        SettingError,
        (
            issubclass(method, Denoise),
            f"method={method.name}: the method ranks documents of a batch, but "
            "BinaryCrossEntropyLoss of a reranker compares none; use infobatch or dp, or "
            "MultipleNegativesRankingLoss of a cross-encoder",
        ),
        (
            data_set.label is None,
            f"{data_set.title}: BinaryCrossEntropyLoss needs a column of labels, such as label",
        ),
        (
            len(data_set.columns) > 2,
            f"{data_set.title}: BinaryCrossEntropyLoss takes two text columns, got "
            f"{len(data_set.columns)}; make negatives rows with label 0",
        ),
        (
            with_label_0 and process_count() > 1,
            f"{data_set.title}: rows with label 0 make batches of different sizes, which several "
            "processes cannot share; train with one process, or use MultipleNegativesRankingLoss",
        ),
    )


def negatives_to_rank(columns: int, batch_size: int) -> int:
    """Return the in-batch negatives that ``denoise`` needs, with so many columns of documents.

    With columns of negatives, the loss draws positives and negatives alike. Twice as many draws
    then give nearly every pair enough positives.
    """
    needed = math.ceil(LEAST_RANKED * batch_size) * columns * (2 if columns > 1 else 1)
    return min(needed, (batch_size - 1) * columns)


def check_ranks(
    method: type[Method[Any]], data_set: UserPairs, reader: LossReader, batch_size: int | None
) -> None:
    """Raise a :class:`SettingError` if a cross-encoder scores too few documents of a batch to rank
    a pair's document among them.
    """
    is_ranking = isinstance(reader, RerankerReader) and not isinstance(reader, BinaryReader)
    if not (batch_size and is_ranking and issubclass(method, Denoise)):
        return
    needed = negatives_to_rank(data_set.documents.shape[1], batch_size)
    drawn = reader.inner.num_negatives
    if drawn is not None and drawn < needed:
        raise SettingError(
            f"method={method.name}: the method ranks each document among an eighth of the batch, "
            f"but {type(reader.loss).__name__} of a reranker scores {drawn} of its documents; pass "
            f"num_negatives={needed} or more to the loss, or use another method"
        )


def base_scores(
    model: CrossEncoder, data_set: UserPairs, prompts: Prompts, reader: RerankerReader
) -> PairScores:
    """Return the base model's logits and losses of all pairs.

    The loss compares a pair's document with random documents, which are no known positives. Each of
    them costs one more forward pass per pair.
    """
    pairs, pool = data_set.pairs, DocumentPool.of(data_set.data, "text")
    shape = pairs.n_pairs, reader.base_negatives()
    random = pool.doc_rows(generator(0, "score.random_documents").integers(len(pool), size=shape))
    documents = np.column_stack([pairs.pair_doc, random])
    queries = np.broadcast_to(pairs.pair_query[:, None], documents.shape)
    is_scored = ~data_set.known.contains(queries, documents)
    is_scored[:, 0] = True
    logits = np.full(documents.shape, -np.inf, dtype=np.float32)
    logits[is_scored] = score_pairs(
        model, data_set, prompts, queries[is_scored], documents[is_scored]
    )
    labels = data_set.labels(np.arange(pairs.n_pairs), torch.device("cpu"))
    of_pairs = None if labels is None else labels[: pairs.n_pairs]
    with torch.no_grad():
        losses = reader.base_losses(torch.from_numpy(logits), of_pairs).numpy()
    return PairScores(pairs, logits[:, 0], losses)
