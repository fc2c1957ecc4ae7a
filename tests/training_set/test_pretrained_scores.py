"""Pretrained similarities and losses, against the plain formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opera.data.pairs import TrainingPairs
from opera.retrieval.encoder import pair_similarities
from opera.training_set.documents import DocumentPool, KnownPositives
from opera.training_set.pretrained_scores import pretrained_losses, pretrained_scores
from small_runs import unit_vectors


@pytest.fixture
def pairs() -> TrainingPairs:
    return TrainingPairs.from_arrays(np.array([0, 0, 1, 2, 2, 2, 3]), np.array([4, 7, 4, 1, 2, 3, 9]))


def test_similarity_and_loss_are_the_plain_formulas(pairs: TrainingPairs) -> None:
    rng = np.random.default_rng(0)
    queries, corpus = unit_vectors(rng, 4, 6), unit_vectors(rng, 12, 6)
    known = KnownPositives.of(pairs)
    similarity = pair_similarities(pairs, queries, corpus)
    for masked in (None, known):
        losses = pretrained_losses(pairs, queries, corpus, similarity, 0.1, 12, 0, masked, DocumentPool(12))
        for pair in range(pairs.n_pairs):
            query, doc = pairs.pair_query[pair], pairs.pair_doc[pair]
            others = [
                d
                for d in range(12)
                if d != doc and not (masked and known.contains(np.array([query]), np.array([d]))[0])
            ]
            logits = np.array([queries[query] @ corpus[d] for d in [doc, *others]], dtype=np.float64) / 0.1
            # Float32 sums of 6 terms are off by 6·2⁻²⁴ = 4e-7 at most, and ten times that after the temperature.
            assert similarity[pair] == pytest.approx(queries[query] @ corpus[doc], abs=1e-6)
            assert losses[pair] == pytest.approx(np.log(np.exp(logits).sum()) - logits[0], abs=2e-5)


def test_the_random_set_is_as_large_as_asked_and_depends_on_the_seed(pairs: TrainingPairs) -> None:
    rng = np.random.default_rng(0)
    queries, corpus = unit_vectors(rng, 4, 6), unit_vectors(rng, 200, 6)
    made = [
        pretrained_scores(pairs, queries, corpus, 0.1, 8, seed, None, DocumentPool(200))[0].loss for seed in (0, 0, 1)
    ]
    assert np.array_equal(made[0], made[1])
    assert not np.array_equal(made[0], made[2])
    assert (made[0] < math.log(8 + 1) + 2 / 0.1).all()
