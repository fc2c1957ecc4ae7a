"""Quality on hard, medium and easy test queries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grids import RunsFolder
from opera.experiments.analysis import BUCKETS, PRIMARY, analyse_runs, measure_by_difficulty, tertiles


def test_thirds_from_least_to_most_similar() -> None:
    assert tertiles(np.array([0.9, 0.1, 0.5, 0.2, 0.8, 0.4])).tolist() == [2, 0, 1, 0, 2, 1]


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=30))
def test_thirds_are_even_and_in_order(values: list[float]) -> None:
    similarity = np.array(values)
    third = tertiles(similarity)
    sizes = np.bincount(third, minlength=3)
    assert sizes.max() - sizes.min() <= 1
    for low in (0, 1):
        assert similarity[third == low].max() <= similarity[third == low + 1].min()


def test_means_of_each_third_over_the_seeds(folder: RunsFolder) -> None:
    folder.add(seed=0, after=np.arange(9) / 10, similarity=np.arange(9)[::-1])
    folder.add(seed=1, after=np.full(9, 0.2), similarity=np.arange(9))
    (group,) = folder.groups()
    found = measure_by_difficulty(group, PRIMARY)
    assert found == pytest.approx(dict(zip(BUCKETS, [(0.7 + 0.2) / 2, (0.4 + 0.2) / 2, (0.1 + 0.2) / 2], strict=True)))
    assert analyse_runs(folder.home).tables[0].rows[0].difficulty[PRIMARY] == found


def test_runs_of_earlier_versions_and_few_queries_have_none(folder: RunsFolder) -> None:
    folder.add(seed=0, similarity=np.arange(9))
    folder.add(seed=1)
    folder.add(method="dp", after=[0.5, 0.6], queries=["a", "b"], similarity=[0, 1])
    assert [measure_by_difficulty(group, PRIMARY) for group in folder.groups()] == [None, None]
    assert [row.difficulty for row in analyse_runs(folder.home).tables[0].rows] == [{}, {}]
