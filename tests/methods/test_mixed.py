"""A method for each of several sets: quotas, and the checks that every method passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opera.core.settings import Settings
from opera.data.pairs import TrainingPairs
from opera.methods import METHODS, Method, PairScores, Plan
from opera.methods.mixed import MixedMethod, Mixture
from opera.methods.testing import check_method
from worlds import make_pairs, make_scores


def in_two(method_class: type[Method[Any]], *, one_set: bool) -> type[Method[Any]]:
    """The class that takes the first third of the queries as one set, and the rest as another."""

    class InTwo(MixedMethod):
        name, title, settings_class = method_class.name, method_class.title, method_class.settings_class
        needs_scores, cbs_pool_size = method_class.needs_scores, method_class.cbs_pool_size

        def __init__(
            self, pairs: TrainingPairs, plan: Plan, settings: Settings, scores: PairScores | None = None
        ) -> None:
            if scores is None and method_class.needs_scores(settings):
                raise ValueError("needs scores")
            mixture = two_sets(pairs, one_set=one_set)
            super().__init__(method_class, pairs, plan, settings, scores, mixture)

        @classmethod
        def check(cls, settings: Settings, n_queries: int, n_pairs: int) -> None:
            for queries, documents in ((n_queries // 3, n_pairs // 3), (n_queries, n_pairs)):
                method_class.check(settings, max(1, queries), max(1, documents))

    return InTwo


def two_sets(pairs: TrainingPairs, *, one_set: bool = False) -> Mixture:
    cut = max(1, pairs.n_queries // 3)
    bounds = [0, cut, pairs.n_queries] if cut < pairs.n_queries else [0, pairs.n_queries]
    counts = np.diff(pairs.query_offsets[bounds])
    return Mixture(np.array(bounds), counts / counts.sum(), one_set)


@pytest.mark.parametrize("one_set", [False, True], ids=["mixed", "one set per step"])
@pytest.mark.parametrize("name", ["ft", "sp", "infobatch", "dp"])
def test_it_passes_the_checks(name: str, one_set: bool) -> None:
    method_class = METHODS[name]
    check_method(in_two(method_class, one_set=one_set), method_class.settings_class())


@pytest.mark.parametrize("one_set", [False, True])
@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.9, 0.1), (0.999, 0.001), (0.2, 0.3, 0.5)])
def test_sets_are_drawn_by_their_shares(shares: tuple[float, ...], one_set: bool) -> None:
    pairs = make_pairs([3] * 30)
    bounds = np.linspace(0, 30, len(shares) + 1).astype(int)
    mixture = Mixture(bounds, np.array(shares), one_set)
    steps, batch = 400, 16
    made = MixedMethod(METHODS["ft"], pairs, Plan(0, steps, batch), METHODS["ft"].settings_class(), None, mixture)
    counts = np.zeros(len(shares))
    for step in range(steps):
        owner = np.searchsorted(mixture.first_pairs(pairs), made.draw(step).pair_ids, side="right") - 1
        counts += np.bincount(owner, minlength=len(shares))
        assert not one_set or len(set(owner.tolist())) == 1
        off = np.abs(counts - np.array(shares) * (step + 1) * batch)
        assert off.max() <= (batch if one_set else 1) * len(shares)


def test_a_set_sees_its_own_pairs_alone() -> None:
    pairs, method_class = make_pairs([2] * 12), METHODS["dp"]
    made = MixedMethod(
        method_class, pairs, Plan(0, 20, 8), method_class.settings_class(), make_scores(pairs), two_sets(pairs)
    )
    before = made.similarity.copy()
    made.observe(np.array([0, 23]), np.array([0.5, -0.5]), np.array([1.0, 1.0]))
    changed = np.flatnonzero(made.similarity != before)
    assert changed.tolist() == [0, 23]
    assert sorted(made.schedule(0))[0].endswith("_1")
