"""CBS: ranks among documents of other queries."""

from __future__ import annotations

import numpy as np
import pytest

from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.training_set.documents import DocumentPool
from opera.training_set.pretrained_scores import rank_among_random
from small_runs import unit_vectors


@pytest.mark.parametrize("pool_size", [2, 5, 10_000])
def test_it_is_the_rank_among_positives_of_other_queries(pool_size: int) -> None:
    rng = np.random.default_rng(1)
    pairs = TrainingPairs.from_arrays(np.repeat(np.arange(6), 3), rng.integers(20, size=18))
    queries, corpus = unit_vectors(rng, 6, 5), unit_vectors(rng, 20, 5)
    found = rank_among_random(pairs, queries, corpus, pool_size, 3, DocumentPool(20))
    in_order = generator(3, "score.consistency").permutation(np.unique(pairs.pair_doc))
    for pair in range(pairs.n_pairs):
        query = pairs.pair_query[pair]
        own = set(pairs.pair_doc[pairs.pair_query == query].tolist())
        pool = [doc for doc in in_order.tolist() if doc not in own][:pool_size]
        above = sum(queries[query] @ corpus[doc] > queries[query] @ corpus[pairs.pair_doc[pair]] for doc in pool)
        assert found.rank[pair] == above + 1
        assert found.pool[pair] == len(pool)
        assert found.cbs[pair] == np.float32(1 / (above + 1))


def test_copies_of_the_document_do_not_push_it_down() -> None:
    pairs = TrainingPairs.from_arrays(np.array([0, 1, 2]), np.array([0, 1, 2]))
    corpus = np.tile(unit_vectors(np.random.default_rng(2), 1, 300), (3, 1))
    queries = unit_vectors(np.random.default_rng(3), 3, 300)
    assert rank_among_random(pairs, queries, corpus, 10, 0, DocumentPool(3)).rank.tolist() == [1] * 3


def test_a_positive_without_a_text_is_in_no_pool() -> None:
    pairs = TrainingPairs.from_arrays(np.array([0, 1, 2]), np.array([0, 1, 2]))
    queries, corpus = np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32)
    assert rank_among_random(pairs, queries, corpus, 10, 0, DocumentPool(3)).pool.tolist() == [2, 2, 2]
    one_empty = rank_among_random(pairs, queries, corpus, 10, 0, DocumentPool(3, np.array([1])))
    assert one_empty.pool.tolist() == [1, 2, 1]
    all_empty = rank_among_random(pairs, queries, corpus, 10, 0, DocumentPool(3, np.arange(3)))
    assert (all_empty.rank.tolist(), all_empty.pool.tolist()) == ([1] * 3, [0] * 3)


def test_one_query_alone_has_nobody_to_rank_among() -> None:
    pairs = TrainingPairs.from_arrays(np.zeros(3, dtype=int), np.arange(3))
    rng = np.random.default_rng(0)
    found = rank_among_random(pairs, unit_vectors(rng, 1, 4), unit_vectors(rng, 3, 4), 10, 0, DocumentPool(3))
    assert found.cbs.tolist() == [1, 1, 1]
    assert found.smallest_pool == 0
