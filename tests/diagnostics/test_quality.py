"""Noise and scoring quality, estimated on data with known labels."""

from __future__ import annotations

import numpy as np
import pytest

from distinct import pool_of
from opera.data.pairs import TrainingPairs
from opera.diagnostics.inspect import estimate_noise, estimate_quality, most_suspicious, relative_rank
from opera.training_pairs.pretrained_scores import CBSRanks, rank_among_random


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_the_share_of_random_documents_is_found(share: float) -> None:
    """Good documents lie near their query, false ones anywhere: the estimate finds how many are false."""
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(300, 32))
    docs = np.repeat(queries, 10, axis=0) + 1.2 * rng.normal(size=(3000, 32))
    false = rng.random(3000) < share
    docs[false] = rng.normal(size=(false.sum(), 32))
    queries, docs = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (queries, docs))
    pairs, pool = TrainingPairs.from_arrays(np.repeat(np.arange(300), 10), np.arange(3000)), pool_of(3000)
    cbs_ranks = rank_among_random(pairs, queries.astype(np.float32), docs.astype(np.float32), 10_000, 0, pool)
    quality = estimate_quality(cbs_ranks)
    assert quality.noise == pytest.approx(share, abs=0.04)
    assert quality.noise_error < 0.03
    worst = most_suspicious(relative_rank(cbs_ranks), np.zeros(3000), 50)
    assert share == 0 or false[worst].all()


@pytest.mark.parametrize("pool", [2, 3, 10_000])
def test_all_random_is_all_noise_whatever_the_pool(pool: int) -> None:
    ranks = np.random.default_rng(0).integers(1, pool + 2, 20_000).astype(np.int32)
    share, error = estimate_noise(CBSRanks(ranks, np.full(20_000, pool, dtype=np.int32)))
    assert share == pytest.approx(1, abs=4 * error)
