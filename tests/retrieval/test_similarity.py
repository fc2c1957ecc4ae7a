"""Cosine similarity of the training pairs."""

from __future__ import annotations

import numpy as np
import pytest

from opera.data.pairs import TrainingPairs
from opera.retrieval.similarity import pair_similarities


@pytest.mark.parametrize("chunk", [1, 4, 9, 100])
def test_each_pair_has_its_own_product_whatever_the_chunks(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr("opera.retrieval.similarity.CHUNK_BYTES", chunk * 2 * 4 * 5)
    rng = np.random.default_rng(1)
    pairs = TrainingPairs.from_arrays(np.repeat([0, 1, 2], [4, 1, 4]), rng.integers(6, size=9))
    # Small whole numbers: their sums are exact in any order.
    queries, documents = (rng.integers(-3, 4, size=(rows, 5)).astype(np.float32) for rows in (3, 6))
    similarity = pair_similarities(pairs, queries, documents)
    assert similarity.dtype == np.float32
    by_hand = [queries[q] @ documents[d] for q, d in zip(pairs.pair_query, pairs.pair_doc, strict=True)]
    assert similarity.tolist() == by_hand
