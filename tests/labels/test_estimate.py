"""First visits: shares, densities and probabilities against simulated labels, and what denoise makes of them."""

import numpy as np
import pytest
import torch

from opera.data.pairs import TrainingPairs
from opera.labels.estimate import (
    FEWEST,
    FirstVisits,
    beside_siblings,
    estimate,
    noise_interval,
    noise_rate,
    probability_wrong,
)
from opera.methods import METHODS, Plan
from opera.training.loss import p_values
from worlds import make_pairs


def visited(p: np.ndarray, step: np.ndarray, first_pairs: np.ndarray | None = None) -> FirstVisits:
    visits = FirstVisits.none(len(p), first_pairs)
    visits.p[:], visits.step[:] = p, step
    return visits


def simulated(
    n_queries: int, rate: float, seed: int = 0, steps: int = 50
) -> tuple[TrainingPairs, FirstVisits, np.ndarray]:
    """Pairs some of which are wrong: their ranks are uniform, those of correct pairs near the top."""
    rng = np.random.default_rng(seed)
    pairs = make_pairs([4] * n_queries, 10_000)
    wrong = rng.random(pairs.n_pairs) < rate
    p = np.where(wrong, rng.random(pairs.n_pairs), rng.beta(0.3, 12, pairs.n_pairs))
    step = rng.permutation(np.arange(pairs.n_pairs) * steps // pairs.n_pairs)
    return pairs, visited(p, step), wrong


@pytest.mark.parametrize("others", [1, 2, 6, 7, 100])
def test_the_share_of_uniform_ranks_is_one_whatever_the_size_of_the_batch(others):
    # A random document has each of the ranks 0 to `others` equally often.
    p = (np.arange(others + 1) + 0.5) / (others + 1)
    assert noise_rate(p) == pytest.approx(1)
    assert noise_rate(np.ones(3)) == 1


def test_p_values_rank_the_pair_among_the_other_documents():
    similarity = torch.tensor([[0.5, 0.9, 0.1, 0.5], [0.9, 0.8, 0.1, 0.2]])
    known = torch.tensor([[False, False, False, False], [True, False, False, False]])
    # Of three others one is above and one equal; of the two that are no known positives none is above.
    assert p_values(similarity, known).tolist() == pytest.approx([(1.5 + 0.5) / 4, 0.5 / 3])
    assert p_values(similarity[:, 1:], None, first_column=1).tolist() == pytest.approx([(2 + 0.5) / 3, (1 + 0.5) / 3])
    assert p_values(torch.ones(1, 1), None).isnan().all()


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3, 0.5])
def test_the_rate_and_probabilities_are_near_the_truth(rate):
    pairs, visits, wrong = simulated(1000, rate)
    result = estimate(pairs, visits, np.ones(pairs.n_pairs, dtype=bool))
    assert result.noise_rate == pytest.approx(rate, abs=0.05)  # 4,000 pairs: a standard error of 0.016
    assert result.low <= result.noise_rate <= result.high
    p = result.probability_wrong.astype(float)
    assert p[wrong].sum() + (1 - p)[~wrong].sum() > 0.85 * len(p)
    listed = list(zip(p[result.suspicious], visits.p[result.suspicious], strict=True))
    assert listed == sorted(listed, reverse=True), "worst first"
    # Calibrated: where it says p, about p of the pairs are wrong.
    for low, high in ((0, 0.2), (0.8, 1.01)):
        among = (p >= low) & (p < high)
        if among.sum() > 100:
            assert wrong[among].mean() == pytest.approx(p[among].mean(), abs=0.08)


def test_a_doubtful_pair_beside_a_true_one_is_more_probably_false():
    """Queries of one true and one wrong pair, whose own rank is all that the rate of a half knows."""
    rng = np.random.default_rng(0)
    query, wrong = np.repeat(np.arange(2000), 2), np.tile([True, False], 2000)
    p = np.where(wrong, rng.random(4000), rng.beta(0.3, 12, 4000))
    alone = np.minimum(1, 0.5 / (0.5 + 0.5 * 12 * np.exp(-12 * p)))
    beside = beside_siblings(query, p, alone)
    assert ((beside - wrong) ** 2).mean() < 0.7 * ((alone - wrong) ** 2).mean()
    assert beside[wrong].mean() > alone[wrong].mean()
    assert beside[~wrong].mean() < alone[~wrong].mean()


@pytest.mark.parametrize(
    ("n_pairs", "per_query", "runs"),
    [
        (300, 1, 100),
        (300, 10, 100),
        pytest.param(1000, 1, 400, marks=pytest.mark.slow),
        pytest.param(1000, 10, 400, marks=pytest.mark.slow),
        pytest.param(10_000, 1, 400, marks=pytest.mark.slow),
        pytest.param(10_000, 10, 400, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("rate", [0, 0.005, 0.01, 0.02, 0.1, 0.3])
def test_the_interval_holds_the_rate_also_near_0(rate, n_pairs, per_query, runs):
    pairs, everything = make_pairs([per_query] * (n_pairs // per_query), 20_000), np.ones(n_pairs, dtype=bool)
    held = 0
    for seed in range(runs):
        rng = np.random.default_rng([seed, n_pairs, per_query])
        p = np.where(rng.random(n_pairs) < rate, rng.random(n_pairs), rng.beta(0.5, 30, n_pairs))
        result = estimate(pairs, visited(p, rng.permutation(n_pairs)), everything)
        assert 0 <= result.low <= result.noise_rate < result.high
        assert result.noise_rate > 0 or result.low == 0
        held += result.low <= rate <= result.high
    # The coverage is 95% or more; three standard deviations less.
    assert held >= 0.95 * runs - 3 * (0.95 * 0.05 * runs) ** 0.5


def test_labels_that_are_wrong_together_widen_the_interval():
    """Ten pairs per query, with a rate of each query: 90% wrong in one of three queries, none in the others."""
    widths, held = [], 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        p = rng.beta(0.5, 30, 600)
        alike = np.repeat(rng.random(60) < 1 / 3, 10) & (rng.random(600) < 0.9)
        p = np.where(alike, rng.random(600), p)
        query = np.arange(600)
        intervals = [noise_interval(noise_rate(p), [(1.0, p, of)]) for of in (query // 10, query)]
        widths.append([high - low for low, high in intervals])
        held += intervals[0][0] <= 0.3 <= intervals[0][1]
    by_query, by_pair = np.mean(widths, axis=0)
    # A sum over ten pairs has the variance 10 · ½ · 0.3 · (1 − 0.15) + 90 · ¼ · 0.9² · ⅓ · ⅔, not the first part alone.
    assert by_query / by_pair == pytest.approx(((1.275 + 4.05) / 1.275) ** 0.5, abs=0.15)
    assert held >= 50  # P(fewer of 60 at 95%) = 0.001


def test_each_data_set_is_judged_by_itself_and_what_is_pruned_counts_for_nothing():
    (clean, ranks, _), (_, noisy, _) = simulated(300, 0.0), simulated(300, 0.6, seed=1)
    n = clean.n_pairs
    pairs = make_pairs([4] * 600, 10_000)
    p, step = (np.concatenate([getattr(part, name) for part in (ranks, noisy)]) for name in ("p", "step"))
    visits = visited(p, step, np.array([0, n, 2 * n]))
    result = estimate(pairs, visits, np.ones(pairs.n_pairs, dtype=bool))
    assert result.noise_rate == pytest.approx(0.3, abs=0.04)  # 1,200 pairs of the second: a standard error of 0.014
    assert result.probability_wrong[:n].mean() == pytest.approx(0, abs=0.04)
    assert result.probability_wrong[n:].mean() == pytest.approx(0.6, abs=0.08)
    first = np.arange(2 * n) < n
    assert estimate(pairs, visits, first).noise_rate == pytest.approx(0, abs=0.04)
    visits.p[n:] = np.nan
    pruned = estimate(pairs, visits, first)
    assert pruned.noise_rate == pytest.approx(0, abs=0.04)
    assert pruned.high < 0.1
    assert np.isnan(pruned.probability_wrong[n:]).all()


def test_confirmed_pairs_are_correct_and_what_a_review_removed_counts_for_its_data_set():
    pairs, visits, wrong = simulated(1000, 0.5)
    visits.confirmed[np.flatnonzero(~wrong)[:1000]] = True
    kept = np.ones(pairs.n_pairs, dtype=bool)
    result = estimate(pairs, visits, kept)
    assert result.noise_rate == pytest.approx(0.5, abs=0.05)  # of all 4,000 pairs, as without a review
    assert not result.probability_wrong[visits.confirmed].any()
    visits.first_pairs, visits.removed_excess = np.array([0, 2000, 4000]), [0, 0]
    alone = estimate(pairs, visits, kept).noise_rate
    visits.removed_excess = [0, 300]
    assert estimate(pairs, visits, kept).noise_rate - alone == pytest.approx(300 / 4000)
    assert visits.of_data_set(1).removed_excess == [300]


def test_the_rate_is_that_of_the_later_half_of_the_visits_or_of_the_last_2000():
    """All visits but the last 1,500 look wrong: 500 of the last 2,000, or half of the last 3,000."""
    for count, rate in ((3000, 2 * 500 / 2000), (6000, 2 * 1500 / 3000)):
        numbers = np.arange(count)
        pairs = TrainingPairs.from_arrays(numbers, numbers)
        visits = visited(np.where(numbers < count - 1500, 0.9, 0.01), numbers)
        assert estimate(pairs, visits, np.ones(count, dtype=bool)).noise_rate == pytest.approx(rate)


def test_without_enough_visits_nothing_is_doubted():
    pairs, visits, _ = simulated(1000, 0.5)
    visits.p[FEWEST - 1 :] = np.nan
    assert estimate(pairs, visits, np.ones(pairs.n_pairs, dtype=bool)) is None
    assert not probability_wrong(pairs, visits).any()
    joined = make_pairs([1] * 200 + [2] * 100)  # neither kind of query has enough visits by itself
    assert estimate(joined, visited(np.full(400, 0.1), np.zeros(400)), np.ones(400, dtype=bool)) is not None


def test_pairs_that_are_not_visited_get_the_share_of_their_class():
    few, many = [1] * 1000, [8] * 200
    pairs = TrainingPairs.from_arrays(np.repeat(np.arange(1200), few + many), np.arange(2600))
    rng = np.random.default_rng(0)
    p = np.where(np.arange(2600) < 1000, 0.01, rng.random(2600)).astype(np.float32)
    visits = visited(p, np.zeros(2600))
    visits.p[::10] = np.nan
    result = probability_wrong(pairs, visits)
    assert (result[:1000] == 0).all()
    assert result[1000::10].min() == result[1000::10].max() == pytest.approx(1, abs=0.1)


def test_the_first_of_two_visits_counts_and_parts_share_what_they_see():
    visits = FirstVisits.none(6, np.array([0, 2, 6]))
    part = visits.of_data_set(1)
    part.record(3, np.array([1, 1, 2]), np.array([0.2, 0.9, np.nan], dtype=np.float32))
    visits.record(4, np.array([3, 4]), np.array([0.7, 0.5], dtype=np.float32))
    assert visits.p.tolist() == pytest.approx([np.nan, np.nan, np.nan, 0.2, 0.5, np.nan], nan_ok=True)
    assert visits.step.tolist() == [-1, -1, -1, 3, 4, -1]


def test_repeated_rows_share_their_first_visit():
    visits = FirstVisits.none(5, copies=np.array([0, 1, 0, 2, 1]))
    visits.record(3, np.array([2, 3]), np.array([0.7, 0.2], np.float32))
    visits.record(4, np.array([0, 4]), np.array([0.1, 0.4], np.float32))
    np.testing.assert_array_equal(visits.p, np.array([0.7, 0.4, 0.7, 0.2, 0.4], np.float32))
    assert visits.step.tolist() == [3, 4, 3, 3, 4]
    later = FirstVisits.none(4)
    later.take_over(np.array([1, 7, 2, 1]), visits, visits.copies)
    assert later.step.tolist() == [4, -1, 3, 4]


def test_denoise_draws_as_ft_where_nothing_is_doubted():
    pairs, visits, _ = simulated(200, 0.5)
    visits.p[:] = 0.001
    ft, denoise = (METHODS[name](pairs, Plan(0, 20, 64), METHODS[name].settings_class()) for name in ("ft", "denoise"))
    denoise.visits.load_state_dict(visits.state_dict())
    for step in range(20):
        assert np.array_equal(denoise.draw(step).pair_ids, ft.draw(step).pair_ids)


def test_denoise_draws_are_as_frequent_as_its_probabilities_say():
    """check_draws has no visits; here half of the pairs are doubted."""
    pairs, visits, _ = simulated(300, 0.5)
    counts, expected = np.zeros(pairs.n_pairs), np.zeros(pairs.n_pairs)
    for seed in range(30):
        method = METHODS["denoise"](pairs, Plan(seed, 10, 60), METHODS["denoise"].settings_class())
        method.visits.load_state_dict(visits.state_dict())
        for step in range(10):
            counts += np.bincount(method.draw(step).pair_ids, minlength=pairs.n_pairs)
            expected += 60 * method.probabilities(step).pair
    assert counts.sum() == pytest.approx(expected.sum())
    # Draws are at most as spread as independent ones: 5 standard deviations of a Poisson count.
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected) + 5).all()


@pytest.mark.parametrize(("n_queries", "most"), [(1000, 1), (80, 64)])
def test_denoise_draws_no_query_twice_while_others_look_true(n_queries, most):
    """Half of the queries are wrong: of 1,000 some 500 are left for a batch of 64, of 80 only 40."""
    pairs, true = make_pairs([1] * n_queries, 10_000), np.arange(n_queries) % 2 == 0
    method = METHODS["denoise"](pairs, Plan(0, 1000, 64), METHODS["denoise"].settings_class())
    method.draw(0)
    method.load_state_dict({**method.state_dict(), "correct": np.where(true, 1, 0.01).astype(np.float32)})
    for step in range(1, 20):
        drawn = method.draw(step).pair_ids
        assert np.bincount(drawn).max() <= most
        assert true[drawn].mean() > 0.9


def test_pairs_that_a_review_removed_do_not_lower_the_share_of_the_others():
    """The removed ones ranked low, so those that are left rank high more often than low."""
    rng, count = np.random.default_rng(0), 6000
    wrong = rng.random(count) < 0.3
    p = np.where(wrong, rng.random(count), rng.beta(0.3, 6, count)).astype(np.float32)
    by_rank = np.argsort(-p)
    removed = by_rank[wrong[by_rank]][:700]
    left = np.setdiff1d(np.arange(count), removed)
    numbers = np.arange(len(left))
    shares = {}
    for excess in (0, int((p[removed] > 0.5).sum() - (p[removed] < 0.5).sum())):
        visits = visited(p[left], numbers)
        visits.removed_excess = [excess]
        pairs = TrainingPairs.from_arrays(numbers, numbers)
        result = estimate(pairs, visits, np.ones(len(left), dtype=bool))
        shares[excess] = result.noise_rate
    true = wrong[left].mean()
    assert shares[0] < true - 0.1
    assert abs(shares[700] - true) < 0.03
