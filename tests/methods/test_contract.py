"""The contract that every method of the registry passes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from opera.core.errors import SettingError
from opera.data.pairs import TrainingPairs
from opera.methods import METHODS, PairScores, Plan, method_named
from worlds import IDS, VARIANTS, make, make_pairs, mixed_pairs, see_all


@pytest.fixture
def pairs() -> TrainingPairs:
    return mixed_pairs()


@pytest.mark.parametrize(("name", "values"), VARIANTS, ids=IDS)
class TestContract:
    def test_draws_are_pairs_that_exist(self, name: str, values: dict[str, object], pairs: TrainingPairs) -> None:
        method = make(name, values, pairs)
        for step in range(30):
            drawn = method.draw(step)
            assert drawn.pair_ids.shape == drawn.weights.shape == (8,)
            assert drawn.pair_ids.dtype == np.int64
            assert drawn.weights.dtype == np.float32
            assert ((drawn.pair_ids >= 0) & (drawn.pair_ids < pairs.n_pairs)).all()
            assert (drawn.weights >= 1).all()
            method.observe(drawn.pair_ids, np.linspace(-1, 1, 8), np.linspace(0, 9, 8))

    def test_probabilities_sum_to_one(self, name: str, values: dict[str, object], pairs: TrainingPairs) -> None:
        method = make(name, values, pairs)
        for step in range(0, 50, 7):
            method.draw(step)
            p = method.probabilities(step)
            assert p.query.sum() == pytest.approx(1)
            assert p.pair.sum() == pytest.approx(1)
            assert np.allclose(pairs.sum_by_query(p.document)[p.query > 0], 1)

    def test_probabilities_are_positive_where_promised(
        self, name: str, values: dict[str, object], pairs: TrainingPairs
    ) -> None:
        """ft and soft dp promise every pair at every step; sp, rp and sp+dp every pair they kept."""
        method = make(name, values, pairs)
        for step in range(0, 50, 10):
            drawn = method.draw(step).pair_ids
            method.observe(drawn, np.linspace(-1, 1, 8), np.linspace(0, 9, 8))
            p = method.probabilities(step).pair
            assert (p >= 0).all()
            if name == "ft" or (name == "dp" and values.get("soft", True)):
                assert (p > 0).all()
            if name in ("sp", "sp+cbs", "rp", "sp+dp"):
                assert np.array_equal(p > 0, method.kept)

    def test_drawn_frequencies_match_the_probabilities(
        self, name: str, values: dict[str, object], pairs: TrainingPairs
    ) -> None:
        """χ² over many runs that differ in seed alone; the scores stay fixed, so the probabilities do."""
        if name == "rp":
            pytest.skip("what rp keeps is itself random; sp runs the same code with a fixed choice")
        counts = np.zeros(pairs.n_pairs)
        for seed in range(400):
            method = make(name, values, pairs, batch=4, steps=10**9, seed=seed)  # the schedule stands still
            see_all(method)
            for step in range(5):
                np.add.at(counts, method.draw(step).pair_ids, 1)
        method = make(name, values, pairs, steps=10**9)
        see_all(method)
        expected = method.probabilities(0).pair
        possible = expected > 0
        assert counts[~possible].sum() == 0
        assert chisquare(counts[possible], expected[possible] * counts.sum()).pvalue > 1e-4

    def test_same_seed_same_draws(self, name: str, values: dict[str, object], pairs: TrainingPairs) -> None:
        runs = [
            [make_method.draw(s).pair_ids.tolist() for s in range(20)]
            for make_method in (make(name, values, pairs), make(name, values, pairs))
        ]
        other = make(name, values, pairs, seed=1)
        assert runs[0] == runs[1]
        assert runs[0] != [other.draw(s).pair_ids.tolist() for s in range(20)]

    def test_state_round_trips(self, name: str, values: dict[str, object], pairs: TrainingPairs) -> None:
        rng = np.random.default_rng(1)
        first = make(name, values, pairs)
        for step in range(13):
            drawn = first.draw(step).pair_ids
            first.observe(drawn, rng.random(8), rng.random(8))
        second = make(name, values, pairs)
        second.load_state_dict(first.state_dict())
        for step in range(13, 40):
            a, b = first.draw(step), second.draw(step)
            assert a.pair_ids.tolist() == b.pair_ids.tolist()
            assert a.weights.tolist() == b.weights.tolist()
            seen = rng.random(8), rng.random(8)
            first.observe(a.pair_ids, *seen)
            second.observe(b.pair_ids, *seen)

    @pytest.mark.parametrize("counts", [[5], [1], [1] * 9, [50, 1]])
    def test_small_data(self, name: str, values: dict[str, object], counts: list[int]) -> None:
        pairs = make_pairs(counts)
        if math.floor(float(str(values.get("k", 1))) * pairs.n_pairs) == 0:
            with pytest.raises(SettingError, match="all are pruned"):
                make(name, values, pairs)
            return
        method = make(name, values, pairs)
        for step in range(12):
            assert len(method.draw(step).pair_ids) == 8
        assert method.probabilities(12).pair.sum() == pytest.approx(1)

    @pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 3.4e38, 1e-45])
    def test_equal_and_extreme_scores(
        self, name: str, values: dict[str, object], pairs: TrainingPairs, value: float
    ) -> None:
        method = METHODS[name]
        same = np.full(pairs.n_pairs, value, dtype=np.float32)
        made = method(pairs, Plan(0, 50, 8), method.settings_class.parse(values), PairScores(pairs, same, same, same))
        for step in range(10):
            drawn = made.draw(step).pair_ids
            made.observe(drawn, same[drawn], same[drawn])
        p = made.probabilities(10).pair
        assert np.isfinite(p).all()
        assert p.sum() == pytest.approx(1)


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
        drawn = method.draw(step).pair_ids
        method.observe(drawn, similarity[step % pairs.n_pairs :][:batch], loss[step % pairs.n_pairs :][:batch])
        p = method.probabilities(step)
        assert p.pair.sum() == pytest.approx(1)
        assert (p.pair[drawn] > 0).all() or variant[0] in ("dp", "sp+dp", "infobatch")  # a step may span two rankings


def test_registry_names_are_the_methods_own() -> None:
    assert all(method_named(name).name == name for name in METHODS)
    with pytest.raises(SettingError, match="did you mean 'sp'"):
        method_named("spp")
