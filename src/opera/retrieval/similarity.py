"""Cosine similarity of the training pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opera.data.pairs import TrainingPairs
from opera.encoder.embeddings import Vectors

CHUNK_BYTES = 2**26
"""Of embeddings read at once: half are queries, half documents."""


def pair_chunks(pairs: TrainingPairs, dimension: int) -> list[slice]:
    """Cut the pairs into ranges whose embeddings fit into :data:`CHUNK_BYTES`."""
    size = max(1, CHUNK_BYTES // (2 * 4 * dimension))
    return [
        slice(start, min(start + size, pairs.n_pairs)) for start in range(0, pairs.n_pairs, size)
    ]


def pair_similarities(
    pairs: TrainingPairs, query_embeddings: Vectors, document_embeddings: Vectors
) -> NDArray[np.float32]:
    """Compute s(e_q, e_d) of every pair: float32 ``[N]``.

    Args:
        pairs: the N training pairs.
        query_embeddings: float32 ``[n, dimension]``, rows of length 1; may be shards on disk.
        document_embeddings: float32 ``[documents, dimension]``, likewise.
    """
    similarity = np.empty(pairs.n_pairs, dtype=np.float32)
    for part in pair_chunks(pairs, query_embeddings.shape[1]):
        queries, documents = (
            query_embeddings[pairs.pair_query[part]],
            document_embeddings[pairs.pair_doc[part]],
        )
        similarity[part] = np.einsum("pd,pd->p", queries, documents)
    return similarity
