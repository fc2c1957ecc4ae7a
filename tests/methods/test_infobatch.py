"""InfoBatch: learned queries, passes, loss weights and annealing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opera.methods.infobatch import infobatch_probabilities, kept_of_learned, learned_queries
from worlds import make, make_pairs


def test_a_pass_prunes_only_learned_queries_and_weighs_those_it_keeps():
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


@given(st.lists(st.floats(0, 20, width=32), min_size=2, max_size=60), st.sampled_from([0.25, 0.5, 0.75]))
def test_the_weighted_expectation_is_the_full_datas_loss(losses, rho):
    """Over one pass, Σ P·w·loss times the pass's size is the sum over all queries, but for rounding kept down."""
    pairs = make_pairs([1] * len(losses))
    loss = np.array(losses)
    learned = learned_queries(loss)
    p = infobatch_probabilities(pairs, learned, rho)
    kept = kept_of_learned(int(learned.sum()), rho)
    size = len(losses) - learned.sum() + kept
    rounding = kept / ((1 - rho) * learned.sum()) if learned.any() else 1.0
    expected = loss[~learned].sum() + rounding * loss[learned].sum()
    weight = np.where(learned, 1 / (1 - rho), 1.0)
    assert size * (p.pair * weight * loss).sum() == pytest.approx(expected)
    if (1 - rho) * learned.sum() == kept:
        assert expected == pytest.approx(loss.sum())


def test_equal_losses_are_none_below_their_mean():
    for value in (0.1, 1 / 3, 3.4e38, 0.0):
        for n in (1, 3, 7, 1000):
            assert not learned_queries(np.full(n, value)).any()


def test_annealing_fires_at_delta_of_the_steps_and_resets_the_weights():
    pairs = make_pairs([1] * 40)
    method = make("infobatch", {"rho": 0.5, "delta": 0.5}, pairs, batch=4, steps=41)
    method.observe(np.arange(40), np.zeros(40), np.arange(40.0))
    draws = [method.draw(step) for step in range(41)]
    assert any((d.weights > 1).any() for d in draws[:21])
    assert all((d.weights == 1).all() for d in draws[21:])
    assert sorted(np.concatenate([d.pair_ids for d in draws[21:31]])) == list(range(40))  # a whole new pass


def test_what_was_never_seen_is_not_learned():
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


def test_the_latest_loss_counts():
    pairs = make_pairs([3, 1])
    method = make("infobatch", {}, pairs)
    method.observe(np.array([0, 3, 2]), np.zeros(3), np.array([9.0, 5.0, 1.0]))
    assert method.state_dict()["loss"].tolist() == [1.0, 5.0]
