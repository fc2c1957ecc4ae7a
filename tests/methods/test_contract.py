"""Every method of the registry, in every variant, passes the checks of ``opera.methods.testing``, and some more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=30),
    st.sampled_from(VARIANTS),
    st.integers(1, 20),
    st.integers(0, 2**31),
    st.lists(
        st.tuples(st.floats(width=32, allow_nan=False, allow_infinity=False), st.floats(0, 2**60, width=32)),
        min_size=1,
        max_size=20,
    ),
)
@settings(deadline=None, max_examples=120)
def test_any_sizes_and_scores_work(
    counts: list[int],
    variant: tuple[str, dict[str, object]],
    batch: int,
    seed: int,
    drawn_scores: list[tuple[float, float]],
) -> None:
    pairs = make_pairs(counts)
    similarity, loss = np.resize(np.array(drawn_scores, dtype=np.float32), (pairs.n_pairs + batch, 2)).T
    first = slice(0, pairs.n_pairs)
    cls = METHODS[variant[0]]
    parsed = cls.settings_class.parse(variant[1])
    try:
        cls.check(parsed, pairs.n_queries, pairs.n_pairs)
    except SettingError:
        return
    scores = PairScores(pairs, similarity[first], loss[first], 1 / (1 + np.abs(similarity[first])))
    method = cls(pairs, Plan(seed, 9, batch), parsed, scores)
    for step in range(9):
        before = method.probabilities(max(0, step - 1))
        drawn = method.draw(step).pair_ids
        p = method.probabilities(step)
        possible = p.pair[drawn] > 0
        if variant[0] == "infobatch":  # a step may begin in one pass and end in the next, which prunes other queries
            possible |= before.pair[drawn] > 0
        assert possible.all()
        assert p.pair.sum() == pytest.approx(1)
        method.observe(drawn, similarity[step % pairs.n_pairs :][:batch], loss[step % pairs.n_pairs :][:batch])
