"""Every method of the registry, in every variant, passes the checks of ``opera.methods.testing``, and some more."""

from __future__ import annotations

import numpy as np
import pytest

from opera.core.errors import SettingError
from opera.data.pairs import TrainingPairs
from opera.methods import METHODS, PairScores, Plan
from opera.methods.testing import check_method
from worlds import IDS, VARIANTS, make, make_pairs, mixed_pairs

PRUNING = ("sp", "sp+cbs", "rp", "sp+dp")
ALL_KEPT_POSSIBLE = [(name, values) for name, values in VARIANTS if values.get("soft", True) and name != "infobatch"]


@pytest.fixture
def pairs() -> TrainingPairs:
    return mixed_pairs()


@pytest.mark.parametrize(("name", "values"), VARIANTS, ids=IDS)
class TestEveryMethod:
    def test_it_passes_the_checks(self, name: str, values: dict[str, object]) -> None:
        method_class = METHODS[name]
        check_method(method_class, method_class.settings_class.parse(values))

    def test_another_seed_gives_other_draws(self, name: str, values: dict[str, object], pairs: TrainingPairs) -> None:
        one, other = make(name, values, pairs), make(name, values, pairs, seed=1)
        assert [one.draw(step).pair_ids.tolist() for step in range(20)] != [
            other.draw(step).pair_ids.tolist() for step in range(20)
        ]


@pytest.mark.parametrize(("name", "values"), ALL_KEPT_POSSIBLE)
def test_every_pair_kept_is_possible_at_every_step(name: str, values: dict[str, object], pairs: TrainingPairs) -> None:
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
def test_few_queries_and_extreme_scores_work(
    name: str, values: dict[str, object], size: float, counts: list[int]
) -> None:
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
