"""Each equation against the paper, and each method against the plain way of computing it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opera.core.errors import SettingError
from opera.data.pairs import TrainingPairs
from opera.methods import METHODS, PairScores
from opera.methods._order_statistics.query_ranking import QueryRanking
from opera.methods._order_statistics.sorted_values import SortedValues
from opera.methods.dynamic import (
    DynamicPruning,
    DynamicSettings,
    document_threshold,
    document_weights,
    query_scores,
)
from opera.methods.infobatch import infobatch_probabilities, kept_of_learned, learned_queries
from opera.methods.schedules import cosine_schedule, top_ratio, virtual_dataset_size
from opera.methods.selection import keep_best_pairs, keep_highest
from opera.methods.static import StaticSettings
from worlds import make, make_pairs, make_scores, mixed_pairs, top_k_of


@pytest.fixture
def pairs() -> TrainingPairs:
    return mixed_pairs()


class TestSchedules:
    def test_cosine_runs_from_start_to_end(self) -> None:
        assert cosine_schedule(2, 5, 0, 100) == 2
        assert cosine_schedule(2, 5, 100, 100) == 5
        assert cosine_schedule(2, 5, 50, 100) == pytest.approx(3.5)

    def test_ratio_runs_from_a_quarter_to_053_forward_and_back(self) -> None:
        n = 100_000
        pool = virtual_dataset_size(n, 2, 0.25)
        assert pool == 62_500
        assert top_ratio(2, pool, n) == pytest.approx(0.25)
        assert top_ratio(5, pool, n) == pytest.approx(0.53125)

    @given(st.floats(1.01, 10), st.floats(1.0, 5), st.floats(0.01, 0.99))
    def test_top_and_rest_inclusion_differ_by_alpha(self, low: float, factor: float, ratio: float) -> None:
        n, alpha = 1.0, low * factor
        pool = n * (1 - ratio) / low + ratio * n
        r = top_ratio(alpha, pool, 1)
        assert 0 < r < 1
        assert (pool - r) / (1 - r) == pytest.approx(1 / alpha)

    def test_impossible_schedules_are_refused_with_the_numbers(self) -> None:
        with pytest.raises(SettingError, match=r"alpha_start=1\.0, alpha_end=5\.0.* r=.*=1 "):
            DynamicPruning.check(DynamicSettings(alpha_start=1, alpha_end=5), 100, 1000)
        with pytest.raises(SettingError, match="update_interval: must be 1 or more"):
            DynamicPruning.check(DynamicSettings(update_interval=0), 100, 1000)
        DynamicPruning.check(DynamicSettings(alpha_start=1, alpha_end=1), 100, 1000)


class TestStatic:
    def test_sp_keeps_the_highest(self, pairs: TrainingPairs) -> None:
        method = make("sp", {"k": 0.33}, pairs)
        scores = make_scores(pairs).similarity
        keep = method.kept
        assert keep.sum() == math.floor(0.33 * pairs.n_pairs)
        assert scores[keep].min() > scores[~keep].max()

    @given(st.lists(st.integers(0, 5), min_size=1, max_size=50), st.floats(0.01, 1))
    def test_keep_counts_are_exact_even_with_ties(self, values: list[int], share: float) -> None:
        count = math.floor(share * len(values))
        keep = keep_highest(np.array(values, dtype=float), count)
        assert keep.sum() == count
        if 0 < count < len(values):
            assert np.array(values)[keep].min() >= np.array(values)[~keep].max()

    def test_pruning_everything_is_refused(self) -> None:
        with pytest.raises(SettingError, match="all are pruned"):
            METHODS["sp"].check(StaticSettings(k=0.01), 5, 50)

    def test_rp_depends_on_the_seed_alone(self, pairs: TrainingPairs) -> None:
        keeps = [make("rp", {"k": 0.5}, pairs, seed=s).kept for s in (0, 0, 1)]
        assert np.array_equal(keeps[0], keeps[1])
        assert not np.array_equal(keeps[0], keeps[2])


class TestOrder:
    """The sorted multiset against NumPy's sort."""

    @given(
        st.lists(st.integers(-4, 4), min_size=1, max_size=60),
        st.lists(st.tuples(st.integers(0, 10**6), st.integers(-5, 5)), max_size=60),
    )
    def test_it_is_a_sorted_multiset(self, numbers: list[int], changes: list[tuple[int, int]]) -> None:
        values = np.array(numbers, dtype=np.float32)
        order = SortedValues(values)
        for place, new in changes:
            at = place % len(values)
            order.replace(values[at : at + 1], np.array([new], dtype=np.float32))
            values[at] = new
        assert order.sorted().tolist() == sorted(values.tolist())
        assert [order.kth(rank) for rank in range(len(values))] == sorted(values.tolist())
        for value in (-4, 0, 0.5, 5):
            assert order.count_below(value) == (values < value).sum()
            assert order.count_up_to(value) == (values <= value).sum()

    @pytest.mark.parametrize("kind", ["spread", "ties", "crowded", "drifting", "equal"])
    def test_leaves_and_nodes_split_empty_and_are_laid_out_anew(self, kind: str) -> None:
        rng = np.random.default_rng(0)

        def draw(count: int, round: int) -> np.ndarray:
            made = {
                "spread": rng.normal(size=count),
                "ties": rng.integers(0, 3, count),
                "crowded": 1e-4 * rng.normal(size=count),
                "drifting": rng.normal(size=count) + round,
                "equal": np.full(count, float(round)),
            }
            return made[kind].astype(np.float32)

        values = rng.normal(size=70_000).astype(np.float32)
        order = SortedValues(values)
        for round in range(40):
            at = rng.choice(len(values), 7_000, replace=False)
            new = draw(len(at), round)
            order.replace(values[at], new)
            values[at] = new
            ranks = rng.integers(len(values), size=5)
            expected = np.sort(values)
            assert [order.kth(int(rank)) for rank in ranks] == expected[ranks].tolist()
            value = float(expected[ranks[0]])
            assert order.count_below(value) == np.searchsorted(expected, value)
            assert order.count_up_to(value) == np.searchsorted(expected, value, side="right")
        assert len(order) == len(values)
        assert order.nbytes < 8 * len(values)

    def test_numbers_that_are_not_there_are_refused(self) -> None:
        order = SortedValues(np.array([1.0, 2.0]))
        with pytest.raises(KeyError, match=r"3\.0 is not among the numbers"):
            order.replace(np.array([3.0]), np.array([4.0]))
        with pytest.raises(IndexError, match="rank 2 of 2"):
            SortedValues(np.array([1.0, 2.0])).kth(2)

    @given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.integers(0, 2**31))
    def test_a_ranking_kept_up_to_date_is_the_one_made_anew(self, counts: list[int], seed: int) -> None:
        pairs, rng = make_pairs(counts), np.random.default_rng(seed)
        scores = make_scores(pairs, seed)
        ranking = QueryRanking(pairs, scores.loss, -1)
        for _ in range(5):
            drawn = rng.integers(pairs.n_pairs, size=8)
            change = scores.observe(drawn, rng.random(8), rng.integers(3, size=8))
            ranking.update(pairs.pair_query[change.pair_ids])
            assert np.array_equal(ranking.scores(), (-scores.mean_loss()).astype(np.float32))
            for count in (0, 1, len(counts) // 2, len(counts)):
                assert ranking.top_k(count) == top_k_of(ranking.scores(), count)


class TestDynamic:
    def test_query_scores_are_means_over_a_querys_pairs(self, pairs: TrainingPairs) -> None:
        scores = make_scores(pairs)
        means = [scores.loss[pairs.pair_query == q].mean(dtype=np.float64) for q in range(pairs.n_queries)]
        assert np.allclose(query_scores(scores, "loss"), means)
        assert np.allclose(query_scores(scores, "negative_loss"), -np.array(means))

    def test_observations_overwrite_and_the_last_of_a_pair_counts(self, pairs: TrainingPairs) -> None:
        scores = make_scores(pairs)
        scores.observe(np.array([3, 5, 3]), np.array([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 3.0]))
        assert scores.similarity[[3, 5]].tolist() == pytest.approx([0.3, 0.2])
        assert scores.loss[[3, 5]].tolist() == pytest.approx([3.0, 2.0])

    def test_thresholds_are_those_found_by_looking_at_every_score(self, pairs: TrainingPairs) -> None:
        """Both thresholds, after each of many observations, against NumPy over all queries and pairs."""
        rng = np.random.default_rng(0)
        for kind in ("negative_loss", "loss", "similarity"):
            method = make("dp", {"query_score": kind}, pairs, steps=30)
            assert isinstance(method, DynamicPruning)
            for step in range(30):
                drawn = method.draw(step).pair_ids
                scores, schedule = method.scores, method.schedule(step)
                count = math.floor(schedule["r"] * pairs.n_queries)
                top = top_k_of(query_scores(scores, kind).astype(np.float32), count)  # type: ignore[arg-type]
                assert schedule["query_threshold"] == pytest.approx(float(top.threshold), rel=1e-5)
                similarity = scores.similarity.astype(np.float64)
                assert schedule["document_threshold"] == pytest.approx(np.quantile(similarity, 1 - schedule["v"]))
                method.observe(drawn, rng.uniform(-1, 1, 8), rng.exponential(2, 8))

    def test_the_state_is_small(self) -> None:
        pairs = make_pairs([1, 2, 1] * 4000)
        method = make("dp", {}, pairs)
        assert isinstance(method, DynamicPruning)
        assert method.state_bytes <= 16 * (pairs.n_pairs + pairs.n_queries)

    @given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.data())
    def test_top_queries_are_exactly_so_many_of_the_highest(self, values: list[int], data: st.DataObject) -> None:
        count = data.draw(st.integers(0, len(values)))
        score = np.array(values, dtype=np.float32)
        chances = top_k_of(score, count).chances(score)
        assert chances.sum() == pytest.approx(count)
        if 0 < count < len(values):
            assert score[chances > 0].min() >= score[chances < 1].max()
            assert len(np.unique(score[(chances > 0) & (chances < 1)])) <= 1

    def test_thresholds_are_numpys_quantiles(self, pairs: TrainingPairs) -> None:
        similarity = make_scores(pairs).similarity
        assert document_threshold(pairs, similarity, 0.25)[0] == np.quantile(similarity.astype(np.float64), 0.75)
        own = document_threshold(pairs, similarity, 0.3, "per_query")
        for query in range(pairs.n_queries):
            assert own[query] == pytest.approx(np.quantile(similarity[pairs.pair_query == query], 0.7), abs=1e-6)

    def test_weights_are_beta_and_one(self) -> None:
        high = np.array([True, False])
        assert document_weights(high, 5.0).tolist() == [5, 1]
        assert document_weights(high, 5.0, soft=False).tolist() == [1, 0]

    def test_soft_keeps_every_pair_possible(self, pairs: TrainingPairs) -> None:
        assert (make("dp", {}, pairs).probabilities(0).pair > 0).all()

    def test_alpha_is_the_ratio_of_top_to_rest(self) -> None:
        method = make("dp", {}, make_pairs([2] * 10_000))
        for step, alpha in ((0, 2.0), (50, 5.0)):
            method._find_top_and_threshold(step)
            method._refreshes = 1
            query = method.probabilities(step).query
            assert query.max() / query.min() == pytest.approx(alpha, rel=1e-3)

    def test_observations_move_the_ranking(self) -> None:
        pairs = make_pairs([1] * 100)
        method = make("dp", {}, pairs)
        method.draw(0)
        lowest = int(method.probabilities(0).query.argmin())
        method.observe(np.array([lowest]), np.array([1.0]), np.array([0.0]))
        method.draw(1)
        assert method.probabilities(1).query[lowest] == method.probabilities(1).query.max()

    def test_interval_freezes_the_ranking_between_refreshes(self) -> None:
        pairs = make_pairs([1] * 100)
        method = make("dp", {"update_interval": 5}, pairs)
        method.draw(0)
        before = method.probabilities(0).query
        method.observe(np.arange(100), np.ones(100), np.arange(100.0))
        method.draw(1)
        assert np.array_equal(method.probabilities(1).query, before)
        for step in range(2, 6):
            method.draw(step)
        assert not np.array_equal(method.probabilities(5).query, before)

    def test_an_epoch_visits_every_top_query_once(self) -> None:
        pairs = make_pairs([1] * 64)
        method = make("dp", {"update_interval": "epoch"}, pairs, batch=8)
        pool = method.pool_size
        assert pool == 40
        drawn = np.concatenate([method.draw(step).pair_ids for step in range(pool // 8)])
        assert len(np.unique(drawn)) == pool
        top = np.flatnonzero(method.probabilities(0).query == 1 / pool)
        assert set(top) <= set(drawn)


class TestInfoBatch:
    def test_a_pass_prunes_only_learned_queries_and_weighs_those_it_keeps(self) -> None:
        pairs = make_pairs([2] * 100)
        method = make("infobatch", {"rho": 0.25}, pairs, batch=29, steps=10**6)
        loss = np.repeat(np.arange(100.0), 2)
        method.observe(np.arange(200), np.zeros(200), loss)
        draws = [method.draw(step) for step in range(3)]  # one pass: 50 above the mean, 37 of the 50 below
        queries = pairs.pair_query[np.concatenate([d.pair_ids for d in draws])]
        weights = np.concatenate([d.weights for d in draws])
        assert len(np.unique(queries)) == 87
        assert np.array_equal(weights == 1, queries >= 50)
        assert np.allclose(weights[queries < 50], 1 / 0.75)
        p = method.probabilities(0)
        assert p.query[99] == pytest.approx(1 / 87)
        assert p.query[0] == pytest.approx(37 / 50 / 87)
        assert p.weight[0] == pytest.approx(1 / 0.75)

    @given(st.lists(st.floats(0, 20, width=32), min_size=2, max_size=60), st.sampled_from([0.25, 0.5, 0.75]))
    def test_the_weighted_expectation_is_the_full_datas_loss(self, losses: list[float], rho: float) -> None:
        """Over one pass, Σ P·w·loss times the pass's size is the sum over all queries, but for rounding kept down."""
        pairs = make_pairs([1] * len(losses))
        loss = np.array(losses)
        learned = learned_queries(loss)
        p = infobatch_probabilities(pairs, learned, rho)
        kept = kept_of_learned(int(learned.sum()), rho)
        size = len(losses) - learned.sum() + kept
        rounding = kept / ((1 - rho) * learned.sum()) if learned.any() else 1.0
        expected = loss[~learned].sum() + rounding * loss[learned].sum()
        assert size * (p.pair * p.weight * loss).sum() == pytest.approx(expected)
        if (1 - rho) * learned.sum() == kept:
            assert expected == pytest.approx(loss.sum())

    def test_the_mean_over_many_passes_is_the_full_datas_loss(self) -> None:
        pairs = make_pairs([1] * 40)
        loss = np.random.default_rng(0).exponential(2.0, 40)
        learned = learned_queries(loss)
        kept = kept_of_learned(int(learned.sum()), 0.5)
        sums = []
        for seed in range(300):
            method = make("infobatch", {"rho": 0.5}, pairs, batch=1, steps=10**6, seed=seed)
            method.observe(np.arange(40), np.zeros(40), loss)
            draws = [method.draw(step) for step in range(40 - int(learned.sum()) + kept)]
            sums.append(sum(float(d.weights[0]) * loss[d.pair_ids[0]] for d in draws))
        expected = loss[~learned].sum() + kept / (0.5 * learned.sum()) * loss[learned].sum()
        assert np.mean(sums) == pytest.approx(expected, abs=3 * np.std(sums) / np.sqrt(len(sums)))

    def test_equal_losses_are_none_below_their_mean(self) -> None:
        for value in (0.1, 1 / 3, 3.4e38, 0.0):
            for n in (1, 3, 7, 1000):
                assert not learned_queries(np.full(n, value)).any()

    def test_annealing_fires_at_delta_of_the_steps_and_resets_the_weights(self) -> None:
        pairs = make_pairs([1] * 40)
        method = make("infobatch", {"rho": 0.5, "delta": 0.5}, pairs, batch=4, steps=41)
        method.observe(np.arange(40), np.zeros(40), np.arange(40.0))
        draws = [method.draw(step) for step in range(41)]
        assert any((d.weights > 1).any() for d in draws[:21])
        assert all((d.weights == 1).all() for d in draws[21:])
        assert sorted(np.concatenate([d.pair_ids for d in draws[21:31]])) == list(range(40))  # a whole new pass

    def test_what_was_never_seen_is_not_learned(self) -> None:
        """The last step of the first pass has not been observed when the second pass begins within it."""
        pairs = make_pairs([1] * 100)
        method = make("infobatch", {}, pairs, batch=64, steps=10**6)
        first = method.draw(0)
        method.observe(first.pair_ids, np.zeros(64), np.linspace(3, 5, 64))
        second = method.draw(1)
        unseen = np.setdiff1d(np.arange(100), pairs.pair_query[first.pair_ids])
        learned = method.state_dict()["learned"]
        assert learned.sum() == 32
        assert not learned[unseen].any()
        assert (second.weights[:36] == 1).all()

    def test_the_latest_loss_counts(self) -> None:
        pairs = make_pairs([3, 1])
        method = make("infobatch", {}, pairs)
        method.observe(np.array([0, 3, 2]), np.zeros(3), np.array([9.0, 5.0, 1.0]))
        assert method.state_dict()["loss"].tolist() == [1.0, 5.0]


class TestTwoStages:
    def test_nothing_pruned_is_drawn_and_dp_runs_over_the_rest(self, pairs: TrainingPairs) -> None:
        method = make("sp+dp", {"k": 0.4}, pairs)
        keep = make("sp", {"k": 0.4}, pairs).kept
        p = method.probabilities(0)
        assert np.array_equal(p.pair > 0, keep)
        for step in range(20):
            assert keep[method.draw(step).pair_ids].all()
        kept_queries = len(np.unique(pairs.pair_query[keep]))
        assert method.summary()["pool_size"] == virtual_dataset_size(kept_queries, 2, 0.25)

    def test_with_everything_kept_it_is_dp(self, pairs: TrainingPairs) -> None:
        both, alone = make("sp+dp", {"k": 1.0}, pairs), make("dp", {}, pairs)
        for step in range(20):
            a, b = both.draw(step).pair_ids, alone.draw(step).pair_ids
            assert a.tolist() == b.tolist()
            both.observe(a, np.linspace(-1, 1, 8), np.linspace(0, 9, 8))
            alone.observe(b, np.linspace(-1, 1, 8), np.linspace(0, 9, 8))

    def test_cbs_goes_before_similarity(self) -> None:
        pairs = make_pairs([4])
        scores = PairScores(pairs, np.array([0.9, 0.1, 0.2, 0.8]), np.zeros(4), np.array([0.5, 1.0, 1.0, 0.5]))
        assert keep_best_pairs(scores, "cbs", 1).tolist() == [False, False, True, False]
        assert keep_best_pairs(scores, "cbs", 3).tolist() == [True, True, True, False]
        assert keep_best_pairs(scores, "similarity", 1).tolist() == [True, False, False, False]

    def test_subsets_renumber_queries(self) -> None:
        pairs = TrainingPairs.of(np.array([0, 0, 1, 2, 2]), np.array([5, 6, 7, 8, 9]))
        kept, queries = pairs.subset(np.array([True, False, False, True, True]))
        assert kept.pair_query.tolist() == [0, 1, 1]
        assert kept.pair_doc.tolist() == [5, 8, 9]
        assert queries.tolist() == [0, 2]
