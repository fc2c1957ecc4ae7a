"""Documents and queries of which no two have the same text."""

from collections.abc import Sequence

import numpy as np

from opera.data.pairs import TrainingPairs, pair_keys
from opera.training.documents import DocumentPool, KnownPositives


def pool_of(n_documents: int, left_out: Sequence[int] = ()) -> DocumentPool:
    return DocumentPool(np.arange(n_documents, dtype=np.int32), np.array(left_out, dtype=np.int64))


def known_of(pairs: TrainingPairs, n_documents: int = 1000) -> KnownPositives:
    keys = np.unique(pair_keys(pairs.pair_query, pairs.pair_doc))
    queries, documents = (np.arange(count, dtype=np.int32) for count in (pairs.n_queries, n_documents))
    return KnownPositives(keys, queries, documents)
