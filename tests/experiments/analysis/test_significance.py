"""Paired tests over the queries, Holm's correction, ranks and thirds."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from grids import N_QUERIES, around
from opera.core.figures import PRIMARY
from opera.experiments.results import analyse_runs, average_ranks
from opera.experiments.significance import LEVEL, corrected_tests, differences, holm, query_values


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.floats(0.001, 0.5))
def test_holm_rejects_what_stepping_down_rejects(values, level):
    rejected = 0
    for place, value in enumerate(sorted(values)):
        if value * (len(values) - place) > level:
            break
        rejected += 1
    assert sum(value <= level for value in holm(values)) == rejected


def test_paired_tests_are_of_values_averaged_over_the_seeds(folder):
    ours = [around(0.6, seed) for seed in (1, 2, 3)]
    theirs = [around(0.5, seed) for seed in (4, 5, 6)]
    for seed in range(3):
        folder.add(method="ft", seed=seed, final=theirs[seed])
        folder.add(method="dp", seed=seed, final=ours[seed])
    row = analyse_runs(folder.home).tables[0].rows[1]
    test, expected = row.tests[PRIMARY], ttest_rel(np.mean(ours, axis=0), np.mean(theirs, axis=0))
    interval = expected.confidence_interval()
    assert test.queries == N_QUERIES
    assert test.difference == pytest.approx(0.1)
    assert (test.low, test.high) == pytest.approx((interval.low, interval.high))
    assert test.t_test == test.t_test_holm == pytest.approx(expected.pvalue)
    assert test.won + test.lost == N_QUERIES
    assert row.measures[PRIMARY].mean == pytest.approx(0.6)
    assert row.measures[PRIMARY].std == pytest.approx(np.std([v.mean() for v in ours], ddof=1))


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=9), st.integers(1, 6))
def test_the_interval_agrees_with_the_corrected_test(values, methods):
    rng = np.random.default_rng(0)
    scores = {f"m{n}": np.array(values) + rng.normal(0.3, 0.4, len(values)) for n in range(methods)}
    for test in corrected_tests(scores).values():
        assume(abs(test.t_test_holm - LEVEL) > 1e-6)
        assert test.significant is not (test.low <= 0 <= test.high)


@pytest.mark.parametrize(("count", "difference", "p"), [(2, 0.25, 0.5), (4, 0.0, 1.0), (8, 0.0, 1.0), (8, 0.25, 2**-7)])
def test_queries_that_all_moved_alike(count, difference, p):
    """Without variance the test is that of all choices of signs, of which two are as far from 0."""
    differences = np.full(count, difference)
    means = [np.mean(differences * signs) for signs in product((-1, 1), repeat=count)]
    assert p == np.mean(np.abs(means) >= difference)
    test = corrected_tests({"dp": differences})["dp"]
    assert (test.t_test, test.significant) == (p, p < LEVEL)
    assert (test.low, test.high) == ((difference, difference) if count == 8 else (-1, 1))


def test_queries_are_paired_by_id_where_seeds_test_others(folder):
    folder.add(method="ft", seed=0, queries=["a", "b", "c"], final=[0.1, 0.2, 0.3])
    folder.add(method="dp", seed=0, queries=["c", "a", "d"], final=[0.5, 0.2, 0.9])
    folder.add(method="ft", seed=1, queries=["c", "e"], final=[0.4, 0.0])
    folder.add(method="dp", seed=1, queries=["e", "c"], final=[0.5, 0.4])
    folder.add(method="dp", seed=2, queries=["a", "b"], final=[1.0, 1.0])
    baseline, group = folder.groups()
    ours, theirs = (query_values(side, f"final {PRIMARY}") for side in (group, baseline))
    assert differences(ours, theirs).tolist() == pytest.approx([0.1, (0.2 + 0.0) / 2, 0.5]), "of a, c and e"
    test = analyse_runs(folder.home).tables[0].rows[1].tests[PRIMARY]
    assert test.queries == 3


def test_ranks_of_ties_are_shared_and_a_method_must_be_everywhere(folder):
    means = {"one": {"ft": 0.5, "sp": 0.6, "dp": 0.7}, "two": {"ft": 0.5, "sp": 0.5, "dp": 0.4}}
    for data, by_method in means.items():
        for method, mean in by_method.items():
            folder.add(data=data, method=method, final=[mean] * N_QUERIES)
    folder.add(data="one", method="rp")
    assert analyse_runs(folder.home).ranks[PRIMARY] == {"ft": 2.25, "sp": 1.75, "dp": 2.0}
    assert average_ranks([group for group in folder.groups() if group.method == "ft"], PRIMARY) == {}
