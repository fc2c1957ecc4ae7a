"""Cosine similarity of the training pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opera.data.pairs import TrainingPairs

CHUNK_PAIRS = 65_536


def pair_similarities(
    pairs: TrainingPairs, query_embeddings: NDArray[np.float32], document_embeddings: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Compute s(e_q, e_d) of every pair: float32 ``[N]``.

    Args:
        pairs: the N training pairs.
        query_embeddings: float32 ``[n, dimension]``, rows of length 1.
        document_embeddings: float32 ``[documents, dimension]``, rows of length 1; may be memory-mapped.
    """
    similarity = np.empty(pairs.n_pairs, dtype=np.float32)
    for start in range(0, pairs.n_pairs, CHUNK_PAIRS):
        part = slice(start, start + CHUNK_PAIRS)
        queries, documents = query_embeddings[pairs.pair_query[part]], document_embeddings[pairs.pair_doc[part]]
        similarity[part] = np.einsum("pd,pd->p", queries, documents)
    return similarity
