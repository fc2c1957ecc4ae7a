"""Checks for every method. Call them in the tests of your method:

from opera.methods.testing import check_method

def test_my_method() -> None:
    check_method(MyMethod, MySettings(power=2))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from opera.core.rng import generator
from opera.core.settings import Settings
from opera.data.pairs import TrainingPairs
from opera.methods.base import Draw, Method, PairScores, Plan

POSITIVES = (1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 2, 9, 3, 3, 3, 12)
"""Positive documents of each query."""
STEPS, BATCH = 50, 8

AnyMethod = type[Method[Any]]


def check_method(method_class: AnyMethod, settings: Settings) -> None:
    """Run all checks of this module.

    Raises:
        AssertionError: from the first check that fails.
    """
    for check in (check_probabilities, check_training, check_draws, check_resume):
        check(method_class, settings)


def check_probabilities(method_class: AnyMethod, settings: Settings) -> None:
    """Check that probabilities sum to one at every step, and are 0 for pruned pairs."""
    method = _method(method_class, settings)
    for step, _ in _train(method, range(STEPS)):
        p = method.probabilities(step)
        documents = method.pairs.sum_by_query(p.document)[p.query > 0]
        sums = [p.query.sum(), p.pair.sum(), *documents]
        np.testing.assert_allclose(sums, 1, 1e-9, err_msg="probabilities must sum to one")
        assert min(p.query.min(), p.document.min()) >= 0, "probabilities must not be negative"
        assert not p.pair[~method.kept].any(), "pairs that are not kept must have probability 0"


def check_draws(method_class: AnyMethod, settings: Settings) -> None:
    """Check that draws follow the probabilities, by a χ² test over 100 seeds (p ≥ 0.0001).

    Scores and schedule are fixed. Draws must be independent, or more even than that, such as
    shuffled passes. A correct method that samples related pairs together may fail.
    """
    from scipy.stats import chisquare

    counts, expected = np.zeros((2, sum(POSITIVES)))
    for seed in range(100):
        method = _method(method_class, settings, seed, steps=10**9)
        latest = _scores(method.pairs, seed=1)
        method.observe(np.arange(method.pairs.n_pairs), latest.similarity, latest.loss)
        for step in range(10):
            counts += np.bincount(method.draw(step).pair_ids, minlength=len(counts))
            expected += BATCH * method.probabilities(step).pair
    assert not counts[expected == 0].any(), "pairs with probability 0 must not be sampled"
    # χ² needs five expected draws per cell, so the first cell joins all rarer pairs.
    order = np.argsort(expected)
    rarer = int(np.searchsorted(expected[order], 5))
    cells = np.append(0, np.arange(rarer + 1, len(order)))
    observed, predicted = (np.add.reduceat(draws[order], cells) for draws in (counts, expected))
    p_value = chisquare(observed, predicted).pvalue
    assert p_value >= 1e-4, f"draws must follow the probabilities: p = {p_value:.2g} in a χ² test"


def check_resume(method_class: AnyMethod, settings: Settings) -> None:
    """Check that a method with a loaded state continues with the same draws."""
    for finished in (1, 13):
        first, second = _method(method_class, settings), _method(method_class, settings)
        list(_train(first, range(finished)))
        second.load_state_dict(_as_saved(first.state_dict()))
        second.visits.load_state_dict(_as_saved(first.visits.state_dict()))
        left = range(finished, STEPS)
        for (_, draw), (_, other) in zip(_train(first, left), _train(second, left), strict=True):
            np.testing.assert_equal(
                vars(other), vars(draw), "a resumed method must sample the same pairs"
            )


def check_training(method_class: AnyMethod, settings: Settings) -> None:
    """Check that draws depend on seed and step only, and have the types that the trainer expects.

    The trainer reads the method between draws, which must not change the draws.
    """
    method, watched = _method(method_class, settings), _method(method_class, settings)
    names, steps = method.schedule(0).keys(), range(STEPS)
    for (step, draw), (_, other) in zip(_train(method, steps), _train(watched, steps), strict=True):
        np.testing.assert_equal(vars(other), vars(draw), "the same seed must sample the same pairs")
        types = [(value.dtype.name, value.shape) for value in vars(draw).values()]
        expected = [("int64", (BATCH,)), ("float32", (BATCH,))]
        assert types == expected, f"pair_ids and weights must be {expected}, not {types}"
        assert 0 < draw.weights.min() <= draw.weights.max() < np.inf, "weights must be positive"
        watched.probabilities(step)
        watched.state_dict()
        assert watched.schedule(step).keys() == names, "a schedule must keep its names"


def _method(
    method_class: AnyMethod, settings: Settings, seed: int = 0, steps: int = STEPS
) -> Method[Any]:
    queries = np.repeat(np.arange(len(POSITIVES)), POSITIVES)
    pairs = TrainingPairs.from_arrays(queries, np.arange(len(queries)))
    method_class.check(settings, pairs.n_queries, pairs.n_pairs)
    return method_class(pairs, Plan(seed, steps, BATCH), settings, _scores(pairs))


def _scores(pairs: TrainingPairs, seed: int = 0) -> PairScores:
    rng = generator(seed, "testing.scores")
    similarity, loss = rng.uniform(-1, 1, pairs.n_pairs), rng.exponential(2.0, pairs.n_pairs)
    return PairScores(pairs, similarity, loss, 1 / rng.integers(1, 5, pairs.n_pairs))


def _train(method: Method[Any], steps: Iterable[int]) -> Iterator[tuple[int, Draw]]:
    """Yield each step with its draw, then report random observations to the method."""
    for step in steps:
        draw = method.draw(step)
        yield step, draw
        values = generator(step, "testing.batch").random((3, len(draw.pair_ids)), np.float32)
        method.visits.record(step, draw.pair_ids, values[0])
        method.observe(draw.pair_ids, 2 * values[1] - 1, 4 * values[2])


def _as_saved(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state as a checkpoint would return it, with numbers as arrays."""
    saved = {
        name: _as_saved(value) if isinstance(value, Mapping) else np.array(value)
        for name, value in state.items()
    }
    objects = [name for name, value in saved.items() if getattr(value, "dtype", "") == np.object_]
    assert not objects, f"state_dict must hold arrays and numbers, not {objects}"
    return saved
