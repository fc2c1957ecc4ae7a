"""Average ranks, when methods first match the baseline's best, and quality by difficulty."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grids import N_QUERIES, RunsFolder
from opera.experiments.analysis import (
    BUCKETS,
    PRIMARY,
    analyse_runs,
    average_ranks,
    compute_convergence,
    mean_ranks,
    measure_by_difficulty,
    tertiles,
)


def test_average_ranks_share_ties_and_need_a_method_everywhere(folder: RunsFolder) -> None:
    means = {"one": {"ft": 0.5, "sp": 0.6, "dp": 0.7}, "two": {"ft": 0.5, "sp": 0.5, "dp": 0.4}}
    for data, by_method in means.items():
        for method, mean in by_method.items():
            folder.add(data=data, method=method, after=[mean] * N_QUERIES)
    folder.add(data="one", method="rp")
    assert average_ranks(folder.groups(), PRIMARY) == {"ft": 2.25, "sp": 1.75, "dp": 2.0}
    comparison = analyse_runs(folder.home)
    assert comparison.ranks[PRIMARY] == {"ft": 2.25, "sp": 1.75, "dp": 2.0}
    assert average_ranks([group for group in folder.groups() if group.method == "ft"], PRIMARY) == {}


def test_ranks_are_of_the_largest_number_of_steps(folder: RunsFolder) -> None:
    for data, method, steps in product(("one", "two"), ("ft", "dp"), (4, 8)):
        folder.add(data=data, method=method, max_steps=steps, after=[0.5 + ((method == "dp") == (steps == 8)) / 8] * 9)
    assert analyse_runs(folder.home).ranks[PRIMARY] == {"ft": 2.0, "dp": 1.0}
    assert analyse_runs(folder.home).final("two").steps == 8


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    assert mean_ranks(np.array([[0.3, 0.5, 0.5], [0.1, 0.2, 0.3]])).tolist() == [3, 1.75, 1.25]


@pytest.fixture
def course(folder: RunsFolder) -> RunsFolder:
    means = {"ft": (0.3, 0.5, 0.45), "sp": (0.2, 0.3, 0.4), "dp": (0.5, 0.6, 0.7)}
    for method, values in means.items():
        for steps, mean in zip((4, 8, 16), values, strict=True):
            seconds = 0.5 if method == "ft" else 0.75
            folder.add(method=method, max_steps=steps, after=[mean] * N_QUERIES, step_seconds=seconds)
    folder.add(data="data/short", method="ft")
    folder.add(data="data/short", method="dp")
    return folder


def test_the_first_to_reach_the_baselines_best(course: RunsFolder) -> None:
    found = {row.method: row for row in compute_convergence(course.groups(), "ft")}
    assert list(found) == ["ft", "sp", "dp"]
    assert {row.data for row in found.values()} == {"data/one"}, "one number of steps shows no convergence"
    assert (found["ft"].target, found["ft"].baseline_steps, found["ft"].steps) == (0.5, 8, 8)
    assert (found["sp"].steps, found["sp"].step_ratio, found["sp"].seconds_ratio) == (None, None, None)
    assert (found["dp"].steps, found["dp"].step_ratio, found["dp"].seconds_ratio) == (4, 0.5, 0.75)


def test_without_the_baseline_there_is_none(course: RunsFolder) -> None:
    assert compute_convergence(course.groups(), "infobatch") == []


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
