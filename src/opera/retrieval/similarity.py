"""The cosine similarity of given (query, document) pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opera.data.pairs import TrainingPairs

CHUNK_PAIRS = 65_536


def pair_similarities(
    pairs: TrainingPairs, queries: NDArray[np.float32], corpus: NDArray[np.float32]
) -> NDArray[np.float32]:
    """s(e_q, e_d) of every pair: float32 ``[N]``, from unit vectors ``[n, dim]`` and ``[documents, dim]``."""
    similarity = np.empty(pairs.n_pairs, dtype=np.float32)
    for start in range(0, pairs.n_pairs, CHUNK_PAIRS):
        part = slice(start, start + CHUNK_PAIRS)
        similarity[part] = np.einsum("pd,pd->p", queries[pairs.pair_query[part]], corpus[pairs.pair_doc[part]])
    return similarity
