"""Every method of the registry, in every variant, passes the checks of ``opera.methods.testing``, and some more."""

from typing import Any

import numpy as np
import pytest

from opera.core.errors import SettingError
from opera.data.pairs import TrainingPairs
from opera.methods import METHODS, PairScores, Plan
from opera.methods.testing import check_method
from worlds import IDS, VARIANTS, make, make_pairs, mixed_pairs

PRUNING = ("sp", "sp+cbs", "rp", "sp+dp")
ALL_KEPT_POSSIBLE = [(name, values) for name, values in VARIANTS if values.get("soft", True) and name != "infobatch"]
ALIKE = (
    "dp-update_interval=10",
    "dp-alpha_start=5-alpha_end=2-beta_start=1-beta_end=8",
    "dp-alpha_start=1-alpha_end=1",
    "sp+dp-k=0.5",
    "sp+dp-k=0.7-levels=document-threshold=per_query-query_score=similarity",
)
"""Variants that draw as others do; the slow tests check their draws too."""


@pytest.fixture
def pairs() -> TrainingPairs:
    return mixed_pairs()


def checked() -> list[Any]:
    marks = [[pytest.mark.slow] if variant in ALIKE else [] for variant in IDS]
    return [pytest.param(*values, id=id, marks=mark) for values, id, mark in zip(VARIANTS, IDS, marks, strict=True)]


@pytest.mark.parametrize(("name", "values"), checked())
def test_a_method_passes_the_checks(name, values):
    check_method(METHODS[name], METHODS[name].settings_class.parse(values))


@pytest.mark.parametrize(("name", "values"), VARIANTS, ids=IDS)
def test_another_seed_gives_other_draws(name, values, pairs):
    methods = [make(name, values, pairs, seed=seed) for seed in (0, 1)]
    one, other = ([method.draw(step).pair_ids.tolist() for step in range(20)] for method in methods)
    assert one != other


@pytest.mark.parametrize(("name", "values"), ALL_KEPT_POSSIBLE)
def test_every_pair_kept_is_possible_at_every_step(name, values, pairs):
    """Of all pairs for ft and dp, of those kept for the pruning methods.

    Not promised by dp's hard cutoff (test_dynamic has which pairs it excludes) and by infobatch, whose passes may
    prune all of a few learned queries.
    """
    method = make(name, values, pairs)
    assert method.kept.all() == (name not in PRUNING)
    for step in range(0, 50, 10):
        drawn = method.draw(step).pair_ids
        method.observe(drawn, np.linspace(-1, 1, 8), np.linspace(0, 9, 8))
        assert np.array_equal(method.probabilities(step).pair > 0, method.kept)


@pytest.mark.parametrize("counts", [[1], [1, 6], [2] * 30])
@pytest.mark.parametrize("size", [1e-3, 1e30])
@pytest.mark.parametrize(("name", "values"), VARIANTS, ids=IDS)
def test_few_queries_and_extreme_scores_work(name, values, size, counts):
    pairs, parsed = make_pairs(counts), METHODS[name].settings_class.parse(values)
    similarity, loss = np.random.default_rng(0).normal(0, size, (2, pairs.n_pairs + 8)).astype(np.float32)
    scores = PairScores(pairs, similarity[8:], abs(loss[8:]), np.ones(pairs.n_pairs))
    try:
        METHODS[name].check(parsed, pairs.n_queries, pairs.n_pairs)
    except SettingError:
        return  # it keeps no pair
    method = METHODS[name](pairs, Plan(0, 9, 8), parsed, scores)
    for step in range(9):
        drawn = method.draw(step).pair_ids
        assert method.probabilities(step).pair.sum() == pytest.approx(1)
        method.observe(drawn, similarity[:8], abs(loss[:8]))
