"""Pretrained similarities, losses and CBS, against the plain formulas."""

import numpy as np
import pytest

from distinct import known_of, pool_of
from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.retrieval.encoder import pair_similarities
from opera.retrieval.passages import DocumentVectors
from opera.training.pretrained_scores import pretrained_losses, rank_among_random
from small_runs import unit_vectors

PAIRS = TrainingPairs.from_arrays(np.array([0, 0, 1, 2, 2, 2, 3]), np.array([4, 7, 4, 1, 2, 3, 9]))


def test_similarity_and_loss_are_the_plain_formulas():
    rng = np.random.default_rng(0)
    queries, corpus = unit_vectors(rng, 4, 6), unit_vectors(rng, 12, 6)
    similarity = pair_similarities(PAIRS, queries, DocumentVectors(corpus))
    for masked in (None, known_of(PAIRS)):
        losses = pretrained_losses(PAIRS, queries, DocumentVectors(corpus), similarity, 0.1, 12, 0, masked, pool_of(12))
        for pair, (query, doc) in enumerate(zip(PAIRS.pair_query, PAIRS.pair_doc, strict=True)):
            own = PAIRS.pair_doc[PAIRS.pair_query == query] if masked else [doc]
            others = [d for d in range(12) if d != doc and d not in own]
            logits = np.array([queries[query] @ corpus[d] for d in [doc, *others]], dtype=np.float64) / 0.1
            # Float32 sums of 6 terms are off by 6·2⁻²⁴ = 4e-7 at most, and ten times that after the temperature.
            assert similarity[pair] == pytest.approx(queries[query] @ corpus[doc], abs=1e-6)
            assert losses[pair] == pytest.approx(np.log(np.exp(logits).sum()) - logits[0], abs=2e-5)


@pytest.mark.parametrize("pool_size", [2, 5, 10_000])
def test_cbs_is_the_rank_among_positives_of_other_queries(pool_size):
    rng = np.random.default_rng(1)
    pairs = TrainingPairs.from_arrays(np.repeat(np.arange(6), 3), rng.integers(20, size=18))
    queries, corpus = unit_vectors(rng, 6, 5), unit_vectors(rng, 20, 5)
    found = rank_among_random(pairs, queries, DocumentVectors(corpus), pool_size, 3, pool_of(20))
    in_order = generator(3, "score.consistency").permutation(np.unique(pairs.pair_doc))
    for pair, query in enumerate(pairs.pair_query):
        own = set(pairs.pair_doc[pairs.pair_query == query].tolist())
        pool = [doc for doc in in_order.tolist() if doc not in own][:pool_size]
        above = sum(queries[query] @ corpus[doc] > queries[query] @ corpus[pairs.pair_doc[pair]] for doc in pool)
        assert (found.rank[pair], found.pool[pair]) == (above + 1, len(pool))
        assert found.cbs[pair] == np.float32(1 / (above + 1))


def test_copies_and_empty_documents_worsen_no_rank():
    pairs, whole = TrainingPairs.from_arrays(np.arange(3), np.arange(3)), pool_of(3)
    copies = np.tile(unit_vectors(np.random.default_rng(2), 1, 300), (3, 1))
    queries = unit_vectors(np.random.default_rng(3), 3, 300)
    assert rank_among_random(pairs, queries, DocumentVectors(copies), 10, 0, whole).rank.tolist() == [1] * 3
    unit = np.eye(3, dtype=np.float32)
    for left_out, pools in (([], [2, 2, 2]), ([1], [1, 2, 1]), ([0, 1, 2], [0, 0, 0])):
        pool = pool_of(3, left_out)
        found = rank_among_random(pairs, unit, DocumentVectors(unit), 10, 0, pool)
        assert (found.rank.tolist(), found.pool.tolist()) == ([1] * 3, pools)
